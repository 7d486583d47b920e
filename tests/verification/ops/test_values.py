"""Values near constants, ties and choices, and those that must stay finite."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert.verification.ops import values
from cudnn_convert.verification.ops.values import Leaf


def test_values_stand_at_constants() -> None:
    rng, value = np.random.default_rng(1), np.zeros((40, 5), np.float32)
    leaf = Leaf(near=(50.0,))
    at = values.vary(rng, values.AT, value, leaf)
    over = values.vary(rng, values.OVER, value, leaf)
    assert set(np.unique(at)) == {0.0, 50.0}
    assert set(np.unique(over)) == {0.0, np.nextafter(np.float32(50), np.float32(51))}
    rows = values.list_rows(np.zeros((3, 2), np.int32), 10, 1)
    assert rows.ravel().tolist() == [6, 7, 8, 9, 0, 1]
    counts = values.vary(rng, values.WIDE, np.ones(4, np.int32), Leaf(counts=True))
    assert counts.tolist() == [1] * 4
    for style in values.FINITE:
        assert values.vary(rng, style, np.float32([0.5, 2.0, 3.0] * 9), Leaf(is_positive=True)).min() >= 0
    assert values.vary(rng, values.NEGATED, np.float32([0.5]), Leaf()).tolist() == [-0.5]
    masked = np.float32([0.5, -np.inf])
    assert values.vary(rng, values.NEGATED, masked, Leaf()).tolist() == [-0.5, -np.inf]


def test_what_decides_is_given_in_each_way() -> None:
    switch, whole = np.array(True), np.array(0, np.int32)
    assert values.list_choices(switch, Leaf(counts=True)) == [False, True]
    assert values.list_choices(whole, Leaf(near=(0.0, 1.0, 0.5))) == [0, 1, 2]
    assert values.list_choices(np.float32([3.0]), Leaf(near=(8.0, 40.0))) == pytest.approx(
        [7.55, 8.45, 42.05]
    )
    assert values.list_choices(whole, Leaf(near=(1.0,), counts=True)) == []
    assert values.list_choices(np.zeros((3, 4), np.float32), Leaf(near=(1.0,))) == []


def test_what_is_finite_stays_so() -> None:
    """Scores are masked by the smallest number, which is no measure of the others."""
    masked = np.float32([1.0, -2.0, 3.0, np.finfo(np.float32).min])
    rng = np.random.default_rng(1)
    for style in values.FINITE:
        assert np.isfinite(values.vary(rng, style, masked, Leaf(near=(1.0,)))).all(), style
    assert np.abs(values.vary(rng, values.NOISE, masked, Leaf())[:3]).max() < 50
