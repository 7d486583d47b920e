"""LSTMs in int8: TensorFlow's own answers within the bound that was asked for, or nothing at OUT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import artifacts
from support.command_line import command, refused
from support.samples import Fixture, fixture

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.lower.onnx import reduced_precision
from cudnn_convert.model import Array
from cudnn_convert.targets import onnx as write_onnx

#: Two directions, layers, states that are fed, lengths, batch-major, a projection, peepholes, a GRU beside
#: it, choices. The largest error is 0.03.
CASES = (
    *("lstm_bi_2l_states", "v3_lengths_batch_major", "op_proj_lstm", "block_fused_peephole", "two_layers"),
    "bilstm_tagger",
)
BOUND = 0.05
SMALL = fixture("1.15.5-v3_lengths_batch_major")


def data(sample: Fixture, folder: Path) -> Path:
    """The inputs of a sample's recorded calls, as a user's file has them."""
    path = folder / f"{sample.name}.data.npz"
    feeds = {
        f"feed{k}/{name.partition(':')[0]}": feed[name]
        for k, feed in enumerate(sample.feeds())
        for name in sample.case["inputs"]
    }
    np.savez(path, **feeds)  # type: ignore[arg-type]
    return path


def quantized(sample: Fixture, folder: Path) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    asked = {"quantize": "int8", "max_error": BOUND, "data": data(sample, folder)}
    return artifacts.convert(sample, "onnx", folder, **asked)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Path]]:
    """For each case its report, its job and the folder; the answers come from processes without us."""
    folder, found = tmp_path_factory.mktemp("int8"), {}
    for name in CASES:
        sample = fixture(f"1.15.5-{name}")
        found[name] = (*quantized(sample, folder), folder / sample.name)
    artifacts.answer([job for _, job, _ in found.values()])
    return found


@pytest.mark.first("lstm_bi_2l_states", "two_layers", "op_proj_lstm", "block_fused_peephole", "bilstm_tagger")
@pytest.mark.parametrize("name", CASES)
def test_a_user_gets_tensorflow_s_answers_within_the_bound(name: str, answered: dict[str, Any]) -> None:
    _, job, _ = answered[name]
    answers, worst = np.load(job["answers"]), 0.0
    with np.load(job["golden"]) as golden:
        for key, value in answers.items():
            feed, _, end = key.partition("/")
            expected = golden[f"{feed}/{job['outputs'][end]['source']}"]
            assert value.shape == expected.shape
            if expected.dtype.kind == "f":
                worst = max(worst, float(np.abs(value - expected).max()))
            else:
                np.testing.assert_array_equal(value, expected)
    assert 1e-4 < worst < BOUND + 1e-5  # more than single precision alone would err


@pytest.mark.parametrize("name", CASES)
def test_report_and_record_tell_what_was_measured(name: str, answered: dict[str, Any]) -> None:
    report, _, folder = answered[name]
    floats = [one for one in report.verification.outputs if one.max_abs is not None]
    assert all((one.atol, one.rtol, one.reason) == (BOUND, 0, "--max-error") for one in floats)
    worst = max(floats, key=lambda one: one.max_abs)
    told = f"int8: largest error {worst.max_abs:.2e} in output {worst.output}, on "
    assert report.notes[-1].startswith(told)
    assert report.notes[-1].endswith(f"{fixture(f'1.15.5-{name}').name}.data.npz; --max-error {BOUND}")
    record = json.loads((folder / "conversion.json").read_text())
    assert record["errors"] == {one.output: one.max_abs for one in floats}
    (inside,) = onnx.load(str(folder / "model.onnx")).metadata_props
    for options in (record["options"], json.loads(inside.value)["options"]):
        assert (options["quantize"], options["max_error"]) == ("int8", BOUND)


def test_what_stays_float_is_said(answered: dict[str, Any]) -> None:
    report, _, folder = answered["two_layers"]
    ours = "LSTM nodes in int8, an op of ONNX Runtime's own (com.microsoft DynamicQuantizeLSTM): 1"
    left = "still float32, for only LSTMs with constant weights can be int8: 1 GRU"
    assert [f"model.onnx: {ours}", f"model.onnx: {left}"] == [*report.notes[-3:-1]]
    ops = {node.op_type for node in onnx.load(str(folder / "model.onnx")).graph.node}
    assert {"DynamicQuantizeLSTM", "GRU"} <= ops
    assert "LSTM" not in ops


def test_such_an_artifact_is_not_equal_to_its_source(answered: dict[str, Any]) -> None:
    folder = answered[SMALL.folder.name][2]
    assert command("verify", SMALL.prefix, folder, "--quiet").code == 3
    assert command("verify", SMALL.prefix, folder, "--quiet", "--atol", "0.1").code == 0


def rolled(kept: Callable[..., Iterator[Array]]) -> Callable[..., Iterator[Array]]:
    return lambda *given: (np.roll(one, one.shape[1] // 4, axis=1) for one in kept(*given))


def halved(kept: Callable[..., Iterator[Array]]) -> Callable[..., Iterator[Array]]:
    return lambda *given: (one // 2 for one in kept(*given))


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", [rolled, halved])
def test_weights_in_a_wrong_place_do_not_pass(
    wrong: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduced_precision, "_round_to_int8", wrong(reduced_precision._round_to_int8))
    with pytest.raises(VerificationError) as caught:
        quantized(SMALL, tmp_path)
    assert max(one.max_abs for one in caught.value.report.verification.outputs) > 2 * BOUND
    assert not (tmp_path / SMALL.name).exists()


def test_weights_beside_a_large_model_are_int8_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_onnx, "_LIMIT", 1000)
    monkeypatch.setattr(write_onnx, "_SMALL", 100)
    report, _ = quantized(SMALL, tmp_path)
    assert report.verification is not None
    assert report.verification.passed
    model = onnx.load(str(tmp_path / SMALL.name / "model.onnx"), load_external_data=False)
    beside = [one for one in model.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    assert [one.data_type for one in beside].count(onnx.TensorProto.INT8) == 4


@pytest.mark.parametrize("bound", [BOUND, 1e-3])
def test_weights_without_a_graph_are_files_of_their_own(bound: float, tmp_path: Path) -> None:
    """One of two recurrences is a GRU, which stays exact."""
    sample = fixture("1.15.5-two_layers")
    shutil.copytree(sample.folder, tmp_path / "in", ignore=shutil.ignore_patterns("*.meta"))
    x = sample.feeds()[0]["x:0"]
    names = [f"outer_inner_encoder{end}" for end in ("", "_1")]
    wide = np.concatenate([x, x, x], axis=2)[:5, :, :10]
    np.savez(tmp_path / "feeds.npz", **{f"{names[0]}/inputs": x, f"{names[1]}/inputs": wide})  # type: ignore[arg-type]
    out, asked = tmp_path / "out", {"quantize": "int8", "max_error": bound, "data": tmp_path / "feeds.npz"}
    if bound < BOUND:
        with pytest.raises(VerificationError, match=rf" in output {names[0]}/"):
            cudnn_convert.convert(tmp_path / "in" / "model.ckpt", out, format="onnx", **asked)
        assert not out.exists()
        return
    report = cudnn_convert.convert(tmp_path / "in" / "model.ckpt", out, format="onnx", **asked)
    said = [note for note in report.notes if ".onnx: " in note]
    assert [note.partition(" ")[0] for note in said] == [f"{name}.onnx:" for name in names]
    assert [note.rpartition(": ")[2] for note in said] == ["1", "1 GRU"]
    errors = json.loads((out / "conversion.json").read_text())["errors"]
    assert all((error < 1e-5) is key.startswith(f"{names[1]}/") for key, error in errors.items())


def flags(folder: Path) -> list[Any]:
    return ["--format", "onnx", "--quantize", "int8", "--data", data(SMALL, folder)]


def test_a_gate_that_fails_leaves_nothing(tmp_path: Path) -> None:
    given = flags(tmp_path)
    (line,) = refused(tmp_path, SMALL.prefix, tmp_path / "out", *given, "--max-error", "0.001", code=3)
    start, _, rest = line.partition(f"expected no error above 0.001 on {given[-1]}, found ")
    assert start == f"{SMALL.prefix}: --quantize: "
    errors, _, cure = rest.partition("; ")
    assert cure == "raise --max-error, or leave out --quantize and --max-error"
    found = {part.rpartition(" ")[2]: float(part.partition(" ")[0]) for part in errors.split(", ")}
    assert set(found) == {"rnn_out", "state_h", "state_c"}
    assert all(0.001 < error < BOUND for error in found.values())
    assert [*found.values()] == sorted(found.values(), reverse=True)


def test_a_model_without_an_lstm_is_refused(tmp_path: Path) -> None:
    sample = fixture("1.15.5-gru_bi")
    given = ["--format", "onnx", "--quantize", "int8", "--data", data(sample, tmp_path), "--max-error", "1"]
    (line,) = refused(tmp_path, sample.prefix, tmp_path / "out", *given, code=2)
    expected = "an LSTM of float32 whose weights are constants"
    assert line == f"--quantize: expected {expected}, found none; leave out --quantize and --max-error"


def test_the_gate_cannot_be_left_open(tmp_path: Path) -> None:
    """A conversion asks the gate first; what it refuses is in tests/targets/test_targets.py."""
    (line,) = refused(tmp_path, SMALL.prefix, tmp_path / "out", *flags(tmp_path), code=2)
    assert line == "--quantize needs --max-error: the largest error that you accept"
    (line,) = refused(tmp_path, SMALL.prefix, tmp_path / "out", "--max-error", "1", code=2)
    assert line == "--max-error needs --quantize; for an exact artifact use --atol in place of --max-error"


def test_a_single_file_tells_its_bound(tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    assert command(SMALL.prefix, out, *flags(tmp_path), "--max-error", "0.5", "--quiet").code == 0
    (inside,) = onnx.load(str(out)).metadata_props
    assert json.loads(inside.value)["options"]["max_error"] == 0.5
    assert not (tmp_path / "conversion.json").exists()
