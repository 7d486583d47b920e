"""What mutants are tried on: a source of every mode with lengths and states, and every way to lower it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from support.cases import Case
from support.samples import fixture

from cudnn_convert.cli import main
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.report import Verification
from cudnn_convert.report.values import OutputReport
from cudnn_convert.verification import check
from cudnn_convert.verification.end_to_end import Comparison

Flags = tuple[str, ...]

#: Genuine checkpoints with lengths, states and both directions; TensorFlow 1 has none of a plain RNN.
CHECKPOINTS = MappingProxyType(
    {Mode.LSTM: "1.15.5-v3_lengths_batch_major", Mode.GRU: "1.15.5-v3_gru_lengths"}
)
#: Every lowering: the block, the loop, the fused ONNX node, TensorFlow Lite's loop, and TensorFlow 1's cells,
#: an LSTM's of each kind, computed on as they are or rearranged for the loop.
LOWERINGS: MappingProxyType[str, Flags] = MappingProxyType(
    {
        "savedmodel-fast": ("--format", "savedmodel"),
        "savedmodel-portable": ("--format", "savedmodel", "--lowering", "portable"),
        "frozen": ("--format", "frozen"),
        "onnx": ("--format", "onnx"),
        "tflite": ("--format", "tflite"),
        "checkpoint": ("--format", "checkpoint"),
        "checkpoint-portable": ("--format", "checkpoint", "--lowering", "portable"),
        "checkpoint-lstm_block": ("--format", "checkpoint", "--cell", "lstm_block"),
        "checkpoint-basic_lstm": ("--format", "checkpoint", "--cell", "basic_lstm"),
    }
)


def modes(lowering: str) -> list[Mode]:
    """The modes that a lowering has a way of its own for."""
    return [Mode.LSTM] if {"--cell", "portable"} & {*LOWERINGS[lowering]} else [*Mode]


def source(mode: Mode, folder: Path) -> Path:
    """A model of two directions, an LSTM of two layers, with lengths and initial states as inputs."""
    if mode in CHECKPOINTS:
        return fixture(CHECKPOINTS[mode]).prefix
    path = folder / f"{mode.value}.pb"
    graph, _ = Case(mode, directions=2, op="CudnnRNNV3").graph()
    path.write_bytes(graph.SerializeToString())
    return path


def flags(mode: Mode) -> Flags:
    """What a source without a signature needs to be told."""
    if mode in CHECKPOINTS:
        return ()
    return ("--outputs", "rnn:0,rnn:1")


def exit_code(given: Path, out: Path, *flags: Any) -> int:
    """Converts to `out`, where nothing may lie unless that went well."""
    code = main([str(given), str(out), "--quiet", *flags])
    assert out.exists() == (code == 0)
    return code


def refuse_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a proof ends where outputs differ.

    Then a conversion is refused whatever else is found, and to find that takes a third of the time.
    """
    go_on = check.judge_on_milder_feeds

    def refuse(comparison: Any, outputs: Any, runner: Any) -> Any:
        if all(output.passed for output in outputs):
            return go_on(comparison, outputs, runner)
        failed = [f"output {each.output}: {each.message}" for each in outputs if not each.passed]
        raise VerificationError(Verification(False, None, (), outputs, ()), *failed)

    monkeypatch.setattr(check, "judge_on_milder_feeds", refuse)


def pass_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on outputs pass whatever they are: a proof has to see a mutant elsewhere."""
    judge = Comparison.reports

    def reports(comparison: Comparison, noise: Sequence[float]) -> tuple[OutputReport, ...]:
        return tuple(replace(output, passed=True) for output in judge(comparison, noise))

    monkeypatch.setattr(Comparison, "reports", reports)


def is_caught(monkeypatch: pytest.MonkeyPatch, given: Path, out: Path, *flags: Any) -> bool:
    """Whether the proof refuses a mutant."""
    refuse_early(monkeypatch)
    return exit_code(given, out, *flags) == 3
