"""Parameters that a graph computes: kernels and biases are its variables, ops pack the blob.

Keras's CuDNN layers do so, with slices, reshapes and one concatenation (tensorflow v1.15.0
python/keras/layers/cudnn_recurrent.py `_process_batch`, recurrent_v2.py `_canonical_to_params`), and so does
CudnnRNNCanonicalToParams, whose kernel copies each of its tensors to its place in the blob (core/kernels/
cudnn_rnn_ops.cc): matrices in the order of pseudo-layers and linear layer ids, then biases likewise. A file
is not run: what may stand below the parameters is arithmetic on variables and constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, first_line
from cudnn_convert.graph import build
from cudnn_convert.graph.cut import PLACEHOLDERS
from cudnn_convert.graph.index import Index, split, unique
from cudnn_convert.graph.session import session
from cudnn_convert.graph.trace import PASSAGES, VARIABLES, Origin, computation
from cudnn_convert.graph.variables import require
from cudnn_convert.model import Array, BlobEvidence, CanonicalEvidence, Model

#: What computed parameters are called, by their variables and their bytes.
Names: TypeAlias = dict[tuple[tuple[str, ...], bytes], str]
#: CudnnRNNCanonicalToParams: num_layers, num_units, input_size, then the tensors of the blob in its order.
_PACKING: Final = frozenset({"CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2"})
_FIRST: Final = 3
_CURE: Final = "freeze the graph where it was trained, and convert that"
_ARITHMETIC: Final = frozenset(
    "Const Identity Snapshot StopGradient PreventGradient ReadVariableOp Cast ConcatV2 Concat Reshape "
    "StridedSlice Slice Split SplitV Transpose Pack Unpack ExpandDims Squeeze GatherV2 Gather ReverseV2 "
    "ReverseSequence Tile Pad PadV2 Fill ZerosLike OnesLike Shape ShapeN Size Rank Range ConcatOffset "
    "BroadcastTo Bitcast Add AddV2 AddN BiasAdd Sub Mul Div RealDiv FloorDiv Neg Abs Sign Square Sqrt Rsqrt "
    "Reciprocal Pow Exp Log Tanh Sigmoid Softplus Relu Maximum Minimum ClipByValue Sum Mean Max Min Prod "
    "L2Loss MatMul BatchMatMul BatchMatMulV2 Diag DiagPart MatrixDiag Select SelectV2 Greater GreaterEqual "
    "Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot".split()
)


def value(model: Model, index: Index, origin: Origin) -> Array:
    """The 1-D value of computed parameters. Raises UnsupportedModelError where more than arithmetic on
    variables and constants makes them, or where a variable has no value.
    """
    below = computation(index, origin.op)
    reasons = [f"{origin.op}: {reason}" for reason in _obstacles(below)]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    graph = build.with_nodes(tf.compat.v1.GraphDef(), _plain(below))
    require(model.path, graph, model.variables, decoded=())
    try:
        with session(graph, model.variables) as running:
            return np.asarray(running.run(origin.tensor)).reshape(-1)
    except (tf.errors.OpError, ValueError) as cause:
        expected = "parameters that can be computed from the variables"
        reason = f"{origin.op}: expected {expected}, found {first_line(cause)}; {_CURE}"
        raise UnsupportedModelError(model.path, [reason]) from cause


def _obstacles(below: dict[str, Any]) -> Iterator[str]:
    expected = "parameters that follow from variables and constants alone"
    for name, node in sorted(below.items()):
        if node.op in PLACEHOLDERS:
            yield f"expected {expected}, found the placeholder {name}; bind it with --set {name}:0=VALUE"
        elif node.op not in _ARITHMETIC | PASSAGES | VARIABLES | _PACKING:
            yield f"expected {expected}, found {node.op} {name}; {_CURE}"


def _plain(below: dict[str, Any]) -> Iterator[Any]:
    """The nodes without control flow, and without the op that only a GPU has; names keep their meaning."""

    def direct(name: str) -> str:
        while below[split(name)[0]].op in PASSAGES:
            name = below[split(name)[0]].input[0]
        return name

    for node in below.values():
        if node.op not in PASSAGES:
            inputs = [direct(name) for name in node.input if not name.startswith("^")]
            if node.op in _PACKING:
                yield from _packed(node, inputs[_FIRST:], below)
            else:
                copy = type(node)()
                copy.CopyFrom(node)
                del copy.input[:]
                copy.input.extend(inputs)
                yield copy


def _packed(node: Any, tensors: list[str], taken: Collection[str]) -> Iterator[Any]:
    """The tensors flattened row by row and laid end to end, under the node's name."""
    dtype = tf.as_dtype(node.attr["T"].type)
    shape, axis = (unique(f"{node.name}/{part}", taken) for part in ("flat", "axis"))
    yield build.constant(shape, np.array([-1], np.int32))
    yield build.constant(axis, np.array(0, np.int32))
    flat = [
        build.node(f"{shape}_{number}", "Reshape", [name, shape], T=dtype, Tshape=tf.int32)
        for number, name in enumerate(tensors)
    ]
    yield from flat
    inputs = [*(found.name for found in flat), axis]
    yield build.node(node.name, "ConcatV2", inputs, T=dtype, Tidx=tf.int32, N=len(flat))


def scope(leaves: Sequence[str]) -> str:
    """The innermost scope that all of `leaves` lie in, `""` where that is the root."""
    common: list[str] = []
    for parts in zip(*(name.split("/")[:-1] for name in leaves), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common)


def shared(names: Names, origin: Origin, evidence: BlobEvidence | CanonicalEvidence) -> str:
    """What parameters are called: their variable's name, or one for the same values of the same variables.

    `names` has the computed ones of the graph so far, and is added to.
    """
    if not origin.computed or isinstance(evidence, CanonicalEvidence):
        return origin.op
    key = (origin.leaves, evidence.blob.tobytes())
    if key not in names:
        inside = scope(origin.leaves)
        names[key] = unique(f"{inside}/parameters" if inside else "parameters", set(names.values()))
    return names[key]
