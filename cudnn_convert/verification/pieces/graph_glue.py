"""A graph of TensorFlow with what its recurrences give fed in their place, and what they take read.

The nodes have kept their names, and so has what they read; a repaired SavedModel of TensorFlow 2 is laid flat
for that. Only nodes outside of loops and branches can be fed so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.graph import build
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, Index, split
from cudnn_convert.model import Array, Mode
from cudnn_convert.verification.computed import Call
from cudnn_convert.verification.pieces.carve import Values
from cudnn_convert.verification.pieces.glue import Run, Seen
from cudnn_convert.verification.pieces.piece import Artifact

_PRODUCTS: Final = frozenset(
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative".split()
)
_FLOW: Final = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter", "Merge", "If", "While"})


#: A session, its graph, what each recurrence reads in it, and values of variables that the session lacks.
_Opened: TypeAlias = tuple[Any, Any, Mapping[str, Sequence[str]], Values]


def runner(artifact: Artifact) -> Run:
    """Runs the glue of a graph whose recurrences stand outside of loops and branches."""

    def run(feed: Mapping[str, Array], calls: Sequence[Call]) -> Seen:
        plan = artifact.plan
        nodes = {call.node for call in calls}
        with _opened(artifact, nodes) as (session, graph, reads, weights):
            index = Index(graph)
            wanted = dict(plan.signature.outputs)
            if not nodes <= reads.keys() & index.nodes.keys() or any(
                split(name)[0] not in index.nodes for name in wanted.values()
            ):
                raise LookupError("the artifact has other names than the source")
            needed = _needed(
                index, [*wanted.values(), *(name for one in reads.values() for name in one[:3])], nodes
            )
            if any(index.nodes[name].op in _FLOW for name in needed):
                raise LookupError("the artifact has branches or loops around its recurrences")
            products = [name for name in sorted(needed) if index.nodes[name].op in _PRODUCTS]
            fed = {name: value for name, value in feed.items() if split(name)[0] in index.nodes}
            fed |= {name: value for call in calls for name, value in _given(plan, call).items()}
            fed |= _read(index, needed, weights)
            entering = [(call, name, what) for call in calls for name, what in _entering(plan, call, reads)]
            names = [
                *wanted.values(),
                *(name for _, name, _ in entering),
                *(f"{name}:0" for name in products),
            ]
            values = dict(zip(names, map(np.asarray, session.run(names, fed)), strict=True))
        entered = [
            (f"{what} of {call.node}", values[name], _taken(plan, call)[what])
            for call, name, what in entering
        ]
        outputs = {key: values[name] for key, name in wanted.items()}
        return Seen(
            outputs, entered, {f"{index.nodes[name].op} {name}": values[f"{name}:0"] for name in products}
        )

    return run


def _needed(index: Index, names: Sequence[str], nodes: set[str]) -> set[str]:
    """What the tensors need where the nodes are fed."""
    return index.ancestors((split(name)[0] for name in names), control=False, stop=nodes) - nodes


def _entering(plan: Any, call: Call, reads: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The tensors that a recurrence takes, and what each is."""
    one = next(one for one in plan.recurrences if one.node == call.node)
    yield reads[call.node][INPUT], "input"
    yield reads[call.node][INPUT_H], "initial h"
    if one.sizes.mode is Mode.LSTM:
        yield reads[call.node][INPUT_C], "initial c"


def _given(plan: Any, call: Call) -> dict[str, Array]:
    """What a recurrence gives; only an LSTM has a cell state of its own."""
    one = next(one for one in plan.recurrences if one.node == call.node)
    count = 3 if one.sizes.mode is Mode.LSTM else 2
    return {f"{call.node}:{k}": value for k, value in enumerate(call.gave[:count])}


def _taken(plan: Any, call: Call) -> dict[str, Array]:
    """What it took in the source, in its own axes."""
    one = next(one for one in plan.recurrences if one.node == call.node)
    values = {"input": call.x, "initial h": call.h, "initial c": call.c}
    return {what: value if one.time_major else value.swapaxes(0, 1) for what, value in values.items()}


def _read(index: Index, needed: Collection[str], weights: Values) -> dict[str, Array]:
    """What reads of variables give where no restore op of the session's graph has set them."""
    reads = {name: index.nodes[name] for name in needed if index.nodes[name].op == "ReadVariableOp"}
    handles = {name: split(node.input[0])[0] for name, node in reads.items()}
    held = weights({handle: index.nodes[handle] for handle in handles.values()})
    return {f"{name}:0": held[handle] for name, handle in handles.items() if handle in held}


@contextmanager
def _opened(artifact: Artifact, nodes: Collection[str]) -> Iterator[_Opened]:
    """The artifact's graph, with its variables restored where its own ops do that."""
    if artifact.plan.model.saved is not None and artifact.form == "savedmodel":
        from cudnn_convert.verification.pieces import repaired

        laid = repaired.laid_flat(artifact)
        with tf.compat.v1.Session(graph=build.imported(laid.graph)) as session:
            yield session, laid.graph, laid.inputs, laid.values
        return
    source = Index(artifact.plan.graph)
    reads = {node: source.data_inputs(source.nodes[node]) for node in nodes}
    if artifact.form == "frozen":
        graph = tf.compat.v1.GraphDef.FromString(artifact.path.read_bytes())
        with tf.compat.v1.Session(graph=build.imported(graph)) as session:
            yield session, graph, reads, _none
        return
    if artifact.plan.initializers:
        raise LookupError("the artifact has tables")
    if artifact.form == "checkpoint":
        text = artifact.path.with_name(f"{artifact.path.name}.meta").read_bytes()
        meta, prefix = meta_graph_pb2.MetaGraphDef.FromString(text), artifact.path
    else:
        saved = saved_model_pb2.SavedModel.FromString((artifact.path / "saved_model.pb").read_bytes())
        meta, prefix = saved.meta_graphs[0], artifact.path / "variables" / "variables"
    with tf.compat.v1.Session(graph=build.imported(meta.graph_def)) as session:
        saver = meta.saver_def
        if saver.restore_op_name:
            op = session.graph.get_operation_by_name(saver.restore_op_name)
            session.run(op, {saver.filename_tensor_name: str(prefix)})
        yield session, meta.graph_def, reads, _none


def _none(_: Mapping[str, Any]) -> dict[str, Array]:
    """Of variables that the session itself holds."""
    return {}
