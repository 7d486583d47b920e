"""What a user of Keras has without us: the layers' CPU twins, exported, and tf2onnx of them."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from contender import Built
from ours import as_function
from problem import INPUT, Problem
from runtimes import onnxruntime_session

from cudnn_convert.model import Mode
from cudnn_convert.weights import layouts


def tf_keras_export(problem: Problem, threads: int) -> Built:
    import tf_keras

    return as_function(problem, _exported(problem, tf_keras), batch_major=True)


def keras_export(problem: Problem, threads: int) -> Built:
    import keras

    return as_function(problem, _exported(problem, keras), batch_major=True)


def tf2onnx_of_tf_keras(problem: Problem, threads: int) -> Built:
    import tensorflow as tf
    import tf2onnx
    import tf_keras

    path = problem.folder / "tf2onnx_tf_keras.onnx"
    signature = [tf.TensorSpec([None, None, problem.shape.inputs], tf.float32, INPUT)]
    tf2onnx.convert.from_keras(
        _model(problem, tf_keras), input_signature=signature, opset=17, output_path=str(path)
    )
    return onnxruntime_session(problem, str(path), threads, batch_major=True)


def _exported(problem: Problem, library: Any) -> Path:
    folder = problem.folder / str(library.__name__)
    with redirect_stdout(io.StringIO()):  # tf_keras lists every endpoint
        _model(problem, library).export(str(folder))
    return folder


def _model(problem: Problem, library: Any) -> Any:
    """One layer after the other, batch-major as Keras has it by default, with the problem's weights."""
    layers, recurrence = library.layers, problem.recurrence
    kind = layers.LSTM if problem.mode is Mode.LSTM else layers.GRU
    own = {} if problem.mode is Mode.LSTM else {"reset_after": True}
    y = x = library.Input((None, problem.shape.inputs), name=INPUT)
    for cells in recurrence.cells:
        layer = kind(problem.shape.units, return_sequences=True, **own)
        layer = layers.Bidirectional(layer) if len(cells) == 2 else layer
        y = layer(y)
        layer.set_weights([np.asarray(one) for cell in cells for one in layouts.pack_keras(cell).values()])
    return library.Model(x, y)
