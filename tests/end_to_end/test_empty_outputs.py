"""An output of a TensorFlow Lite file may have no values, though a run decides its size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, placeholder

import cudnn_convert

OUTPUTS = {
    "slice": lambda x, n: x[:n],
    "reshape": lambda x, n: tf.reshape(tf.fill([n * 3], x[0, 0]), [n, 3]),
    "broadcast": lambda x, n: tf.broadcast_to(x[:1], [n, 3]),
    "pad": lambda x, n: tf.pad(x[:n], [[0, n], [n, 0]]),
    "pad_with": lambda x, n: tf.pad(x[:n], [[0, n], [n, 0]], constant_values=2.0),
    "mirror": lambda x, n: tf.pad(x[:n], [[0, 0], [n, 0]], "REFLECT"),
}


def test_outputs_without_values_are_given(tmp_path: Path) -> None:
    with drawing() as graph:
        lstm(placeholder("x"), tf.constant(BLOB))
        rows, count = placeholder("rows", (None, 3)), placeholder("count", (), tf.int32)
        for name, build in OUTPUTS.items():
            tf.identity(build(rows, count), f"end_{name}")
    source, out = tmp_path / "source.pb", tmp_path / "model.tflite"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    inputs, outputs = ["x:0", "rows:0", "count:0"], ["rnn:0", *(f"{name}=end_{name}:0" for name in OUTPUTS)]
    cudnn_convert.convert(source, out, format="tflite", inputs=inputs, outputs=outputs, verify=False)
    run = tf.lite.Interpreter(model_path=str(out)).get_signature_runner()
    fed = {"x": np.zeros((2, 2, 3), np.float32), "rows": np.ones((2, 3), np.float32)}
    answers = run(**fed, count=np.array(0, np.int32))
    assert {name: answers[name].shape for name in OUTPUTS} == dict.fromkeys(OUTPUTS, (0, 3))
