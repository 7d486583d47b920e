"""What an inspection says of models in chunks: what streams, the command, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import asking_graphs
from support.command_line import command
from support.keras3_samples import exported
from support.samples import fixture

import cudnn_convert


def streams(source: Path, **flags: Any) -> dict[str, bool | None]:
    return {found.name: found.streams for found in cudnn_convert.inspect(source, **flags).recurrences}


@pytest.mark.first("1.15.5-gru_bi-expected2", "1.15.5-object_lstm_2l-expected4")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1.15.5-twins_training", {"cudnn_lstm/CudnnRNN": None, "cudnn_lstm/CudnnRNN_1": True}),
        ("1.15.5-same_sizes", {"left/cudnn_lstm/CudnnRNN": True, "right/cudnn_lstm/CudnnRNN": True}),
        ("1.15.5-gru_bi", {"cudnn_gru/CudnnRNN": False}),
        ("1.15.5-two_heads", {"cudnn_lstm/CudnnRNN": None}),  # whose outputs are to be chosen
        ("1.15.5-object_lstm_2l", {"encoder": True}),
    ],
)
def test_which_recurrences_stream(name: str, expected: dict[str, bool | None]) -> None:
    assert streams(fixture(name).prefix) == expected


def test_the_command_of_a_language_model_searches(tmp_path: Path) -> None:
    found = cudnn_convert.inspect(asking_graphs.language_model(tmp_path))
    assert found.decode_command is not None
    assert {"--decode=beam", "--steps=128"} < {*found.decode_command}
    (tmp_path / "other").mkdir()
    other = cudnn_convert.inspect(asking_graphs.plain(tmp_path / "other"))
    assert other.stream_command is not None
    assert other.decode_command is None


def test_the_command_is_that_of_the_conversion_with_states() -> None:
    source = fixture("1.15.5-dropout_needs_set").prefix
    found = cudnn_convert.inspect(source)
    assert found.command is not None
    assert found.stream_command is not None
    assert sorted(found.stream_command) == sorted([*found.command, "--states"])
    assert found.stream_reasons == ()
    asked = cudnn_convert.inspect(source, states=True)
    assert asked.command == asked.stream_command == found.stream_command


def test_a_format_that_cannot_leads_to_one_that_can() -> None:
    source = fixture("1.15.5-op_auto_gru").prefix
    formats = {}
    for form in ("onnx", "checkpoint"):
        words = cudnn_convert.inspect(source, format=form).stream_command
        assert words is not None
        formats[form] = words[words.index("--format") + 1]
    assert formats == {"onnx": "onnx", "checkpoint": "savedmodel"}


def test_why_not_is_told_below_the_command() -> None:
    lines = command("inspect", exported("keras-3.15.1-conv_beside").path).stdout.splitlines()
    reasons = [line for line in lines if line.startswith("not in chunks of steps: ")]
    assert "found a convolution over 3 steps" in reasons[0]
    assert lines.index(reasons[0]) > lines.index("convert it with:")


def test_weights_alone_take_no_states_of_a_bidirectional_layer() -> None:
    sample = fixture("1.15.5-keras_weights_gru_bi")
    inspection = cudnn_convert.inspect(sample.prefix)
    assert {one.streams for one in inspection.recurrences if one.directions == 2} == {False}
    assert inspection.stream_command is None
