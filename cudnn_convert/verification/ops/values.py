"""Values for fed tensors: the values of a run, and varied values of equal shapes.

A style makes all values of one round. Its values are near constants that are compared, ties, signs, zeros,
large and small, as random inputs never are. `FINITE` must give the same, `ODD` may differ between runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.verification import effort

#: The style of a run's own values.
RUN: Final = "values of a run"
NOISE: Final = "random values"
NEGATED: Final = "the other signs"
TIES: Final = "zeros, halves and whole numbers"
LARGE: Final = "large values"
SMALL: Final = "small values"
NEAR: Final = "values at, below and above the constants that are compared"
FEW: Final = "few values at, below and above the constants that are compared"
AT: Final = "a constant that is compared"
UNDER: Final = "the number below a constant that is compared"
OVER: Final = "the number above a constant that is compared"
GRID: Final = "multiples of constants"
WIDE: Final = "whole numbers beyond 2^24"
SIDES: Final = "one side of a constant that is compared"
CHOSEN: Final = "each choice between values that decide"
CLOSE: Final = "numbers that float32 has not"
EMPTY: Final = "an axis of size 0"
ROWS: Final = "every row of a table"
FINITE: Final = (
    *(NOISE, NEGATED, TIES, LARGE, SMALL, NEAR, FEW, GRID, WIDE, CLOSE, GRID, WIDE, GRID),
    *(AT, UNDER, OVER) * 3,
)
#: Styles whose values stand exactly at a threshold, where rounding may go either way.
SHARP: Final = frozenset({TIES, NEAR, FEW, GRID, AT, UNDER, OVER})
#: Styles whose values are about as large as those of a run, or as a constant that they are compared with.
NEARBY: Final = frozenset({NOISE, NEGATED, ROWS, NEAR, FEW, AT, UNDER, OVER, SIDES, CHOSEN})
EXTREMES: Final = "the largest and the smallest integers"
ODD: Final = ("infinities", "NaN", EXTREMES)
#: Ties of rounding, and what is around them.
_TIES: Final = (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -1.0, 1.0, 0.0, -0.0, 2.0)
#: float32 has no whole numbers between some of these, float64 not between the last: for 64 bits alone.
_WIDE: Final = (2**24 + 1, -(2**24) - 1, 2**24 + 3, 2**24, 7, 2**53 + 1, 2**53, -(2**53) - 1)
_SINGLE: Final = 5


@dataclass(slots=True)
class Leaf:
    """A fed tensor, and the allowed variation.

    `near` are constants that it is compared with, `rows` those of the table that it picks from, 0 for none.
    `counts`: its integers are sizes or places, and stay as they are; `fixed`: all stays. `is_positive`: what
    makes it gives nothing below zero, on which a converter may rely.
    """

    near: tuple[float, ...] = ()
    rows: int = 0
    counts: bool = False
    fixed: bool = False
    is_positive: bool = False


def vary(rng: np.random.Generator, style: str, value: Array, leaf: Leaf, turn: int = 0) -> Array:
    """Make values of a style in the shape and type of a run's value.

    `turn` counts the rounds of a style.
    """
    if style == RUN or leaf.fixed or not value.size:
        return value
    if value.dtype.kind == "b":
        share = {NEGATED: None, LARGE: 1.0, SMALL: 0.0}.get(style, 0.5)
        return np.asarray(~value if share is None else rng.random(value.shape) < share)
    if value.dtype.kind in "iu":
        return _integers(rng, style, value, leaf)
    if value.dtype.kind == "f":
        floats = _floats(rng, style, value, leaf.near, turn)
        return np.abs(floats) if leaf.is_positive else floats
    return value


def _floats(rng: np.random.Generator, style: str, value: Array, near: Sequence[float], turn: int) -> Array:
    kind = value.dtype.type
    usual = value[np.abs(value) < effort.MASKING_VALUE]
    spread = (float(np.std(usual)) if usual.size else 1.0) or 1.0

    def put(choices: Sequence[float], share: float) -> Array:
        share = 1.0 if value.size <= effort.FEW_VALUES else share
        drawn = rng.choice(np.asarray(choices, np.float64), value.shape)
        with np.errstate(over="ignore"):
            return np.where(rng.random(value.shape) < share, drawn, value).astype(value.dtype)

    wanted = value
    if style in (NOISE, ROWS, WIDE):
        wanted = value + kind(spread) * rng.standard_normal(value.shape).astype(value.dtype)
    elif style == NEGATED:
        wanted = np.where(np.isinf(value), value, -value)  # a mask of the other sign is no mask
    elif style == TIES:
        wanted = put(_TIES, 0.7)
    elif style in (LARGE, SMALL):
        with np.errstate(over="ignore"):
            wanted = value * kind(100.0 if style == LARGE else 0.01)
    elif style in (NEAR, FEW) and near:
        choices = [
            around for constant in near[: effort.MOST_TRIED_ALONE] for around in _around(constant, kind)
        ]
        wanted = put(choices, 0.5 if style == NEAR else 0.05)
    elif style in (AT, UNDER, OVER) and near:
        constant = near[turn % min(len(near), effort.MOST_TRIED_ALONE)]
        exact, over, under = _around(constant, kind)[:3]
        wanted = put([{AT: exact, OVER: over, UNDER: under}[style]], 0.1)
    elif style == GRID and any(near):
        steps = rng.integers(-40, 41, value.shape) * 0.5
        wanted = rng.choice([constant for constant in near if constant], value.shape) * steps
    elif style == CLOSE and kind is np.float64:
        others = rng.choice(value.ravel(), value.shape)
        wanted = others * (1 + 2.0**-40 * rng.integers(0, 3, value.shape))
    elif style == ODD[0]:
        wanted = put([np.inf, -np.inf], 0.3)
    elif style == ODD[1]:
        wanted = put([np.nan], 0.3)
    if style not in ODD:  # a product of a finite value is finite
        limits = np.finfo(kind)
        wanted = np.where(np.isfinite(value), np.clip(wanted, limits.min, limits.max), wanted)
    return np.asarray(wanted, value.dtype)


def _around(constant: float, kind: type[np.floating]) -> list[float]:
    """Return a constant, the neighbours, and values five hundredths away.

    No denormals: TensorFlow flushes them to zero.
    """
    tiny, exact = float(np.finfo(kind).tiny), kind(constant)
    steps = [float(np.nextafter(exact, kind(end))) for end in (np.inf, -np.inf)]
    steps = [tiny, -tiny] if abs(constant) < 2 * tiny else steps
    far = abs(constant) * 0.05 + 0.05
    return [float(exact), *steps, constant + far, constant - far]


def _integers(rng: np.random.Generator, style: str, value: Array, leaf: Leaf) -> Array:
    limits = np.iinfo(value.dtype)
    if leaf.counts:
        return value
    if leaf.rows:
        return rng.integers(0, leaf.rows, value.shape).astype(value.dtype)
    if style == NEGATED:
        return -value if limits.min < 0 else value
    near = [int(constant) for constant in leaf.near if abs(constant) < 2**31 and constant == int(constant)]
    choices: Sequence[int] = range(-5 if limits.min < 0 else 0, 8)
    share = 0.4
    if style == EXTREMES:
        choices, share = [limits.max, limits.min, limits.max - 1], 0.6
    elif style == WIDE:
        choices = _WIDE if value.dtype.itemsize > 4 else _WIDE[:_SINGLE]
        share = min(0.8, effort.MOST_WIDE_VALUES / value.size)
    elif style in (NEAR, FEW) and near:
        choices, share = [constant + step for constant in near for step in (-1, 0, 1)], 0.5
    fitting = [choice for choice in choices if limits.min <= choice <= limits.max] or [0]
    drawn = rng.choice(np.asarray(fitting, value.dtype), value.shape)
    share = 1.0 if value.size <= effort.FEW_VALUES else share
    return np.asarray(np.where(rng.random(value.shape) < share, drawn, value))


def step_over(value: Array, constant: float, step: int) -> Array:
    """Return values at a constant, or on a side of the constant."""
    if value.dtype.kind == "f":
        far = abs(constant) * 0.05 + 0.05
        return np.full_like(value, constant + step * far)
    if value.dtype.kind in "iu" and constant == int(constant):
        return np.full_like(value, int(constant) + step)
    return value


def list_choices(value: Array, leaf: Leaf) -> list[Array]:
    """Return values of a small leaf on each side of every compared constant.

    Returns both values of a boolean, and an empty list for other leaves.
    """
    if not 0 < value.size <= effort.FEW_VALUES or leaf.fixed or leaf.rows:
        return []
    near = sorted({*leaf.near[: effort.MOST_TRIED_ALONE]})
    if value.dtype.kind == "b":
        return [np.full_like(value, choice) for choice in (False, True)]
    if value.dtype.kind in "iu" and not leaf.counts:
        whole = [int(constant) for constant in near if constant == int(constant)]
        return [np.full_like(value, choice) for choice in (*whole, max(whole) + 1)] if whole else []
    if value.dtype.kind == "f" and near:
        return [step_over(value, near[0], -1), *(step_over(value, constant, 1) for constant in near)]
    return []


def empty(value: Array, axis: int) -> Array:
    """Remove all values along an axis; leave a tensor of lower rank unchanged."""
    return value.take([], axis) if value.ndim > axis else value


def list_rows(value: Array, rows: int, round_number: int) -> Array:
    """Return row after row of a table, from the end of the round before."""
    start = round_number * value.size
    return (np.arange(start, start + value.size) % rows).reshape(value.shape).astype(value.dtype)


def nudge(rng: np.random.Generator, value: Array) -> Array:
    """Move each float by a unit in the last place, up or down."""
    if value.dtype.kind != "f":
        return value
    with np.errstate(all="ignore"):
        ways = np.where(rng.random(value.shape) < 0.5, np.inf, -np.inf).astype(value.dtype)
        moved = np.nextafter(value, ways)
    return np.asarray(np.where(np.isfinite(value) & (value != 0) & np.isfinite(moved), moved, value))
