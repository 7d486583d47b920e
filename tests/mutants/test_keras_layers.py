"""The targets that keep Keras layers: weights, settings and calls written wrongly must be seen by the proof.

CuDNN layers know no lengths. That a GRU resets after its product is told by the shape of its bias as well:
without that setting no Keras loads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mutants import changes
from mutants.conversions import exit_code, is_caught, pass_outputs
from support.keras_samples import keras_fixture
from support.tiers import tier

from cudnn_convert.keras import cpu_layers
from cudnn_convert.keras.config import classes
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Mode
from cudnn_convert.weights import layouts

Mutant = Callable[[pytest.MonkeyPatch], None]
FORMATS = ("keras", "h5")
BACKWARDS, STATEFUL = "keras-2.2.4-go_backwards", "keras-2.2.4-stateful_lstm"
#: Both directions, with states that go from layer to layer.
PAIR = "keras-2.2.4-bidirectional_states"
SAMPLES = {Mode.LSTM: "keras-2.2.4-sequential_lstm", Mode.GRU: BACKWARDS}


def packs(monkeypatch: pytest.MonkeyPatch, mode: Mode, change: changes.Change) -> None:
    """CPU layers of a mode get changed weights."""
    right = layouts.pack_keras
    monkeypatch.setattr(
        layouts, "pack_keras", lambda cell: right(change(cell) if cell.mode is mode else cell)
    )


def writes(monkeypatch: pytest.MonkeyPatch, change: Callable[[Entry], Entry]) -> None:
    """A CPU layer in a cuDNN layer's place, or what wraps one, is changed in its config or in its calls."""
    right = cpu_layers._change
    monkeypatch.setattr(
        cpu_layers, "_change", lambda entry: change(right(entry)) if _is_ours(entry) else right(entry)
    )


def _is_ours(entry: Entry) -> bool:
    return classes.is_cudnn(entry) or entry["class_name"] == "Bidirectional"


def set_to(key: str, value: Any) -> Callable[[Entry], Entry]:
    return lambda entry: {**entry, "config": {**entry["config"], key: value}}


def without_states(entry: Entry) -> Entry:
    """Called on its input alone, without the states that come after it."""
    calls = [call[:1] if len(call) > 1 else call for call in entry.get("inbound_nodes", [])]
    return {**entry, "inbound_nodes": calls}


def states_swapped(entry: Entry) -> Entry:
    """h in the place of c, and one direction's in the place of the other's."""
    calls = [[call[0], *call[:0:-1]] for call in entry.get("inbound_nodes", [])]
    return {**entry, "inbound_nodes": calls}


def swaps_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of each direction of a Bidirectional in the place of the other's."""
    right = cpu_layers._weights

    def swapped(path: Path, name: str, listed: Any, entry: Entry | None) -> Any:
        found = right(path, name, listed, entry)
        if entry is None or entry["class_name"] != "Bidirectional":
            return found
        half = len(found) // 2
        values = [value for _, value in (*found[half:], *found[:half])]
        return tuple((key, value) for (key, _), value in zip(found, values, strict=True))

    monkeypatch.setattr(cpu_layers, "_weights", swapped)


def forgets_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What enters a layer in the second call shows this as well as the outputs do."""
    writes(monkeypatch, set_to("stateful", False))
    pass_outputs(monkeypatch)


MUTANTS: dict[str, tuple[str, Mutant]] = {
    **{
        f"{mode.value}-{name}": (sample, partial(packs, mode=mode, change=change))
        for mode, sample in SAMPLES.items()
        for name, change in changes.of_weights(mode).items()
    },
    "not_backwards": (BACKWARDS, partial(writes, change=set_to("go_backwards", False))),
    "relu": (BACKWARDS, partial(writes, change=set_to("activation", "relu"))),
    "hard_sigmoid": (BACKWARDS, partial(writes, change=set_to("recurrent_activation", "hard_sigmoid"))),
    "without_states": (PAIR, partial(writes, change=without_states)),
    "states_swapped": (PAIR, partial(writes, change=states_swapped)),
    "stateless": (STATEFUL, forgets_the_state),
    "directions_swapped": (PAIR, swaps_directions),
}


#: Both files hold the same layers, and both modes' weights go one way: what the first tier tries again.
WITNESSES = {"keras": {"gru-candidate_biases_swapped"}, "h5": {"lstm-transposed_kernel"}}


def cases() -> Iterator[Any]:
    for form in FORMATS:
        for name, (sample, mutant) in MUTANTS.items():
            mistake = name.removeprefix("lstm-").removeprefix("gru-")
            is_first = (form == FORMATS[0] and not name.startswith("gru-")) or name in WITNESSES[form]
            marks = [pytest.mark.mutant(f"keras layers: {mistake}"), *tier(first=is_first)]
            yield pytest.param(form, sample, mutant, id=f"{form}-{name}", marks=marks)


@pytest.mark.parametrize(("form", "sample", "mutant"), cases())
def test_a_mistake_in_the_layers(
    monkeypatch: pytest.MonkeyPatch, out: Path, form: str, sample: str, mutant: Mutant
) -> None:
    mutant(monkeypatch)
    assert is_caught(monkeypatch, keras_fixture(sample).path, out, "--format", form)


@pytest.mark.first("keras-2.2.4-go_backwards-keras")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sample", [*SAMPLES.values(), PAIR, STATEFUL])
def test_without_a_mistake_all_is_well(out: Path, sample: str, form: str) -> None:
    assert exit_code(keras_fixture(sample).path, out, "--format", form) == 0
