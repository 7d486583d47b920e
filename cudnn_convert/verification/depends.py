"""Whether outputs move when recurrences do: those that do not say nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.verification import compare
from cudnn_convert.verification.way import Source

#: Answers one feed by its number, from the state that the file holds.
Answer = Callable[[int], Sequence[Array]]


def moved(
    source: Source,
    answer: Answer,
    exact: Sequence[Sequence[Array]],
    nodes: Collection[str],
    outputs: Mapping[str, int],
    *,
    feeds: Sequence[int],
) -> frozenset[str]:
    """The outputs that move when what recurrences give is disturbed by 1e-2 of its spread.

    `exact` has the undisturbed values feed by feed, `outputs` the place of each among them. The `feeds` are
    tried in turn until an output moves.
    """
    found: frozenset[str] = frozenset()
    source.disturb(nodes)
    for number in feeds:
        values = answer(number)
        found = frozenset(
            key for key, place in outputs.items() if _differ(values[place], exact[number][place])
        )
        if found:
            break
    source.disturb(())
    return found


def _differ(found: Array, expected: Array) -> bool:
    """Whether values differ by more than the bound of their type."""
    if found.shape != expected.shape:
        return True
    if expected.dtype.kind not in "fcV":
        return bool(np.any(found != expected))
    bound = compare.tolerance(expected.dtype, 0.0)
    one, other = (np.asarray(value, np.complex128) for value in (found, expected))
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - other) > bound.atol + bound.rtol * np.abs(other)
    return bool(np.any(gap | (np.isnan(one) != np.isnan(other))))
