"""Lowers every cuDNN node of a graph, or of kept functions, to CPU ops.

The weights of a pseudo-layer are stored as `<scope>/layer_<l>/<forward|backward>/<name>`, where `<scope>` is
that of their blob, or of the variables from which the blob is computed; recurrences that share a blob share
them.

In a SavedModel of TensorFlow 2, cuDNN nodes of functions become calls of CPU functions. Nothing else changes:
signatures, objects, variables and gradients stay, and so do the variables that have the weights.
Source: tensorflow v2.21.0 core/framework/function.proto (a function's tensors are `node:output:k`),
core/ops/cudnn_rnn_ops.cc (names of the outputs).

`slice_blob` splits a parameter blob at run time, since a program may still change it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph import control_flow, node_defs
from cudnn_convert.graph.graph import Graph, expand_nodes, prune
from cudnn_convert.graph.index import (
    INPUT,
    INPUT_C,
    INPUT_H,
    LENGTHS,
    PARAMS,
    AnyGraph,
    FunctionDef,
    Index,
    NodeDef,
    all_nodes,
    library,
    reachable_functions,
    reference,
    split,
    unique,
)
from cudnn_convert.graph.passes import channels_last, inference, inlining, plain_convolutions, tf1_ops
from cudnn_convert.graph.passes.run import Pass, run_passes
from cudnn_convert.graph.recurrent_state import copy_through_control_flow
from cudnn_convert.graph.session import handle
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.model import WAYS, Array, Cell, Convention, InMemory, Mode, Recurrence, Sizes, Tensor
from cudnn_convert.recurrences import parameter_source, saved_functions
from cudnn_convert.weights import layouts, lazy, parameter_blob
from cudnn_convert.weights.lazy import LazyLayers


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph of CPU ops, and variable values by checkpoint name."""

    graph: Graph
    variables: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The storage form of weights, and the function for computing with the weights.

    `weights` gives the array of each variable by name, `compute` what `layer_stack.stack` gives. The source's
    own reference variables stay references.
    """

    weights: Callable[[Recurrence], Mapping[str, Array]]
    compute: Callable[[Recurrence], Callable[..., tuple[Any, Any, Any]]]


def lower(
    graph: AnyGraph,
    recurrences: Sequence[Recurrence],
    values: Mapping[str, Tensor],
    *,
    outputs: Iterable[str],
    lowering: str = "fast",
    form: WeightForm | None = None,
) -> Lowered:
    """Reduce `graph` to `outputs` and lower each cuDNN node in place, variables to resources.

    `lowering` is `fast`, `portable` or `layer_stack.COMPILED`; `values` are those of the source's variables.
    Without `form` the weights are stored as the lowering takes them.
    """
    graph = Graph.of(graph)
    index = graph.index
    loops, scopes = control_flow.frames(index), _scopes(recurrences)
    replacements: dict[str, list[NodeDef]] = {}
    variables: dict[str, Tensor] = dict(values)
    functions = dict(graph.functions)
    for number, recurrence in enumerate(recurrences):
        lazy.report_lowered(recurrences, number)
        block = layer_stack.uses_block(recurrence, lowering)
        tensors = index.data_inputs(index.nodes[recurrence.node])
        inputs = [tensors[position] for position in (INPUT, INPUT_H, INPUT_C)]
        inputs += [tensors[LENGTHS]] if recurrence.lengths else []
        nodes, weights = [], []
        scope = scopes[recurrence.shared]
        arrays: Mapping[str, Tensor]
        if form:
            arrays = {name: InMemory(value) for name, value in form.weights(recurrence).items()}
        else:
            arrays = _weights(recurrence, scope, block=block)
        for wanted, value in arrays.items():
            name = unique(wanted, index.nodes)
            variables[name], replacements[name] = value, _variable(name, value)
            read_name, carried = _carry(index, loops, recurrence, f"{name}/read")
            nodes += carried
            weights.append(read_name)
        compute = form.compute(recurrence) if form else layer_stack.stack(recurrence, lowering)
        if not recurrence.lengths:
            compute = _without_lengths(compute)
        taken = [reference(name) for name in [*inputs, *weights]]
        called = _compile if lowering == layer_stack.COMPILED else _inline
        computing, added = called(compute, _specs(recurrence, arrays.values()), recurrence.node, taken)
        replacements[recurrence.node] = [*nodes, *computing]
        functions |= {function.signature.name: function for function in added}
    lazy.report_lowered(recurrences, len(recurrences))
    whole = _assemble(graph, replacements, functions)
    passes = PASSES if form else (*PASSES, *tf1_ops.make_resources(variables))
    return Lowered(run_passes(whole, passes, [*outputs]), variables)


#: What TensorFlow's optimizer fuses with other ops, once it is clear which nodes stay.
PASSES: Final[tuple[Pass, ...]] = (prune, inference.separate_sums, plain_convolutions.separate_groups)


def _scopes(recurrences: Iterable[Recurrence]) -> dict[str, str]:
    """Return the scope of each blob's weights: the blob's scope, else the blob's name.

    The name is used where several blobs share a scope.
    """
    blobs = {recurrence.shared: recurrence.shared.rpartition("/")[0] for recurrence in recurrences}
    around = [*blobs.values()]
    return {name: scope if around.count(scope) == 1 else name for name, scope in blobs.items()}


def _weights(recurrence: Recurrence, scope: str, *, block: bool) -> dict[str, Tensor]:
    """Return the weights of a recurrence, made at once, or on writing if large."""
    prefix = f"{scope}/" if scope else ""
    # A blob may be read by nodes of different lowerings only if they differ in dtype; the name says so.
    kind = "" if recurrence.dtype == np.float32 else f"_{recurrence.dtype.name}"
    later = isinstance(recurrence.cells, LazyLayers) and not block
    of = layer_stack.Making(recurrence).tensors if later else partial(_layer_tensors, recurrence, block)
    return {
        f"{prefix}layer_{number}/{direction}{kind}/{name}": value
        for number in range(recurrence.sizes.layers)
        for position, direction in enumerate(WAYS[: recurrence.sizes.directions])
        for name, value in of(number, position).items()
    }


def _layer_tensors(recurrence: Recurrence, block: bool, layer: int, direction: int) -> dict[str, Tensor]:
    matrices = layer_stack.layer_weights(recurrence.cells[layer][direction], block=block)
    return {name: InMemory(value) for name, value in matrices.items()}


def _variable(name: str, value: Tensor) -> list[NodeDef]:
    read = node_defs.node(f"{name}/read", "ReadVariableOp", [name], dtype=tf.as_dtype(value.dtype))
    return [handle(name, name, value), read]


def _carry(
    index: Index, loops: Mapping[str, tuple[str, ...]], recurrence: Recurrence, read: str
) -> tuple[str, list[Any]]:
    """Carry a weight through copies of the blob's Switch and Enter nodes."""
    read_name, nodes = read, []
    dtype = tf.as_dtype(recurrence.dtype)
    # A constant or computed blob may stand inside the loop itself, where no Enter shows the way in.
    root = parameter_source.find_parameters(index, index.nodes[recurrence.node]).op
    for level, frame in enumerate(loops.get(root, ())):
        nodes.append(
            control_flow.enter(index, f"{recurrence.node}/{read}/enter_{level}", read_name, frame, dtype)
        )
        read_name = nodes[-1].name
    passage = [(name, _side(index, recurrence, name)) for name in recurrence.passage]
    prefix = f"{recurrence.node}/{read}"
    read_name, copies = copy_through_control_flow(index, read_name, passage, prefix, dtype)
    return read_name, [*nodes, *copies]


def _side(index: Index, recurrence: Recurrence, passage: str) -> int:
    """Return the output of a Switch or Enter leading to the recurrence."""
    op, side = split(index.data_inputs(index.nodes[recurrence.node])[PARAMS])
    while op != passage:
        op, side = split(index.data_inputs(index.nodes[op])[0])
    return side


def _without_lengths(compute: layer_stack.Stack) -> layer_stack.Stack:
    return lambda x, h, c, *rest: compute(x, h, c, None, *rest)


def _inline(
    compute: Callable[..., Any], specs: Sequence[Any], node: str, taken: Sequence[str]
) -> tuple[list[Any], Sequence[Any]]:
    """Return nodes computing in place of `node`, and the nodes' functions.

    The last node has the name `node`.
    """
    traced = inlining.trace_function(compute, *specs)
    return inlining.call(traced, node, taken), traced.library


def _compile(
    compute: Callable[..., Any], specs: Sequence[Any], node: str, taken: Sequence[str]
) -> tuple[list[Any], Sequence[Any]]:
    """Do as `_inline`, with a single node: a call compiled by XLA."""
    function, functions = inlining.library(compute, *specs, compiled=True)
    call = node_defs.node(node, "")
    inlining.make_call(call, function, taken)
    return [call], functions


def _specs(recurrence: Recurrence, arrays: Iterable[Tensor]) -> list[Any]:
    sizes, dtype = recurrence.sizes, tf.as_dtype(recurrence.dtype)
    # A cell state that is no LSTM's is of any shape: it is handed on as it is.
    states = sizes.states(time_major=recurrence.time_major)
    specs = [tf.TensorSpec(shape, dtype) for shape in ([None, None, sizes.input_size], *states)]
    specs += [tf.TensorSpec([None], tf.int32)] if recurrence.lengths else []
    return specs + [tf.TensorSpec(value.shape, tf.as_dtype(value.dtype)) for value in arrays]


def _assemble(
    graph: Graph, nodes_by_name: Mapping[str, list[NodeDef]], functions: Mapping[str, FunctionDef]
) -> Graph:
    """Replace nodes of the graph, put new variables first, and drop unused nodes."""
    old = {node.name for node in graph.node}
    fresh = [node for name, nodes in nodes_by_name.items() if name not in old for node in nodes]
    replaced = expand_nodes(graph, nodes_by_name).node
    return Graph(graph, [*fresh, *replaced], (functions[name] for name in sorted(functions)))


#: The outputs of a cuDNN op, in order; the last two serve its gradient alone.
_OUTPUTS: Final = ("output", "output_h", "output_c", "reserve_space", "host_reserved")
_RESULTS: Final = 3
_ON_GPU: Final = "GPU"


def lower_functions(path: Path, saved: Any, convention: Convention, *, lowering: str) -> Any:
    """Copy a SavedModel proto with CPU calls for each reachable cuDNN node.

    Raises UnsupportedModelError, about the file `path`.
    """
    repaired = saved_model_pb2.SavedModel()
    repaired.CopyFrom(saved)
    for meta in repaired.meta_graphs:
        _turn_images(meta)
        _lower(path, meta, convention, lowering)
        _off_gpu(meta.graph_def)
    return repaired


def _turn_images(meta: Any) -> None:
    """Turn channels-first images to channels last, in functions in need of a GPU."""
    functions = library(meta.graph_def)
    reached = reachable_functions(functions, saved_functions.needing_gpu(meta))
    turned = channels_last.compute_in_functions(functions, reached)
    for function in meta.graph_def.library.function:
        function.CopyFrom(turned[function.signature.name])


def _lower(path: Path, meta: Any, convention: Convention, lowering: str) -> None:
    calls = saved_functions.call_functions(meta)
    if not calls.node:
        return
    graph = inlining.inline_functions(calls, [node.name for node in calls.node], origins=True)
    known = library(meta.graph_def)
    added: dict[str, Any] = {}
    for stored in saved_functions.locate_packed_weights(path, graph, convention):
        compute, functions = _function(stored, convention, lowering)
        added |= {function.signature.name: function for function in functions}
        _call(known[stored.function], stored, compute)
    meta.graph_def.library.function.extend(added[name] for name in sorted(added.keys() - known.keys()))


def _function(
    stored: saved_functions.FunctionRecurrence, convention: Convention, lowering: str
) -> tuple[Any, Sequence[Any]]:
    """Return functions `(x, h, c, lengths?, weights ...) -> (y, h, c, two empty tensors)`."""
    sizes, dtype = stored.sizes, tf.as_dtype(stored.dtype)
    direct = stored.matrices is not None
    layout = layouts.KERAS if direct else layouts.LOOP
    compute = layer_stack.switch_at_runtime(
        sizes, stored.dtype, layout, time_major=stored.time_major, each=count(sizes), lowering=lowering
    )

    def body(x: Any, h: Any, c: Any, *rest: Any) -> tuple[Any, ...]:
        lengths, *arrays = rest if stored.lengths else (None, *rest)
        if not direct:
            arrays = [*slice_blob(arrays[0], sizes, convention)]
        elif sizes.mode is Mode.GRU:
            arrays = [*arrays[:2], *tf.unstack(arrays[2])]
        y, h, c = compute(x, h, c, lengths, *arrays)
        c = c if sizes.mode is Mode.LSTM else tf.zeros([], dtype)  # as the op says of its third output
        return y, h, c, tf.zeros([0], dtype), tf.zeros([0], tf.int8)

    return inlining.library(body, *_function_specs(stored), compiled=lowering == layer_stack.COMPILED)


def _function_specs(stored: saved_functions.FunctionRecurrence) -> list[Any]:
    sizes, dtype = stored.sizes, tf.as_dtype(stored.dtype)
    hidden, cell = sizes.states(time_major=stored.time_major)
    shapes: list[Any] = [[None, None, sizes.input_size], hidden, cell if sizes.mode is Mode.LSTM else None]
    if stored.matrices is None:
        shapes.append([None])
    else:
        wide = len(sizes.mode.gates) * sizes.units
        bias = [2, wide] if sizes.mode is Mode.GRU else [wide]
        shapes += [[sizes.input_size, wide], [sizes.units, wide], bias]
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    return [*specs[:3], tf.TensorSpec([None], tf.int32), *specs[3:]] if stored.lengths else specs


def _call(function: Any, stored: saved_functions.FunctionRecurrence, called: Any) -> None:
    """Turn the node into a call of `called`, and redirect the node's readers."""
    node = next(candidate for candidate in function.node_def if candidate.name == stored.node)
    inputs = [name for name in node.input if not name.startswith("^")]
    weights = [inputs[PARAMS]] if stored.matrices is None else [*stored.matrices]
    lengths = [inputs[LENGTHS]] if stored.lengths else []
    shapes = list(node.attr["_output_shapes"].list.shape)
    inlining.make_call(node, called, [inputs[INPUT], inputs[INPUT_H], inputs[INPUT_C], *lengths, *weights])
    if shapes:
        node.attr["_output_shapes"].list.shape.extend(shapes[:_RESULTS])
        empty = tf.TensorShape([0]).as_proto()
        node.attr["_output_shapes"].list.shape.extend([empty, empty])
    places = {f"{stored.node}:{output}:0": f"{stored.node}:output:{k}" for k, output in enumerate(_OUTPUTS)}
    inlining.rename_tensors(function, places)


def _off_gpu(graph: Any) -> None:
    """Unbind all nodes from GPUs."""
    for node in all_nodes(graph):
        if _ON_GPU in node.device.upper():
            node.device = ""


def slice_blob(blob: Any, sizes: Sizes, convention: Convention) -> Iterator[Any]:
    """Yield the tensors of each pseudo-layer in the loop's form (`layer_stack.layer_weights`).

    Their positions come from `cudnn_blob` and `layouts`, applied to element positions.
    """
    places = np.arange(parameter_blob.length(sizes))
    for number, layer in enumerate(parameter_blob.split(places, sizes, where="params")):
        for cell in layer:
            conventional = layouts.conventional(cell, convention, canonical=False)
            skipped = number == 0 and sizes.skip_input
            yield from _cell(blob, conventional, skipped=skipped)


def count(sizes: Sizes) -> int:
    """Return the number of tensors of a pseudo-layer."""
    return 3 + (sizes.mode is Mode.GRU) + bool(sizes.projection)


def _cell(blob: Any, cell: Cell, *, skipped: bool) -> Iterator[Any]:
    kernel, recurrent = layouts.columns(cell, layouts.LOOP)
    yield tf.constant(kernel, blob.dtype) if skipped else _matrix(blob, kernel, cell)
    yield _matrix(blob, recurrent, cell)
    bias, recurrent_bias = (_row(blob, places, cell) for places in layouts.biases(cell, layouts.LOOP))
    yield from [bias, recurrent_bias] if cell.mode is Mode.GRU else [bias + recurrent_bias]
    for projection in layouts.projection_columns(cell):
        yield _block(blob, projection)


def _matrix(blob: Any, places: Array, cell: Cell) -> Any:
    """Return `[inputs, gates*units]` from a blob with each gate's rows."""
    parts = np.split(places, len(cell.mode.gates), axis=1)
    return tf.concat([_block(blob, part) for part in parts], 1)


def _block(blob: Any, places: Array) -> Any:
    """Return a matrix from the blob, stored transposed as `[columns, rows]`."""
    rows, columns = places.shape
    first = int(places[0, 0])
    return tf.transpose(tf.reshape(blob[first : first + places.size], [columns, rows]))


def _row(blob: Any, places: Array, cell: Cell) -> Any:
    parts = np.split(places, len(cell.mode.gates))
    return tf.concat([blob[int(part[0]) : int(part[0]) + part.size] for part in parts], 0)
