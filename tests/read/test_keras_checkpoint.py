"""Weights that `save_weights` of TensorFlow 2 writes by default, with the JSON of their model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tf_keras

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError


def test_a_checkpoint_of_objects_is_a_model_with_its_json(tmp_path: Path) -> None:
    layers = tf_keras.layers
    words = tf_keras.Input((6,), name="words")
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(layers.Embedding(9, 4)(words))
    x = layers.TimeDistributed(layers.Dense(5, activation="relu"))(
        layers.BatchNormalization()(layers.Dropout(0.5)(x))
    )
    built = tf_keras.Model(words, layers.Dense(2)(layers.GRU(4)(x)))
    rng = np.random.default_rng(8)
    built.set_weights([rng.uniform(0.1, 0.9, value.shape) for value in built.get_weights()])
    built.save_weights(tmp_path / "weights", save_format="tf")
    (tmp_path / "model.json").write_text(built.to_json())
    source, out = tmp_path / "weights", tmp_path / "out.h5"
    cudnn_convert.convert(source, out, format="h5", architecture=tmp_path / "model.json", verify=False)
    fed = rng.integers(0, 9, (3, 6)).astype(np.float32)
    found = tf_keras.models.load_model(out, compile=False)(fed)
    np.testing.assert_allclose(found, built(fed), atol=1e-6)
    other = tf_keras.Sequential([layers.Dense(2, input_shape=(3,))])
    (tmp_path / "other.json").write_text(other.to_json())
    with pytest.raises(
        UnsupportedModelError, match=r"expected 1 layers with weights, as other\.json has, found 6"
    ):
        cudnn_convert.convert(source, tmp_path / "no", architecture=tmp_path / "other.json")
