"""The figures of an output against arithmetic written out here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudnn_convert.report.values import Element, OutputReport
from cudnn_convert.verification import compare
from cudnn_convert.verification.compare import OutputDifference, Tolerance, axis_of_time, ulps

BOUND = Tolerance(1e-3, 1e-2, "test")


def of(*feeds: tuple[Any, Any], axis: int | None = None, bound: Tolerance = BOUND) -> OutputReport:
    """The figures of `(found, expected)` of each feed."""
    found = []
    for one, other in feeds:
        arrays = {"y": np.asarray(one)}, {"y": np.asarray(other)}
        (difference,) = compare.outputs(*arrays, {"y": bound}, {}, axes={"y": axis})
        found.append(difference)
    return compare.aggregate(found, {"y": bound})


def figures_of(report: OutputReport) -> list[Any]:
    """All figures but the worst element."""
    names = ("max_abs", "max_rel", "ulp", "cosine", "over_time", "distribution")
    return [getattr(report, name) for name in names]


def drawn(*shape: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal(shape).astype(np.float32)
    return (expected + rng.standard_normal(shape) * 1e-4).astype(np.float32), expected


def test_absolute_relative_and_cosine_over_all_feeds() -> None:
    feeds = [drawn(7, 2, 3), drawn(4, 2, 3, seed=5)]
    found = of(*feeds)
    one, other = (np.concatenate([feed[k].ravel().astype(float) for feed in feeds]) for k in (0, 1))
    gap = np.abs(one - other)
    assert found.max_abs == gap.max()
    large = np.abs(other) > 1e-3
    assert found.max_rel == pytest.approx((gap[large] / np.abs(other[large])).max())
    cosine = (one * other).sum() / np.sqrt((one * one).sum() * (other * other).sum())
    assert found.cosine == pytest.approx(cosine, abs=1e-12)


def test_a_relative_error_of_next_to_nothing_says_nothing() -> None:
    assert of(([2e-6, 1.1], [1e-6, 1.0])).max_rel == pytest.approx(0.1)
    assert of(([2e-6], [1e-6])).max_rel is None


def test_the_worst_element_used_most_of_its_tolerance() -> None:
    """Not the largest error: it may be allowed more."""
    found = of(([[1.0, 100.5]], [[1.0, 100.0]]), ([[1.0], [0.01]], [[1.0], [0.0]]))
    assert found.worst_element == Element(1, (1, 0), 0.0, 0.01)
    assert found.max_abs == 0.5


def test_the_worst_of_what_must_be_equal_is_the_first() -> None:
    equal = Tolerance(0, 0, "equal")
    found = of(([1, 2], [1, 2]), ([3, 4, 9], [3, 5, 8]), bound=equal)
    assert found.worst_element == Element(1, (1,), 5, 4)
    assert figures_of(found) == [None] * 6
    words = of((np.array([b"a", b"x"], object), np.array([b"a", b"b"], object)), bound=equal)
    assert words.worst_element == Element(0, (1,), "b", "x")


def test_a_nan_where_a_number_was_expected_is_the_worst() -> None:
    assert of(([1.0, np.nan], [1.0, 2.0])).worst_element == Element(0, (1,), 2.0, "nan")


def test_the_same_nan_on_both_sides_is_in_no_figure() -> None:
    found = of(([np.nan, 1.0, np.inf], [np.nan, 1.0, np.inf]))
    assert (found.max_abs, found.cosine, found.ulp) == (0, 1, 0)


TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda kind: np.dtype(kind).name)
def test_ulps_count_the_floats_between(dtype: Any) -> None:
    """By walking: `nextafter` three times up, and across zero."""
    start = np.array([1.0, -2.0, 100.0], dtype)
    moved = start
    for _ in range(3):
        moved = np.nextafter(moved, np.array(np.inf, dtype))
    assert ulps(moved, start).tolist() == [3, 3, 3]
    tiny = np.nextafter(np.array([0.0], dtype), np.array(1, dtype))
    assert ulps(-tiny, tiny).tolist() == [2]
    assert ulps(np.array([-0.0], dtype), np.array([0.0], dtype)).tolist() == [0]


def test_ulps_reach_from_end_to_end_without_wrapping() -> None:
    most = np.finfo(np.float64).max
    (found,) = ulps(np.array([-most]), np.array([most])).tolist()
    assert found == 2 * int(np.array(most).view(np.uint64))


def test_ulps_are_those_of_the_coarser_type() -> None:
    """An artifact that widens half to float is not blamed for what half cannot say."""
    expected = np.array([1.0, 3.0], np.float16)
    found = np.array([1.0 + 2**-13, 3.0 + 2 * 2**-9], np.float32)
    assert ulps(found, expected).tolist() == [0, 2]


def test_the_error_of_each_step_is_the_largest_over_all_feeds() -> None:
    long, short = drawn(5, 2, 3), drawn(3, 2, 3, seed=4)
    gaps = [np.abs(one.astype(float) - other).max(axis=(1, 2)) for one, other in (long, short)]
    gaps[0][:3] = np.maximum(gaps[0][:3], gaps[1])
    found = of(long, short, axis=0).over_time
    assert found is not None
    assert (found.axis, found.group) == (0, 1)
    assert found.errors == pytest.approx(gaps[0])


def test_many_steps_are_told_in_groups() -> None:
    expected = np.zeros((2, 1500))
    found = expected.copy()
    found[1, 1498] = 0.25
    told = of((found, expected), axis=1).over_time
    assert told is not None
    assert (told.group, len(told.errors), told.errors[499]) == (3, 500, 0.25)
    assert sum(told.errors) == 0.25


def test_the_distribution_counts_every_value_once() -> None:
    """Errors of 1e-5, 2 and 1e9 times the tolerance of 1e-3, and none at all."""
    expected = np.zeros(6)
    told = of((np.array([0, 0, 1e-8, 2e-3, 1e6, 1e-20]), expected)).distribution
    assert told is not None
    assert told.exact == 2
    kept = {told.first + told.width * k: count for k, count in enumerate(told.counts) if count}
    assert kept == {-8.0: 1, -5.0: 1, 0.0: 1, 5.5: 1}


@pytest.mark.parametrize(
    ("shapes", "seen", "axis"),
    [
        ([(17, 3, 4), (9, 2, 4)], [[(17, 3)], [(9, 2)]], 0),
        ([(3, 17, 17), (2, 9, 17)], [[(17, 3)], [(9, 2)]], 1),
        ([(3, 4), (2, 4)], [[(17, 3)], [(9, 2)]], None),
        ([(3, 17, 17), (2, 9, 9)], [[(17, 3)], [(9, 2)]], None),
        ([(8, 3, 4), (4, 2, 4)], [[(17, 3), (8, 3)], [(9, 2), (4, 2)]], 0),
        ([(3, 17, 17)], [[(17, 3)]], 1),
        ([(17, 17, 4)], [[(17, 17)]], None),
        ([(17, 3), (9, 2)], [[], []], None),
        ([(17, 3), (9,)], [[(17, 3)], [(9, 2)]], None),
    ],
)
def test_the_axis_of_time_is_told_by_what_the_recurrences_saw(
    shapes: list[tuple[int, ...]], seen: list[list[tuple[int, int]]], axis: int | None
) -> None:
    assert axis_of_time(shapes, seen) == axis


def test_nothing_compared_has_no_figures() -> None:
    missing = OutputDifference("y", False, 0, np.inf, np.inf, "missing")
    found = compare.aggregate([missing, missing], {})
    assert [*figures_of(found), found.worst_element] == [None] * 7
