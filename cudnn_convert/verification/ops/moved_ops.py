"""Ops with a different computation allowed in an artifact, listed for the judge.

The list is stated apart from the passes that do so: images whose channels come first, convolutions that a CPU
has with oneDNN alone, and ops of half that no CPU computes.
Source: tensorflow v2.21.0 core/ops/nn_ops.cc, array_ops.cc, math_ops.cc, core/util/tensor_format.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cudnn_convert.graph.index import NodeDef
from cudnn_convert.private import tf_private
from cudnn_convert.verification.channels_first import DILATED, FORMATS, is_only_single
from cudnn_convert.verification.ops.graphs import TensorGraph

Order = tuple[int, ...]
#: A tensor of the source, one of the artifact, and the order of its axes there.
Pair = tuple[str, str, Order]

DEPTHWISE: Final = "DepthwiseConv2dNative"
#: Ops that treat all elements alike.
POINTWISE: Final = frozenset(
    "Relu Relu6 Elu Selu LeakyRelu Sigmoid Tanh Softplus Softsign Exp Expm1 Log Log1p Neg Abs Sign Square "
    "Sqrt Rsqrt Reciprocal Inv Floor Ceil Round Rint Erf Sin Cos Cast LogicalNot IsNan IsInf IsFinite "
    "ZerosLike OnesLike FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars AddV2 AddN Sub Mul MulNoNan Div "
    "RealDiv DivNoNan FloorDiv FloorMod Maximum Minimum SquaredDifference Pow Greater GreaterEqual Less "
    "LessEqual Equal NotEqual LogicalAnd LogicalOr SelectV2 ClipByValue".split()
)
REDUCTIONS: Final = frozenset("Sum Mean Max Min Prod All Any".split())
#: Attributes with a number, or a pair, for each axis.
LISTS: Final = ("ksize", "strides", "dilations", "explicit_paddings")
#: Ops with a row for each axis in their second input.
ROWED: Final = frozenset("Pad PadV2 MirrorPad Tile".split())
BATCHED: Final = frozenset({"SpaceToBatchND", "BatchToSpaceND"})


def list_moved(graph: TensorGraph) -> list[str]:
    """Return the nodes with a different computation allowed in an artifact."""
    return [node.name for node in graph.graph.node if is_moved(node)]


def is_moved(node: NodeDef) -> bool:
    """Return True if an artifact may compute a node in another way."""
    return read_format(node) in FORMATS or is_rare(node) or is_only_single(node)


def is_rare(node: NodeDef) -> bool:
    """Return True if a convolution lacks a kernel on some CPUs, in any layout."""
    if node.op not in DILATED | {DEPTHWISE}:
        return False
    strides = [stride for stride in read_list(node, "strides") if stride != 1]
    is_unequal = node.op == DEPTHWISE and len(strides) != 0 and (len(strides) == 1 or len({*strides}) > 1)
    return is_unequal or any(dilation != 1 for dilation in read_list(node, "dilations"))


def read_format(node: NodeDef) -> str:
    return node.attr["data_format"].s.decode() if "data_format" in node.attr else ""


def read_list(node: NodeDef, key: str) -> list[int]:
    """Return the numbers of an attribute, or the default for an absent attribute."""
    if key in node.attr:
        return [*node.attr[key].list.i]
    known = [each for each in tf_private.find_op(node.op).attr if each.name == key]
    return [*known[0].default_value.list.i] if known else []


def simplify(order: Sequence[int]) -> Order:
    """Return an order of axes, empty for the identity."""
    return () if [*order] == sorted(order) else tuple(int(axis) for axis in order)
