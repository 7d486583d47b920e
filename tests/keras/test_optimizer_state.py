"""Training goes on in Keras 3 where the source's optimizer stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from support.keras_samples import keras_fixture
from support.tiers import some

import cudnn_convert
from cudnn_convert.keras import build_keras3

#: What each writer's file lists: kinds one after the other, with arrays of one zero behind; side by side.
TRAINED = (
    "keras-2.2.4-adam",
    "keras-2.3.1-adam",
    "tf.keras-1.15.5-adam",
    "tf_keras-2.21.0-adam",
    "tf_keras-2.21.0-archive_adam",
)
new, legacy = tf_keras.optimizers, tf_keras.optimizers.legacy
OPTIMIZERS = {
    "sgd": lambda: new.SGD(0.05),
    "sgd with momentum": lambda: new.SGD(0.05, momentum=0.8, nesterov=True),
    "rmsprop": lambda: new.RMSprop(0.01, rho=0.8),
    "rmsprop with all": lambda: new.RMSprop(0.01, momentum=0.7, centered=True),
    "adam": lambda: new.Adam(0.02, beta_1=0.8),
    "adam with maxima": lambda: new.Adam(0.02, amsgrad=True),
    "adamax": lambda: new.Adamax(0.02),
    "adagrad": lambda: new.Adagrad(0.05),
    "adadelta": lambda: new.Adadelta(0.5),
    "ftrl": lambda: new.Ftrl(0.05),
    "older adam, its rate decays": lambda: legacy.Adam(0.02, decay=0.3),
    "older adam with maxima": lambda: legacy.Adam(0.02, amsgrad=True),
    "older sgd with momentum": lambda: legacy.SGD(0.05, momentum=0.8),
    "older rmsprop with all": lambda: legacy.RMSprop(0.01, momentum=0.7, centered=True),
}


def batch(model: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(6, 4, model.input_shape[-1])).astype(np.float32)
    return x, rng.normal(size=model(x).shape).astype(np.float32)


def answers_after(model: Any, steps: int = 2) -> np.ndarray:
    x, y = batch(model)
    model.run_eagerly = True  # tracing takes longer than some steps
    for _ in range(steps):
        model.train_on_batch(x, y)
    return np.asarray(model(x))


@pytest.mark.slow("cudnn_convert/keras/", "cudnn_convert/targets/")
@pytest.mark.parametrize("name", some(TRAINED[:1], *TRAINED[1:]))
def test_both_kinds_of_file_train_on_alike(tmp_path: Path, name: str) -> None:
    source = keras_fixture(name).path
    for form in ("h5", "keras"):
        report = cudnn_convert.convert(source, tmp_path / f"m.{form}", format=form, slots=True, verify=False)
        assert not [note for note in report.notes if "dropped" in note], report.notes
    expected = answers_after(tf_keras.models.load_model(tmp_path / "m.h5"))
    model = keras.models.load_model(tmp_path / "m.keras")
    assert int(model.optimizer.iterations) == 3
    assert (model.loss, type(model.optimizer).__name__) == ("mse", "Adam")
    np.testing.assert_allclose(answers_after(model), expected, atol=2e-6)
    anew = keras.models.load_model(tmp_path / "m.keras", compile=False)
    anew.compile(keras.optimizers.Adam(0.01), "mse")
    assert np.abs(answers_after(anew) - expected).max() > 1e-4, "the state has no effect"


#: Kinds side by side, and another behind them; Adam's of Keras 2.2.4 stand one after the other.
FIRST = ("adam with maxima",)


@pytest.mark.parametrize("name", some(FIRST, *(name for name in OPTIMIZERS if name not in FIRST)))
def test_an_optimizer_goes_on(tmp_path: Path, name: str) -> None:
    layers = [tf_keras.layers.LSTM(5), tf_keras.layers.Dense(3)]
    source = tf_keras.Sequential([tf_keras.layers.Input((4, 2)), *layers])
    rng = np.random.default_rng(4)
    source.set_weights([rng.normal(0, 0.4, value.shape) for value in source.get_weights()])
    source.compile(OPTIMIZERS[name](), "mse", metrics=["mae"])
    answers_after(source, 3)
    source.save(tmp_path / "m.h5")
    options: dict[str, Any] = {"slots": True}
    report = cudnn_convert.convert(tmp_path / "m.h5", tmp_path / "m.keras", **options)
    assert not [note for note in report.notes if "dropped" in note], report.notes
    model = keras.models.load_model(tmp_path / "m.keras")
    assert model.get_compile_config()["metrics"] == ["mean_absolute_error"]
    expected = answers_after(source)
    # Keras 3 adds an epsilon of 1e-7 at another place of some roots.
    np.testing.assert_allclose(answers_after(model), expected, atol=1e-5)


@pytest.mark.slow("cudnn_convert/keras")
def test_same_bytes_every_time(tmp_path: Path) -> None:
    """Keras numbers optimizers that have no name."""
    source = keras_fixture("keras-2.2.4-adam").path
    outs = [tmp_path / "m.keras", tmp_path / "again" / "m.keras"]
    outs[1].parent.mkdir()
    for out in outs:
        cudnn_convert.convert(source, out, slots=True, verify=False)
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    source = keras_fixture("keras-2.2.4-adam").path
    report = cudnn_convert.convert(source, tmp_path / "m.keras", verify=False)
    assert "optimizer state dropped; keep it with --slots" in report.notes
    compiled = "compiled with Adam(learning_rate=0.01), mse, metrics mae"
    assert f"training config dropped, {compiled}: compile the model to train it on" in report.notes
    other = tmp_path / "nadam.h5"
    other.write_bytes(source.read_bytes())
    with h5py.File(other, "r+") as file:
        config = file.attrs["training_config"]
        file.attrs["training_config"] = config.replace('"Adam"', '"Nadam"')
    report = cudnn_convert.convert(other, tmp_path / "other.keras", slots=True, verify=False)
    known = "SGD, RMSprop, Adagrad, Adadelta, Adam, Adamax, Ftrl"
    compiled = compiled.replace("Adam", "Nadam")
    line = f"training config and optimizer state dropped, {compiled}: expected one of {known}, found Nadam"
    assert line in report.notes
    assert not keras.models.load_model(tmp_path / "other.keras").compiled
    with h5py.File(other, "r+") as file:
        file.attrs["training_config"] = json.dumps({**json.loads(config), "loss_weights": "all"})
    report = cudnn_convert.convert(other, tmp_path / "strange.keras", slots=True, verify=False)
    assert any(note.startswith("training config and optimizer state dropped, ") for note in report.notes)


def test_arrays_of_another_model_are_refused() -> None:
    class Array:
        def __init__(self, *shape: int) -> None:
            self.shape = shape

    shapes = [(2, 12), (3, 12), (12,)]
    arrays = [Array(*shape) for shape in [*shapes, *shapes[:2], (11,)]]
    with pytest.raises(ValueError, match="expected 2 arrays for each of 3 weights, found 6 that do not fit"):
        build_keras3._by_kind(arrays, shapes, 2)  # type: ignore[arg-type]


def test_losses_and_metrics_in_every_form_of_a_config() -> None:
    """Alone, in lists, in dicts of outputs; a class with its config, of which Keras 3 knows a part."""
    huber = {"class_name": "Huber", "config": {"delta": 0.5, "reduction": "auto", "fn": "huber"}}
    loss = build_keras3._loss({"a": "mse", "b": huber, "c": None})
    assert (loss["a"], loss["c"]) == ("mse", None)
    np.testing.assert_allclose(
        loss["b"](np.zeros(3), np.array([0.25, 0.5, 2.5])), (0.03125 + 0.125 + 1.125) / 3
    )
    assert build_keras3._loss(["mse", None]) == ["mse", None]
    wrapped = {"class_name": "MeanMetricWrapper", "config": {"fn": "mean_absolute_error"}}
    assert build_keras3._metrics({"a": ["mae", wrapped], "b": None}) == {
        "a": ["mae", "mean_absolute_error"], "b": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match="expected a loss of Keras 3, found Mine"):
        build_keras3._loss([{"class_name": "Mine", "config": {}}])


def test_a_learning_rate_decays_as_the_source_s() -> None:
    """Keras 2.2.4: lr / (1 + decay * iterations); a schedule is one of Keras 3."""
    training = {"optimizer_config": {"class_name": "sgd", "config": {"lr": 0.5, "decay": 0.25, "old": 1}}}
    rate = build_keras3._optimizer(training)._learning_rate
    np.testing.assert_allclose([rate(0), rate(2), rate(4)], [0.5, 0.5 / 1.5, 0.25])
    schedule = {
        "class_name": "ExponentialDecay",
        "config": {"initial_learning_rate": 0.5, "decay_steps": 2, "decay_rate": 0.25},
    }
    training = {"optimizer_config": {"class_name": "Adam", "config": {"learning_rate": schedule}}}
    np.testing.assert_allclose(build_keras3._optimizer(training)._learning_rate(2), 0.125)
