"""A TensorFlow graph with given recurrence outputs and noted recurrence inputs.

The nodes have kept their names, and so has what they read, also in branches and loops; a repaired SavedModel
of TensorFlow 2 is laid flat for that.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from cudnn_convert.artifacts import runners
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import copy_graph, import_graph, open_session
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, Index, NodeDef, split
from cudnn_convert.model import Array, InMemory, Mode, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.verification.judges import RecurrenceCall, nearest
from cudnn_convert.verification.pieces import carve, piece_inputs
from cudnn_convert.verification.pieces.glue_runs import GlueResult, GlueRun, RunGlue

#: What computes each recurrence in an artifact.
pieces = carve.pieces
#: Gives variables their values: of a session, the index of its graph and the nodes that are needed.
_Restore: TypeAlias = Callable[[Any, Index, Collection[str]], None]


def runner(artifact: piece_inputs.Artifact) -> RunGlue:
    """Return a function for runs of the graph with the source's values from recurrences."""

    def run(passes: Sequence[GlueRun]) -> Iterator[GlueResult]:
        plan = artifact.plan
        graph, reads, restore = _graph(artifact)
        given = {own.node: _Giving(own) for own in plan.recurrences if own.node in reads}
        for node in graph.node:
            if node.name in given:
                _replace(node, given[node.name].recurrence, reads[node.name], given[node.name])
        index, wanted = Index(graph), dict(plan.signature.outputs)
        called = {node for call in passes for node in call.nodes}
        lost = called - (given.keys() & index.nodes.keys())
        if lost or any(split(name)[0] not in index.nodes for name in wanted.values()):
            raise LookupError("the artifact has other names than the source")
        needed = index.ancestors((split(name)[0] for name in wanted.values()), control=False)
        with open_session(import_graph(graph)) as session:
            restore(session, index, needed)
            for call in passes:
                entered: list[tuple[str, Array, Array]] = []
                for node, function in given.items():
                    function.calls, function.entered = call.by_node.get(node, []), entered
                fed = {name: value for name, value in call.feed.items() if split(name)[0] in index.nodes}
                values = map(np.asarray, session.run([*wanted.values()], fed))
                yield GlueResult(dict(zip(wanted, values, strict=True)), entered)

    return run


class _Giving:
    """A function with the answers of the nearest calls, and a record of the inputs.

    TensorFlow's registry holds it weakly: it must outlive the session.
    """

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.calls: Sequence[RecurrenceCall] = ()
        self.entered: list[tuple[str, Array, Array]] = []

    def __call__(self, x: Array, h: Array, c: Array, *_: Array) -> list[Array]:
        recurrence = self.recurrence
        is_lstm = recurrence.sizes.mode is Mode.LSTM
        # TensorFlow lends the memory of a variable, which an assignment changes afterwards.
        x, h, c = x.copy(), h.copy(), c.copy()
        x, h = (value if recurrence.time_major else value.swapaxes(0, 1) for value in (x, h))
        c = (c if recurrence.time_major else c.swapaxes(0, 1)) if is_lstm else np.zeros_like(h)
        call = nearest(self.calls, x, h, c)
        self.entered.append((f"input of {recurrence.node}", x, call.x))
        self.entered.append((f"initial h of {recurrence.node}", h, call.h))
        if is_lstm:
            self.entered.append((f"initial c of {recurrence.node}", c, call.c))
        return [np.ascontiguousarray(value, recurrence.dtype) for value in call.gave]


def _replace(node: NodeDef, recurrence: Recurrence, reads: Sequence[str], function: Any) -> None:
    """Turn a node into a function call with the inputs of the source's node."""
    kind = tf.as_dtype(recurrence.dtype)
    inputs = [reads[INPUT], reads[INPUT_H], reads[INPUT_C]]
    control = [name for name in node.input if name.startswith("^")]
    token = tf_private.register_function(function)
    types = [kind] * 3
    node.CopyFrom(node_defs.node(node.name, "PyFunc", inputs + control, token=token, Tin=types, Tout=types))


def _assign(session: Any, index: Index, needed: Collection[str], weights: carve.Values) -> None:
    """Give variables the values of the artifact, because inlining leaves the restore op out."""
    holders = {name: index.nodes[name] for name in needed if index.nodes[name].op == "VarHandleOp"}
    assigned, fed = [], {}
    with session.graph.as_default():
        for name, value in weights(holders).items():
            given = tf.compat.v1.placeholder(value.dtype)
            target = session.graph.get_tensor_by_name(f"{name}:0")
            assigned.append(tf.raw_ops.AssignVariableOp(resource=target, value=given))
            fed[given] = value
    session.run(assigned, fed)


def _graph(artifact: piece_inputs.Artifact) -> tuple[Any, Mapping[str, Sequence[str]], _Restore]:
    """Return the artifact's graph, each recurrence's inputs, and a function for restoring variables.

    Raises LookupError where the artifact keeps state in variables or has tables.
    """
    if artifact.is_repaired:
        if artifact.plan.states:  # what reads them before an assignment, and what after, was seen to differ
            raise LookupError("the artifact keeps state in variables")
        laid = carve.inline_artifact(artifact)
        return laid.graph, laid.inputs, partial(_assign, weights=laid.values)
    reads = carve.source_inputs(artifact.plan, artifact.plan.recurrences)
    meta, prefix = runners.load_graph(artifact.form, artifact.path)
    if artifact.plan.initializers and prefix is not None:
        raise LookupError("the artifact has tables")

    def restore(session: Any, *_: Any) -> None:
        saver = meta.saver_def
        if saver.restore_op_name:
            op = session.graph.get_operation_by_name(saver.restore_op_name)
            session.run(op, {saver.filename_tensor_name: str(prefix)})

    return meta.graph_def, reads, restore


_FLOATS: Final = frozenset(kind.as_datatype_enum for kind in node_defs.FLOATS)


def round_plan(plan: Plan, dtype: np.dtype[Any]) -> Plan:
    """Return a copy of a plan with matrices rounded to a type and back."""

    def round_off(value: Array) -> Array:
        if value.dtype.kind != "f" or value.ndim < 2:
            return value
        with np.errstate(over="ignore"):
            return value.astype(dtype).astype(value.dtype)

    graph = copy_graph(plan.whole)
    for node in graph.node:
        if node.op == "Const" and node.attr["dtype"].type in _FLOATS:
            value = round_off(tf.make_ndarray(node.attr["value"].tensor))
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    rounded = {name: InMemory(round_off(variable.read())) for name, variable in plan.model.variables.items()}
    return replace(plan, whole=graph, model=replace(plan.model, variables=rounded))
