"""A verifier that has never failed is not tested: one wrong row anywhere must stop the conversion.

Each mutant changes one table or one function between the file and the artifact, as a bug would. The
conversion must exit with 3 and leave nothing at OUT. `--weights canonical` and the raw-only sample make sure
that it is the proof that catches it; a checkpoint with both copies is refused even earlier.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from samples import fixture

from cudnn_convert import layouts, opaque
from cudnn_convert.cli import main
from cudnn_convert.model import Cell, Mode
from cudnn_convert.read import contrib_names

LSTM, GRU = "1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi"
TANH, RELU = "1.15.5-rnn_tanh_bi_2l", "1.15.5-rnn_relu_uni_2l"
RAW = "1.15.5-raw_only"
SAMPLES = {Mode.LSTM: LSTM, Mode.GRU: GRU, Mode.RNN_TANH: TANH, Mode.RNN_RELU: RELU}

#: Which conversion uses a layout: the format and the lowering.
USES = {
    "contrib": ("savedmodel", "fast"),
    "block_lstm_v1": ("savedmodel", "fast"),
    "loop": ("savedmodel", "portable"),
    "onnx": ("onnx", "fast"),
}


def run(
    sample: str, out: Path, *, form: str = "savedmodel", lowering: str = "fast", weights: str = "canonical"
) -> int:
    flags = ["--format", form, "--lowering", lowering, "--weights", weights, "--quiet"]
    return main([str(fixture(sample).prefix), str(out), *flags])


def swapped(layout: layouts.Layout, mode: Mode, first: int, second: int) -> layouts.Layout:
    gates = list(layout.gates[mode])
    gates[first], gates[second] = gates[second], gates[first]
    return dataclasses.replace(layout, gates=MappingProxyType({**layout.gates, mode: tuple(gates)}))


SWAPS = [
    pytest.param(layout, mode, pair, id=f"{layout.name}-{mode.value}-{pair[0]}-{pair[1]}")
    for layout in layouts.LAYOUTS
    if layout.name in USES  # the others are swapped where their own sources are tested
    for mode in (Mode.LSTM, Mode.GRU)
    if mode in layout.gates
    for pair in combinations(range(len(layout.gates[mode])), 2)
    # TensorFlow's cells keep a GRU's candidate in tensors of its own: there is only one pair to swap.
    if not (layout.name == "contrib" and mode is Mode.GRU and pair != (0, 1))
]


@pytest.mark.parametrize(("layout", "mode", "pair"), SWAPS)
def test_two_gates_swapped(
    monkeypatch: pytest.MonkeyPatch, out: Path, layout: layouts.Layout, mode: Mode, pair: tuple[int, int]
) -> None:
    form, lowering = USES[layout.name]
    monkeypatch.setattr(layouts, layout.name.upper(), swapped(layout, mode, *pair))
    assert run(SAMPLES[mode], out, form=form, lowering=lowering) == 3
    assert not out.exists()


def each_cell(change: Callable[[Cell], Cell]) -> Callable[[Any], Any]:
    """A wrapper that changes every cell that goes into a function of `layouts`."""
    return lambda function: lambda cell, *rest: function(change(cell), *rest)


def transposed_kernel(cell: Cell) -> Cell:
    """The right shape, the wrong order: what forgetting a transposition of a square view would do."""
    return dataclasses.replace(cell, kernel=cell.kernel.swapaxes(1, 2).reshape(cell.kernel.shape))


def transposed_recurrent_kernel(cell: Cell) -> Cell:
    return dataclasses.replace(cell, recurrent_kernel=cell.recurrent_kernel.swapaxes(1, 2).copy())


def without_bias(cell: Cell) -> Cell:
    return dataclasses.replace(cell, bias=np.zeros_like(cell.bias))


def without_recurrent_bias(cell: Cell) -> Cell:
    return dataclasses.replace(cell, recurrent_bias=np.zeros_like(cell.recurrent_bias))


CHANGES = (transposed_kernel, transposed_recurrent_kernel, without_bias, without_recurrent_bias)


@pytest.mark.parametrize("mode", SAMPLES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("target", ["savedmodel-fast", "frozen-portable", "onnx-fast"])
def test_weights_spoiled_on_the_way_out(
    monkeypatch: pytest.MonkeyPatch, out: Path, mode: Mode, change: Any, target: str
) -> None:
    form, lowering = target.split("-")
    kernels = change in (transposed_kernel, transposed_recurrent_kernel)
    for name in ("columns", "rows") if kernels else ("summed_bias", "biases"):
        monkeypatch.setattr(layouts, name, each_cell(change)(getattr(layouts, name)))
    target_file = out.with_suffix(".pb") if form == "frozen" else out
    assert run(SAMPLES[mode], target_file, form=form, lowering=lowering) == 3
    assert not target_file.exists()


@pytest.mark.parametrize("mode", SAMPLES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_weights_spoiled_on_the_way_in(
    monkeypatch: pytest.MonkeyPatch, out: Path, mode: Mode, change: Any
) -> None:
    read = layouts.unpack_contrib
    monkeypatch.setattr(layouts, "unpack_contrib", lambda *given: change(read(*given)))
    assert run(SAMPLES[mode], out) == 3
    assert not out.exists()


def test_directions_swapped_in_the_key_table(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    forms = tuple(dataclasses.replace(form, stems=form.stems[::-1]) for form in contrib_names._FORMS)
    monkeypatch.setattr(contrib_names, "_FORMS", forms)
    assert run(LSTM, out) == 3
    assert not out.exists()


def test_tanh_for_relu(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    from cudnn_convert.lower import recurrence

    tanh = recurrence._ACTIVATIONS[Mode.RNN_TANH]
    monkeypatch.setitem(recurrence._ACTIVATIONS, Mode.RNN_RELU, tanh)
    assert run(RELU, out) == 3
    assert not out.exists()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_blob_read_wrongly(monkeypatch: pytest.MonkeyPatch, out: Path, change: Any) -> None:
    read = opaque.split
    spoiled = lambda *given, **named: tuple(tuple(map(change, row)) for row in read(*given, **named))  # noqa: E731
    monkeypatch.setattr(opaque, "split", spoiled)
    assert run(RAW, out, weights="raw") == 3
    assert not out.exists()


def test_two_copies_that_disagree_are_refused_before_the_proof(
    monkeypatch: pytest.MonkeyPatch, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layouts, "CONTRIB", swapped(layouts.CONTRIB, Mode.LSTM, 0, 1))
    assert run(LSTM, out, weights="auto") == 1
    assert "expected canonical keys and raw blob to agree" in capsys.readouterr().err
    assert not out.exists()


def test_the_samples_of_this_file_pass_unchanged(tmp_path: Path) -> None:
    """Else every mutant would be caught for the wrong reason."""
    for form, lowering in set(USES.values()):
        for sample in SAMPLES.values():
            assert run(sample, tmp_path / f"{form}-{lowering}-{sample}", form=form, lowering=lowering) == 0
    assert run(RAW, tmp_path / "raw", weights="raw") == 0


def test_a_failed_proof_has_its_report(
    monkeypatch: pytest.MonkeyPatch, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layouts, "BLOCK_LSTM_V1", swapped(layouts.BLOCK_LSTM_V1, Mode.LSTM, 0, 1))
    written = tmp_path / "report.json"
    assert main([str(fixture(LSTM).prefix), str(out), "--json", "--quiet", "--report", str(written)]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(written.read_text())
    assert told["verification"]["passed"] is False
    assert told["recurrences"][0]["mode"] == "lstm"
    assert not out.exists()
