"""Every lowering, every mode: each mistake that could be made in it must be seen by the proof.

A mutant changes what is lowered, never what is judged. The conversion must exit with 3 and leave nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mutants import changes, fused, steps
from mutants.conversions import LOWERINGS, exit_code, flags, is_caught, modes, source
from support.tiers import tier

from cudnn_convert.model import Mode
from cudnn_convert.verification import check

Mutant = Callable[[pytest.MonkeyPatch], None]
#: What changes the plan does so before any lowering, and what changes the steps does so whatever computes a
#: layer. The first tier tries all of the plan, and of fused nodes, with an LSTM and the lowering that costs a
#: tenth.
CHEAPEST = "onnx"
STEPS = frozenset(steps.CHANGES)
#: What it tries with each other one: all changes of the steps where they cost least; else what shows that an
#: artifact is of the changed plan, that it has the changed steps, and what a lowering has its own code for.
FIRST: dict[tuple[str, Mode], frozenset[str]] = {
    ("onnx", Mode.GRU): frozenset(
        {"candidate_biases_swapped", "reset_before_product", "gates_0_1_swapped", "state_of_last_step"}
    ),
    ("onnx", Mode.RNN_TANH): frozenset(
        {"activations_exchanged", "without_recurrent_bias", "without_lengths"}
    ),
    ("onnx", Mode.RNN_RELU): frozenset({"activations_exchanged", "transposed_kernel", "padding_not_zeroed"}),
    ("frozen", Mode.LSTM): STEPS | {"directions_swapped"},
    ("frozen", Mode.RNN_TANH): frozenset({"without_lengths"}),
    ("frozen", Mode.GRU): frozenset({"reset_before_product"}),
    ("savedmodel-fast", Mode.LSTM): frozenset({"directions_swapped"}),
    ("savedmodel-portable", Mode.LSTM): frozenset({"without_c"}),
    ("tflite", Mode.RNN_RELU): frozenset({"activations_exchanged"}),
    ("checkpoint", Mode.LSTM): frozenset({"directions_swapped"}),
    ("checkpoint-basic_lstm", Mode.LSTM): frozenset({"directions_swapped"}),
}
#: Where a plain RNN of relu is tried in full; else it is that of tanh but for one function of one value.
RELU_IN_FULL = ("savedmodel-fast", "onnx")


def mutants(lowering: str, mode: Mode) -> Iterator[tuple[str, str, Mutant]]:
    """All that are tried on a mode in a lowering: what each changes, its name, and what does so."""
    if mode is Mode.RNN_RELU and lowering not in RELU_IN_FULL:
        yield "plan", "activations_exchanged", partial(changes.lowers, change=changes.activations_exchanged)
        return
    for name, change in changes.of_recurrences(mode).items():
        yield "plan", name, partial(changes.lowers, change=change)
    home, room = ("fused", fused) if lowering == "onnx" else ("steps", steps)
    for name, change in room.CHANGES.items():
        if mode is Mode.LSTM or name != "without_c":
            yield home, name, partial(room.computes, change=change)
    if mode is Mode.GRU:
        yield home, "reset_before_product", room.resets_before_product


def is_first(lowering: str, mode: Mode, name: str) -> bool:
    return (lowering, mode) == (CHEAPEST, Mode.LSTM) or name in FIRST.get((lowering, mode), ())


CASES = [(lowering, mode) for lowering in LOWERINGS for mode in modes(lowering)]
MATRIX = [
    pytest.param(
        lowering,
        mode,
        mutant,
        id=f"{lowering}-{mode.value}-{name}",
        marks=(pytest.mark.mutant(f"{home}: {name}"), *tier(first=is_first(lowering, mode, name))),
    )
    for lowering, mode in CASES
    for home, name, mutant in mutants(lowering, mode)
]
#: Checkpoints become every format, proven, in tests/end_to_end/test_fixtures.py too.
CONTROLS = [
    pytest.param(*case, id=f"{case[0]}-{case[1].value}", marks=tier(first=case == (CHEAPEST, Mode.GRU)))
    for case in CASES
]


@pytest.mark.parametrize(("lowering", "mode", "mutant"), MATRIX)
def test_a_mistake_in_the_lowering(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lowering: str, mode: Mode, mutant: Mutant
) -> None:
    mutant(monkeypatch)
    given = source(mode, tmp_path)
    assert is_caught(monkeypatch, given, tmp_path / "out", *LOWERINGS[lowering], *flags(mode))


@pytest.mark.parametrize(("lowering", "mode"), CONTROLS)
def test_without_a_mistake_all_is_well(tmp_path: Path, lowering: str, mode: Mode) -> None:
    """Else every mutant would be caught for the wrong reason."""
    assert exit_code(source(mode, tmp_path), tmp_path / "out", *LOWERINGS[lowering], *flags(mode)) == 0


def test_a_proof_ends_early_only_where_outputs_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else recurrences are asked by themselves, as in any proof."""
    asked, ask = [], check.ask_pieces

    def count(*given: Any) -> Any:
        asked.append(len(given))
        return ask(*given)

    monkeypatch.setattr(check, "ask_pieces", count)
    given = source(Mode.LSTM, tmp_path)
    assert not is_caught(monkeypatch, given, tmp_path / "right", "--format", "onnx")
    assert len(asked) == 1
    changes.lowers(monkeypatch, changes.directions_swapped)
    assert is_caught(monkeypatch, given, tmp_path / "wrong", "--format", "onnx")
    assert len(asked) == 1
