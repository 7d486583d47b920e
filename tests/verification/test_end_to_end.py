"""The types that set a bound, and the choices that are too close to call."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert.verification.end_to_end import _too_close, bound_dtype


@pytest.mark.parametrize(
    ("own", "coarsest", "bound"),
    [
        ("float32", "float32", "float32"),
        ("float64", "float32", "float32"),
        ("float16", "float32", "float16"),
        ("int64", "float16", "int64"),
    ],
)
def test_the_coarser_type_sets_the_bound(own: str, coarsest: str, bound: str) -> None:
    assert bound_dtype(np.dtype(own), np.dtype(coarsest)) == bound


def test_a_choice_within_twice_the_noise_is_too_close() -> None:
    scores = np.array([[0.0, 1.0, 1.0 - 2e-3], [3.0, 0.0, 1.0]])
    actual, expected = np.array([2, 2]), np.array([1, 0])
    assert _too_close(scores, -1, actual, expected, 1.1e-3).tolist() == [True, False]
    assert _too_close(scores, -1, np.array([3, -1]), expected, 9.0).tolist() == [False, False]
    assert not _too_close(scores, -1, actual[:1], expected, 9.0).any()
