"""Compares the values of a tensor on both sides, in units of the tensor's rounding.

A unit is what rounding to the type does to a value, and what one unit in the last place at the inputs moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.verification import effort


@dataclass(frozen=True, slots=True)
class Slack:
    """The difference allowed for floats beside rounding.

    The difference is a share of the tensor's largest value, and what a user allows.
    """

    share: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0


_NONE: Final = Slack()


def find_difference(actual: Array, expected: Array, moved: Sequence[Array], slack: Slack = _NONE) -> str:
    """Describe the difference between two values of a tensor; return "" for equal values.

    `moved` are those of the source whose inputs are moved by a unit.
    """
    if actual.shape != expected.shape:
        return f"expected {[*expected.shape]}, found {[*actual.shape]}"
    fitting = [other for other in moved if other.shape == expected.shape]
    if expected.dtype.kind in "OSU":
        wrong = _as_bytes(actual) != _as_bytes(expected)
    elif expected.dtype.kind not in "fV":
        wrong = np.asarray(actual != expected)
        for other in fitting:  # what rounding may turn
            wrong = wrong & (other == expected)
    else:
        wrong = _find_wrong_floats(actual, expected, fitting, slack)
    if not np.any(wrong):
        return ""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = [int(k) for k in index]
    return f"at {where} expected {expected[index]}, found {actual[index]}"


def _find_wrong_floats(actual: Array, expected: Array, moved: Sequence[Array], slack: Slack) -> Array:
    answer, reference = actual.astype(np.float64), expected.astype(np.float64)
    epsilon = effort.ROUNDING_OF_HALF.get(expected.dtype.name, effort.ROUNDING_OF_FLOAT)
    with np.errstate(all="ignore"):
        noise = np.zeros(reference.shape)
        for other in moved:
            away = np.abs(other.astype(np.float64) - reference)
            noise = np.maximum(noise, np.where(np.isnan(away), np.inf, away))
        # A draw may leave a sum where it was by chance, and a sum be small by chance: what moves half of all
        # elements counts, and a quarter of a unit of what half of them are. Zeros of a Relu are neither.
        some = np.isfinite(reference) & (reference != 0)
        sizes = np.abs(reference[some])
        noise = np.maximum(noise, 2 * np.median(noise[some]) if sizes.size else 0.0)
        unit = epsilon * np.maximum(np.abs(reference), 0.25 * np.median(sizes) if sizes.size else 0.0)
        allowed = (
            effort.MOST_UNITS * (unit + noise)
            + slack.share * float(sizes.max(initial=0.0))
            + effort.SMALLEST_VALUE
        )
        allowed += slack.atol + slack.rtol * np.abs(reference)
        same = (answer == reference) | (np.isnan(answer) & np.isnan(reference))
        if epsilon == effort.ROUNDING_OF_FLOAT:
            least = np.minimum(np.abs(reference), np.abs(answer))
            same |= (least > effort.LARGEST_VALUE) & (answer * reference > 0)
        return np.asarray(~same & ~(np.abs(answer - reference) <= allowed))


def take_poles(actual: Array, expected: Array) -> Array:
    """Replace values of `actual` by values of `expected` at poles.

    A pole is a place where `expected` is NaN, or where both are infinite or NaN. 1 / sqrt(0) is such a value.
    TensorFlow's softmax of a row of -inf is NaN, TensorFlow Lite's is 0.
    """
    if actual.shape != expected.shape or expected.dtype.kind not in "fV":
        return actual
    answer, reference = actual.astype(np.float64), expected.astype(np.float64)
    is_pole = np.isnan(reference) | (~np.isfinite(answer) & ~np.isfinite(reference))
    return np.where(is_pole, expected, actual)


def is_amplified(expected: Array, moved: Array | None) -> bool:
    """Return True if rounding of 64 units at the inputs exceeds a recurrence's tolerance.

    Correct programs differ that far in a chaotic recurrence. Statement 1 tests it alone, over a few steps.
    """
    if moved is None or moved.shape != expected.shape or expected.dtype.kind != "f" or not expected.size:
        return False
    with np.errstate(all="ignore"):
        away = np.abs(moved.astype(np.float64) - expected.astype(np.float64))
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    share, _ = effort.RECURRENT_TOLERANCE
    return bool(np.max(away, initial=0.0, where=np.isfinite(away)) > share / effort.MOST_UNITS * largest)


def are_close(actual: Array, expected: Array) -> bool:
    """Return True if both values may belong to the same tensor, judged by a run."""
    if actual.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSU" or actual.dtype.kind in "OSU":
        return actual.dtype.kind in "OSU" and expected.dtype.kind in "OSU"
    if actual.dtype != expected.dtype:
        return False
    if expected.dtype.kind != "f":
        return not expected.size or bool(np.mean(actual != expected) < effort.TURNED_INTEGERS)
    with np.errstate(all="ignore"):
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        share = effort.SAME_TENSOR_SHARE
        return bool(np.allclose(actual, expected, rtol=share, atol=share * largest, equal_nan=True))


def _as_bytes(value: Array) -> Array:
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in value.ravel()]
    encoded = np.empty(len(texts), object)
    encoded[:] = texts
    return encoded.reshape(value.shape)
