"""Carries a layout through ops indifferent to layout, to make transpositions meet and cancel.

A rule of `RULES` takes a node that reads a tensor known in another layout, and gives a node that reads that
one instead, or None where it cannot. `transpose` and `shape` end a layout: they give a node of the old name.

    before:  y = Transpose(x, [0, 3, 1, 2]); z = Relu(y); s = Mean(z, [2, 3]); n = Shape(z)
    after:   z/channels_last = Relu(x); s = Mean(z/channels_last, [1, 2])
             n = GatherV2(Shape(z/channels_last), [0, 3, 1, 2])

Source: tensorflow v2.21.0 core/ops/math_ops.cc, array_ops.cc, nn_ops.cc (which input has axes or sizes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import NodeDef, reference
from cudnn_convert.graph.passes.image_layouts import (
    Order,
    RewrittenNode,
    TransposedTensor,
    TransposedTensors,
    element_type,
    invert,
    order_of,
)
from cudnn_convert.graph.passes.subgraphs import output_types
from cudnn_convert.model import Array

Rule = Callable[[TransposedTensors, NodeDef], RewrittenNode | None]

_ELEMENTWISE: Final = (
    "Identity StopGradient Snapshot PreventGradient CheckNumerics Relu Relu6 Elu Selu LeakyRelu Sigmoid Tanh "
    "Softplus Softsign Exp Expm1 Log Log1p Neg Abs Sign Square Sqrt Rsqrt Reciprocal Inv Floor Ceil Round "
    "Rint Erf Sin Cos Cast LogicalNot IsNan IsInf IsFinite ZerosLike OnesLike FakeQuantWithMinMaxArgs "
    "FakeQuantWithMinMaxVars Add AddV2 AddN Sub Mul MulNoNan Div RealDiv DivNoNan FloorDiv FloorMod Maximum "
    "Minimum SquaredDifference Pow Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr "
    "SelectV2 ClipByValue"
).split()
_REDUCTIONS: Final = "Sum Mean Max Min Prod All Any".split()


def _elementwise(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    names = layouts.index.data_inputs(node)
    orders = layouts.orders(names)
    if len(orders) != 1:
        return None
    (order,) = orders
    kind = element_type(node)
    inputs = []
    for name in names:
        known = layouts.known.get(name)
        laid = known.name if known else layouts.operand(name, order, kind)
        if laid is None:
            return None
        inputs.append(laid)
    return RewrittenNode(layouts.copy(node, inputs), (order,) * len([*output_types(node)]))


def _pad_or_tile(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    image, numbers, *value = layouts.index.data_inputs(node)
    laid = layouts.known.get(image)
    if laid is None:
        return None
    rows = layouts.vector(numbers, laid.order, "sizes" if node.op == "Tile" else "paddings")
    return RewrittenNode(layouts.copy(node, [laid.name, rows, *value]), (laid.order,))


def _join(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    *names, axis = layouts.index.data_inputs(node)
    orders = layouts.orders(names)
    at = layouts.value(axis)
    if len(orders) != 1 or at is None or not all(name in layouts.known for name in names):
        return None
    (order,) = orders
    inputs = [layouts.known[name].name for name in names]
    return RewrittenNode(layouts.copy(node, [*inputs, _move_axis(layouts, at, order)]), (order,))


def _part(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    names = layouts.index.data_inputs(node)
    image, axis = (1, 0) if node.op == "Split" else (0, 2)
    laid, at = layouts.known.get(names[image]), layouts.value(names[axis])
    if laid is None or at is None:
        return None
    names[image], names[axis] = laid.name, _move_axis(layouts, at, laid.order)
    return RewrittenNode(layouts.copy(node, names), (laid.order,) * len([*output_types(node)]))


def _move_axis(layouts: TransposedTensors, axis: Array, order: Order) -> str:
    position = order.index(int(axis) % len(order))
    return layouts.constant("channels_last/axis", np.array(position, axis.dtype))


def _reduce(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    image, axes = layouts.index.data_inputs(node)
    laid, value = layouts.known.get(image), layouts.value(axes)
    if laid is None or value is None:
        return None
    gone = [int(axis) % len(laid.order) for axis in value.reshape(-1)]
    places = np.array([laid.order.index(axis) for axis in gone], value.dtype).reshape(value.shape)
    copied = layouts.copy(node, [laid.name, layouts.constant("channels_last/axes", places)])
    keeps = node_defs.read_attribute(node, "keep_dims").b
    return RewrittenNode(copied, (laid.order if keeps else _without(laid.order, gone),))


def _squeeze(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    (image,) = layouts.index.data_inputs(node)
    laid = layouts.known.get(image)
    dims = node_defs.read_attribute(node, "squeeze_dims").list.i
    if laid is None or not dims:
        return None
    gone = [dim % len(laid.order) for dim in dims]
    copied = layouts.copy(node, [laid.name])
    copied.attr["squeeze_dims"].list.i[:] = sorted(laid.order.index(axis) for axis in gone)
    return RewrittenNode(copied, (_without(laid.order, gone),))


def _without(order: Order, gone: Sequence[int]) -> Order:
    """Return the order of the remaining axes."""
    left = [axis for axis in order if axis not in gone]
    return tuple(sorted(left).index(axis) for axis in left)


def _batch(layouts: TransposedTensors, node: NodeDef) -> RewrittenNode | None:
    """Move the constant blocks of SpaceToBatchND and BatchToSpaceND to the right axes.

    Last axes of which no blocks are made are left out, as TensorFlow Lite wants it.
    """
    image, block, edges = layouts.index.data_inputs(node)
    laid, sizes, rows = layouts.known.get(image), layouts.value(block), layouts.value(edges)
    if laid is None or sizes is None or rows is None or laid.order[0] != 0:
        return None
    places = [axis - 1 for axis in laid.order[1:]]
    missing = len(places) - len(sizes)
    sizes = np.concatenate([sizes, np.ones(missing, sizes.dtype)])[places]
    rows = np.pad(rows, [(0, missing), (0, 0)])[places]
    kept = max((k + 1 for k in range(len(sizes)) if sizes[k] != 1 or rows[k].any()), default=1)
    constants = (("block", sizes[:kept]), ("edges", rows[:kept]))
    inputs = [layouts.constant(f"channels_last/{name}", value) for name, value in constants]
    return RewrittenNode(layouts.copy(node, [laid.name, *inputs]), (laid.order,))


#: How each op goes on in another layout.
RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **dict.fromkeys(_ELEMENTWISE, _elementwise),
        **dict.fromkeys(_REDUCTIONS, _reduce),
        **dict.fromkeys(("Pad", "PadV2", "MirrorPad", "Tile"), _pad_or_tile),
        **dict.fromkeys(("Split", "SplitV"), _part),
        **dict.fromkeys(("SpaceToBatchND", "BatchToSpaceND"), _batch),
        "ConcatV2": _join,
        "Squeeze": _squeeze,
    }
)


def transpose(layouts: TransposedTensors, node: NodeDef) -> NodeDef | None:
    """Read the operand of a Transpose from another layout, and note a channels-last result."""
    image, perm = layouts.index.data_inputs(node)
    value = layouts.value(perm)
    if value is None or value.ndim != 1:
        return None
    laid = layouts.known.get(image)
    if laid is None or len(laid.order) != len(value):
        laid = TransposedTensor(image, (*range(len(value)),))
    places = tuple(laid.order.index(int(axis) % len(value)) for axis in value)
    last = order_of(len(value))
    if len(places) > 2 and places == invert(last):
        layouts.known[f"{node.name}:0"] = TransposedTensor(laid.name, last)
    if laid.name == image:
        return None
    dtype, waits = element_type(node), [name for name in node.input if name.startswith("^")]
    if places == tuple(sorted(places)):
        return node_defs.identity(node.name, reference(laid.name), dtype.as_datatype_enum, control=waits)
    order = layouts.constant("channels_last/perm", np.array(places, np.int32))
    inputs = [reference(laid.name), order, *waits]
    return node_defs.node(node.name, "Transpose", inputs, T=dtype, Tperm=tf.int32)


def shape(layouts: TransposedTensors, node: NodeDef) -> NodeDef | None:
    """Read the sizes of a tensor from the tensor in another layout."""
    laid = layouts.known.get(layouts.index.data_inputs(node)[0])
    if laid is None:
        return None
    sizes = layouts.copy(node, [laid.name])
    layouts.added.setdefault(node.name, []).append(sizes)
    kind = tf.as_dtype(node_defs.read_attribute(node, "out_type").type)
    at = layouts.constant("channels_last/order", np.array(invert(laid.order), np.int32))
    axis = layouts.constant("channels_last/axis", np.array(0, np.int32))
    return node_defs.gather(node.name, sizes.name, at, axis, kind)


#: The ops that end a layout.
ENDS: Final = MappingProxyType({"Transpose": transpose, "Shape": shape})
