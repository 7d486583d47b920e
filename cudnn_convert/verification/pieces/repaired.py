"""The functions that stand in a cuDNN node's place in a repaired SavedModel of TensorFlow 2.

Laid flat, as the source was, the artifact has a call of such a function where the source has the node, under
the same name. What the call reads first are the inputs of the recurrence, and behind them come its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph import aside, build, flat
from cudnn_convert.graph.index import LENGTHS, Index, split
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.model import Array, Recurrence
from cudnn_convert.verification.pieces import carve
from cudnn_convert.verification.pieces.piece import Artifact, Pieces

#: How the lowering calls its functions, and an op that stays what it is while calls are laid flat.
_OURS: Final = "cudnn_convert_"
_OPAQUE: Final = "PyFuncStateless"
_STATES: Final = 3


@dataclass(frozen=True, slots=True)
class Laid:
    """An artifact's graph, laid flat: `inputs` are what each call of ours reads, as a cuDNN node does.

    `values` are those of variables, by the names of their nodes.
    """

    graph: Any
    inputs: Mapping[str, Sequence[str]]
    values: carve.Values


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The call in the place of each recurrence's node."""
    laid = laid_flat(artifact)
    return carve.carved(laid.graph, recurrences, laid.inputs, laid.values)


def laid_flat(artifact: Artifact) -> Laid:
    """The functions of an artifact as one graph, in which the calls of ours stay calls."""
    path, plan = artifact.path, artifact.plan
    (meta,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    beside = [part.name for part in plan.parts if part.name not in meta.signature_def]
    graph, _ = aside.with_calls(meta, meta.graph_def, beside)
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == "PartitionedCall" and node.attr["f"].func.name.startswith(_OURS):
                _close(node)
    ends = [*plan.signature.inputs.values(), *plan.signature.outputs.values()]
    there = {node.name for node in graph.node}
    laid = flat.flattened(graph, [name for name in ends if split(name)[0] in there])
    # What nothing seemed to call was left out of the library.
    known = {function.signature.name for function in laid.library.function}
    ours = (one for one in meta.graph_def.library.function if one.signature.name not in known)
    laid.library.function.extend(one for one in ours if one.signature.name.startswith(_OURS))
    inputs: dict[str, list[str]] = {}
    index = Index(laid)
    for node in laid.node:
        if node.op == _OPAQUE and node.attr["token"].s.startswith(_OURS.encode()):
            read = index.data_inputs(node)
            lengths = [read[_STATES]] if node.attr["Tin"].list.type[_STATES] == tf.int32 else []
            # In the order of a cuDNN node's inputs, whose parameters come before its lengths.
            inputs[node.name] = [*read[:_STATES], "", *lengths] if lengths else read[:LENGTHS]
            _open(node)
    return Laid(laid, inputs, _Restored(path, meta))


def _close(node: Any) -> None:
    """Makes a call an op that nothing lays flat."""
    made = node_def_pb2.NodeDef(name=node.name, op=_OPAQUE, input=node.input)
    made.attr["token"].s = node.attr["f"].func.name.encode()
    for key in ("Tin", "Tout"):
        made.attr[key].CopyFrom(node.attr[key])
    node.CopyFrom(made)


def _open(node: Any) -> None:
    """Makes it the call again."""
    function = node.attr["token"].s.decode()
    del node.attr["token"]
    node.op = "PartitionedCall"
    node.attr["f"].func.name = function


class _Restored:
    """Values of variables as the artifact's own restore op sets them."""

    def __init__(self, path: Path, meta: Any) -> None:
        self._path, self._meta = path, meta

    def __call__(self, holders: Mapping[str, Any]) -> dict[str, Array]:
        session, reads = self._session()
        values = session.run([reads[name] for name in holders])
        return dict(zip(holders, map(np.asarray, values), strict=True))

    @cache  # noqa: B019 - one session for all pieces, which end with this
    def _session(self) -> tuple[Any, dict[str, Any]]:
        """A session with the variables set, and what reads each: added later, it would cost a new start."""
        graph, reads = build.imported(self._meta.graph_def), {}
        with graph.as_default():
            for holder in variable_ops(self._meta.graph_def):
                target = graph.get_tensor_by_name(f"{holder.name}:0")
                kind = tf.as_dtype(holder.attr["dtype"].type)
                reads[holder.name] = tf.raw_ops.ReadVariableOp(resource=target, dtype=kind)
        saver = self._meta.saver_def
        # Nothing to optimize: each op runs once.
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = tf.compat.v1.Session(graph=graph, config=config)
        prefix = str(self._path / "variables" / "variables")
        session.run(graph.get_operation_by_name(saver.restore_op_name), {saver.filename_tensor_name: prefix})
        return session, reads
