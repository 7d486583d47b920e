"""Recurrences of Keras models by their configs."""

from __future__ import annotations

import pytest
from support.keras_samples import keras_fixture

import cudnn_convert


@pytest.mark.parametrize(
    ("case", "expected", "is_printed"),
    [
        ("stacked", {"first": True, "second": True, "third": True}, True),
        ("go_backwards", {"reversed_steps": False, "first_step": False}, False),
        ("bidirectional", {"bidirectional_1": False, "bidirectional_2": False}, False),
        ("siamese", {"encoder": True}, False),  # what joins the sides is not known to take each step
    ],
)
def test_of_keras_layers_the_config_tells(case: str, expected: dict[str, bool], is_printed: bool) -> None:
    found = cudnn_convert.inspect(keras_fixture(f"keras-2.2.4-{case}").path)
    assert {one.name: one.streams for one in found.recurrences} == expected
    assert (found.stream_command is not None) == is_printed
