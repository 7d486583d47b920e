"""Lowers every cuDNN node of a graph to CPU ops and plain variables.

The weights of a pseudo-layer are stored as `<scope>/layer_<l>/<forward|backward>/<name>`, `<scope>` being
that of the blob they came from, or of the variables that a computed blob came from; recurrences that share a
blob share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.control_flow import enter, frames
from cudnn_convert.graph.index import (
    INPUT,
    INPUT_C,
    INPUT_H,
    LENGTHS,
    PARAMS,
    Index,
    reference,
    split,
    unique,
)
from cudnn_convert.graph.node_defs import Graph, prune
from cudnn_convert.graph.passes import inlining, tf1_ops
from cudnn_convert.graph.passes.inference import separate_sums
from cudnn_convert.graph.passes.tf1_ops import to_resource_variables
from cudnn_convert.graph.session import handle
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.lower.tensorflow.layer_stack import Making
from cudnn_convert.model import WAYS, Array, InMemory, Recurrence, Tensor
from cudnn_convert.recurrences.parameter_source import find_parameters
from cudnn_convert.weights.lazy import Layers


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph of CPU ops, and the value of each of its variables by the name a checkpoint calls it."""

    graph: Any
    variables: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """How weights are stored: variable name -> array, and what computes on those, as `layer_stack.stack`
    does.

    The source's own variables then stay references where they are.
    """

    weights: Callable[[Recurrence], Mapping[str, Array]]
    compute: Callable[[Recurrence], Callable[..., tuple[Any, Any, Any]]]


def lower(
    graph: Any,
    recurrences: Sequence[Recurrence],
    values: Mapping[str, Tensor],
    *,
    outputs: Iterable[str],
    lowering: str = "fast",
    form: Form | None = None,
) -> Lowered:
    """`graph` down to the tensors `outputs`, each cuDNN node replaced in place, all variables resources.

    `lowering` is `fast`, `portable` or `layer_stack.COMPILED`; `values` are those of the source's variables.
    Without `form` the weights are stored as the lowering takes them.
    """
    index = Index(graph)
    loops, scopes = frames(index), _scopes(recurrences)
    made: dict[str, list[Any]] = {}
    variables: dict[str, Tensor] = dict(values)
    library: dict[str, Any] = {function.signature.name: function for function in graph.library.function}
    for recurrence in recurrences:
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
            variables[name], made[name] = value, _variable(name, value)
            found, carried = _carried(index, loops, recurrence, f"{name}/read")
            nodes += carried
            weights.append(found)
        compute = form.compute(recurrence) if form else layer_stack.stack(recurrence, lowering)
        if not recurrence.lengths:
            compute = _without_lengths(compute)
        taken = [reference(name) for name in [*inputs, *weights]]
        called = _compiled if lowering == layer_stack.COMPILED else _inlined
        computing, functions = called(compute, _specs(recurrence, arrays.values()), recurrence.node, taken)
        made[recurrence.node] = [*nodes, *computing]
        library |= {function.signature.name: function for function in functions}
    whole = _assemble(graph, made, library)
    pruned = separate_sums(prune(Graph(whole), outputs))
    if form:
        return Lowered(pruned.definition, variables)
    return Lowered(
        to_resource_variables(tf1_ops.convert_assigned_variables(pruned, variables), variables), variables
    )


def _scopes(recurrences: Iterable[Recurrence]) -> dict[str, str]:
    """The scope for the weights of each blob: the blob's own, or its name where several lie in one scope."""
    blobs = {recurrence.shared: recurrence.shared.rpartition("/")[0] for recurrence in recurrences}
    around = [*blobs.values()]
    return {name: scope if around.count(scope) == 1 else name for name, scope in blobs.items()}


def _weights(recurrence: Recurrence, scope: str, *, block: bool) -> dict[str, Tensor]:
    """Made now, or where they are large when they are written."""
    prefix = f"{scope}/" if scope else ""
    # A blob may be read by nodes of different lowerings only if they differ in dtype; the name says so.
    kind = "" if recurrence.dtype == np.float32 else f"_{recurrence.dtype.name}"
    later = isinstance(recurrence.cells, Layers) and not block
    of = Making(recurrence).tensors if later else partial(_made, recurrence, block)
    return {
        f"{prefix}layer_{number}/{way}{kind}/{name}": value
        for number in range(recurrence.sizes.layers)
        for place, way in enumerate(WAYS[: recurrence.sizes.directions])
        for name, value in of(number, place).items()
    }


def _made(recurrence: Recurrence, block: bool, layer: int, way: int) -> dict[str, Tensor]:
    made = layer_stack.layer_weights(recurrence.cells[layer][way], block=block)
    return {name: InMemory(value) for name, value in made.items()}


def _variable(name: str, value: Tensor) -> list[Any]:
    read = node_defs.node(f"{name}/read", "ReadVariableOp", [name], dtype=tf.as_dtype(value.dtype))
    return [handle(name, name, value), read]


def _carried(
    index: Index, loops: Mapping[str, tuple[str, ...]], recurrence: Recurrence, read: str
) -> tuple[str, list[Any]]:
    """A weight taken through the Switch and Enter nodes that the blob went through, and copies of those."""
    found, nodes = read, []
    dtype = tf.as_dtype(recurrence.dtype)
    # A constant or computed blob may stand inside the loop itself, where no Enter shows the way in.
    root = find_parameters(index, index.nodes[recurrence.node]).op
    for level, frame in enumerate(loops.get(root, ())):
        nodes.append(enter(index, f"{recurrence.node}/{read}/enter_{level}", found, frame, dtype))
        found = nodes[-1].name
    for name in recurrence.passage:
        original = index.nodes[name]
        copy = type(original)()
        copy.CopyFrom(original)
        copy.name = f"{recurrence.node}/{read}/{name}"
        copy.input[0] = found
        copy.op = original.op.removeprefix("Ref")
        copy.attr["T"].type = dtype.as_datatype_enum
        nodes.append(copy)
        found = reference(f"{copy.name}:{_side(index, recurrence, name)}")
    return found, nodes


def _side(index: Index, recurrence: Recurrence, passage: str) -> int:
    """Which output of a node on the parameters' way leads to the recurrence: a Switch has two."""
    op, side = split(index.data_inputs(index.nodes[recurrence.node])[PARAMS])
    while op != passage:
        op, side = split(index.data_inputs(index.nodes[op])[0])
    return side


def _without_lengths(compute: layer_stack.Stack) -> layer_stack.Stack:
    return lambda x, h, c, *rest: compute(x, h, c, None, *rest)


def _inlined(
    compute: Callable[..., Any], specs: Sequence[Any], node: str, taken: Sequence[str]
) -> tuple[list[Any], Sequence[Any]]:
    """The nodes that compute, the last of them called `node`, and the functions that these call."""
    traced = inlining.trace_function(compute, *specs)
    return inlining.call(traced, node, taken), traced.library


def _compiled(
    compute: Callable[..., Any], specs: Sequence[Any], node: str, taken: Sequence[str]
) -> tuple[list[Any], Sequence[Any]]:
    """As `_inlined`; the one node is a call that XLA compiles."""
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


def _assemble(graph: Any, made: Mapping[str, list[Any]], library: Mapping[str, Any]) -> Any:
    """The graph with each replaced node's successors in its place, new variables first, unused nodes gone."""
    old = {node.name for node in graph.node}
    fresh = [node for name, nodes in made.items() if name not in old for node in nodes]
    replaced = [found for node in graph.node for found in made.get(node.name, [node])]
    result = node_defs.with_nodes(graph, [*fresh, *replaced])
    del result.library.function[:]
    result.library.function.extend(library[name] for name in sorted(library))
    return result
