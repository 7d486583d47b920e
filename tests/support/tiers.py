"""Which of many combinations of parameters the first tier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


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


def some(first: Iterable[Any], *others: Any) -> list[Any]:
    """The values of a parameter: those of the first tier, and the others."""
    return [*first, *(pytest.param(value, marks=pytest.mark.every) for value in others)]
