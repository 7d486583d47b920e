"""Nodes of a SavedModel found wrongly by a repair: its own verification sees that without its outputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from mutants.conversions import pass_outputs
from mutants.rows import swap
from support.keras3_samples import exported
from support.tiers import combinations, some

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.recurrences import saved_functions
from cudnn_convert.recurrences.saved_functions import FunctionRecurrence

NEWEST = "keras-3.15.1"


def caught(monkeypatch: pytest.MonkeyPatch, out: Path, case: str) -> None:
    pass_outputs(monkeypatch)
    with pytest.raises(VerificationError, match=r"by itself|op by op"):
        cudnn_convert.convert(exported(f"{NEWEST}-{case}").path, out)
    assert not out.exists()


def found(monkeypatch: pytest.MonkeyPatch, change: Any) -> list[FunctionRecurrence]:
    """From now on a repair finds what `change` makes of the nodes that it would find; they are listed."""
    seen: list[FunctionRecurrence] = []
    find = saved_functions.locate_packed_weights

    def changed(*arguments: Any) -> tuple[FunctionRecurrence, ...]:
        seen.extend(find(*arguments))
        return tuple(change(seen))

    monkeypatch.setattr(saved_functions, "locate_packed_weights", changed)
    return seen


@pytest.mark.parametrize(
    ("mode", "pair"), [(Mode.LSTM, (1, 3)), pytest.param(Mode.GRU, (0, 1), marks=pytest.mark.every)]
)
def test_gates_swapped_in_the_table_fit_no_matrix(
    out: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, pair: tuple[int, int]
) -> None:
    """The blob says what a variable holds: where that is not as looked for, the blob itself is taken."""
    swap(monkeypatch, "keras", mode, pair)
    seen = found(monkeypatch, lambda nodes: nodes)
    report = cudnn_convert.convert(exported(f"{NEWEST}-{mode.value}").path, out)
    assert {one.matrices for one in seen} == {None}
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.mutant
@combinations(
    lambda matrix: matrix == 1, matrix=[0, 1, 2], ids=["kernel", "recurrent_kernel", "bias"].__getitem__
)
def test_a_matrix_of_another_layer(out: Path, monkeypatch: pytest.MonkeyPatch, matrix: int) -> None:
    def mixed(nodes: list[FunctionRecurrence]) -> list[FunctionRecurrence]:
        first, second = nodes[:2]
        assert first.sizes == second.sizes
        assert first.function == second.function
        assert first.matrices is not None
        assert second.matrices is not None
        taken = [*first.matrices]
        taken[matrix] = second.matrices[matrix]
        return [dataclasses.replace(first, matrices=(taken[0], taken[1], taken[2])), *nodes[1:]]

    found(monkeypatch, mixed)
    caught(monkeypatch, out, "bidirectional")


@pytest.mark.mutant
@pytest.mark.parametrize("case", some(["masked_last"], "masked", "go_backwards_masked"))
def test_dropped_lengths(out: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    def dropped(nodes: list[FunctionRecurrence]) -> list[FunctionRecurrence]:
        assert any(node.lengths for node in nodes)
        return [dataclasses.replace(node, lengths=False) for node in nodes]

    found(monkeypatch, dropped)
    caught(monkeypatch, out, case)


@pytest.mark.mutant
def test_the_other_order_of_axes(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, lambda nodes: [dataclasses.replace(node, time_major=True) for node in nodes])
    caught(monkeypatch, out, "lstm")


@pytest.mark.mutant
@pytest.mark.parametrize("case", some(["lstm"], "gru", "masked", "signatures", "raw_ops"))
def test_a_node_that_is_not_repaired(out: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    found(monkeypatch, lambda nodes: nodes[1:])
    with pytest.raises(RuntimeError, match="the artifact that was just written does not load"):
        cudnn_convert.convert(exported(f"{NEWEST}-{case}").path, out)
    assert not out.exists()
