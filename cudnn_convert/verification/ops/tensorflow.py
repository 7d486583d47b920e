"""Compares an artifact's TensorFlow graph with the source's graph, node by node.

The source's graph is the one that verification runs, as the file has it; the artifact's is read from its own
file, a repaired SavedModel of TensorFlow 2 laid flat.
"""

from __future__ import annotations

import copy
import filecmp
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.artifacts import runners
from cudnn_convert.graph import ops
from cudnn_convert.graph.graph import strip_devices
from cudnn_convert.graph.index import (
    INPUT,
    INPUT_C,
    INPUT_H,
    LENGTHS,
    FunctionDef,
    Index,
    NodeDef,
    library,
    split,
    tensor,
)
from cudnn_convert.graph.session import checkpoint_key
from cudnn_convert.model import Array, Checkpoint, Mode, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.verification import graph_judge
from cudnn_convert.verification.ops import moved_ops
from cudnn_convert.verification.ops.graphs import TensorGraph
from cudnn_convert.verification.ops.structure import Alike, Comparer, Mismatch
from cudnn_convert.verification.pieces import carve
from cudnn_convert.verification.pieces.piece_inputs import Artifact


def of_source(plan: Plan) -> TensorGraph:
    """Return the graph of a source, with the judging values."""
    graph = strip_devices(plan.whole)
    graph_judge.take_states(graph, plan)
    index = Index(graph)
    given = {
        own.node: _ends(own, index.data_inputs(index.nodes[own.node]))
        for own in plan.recurrences
        if own.node in index.nodes
    }

    def variable(node: NodeDef) -> Array:
        return plan.model.variables[checkpoint_key(node)].read()

    widths = {own.node: own.sizes.directions * own.sizes.width for own in plan.recurrences}
    files = tuple(map(tensor, plan.model.assets))
    return TensorGraph(graph, _inputs(plan), given, variable, files, widths)


def of_artifact(artifact: Artifact) -> TensorGraph:
    """Return the graph of an artifact, with the artifact's values."""
    plan = artifact.plan
    variable: Callable[[NodeDef], Array]
    if artifact.is_repaired:
        laid = carve.inline_artifact(artifact)
        graph, reads = laid.graph, laid.inputs
        files = tuple(map(tensor, plan.model.assets))  # files beside a repaired SavedModel are copies

        def variable(node: NodeDef) -> Array:
            return laid.values({node.name: node})[node.name]

    else:
        meta, prefix = runners.load_graph(artifact.form, artifact.path)
        graph, reads = meta.graph_def, carve.source_inputs(plan, plan.recurrences)
        files = tuple(tensor(file.tensor_info.name) for file in meta.asset_file_def)
        variable = _read_stored(meta, prefix)
    given = {own.node: _ends(own, reads[own.node]) for own in plan.recurrences if own.node in reads}
    return TensorGraph(strip_devices(graph), _inputs(plan), given, variable, files)


def _ends(recurrence: Recurrence, reads: Any) -> tuple[str, ...]:
    """Return the inputs of a recurrence: data, states and lengths."""
    wanted = [INPUT, INPUT_H, *([INPUT_C] if recurrence.sizes.mode is Mode.LSTM else [])]
    if recurrence.lengths and len(reads) > LENGTHS:  # else an artifact lost them
        wanted.append(LENGTHS)
    return tuple(reads[position] for position in wanted)


def _inputs(plan: Plan) -> frozenset[str]:
    states = (f"{state.state.variable}:0" for state in plan.states if state.start is not None)
    return frozenset([*map(tensor, plan.signature.inputs.values()), *states])


def _read_stored(meta: Any, prefix: Path | None) -> Callable[[NodeDef], Array]:
    """The values that an artifact's own restore op gives its variables."""

    @cache
    def load() -> tuple[Any, dict[str, str]]:
        assert prefix is not None
        reader = tf.train.load_checkpoint(str(prefix))
        return reader, graph_judge.list_restored_keys(Checkpoint(meta, prefix))

    def read(node: NodeDef) -> Array:
        """The value of a variable. Raises LookupError where nothing restores it."""
        (reader, keys), key = load(), checkpoint_key(node)
        value: Array = reader.get_tensor(keys[key] if keys else key)
        return value

    return read


def compare_structure(source: TensorGraph, artifact: TensorGraph, plan: Plan) -> Alike:
    """Compare everything behind the outputs, the state and the tables of a source."""
    comparer = Comparer(source, artifact)
    # What a state variable holds after a call its writes show.
    ends = {state.end for state in plan.states}
    pairs = [(name, name) for name in plan.signature.outputs.values() if name not in ends]
    for state in plan.states:
        writes = [write.op for write in state.state.writes if write.op in source.index.nodes]
        pairs += [(f"{name}:0", f"{name}:0") for name in writes if not (state.dropped or state.forgotten)]
    comparer.alike.mismatches += _compare_updates(source, artifact, pairs)
    for name in plan.initializers:
        if name in source.index.nodes and name in artifact.index.nodes:
            both = (graph.index.data_inputs(graph.index.nodes[name]) for graph in (source, artifact))
            pairs += zip(*both, strict=True)
    comparer.compare(pairs)
    comparer.alike.mismatches += _compare_states(source, comparer.alike, plan)
    return comparer.alike


def _compare_updates(
    source: TensorGraph, artifact: TensorGraph, pairs: list[tuple[str, str]]
) -> Iterator[Mismatch]:
    """Replace updates by the written tensors; yield the artifact's updates of different kind.

    State that goes out is written by nobody: its tensor has the value.
    """
    for number, (mine, theirs) in enumerate([*pairs]):
        node, other = _find_write(source, source.root(mine)), _find_write(artifact, theirs)
        if node is None:
            continue
        if other is None:
            pairs[number] = (node.input[1], theirs)
        elif source.form(node)[0] != artifact.form(other)[0]:
            yield Mismatch(mine, f"expected {node.op}, found {other.op}")
        else:
            pairs[number] = (node.input[1], other.input[1])
            pairs.append((node.input[0], other.input[0]))


def _compare_states(source: TensorGraph, alike: Alike, plan: Plan) -> Iterator[Mismatch]:
    """Yield the state variables merged into a shared variable of the artifact.

    Many begin with the same zeros.
    """
    states = {source.root(state.state.variable) for state in plan.states if not state.dropped}
    owners: dict[str, str] = {}
    for mine, theirs in sorted(alike.pairs):
        if mine in states and owners.setdefault(theirs, mine) != mine:
            yield Mismatch(mine, f"expected a variable of its own, found that of {owners[theirs]}")


def _find_write(graph: TensorGraph, name: str) -> NodeDef | None:
    """Return the write op under a name, or before a read under the name.

    Returns None for other names.
    """
    node = graph.index.nodes.get(split(name)[0])
    waits = [] if node is None else [node.name, *(read[1:] for read in node.input if read.startswith("^"))]
    return next((graph.index.nodes[each] for each in waits if graph.index.nodes[each].op in ops.WRITES), None)


def compare_objects(artifact: Artifact) -> list[Mismatch]:
    """Compare everything beside the graph of a repaired SavedModel, except functions with GPU ops.

    TensorFlow 2 loads it by its objects: which variables each function binds, and under which keys they lie.
    """
    saved = artifact.plan.model.saved
    assert saved is not None
    (kept,) = saved.meta_graphs
    content = (artifact.path / "saved_model.pb").read_bytes()
    (meta,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    odd = []
    if meta.object_graph_def != kept.object_graph_def:
        odd.append(Mismatch("the objects", "expected those of the source, found others"))
    if dict(meta.signature_def) != dict(kept.signature_def):
        odd.append(Mismatch("the signatures", "expected those of the source, found others"))
    repaired = library(meta.graph_def)
    for name, function in library(kept.graph_def).items():
        is_repaired = any(node.op in ops.CUDNN | ops.CUDNN_GRADIENTS for node in function.node_def)
        if not is_repaired and not any(map(moved_ops.is_moved, function.node_def)):
            other = repaired.get(name)
            if other is None or not _are_alike(function, other):
                odd.append(Mismatch(f"function {name}", "expected that of the source, found another"))
    for file in sorted((artifact.plan.model.path / "variables").glob("*")):
        if not filecmp.cmp(file, artifact.path / "variables" / file.name, shallow=False):
            odd.append(Mismatch(f"variables/{file.name}", "expected that of the source, found another"))
    return odd


def _are_alike(function: FunctionDef, other: FunctionDef) -> bool:
    """Return True if two functions are the same except for the devices of nodes."""
    copies = copy.deepcopy((function, other))
    for each in copies:
        for node in each.node_def:
            node.device = ""
    return bool(copies[0] == copies[1])
