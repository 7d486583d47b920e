"""The gate of --quantize: what it asks for, and what it says when it holds or fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert import pipeline
from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.report import Verification
from cudnn_convert.report.values import OutputReport, StreamReport
from cudnn_convert.targets import accuracy_gate

GIVEN: dict[str, Any] = {"format": "onnx", "quantize": "int8", "max_error": 0.25, "data": Path("feeds.npz")}


def output(name: str, worst: float, *, passed: bool = True, **others: Any) -> OutputReport:
    """An output of floats, or with `max_abs=None` one of choices."""
    told = {"max_abs": worst, "needed": worst / 0.25, "atol": 0.25, "message": ""} | others
    return OutputReport(
        output=name, passed=passed, compared=6, worst=worst, rtol=0, reason="--max-error", excused=0, **told
    )


def result(*outputs: OutputReport) -> Verification:
    return Verification(all(one.passed for one in outputs), 1, (), outputs, (), data="f.npz: 9 of 90")


def test_a_conversion_with_all_that_the_gate_asks_for_is_let_through() -> None:
    accuracy_gate.check_options(Options(**GIVEN))
    accuracy_gate.check_options(Options())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_error": None}, "--quantize needs --max-error: the largest error that you accept"),
        ({"verify": False}, "--quantize needs a proof of --max-error; leave out --no-verify"),
        ({"data": None}, "--quantize needs --data: inputs of yours to measure the error on"),
        (
            {"weights_dtype": "float16"},
            "--quantize cannot be combined with --weights-dtype float16; leave one out",
        ),
        ({"atol": 0.0}, "--quantize is judged by --max-error alone; leave out --atol and --rtol"),
        ({"rtol": 0.0}, "--quantize is judged by --max-error alone; leave out --atol and --rtol"),
        (
            {"quantize": None},
            "--max-error needs --quantize; for an exact artifact use --atol in place of --max-error",
        ),
    ],
)
def test_what_the_gate_cannot_do_without_is_asked_for(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        accuracy_gate.check_options(Options(**GIVEN | changed))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"quantize": "int4"}, "--quantize: expected int8, found 'int4'"),
        ({"max_error": 0.0}, "--max-error: expected a number above 0, found 0.0"),
        ({"max_error": -1.0}, "--max-error: expected a number above 0, found -1.0"),
        ({"max_error": float("inf")}, "--max-error: expected a number above 0, found inf"),
        ({"max_error": float("nan")}, "--max-error: expected a number above 0, found nan"),
    ],
)
def test_other_values_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**GIVEN | given)
    assert str(caught.value) == message


def test_a_failure_tells_the_error_and_where_it_is() -> None:
    found = result(
        output("good", 0.25), output("bad", 0.5, passed=False), output("worse", 0.75, passed=False)
    )
    assert accuracy_gate.failure_message(found, Options(**GIVEN)) == (
        "--quantize: expected no error above 0.25 on f.npz: 9 of 90, found 7.50e-01 in output worse, "
        "5.00e-01 in output bad; raise --max-error, or leave out --quantize and --max-error"
    )


@pytest.mark.parametrize("largest", [None, 0.125, 0.25])
def test_a_failure_that_is_no_error_of_floats_is_told_as_it_is(largest: float | None) -> None:
    """Choices that differ, a missing output, a NaN that only the artifact has."""
    bad = output("tags", 3.0, passed=False, message="3 of 6 values differ", max_abs=largest)
    assert accuracy_gate.failure_message(result(bad), Options(**GIVEN)) == (
        "--quantize: expected no error above 0.25 on f.npz: 9 of 90, found 3 of 6 values differ in output "
        "tags; leave out --quantize and --max-error"
    )


def test_what_fails_beside_the_outputs_is_told_in_its_place() -> None:
    streaming = StreamReport(False, ("of 1",), compared=6, worst=1.0, needed=2.0, message="y differs")
    failed = replace(result(output("good", 0.25)), passed=False, streaming=streaming)
    assert [*pipeline._failures(failed, Options(**GIVEN))] == ["streaming: y differs"]


def test_a_gate_that_holds_tells_the_largest_error() -> None:
    found = result(output("a", 0.125), output("b", 0.1875), output("tags", 0.0, max_abs=None))
    said = "int8: largest error 1.88e-01 in output b, on f.npz: 9 of 90; --max-error 0.25"
    assert accuracy_gate.note(found, Options(**GIVEN)) == said
    assert accuracy_gate.errors(found) == {"a": 0.125, "b": 0.1875}
    choices = result(output("tags", 0.0, max_abs=None))
    said = "int8: all outputs are choices, on f.npz: 9 of 90; --max-error 0.25"
    assert accuracy_gate.note(choices, Options(**GIVEN)) == said


def test_the_provenance_tells_the_gate_and_what_was_measured() -> None:
    assert accuracy_gate.gate_provenance(Options()) == {}
    assert accuracy_gate.gate_provenance(Options(**GIVEN)) == {"quantize": "int8", "max_error": 0.25}
    text = json.dumps({"format": "onnx", "options": {"quantize": "int8"}}, indent=2)
    told = accuracy_gate.add_errors(text, result(output("a", 0.125)))
    assert told == json.dumps({**json.loads(text), "errors": {"a": 0.125}}, indent=2)
