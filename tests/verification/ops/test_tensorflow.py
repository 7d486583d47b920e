"""A repaired SavedModel node by node, its objects too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import gated_models
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.errors import VerificationError


def test_a_repaired_saved_model_is_compared_node_by_node(tmp_path: Path) -> None:
    module, rng = tf.Module(), np.random.default_rng(5)
    for name in ("kernel", "other"):
        setattr(module, name, tf.Variable(rng.uniform(-1, 1, (5, 3)).astype(np.float32), name=name))
    case = gated_models.CASE

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, "x")], autograph=False)
    def call(x: Any) -> Any:
        y = case.op_call(x, tf.zeros([1, tf.shape(x)[1], 5]), tf.constant(0.0)).output
        return {"answer": tf.where(tf.reduce_any(x > 50.0), tf.tensordot(y, module.kernel, 1), 0.0)}

    module.call = call
    source, out = tmp_path / "source", tmp_path / "out"
    tf.saved_model.save(module, str(source), signatures={"serving_default": call})
    proof = cudnn_convert.convert(source, out, format="savedmodel").verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.gates) == ("equal op by op", 3)
    file = out / "saved_model.pb"
    content = file.read_bytes()
    file.write_bytes(content.replace(np.float32(50).tobytes(), np.float32(75).tobytes()))
    assert file.read_bytes() != content
    with pytest.raises(VerificationError, match=r"op by op: differs at .*expected 50.0, found 75.0"):
        cudnn_convert.verify(source, out)
    file.write_bytes(content)
    saved = saved_model_pb2.SavedModel.FromString(content)
    objects = saved.meta_graphs[0].object_graph_def
    variables = {child.local_name: child.node_id for child in objects.nodes[0].children}
    for function in objects.concrete_functions.values():
        function.bound_inputs[:] = [
            variables["other"] if node == variables["kernel"] else node for node in function.bound_inputs
        ]
    file.write_bytes(saved.SerializeToString())
    with pytest.raises(VerificationError, match="op by op: differs at the objects: expected those of "):
        cudnn_convert.verify(source, out)
