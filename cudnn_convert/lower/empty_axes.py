"""Handles axes of open size, possibly empty, for TensorFlow Lite.

`replace_reductions`: its kernels give what memory holds. Of nothing TensorFlow gives 0 as a sum, NaN as a
mean, and as a maximum the end of the type, an infinity for floats.
Source: tensorflow v1.15.0 core/kernels/reduction_ops_max.cc, reduction_ops_mean.cc; seen in TensorFlow Lite
2.21.0.

    before:  y = Max(x[?, ?, 3], 1)
    after:   y = SelectV2(Size(x) == 0, -inf, Max(x, 1))

A mean of floats over several axes becomes means over one each: its kernel adds up one value after another in
float32, and of an image of 67 x 67 pixels near 0.9 it is off by 5e-5.

    before:  y = Mean(x[?, ?, ?, 3], [1, 2])
    after:   y = SelectV2(Size(x) == 0, NaN, Mean(Mean(x, 2), 1))

`copy_outputs`: what a run decides the size of lies nowhere if it has no values, and the interpreter refuses
to give such an output ("Invalid tensor size."). A copy lies somewhere; the converter must not see that it is
one.

    before:  y = Fill(n, 0), an output
    after:   sized = Fill(n, 0); y = SelectV2(Size(sized) < 0, 0, sized)
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, expand_nodes, rewrite_nodes
from cudnn_convert.graph.index import NodeDef, claim, split, tensor
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.model import Array

_REDUCTIONS: Final = frozenset({"Max", "Min", "Mean", "Sum"})


def replace_reductions(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each reduction over an axis of open size.

    Return `graph` itself if there are none.
    """

    def choose(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        if node.op in _REDUCTIONS and _may_be_empty(graph, node):
            yield from _choose(node, _axes_in_turn(graph, node), taken)

    return rewrite_nodes(graph, choose)


def _may_be_empty(graph: Graph, node: NodeDef) -> bool:
    """Return True if a reduced axis may be empty, by shapes and constants."""
    shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
    axes = constant_folding.fold_constant(graph.index, tensor(node.input[1]))
    if shape.rank is None or axes is None:
        return True
    return any(shape[int(axis)] in (None, 0) for axis in np.ravel(axes))


def _axes_in_turn(graph: Graph, node: NodeDef) -> Array:
    """Return the axes of a mean of floats in turn, the last first.

    Each axis is reduced alone. Empty for another reduction.
    """
    axes = constant_folding.fold_constant(graph.index, tensor(node.input[1]))
    rank = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape.rank
    if node.op != "Mean" or not tf.as_dtype(node.attr["T"].type).is_floating or axes is None or not rank:
        return np.zeros(0, np.int32)
    return np.unique(axes % rank)[::-1]


def _choose(node: NodeDef, axes: Array, taken: set[str]) -> Iterator[NodeDef]:
    kind = tf.as_dtype(node.attr["T"].type)
    names = {part: claim(f"{node.name}/{part}", taken) for part in "input count none empty end bound".split()}
    # An Identity: a constant cannot wait for one output of a Switch.
    yield node_defs.identity(names["input"], node.input[0], node.attr["T"].type)
    after = [f"^{names['input']}"]
    yield node_defs.node(names["count"], "Size", [names["input"]], T=kind, out_type=tf.int32)
    yield node_defs.constant(names["none"], np.array(0, np.int32), control=after)
    yield node_defs.node(names["empty"], "Equal", [names["count"], names["none"]], T=tf.int32)
    yield node_defs.constant(names["end"], _of_nothing(node.op, kind), control=after)
    if axes.size < 2:
        yield node_defs.copy_node(node, name=names["bound"], inputs=[names["input"], *node.input[1:]])
    else:
        yield from _reduce_in_turn(node, names["input"], axes, names["bound"], taken)
    yield node_defs.node(node.name, "SelectV2", [names["empty"], names["end"], names["bound"]], T=kind)


def _reduce_in_turn(node: NodeDef, source: str, axes: Array, end: str, taken: set[str]) -> Iterator[NodeDef]:
    """Yield nodes reducing an axis each, the last named `end`."""
    first = source
    for number, axis in enumerate(axes, 1):
        at = claim(f"{node.name}/axis", taken)
        yield node_defs.constant(at, np.asarray(axis), control=[f"^{first}"])
        name = end if number == axes.size else claim(f"{node.name}/part", taken)
        yield node_defs.copy_node(node, name=name, inputs=[source, at, *node.input[2:]])
        source = name


def _of_nothing(op: str, kind: tf.DType) -> Any:
    dtype = kind.as_numpy_dtype
    if op == "Sum":
        return np.array(0, dtype)
    if op == "Mean":
        return np.array(np.nan if kind.is_floating else 0, dtype)
    if kind.is_floating:
        return np.array(-np.inf if op == "Max" else np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.array(limits.min if op == "Max" else limits.max, dtype)


#: Ops whose sizes a run decides; where they say which, unless those inputs are constants.
_SIZED: Final = {
    **dict.fromkeys(("Where", "Unique", "Slice"), None),
    "Fill": [0],
    "Range": [0, 1, 2],
    "StridedSlice": [1, 2, 3],
    **{op: [1] for op in "Reshape BroadcastTo Tile Pad PadV2 MirrorPad OneHot Transpose".split()},
}


def copy_outputs(graph: Graph, outputs: Sequence[str]) -> Graph:
    """Copy each output of a size decided by a run.

    Return `graph` itself if there are none.
    """
    taken, copies = {node.name for node in graph.node}, dict[str, list[NodeDef]]()
    for name in dict.fromkeys(split(output)[0] for output in outputs):
        ends = sorted({split(output)[1] for output in outputs if split(output)[0] == name})
        tensors = graph.shapes.get_operation_by_name(name).outputs
        open_ends = [
            k for k in ends if tensors[k].shape.rank != 0 and not tensors[k].shape.is_fully_defined()
        ]
        if open_ends and _is_sized(graph, name):
            copies[name] = [*_copy(graph.index.nodes[name], tensors, open_ends, taken)]
    return expand_nodes(graph, copies)


def _is_sized(graph: Graph, name: str) -> bool:
    """Return True if a run decides the size of a tensor, looking through copies."""
    index = graph.index
    while (node := index.nodes[split(name)[0]]).op in ("Identity", "IdentityN"):
        name = tensor(index.data_inputs(node)[split(name)[1]])
    if node.op not in _SIZED:
        return False
    given, says = index.data_inputs(node), _SIZED[node.op]
    return says is None or any(constant_folding.fold_constant(index, given[k]) is None for k in says)


def _copy(node: NodeDef, tensors: Sequence[Any], ends: Sequence[int], taken: set[str]) -> Iterator[NodeDef]:
    """Yield the node under another name, and copies of outputs `ends` under the old name."""
    whole = claim(f"{node.name}/sized", taken)
    yield node_defs.copy_node(node, name=whole)
    given = [f"{whole}:{k}" for k in range(len(tensors))]
    for k in ends:
        kind, parts = tensors[k].dtype, ("count", "none", "never", "zero", "copy")
        count, none, never, zero, copy = (claim(f"{node.name}/{part}_{k}", taken) for part in parts)
        yield node_defs.node(count, "Size", [given[k]], T=kind, out_type=tf.int32)
        yield node_defs.constant(none, np.array(0, np.int32), control=[f"^{whole}"])
        yield node_defs.node(never, "Less", [count, none], T=tf.int32)
        yield node_defs.constant(zero, np.array(0, kind.as_numpy_dtype), control=[f"^{whole}"])
        yield node_defs.node(copy, "SelectV2", [never, zero, given[k]], T=kind)
        given[k] = copy
    yield node_defs.node(node.name, "IdentityN", given, T=[each.dtype for each in tensors])
