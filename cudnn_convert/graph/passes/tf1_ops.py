"""Replaces ops of TensorFlow 1: reference variables, GatherTree, Round of integers and Reverse by flags.

Reference variables become resource variables, the only kind that TensorFlow 2 fully supports. A variable `w`
keeps its tensor name `w:0`: `w` becomes the read of a handle. `to_resource_variables` leaves variables that
an op of the graph writes by reference unchanged.

    before:  w = VariableV2; w/read = Identity(w)
    after:   w/handle = VarHandleOp; w = ReadVariableOp(w/handle); w/read = Identity(w)

`convert_assigned_variables` converts variables that the graph assigns as a whole and outside loops. An
assignment still returns the value that it wrote. A reference is read when the op that takes it runs, so each
such op gets a read of its own with the same control inputs.

    before:  Assign(w, x)
    after:   Assign/assign = AssignVariableOp(w/handle, x); Assign = ReadVariableOp(w/handle, ^Assign/assign)

`replace_gather_tree` replaces GatherTree of TensorFlow 1's beam search, which TensorFlow 2 lacks, by a loop
of gathers. It walks the beams back from their last step: ids `[time, batch, beam]`, each with the beam of the
step before that it came from. After a row's length and after the first end token there are end tokens. The
IdentityN returns the beams and the inputs, with a mark by which verification knows it and computes it again.
Source: tensorflow v1.15.0 contrib/seq2seq/ops/beam_search_ops.cc, kernels/beam_search_ops.cc.

    before:  beams = GatherTree(ids, parents, lengths, end)
    after:   beams/while = While(...); ...; beams = IdentityN(beams/..., ids, parents, lengths, end)

`keep_integers` hands on what a Round of integers reads: TensorFlow 2.21 makes zeros of it, TensorFlow 1 the
integers. Source: tensorflow v1.15.0 core/kernels/cwise_ops.h round; seen in 2.21.0 on the CPU.

    before:  y = Round(x), T=int32
    after:   y = Identity(x), T=int32

`number_axes` tells a Reverse the numbers of its axes: with a flag for each, TensorFlow 2.21 refuses a tensor
without rows. Source: seen in 2.21.0 on the CPU.

    before:  y = Reverse(x, [False, True])
    after:   y = ReverseV2(x, [1])
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import constant_folding, node_defs, ops
from cudnn_convert.graph.graph import (
    Graph,
    copy_graph,
    expand_nodes,
    replace_nodes,
    rewrite_nodes,
    share_without_devices,
)
from cudnn_convert.graph.index import Index, NodeDef, all_nodes, claim, split, tensor, unique, walk
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep, Pass
from cudnn_convert.graph.recurrent_state import Use, copy_through_control_flow, root, takes_reference, uses
from cudnn_convert.graph.session import handle
from cudnn_convert.model import Tensor
from cudnn_convert.private import tf_private


def make_resources(values: Mapping[str, Tensor]) -> tuple[Pass, ...]:
    """Return the passes to make resources of reference variables.

    `values` gives the value of each by op.
    """
    return (partial(convert_assigned_variables, values=values), partial(to_resource_variables, values=values))


def to_resource_variables(graph: Graph, _: Keep = (), *, values: Mapping[str, Tensor]) -> Graph:
    """Make resources of reference variables, unless written by reference.

    `values` gives shape and dtype by op.
    """
    index = graph.index
    handles: dict[str, NodeDef] = {}
    carriers: set[str] = set()
    for node in graph.node:
        if node.op in ops.REFERENCE_VARIABLES:
            path = [*walk([node.name], partial(_list_carriers, index))]
            if not any(_is_written(index, name) for name in path):
                value = values[node.name]
                handles[node.name] = handle(unique(f"{node.name}/handle", index.nodes), node.name, value)
                carriers.update(path)
    graph = share_without_devices(graph)
    if not handles:
        return graph
    nodes = []
    for node in graph.node:
        if node.name in handles:
            resource = handles[node.name]
            dtype = tf.as_dtype(values[node.name].dtype)
            nodes += [resource, node_defs.node(node.name, "ReadVariableOp", [resource.name], dtype=dtype)]
            continue
        if node.name in carriers:
            node = node_defs.copy_node(node, op=node.op.removeprefix("Ref"))  # noqa: PLW2901
        nodes.append(node)
    return Graph(graph, nodes)


def _list_carriers(index: Index, name: str) -> list[str]:
    """Return the ops that read a reference to hand it on."""
    return [reader.name for reader in index.consumers(name) if reader.op in ops.REFERENCE_PATHS]


def _is_written(index: Index, name: str) -> bool:
    """Return True if an op takes a reference, but for those that hand it on."""
    readers = (reader for reader in index.consumers(name) if reader.op not in ops.REFERENCE_PATHS)
    return any(map(takes_reference, readers))


_RESOURCE_WRITES: Final = MappingProxyType(
    {op: f"{op}VariableOp" for op in ("Assign", "AssignAdd", "AssignSub")}
)


def convert_assigned_variables(graph: Graph, _: Keep = (), *, values: Mapping[str, Tensor]) -> Graph:
    """Make resources of reference variables assigned as a whole and outside loops."""
    for name in [node.name for node in graph.node if node.op in ops.REFERENCE_VARIABLES]:
        index = graph.index
        users = [*uses(index, name)]
        if any(_is_write(index, use) for use in users) and all(_can_change(index, use) for use in users):
            graph = _as_resource(graph, name, values[name])
    return graph


def _is_write(index: Index, use: Use) -> bool:
    return use.position == 0 and index.nodes[use.op].op in _RESOURCE_WRITES


def _can_change(index: Index, use: Use) -> bool:
    node = index.nodes[use.op]
    is_read = tf_private.find_op(node.op) is not None and not takes_reference(node)
    is_read |= node.op == "RefMerge"
    in_loop = any(index.nodes[op].op not in ops.SWITCHES for op, _ in use.passage)
    return (is_read or _is_write(index, use)) and not in_loop


def _as_resource(graph: Graph, variable: str, value: Tensor) -> Graph:
    index = graph.index
    declared = tf.TensorShape(index.nodes[variable].attr["shape"].shape)
    shape = declared if declared.is_compatible_with(value.shape) else tf.TensorShape(None)
    dtype = tf.as_dtype(index.nodes[variable].attr["dtype"].type)
    name = unique(f"{variable}/handle", index.nodes)
    replaced = {variable: node_defs.node(variable, "ReadVariableOp", [name], dtype=dtype)}
    added = [handle(name, variable, tf.TensorSpec(shape, dtype))]
    for use in uses(index, variable):
        taken, nodes = copy_through_control_flow(index, name, use.passage, f"{use.op}/{name}", tf.resource)
        added += nodes
        node = replaced.setdefault(use.op, node_defs.copy_node(index.nodes[use.op]))
        if _is_write(index, use):
            added.append(_write(index, node, taken, dtype))
        else:
            added += _read(node, use, taken, dtype)
    for node in index.nodes.values():
        if node.op.startswith("Ref") and root(index, node.name) == variable:
            replaced.setdefault(node.name, node_defs.copy_node(node)).op = node.op.removeprefix("Ref")
    return replace_nodes(graph, replaced, added)


def _write(index: Index, node: NodeDef, taken: str, dtype: tf.DType) -> NodeDef:
    """Return the assignment; `node` becomes, in place, the read of the written value."""
    old, value, *control = node.input
    # Where the reference came from another assignment, that one runs first.
    first = [f"^{split(old)[0]}"] if index.nodes[split(old)[0]].op in _RESOURCE_WRITES else []
    name, op = f"{node.name}/assign", _RESOURCE_WRITES[node.op]
    write = node_defs.node(name, op, [taken, value, *control, *first], dtype=dtype)
    node.CopyFrom(node_defs.node(node.name, "ReadVariableOp", [taken, f"^{name}"], dtype=dtype))
    return write


def _read(node: NodeDef, use: Use, taken: str, dtype: tf.DType) -> Iterator[NodeDef]:
    """Give a node a read of the variable, after the remaining inputs.

    An Identity becomes the read itself. Changes `node` in place.
    """
    control = [name for name in node.input if name.startswith("^")]
    if node.op == "Identity":
        node.CopyFrom(node_defs.node(node.name, "ReadVariableOp", [taken, *control], dtype=dtype))
        return
    others = [
        name for position, name in enumerate(node.input) if position != use.position and name not in control
    ]
    waits = [] if node.op in ops.MERGES else [f"^{split(name)[0]}" for name in others]
    name = f"{node.name}/read_{use.position}"
    node.input[use.position] = name
    yield node_defs.node(name, "ReadVariableOp", [taken, *control, *dict.fromkeys(waits)], dtype=dtype)


_OP: Final = "GatherTree"
#: The attribute of a node that stands for a GatherTree: its first output, made from the others.
MARK: Final = "_gather_tree"
_SPECS: Final = tuple(tf.TensorSpec(shape, tf.int32) for shape in ([None] * 3, [None] * 3, [None], []))


def replace_gather_tree(graph: Graph, _: Keep = ()) -> Graph:
    """Compute each GatherTree by ops of TensorFlow 2. Raises InvalidModelError."""
    trees = [node for node in graph.node if node.op == _OP]
    for node in graph.node:
        if MARK in node.attr:
            expected = "no attribute that this tool alone sets"
            raise InvalidModelError(node.name, expected=expected, found=MARK)
    if not trees:
        return graph
    body, index = inlining.trace_function(_beams, *_SPECS), graph.index
    calls = {}
    for node in trees:
        inputs = index.data_inputs(node)
        if len(inputs) != len(_SPECS):
            expected = "ids, parents, lengths and an end token"
            raise InvalidModelError(node.name, expected=expected, found=f"{len(inputs)} inputs")
        calls[node.name] = nodes = inlining.call(body, node.name, inputs)
        nodes[-1].attr[MARK].b = True
        # TensorFlow makes Switch nodes of loops inside a decoder's loop; tf2onnx supports no list in those.
        for inner in nodes:
            inner.attr.pop(inlining.LOWERED, None)
    expanded = expand_nodes(graph, calls)
    added = (function for function in body.library if function.signature.name not in graph.functions)
    return Graph(graph, expanded.node, [*graph.library.function, *added])


def keep_integers(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Round of integers, in functions too."""
    if not any(_rounds_integers(node) for node in all_nodes(graph)):
        return graph
    copy = copy_graph(graph)
    for node in all_nodes(copy):
        if _rounds_integers(node):
            node.op = "Identity"
    return Graph(copy)


def number_axes(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Reverse with constant flags; return `graph` itself if unchanged."""

    def number(node: NodeDef, taken: set[str]) -> list[NodeDef]:
        if node.op != "Reverse":
            return []
        flags = constant_folding.fold_constant(graph.index, tensor(node.input[1]))
        if flags is None:
            return []
        axes = node_defs.constant(claim(f"{node.name}/axis", taken), np.flatnonzero(flags).astype(np.int32))
        inputs = [node.input[0], axes.name, *node.input[2:]]
        numbered = node_defs.copy_node(node, op="ReverseV2", inputs=inputs)
        numbered.attr["Tidx"].type = tf.int32.as_datatype_enum
        return [axes, numbered]

    return rewrite_nodes(graph, number)


#: What brings a graph of TensorFlow 1 to ops that TensorFlow 2 computes alike.
PASSES: Final[tuple[Pass, ...]] = (replace_gather_tree, keep_integers, number_axes)


def _rounds_integers(node: NodeDef) -> bool:
    return node.op == "Round" and tf.as_dtype(node.attr["T"].type).is_integer


def _beams(ids: Any, parents: Any, lengths: Any, end: Any) -> tuple[Any, ...]:
    """Return the beams, and the inputs."""
    time, batch, width = tf.unstack(tf.shape(ids))
    rows = tf.reshape(tf.range(batch) * width, [-1, 1])
    from_last, parents_from_last = tf.reverse(ids, [0]), tf.reverse(parents, [0])
    shape = tf.stack([batch, width])
    empty = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=time, element_dtype=tf.int32)

    def step(t: Any, beam: Any, beam_list: Any) -> tuple[Any, ...]:
        alive = tf.broadcast_to(tf.reshape(time - 1 - t < lengths, [-1, 1]), shape)
        taken = tf.gather(tf.reshape(from_last[t], [-1]), rows + beam)
        item = tf.where(alive, taken, tf.fill(shape, end))
        beam_list = tf.raw_ops.TensorListSetItem(input_handle=beam_list, index=t, item=item)
        parent = tf.gather(tf.reshape(parents_from_last[t], [-1]), rows + beam)
        return t + 1, tf.where(alive, parent, beam), beam_list

    own = tf.broadcast_to(tf.reshape(tf.range(width), [1, -1]), shape)
    *_, beam_list = tf.while_loop(lambda t, *_: t < time, step, (tf.constant(0), own, empty))
    beams = tf.raw_ops.TensorListStack(input_handle=beam_list, element_shape=shape, element_dtype=tf.int32)
    # After a loop of no steps a runtime does not know the other dimensions.
    beams = tf.reverse(tf.reshape(beams, tf.shape(ids)), [0])
    ended = tf.cumsum(tf.cast(tf.equal(beams, end), tf.int32), axis=0, exclusive=True) > 0
    return tf.where(ended, tf.fill(tf.shape(ids), end), beams), ids, parents, lengths, end
