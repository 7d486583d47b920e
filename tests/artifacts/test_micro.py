"""TensorFlow Lite files in TensorFlow Lite Micro's interpreter: answers, state, memory, refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import micro_models

from cudnn_convert.apart import Apart
from cudnn_convert.artifacts import micro, tflite
from cudnn_convert.errors import ReadError, UsageError
from cudnn_convert.model import SERVING, Array, Part, Signature

needs_micro = pytest.mark.skipif(
    not micro.is_available(), reason="tflite-micro is not installed; the extra `micro` has it"
)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def part(inputs: str, outputs: str) -> Part:
    """A part whose keys are names; of its source it has tensors that no file has."""
    sides = ({name: f"source/{name}:0" for name in side.split()} for side in (inputs, outputs))
    return Part(SERVING, Signature(*sides))


LSTM = part("ids shift x", "n y")


def draw(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    batch, steps, features, units = micro_models.SIZES
    return {
        "x": rng.normal(size=(batch, steps, features)).astype(np.float32),
        "shift": rng.normal(size=units).astype(np.float32),
        "ids": rng.integers(-9, 9, 3).astype(np.int32),
    }


def judge(content: bytes, feeds: dict[str, Array]) -> Any:
    """What TensorFlow Lite answers, which begins with zeros."""
    return tflite.open_interpreter(model_content=content).get_signature_runner()(**feeds)


@needs_micro
def test_answers_come_by_key_and_every_call_begins_anew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = micro_models.lstm()
    run = micro.open_part(write(tmp_path, content), LSTM)
    first, other = draw(1), draw(2)
    fed = (first, other, first)
    answers = [run(feeds) for feeds in fed]
    assert capfd.readouterr() == ("", "")
    assert "tflite_micro" not in sys.modules
    for feeds, found in zip(fed, answers, strict=True):
        expected = judge(content, feeds)
        assert {key: value.dtype for key, value in found.items()} == {"y": np.float32, "n": np.int32}
        # Both sum up to 7 products of numbers of order 1 in float32, in orders of their own, for 5 steps.
        np.testing.assert_allclose(found["y"], expected["y"], rtol=0, atol=1e-5)
        np.testing.assert_array_equal(found["n"], feeds["ids"] + 7)
    assert abs(answers[0]["y"] - answers[1]["y"]).max() > 0.1


@needs_micro
def test_inputs_and_outputs_have_the_types_of_the_file(tmp_path: Path) -> None:
    types = (np.int8, np.int16, np.int32, np.bool_, np.float32)
    names = " ".join(np.dtype(dtype).name for dtype in types)
    run = micro.open_part(write(tmp_path, micro_models.copies(*types)), part(names, names))
    values = np.array([[-7, 0, 5], [3, 0, -128]])
    answers = run({np.dtype(dtype).name: values.astype(np.int64) for dtype in types})
    for dtype in types:
        found = answers[np.dtype(dtype).name]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, values.ravel().astype(dtype))


@needs_micro
def test_the_smallest_arena_is_found(tmp_path: Path) -> None:
    content = micro_models.lstm()
    report = micro.measure(write(tmp_path, content))
    assert report.bytes == len(content)
    assert (report.operators, report.missing) == (("ADD", "UNIDIRECTIONAL_SEQUENCE_LSTM"), ())
    batch, steps, features, units = micro_models.SIZES
    assert report.variables == 2 * batch * units * 4
    assert report.arena is not None
    assert report.arena % 16 == 0
    assert report.arena > 4 * (batch * steps * (features + units) + 2 * batch * units)
    feeds = {k: draw(1)[key] for k, key in enumerate(("ids", "shift", "x"))}
    process = Apart(lambda: lambda arena: micro._open(content, arena)(feeds, [1]), 60)
    (found,) = process.run(report.arena)
    np.testing.assert_allclose(found, judge(content, draw(1))["y"], rtol=0, atol=1e-5)
    with pytest.raises(RuntimeError):
        process.run(report.arena - 16)


def test_without_the_package_no_arena_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite_micro", None)
    assert not micro.is_available()
    report = micro.measure(write(tmp_path, micro_models.lstm()))
    assert (report.arena, report.variables) == (None, 64)


def test_operators_without_a_kernel_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, micro_models.of_operators("POW"))
    report = micro.measure(path)
    assert (report.operators, report.missing, report.arena) == (("POW",), ("POW",), None)
    with pytest.raises(
        micro.MicroError, match=r"^operators that TensorFlow Lite Micro has no kernels for: POW$"
    ):
        micro.open_part(path, part("a b", "y0"))


@needs_micro
def test_a_refusal_has_the_interpreters_reason_in_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, micro_models.of_operators("GATHER"))
    reason = "Positions of type 'FLOAT32' are not supported by gather; Node GATHER .* failed to prepare"
    for refuse in (micro.measure, lambda file: micro.open_part(file, part("a b", "y0"))):
        with pytest.raises(micro.MicroError, match=f"^{reason}"):
            refuse(path)
    run = micro.open_part(write(tmp_path, micro_models.lstm()), LSTM)
    with pytest.raises(micro.MicroError, match=r"Dimension mismatch\. Got 4 but expected 5 for dimension 1"):
        run(draw(1) | {"x": draw(1)["x"][:, 1:]})
    assert run(draw(1))["n"].shape == (3,)
    assert capfd.readouterr() == ("", "")


def test_what_no_interpreter_should_see_is_refused_before(tmp_path: Path) -> None:
    content = micro_models.lstm()
    for read in (micro.measure, lambda file: micro.open_part(file, LSTM)):
        with pytest.raises(ReadError, match="a sound TensorFlow Lite model"):
            read(write(tmp_path, content[:-100]))
    with pytest.raises(UsageError, match=r"inputs: expected .* ids, shift, x, found y"):
        micro.open_part(write(tmp_path, content), part("y", "n"))
