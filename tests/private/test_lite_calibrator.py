"""The calibration of TensorFlow Lite's converter sees each example as the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.optimize import calibrator

from cudnn_convert.private.lite_calibrator import calibrate_sequences


def test_states_begin_with_zeros_in_each_example() -> None:
    """One step of an LSTM whose cell state grows by nearly 1 at each: 20 examples do not add up."""

    class Model(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([1, 1, 1])])
        def answer(self, x: Any) -> Any:
            def lstm(x: Any, h: Any, c: Any, *_: Any) -> Any:
                return h, tf.zeros([1, 1, 1]) + x, h, h, tf.constant(0.0)

            attributes = {"api_implements": "lstm_a", "time_major": True, "go_backwards": False}
            marked = tf.function(lstm, autograph=False, experimental_attributes=attributes)
            zero = tf.zeros([1, 1])
            weights = tf.ones([1, 4]), tf.zeros([1, 4]), tf.constant([5.0, 5.0, 5.0, 5.0])
            return marked(x, zero, zero, *weights)[1]

    model = Model()
    examples = [np.ones([1, 1, 1], np.float32)] * 20

    def give() -> Iterator[list[np.ndarray]]:
        yield from ([example] for example in examples)

    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.answer.get_concrete_function()], model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = give
    calibrated: list[bytes] = []
    kept = calibrator.Calibrator

    def keep(content: bytes) -> bytes:
        calibrated.append(content)
        return content

    with calibrate_sequences(lambda content: content, keep):
        converter.convert()
    assert calibrator.Calibrator is kept
    (content,) = calibrated
    (graph,) = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0)).subgraphs
    (op,) = (op for op in graph.operators if len(op.inputs) > 19)
    cell = graph.tensors[op.inputs[19]].quantization
    np.testing.assert_allclose(cell.max, [1], atol=0.01)
