"""Recurrent layers of Keras by hand: one unit, masks, and settings without an equation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert.reference.cells import KerasLayer, UnknownError, activation, recur

CONFIG = {"units": 1, "activation": "linear", "return_sequences": True, "return_state": True}
WEIGHTS = [np.array([[2.0]]), np.array([[0.5]]), np.array([1.0])]
X = np.array([[[1.0], [2.0], [3.0]]])


def run(mask: Any = None, differences: frozenset[str] = frozenset(), **more: Any) -> list[np.ndarray]:
    return recur(KerasLayer("SimpleRNN", {**CONFIG, **more}, WEIGHTS, differences), [X], [mask])


def test_one_unit_by_hand() -> None:
    y, h = run()
    assert y.ravel().tolist() == [3, 6.5, 10.25]
    assert h.tolist() == [[10.25]]
    assert run(go_backwards=True)[0].ravel().tolist() == [7, 8.5, 7.25]


def test_a_masked_step_repeats_the_output_before_it() -> None:
    mask = np.array([[True, False, True]])
    assert run(mask)[0].ravel().tolist() == [3, 3, 8.5]
    assert run(mask, zero_output_for_mask=True)[0].ravel().tolist() == [3, 0, 8.5]


@pytest.mark.parametrize("setting", ["stateful", "time_major", "num_constants"])
def test_a_setting_without_an_equation_is_refused(setting: str) -> None:
    with pytest.raises(UnknownError):
        run(**{setting: True})


def test_a_function_has_a_name() -> None:
    assert activation({})(np.array([-1.0])).tolist() == [-1]
    assert activation({"activation": "hard_sigmoid"})(np.array([-9.0, 0.0])).tolist() == [0, 0.5]
    with pytest.raises(UnknownError, match="activation=gelu"):
        activation({"activation": "gelu"})
