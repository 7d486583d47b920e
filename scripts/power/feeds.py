"""Inputs that open the gates of a model: values at and beside thresholds, rare ids, other sizes.

A `Rare` draws a list of feeds, each a mapping from input keys to arrays. Random ordinary feeds come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

Feed: TypeAlias = Mapping[str, np.ndarray]
Rare: TypeAlias = Callable[[np.random.Generator], list[Feed]]

STEPS, BATCH, WIDTH = 5, 3, 4


def draw_x(rng: np.random.Generator, steps: int = STEPS, batch: int = BATCH) -> np.ndarray:
    """Ordinary values `[steps, batch, WIDTH]`."""
    return rng.normal(size=(steps, batch, WIDTH)).astype(np.float32)


def edges(threshold: float) -> list[float]:
    """The threshold, its neighbours, and values a little and far beyond it."""
    exact = np.float32(threshold)
    size = max(abs(threshold), 1.0)
    beside = [np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))]
    beyond = [sign * part * size for part in (5e-4, 0.4, 3.0) for sign in (1, -1)]
    return [float(exact), *map(float, beside), *(threshold + step for step in beyond)]


def values(*thresholds: float, steps: int = STEPS) -> Rare:
    """Feeds of `x` at the edges of thresholds: one element, and in turn a row, the last element, all."""

    def drawn(rng: np.random.Generator) -> list[Feed]:
        feeds = []
        for threshold in thresholds:
            for number, value in enumerate(edges(threshold)):
                one, more = draw_x(rng, steps), draw_x(rng, steps)
                one[0, 0, 0] = value
                more[((slice(None), 1), (-1, -1, -1), ...)[number % 3]] = value
                feeds += [{"x": one}, {"x": more}]
        return feeds

    return drawn


def sizes(*pairs: tuple[int, int]) -> Rare:
    """Feeds of `x` of so many steps and rows."""
    return lambda rng: [{"x": draw_x(rng, steps, batch)} for steps, batch in pairs]


def ids(*rare: int, usual: int, key: str = "ids") -> Rare:
    """Feeds of whole numbers, of each the usual ones below a bound and one rare one, or that one alone."""

    def drawn(rng: np.random.Generator) -> list[Feed]:
        feeds = []
        for value in rare:
            some = rng.integers(0, usual, (STEPS, BATCH)).astype(np.int32)
            some[-1, 1] = value
            feeds += [{key: some}, {key: np.full_like(some, value)}]
        return feeds

    return drawn


def scalars(key: str, values: Iterable[object], dtype: type) -> Rare:
    """Feeds of `x` with each value of a scalar input."""
    return lambda rng: [{"x": draw_x(rng), key: np.array(value, dtype)} for value in values]


def together(*rares: Rare) -> Rare:
    """All feeds of several."""
    return lambda rng: [feed for rare in rares for feed in rare(rng)]
