"""Mistakes in what a repaired SavedModel of TensorFlow 2 computes, on a blob and on Keras' own matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mutants import changes, repaired, steps
from mutants.conversions import exit_code, is_caught
from support.keras3_samples import exported
from support.tiers import combinations, tier

from cudnn_convert.lower.tensorflow import while_loop
from cudnn_convert.model import Mode
from cudnn_convert.weights import parameter_blob

Mutant = Callable[[pytest.MonkeyPatch], None]
#: One cuDNN node each, whose weights lie in three variables. Keras gives it no lengths and no states.
MATRICES = {Mode.LSTM: "keras-3.15.1-lstm", Mode.GRU: "keras-3.15.1-gru"}


def swaps_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    split = parameter_blob.split
    monkeypatch.setattr(
        parameter_blob,
        "split",
        lambda *given, **named: tuple(layer[::-1] for layer in split(*given, **named)),
    )


def exchanges_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    table = while_loop._ACTIVATIONS
    monkeypatch.setattr(
        while_loop, "_ACTIVATIONS", {mode: table[other] for mode, other in changes.EXCHANGED.items()}
    )


def of_weights(mode: Mode) -> dict[str, Mutant]:
    found = {
        name: partial(steps.computes, change=partial(repaired.of_arrays, change))
        for name, change in repaired.of_weights(mode).items()
    }
    return found | ({"resets_before_product": steps.resets_before_product} if mode is Mode.GRU else {})


def on_blobs(mode: Mode) -> Iterator[tuple[str, Mutant]]:
    if mode in changes.EXCHANGED:
        yield "activations_exchanged", exchanges_activations
    if mode is Mode.RNN_RELU:  # the rest is that of tanh
        return
    yield from of_weights(mode).items()
    yield "directions_swapped", swaps_directions
    for name, change in steps.CHANGES.items():
        if name != "without_c" or mode is Mode.LSTM:
            yield name, partial(steps.computes, change=change)


#: What the first tier tries: of a blob a matrix, and of the steps, which are those of every lowering, some.
OF_AN_LSTM = frozenset({"directions_swapped", "without_c"})
OF_A_PLAIN_RNN = frozenset({"transposed_kernel", "activations_exchanged", "without_lengths"})
#: Of matrices all of an LSTM but for further pairs of gates, and of a GRU what only it has.
OF_A_GRU = frozenset({"candidate_biases_swapped", "without_recurrent_bias", "resets_before_product"})


def is_first_on_blobs(mode: Mode, name: str) -> bool:
    if mode is Mode.LSTM:
        return name in OF_AN_LSTM
    return mode is Mode.RNN_TANH and name in OF_A_PLAIN_RNN


def is_first_on_matrices(mode: Mode, name: str) -> bool:
    if mode is Mode.LSTM:
        return not name.startswith("gates_") or name == "gates_0_1_swapped"
    return name in OF_A_GRU


def get_class(name: str) -> str:
    if name in steps.CHANGES:
        return f"steps: {name}"
    if name.startswith("gates_"):
        return "repaired: two gates swapped"
    return "steps: reset_before_product" if name == "resets_before_product" else f"repaired: {name}"


def cases(modes: Any, mutants: Any, is_first: Callable[[Mode, str], bool]) -> Any:
    found = [(mode, *named) for mode in modes for named in mutants(mode)]
    return pytest.mark.parametrize(
        ("mode", "mutant"),
        [
            pytest.param(
                mode,
                mutant,
                id=f"{mode.value}-{name}",
                marks=(pytest.mark.mutant(get_class(name)), *tier(first=is_first(mode, name))),
            )
            for mode, name, mutant in found
        ],
    )


@cases(Mode, on_blobs, is_first_on_blobs)
def test_a_mistake_on_a_blob(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode, mutant: Mutant
) -> None:
    source = repaired.exported(mode, tmp_path / "source")
    mutant(monkeypatch)
    assert is_caught(monkeypatch, source, tmp_path / "out")


@cases(MATRICES, lambda mode: of_weights(mode).items(), is_first_on_matrices)
def test_a_mistake_on_matrices(
    monkeypatch: pytest.MonkeyPatch, out: Path, mode: Mode, mutant: Mutant
) -> None:
    mutant(monkeypatch)
    assert is_caught(monkeypatch, exported(MATRICES[mode]).path, out)


@combinations(lambda mode: mode is Mode.RNN_TANH, mode=Mode, ids=lambda mode: mode.value)
def test_without_a_mistake_all_is_well(tmp_path: Path, mode: Mode) -> None:
    assert exit_code(repaired.exported(mode, tmp_path / "source"), tmp_path / "out") == 0
    if mode in MATRICES:
        assert exit_code(exported(MATRICES[mode]).path, tmp_path / "other") == 0


@pytest.mark.mutant("repaired, few steps")
@combinations(lambda name: name == "without_h", name=["without_h", "without_lengths", "whole_row_reversed"])
def test_a_mistake_where_steps_are_few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """There an LSTM goes another way; the few steps of one feed are all that takes it."""
    source = repaired.exported(Mode.LSTM, tmp_path / "source")
    monkeypatch.setattr(while_loop, "layer", steps.CHANGES[name](while_loop.layer))
    assert is_caught(monkeypatch, source, tmp_path / "out")
