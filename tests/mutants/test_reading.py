"""Every way weights come in: read wrongly in any way, they must be seen by the proof.

The judge evaluates what is stored by rules of its own, so that it does not read them wrongly with us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutants import changes
from mutants.changes import Change
from mutants.conversions import Flags, exit_code, is_caught
from support.samples import GRAPHLESS, fixture
from support.tiers import tier

from cudnn_convert.model import Cell, Mode
from cudnn_convert.read.dialects import contrib
from cudnn_convert.weights import layouts, parameter_blob

LSTM = "1.15.5-lstm_bi_2l_states"
CHECKPOINTS = {
    Mode.LSTM: LSTM,
    Mode.GRU: "1.15.5-gru_bi",
    Mode.RNN_TANH: "1.15.5-rnn_tanh_bi_2l",
    Mode.RNN_RELU: "1.15.5-rnn_relu_uni_2l",
}
KERAS = {Mode.LSTM: "1.15.5-keras_weights_lstm", Mode.GRU: "1.15.5-keras_weights_gru_bi"}
BLOCK = {Mode.LSTM: "1.15.5-block_fused_peephole"}
PREFIXES = {found.name: found.prefix for found in GRAPHLESS}


def of_each(read: Callable[..., Cell], change: Change) -> Callable[..., Cell]:
    return lambda *given, **named: change(read(*given, **named))


def of_all(read: Callable[..., Any], change: Change) -> Callable[..., Any]:
    return lambda *given, **named: tuple(tuple(map(change, layer)) for layer in read(*given, **named))


#: What is patched, how, on which files, with which flags.
READERS: dict[str, tuple[Any, str, Callable[..., Any], dict[Mode, str], Flags]] = {
    "canonical": (layouts, "unpack_contrib", of_each, CHECKPOINTS, ("--weights", "canonical")),
    "blob": (parameter_blob, "split", of_all, CHECKPOINTS, ("--weights", "raw")),
    "keras": (layouts, "unpack_keras", of_each, KERAS, ()),
    "block": (layouts, "unpack_block", of_each, BLOCK, ("--outputs", "rnn_out:0,state_c:0,state_h:0")),
}


#: The first tier tries all with an LSTM, and what shows that other modes are read in that way too.
WITNESSES = {
    Mode.GRU: {"candidate_biases_swapped", "gates_0_1_swapped"},
    Mode.RNN_TANH: {"transposed_recurrent_kernel"},
    Mode.RNN_RELU: {"without_recurrent_bias"},
}


def without_peepholes(cell: Cell) -> Cell:
    return replace(cell, peepholes=None)


def mutants() -> Iterator[Any]:
    for reader, (*_, files, _) in READERS.items():
        for mode in files:
            found = changes.of_weights(mode)
            if reader == "block":  # which has one bias: the second is zero
                found = {**found, "without_peepholes": without_peepholes}
                del found["without_recurrent_bias"]
            for name, change in found.items():
                is_first = mode is Mode.LSTM or name in WITNESSES[mode]
                marks = [pytest.mark.mutant(f"reader {reader}: {name}"), *tier(first=is_first)]
                yield pytest.param(reader, mode, change, id=f"{reader}-{mode.value}-{name}", marks=marks)


def conversion(reader: str, mode: Mode) -> tuple[Path, Flags]:
    """A file for a reader, and the flags that it is converted with."""
    *_, files, flags = READERS[reader]
    name = files[mode]
    return PREFIXES.get(name) or fixture(name).prefix, ("--format", "onnx", *flags)


def caught(monkeypatch: pytest.MonkeyPatch, reader: str, mode: Mode, out: Path) -> bool:
    given, flags = conversion(reader, mode)
    return is_caught(monkeypatch, given, out, *flags)


@pytest.mark.parametrize(("reader", "mode", "change"), mutants())
def test_weights_read_wrongly(
    monkeypatch: pytest.MonkeyPatch, out: Path, reader: str, mode: Mode, change: Change
) -> None:
    room, name, spoiled, *_ = READERS[reader]
    monkeypatch.setattr(room, name, spoiled(getattr(room, name), change))
    assert caught(monkeypatch, reader, mode, out)


@pytest.mark.mutant("reader canonical: directions_swapped")
def test_directions_swapped_in_the_key_table(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    forms = tuple(replace(form, stems=form.stems[::-1]) for form in contrib._FORMS)
    monkeypatch.setattr(contrib, "_FORMS", forms)
    assert caught(monkeypatch, "canonical", Mode.LSTM, out)


@pytest.mark.mutant("reader blob: directions_swapped")
def test_directions_swapped_in_the_blob(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    read = parameter_blob.split
    monkeypatch.setattr(
        parameter_blob, "split", lambda *given, **named: tuple(layer[::-1] for layer in read(*given, **named))
    )
    assert caught(monkeypatch, "blob", Mode.GRU, out)


@pytest.mark.parametrize(
    ("reader", "mode"),
    [
        pytest.param(reader, mode, marks=tier(first=mode is Mode.GRU and reader in ("blob", "keras")))
        for reader, (*_, files, _) in READERS.items()
        for mode in files
    ],
)
def test_read_rightly_all_is_well(out: Path, reader: str, mode: Mode) -> None:
    given, flags = conversion(reader, mode)
    assert exit_code(given, out, *flags) == 0
