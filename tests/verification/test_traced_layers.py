"""The layers of a Keras file, judged by equations in float64 when a conversion is proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import keras_census
from support.keras_census import WITNESSES

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.keras import trace
from cudnn_convert.private import older_layers
from cudnn_convert.reference import keras_layers
from cudnn_convert.reference.cells import KerasLayer

#: What no equation has: masks of a model inside a model, states that are carried on, masks in TimeDistributed
#: of TensorFlow. Films have their own test in tests/keras.
WITHOUT_EQUATION = {"bidirectional_without_states", "model_without_mask", "time_distributed_without_mask"}


@pytest.mark.first(
    *("attention_without_mask", "dot_of_leading_axes", "epsilon_of_cudnn", "first_state_at_masked_steps"),
    *("group_normalization_without_mask", "last_output_of_padding", "model_without_mask"),
    *("regularization_without_mask", "time_distributed_without_mask"),
    *("relu_without_mask", "softmax_without_mask", "stacked_states_reversed"),
    *("transposed_as_convolution", "transposed_without_dilation"),
)
@pytest.mark.parametrize("name", sorted(WITNESSES))
def test_the_layers_of_each_witness_are_those_of_their_equations(name: str, tmp_path: Path) -> None:
    traced = trace.trace_model(keras_census.read(keras_census.case(*WITNESSES[name]), tmp_path))
    assert keras_census.find_other_layer(traced, keras_census.case(*WITNESSES[name])) is None


@pytest.mark.slow("cudnn_convert/reference/", "cudnn_convert/verification/traced_layers.py")
@pytest.mark.parametrize("name", sorted(WITNESSES.keys() - WITHOUT_EQUATION))
def test_a_layer_computed_as_today_is_told_from_its_writers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as = older_layers.compute_as
    monkeypatch.setattr(older_layers, "compute_as", lambda names: compute_as({*names} - {name}))
    members = keras_census.case(*WITNESSES[name])
    traced = trace.trace_model(keras_census.read(members, tmp_path))
    try:
        other = keras_census.find_other_layer(traced, members)
    except tf.errors.OpError:  # a mask of another shape
        return
    assert other is not None


def test_a_layer_that_was_traced_wrong_fails_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as = older_layers.compute_as
    monkeypatch.setattr(
        older_layers, "compute_as", lambda names: compute_as({*names} - {"bilinear_from_corners"})
    )
    members = keras_census.case(*WITNESSES["bilinear_from_corners"])
    (tmp_path / "model.h5").write_bytes(members["model.h5"])
    with pytest.raises(VerificationError, match=r"differs at layer up_sampling2d_1 \(UpSampling2D\)"):
        cudnn_convert.convert(tmp_path / "model.h5", tmp_path / "out", format="savedmodel")
    assert not (tmp_path / "out").exists()


def test_masks_reach_an_equation_in_float64() -> None:
    rng = np.random.default_rng(7)
    x, mask = rng.standard_normal((2, 5, 3)), np.array([[0, 1, 0, 1, 1], [1, 0, 0, 1, 0]], bool)
    weights = [rng.standard_normal(shape) for shape in ((3, 4), (4, 4), (4,))]
    config: dict[str, Any] = {"units": 4, "activation": "tanh", "return_sequences": True}
    expected, h = np.zeros((2, 5, 4)), np.zeros((2, 4))
    for row in range(2):
        for t in range(5):
            if mask[row, t]:
                h[row] = np.tanh(x[row, t] @ weights[0] + h[row] @ weights[1] + weights[2])
            expected[row, t] = h[row]
    (outputs,) = keras_layers.compute(KerasLayer("SimpleRNN", config, weights), [x], [mask])
    np.testing.assert_allclose(outputs, expected, rtol=1e-12)
