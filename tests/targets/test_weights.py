"""Decoded weights: what `load` gives of every kind of source, and what is in the files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.cases import Case
from support.command_line import command
from support.keras3_samples import EXPORTED
from support.keras_samples import keras_fixture
from support.samples import FIXTURES, GRAPHLESS, ROOT, fixture
from support.tiers import tier
from support.user.numpy_user import contents, recurrence

import cudnn_convert
from cudnn_convert.model import Mode
from cudnn_convert.recurrences import named_weights
from cudnn_convert.targets import weights

#: Fixtures whose graph is one recurrence and nothing else, by what their tensors are called here.
ENDS = {"x:0": "inputs", "h0:0": "initial_h", "c0:0": "initial_c", "lengths:0": "sequence_lengths"}
ENDS |= {"h:0": "initial_h", "c:0": "initial_c"}
ENDS |= {"rnn_out:0": "outputs", "state_h:0": "state_h", "state_c:0": "state_c"}
WHOLE = {
    "1.15.5-lstm_bi_2l_states": {},
    "1.15.5-gru_bi": {},
    "1.8.0-rnn_tanh_bi_2l": {},
    "1.12.3-rnn_relu_uni_2l": {},
    "1.15.5-v3_lengths_time_major": {},
    "1.15.5-gru_bi_2l_float64": {},
    "1.3.0-params_gru_2l": {},
    "1.15.5-raw_only": {},
    "1.15.5-moving_average": {"weights": "ema"},
}
FORMS = ("npz", "safetensors")
BOUNDS = {"float32": 1e-5, "float64": 1e-12}


def answered(one: named_weights.Weights, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {f"{one.name}/{key}": value for key, value in one.weights.items()}
    return recurrence(one.describe(), named, feed)


@pytest.mark.parametrize("name", WHOLE)
def test_a_graph_of_one_recurrence_computes_what_tensorflow_1_did(name: str) -> None:
    sample = fixture(name)
    (one,) = cudnn_convert.load(sample.prefix, **WHOLE[name]).recurrences
    compared = 0
    for feed in sample.feeds():
        named = {ENDS.get(key, key): value for key, value in feed.items()}
        found = answered(one, named)
        for key in found.keys() & named.keys():
            bound = BOUNDS[one.dtype]
            np.testing.assert_allclose(found[key], named[key], rtol=bound, atol=bound)
            compared += 1
    assert compared >= len(sample.feeds())


CASES = {
    "skip_input": Case(Mode.LSTM, layers=2, directions=2, input_mode="skip_input"),
    "skip_input-gru": Case(Mode.GRU, layers=2, input_mode="skip_input"),
    "projection": Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3),
    "batch_major": Case(Mode.GRU, layers=2, directions=2, op="CudnnRNNV3", time_major=False),
    "half": Case(Mode.LSTM, directions=2, dtype="float16"),
    "double": Case(Mode.RNN_TANH, directions=2, dtype="float64"),
    "relu": Case(Mode.RNN_RELU, layers=3, directions=2, op="CudnnRNNV2"),
}


def frozen(case: Case, folder: Path) -> Path:
    path = folder / "model.pb"
    path.write_bytes(case.graph()[0].SerializeToString())
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_constants_of_every_kind_of_node_are_proven(tmp_path: Path, name: str, form: str) -> None:
    """The judge walks the blob by itself; the file is computed from its arrays."""
    case = CASES[name]
    report = cudnn_convert.convert(frozen(case, tmp_path), tmp_path / "out", format=form)
    assert report.verification is not None
    assert report.verification.passed
    (said,), arrays = contents(tmp_path / "out" / f"weights.{form}")
    assert (said["mode"], said["layers"], said["directions"]) == (
        case.mode.value,
        case.layers,
        case.directions,
    )
    assert (
        said["skip_input"] is (f"{said['name']}/layer_0/forward/kernel" not in arrays) is (name[:4] == "skip")
    )
    assert said["projection"] == case.projection
    assert (f"{said['name']}/layer_1/backward/projection" in arrays) is bool(case.projection)
    assert {value.dtype.name for value in arrays.values()} == {case.dtype}


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    case = Case(Mode.GRU, dtype="bfloat16")
    (one,) = cudnn_convert.load(frozen(case, tmp_path)).recurrences
    assert one.dtype == "bfloat16"
    blob = np.concatenate([value.reshape(-1) for value in one.weights.values()])
    np.testing.assert_array_equal(np.sort(blob), np.sort(case.blob.astype(np.float32)))
    report = cudnn_convert.convert(tmp_path / "model.pb", tmp_path / "w.npz", format="npz")
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.first("1.15.5-frozen_layer_norm")
@pytest.mark.parametrize(
    "sample", [pytest.param(one, marks=tier(first=one.is_first("frozen")), id=one.name) for one in FIXTURES]
)
def test_every_checkpoint_has_what_inspect_lists(sample) -> None:
    """The surroundings of a recurrence, refused by a conversion or not, are no matter."""
    reading = ("weights", "forget_bias", "gate_order", "signature", "tag")
    flags = {name: value for name, value in sample.options.items() if name in reading}
    listed = cudnn_convert.inspect(sample.prefix, **flags).recurrences
    wanted = {(found.mode, found.units) for found in listed if found.needs_gpu and found.live is not None}
    if not wanted:
        with pytest.raises(
            cudnn_convert.UnsupportedModelError, match="found none; choose a format that keeps a graph"
        ):
            cudnn_convert.load(sample.prefix, **flags)
        return
    loaded = cudnn_convert.load(sample.prefix, **flags).recurrences
    assert {(one.mode, one.units) for one in loaded} == wanted


@pytest.mark.slow("cudnn_convert/keras/config", "cudnn_convert/private")
def test_of_a_keras_model_each_layer() -> None:
    sample = keras_fixture("tf.keras-1.15.5-merge_modes_gru")
    loaded = cudnn_convert.load(sample.path)
    assert {one.mode for one in loaded.recurrences} == {"gru"}
    with h5py.File(sample.path) as file:
        biases = []
        file.visititems(lambda name, item: biases.append(np.array(item)) if name.endswith("bias:0") else None)
    stored = {float(value) for bias in biases for value in bias.reshape(-1)}
    for one in loaded.recurrences:
        for key, value in one.weights.items():
            assert key.rpartition("/")[2] not in ("bias", "recurrent_bias") or set(value.flat) <= stored


def test_of_a_saved_model_of_keras_3() -> None:
    sample = next(found for found in EXPORTED if not found.portable)
    for one in cudnn_convert.load(sample.path).recurrences:
        assert one.layout == "batch"
        assert all(np.isfinite(value).all() for value in one.weights.values())


def test_weights_without_a_graph_need_no_tensorflow() -> None:
    program = (
        "import sys, cudnn_convert; cudnn_convert.load(sys.argv[1], mode='lstm')\n"
        "print([name for name in ('tensorflow', 'onnx', 'keras', 'tf_keras') if name in sys.modules])"
    )
    source = next(found for found in GRAPHLESS if "weights_lstm" in found.name).prefix
    done = subprocess.run(
        [sys.executable, "-c", program, source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "[]"


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/verification")
@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_the_arrays_and_what_they_are(tmp_path: Path, form: str) -> None:
    source = fixture("1.15.5-lstm_bi_2l_states").prefix
    (one,) = cudnn_convert.load(source).recurrences
    for out in (tmp_path / f"w.{form}", tmp_path / "folder"):
        report = cudnn_convert.convert(source, out, format=form)
        assert report.verification is not None
        assert report.verification.passed
        path = out if out.suffix else out / f"weights.{form}"
        said, arrays = contents(path)
        assert said == [json.loads(json.dumps(one.describe()))]
        assert arrays.keys() == {f"{one.name}/{key}" for key in one.weights}
        for key, value in one.weights.items():
            np.testing.assert_array_equal(arrays[f"{one.name}/{key}"], value, strict=True)
        assert cudnn_convert.verify(source, out).passed


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bytes_every_time(tmp_path: Path, form: str) -> None:
    source = fixture("1.15.5-gru_bi").prefix
    found = []
    for name in ("one", "two"):
        cudnn_convert.convert(source, tmp_path / f"{name}.{form}", format=form, verify=False)
        found.append((tmp_path / f"{name}.{form}").read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_file_is_told(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"w.{form}"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(cudnn_convert.ReadError, match=r"expected weights as format=.npz. or safetensors"):
        cudnn_convert.verify(fixture("1.15.5-gru_bi").prefix, path)


@pytest.mark.mutant
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", ["kernel", "recurrent_kernel", "bias", "recurrent_bias"])
@pytest.mark.parametrize("change", ["two gates swapped", "one value"])
def test_wrong_arrays_fail_the_proof(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str, field: str, change: str
) -> None:
    right = named_weights.decode

    def wrong(single):
        found = right(single)
        key = f"layer_0/backward/{field}"
        value = np.array(found.weights[key])
        if change == "one value":
            value.flat[-1] += 0.25
        else:
            value = value[[1, 0, *range(2, len(value))]]
        found.weights[key] = value
        return found

    monkeypatch.setattr(weights, "decode", wrong)
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.convert(fixture("1.15.5-gru_bi").prefix, tmp_path / "out", format=form, weights="raw")
    assert not (tmp_path / "out").exists()


def test_a_cut_is_refused(tmp_path: Path) -> None:
    ended = command(
        fixture("1.15.5-gru_bi").prefix, tmp_path / "w.npz", "--format", "npz", "--outputs", "y:0"
    )
    assert (ended.code, "expected a format that keeps a graph, found npz" in ended.stderr) == (2, True)


@pytest.mark.parametrize("name", ["saved_model_words/model", "gru_bi/model.ckpt"])
def test_a_signature_that_is_not_there_is_refused(name: str) -> None:
    source = ROOT / "tests" / "data" / "tf1" / "1.15.5" / name
    with pytest.raises(cudnn_convert.UsageError, match=r": signature: expected one of .*, found nowhere"):
        cudnn_convert.load(source, signature="nowhere")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.skipif(sys.platform == "win32", reason="no umask there")
def test_who_may_read_a_file_is_as_its_user_wants(form: str, tmp_path: Path) -> None:
    source = ROOT / "tests" / "data" / "tf1" / "1.15.5" / "keras_weights_lstm" / "model.ckpt"
    before = os.umask(0o027)
    try:
        assert command(source, tmp_path / f"out.{form}", "--format", form, "--quiet").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / f"out.{form}").stat().st_mode) == 0o640
