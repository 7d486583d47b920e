"""Recurrences of any source as Keras 3 layers: recorded answers on two backends, training, refusals."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support.command_line import command
from support.samples import ROOT
from support.tiers import some

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.weights import layouts

PROGRAM: Final = ROOT / "tests" / "support" / "programs" / "keras_backend.py"
FIXTURES: Final = ROOT / "tests" / "data" / "tf1" / "1.15.5"
#: Fixtures that record what the recurrence gives: every mode, dtype and direction, a blob alone.
CASES: Final = (
    "lstm_bi_2l_states", "gru_bi", "rnn_relu_uni_2l",
    "build_prefix", "gru_bi_2l_float64", "gru_uni_2l", "lstm_float16", "raw_only", "rnn_relu_bi",
    "rnn_tanh_bi_2l", "rnn_tanh_uni", "v2_gru",
)  # fmt: skip
BOUNDS: Final = {"float64": 1e-12, "float32": 5e-6, "float16": 2e-3}
NAMES: Final = {"rnn_out:0": "outputs", "state_h:0": "state_h", "state_c:0": "state_c"}

pytestmark = pytest.mark.xdist_group("keras_recurrences")


def feeds(name: str) -> dict[str, Any]:
    """The recorded inputs as the model takes them: batch first, zero states where none were fed."""
    golden = np.load(FIXTURES / name / "golden.npz")
    found = {}
    for key in golden.files:
        feed, _, tensor = key.partition("/")
        name_of_input = {"x:0": "inputs", "h0:0": "initial_h", "c0:0": "initial_c"}.get(tensor)
        if name_of_input:
            found[f"{feed}/{name_of_input}"] = golden[f"{feed}/{tensor}"].swapaxes(0, 1)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the `.keras` file and the recorded inputs of each fixture."""
    folder = tmp_path_factory.mktemp("keras")
    for name in CASES:
        given = feeds(name)
        states = "feed0/initial_h" in given
        cudnn_convert.convert(
            FIXTURES / name / "model.ckpt", folder / f"{name}.keras",
            states=states, verify=False,
        )  # fmt: skip
        np.savez(folder / f"{name}.npz", **given)
    return folder


def run_backend(folder: Path, backend: str) -> None:
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), str(folder)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def answered(folder: Path, request: pytest.FixtureRequest) -> str:
    """The backend on which a user's process has answered and trained."""
    backend = str(request.param)
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    run_backend(folder, backend)
    return backend


@pytest.mark.every
@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_answers_in_keras_as_recorded(folder: Path, answered: str, name: str) -> None:
    answers, golden = np.load(folder / f"{name}.{answered}.npz"), np.load(FIXTURES / name / "golden.npz")
    compared = 0
    for key in golden.files:
        feed, _, tensor = key.partition("/")
        if tensor in NAMES:
            expected, answer = golden[key].swapaxes(0, 1), answers[f"{feed}/{NAMES[tensor]}"]
            # JAX computes doubles in float32 unless it is told otherwise.
            assert answer.dtype == (
                np.float32 if answered == "jax" and expected.dtype == float else expected.dtype
            )
            bound = BOUNDS[answer.dtype.name]
            np.testing.assert_allclose(answer, expected, rtol=bound, atol=bound, err_msg=key)
            compared += 1
    assert compared


@pytest.mark.every
@pytest.mark.parametrize("name", CASES)
def test_fit_lowers_the_loss_and_moves_every_weight(folder: Path, answered: str, name: str) -> None:
    answers = np.load(folder / f"{name}.{answered}.npz")
    losses = answers["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < 0.995 * losses[0]
    assert answers["moved"] == 1


def test_other_ops_are_refused_and_left_out_on_demand(tmp_path: Path) -> None:
    source = FIXTURES / "two_layers" / "model.ckpt"
    with pytest.raises(UsageError) as caught:
        cudnn_convert.convert(source, tmp_path / "out", format="keras")
    assert str(caught.value) == (
        "--format keras: expected recurrences alone, which become layers, found "
        "outer/inner/encoder_1/CudnnRNN (CudnnRNN), outer/inner/encoder/CudnnRNN (CudnnRNN) beside them; "
        "give --recurrences-only to leave the rest of the graph out"
    )
    report = cudnn_convert.convert(source, tmp_path / "out", format="keras", recurrences_only=True)
    assert sorted(file.name for file in (tmp_path / "out").glob("*.keras")) == [
        "outer_inner_encoder.keras", "outer_inner_encoder_1.keras",
    ]  # fmt: skip
    assert report.verification is not None and report.verification.passed
    assert all(piece.asked for piece in report.verification.recurrences)


@pytest.mark.every
@pytest.mark.parametrize(("name", "source"), [("frozen_binary", "frozen.pb"), ("saved_model_words", "model")])
def test_frozen_graphs_and_saved_models_have_layers_too(tmp_path: Path, name: str, source: str) -> None:
    report = cudnn_convert.convert(
        FIXTURES / name / source, tmp_path / "out", format="keras", recurrences_only=True
    )
    assert report.verification is not None and report.verification.passed
    assert cudnn_convert.verify(FIXTURES / name / source, tmp_path / "out").passed


@pytest.mark.slow("cudnn_convert/keras/config", "cudnn_convert/verification/pieces")
def test_weights_without_a_graph_are_layers(tmp_path: Path) -> None:
    for file in (FIXTURES / "gru_bi").glob("model.ckpt.*"):
        if file.suffix != ".meta":
            shutil.copy(file, tmp_path)
    report = cudnn_convert.convert(tmp_path / "model.ckpt", tmp_path / "out.keras")
    assert report.verification is not None and report.verification.passed
    assert {output.output for output in report.verification.outputs} == {"outputs", "state_h"}


@pytest.mark.parametrize("flag", ["--layout=time", "--lengths"])
def test_flags_of_other_interfaces_are_refused(tmp_path: Path, flag: str) -> None:
    for file in (FIXTURES / "gru_bi").glob("model.ckpt.*"):
        if file.suffix != ".meta":
            shutil.copy(file, tmp_path)
    done = command(tmp_path / "model.ckpt", tmp_path / "out.keras", flag)
    name = flag.partition("=")[0]
    assert done.code == 2
    assert f"{name}: expected " in done.stderr and f"leave out {name}" in done.stderr
    assert not (tmp_path / "out.keras").exists()


def test_a_projection_is_refused(tmp_path: Path) -> None:
    source = FIXTURES / "op_proj_lstm" / "model.ckpt"
    with pytest.raises(UnsupportedModelError, match="no projection, which layers of Keras 3 lack, found 4"):
        cudnn_convert.convert(source, tmp_path / "out.keras", recurrences_only=True)
    with pytest.raises(UnsupportedModelError, match="found 4 values"):
        cudnn_convert.load(source).to_keras()


def test_loaded_weights_become_a_model() -> None:
    loaded = cudnn_convert.load(FIXTURES / "two_layers" / "model.ckpt")
    with pytest.raises(
        UsageError, match=r"name: expected one of outer/inner/encoder/CudnnRNN, .*, found none"
    ):
        loaded.to_keras()
    model = loaded.to_keras("outer/inner/encoder_1/CudnnRNN", states=True)
    assert [tensor.name for tensor in model.inputs] == ["inputs", "initial_h", "mask"]
    assert model.output_names == ["outputs", "state_h"]
    assert [tuple(tensor.shape) for tensor in model.outputs] == [(None, None, 6), (None, 1, 6)]


@pytest.mark.parametrize("name", some(["gru_bi"], "lstm_bi_2l_states"))
def test_swapped_gates_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the proof of the file, and by that of a loaded model."""
    turned = {mode: (*gates[1::-1], *gates[2:]) for mode, gates in layouts.KERAS.gates.items()}
    monkeypatch.setattr(layouts, "KERAS", layouts.Layout("keras", turned, "a mistake"))
    source = FIXTURES / name / "model.ckpt"
    with pytest.raises(VerificationError):
        cudnn_convert.convert(source, tmp_path / "out.keras")
    with pytest.raises(VerificationError):
        cudnn_convert.load(source).to_keras()
    assert not (tmp_path / "out.keras").exists()


def test_lengths_are_a_mask_beside_states(tmp_path: Path) -> None:
    """Keras hands a mask of the model's call on to no layer that is called with initial states."""
    import keras

    source = ROOT / "tests" / "data" / "streams" / "masked" / "model.ckpt"
    report = cudnn_convert.convert(
        source, tmp_path / "out", format="keras", states=True, recurrences_only=True
    )
    proof = report.verification
    assert proof is not None
    assert all("sequence_lengths" in feed for feed in proof.feeds)
    [file] = (tmp_path / "out").glob("*.keras")
    model = keras.models.load_model(file)
    assert [each.name for each in model.inputs] == ["inputs", "initial_h", "mask"]
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=(2, 6, 5)).astype(np.float32), np.zeros([2, 2, 6], np.float32)
    mask = np.arange(6) < np.array([[6], [2]])
    y, _ = model.predict([x, h, mask], verbose=0)
    x[1, 2:] = 7.0
    again, _ = model.predict([x, h, mask], verbose=0)
    np.testing.assert_array_equal(y, again)
    assert not y[1, 2:].any()


@pytest.mark.parametrize("name", some(["first"], "second", "third"))
def test_loaded_layers_take_states_and_a_mask(name: str) -> None:
    """As tf_keras answers for the layer, with the weights that its own rule converts for a CPU."""
    import tensorflow as tf
    import tf_keras

    source = ROOT / "tests" / "data" / "keras" / "tf_keras-2.21.0" / "stacked" / "model.h5"
    options = {"return_sequences": True, "return_state": True, "zero_output_for_mask": True, "name": name}
    kind, units, inputs = {"first": ("LSTM", 5, 4), "second": ("LSTM", 3, 5), "third": ("GRU", 6, 3)}[name]
    layer = getattr(tf_keras.layers, kind)(units, **options)
    given = tf_keras.Input([None, inputs])
    tf_keras.Model(given, layer(given)).load_weights(source, by_name=True)
    model = cudnn_convert.load(source).to_keras(f"{name}/CudnnRNNV3", states=True)
    assert [each.name for each in model.inputs][-1] == "mask"
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, 6, inputs)).astype(np.float32)
    states = [rng.normal(size=(3, units)).astype(np.float32) for _ in range(2 if kind == "LSTM" else 1)]
    ragged = np.arange(6) < np.array([[6], [2], [5]])
    for mask in (ragged, None):
        expected = layer(tf.constant(x), initial_state=[*map(tf.constant, states)], mask=mask)
        found = model([x, *(state[:, None] for state in states), mask])
        for have, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.reshape(have, np.shape(want)), want, atol=1e-6)
