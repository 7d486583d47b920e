"""The gate table's rows, and two gates of one in each other's place."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

import pytest

from cudnn_convert.model import Mode
from cudnn_convert.weights import layouts
from cudnn_convert.weights.layouts import Layout

TABLE = (*vars(layouts).values(), *layouts._MISPLACED.values())
#: No conversion goes through these rows: tests/test_torch.py and tests/compat have their mutants.
OTHERS = (layouts.TORCH, layouts.CUDNN)
ROWS = {layout.name: layout for layout in TABLE if isinstance(layout, Layout) and layout not in OTHERS}


def pairs(layout: Layout, mode: Mode) -> list[tuple[int, int]]:
    return list(combinations(range(len(layout.gates[mode])), 2))


def swap(monkeypatch: pytest.MonkeyPatch, row: str, mode: Mode, pair: tuple[int, int]) -> None:
    """Two gates of a row, in one mode, change places wherever the table is read."""
    layout, (first, second) = ROWS[row], pair
    gates = list(layout.gates[mode])
    gates[first], gates[second] = gates[second], gates[first]
    swapped = replace(layout, gates=MappingProxyType({**layout.gates, mode: tuple(gates)}))
    if row in layouts._MISPLACED:
        monkeypatch.setattr(layouts, "_MISPLACED", {**layouts._MISPLACED, row: swapped})
    else:
        monkeypatch.setattr(layouts, row.upper(), swapped)
