"""Every lowering, every mode: each mistake that could be made in it must be seen by the proof.

A mutant changes what is lowered, never what is judged. The conversion must exit with 3 and leave nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from mutants import changes, fused, steps
from mutants.conversions import LOWERINGS, exit_code, flags, modes, source
from support.samples import EVERY

from cudnn_convert.model import Mode

Mutant = Callable[[pytest.MonkeyPatch], None]


#: Where a plain RNN of relu is tried in full; else it is that of tanh but for one function of one value.
RELU_IN_FULL = ("savedmodel-fast", "onnx")


#: What changes the plan does so before any lowering: all such changes are tried with the cheapest one, and
#: with each other one a change that shows that its artifact is of the changed plan.
CHEAPEST, WITNESS = "onnx", "directions_swapped"
#: Where every mode steps in a way that differs: there each is tried in full. The others walk over layers and
#: directions as the first does: in full with an LSTM, with other modes a change that shows it.
EVERY_MODE, STEPS_WITNESS = ("savedmodel-fast", "onnx"), "state_of_last_step"


def mutants(lowering: str, mode: Mode) -> Iterator[tuple[str, Mutant]]:
    """All that are tried on a mode in a lowering, by name."""
    if mode is Mode.RNN_RELU and lowering not in RELU_IN_FULL:
        yield "activations_exchanged", partial(changes.lowers, change=changes.activations_exchanged)
        return
    for name, change in changes.of_recurrences(mode).items():
        if EVERY or lowering == CHEAPEST or name == WITNESS:
            yield name, partial(changes.lowers, change=change)
    home = fused if lowering == "onnx" else steps
    for name, change in home.CHANGES.items():
        in_full = EVERY or mode is Mode.LSTM or lowering in EVERY_MODE
        if mode is Mode.LSTM or (name != "without_c" and (in_full or name == STEPS_WITNESS)):
            yield name, partial(home.computes, change=change)
    if mode is Mode.GRU:
        yield "reset_before_product", home.resets_before_product


CASES = [(lowering, mode) for lowering in LOWERINGS for mode in modes(lowering)]
MATRIX = [
    pytest.param(lowering, mode, mutant, id=f"{lowering}-{mode.value}-{name}")
    for lowering, mode in CASES
    for name, mutant in mutants(lowering, mode)
]


@pytest.mark.mutant
@pytest.mark.parametrize(("lowering", "mode", "mutant"), MATRIX)
def test_a_mistake_in_the_lowering(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lowering: str, mode: Mode, mutant: Mutant
) -> None:
    mutant(monkeypatch)
    assert exit_code(source(mode, tmp_path), tmp_path / "out", *LOWERINGS[lowering], *flags(mode)) == 3


@pytest.mark.parametrize(("lowering", "mode"), CASES)
def test_without_a_mistake_all_is_well(tmp_path: Path, lowering: str, mode: Mode) -> None:
    """Else every mutant would be caught for the wrong reason."""
    assert exit_code(source(mode, tmp_path), tmp_path / "out", *LOWERINGS[lowering], *flags(mode)) == 0
