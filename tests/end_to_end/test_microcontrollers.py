"""Trained networks of each kind of source in TensorFlow Lite Micro, in float32 and in eight bits.

The answers of the frameworks that trained them judge. The files run in a process without cudnn_convert.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.micro_fixtures import CASES, STEPS, Arrays, MicroCase
from support.samples import fixture
from support.tiers import some
from tensorflow.lite.python import schema_py_generated as schema

import cudnn_convert
from cudnn_convert.artifacts import micro
from cudnn_convert.errors import UsageError, VerificationError
from cudnn_convert.model import Part
from cudnn_convert.report import Report

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "run_row_by_row.py"
HAS_MICRO = micro.is_available()
RUNTIMES = ("lite", "micro") if HAS_MICRO else ("lite",)
#: Of sources with an open number of steps.
OPEN = {"motion_gru-h5": 40, "keyword_torch-weights": 25}
#: Unrolled steps round the state to 8 bits at each of them, so that errors add up; a user accepts this much.
UNROLLED = {"motion_gru-h5": 0.35}
FIRST = ("motion_bidirectional-h5",)
FIRST_OF_INT8 = ("tokens_lstm-frozen",)
#: The largest share of rows whose class differs in 8 bits.
DIFFERING = 0.01


def convert(case: MicroCase, name: str, out: Path, **flags: Any) -> Report:
    steps = {"steps": OPEN[name]} if name in OPEN else {}
    return cudnn_convert.convert(
        case.source, out, format="tflite", lowering="fused", **case.flags, **steps, **flags
    )


def ask(case: MicroCase, file: Path, count: int) -> Iterator[Arrays]:
    """The answers of each runtime to the first rows, a call for each; a stream is run step by step."""
    rows = file.with_suffix(".rows.npz")
    np.savez(rows, **{case.input: case.rows.inputs[:count]})
    answers = {runtime: file.with_suffix(f".{runtime}.npz") for runtime in RUNTIMES}
    pairs = [f"{key}={value}" for key, value in {**answers, **case.states}.items()]
    call = [sys.executable, str(PROGRAM), str(file), str(rows), *pairs]
    subprocess.run(call, check=True, capture_output=True, cwd=file.parent)
    for path in answers.values():
        with np.load(path) as stored:
            joined = {key: stored[key] for key in stored.files}
        if case.states:
            joined[STEPS] = joined[f"{case.output}/steps"]
        yield joined


def widen(value: np.ndarray) -> np.ndarray:
    """The same numbers in the types that NumPy chooses by itself."""
    return value.astype(np.float64 if value.dtype.kind == "f" else np.int64)


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("name", some(FIRST, *(name for name in CASES if name not in FIRST)))
def test_float_files_answer_as_the_trained_networks_did(tmp_path: Path, name: str) -> None:
    case, file = CASES[name], tmp_path / "model.tflite"
    report = convert(case, name, file)
    assert report.micro is not None
    assert report.micro.missing == ()
    assert report.micro.bytes == file.stat().st_size
    for answers in ask(case, file, 40):
        case.assert_close(answers)
    if HAS_MICRO:
        assert report.micro.arena is not None
        assert max(report.micro.errors.values()) < 1e-5
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(file.read_bytes(), 0))
    assert len(model.subgraphs) == 1, "a loop"


@pytest.mark.parametrize("name", some(FIRST_OF_INT8, *(name for name in CASES if name not in FIRST_OF_INT8)))
def test_files_of_eight_bits_choose_the_same_classes(tmp_path: Path, is_first_tier: bool, name: str) -> None:
    case, file, data = CASES[name], tmp_path / "model.tflite", tmp_path / "data.npz"
    np.savez(data, **{key: widen(value) for key, value in case.data.items()})
    bound = {"max_error": UNROLLED[name]} if name in UNROLLED else {}
    count = 30 if is_first_tier else 500
    report = convert(case, name, file, quantize="int8", data=data, limit_examples=count, **bound)
    proof = report.verification
    assert proof is not None
    assert len(proof.feeds) == count
    if name == "tokens_lstm-frozen":  # whose probabilities are almost 0 and almost 1
        assert [0.11 < output.atol <= 0.125 for output in proof.outputs] == [True]
        again = cudnn_convert.verify(case.source, file, data=data, limit_examples=count)
        assert [output.atol for output in again.outputs] == [output.atol for output in proof.outputs]
    (note,) = (note for note in report.notes if note.startswith("int8: largest error"))
    assert f"{max(output.max_abs or 0 for output in proof.outputs):.2e}" in note
    for answers in ask(case, file, 500):
        assert case.count_agreements(answers) >= 1 - DIFFERING
    if HAS_MICRO:
        assert report.micro is not None
        bounds = {output.output: output.atol for output in proof.outputs}
        assert all(error <= bounds[key] for key, error in report.micro.errors.items())


@pytest.mark.slow("cudnn_convert/pipeline.py", "cudnn_convert/artifacts/micro.py")
@pytest.mark.skipif(not HAS_MICRO, reason="tflite-micro is not installed; the extra `micro` has it")
def test_other_answers_in_micro_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, opened = CASES["tokens_lstm-frozen"], micro.open_part

    def open_wrong(path: Path, part: Part) -> Any:
        run = opened(path, part)
        return lambda feeds: {key: value + np.float32(0.01) for key, value in run(feeds).items()}

    monkeypatch.setattr(micro, "open_part", open_wrong)
    with pytest.raises(VerificationError, match=r"in TensorFlow Lite Micro: output probabilities: at"):
        convert(case, "tokens_lstm-frozen", tmp_path / "m.tflite")
    assert not (tmp_path / "m.tflite").exists()


@pytest.mark.slow("cudnn_convert/lower", "cudnn_convert/targets")
def test_an_error_above_the_bound_is_refused(tmp_path: Path) -> None:
    case, data = CASES["tokens_lstm-frozen"], tmp_path / "data.npz"
    np.savez(data, **case.data)
    with pytest.raises(VerificationError, match=r"quantize: expected no error above 0.001 on .*, found"):
        convert(
            case,
            "tokens_lstm-frozen",
            tmp_path / "m.tflite",
            quantize="int8",
            data=data,
            max_error=1e-3,
            limit_examples=20,
        )
    assert not (tmp_path / "m.tflite").exists()


def test_eight_bits_need_fixed_sizes_and_data(tmp_path: Path) -> None:
    case = CASES["tokens_lstm-frozen"]
    with pytest.raises(UsageError, match="--quantize of TensorFlow Lite needs --lowering fused"):
        cudnn_convert.convert(case.source, tmp_path / "m.tflite", quantize="int8", max_error=0.1)
    with pytest.raises(UsageError, match="--quantize needs --data: inputs of yours"):
        convert(case, "tokens_lstm-frozen", tmp_path / "m.tflite", quantize="int8")
    arrays = {"others": case.data["tokens"]}
    with pytest.raises(UsageError, match=r"expected the keys \['tokens'\], found \['others'\]"):
        convert(case, "tokens_lstm-frozen", tmp_path / "m.tflite", quantize="int8", data=arrays)


def test_a_folder_has_the_source_of_firmware(tmp_path: Path) -> None:
    case = CASES["tokens_lstm-frozen"]
    report = convert(case, "tokens_lstm-frozen", tmp_path / "out", verify=False)
    source = (tmp_path / "out" / "model.cc").read_text()
    assert "resolver.AddUnidirectionalSequenceLSTM();" in source
    assert report.micro is not None
    assert f"const unsigned int out_size = {report.micro.flash};" in source
    assert 0 < report.micro.flash < (tmp_path / "out" / "model.tflite").stat().st_size
    assert report.micro.errors == {}


@pytest.mark.slow("cudnn_convert/pipeline")
def test_weights_of_several_recurrences_are_a_file_each(tmp_path: Path) -> None:
    sample, out = fixture("1.15.5-keras_weights_functional"), tmp_path / "out"
    report = cudnn_convert.convert(
        sample.prefix, out, format="tflite", lowering="fused", steps=3, **sample.options
    )
    files = sorted(file.name for file in out.glob("*.tflite"))
    assert len(files) > 1
    assert "the figures of TensorFlow Lite Micro are those of" in report.notes[-1]
    assert report.micro is not None
    if HAS_MICRO:
        assert len(report.micro.errors) == len(report.outputs)
