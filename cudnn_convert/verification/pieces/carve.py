"""Carves the ops of a recurrence out of a TensorFlow graph or function.

A recurrence in a loop or a branch cannot be fed where it stands: its weights come through Enter and Switch
nodes of a frame that nothing has entered. So the nodes between its inputs and its outputs are copied, those
that lead into a frame become the identity, and its variables become placeholders. The node has kept the name
of the source's, and so have its inputs.

In a repaired SavedModel of TensorFlow 2 functions stand in a node's place. Laid flat, as the source was, the
artifact has a call of such a function where the source has the node, under the same name. What the call reads
first are the inputs of the recurrence, and behind them come its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.artifacts import runners
from cudnn_convert.graph import node_defs, ops, safe_ops
from cudnn_convert.graph.graph import Graph, copy_graph, import_graph, open_session
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, Index, reference, split, tensor
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.session import checkpoint_key, variable_ops
from cudnn_convert.model import Array, Mode, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.recurrences import saved_functions
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Piece, PieceInputs, Pieces

#: The places of what is fed among a source node's inputs, which are 0, 1, 2 and 4, and placeholders for them.
_ENDS: Final = (INPUT, INPUT_H, INPUT_C, LENGTHS)
_FED: Final = {position: f"fed_{position}" for position in _ENDS}


#: The values of variables by the names of their nodes, which are VarHandleOps or reference variables.
Values = Callable[[Mapping[str, Any]], dict[str, Array]]


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Carve the replacement of each recurrence's node out of an artifact, repaired or unrepaired."""
    if artifact.is_repaired:
        laid = inline_artifact(artifact)
        return carve_nodes(laid.graph, recurrences, laid.inputs, laid.values)
    meta, prefix = runners.load_graph(artifact.form, artifact.path)
    inputs = source_inputs(artifact.plan, recurrences)
    return carve_nodes(meta.graph_def, recurrences, inputs, partial(_read_values, prefix))


def source_inputs(plan: Plan, recurrences: Sequence[Recurrence]) -> dict[str, Sequence[str]]:
    """Return the source's input tensors of each recurrence's node.

    The artifact keeps their names.
    """
    index = Index(plan.graph)
    return {own.node: index.data_inputs(index.nodes[own.node]) for own in recurrences}


def open_unoptimized(graph: Any) -> Any:
    """Open a session with graph optimization off.

    The optimization costs more than a few calls save.
    """
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return open_session(graph, config)


def carve_nodes(
    graph: Any, recurrences: Sequence[Recurrence], inputs: Mapping[str, Sequence[str]], values: Values
) -> Pieces:
    """Extract the subgraph behind each recurrence, from the tensors `inputs` to the node.

    `inputs` are tensor names by node, in the order of a cuDNN node's inputs.
    """
    index, cuts, reasons = Index(graph), [], {}
    known: dict[Any, str] = {}
    same: dict[str, str] = {}
    for recurrence in recurrences:
        if recurrence.node not in index.nodes or recurrence.node not in inputs:
            reasons[recurrence.node] = "the artifact has no node of that name"
            continue
        own = inputs[recurrence.node]
        wanted = [INPUT, INPUT_H, INPUT_C, *([LENGTHS] if recurrence.lengths else [])]
        if wanted[-1] >= len(own):
            reasons[recurrence.node] = "what stands in its place takes no lengths"
            continue
        # Both initial states may be one tensor: it counts as the first.
        ends = {own[position]: _FED[position] for position in reversed(wanted)}
        carved = _carve(graph, index, recurrence.node, ends, tf.as_dtype(recurrence.dtype))
        wanted.remove(INPUT_C)
        lost = [own[position] for position in wanted if ends[own[position]] not in carved.fed]
        if lost:
            reasons[recurrence.node] = f"in the artifact it does not read {lost[0]}, as it does in the source"
            continue
        if any(safe_ops.others(carved.graph)):
            reasons[recurrence.node] = "what stands in its place is more than arithmetic"
            continue
        first = known.setdefault(_work(carved, recurrence), recurrence.node)
        if first != recurrence.node:
            same[recurrence.node] = first
            continue
        tied, stack = own[INPUT_H] == own[INPUT_C], tuple(range(recurrence.sizes.layers))
        ask = _asking(carved, values, recurrence)
        cuts.append(
            Piece(recurrence.node, stack, recurrence.node, ask, lengths=recurrence.lengths, tied=tied)
        )
    return Pieces(tuple(cuts), reasons, same)


def _work(carved: _Carved, recurrence: Recurrence) -> Any:
    """Return a key for a carved graph's computation: variables, nodes and inputs of nodes."""
    places = {node.name: position for position, node in enumerate(carved.graph.node)}
    nodes = []
    for node in carved.graph.node:
        nameless = node_defs.copy_node(node, name="", inputs=())
        read = [split(name) for name in node.input]
        wiring = [(places[op], output) for op, output in read]
        nodes.append((nameless.SerializeToString(deterministic=True), tuple(wiring)))
    return recurrence.shared, recurrence.sizes, *carved.placeholders.values(), *nodes


def _read_values(prefix: Path | None, holders: Mapping[str, Any]) -> dict[str, Array]:
    """Read the values of variables from the checkpoint of an artifact."""
    if not holders:
        return {}
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(checkpoint_key(holder)) for name, holder in holders.items()}


@dataclass(frozen=True, slots=True)
class _Carved:
    """An extracted subgraph with placeholders.

    `fed` are the names of `_FED` that it uses. `placeholders` maps the placeholder of each variable to the
    name of its node, and `holders` has these nodes by name.
    """

    graph: Any
    fed: frozenset[str]
    placeholders: Mapping[str, str]
    holders: Mapping[str, Any]


def _carve(graph: Any, index: Index, node: str, ends: Mapping[str, str], dtype: tf.DType) -> _Carved:
    """Copy the nodes between the tensors `ends` and `node`.

    The tensors become the placeholders that `ends` maps them to.
    """
    nodes: dict[str, Any] = {}
    placed: dict[str, str] = {}
    holders: dict[str, Any] = {}
    todo = [node]
    while todo:
        name = todo.pop()
        if name in nodes:
            continue
        copy = node_defs.copy_node(index.nodes[name])
        copy.device = ""
        copy.attr.pop("_class", None)
        read = [tensor(name_of_input) for name_of_input in copy.input if not name_of_input.startswith("^")]
        is_variable_read = copy.op == "ReadVariableOp"
        holder = index.maker(read[0], ops.HANDLE_CARRIERS) if is_variable_read else copy
        if holder.op in ops.VARIABLES:
            kind = tf.as_dtype(holder.attr["dtype"].type)
            copy = node_defs.placeholder(name, kind, tf.TensorShape(holder.attr["shape"].shape))
            holders[holder.name], placed[name], read = holder, holder.name, []
        elif copy.op in ops.PASSAGES:
            read = read[:1]
            copy = node_defs.node(name, "Identity", T=tf.as_dtype(copy.attr["T"].type))
        nodes[name] = copy
        del copy.input[:]
        copy.input.extend(ends.get(source) or _carry(source, index) for source in read)
        todo += [split(source)[0] for source in read if source not in ends]
    fed = frozenset(source for copy in nodes.values() for source in copy.input) & {*ends.values()}
    kinds = {name: tf.int32 if name == _FED[LENGTHS] else dtype for name in sorted(fed)}
    placeholders = [node_defs.placeholder(name, kind, tf.TensorShape(None)) for name, kind in kinds.items()]
    return _Carved(Graph(graph, [*placeholders, *nodes.values()]), fed, placed, holders)


def _carry(name: str, index: Index) -> str:
    """Translate a tensor name into the carved graph, where passage ops have one output."""
    op, _ = split(name)
    return op if index.nodes[op].op in ops.PASSAGES else reference(name)


def _asking(carved: _Carved, values: Values, recurrence: Recurrence) -> Callable[[PieceInputs], Answer]:
    @cache
    def open_session() -> tuple[Any, dict[str, Array]]:
        stored = values(carved.holders)
        weights = {f"{name}:0": stored[holder] for name, holder in carved.placeholders.items()}
        return open_unoptimized(import_graph(carved.graph)), weights

    is_lstm = recurrence.sizes.mode is Mode.LSTM
    names = [f"{recurrence.node}:{k}" for k in range(2 + is_lstm)]

    def ask(asked: PieceInputs) -> Answer:
        session, weights = open_session()
        states = (asked.h, asked.c)
        floats = [value if recurrence.time_major else value.swapaxes(0, 1) for value in (asked.x, *states)]
        arrays = [*(value.astype(recurrence.dtype) for value in floats), asked.lengths]
        given = dict(zip(_FED.values(), arrays, strict=True))
        fed = {f"{name}:0": given[name] for name in carved.fed}
        answers = [np.asarray(value) for value in session.run(names, fed | weights)]
        y, h, *c = (value if recurrence.time_major else value.swapaxes(0, 1) for value in answers)
        return y, h, c[0] if c else None

    return ask


#: How the lowering calls its functions, and an op that stays what it is while calls are laid flat.
_OURS: Final = "cudnn_convert_"
_OPAQUE: Final = "PyFuncStateless"
_STATES: Final = 3


@dataclass(frozen=True, slots=True)
class InlinedGraph:
    """An artifact's graph with inlined functions.

    `inputs` are the tensors that each of our calls reads, in the order of a cuDNN node's inputs. `values` are
    those of variables, by the names of their nodes.
    """

    graph: Any
    inputs: Mapping[str, Sequence[str]]
    values: Values


def inline_artifact(artifact: Artifact) -> InlinedGraph:
    """Inline the functions of an artifact into a single graph, except cudnn-convert's calls."""
    path, plan = artifact.path, artifact.plan
    (meta,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    beside = [part.name for part in plan.parts if part.name not in meta.signature_def]
    graph, _ = saved_functions.add_calls(meta, meta.graph_def, beside)
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == "PartitionedCall" and node.attr["f"].func.name.startswith(_OURS):
                _close(node)
    ends = plan.signature.tensors
    there = {node.name for node in graph.node}
    wanted = [name for name in ends if split(name)[0] in there]
    saved = plan.model.saved
    replaced = inlining.find_replaced_ops(saved.meta_graphs[0].graph_def) if saved is not None else ()
    laid = copy_graph(inlining.inline_functions(graph, wanted, around=[_OPAQUE, *replaced]))
    # What nothing seemed to call was left out of the library.
    known = {function.signature.name for function in laid.library.function}
    others = (other for other in meta.graph_def.library.function if other.signature.name not in known)
    laid.library.function.extend(other for other in others if other.signature.name.startswith(_OURS))
    inputs: dict[str, list[str]] = {}
    index = Index(laid)
    for node in laid.node:
        if node.op == _OPAQUE and node.attr["token"].s.startswith(_OURS.encode()):
            read = index.data_inputs(node)
            lengths = [read[_STATES]] if node.attr["Tin"].list.type[_STATES] == tf.int32 else []
            # In the order of a cuDNN node's inputs, whose parameters come before its lengths.
            inputs[node.name] = [*read[:_STATES], "", *lengths] if lengths else read[:LENGTHS]
            _open(node)
    return InlinedGraph(laid, inputs, _restore_values(path, meta))


def _close(node: Any) -> None:
    """Replace a call by an opaque op, to prevent inlining."""
    opaque = node_def_pb2.NodeDef(name=node.name, op=_OPAQUE, input=node.input)
    opaque.attr["token"].s = node.attr["f"].func.name.encode()
    for key in ("Tin", "Tout"):
        opaque.attr[key].CopyFrom(node.attr[key])
    node.CopyFrom(opaque)


def _open(node: Any) -> None:
    """Turn an opaque op back into the original call."""
    function = node.attr["token"].s.decode()
    del node.attr["token"]
    node.op = "PartitionedCall"
    node.attr["f"].func.name = function


def _restore_values(path: Path, meta: Any) -> Values:
    """Values of variables as the artifact's own restore op sets them, by one session for all pieces."""

    @cache
    def restore() -> tuple[Any, dict[str, Any]]:
        """Open a session with the variables restored, and the op that reads each.

        The reads are added before the session starts, because a later change of the graph would restart it.
        """
        graph, reads = import_graph(meta.graph_def), {}
        with graph.as_default():
            for holder in variable_ops(meta.graph_def):
                target = graph.get_tensor_by_name(f"{holder.name}:0")
                kind = tf.as_dtype(holder.attr["dtype"].type)
                reads[holder.name] = tf.raw_ops.ReadVariableOp(resource=target, dtype=kind)
        saver, prefix = meta.saver_def, str(path / "variables" / "variables")
        session = open_unoptimized(graph)
        session.run(graph.get_operation_by_name(saver.restore_op_name), {saver.filename_tensor_name: prefix})
        return session, reads

    def values(holders: Mapping[str, Any]) -> dict[str, Array]:
        session, reads = restore()
        values = session.run([reads[name] for name in holders])
        return dict(zip(holders, map(np.asarray, values), strict=True))

    return values
