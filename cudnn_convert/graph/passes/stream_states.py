"""Makes the initial states of cuDNN nodes inputs, and the final states outputs.

A node then goes on from any step: what it gave after one chunk of a sequence is fed before the next one. An
input is `[layers*directions, batch, width]`, whatever the axes of its node. Where the graph has another
signature, without states, an input has a default: the state that the source begins with.

    before:  y = CudnnRNN(x, first, first_1, w)
    after:   NAME_h = Placeholder; NAME_c = Placeholder; y = CudnnRNN(x, NAME_h, NAME_c, w)
             NAME_h_next = Identity(y:1); NAME_c_next = Identity(y:2)
             NAME_h_begin = Identity(first); NAME_c_begin = Identity(first_1)
    or with a default:  NAME_h = PlaceholderWithDefault(first)

What a sequence begins with needs no run of another recurrence of which it has the sizes alone
(`initial_sizes`).

A constant that is the same in each row, such as zeros for a batch of 4, leaves the batch of its default open.

`feed_encoded` makes tensors inputs that are the same at all steps, such as what an encoder made of its input.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, NodeDef, reference, split, tensor
from cudnn_convert.graph.passes import initial_sizes, inlining
from cudnn_convert.values import EncodedTensor, StreamState

#: The input of a cuDNN node that takes each kind of state, and the output that gives its last one.
PLACES: Final = {"h": (INPUT_H, 1), "c": (INPUT_C, 2)}
_RANK: Final = 3


def stream_states(graph: Graph, states: Sequence[StreamState], *, defaults: bool) -> Graph:
    """Give each of `states` an input, an output and a tensor with the initial state.

    The initial state is what the source begins with. With `defaults` an input may be left out.
    """
    changes, added = dict[str, NodeDef](), list[NodeDef]()
    initial = dict[str, str]()
    for state in states:
        node = changes.setdefault(state.node, node_defs.copy_node(graph.index.nodes[state.node]))
        position, output = PLACES[state.kind]
        dtype = tf.as_dtype(node.attr["T"].type)
        start, end = split(state.start)[0], split(state.end)[0]
        shape = tf.TensorShape([state.depth, _read_known_batch(graph, state), state.width])
        nodes, source = _initial(graph, state, node.input[position])
        source, swap = _swap(state, f"{start}/default/layers_first", source, dtype)
        initial[state.begin] = source
        added += [*nodes, *swap]
        added.append(node_defs.placeholder(start, dtype, shape, default=source if defaults else None))
        node.input[position], swap = _swap(state, f"{start}/batch_first", start, dtype)
        last, swap_back = _swap(state, f"{end}/layers_first", reference(f"{state.node}:{output}"), dtype)
        added += [*swap, *swap_back, node_defs.identity(end, last, dtype.as_datatype_enum)]
    streamed = replace_nodes(graph, changes, added)
    return replace_nodes(streamed, {}, _begins(streamed, states, initial))


def _begins(graph: Graph, states: Sequence[StreamState], initial: Mapping[str, str]) -> Iterator[NodeDef]:
    """Yield the nodes of the tensors with the initial states of sequences.

    `initial` has what the source makes for each.
    """
    widths = {state.node: state.width for state in states if state.kind == "h"}
    for state in states:
        name, dtype = split(state.begin)[0], graph.index.nodes[state.node].attr["T"].type
        source, copies = initial_sizes.read_initial_sizes(graph, initial[state.begin], name, widths)
        yield from (*copies, node_defs.identity(name, source, dtype))


def _swap(state: StreamState, name: str, source: str, dtype: tf.DType) -> tuple[str, list[NodeDef]]:
    """Exchange the first two axes of a state, if the node is batch-first.

    Returns the new nodes too.
    """
    if state.time_major:
        return source, []
    return name, node_defs.swap_batch(name, source, dtype)


def _read_known_batch(graph: Graph, state: StreamState) -> int | None:
    """Return the fixed number of rows of a node's input, if any."""
    shape = graph.shapes.get_operation_by_name(state.node).inputs[INPUT].shape
    return shape[1 if state.time_major else 0] if shape.rank == 3 else None


def _initial(graph: Graph, state: StreamState, source: str) -> tuple[list[NodeDef], str]:
    """Return the nodes for the source's initial state, and the state in the node's axes."""
    node = graph.index.nodes[state.node]
    value = constant_folding.fold_constant(graph.index, graph.index.data_inputs(node)[PLACES[state.kind][0]])
    batch = 1 if state.time_major else 0
    if value is None or value.ndim != _RANK or not (value == value.take([0], batch)).all():
        return [], source
    row = value.take([0], batch)

    def rows(x: Any) -> Any:
        times = [tf.shape(x)[batch] if axis == batch else 1 for axis in range(_RANK)]
        return tf.tile(tf.constant(row), times)

    body = inlining.trace_function(rows, tf.TensorSpec([None, None, None], tf.as_dtype(node.attr["T"].type)))
    name = f"{split(state.start)[0]}/default"
    return inlining.call(body, name, [node.input[INPUT]]), name


def feed_encoded(
    graph: Graph, encoded: Sequence[EncodedTensor], encoders: Collection[str], *, defaults: bool
) -> Graph:
    """Let all nodes but `encoders` read `encoded` tensors from inputs.

    The `encoders` run before the first step. With `defaults` an input may be left out.
    """
    starts = {each.tensor: reference(each.start) for each in encoded}
    changes = {
        node.name: node_defs.redirect(node, starts)
        for node in graph.node
        if node.name not in encoders and any(tensor(name) in starts for name in node.input)
    }
    added = []
    for each in encoded:
        seen = graph.shapes.get_tensor_by_name(each.tensor)
        name, dtype = split(each.start)[0], seen.dtype.base_dtype
        default = reference(each.tensor) if defaults else None
        added.append(node_defs.placeholder(name, dtype, seen.shape, default=default))
    return replace_nodes(graph, changes, added)
