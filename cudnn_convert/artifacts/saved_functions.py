"""Runs functions of a TensorFlow 2 SavedModel that no signature calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.session import answering
from cudnn_convert.model import Array
from cudnn_convert.recurrences import saved_functions


def open_functions(
    path: Path, names: Iterable[str]
) -> dict[str, Callable[[Mapping[str, Array]], dict[str, Array]]]:
    """A runner for each function, as `artifacts.runners` has them for signatures."""
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    graph, signatures = saved_functions.add_calls(meta, meta.graph_def, names)
    session = tf.compat.v1.Session(graph=node_defs.import_graph(graph))
    prefix = {meta.saver_def.filename_tensor_name: str(path / "variables" / "variables")}
    session.run(session.graph.get_operation_by_name(meta.saver_def.restore_op_name), prefix)
    return {name: answering(session, found.inputs, found.outputs) for name, found in signatures.items()}
