"""Which keys are of an optimizer's state."""

from __future__ import annotations

import pytest

from cudnn_convert.weights.training_state import is_of_optimizer


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("opt_state/0/mu/LSTMCell_0/ii/kernel", True),
        ("state.opt_state.1.nu.lstm.linear.w", True),
        ("opt_state/0/count", True),
        ("params/LSTMCell_0/ii/kernel", False),
        ("params/opt_state", False),
        ("params/my_opt_state/w", False),
        ("params/opt_states/w", False),
    ],
)
def test_a_key(key: str, expected: bool) -> None:
    assert is_of_optimizer(key) is expected
