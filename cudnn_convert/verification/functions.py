"""Running functions of a SavedModel of TensorFlow 2 that no signature calls, by their names, in a Session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph import aside, build
from cudnn_convert.graph.session import answering
from cudnn_convert.model import Array


def opened(path: Path, names: Iterable[str]) -> dict[str, Callable[[Mapping[str, Array]], dict[str, Array]]]:
    """A runner for each function, as `verification.run` has them for signatures."""
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    graph, signatures = aside.with_calls(meta, meta.graph_def, names)
    session = tf.compat.v1.Session(graph=build.imported(graph))
    prefix = {meta.saver_def.filename_tensor_name: str(path / "variables" / "variables")}
    session.run(session.graph.get_operation_by_name(meta.saver_def.restore_op_name), prefix)
    return {name: answering(session, found.inputs, found.outputs) for name, found in signatures.items()}
