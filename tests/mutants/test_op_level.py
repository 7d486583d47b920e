"""Parameters of a projected or skipped layer read in a wrong order: the proof must stop each conversion.

A mutant reads the file's blob as if its regions stood elsewhere; the judge goes on reading it as it does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutants.conversions import Flags, exit_code, is_caught
from support.samples import fixture
from support.tiers import combinations, tier

from cudnn_convert.model import Array, Cell, Sizes
from cudnn_convert.weights import layouts, parameter_blob

LENGTHS, SKIPPED = "1.15.5-op_proj_lstm", "1.15.5-op_skip_lstm"
#: The block, the loop and ONNX each have a way of their own with a projection.
TARGETS: dict[str, Flags] = {
    "savedmodel-fast": ("--format", "savedmodel"),
    "frozen-portable": ("--format", "frozen", "--lowering", "portable"),
    "onnx-fast": ("--format", "onnx"),
}
#: What is read wrongly is so before any lowering: the first tier tries all with this one, which costs least,
#: and with the loop one matrix; what the block is given instead of it is spoiled further below.
CHEAPEST, WITNESS = "onnx-fast", (LENGTHS, "recurrent_kernel-turned", "frozen-portable")


def caught(monkeypatch: pytest.MonkeyPatch, sample: str, folder: Path, to: str) -> bool:
    return is_caught(monkeypatch, fixture(sample).prefix, folder / "out", *TARGETS[to])


def regions(sizes: Sizes) -> list[tuple[str, int, int]]:
    """(what, pseudo-layer, elements) of a projected blob, in its order."""
    gates = len(sizes.mode.gates)
    pseudo = [layer for layer in range(sizes.layers) for _ in range(sizes.directions)]
    found = []
    for number, layer in enumerate(pseudo):
        found.append(("W", number, gates * sizes.units * sizes.inputs(layer)))
        found.append(("R", number, gates * sizes.units * sizes.width))
        found.append(("Q", number, sizes.width * sizes.units))
    return [*found, *(("b", number, 2 * gates * sizes.units) for number in range(len(pseudo)))]


def reread(blob: Array, sizes: Sizes, order: Callable[[tuple[str, int, int]], Any]) -> Array:
    """The blob of a reader that takes the regions in another order, as the real reader would need it."""
    taken, offset = {}, 0
    for what, number, elements in sorted(regions(sizes), key=order):
        taken[what, number] = blob[offset : offset + elements]
        offset += elements
    return np.concatenate([taken[what, number] for what, number, _ in regions(sizes)])


def within(order: str) -> Callable[[tuple[str, int, int]], Any]:
    """The matrices of each pseudo-layer in another order."""
    return lambda region: (region[0] == "b", region[1], order.index(region[0]))


def grouped(**groups: int) -> Callable[[tuple[str, int, int]], Any]:
    """Regions of one group, of all pseudo-layers, before those of the next."""
    return lambda region: (groups[region[0]], region[1], region[0] == "R")


ORDERS: dict[str, Callable[[tuple[str, int, int]], Any]] = {
    "projection before R": within("WQRb"),
    "projection first": within("QWRb"),
    "R before W": within("RWQb"),
    "projections after all biases": grouped(W=0, R=0, b=1, Q=2),
    "projections after all matrices": grouped(W=0, R=0, Q=1, b=2),
}


def tried(cases: Sequence[tuple[str, str, Any]]) -> list[Any]:
    """A sample, what is done to it and its name, with each target."""
    return [
        pytest.param(
            sample,
            mistake,
            to,
            id=f"{sample}-{name}-{to}",
            marks=(
                pytest.mark.mutant(f"op level: {name}"),
                *tier(first=to == CHEAPEST or (sample, name, to) == WITNESS),
            ),
        )
        for to in TARGETS
        for sample, name, mistake in cases
    ]


@pytest.mark.parametrize(("sample", "order", "to"), tried([(LENGTHS, order, order) for order in ORDERS]))
def test_regions_taken_in_another_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sample: str, order: str, to: str
) -> None:
    read = parameter_blob.split
    monkeypatch.setattr(
        parameter_blob,
        "split",
        lambda blob, sizes, **named: read(reread(blob, sizes, ORDERS[order]), sizes, **named),
    )
    assert caught(monkeypatch, sample, tmp_path, to)


def turned(matrix: Array | None) -> Array | None:
    """The right shape, the wrong order: what forgetting, or making up, a transposition would do."""
    return None if matrix is None else matrix.swapaxes(-1, -2).reshape(matrix.shape)


def without(bias: Array) -> Array:
    return np.zeros_like(bias)


SPOILED: list[tuple[str, str, Callable[[Any], Any]]] = [
    (LENGTHS, "projection", turned),
    (LENGTHS, "recurrent_kernel", turned),
    (SKIPPED, "recurrent_kernel", turned),
    (SKIPPED, "kernel", without),
    (SKIPPED, "bias", without),
    (SKIPPED, "recurrent_bias", without),
]


@pytest.mark.parametrize(
    ("sample", "spoil", "to"),
    tried([(sample, f"{part}-{change.__name__}", (part, change)) for sample, part, change in SPOILED]),
)
def test_a_part_spoiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sample: str, spoil: tuple[str, Any], to: str
) -> None:
    part, change = spoil
    read = parameter_blob.split

    def spoiled(*given: Any, **named: Any) -> Sequence[Sequence[Cell]]:
        found = read(*given, **named)
        first = [dataclasses.replace(cell, **{part: change(getattr(cell, part))}) for cell in found[0]]
        return (tuple(first), *found[1:])

    monkeypatch.setattr(parameter_blob, "split", spoiled)
    assert caught(monkeypatch, sample, tmp_path, to)


@pytest.mark.parametrize("to", ["savedmodel-fast", "onnx-fast"])
@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(name, marks=pytest.mark.mutant(f"op level: {name}"))
        for name in ("fold_projection", "invert_projection")
    ],
)
def test_what_stands_for_a_projection_spoiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spoiled: str, to: str
) -> None:
    right = getattr(layouts, spoiled)

    def changed(cell: Cell) -> Any:
        found = right(cell)
        if spoiled == "invert_projection":
            return turned(found)
        return dataclasses.replace(found, recurrent_kernel=turned(found.recurrent_kernel))

    monkeypatch.setattr(layouts, spoiled, changed)
    assert caught(monkeypatch, LENGTHS, tmp_path, to)


@combinations(lambda _, to: to == CHEAPEST, sample=[LENGTHS, SKIPPED], to=TARGETS)
def test_the_samples_of_this_file_pass_unchanged(tmp_path: Path, sample: str, to: str) -> None:
    assert exit_code(fixture(sample).prefix, tmp_path / "out", *TARGETS[to]) == 0
