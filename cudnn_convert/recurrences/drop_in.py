"""Turns recurrences built of CPU ops by `cudnn_convert.compat` back into cuDNN nodes.

A graph that the drop-in built on a machine without a GPU has, in a scope of its own, the ops that split a
blob and compute the recurrence; TensorFlow 1's own layers had one node there. `restore_nodes` finds such
scopes by what the drop-in makes in each, checks their sizes against the blob's, and puts the node back.
Gradients keep reading the ops; training steps are no part of a conversion.

    before:  P/EnsureShape(x), P/EnsureShape_1(h), P/split(blob), ... P/concat, P/stack, P/stack_1
    after:   P = CudnnRNNV2(x, h, c, blob), or CudnnRNNV3 with lengths or a projection

Source: `compat/branches.py`, `lower/tensorflow/layer_stack.py` stack_layers (the order of its outputs).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, NodeDef, callees, reachable_functions, reference, split, tensor
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.model import Mode, Sizes
from cudnn_convert.weights import parameter_blob

_X, _H, _C, _BLOB = "EnsureShape", "EnsureShape_1", "EnsureShape_2", "split"
#: What stands for the cell states of a mode without them.
_NO_C: Final = "no_c"
#: What the inputs and outputs of a node are, in their order.
_ENDS: Final = ("x", "h", "c")
_DIRECTIONS: Final = ("unidirectional", "bidirectional")


@dataclass(frozen=True, slots=True)
class _RecurrenceOps:
    """The ops of a recurrence, with scope, inputs and the output number by tensor."""

    scope: str
    nodes: frozenset[str]
    sizes: Sizes
    time_major: bool
    inputs: tuple[str, ...]
    lengths: str | None
    outputs: Mapping[str, int]


def restore_nodes(graph: Graph, _: Keep = ()) -> Graph:
    """Replace the ops of each recurrence of the drop-in by the cuDNN node.

    Return the graph itself where it has no such recurrence.
    """
    if not any(node.op == "SplitV" and node.name.endswith(f"/{_BLOB}") for node in graph.node):
        return graph
    regions = [region for scope in _scopes(graph.index) if (region := _read(graph, scope)) is not None]
    if not regions:
        return graph
    inside = {name for region in regions for name in region.nodes}
    moved = {name: _output(region, k) for region in regions for name, k in region.outputs.items()}
    references = {name: reference(new) for name, new in moved.items()}
    nodes = [node if node.name in inside else node_defs.redirect(node, references) for node in graph.node]
    # A recurrence may read what another gave.
    added = [node_defs.redirect(node, references) for region in regions for node in _make(graph, region)]
    changed = Graph(graph, [*nodes, *added])
    # Gradients still read the ops; what nobody reads would look like an output.
    needed = changed.index.ancestors([node.name for node in changed.node if node.name not in inside])
    return Graph(graph, [node for node in changed.node if node.name in needed or node.name not in inside])


def _scopes(index: Index) -> Iterator[str]:
    """Yield the scopes with the first ops made by the drop-in."""
    for node in index.nodes.values():
        scope, _, name = node.name.rpartition("/")
        if name == _BLOB and node.op == "SplitV" and scope not in index.nodes:
            first = [index.nodes.get(f"{scope}/{each}") for each in (_X, _H)]
            if all(each is not None and each.op == "EnsureShape" for each in first):
                yield scope


def _read(graph: Graph, scope: str) -> _RecurrenceOps | None:
    """Return the recurrence in a scope.

    None where something in the scope is not as the drop-in makes it.
    """
    index, prefix = graph.index, f"{scope}/"
    nodes = frozenset(name for name in index.nodes if name.startswith(prefix))
    # Loops have such an op of their own behind it.
    has_c = f"{prefix}{_C}" in nodes and split(index.nodes[f"{prefix}{_C}"].input[0])[0] not in nodes
    starts = [f"{prefix}{name}" for name in (_X, _H, *([_C] if has_c else []))]
    inputs = [tensor(index.nodes[name].input[0]) for name in starts]
    blob = tensor(index.nodes[f"{prefix}{_BLOB}"].input[0])
    taken = {
        name for each in nodes for name in index.data_inputs(index.nodes[each]) if split(name)[0] not in nodes
    }
    rest = taken - {*inputs, blob}
    seen = graph.shapes
    kinds = {name: seen.get_tensor_by_name(name) for name in rest}
    # What gradients keep, and the cell state that a recurrence without one hands on.
    kinds = {
        name: value
        for name, value in kinds.items()
        if value.dtype != tf.variant and (has_c or not value.dtype.is_floating)
    }
    lengths = [
        name for name, value in kinds.items() if value.dtype == tf.int32 and value.shape.rank in (1, None)
    ]
    switches = [name for name, value in kinds.items() if value.dtype == tf.bool]
    is_random = any(index.nodes[name].op in ops.RANDOM for name in nodes)
    if len(lengths) + len(switches) < len(kinds) or len(lengths) > 1 or (is_random and not switches):
        return None
    hidden = tf.TensorShape(index.nodes[starts[1]].attr["shape"].shape)
    x = tf.TensorShape(index.nodes[starts[0]].attr["shape"].shape)
    if hidden.rank != 3 or x.rank != 3 or x[2] is None:
        return None
    time_major = hidden[0] is not None
    depth = hidden[0] if time_major else hidden[1]
    pieces = constant_folding.fold_constant(index, tensor(index.nodes[f"{prefix}{_BLOB}"].input[1]))
    if pieces is None or depth is None or hidden[2] is None:
        return None
    outputs = _find_outputs(graph, nodes, [depth] * (1 + has_c), time_major=time_major)
    candidates = [
        each
        for directions in (1, 2)
        if (each := _find_sizes(pieces, depth, hidden[2], x[2], directions, has_c=has_c)) is not None
    ]
    # Two layers and two directions may have blobs of one length.
    widths = {seen.get_tensor_by_name(name).shape[2] for name, k in outputs.items() if k == 0}
    fitting = [each for each in candidates if not widths or widths == {each.directions * each.width}]
    if len(fitting) != 1:
        return None
    (sizes,) = fitting
    if sizes.mode is Mode.RNN_TANH and _uses_relu(graph, nodes):
        sizes = replace(sizes, mode=Mode.RNN_RELU)
    # Without cell states a node takes a number in their place, as in TensorFlow 1: no state is read twice.
    given = (*inputs, *([] if has_c else [f"{scope}/{_NO_C}:0"]), blob)
    return _RecurrenceOps(scope, nodes, sizes, time_major, given, lengths[0] if lengths else None, outputs)


def _find_sizes(
    pieces: Any, depth: int, width: int, input_size: int, directions: int, *, has_c: bool
) -> Sizes | None:
    """Return the sizes of the blob with the given `pieces`.

    Pieces are the matrices of all gates, then the biases, then projections. None
    where no sizes fit.
    """
    modes = [Mode.LSTM] if has_c else [Mode.GRU, Mode.RNN_TANH]
    for mode, skip, projected in product(modes, (False, True), (False, True)):
        gates = len(mode.gates)
        count = depth * (4 * gates + projected) - skip * directions * gates
        if depth % directions or len(pieces) != count or (projected and mode is not Mode.LSTM):
            continue
        units = int(min(pieces[-depth * 2 * gates - (depth if projected else 0) :])) if projected else width
        sizes = Sizes(
            mode, depth // directions, directions, units, input_size, skip, width if projected else 0
        )
        if parameter_blob.length(sizes) == int(np.sum(pieces)):
            return sizes
    return None


def _find_outputs(
    graph: Graph, nodes: frozenset[str], depths: Sequence[int], *, time_major: bool
) -> dict[str, int]:
    """Return the number of each output tensor of a region.

    The outputs are y, and a state for each of `depths`.
    """
    index, seen = graph.index, graph.shapes
    states = [
        name
        for name in index.nodes
        if name in nodes
        and index.nodes[name].op == "Pack"
        and seen.get_tensor_by_name(f"{name}:0").shape.rank == 3
    ]
    states = [name for name in states if index.nodes[name].attr["N"].i == depths[0]][-len(depths) :]
    outputs = {f"{name}:0": k for k, name in enumerate(states, 1)}
    if not time_major:
        outputs = {
            f"{reader.name}:0": k
            for k, name in enumerate(states, 1)
            for reader in index.consumers(name)
            if reader.name in nodes and reader.op == "Transpose"
        }
    for node in graph.node:
        if node.name in nodes or node.name.startswith("gradients"):
            continue
        for name in index.data_inputs(node):
            is_inner = split(name)[0] in nodes and name not in outputs
            if is_inner and seen.get_tensor_by_name(name).shape.rank == 3:
                return outputs | {name: 0}
    return outputs


def _uses_relu(graph: Graph, nodes: frozenset[str]) -> bool:
    """Return True if a region's ops, or functions called there, have a relu."""
    index = graph.index
    called = reachable_functions(
        graph.functions, [name for each in nodes for name in callees(index.nodes[each])]
    )
    inner = (node for name in called for node in graph.functions[name].node_def)
    return any(node.op == "Relu" for node in (*(index.nodes[name] for name in nodes), *inner))


def _make(graph: Graph, region: _RecurrenceOps) -> list[NodeDef]:
    """Return the time-major cuDNN node of a region, and the transposes around the node."""
    dtype = tf.as_dtype(graph.index.nodes[f"{region.scope}/{_X}"].attr["T"].type)
    inputs, nodes = [*map(reference, region.inputs)], list[NodeDef]()
    if region.sizes.mode is not Mode.LSTM:
        nodes.append(node_defs.constant(f"{region.scope}/{_NO_C}", np.zeros([], dtype.as_numpy_dtype)))
    if not region.time_major:
        count = 3 if region.sizes.mode is Mode.LSTM else 2
        for k, (name, source) in enumerate(zip(_ENDS, inputs[:count], strict=False)):
            nodes += node_defs.swap_batch(f"{region.scope}/time_major_{name}", source, dtype)
            inputs[k] = f"{region.scope}/time_major_{name}"
        for k in range(count):
            nodes += node_defs.swap_batch(_output(region, k), reference(f"{region.scope}:{k}"), dtype)
    settings: dict[str, Any] = {
        "rnn_mode": region.sizes.mode.value,
        "input_mode": "skip_input" if region.sizes.skip_input else "linear_input",
        "direction": _DIRECTIONS[region.sizes.directions - 1],
        "is_training": False,
    }
    if region.lengths is None and not region.sizes.projection:
        return [*nodes, node_defs.node(region.scope, "CudnnRNNV2", inputs, T=dtype, **settings)]
    lengths = region.lengths or f"{region.scope}/lengths:0"
    if region.lengths is None:
        nodes += _full_rows(f"{region.scope}/lengths", inputs[0], dtype)
    settings |= {"num_proj": region.sizes.projection, "time_major": True}
    inputs = [*inputs, reference(lengths)]
    return [*nodes, node_defs.node(region.scope, "CudnnRNNV3", inputs, T=dtype, **settings)]


def _output(region: _RecurrenceOps, k: int) -> str:
    """Return the tensor in the place of output `k` of a region.

    For a batch-major region, return the name of its op.
    """
    return f"{region.scope}:{k}" if region.time_major else f"{region.scope}/batch_major_{_ENDS[k]}"


def _full_rows(name: str, x: str, dtype: tf.DType) -> list[NodeDef]:
    """Return lengths `[batch]` equal to the number of steps of a time-major x."""

    def rows(x: Any) -> Any:
        return tf.fill(tf.shape(x)[1:2], tf.shape(x)[0])

    return inlining.call(inlining.trace_function(rows, tf.TensorSpec([None, None, None], dtype)), name, [x])
