"""HDF5 files of layers as artifacts: their names, weights and answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tf_keras

from cudnn_convert.artifacts import h5
from cudnn_convert.keras.config.classes import NOTHING


def test_a_file_is_called_by_the_names_of_its_model(tmp_path: Path) -> None:
    x = tf_keras.Input([4], name="x")
    model = tf_keras.Model(x, tf_keras.layers.Dense(3, name="y", bias_initializer="ones")(x))
    path = tmp_path / "model.h5"
    model.save(path)
    assert h5.provenance(path) is None
    (interface,) = h5.interfaces(path, NOTHING)
    assert [*interface.inputs] == ["x"]
    (run,) = h5.open_parts(path, [interface.part], NOTHING)
    feed = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    (answer,) = run({"x": feed}).values()
    np.testing.assert_allclose(answer, model(feed), atol=1e-6)
    kernel, bias = model.get_weights()
    arrays = {name.rpartition("/")[2]: value for name, value in h5.arrays(path)}
    np.testing.assert_array_equal(arrays["kernel:0"], kernel)
    np.testing.assert_array_equal(arrays["bias:0"], bias)
