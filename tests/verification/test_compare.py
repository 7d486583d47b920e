"""What counts as equal, rule by rule; above all, what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudnn_convert.report.values import OutputReport, PieceReport
from cudnn_convert.verification import compare
from cudnn_convert.verification.compare import OutputDifference, Tolerance, combine, proven_alone

BOUND = Tolerance(1e-5, 1e-5, "float32")


def compared(found: Any, expected: Any, bound: Tolerance = BOUND, slack: Any = None) -> OutputDifference:
    excused = {} if slack is None else {"y": np.array(slack)}
    (result,) = compare.outputs({"y": np.asarray(found)}, {"y": np.asarray(expected)}, {"y": bound}, excused)
    return result


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_equal_values_pass_and_are_counted() -> None:
    found = compared(floats(1, 2, 3), floats(1, 2, 3))
    assert (found.passed, found.compared, found.worst, found.needed, found.message) == (True, 3, 0, 0, "")


def test_a_bound_that_is_given_as_the_largest_error_is_all_there_is() -> None:
    """Neither a coarse type nor noise widens it, and large values get no more."""
    for kind in (np.float32, np.float64, np.float16, np.complex64):
        found = compare.tolerance(np.dtype(kind), 0.5, atol=3, rtol=4, most=1e-3)
        assert found == Tolerance(1e-3, 0.0, "--max-error", "max_error")
    assert compare.tolerance(np.dtype(np.int32), 0.5, most=1e-3) == Tolerance(0.0, 0.0, "equal")


def test_a_missing_output_fails() -> None:
    (found,) = compare.outputs({}, {"y": floats(1)}, {"y": BOUND}, {})
    assert (found.output, found.passed, found.message) == ("y", False, "missing")


def test_an_output_too_many_fails() -> None:
    both = {"y": floats(1), "z": floats(1)}
    one, other = compare.outputs(both, {"y": floats(1)}, {"y": BOUND}, {})
    assert (one.output, one.passed) == ("y", True)
    assert (other.output, other.passed, other.message) == ("z", False, "not expected")


@pytest.mark.parametrize(
    ("found", "expected", "message"),
    [
        (floats(1, 2), floats(1, 2, 3), "expected float32[3], found float32[2]"),
        (floats(1), np.float32(1), "expected float32[], found float32[1]"),
        (
            np.ones((2, 1), np.float32),
            np.ones((1, 2), np.float32),
            "expected float32[1, 2], found float32[2, 1]",
        ),
        (np.array([1]), floats(1), "expected float32[1], found int64[1]"),
        (np.array([1.0]), floats(1), "expected float32[1], found float64[1]"),
        (np.array([1], np.int32), np.array([1], np.int64), "expected int64[1], found int32[1]"),
        (np.array([1]), np.array([True]), "expected bool[1], found int64[1]"),
    ],
)
def test_another_shape_or_dtype_fails(found: Any, expected: Any, message: str) -> None:
    result = compared(found, expected)
    assert (result.passed, result.message) == (False, message)


@pytest.mark.parametrize(
    ("found", "passed"), [(1 + 1.9e-5, True), (1 + 2.1e-5, False), (1 - 1.9e-5, True), (1 - 2.1e-5, False)]
)
def test_the_bound_is_atol_plus_rtol_of_the_expected(found: float, passed: bool) -> None:
    result = compared(np.array([found]), np.array([1.0]))
    assert result.passed is passed
    assert result.needed == pytest.approx(abs(found - 1) / 2e-5)


def test_the_message_shows_the_worst_element() -> None:
    expected = np.zeros((2, 3))
    found = expected.copy()
    found[0, 1], found[1, 2] = 1e-3, -0.25
    assert compared(found, expected).message == "at [1, 2] expected 0, found -0.25, allowed 1.0e-05"


def test_worst_is_measured_in_tolerance_not_in_size() -> None:
    assert compared(np.array([1000.005, 2e-5]), np.array([1000.0, 0.0])).message.startswith("at [1] ")


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("found", "expected", "passed"),
    [
        pytest.param((1, NAN, 3), (1, NAN, 3), True, id="nan-on-both"),
        pytest.param((1, INF, 3), (1, INF, 3), True, id="inf-on-both"),
        pytest.param((1, NAN, 3), (1, 2, 3), False, id="nan-in-the-artifact"),
        pytest.param((1, 2, 3), (1, NAN, 3), False, id="nan-in-the-source"),
        pytest.param((NAN, 2, 3), (1, NAN, 3), False, id="nan-elsewhere"),
        pytest.param((1, INF, 3), (1, -INF, 3), False, id="inf-of-the-other-sign"),
        pytest.param((1, INF, 3), (1, NAN, 3), False, id="inf-for-nan"),
        pytest.param((1, INF, 3), (1, 2, 3), False, id="inf-in-the-artifact"),
        pytest.param((1.1, NAN, 3), (1, NAN, 3), False, id="nan-hides-no-other-difference"),
    ],
)
def test_nan_and_inf(found: tuple[float, ...], expected: tuple[float, ...], passed: bool) -> None:
    result = compared(floats(*found), floats(*expected))
    assert result.passed is passed
    if passed:
        assert result.message == "NaN or Inf at the same places on both sides"


@pytest.mark.parametrize(
    "value", [np.array([1, 2, 3]), np.array([True, False]), np.array([b"a", b"b"], object)]
)
def test_whole_numbers_truths_and_texts_are_compared_exactly(value: np.ndarray) -> None:
    assert compared(value, value).passed
    result = compared(value[::-1], value)
    assert not result.passed
    assert result.message.endswith(f" of {value.size} values differ")


def test_a_choice_too_close_to_call_is_excused_and_counted() -> None:
    found, expected = np.array([1, 2, 3, 4]), np.array([1, 7, 3, 9])
    result = compared(found, expected, slack=[True, True, False, True])
    assert (result.passed, result.excused) == (True, 2)
    result = compared(found, expected, slack=[True, True, False, False])
    assert (result.passed, result.excused) == (False, 1)
    assert result.message == "at [3] expected 9, found 4; 1 of 4 values differ"


def test_nothing_at_all_was_compared() -> None:
    assert compared(np.zeros((0, 3)), np.zeros((0, 3))).compared == 0


def test_complex_values_are_compared_whole() -> None:
    assert compared(np.array([1 + 2j]), np.array([1 + 2j])).passed
    assert not compared(np.array([1 + 3j]), np.array([1 + 2j])).passed


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32], ids=["bfloat16", "widened"])
def test_bfloat16_is_compared_as_a_number(dtype: Any) -> None:
    expected, bound = np.array([1, 2], ml_dtypes.bfloat16), compare.tolerance(np.dtype(ml_dtypes.bfloat16), 0)
    assert compared(np.array([1, 2], dtype), expected, bound).passed
    assert not compared(np.array([1, 2.5], dtype), expected, bound).passed


@pytest.mark.parametrize(
    ("dtype", "base"),
    [("float32", 1e-5), ("float64", 1e-12), ("float16", 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7)],
    ids=str,
)
def test_the_tolerance_of_each_dtype(dtype: Any, base: float) -> None:
    assert compare.tolerance(np.dtype(dtype), 0.0) == Tolerance(base, base, np.dtype(dtype).name)


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
def test_what_is_no_float_must_be_equal(dtype: str) -> None:
    assert compare.tolerance(np.dtype(dtype), 1.0, atol=1.0) == Tolerance(0.0, 0.0, "equal")


def test_noise_widens_the_tolerance_and_never_narrows_it() -> None:
    wide = compare.tolerance(np.dtype("float32"), 3e-4)
    assert (wide.atol, wide.rtol) == (6e-4, 1e-5)
    assert wide.reason == "float32, widened to twice the model's noise floor 3.0e-04"
    near = compare.tolerance(np.dtype("float32"), 9e-6)  # no jump where the noise reaches the bound
    assert (near.atol, near.rtol) == (1.8e-5, 1e-5)
    assert compare.tolerance(np.dtype("float32"), 4.9e-6) == Tolerance(1e-5, 1e-5, "float32")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"atol": 1e-3}, (1e-3, 2.0**-10)),
        ({"rtol": 1e-4}, (2.0**-10, 1e-4)),
        ({"atol": 0.0, "rtol": 0.0}, (0.0, 0.0)),
    ],
)
def test_what_is_not_asked_for_stays_as_it_was(
    asked: dict[str, float], expected: tuple[float, float]
) -> None:
    found = compare.tolerance(np.dtype("float16"), 0.0, **asked)
    assert (found.atol, found.rtol, found.reason) == (*expected, "asked for")


def test_nothing_allowed_means_equal() -> None:
    exact = Tolerance(0.0, 0.0, "asked for")
    assert compared(floats(0, 1), floats(0, 1), exact).passed
    assert not compared(floats(1e-30, 1), floats(0, 1), exact).passed


# What the statements say together.

OUTPUT = OutputReport("scores", True, 12, 0.0, 0.0, 1e-5, 1e-5, "float32", 0, "")
UNJUDGED = replace(OUTPUT, output="labels", judged=False)
ASKED = PieceReport("rnn", (0,), asked=True, passed=True)
SILENT = PieceReport("other", (0,), asked=False, passed=True)


def test_all_that_agrees_is_equal() -> None:
    found = combine([OUTPUT], [ASKED], {})
    assert (found.passed, found.end_to_end, found.unproven, found.warnings) == (True, "equal", (), ())


def test_a_recurrence_that_differs_by_itself_differs_whatever_the_outputs_say() -> None:
    found = combine([OUTPUT], [replace(ASKED, passed=False)], {})
    assert (found.passed, found.end_to_end) == (False, "equal")


def test_an_output_that_differs_is_different() -> None:
    found = combine([replace(OUTPUT, passed=False), UNJUDGED], [ASKED], {})
    assert (found.passed, found.end_to_end) == (False, "different")


def test_what_is_not_judged_is_said_and_is_no_proof() -> None:
    moving = {"other": frozenset({"labels"})}
    found = combine([OUTPUT, UNJUDGED], [ASKED, SILENT], moving)
    assert (found.passed, found.end_to_end, found.unproven) == (True, "not judged", ("other",))
    assert "end to end not judged: labels" in found.warnings[0]
    assert combine([OUTPUT, UNJUDGED], [ASKED, SILENT], {"other": frozenset({"scores"})}).unproven == ()


def test_a_recurrence_that_cannot_be_disturbed_needs_an_output_that_is_judged() -> None:
    assert combine([OUTPUT, UNJUDGED], [SILENT], {}).unproven == ()
    assert combine([UNJUDGED], [ASKED, SILENT], {}).unproven == ("other",)


def test_a_recurrence_is_asked_where_all_its_layers_were() -> None:
    other = replace(ASKED, layers=(1,), asked=False)
    assert proven_alone([ASKED, other]) == []
    assert proven_alone([ASKED, replace(other, asked=True), SILENT]) == ["rnn"]


def test_a_recurrence_that_moves_no_output_is_a_warning() -> None:
    other = replace(ASKED, node="other")
    (warning,) = combine([OUTPUT], [ASKED, other, SILENT], {}, still=["rnn"]).warnings
    assert warning.startswith("the outputs on these inputs do not depend on rnn, asked by itself alone; ")
    assert "--data" in warning
