"""A graph of TensorFlow whose recurrences give what is given, and note what they take.

The nodes have kept their names, and so has what they read, also in branches and loops; a repaired SavedModel
of TensorFlow 2 is laid flat for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.ops import script_ops

from cudnn_convert.graph import build
from cudnn_convert.graph.frames import certain
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, Index, split
from cudnn_convert.model import Array, Mode, Recurrence
from cudnn_convert.verification.computed import Call, nearest
from cudnn_convert.verification.pieces.carve import Values
from cudnn_convert.verification.pieces.glue import Pass, Run, Seen
from cudnn_convert.verification.pieces.glue_source import PRODUCTS
from cudnn_convert.verification.pieces.piece import Artifact

#: Gives variables their values: of a session, the index of its graph and the nodes that are needed.
_Restore: TypeAlias = Callable[[Any, Index, Collection[str]], None]


def runner(artifact: Artifact) -> Run:
    """Runs the glue of a graph whose recurrences give what the source's gave."""

    def run(passes: Sequence[Pass]) -> Iterator[Seen]:
        plan = artifact.plan
        graph, reads, restore = _graph(artifact)
        given = {one.node: _Giving(one) for one in plan.recurrences if one.node in reads}
        for node in graph.node:
            if node.name in given:
                _replace(node, given[node.name].recurrence, reads[node.name], given[node.name])
        index, wanted = Index(graph), dict(plan.signature.outputs)
        called = {node for one in passes for node in one.nodes}
        lost = called - (given.keys() & index.nodes.keys())
        if lost or any(split(name)[0] not in index.nodes for name in wanted.values()):
            raise LookupError("the artifact has other names than the source")
        needed = index.ancestors((split(name)[0] for name in wanted.values()), control=False)
        once = certain(index)
        products = [name for name in sorted(needed) if index.nodes[name].op in PRODUCTS]
        hidden = [f"{index.nodes[name].op} {name}" for name in products if name not in once]
        products = [name for name in products if name in once]
        names = [*wanted.values(), *(f"{name}:0" for name in products)]
        with tf.compat.v1.Session(graph=build.imported(graph)) as session:
            restore(session, index, needed)
            for one in passes:
                entered: list[tuple[str, Array, Array]] = []
                for node, function in given.items():
                    function.calls, function.entered = one.by_node.get(node, []), entered
                fed = {name: value for name, value in one.feed.items() if split(name)[0] in index.nodes}
                values = dict(zip(names, map(np.asarray, session.run(names, fed)), strict=True))
                outputs = {key: values[name] for key, name in wanted.items()}
                kinds = {f"{index.nodes[name].op} {name}": values[f"{name}:0"] for name in products}
                yield Seen(outputs, entered, kinds, hidden=hidden)

    return run


class _Giving:
    """Answers as the nearest of some calls did, and notes what it was called with.

    TensorFlow's registry holds it weakly: it must outlive the session.
    """

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.calls: Sequence[Call] = ()
        self.entered: list[tuple[str, Array, Array]] = []

    def __call__(self, x: Array, h: Array, c: Array, *_: Array) -> list[Array]:
        one = self.recurrence
        is_lstm = one.sizes.mode is Mode.LSTM
        # TensorFlow lends the memory of a variable, which an assignment changes afterwards.
        x, h, c = x.copy(), h.copy(), c.copy()
        x, h = (value if one.time_major else value.swapaxes(0, 1) for value in (x, h))
        c = (c if one.time_major else c.swapaxes(0, 1)) if is_lstm else np.zeros_like(h)
        call = nearest(self.calls, x, h, c)
        self.entered.append((f"input of {one.node}", x, call.x))
        self.entered.append((f"initial h of {one.node}", h, call.h))
        if is_lstm:
            self.entered.append((f"initial c of {one.node}", c, call.c))
        return [np.ascontiguousarray(value, one.dtype) for value in call.gave]


def _replace(node: Any, one: Recurrence, reads: Sequence[str], function: Any) -> None:
    """Makes a node one that calls a function with what the source's node reads."""
    kind = tf.as_dtype(one.dtype)
    inputs = [reads[INPUT], reads[INPUT_H], reads[INPUT_C]]
    control = [name for name in node.input if name.startswith("^")]
    token = script_ops._py_funcs.insert(function)
    types = [kind] * 3
    node.CopyFrom(build.node(node.name, "PyFunc", inputs + control, token=token, Tin=types, Tout=types))


def _assign(session: Any, index: Index, needed: Collection[str], weights: Values) -> None:
    """Gives variables the values of the artifact, whose own restore op was not laid flat."""
    holders = {name: index.nodes[name] for name in needed if index.nodes[name].op == "VarHandleOp"}
    assigned, fed = [], {}
    with session.graph.as_default():
        for name, value in weights(holders).items():
            given = tf.compat.v1.placeholder(value.dtype)
            target = session.graph.get_tensor_by_name(f"{name}:0")
            assigned.append(tf.raw_ops.AssignVariableOp(resource=target, value=given))
            fed[given] = value
    session.run(assigned, fed)


def _graph(artifact: Artifact) -> tuple[Any, Mapping[str, Sequence[str]], _Restore]:
    """An artifact's graph, what each recurrence reads in it, and how its variables get their values."""
    if artifact.plan.model.saved is not None and artifact.form == "savedmodel":
        from cudnn_convert.verification.pieces import repaired

        if artifact.plan.states:  # what reads them before an assignment, and what after, was seen to differ
            raise LookupError("the artifact keeps state in variables")
        laid = repaired.laid_flat(artifact)
        return laid.graph, laid.inputs, partial(_assign, weights=laid.values)
    source = Index(artifact.plan.graph)
    reads = {one.node: source.data_inputs(source.nodes[one.node]) for one in artifact.plan.recurrences}
    if artifact.form == "frozen":
        graph = tf.compat.v1.GraphDef.FromString(artifact.path.read_bytes())
        return graph, reads, lambda *_: None
    if artifact.plan.initializers:
        raise LookupError("the artifact has tables")
    if artifact.form == "checkpoint":
        text = artifact.path.with_name(f"{artifact.path.name}.meta").read_bytes()
        meta, prefix = meta_graph_pb2.MetaGraphDef.FromString(text), artifact.path
    else:
        saved = saved_model_pb2.SavedModel.FromString((artifact.path / "saved_model.pb").read_bytes())
        meta, prefix = saved.meta_graphs[0], artifact.path / "variables" / "variables"

    def restore(session: Any, *_: Any) -> None:
        saver = meta.saver_def
        if saver.restore_op_name:
            op = session.graph.get_operation_by_name(saver.restore_op_name)
            session.run(op, {saver.filename_tensor_name: str(prefix)})

    return meta.graph_def, reads, restore
