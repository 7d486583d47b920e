"""The files of a network that Keras trained: HDF5 with CuDNN layers, .keras, and a SavedModel of a GPU.

Each file is made with the trained weights. Before it is kept, layers of a CPU answer from it as the trained
model does, or, for a SavedModel, Keras' path on a GPU does with cuDNN's op stood in for by its equations.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras3_exports import gpu
from keras3_exports import reproducible as reproducible_exports
from keras3_exports.stand_in import cudnn_rnn_v3
from keras_fixtures import reproducible
from keras_fixtures.stand_in import on_cpu
from keras_fixtures.writer import CpuLayers, CudnnLayers

from .networks import NETWORKS, PlainLayers

#: What float32 may differ by where sums are taken in another order, over 40 steps.
CLOSE = 1e-5
CUDNN = ("CuDNNLSTM", "CuDNNGRU")


def write_h5(name: str, trained: Any, inputs: list[np.ndarray], folder: Path) -> None:
    """A model of tf_keras' CuDNN layers, whose two biases differ and add up to the trained one.

    `load_weights` makes the weights of CuDNN layers from plain ones, and the other way round, by Keras' own
    rule.
    """
    build, expected = NETWORKS[name].build, predict(trained, inputs)
    with tempfile.TemporaryDirectory() as scratch:
        plain = build(start(CpuLayers))
        plain.set_weights(trained.get_weights())
        plain.save_weights(f"{scratch}/plain.h5")
        cudnn = build(start(CudnnLayers))
        cudnn.load_weights(f"{scratch}/plain.h5")
    split_biases(cudnn)
    path = folder / "model.h5"
    with reproducible.datasets():
        cudnn.save(str(path))
    again = build(start(CpuLayers))
    again.load_weights(str(path))
    compare(predict(again, inputs), expected)
    writer = start(CudnnLayers)
    with on_cpu(writer):
        equations = build(writer)
        equations.load_weights(str(path))
        compare(predict(equations, inputs), expected)


def start(kind: Any) -> Any:
    writer = kind("tf_keras")
    writer.start()
    return writer


def split_biases(model: Any) -> None:
    """Give an LSTM two biases: Keras makes two halves of its one. A GRU has two trained ones."""
    random = np.random.RandomState(9)
    for layer in find_recurrences(model):
        kernel, recurrent, bias = layer.get_weights()
        of_input, of_state = np.split(bias, 2)
        if type(layer).__name__ == "CuDNNLSTM":
            np.testing.assert_array_equal(of_input, of_state)
            shift = random.uniform(-0.5, 0.5, of_input.shape).astype(np.float32)
            of_input, of_state = of_input + shift, of_state - shift
        assert np.abs(of_input - of_state).max() > 0.1
        layer.set_weights([kernel, recurrent, np.concatenate([of_input, of_state])])


def find_recurrences(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        sides = [layer.forward_layer, layer.backward_layer] if hasattr(layer, "backward_layer") else [layer]
        yield from (side for side in sides if type(side).__name__ in CUDNN)


def write_archive(name: str, trained: Any, inputs: list[np.ndarray], folder: Path) -> None:
    """The trained model as Keras 3 saves it, without its optimizer."""
    model = NETWORKS[name].build(PlainLayers)
    model.set_weights(trained.get_weights())
    model.save(folder / "model.keras")
    reproducible_exports.archive(folder / "model.keras")
    again = keras.models.load_model(folder / "model.keras")
    compare(predict(again, inputs), predict(trained, inputs))


def write_saved_model(name: str, trained: Any, inputs: list[np.ndarray], folder: Path) -> None:
    """The export of Keras 3 where it sees a GPU, which a CPU cannot run."""
    path = folder / "saved_model"
    with gpu.pretended():
        keras.backend.clear_session()
        model = NETWORKS[name].build(PlainLayers)
        model.set_weights(trained.get_weights())
        with reproducible_exports.variables_in_order(), contextlib.redirect_stdout(io.StringIO()):
            model.export(str(path))
        count = itertools.count()
        op = functools.partial(cudnn_rnn_v3, count)
        with (
            mock.patch.object(tf.compat.v2.raw_ops, "CudnnRNNV3", op),
            mock.patch.object(tf.raw_ops, "CudnnRNNV3", op),
        ):
            answer = np.asarray(model(inputs[0]))
        assert next(count), "Keras went another way"
    compare([answer], predict(trained, inputs))
    reproducible_exports.fingerprint(path)


def predict(model: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    answers = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=100, verbose=0)
    return list(answers) if isinstance(answers, list | tuple) else [answers]


def compare(answers: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for answer, one in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, one, rtol=0, atol=CLOSE)
