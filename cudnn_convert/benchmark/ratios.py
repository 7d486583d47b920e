"""Medians, and how far to trust them: order statistics, which suppose nothing about the times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median, quantiles
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios, and the bounds that hold it with `CONFIDENCE`."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(upper: Sequence[float], lower: Sequence[float]) -> Ratio:
    """`upper / lower`, round by round."""
    return summary([a / b for a, b in zip(upper, lower, strict=True)])


def summary(values: Sequence[float]) -> Ratio:
    """The median and its bounds; fewer than six values give the smallest and the largest."""
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return Ratio(median(ordered), ordered[rank], ordered[-1 - rank])


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles as a share of the median; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    first, middle, third = quantiles(values, n=4, method="inclusive")
    return (third - first) / middle


def _rank(count: int) -> int:
    """How many values lie below the lower bound: each is on one side of the true median as a coin falls."""
    allowed = (1 - CONFIDENCE) / 2 * 2**count
    falls = accumulate(math.comb(count, below) for below in range(count))
    return max(0, len([total for total in falls if total <= allowed]) - 1)
