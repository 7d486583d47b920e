"""Comparisons with recorded numbers: what they refuse, and the bound of a long computation."""

from __future__ import annotations

import numpy as np
import pytest
from support.recorded import FLOAT32, MARGIN, assert_close, measure_bound

RECORDED = np.array([1.0, -2.0], np.float32)


@pytest.mark.parametrize(
    "found",
    [RECORDED + np.float32(4e-5), np.array([1.0, np.nan]), np.array([np.inf, -2.0]), RECORDED[:1]],
    ids=["far", "nan", "infinite", "another shape"],
)
def test_other_numbers_are_refused(found: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        assert_close(found, RECORDED)


def test_a_bound_is_relative_to_what_was_recorded() -> None:
    assert_close(RECORDED * 100 + np.float32(5e-4), RECORDED * 100)


def test_a_long_computation_has_the_bound_of_its_own_rounding() -> None:
    x, unit = np.ones(50, np.float32), np.finfo(np.float32).eps
    assert measure_bound(lambda x: x, [x]) == FLOAT32
    assert measure_bound(lambda x: 1024 * x, [x]) == pytest.approx(1024 * unit * MARGIN)
