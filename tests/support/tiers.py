"""Which of many combinations of parameters the first tier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def combinations(
    is_first: Callable[..., bool], *, ids: Callable[[Any], str | None] | None = None, **values: Iterable[Any]
) -> pytest.MarkDecorator:
    """Parametrizes a test with all combinations; those that are not first have the marker `every`.

    `is_first` takes the values by position, in the order in which they are named here.
    """
    rows = [
        pytest.param(*row, marks=() if is_first(*row) else pytest.mark.every)
        for row in product(*values.values())
    ]
    assert any(not row.marks for row in rows), "the first tier would have none"
    return pytest.mark.parametrize([*values], rows, ids=ids)


def some(first: Iterable[Any], *others: Any) -> list[Any]:
    """The values of a parameter: those of the first tier, and the others."""
    return [*first, *(pytest.param(value, marks=pytest.mark.every) for value in others)]
