"""Mistakes that a repair could make must be seen by its own verification, before anything lies at OUT."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from keras3_samples import exported

import cudnn_convert
from cudnn_convert import layouts
from cudnn_convert.errors import VerificationError
from cudnn_convert.graph import stored
from cudnn_convert.graph.stored import Stored
from cudnn_convert.layouts import Layout
from cudnn_convert.lower import functions, unpacked
from cudnn_convert.model import Gate, Mode

NEWEST = "keras-3.15.1"
PAIRS = [
    (Mode.LSTM, Gate.INPUT, Gate.FORGET),
    (Mode.LSTM, Gate.FORGET, Gate.OUTPUT),
    (Mode.LSTM, Gate.CELL, Gate.OUTPUT),
    (Mode.GRU, Gate.UPDATE, Gate.RESET),
]

pytestmark = pytest.mark.xdist_group("repaired")
each_pair = pytest.mark.parametrize(("mode", "one", "other"), PAIRS)


def swapped(layout: Layout, mode: Mode, one: Gate, other: Gate) -> Layout:
    """The layout with two gates of one mode in each other's place."""
    places = {one: other, other: one}
    gates = {**layout.gates, mode: tuple(places.get(gate, gate) for gate in layout.gates[mode])}
    return dataclasses.replace(layout, gates=MappingProxyType(gates))


def caught(out: Path, case: str) -> None:
    with pytest.raises(VerificationError, match=r"output .*/"):
        cudnn_convert.convert(exported(f"{NEWEST}-{case}").path, out)
    assert not out.exists()


def found(monkeypatch: pytest.MonkeyPatch, change: Any) -> list[Stored]:
    """From now on a repair finds what `change` makes of the nodes that it would find; they are listed."""
    seen: list[Stored] = []
    find = stored.find

    def changed(*arguments: Any) -> tuple[Stored, ...]:
        seen.extend(find(*arguments))
        return tuple(change(seen))

    monkeypatch.setattr(stored, "find", changed)
    return seen


@each_pair
def test_gates_swapped_in_the_computation(
    out: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, one: Gate, other: Gate
) -> None:
    mutant = swapped(layouts.KERAS, mode, one, other)
    monkeypatch.setattr(functions, "layouts", SimpleNamespace(KERAS=mutant, LOOP=layouts.LOOP))
    caught(out, mode.value)


@each_pair
def test_gates_swapped_in_the_table_fit_no_matrix(
    out: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, one: Gate, other: Gate
) -> None:
    """The blob says what a variable holds: where that is not as looked for, the blob itself is taken."""
    monkeypatch.setattr(layouts, "KERAS", swapped(layouts.KERAS, mode, one, other))
    seen = found(monkeypatch, lambda nodes: nodes)
    report = cudnn_convert.convert(exported(f"{NEWEST}-{mode.value}").path, out)
    assert {one.matrices for one in seen} == {None}
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.parametrize(("mode", "one", "other"), [PAIRS[1], PAIRS[3]])
def test_gates_swapped_in_a_blob(
    out: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, one: Gate, other: Gate
) -> None:
    monkeypatch.setattr(unpacked, "LOOP", swapped(layouts.LOOP, mode, one, other))
    caught(out, "raw_ops")


@pytest.mark.parametrize("matrix", [0, 1, 2], ids=["kernel", "recurrent_kernel", "bias"])
def test_a_matrix_of_another_layer(out: Path, monkeypatch: pytest.MonkeyPatch, matrix: int) -> None:
    def mixed(nodes: list[Stored]) -> list[Stored]:
        first, second = nodes[:2]
        assert first.sizes == second.sizes
        assert first.function == second.function
        assert first.matrices is not None
        assert second.matrices is not None
        taken = [*first.matrices]
        taken[matrix] = second.matrices[matrix]
        return [dataclasses.replace(first, matrices=(taken[0], taken[1], taken[2])), *nodes[1:]]

    found(monkeypatch, mixed)
    caught(out, "bidirectional")


@pytest.mark.parametrize("case", ["masked", "masked_last", "go_backwards_masked"])
def test_dropped_lengths(out: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    def dropped(nodes: list[Stored]) -> list[Stored]:
        assert any(node.lengths for node in nodes)
        return [dataclasses.replace(node, lengths=False) for node in nodes]

    found(monkeypatch, dropped)
    caught(out, case)


def test_the_other_order_of_axes(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, lambda nodes: [dataclasses.replace(node, time_major=True) for node in nodes])
    caught(out, "lstm")


@pytest.mark.parametrize("case", ["lstm", "gru", "masked", "signatures", "raw_ops"])
def test_a_node_that_is_not_repaired(out: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    found(monkeypatch, lambda nodes: nodes[1:])
    with pytest.raises(RuntimeError, match="the artifact that was just written does not load"):
        cudnn_convert.convert(exported(f"{NEWEST}-{case}").path, out)
    assert not out.exists()
