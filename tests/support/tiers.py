"""The first tier: which tests it runs, and which of many combinations of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

#: Of each test with a marker `first`: its name, the ids of the marker, and the id of its parameters.
COLLECTED = pytest.StashKey[tuple[tuple[str, tuple[str, ...], str], ...]]()


def is_named(item: pytest.Item) -> bool:
    """Whether a marker `first`, if there is one, names the parameters of a test."""
    marker = item.get_closest_marker("first")
    return marker is None or item.callspec.id in marker.args


def is_first(item: pytest.Item) -> bool:
    """Whether the first tier runs a test wherever its files are unchanged."""
    return is_named(item) and not any(item.get_closest_marker(name) for name in ("every", "slow"))


def tier(*, first: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a parameter that the first tier runs, or that `make test-every` adds."""
    return () if first else (pytest.mark.every,)


def combinations(
    is_first: Callable[..., bool], *, ids: Callable[[Any], str | None] | None = None, **values: Iterable[Any]
) -> pytest.MarkDecorator:
    """Parametrizes a test with all combinations; those that are not first have the marker `every`.

    `is_first` takes the values by position, in the order in which they are named here.
    """
    rows = [pytest.param(*row, marks=tier(first=is_first(*row))) for row in product(*values.values())]
    assert any(not row.marks for row in rows), "the first tier would have none"
    return pytest.mark.parametrize([*values], rows, ids=ids)


def samples(every: Iterable[Any], is_first: Callable[[Any], bool]) -> pytest.MarkDecorator:
    """Parametrizes a test with samples, called by their names; those that are not first have a marker."""
    rows = [pytest.param(each, marks=tier(first=is_first(each)), id=each.name) for each in every]
    return pytest.mark.parametrize("sample", rows)


def some(first: Iterable[Any], *others: Any) -> list[Any]:
    """The values of a parameter: those of the first tier, and the others."""
    return [*first, *(pytest.param(value, marks=pytest.mark.every) for value in others)]
