"""What TensorFlow 1 answered, recorded by `scripts/record_tf1.py`, judges artifacts here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.command_line import command
from support.recorded import assert_close
from support.samples import ROOT, Fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.verification import recordings

RECORDINGS = ROOT / "tests" / "data" / "recordings"


@dataclass(frozen=True)
class Case:
    """A recording, the sample of which it holds the answers, and the formats that are judged by it."""

    file: str
    sample: str
    formats: tuple[str, ...]
    tensorflow: str
    python: str

    @property
    def fixture(self) -> Fixture:
        return Fixture(ROOT / "tests" / "data" / "tf1" / self.sample)

    @property
    def cheap(self) -> str:
        """The format that is judged each time."""
        return "onnx" if "onnx" in self.formats else self.formats[0]

    @property
    def path(self) -> Path:
        return RECORDINGS / self.file


CASES = (
    Case("block_fused_lengths-1.15.5.npz", "1.15.5/block_fused_lengths", ("onnx",), "1.15.5", "3.7"),
    Case("state_lstm-1.15.5.npz", "1.15.5/state_lstm", ("savedmodel", "onnx"), "1.15.5", "3.7"),
    Case("saved_model_words-1.15.5.npz", "1.15.5/saved_model_words", ("savedmodel",), "1.15.5", "3.7"),
    Case("twins_training-1.15.5.npz", "1.8.0/twins_training", ("frozen", "onnx"), "1.15.5", "3.7"),
    Case(
        "lstm_bi_2l_states-1.15.0-python2.7.npz",
        "1.15.5/lstm_bi_2l_states",
        ("savedmodel", "tflite"),
        "1.15.0",
        "2.7",
    ),
    Case("params_lstm_bi-1.4.1.npz", "1.3.0/params_lstm_bi", ("savedmodel", "onnx"), "1.4.1", "3.6"),
)
FIRST, LAST = CASES[0], CASES[-1]


def converted(case: Case, folder: Path, form: str) -> Path:
    """An artifact that nothing has judged yet."""
    options = case.fixture.options
    cudnn_convert.convert(case.fixture.prefix, folder / "out", format=form, verify=False, **options)
    return folder / "out"


def changed(case: Case, folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
    """The recording with other arrays in it."""
    with np.load(case.path) as data:
        arrays = {key: data[key].copy() for key in data.files}
    change(arrays)
    np.savez(folder / "changed.npz", **arrays)
    return folder / "changed.npz"


def test_every_recording_is_replayed_and_told_of() -> None:
    files = {path.name for path in RECORDINGS.glob("*.npz")}
    assert files == {case.file for case in CASES}
    told = (RECORDINGS / "README.md").read_text()
    assert all(f"`{file}`" in told for file in files)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_recording_holds_what_the_sample_does(case: Case) -> None:
    """The samples' own golden values were recorded by another program."""
    with np.load(case.path) as data:
        meta = json.loads(data["meta"].tobytes())
        for k, feed in enumerate(case.fixture.feeds()):
            for side in ("inputs", "outputs"):
                for key, told in meta[side].items():
                    value = data[f"feed{k}/{side.removesuffix('puts')}/{key}"]
                    assert value.dtype.kind == "S" or value.dtype == np.dtype(told["dtype"])
                    expected = feed[told["tensor"]]
                    if value.dtype.kind == "f":
                        assert_close(value, expected)
                    else:
                        np.testing.assert_array_equal(value, expected)
        assert len(data.files) == 1 + len(case.fixture.feeds()) * (len(meta["inputs"]) + len(meta["outputs"]))
    assert (meta["format"], meta["version"]) == ("cudnn_convert recording", 1)
    assert meta["tensorflow"] == case.tensorflow
    assert meta["python"].startswith(case.python)
    assert meta["tf32"] == {"on": False, "reason": "no GPU", "execution_enabled": None, "environment": {}}
    assert "CPU" in [device["type"] for device in meta["devices"]]


@pytest.mark.first("state_lstm-1.15.5.npz-onnx", "twins_training-1.15.5.npz-onnx")
@pytest.mark.parametrize(
    ("case", "form"),
    [
        pytest.param(case, form, id=f"{case.file}-{form}", marks=tier(first=form == case.cheap))
        for case in CASES
        for form in case.formats
    ],
)
def test_an_artifact_answers_as_it_was_recorded(tmp_path: Path, case: Case, form: str) -> None:
    out = converted(case, tmp_path, form)
    found = cudnn_convert.verify(case.fixture.prefix, out, golden=case.path)
    assert found.passed
    assert found.recording is not None
    assert found.recording["tensorflow"] == case.tensorflow
    assert len(found.feeds) == len(case.fixture.feeds())


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("form", [pytest.param("savedmodel", marks=pytest.mark.every), "onnx"])
def test_an_artifact_of_what_tensorflow_1_4_made_itself(tmp_path: Path, form: str) -> None:
    """The original ran there, and no program of ours before it was recorded."""
    source = RECORDINGS / "original-1.4.1" / "model.ckpt"
    golden = source.parent / "golden.npz"
    cudnn_convert.convert(source, tmp_path / "out", format=form, verify=False, outputs="logits")
    found = cudnn_convert.verify(source, tmp_path / "out", golden=golden)
    assert found.passed
    assert [(output.output, output.compared) for output in found.outputs] == [("logits", 10)]
    assert found.recording is not None
    assert (found.recording["tensorflow"], found.recording["file"]) == ("1.4.1", "golden.npz")


@pytest.mark.first("params_lstm_bi-1.4.1.npz")
@pytest.mark.parametrize(
    "case",  # TensorFlow 1.15's recording and an older one's
    [pytest.param(one, id=one.file, marks=tier(first=one in (FIRST, LAST))) for one in CASES],
)
def test_one_changed_value_is_found(tmp_path: Path, case: Case) -> None:
    out = converted(case, tmp_path, case.cheap)
    with np.load(case.path) as data:
        key = sorted(name for name in data.files if name.startswith("feed1/out/"))[0]
        place = np.unravel_index(data[key].size // 2, data[key].shape)

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[key][place] += 0.001

    path = changed(case, tmp_path, change)
    ended = command("verify", case.fixture.prefix, out, "--golden", path, "--quiet")
    assert (ended.code, ended.stdout) == (3, "")
    first, second = ended.stderr.splitlines()
    output, at = key.split("/")[2], [int(i) for i in place]
    assert first.startswith(f"cudnn-convert: {case.fixture.prefix}: output {output}: at {at} expected ")
    # Here the recording was changed, not the artifact.
    about = "the source's own graph, computed here in float64, differs from the recording too"
    assert second.startswith(f"cudnn-convert: {case.fixture.prefix}: {output}: {about}: at {at} expected ")


def test_a_wrong_artifact_is_found(tmp_path: Path) -> None:
    """Of other weights: the source itself answers as it was recorded, so nothing is said of it."""
    out = tmp_path / "out"
    outputs = "rnn_out:0,state_c:0,state_h:0"
    cudnn_convert.convert(FIRST.fixture.prefix, out, format="onnx", verify=False, outputs=outputs)
    model = onnx.load(out / "model.onnx")
    kernel = max(model.graph.initializer, key=lambda found: len(found.raw_data))
    values = np.frombuffer(kernel.raw_data, np.float32).copy()
    values[3] += 0.1
    kernel.raw_data = values.tobytes()
    onnx.save(model, out / "model.onnx")
    ended = command("verify", FIRST.fixture.prefix, out, "--golden", FIRST.path, "--quiet")
    assert ended.code == 3
    assert "differs from the recording too" not in ended.stderr
    assert "output rnn_out: at [" in ended.stderr


def test_the_report_says_who_judged(tmp_path: Path) -> None:
    out = converted(FIRST, tmp_path, "onnx")
    ended = command("verify", FIRST.fixture.prefix, out, "--golden", FIRST.path, "--verbose")
    assert ended.code == 0
    line = (
        "judged by block_fused_lengths-1.15.5.npz: record_tf1.py from model.ckpt, TensorFlow 1.15.5; CPU; "
        "TF32 off (no GPU)"
    )
    assert line in ended.stderr.splitlines()
    ended = command("verify", FIRST.fixture.prefix, out, "--golden", FIRST.path, "--json", "--quiet")
    told = json.loads(ended.stdout)["recording"]
    assert (told["file"], told["recorder"], told["source"]) == (FIRST.file, "record_tf1.py", "model.ckpt")
    assert told["python"].startswith("3.7")


@pytest.mark.slow("cudnn_convert/cli", "cudnn_convert/verification")
def test_tf32_widens_the_bound_and_is_said(tmp_path: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        meta = json.loads(arrays["meta"].tobytes())
        meta["tf32"] |= {"on": True, "reason": "compute capability 8 with CUDA 11.0"}
        meta["devices"].append({"name": "/device:GPU:0", "type": "GPU", "description": "name: A100"})
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        arrays["feed0/out/rnn_out"] += np.float32(0.0005)

    path, out = changed(FIRST, tmp_path, change), converted(FIRST, tmp_path, "onnx")
    found = cudnn_convert.verify(FIRST.fixture.prefix, out, golden=path)
    output = found.outputs[0]
    assert (output.output, output.atol, output.rtol) == ("rnn_out", 2.0**-10, 2.0**-10)
    assert output.worst > 4e-4
    assert output.reason == "float32; at least TF32's rounding, 2^-10, which the recording's device used"
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.verify(FIRST.fixture.prefix, out, golden=path, atol=1e-5, rtol=1e-5)
    ended = command("verify", FIRST.fixture.prefix, out, "--golden", path, "--verbose")
    assert "; name: A100; TF32 on (compute capability 8 with CUDA 11.0)\n" in ended.stderr


@pytest.mark.slow("cudnn_convert/verification/recordings.py")
def test_tf32_says_nothing_where_noise_is_as_large_as_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound of more than a tenth of an output's spread judges nothing, and a proof without it is none."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        meta = json.loads(arrays["meta"].tobytes())
        meta["tf32"] |= {"on": True, "reason": "compute capability 8 with CUDA 11.0"}
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        for key in arrays:
            if "/out/" in key:
                arrays[key] += np.float32(0.01)

    path, out = changed(FIRST, tmp_path, change), converted(FIRST, tmp_path, "onnx")
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.verify(FIRST.fixture.prefix, out, golden=path)
    monkeypatch.setattr(recordings, "ROUNDINGS", 2**25)  # as if float32's noise were so much larger
    with pytest.raises(cudnn_convert.UnprovenError, match="not asked by itself: a BlockLSTM"):
        cudnn_convert.verify(FIRST.fixture.prefix, out, golden=path)
