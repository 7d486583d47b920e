"""What rounding allows, and what it does not."""

from __future__ import annotations

import numpy as np

from cudnn_convert.verification.ops.differences import are_close, find_difference, is_amplified, take_poles


def test_what_amplifies_a_unit_is_known() -> None:
    value = np.float32([1.0, -20.0, 0.5])
    assert not is_amplified(value, value + np.float32([1e-6, 0, 3e-4]))
    assert is_amplified(value, value + np.float32([0, 0, 4e-4]))
    assert not is_amplified(value, None)


def test_what_rounding_allows() -> None:
    value = np.float32([1.0, 2.0, 3.0])
    assert find_difference(value, value, []) == ""
    assert find_difference(np.nextafter(value, np.float32(9)), value, []) == ""
    assert find_difference(value * np.float32(1.001), value, []).startswith("at [0] expected 1.0, found 1.00")
    assert find_difference(value[:2], value, []) == "expected [3], found [2]"
    flag = np.array([True, False])
    assert find_difference(~flag, flag, []) == "at [0] expected True, found False"
    assert find_difference(~flag, flag, [~flag]) == ""
    halves = np.float32([0, 0, 0, 8e-4, 1.0, 2.0])  # a Relu: what is small is a sum that cancelled by chance
    assert find_difference(halves + np.float32([0, 0, 0, 3e-7, 0, 0]), halves, []) == ""
    assert find_difference(halves + np.float32([0, 0, 0, 9e-6, 0, 0]), halves, []).startswith("at [3]")
    assert find_difference(np.float32([np.inf]), np.float32([2.5e38]), []) == ""
    assert find_difference(np.float32([-np.inf]), np.float32([2.5e38]), []) != ""
    poles = np.float32([np.inf, np.nan, 1, np.nan])
    found = take_poles(np.float32([np.nan, -np.inf, np.nan, 2]), poles)
    np.testing.assert_array_equal(found, np.float32([np.inf, np.nan, np.nan, np.nan]))
    assert not are_close(value.astype(np.float64), value)
    assert are_close(value, value + np.float32(1e-5))
