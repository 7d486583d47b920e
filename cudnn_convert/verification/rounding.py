"""Measures the movement of a source's answers by rounding alone.

The noise is the largest difference of several evaluations in a working type. The first adds up as the
reference does. The others add up the products of every recurrence in an order that is drawn, on inputs that
are moved by one unit in the last place: an artifact rounds in an order that is none of them, and a chaotic
model makes of one unlucky order any number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.verification import effort

#: `(draw, feed number) -> values`, one evaluation of one feed; draw 0 is the reference's own order.
Evaluate = Callable[[int, int], list[Array]]


def perturb_feed(feed: Mapping[str, Array], *, seed: int, draw: int) -> dict[str, Array]:
    """Move a feed's floats by about a unit in the last place.

    Draw 0 moves none.

    Whole numbers stay: they may be ids, or values that stand for padding.
    """
    if draw == 0:
        return dict(feed)
    rng = np.random.default_rng([seed, draw])
    return {name: _move_by_rounding(rng, value) for name, value in feed.items()}


def _move_by_rounding(rng: np.random.Generator, value: Array) -> Array:
    if value.dtype.kind != "f":
        return value
    with np.errstate(invalid="ignore"):
        is_whole = value == np.round(value)
    ways = rng.choice(np.array([-1, 1], value.dtype), value.shape)
    return np.where(is_whole, value, value * (1 + ways * np.finfo(value.dtype).eps)).astype(value.dtype)


def largest(
    exact: Sequence[Sequence[Array]],
    evaluate: Evaluate,
    *,
    enough: Callable[[list[float]], bool],
    doubtful: Callable[[list[float]], bool],
    in_order: bool = False,
    first: Sequence[list[float]] | None = None,
) -> list[float]:
    """Return each wanted tensor's largest difference through rounding, over feeds and evaluations.

    `exact` holds the values feed by feed, `first` the differences of the first evaluation, if it was made.
    After it `enough` may say that the others, which cost as much, can change no verdict. They are of the feed
    that was the noisiest, or of all feeds where those are to be taken `in_order`. While a verdict is
    `doubtful` then, further ones of all feeds are made: a model that is nearly chaotic may amplify the
    rounding of one in twenty evaluations alone.
    """

    def gaps(draw: int, number: int) -> list[float]:
        rounded = evaluate(draw, number)
        return [difference(value, other) for value, other in zip(exact[number], rounded, strict=True)]

    first = first or [gaps(0, number) for number in range(len(exact))]
    worst = [max(column) for column in zip(*first, strict=True)]
    if enough(worst):
        return worst
    noisiest = max(range(len(first)), key=lambda number: max(first[number], default=0.0))
    for draw in range(1, 1 + effort.NOISE_DRAWS + effort.MORE_NOISE_DRAWS):
        is_further = draw > effort.NOISE_DRAWS
        if is_further and not doubtful(worst):
            break
        for number in range(len(exact)) if in_order or is_further else [noisiest]:
            worst = [max(pair) for pair in zip(worst, gaps(draw, number), strict=True)]
    return worst


def difference(exact: Array, rounded: Array) -> float:
    """Return the largest finite difference of two float arrays of equal shape, else 0."""
    if exact.shape != rounded.shape or exact.dtype.kind != "f":
        return 0.0
    with np.errstate(invalid="ignore"):  # of two infinities
        gap: Any = np.abs(exact.astype(np.float64) - rounded.astype(np.float64))
    return float(np.max(gap[np.isfinite(gap)], initial=0.0))


def spread(values: Array) -> float:
    """Return the spread of the finite floats of an array."""
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0
