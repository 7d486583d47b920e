"""A parameter blob taken apart in TensorFlow ops: every element where the reference has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import Case

from cudnn_convert.lower.tensorflow import lower
from cudnn_convert.model import Array, Convention, Mode, Sizes

TF = Convention()


def taken_apart(case: Case, convention: Convention = TF) -> list[Array]:
    return [part.numpy() for part in lower.slice_blob(tf.constant(case.blob), case.sizes, convention)]


def by_hand(case: Case, order: list[int], source: list[int] | None = None) -> list[Array]:
    """The blob cut in NumPy: matrices of every pseudo-layer in turn, its projection last, then biases.

    Columns are gates in the `order` of cuDNN's; `source` says what lies where TensorFlow has each gate.
    """
    sizes, gates, width, blob = case.sizes, len(case.mode.gates), case.sizes.width, case.blob
    picked = [(source or [*range(gates)])[gate] for gate in order]
    matrices, at = [], 0

    def block(count: int, rows: int, columns: int) -> Array:
        nonlocal at
        found = blob[at : at + count * rows * columns].reshape(count, rows, columns)
        at += found.size
        return found

    for p in range(case.depth):
        layer = p // sizes.directions
        inputs = case.inputs if layer == 0 else sizes.directions * width
        skipped = sizes.skip_input and layer == 0
        kernel = np.stack([np.eye(sizes.units)] * gates) if skipped else block(gates, sizes.units, inputs)
        recurrent = block(gates, sizes.units, width)
        pair = [part[picked].reshape(-1, part.shape[-1]).T for part in (kernel, recurrent)]
        matrices.append((*pair, [block(1, width, sizes.units)[0].T] if case.projection else []))
    found: list[Array] = []
    for *pair, projection in matrices:
        ours, theirs = (block(1, gates, sizes.units)[0][picked].reshape(-1) for _ in range(2))
        found += pair
        found += [ours, theirs] if case.mode is Mode.GRU else [ours + theirs]
        found += projection
    assert at == blob.size
    return found


@pytest.mark.parametrize(
    ("case", "order"),
    [
        (Case(Mode.LSTM, 2, 2), [0, 1, 3, 2]),
        (Case(Mode.LSTM, 2, 2, projection=3), [0, 1, 3, 2]),
        (Case(Mode.GRU, 2, 2), [0, 1, 2]),
        (Case(Mode.GRU, 2, 1, input_mode="skip_input", dtype="float64"), [0, 1, 2]),
        (Case(Mode.RNN_TANH, 1, 2, dtype="float16"), [0]),
        (Case(Mode.RNN_RELU, 3, 1), [0]),
        (Case(Mode.LSTM, 1, 2, input_mode="skip_input", projection=5), [0, 1, 3, 2]),
    ],
)
def test_every_tensor_of_every_pseudo_layer(case: Case, order: list[int]) -> None:
    same(taken_apart(case), by_hand(case, order), case)
    assert len(taken_apart(case)) == case.depth * lower.count(case.sizes)


def test_what_miopen_keeps_elsewhere() -> None:
    """i, f, o, c and z, r where cuDNN has i, f, c, o and r, z (tf_keras v2.21.0 src/layers/rnn/gru.py)."""
    convention = Convention(gate_order="miopen")
    lstm, gru = Case(Mode.LSTM, 1, 2), Case(Mode.GRU, 2, 1)
    same(taken_apart(lstm, convention), by_hand(lstm, [0, 1, 3, 2], [0, 1, 3, 2]), lstm)
    same(taken_apart(gru, convention), by_hand(gru, [0, 1, 2], [1, 0, 2]), gru)


def test_canonical_tensors_conventions_do_not_reach_a_blob() -> None:
    case = Case(Mode.LSTM)
    same(taken_apart(case, Convention("lingvo", 1.0)), by_hand(case, [0, 1, 3, 2]), case)


def same(found: list[Array], expected: list[Array], case: Case) -> None:
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == case.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-3 if case.dtype == "float16" else 1e-6)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(Mode.LSTM, 1, 1, 2, 3), 3),
        (Sizes(Mode.LSTM, 1, 1, 2, 3, projection=1), 4),
        (Sizes(Mode.GRU, 1, 1, 2, 3), 4),
        (Sizes(Mode.RNN_TANH, 1, 1, 2, 3), 3),
    ],
)
def test_how_many_tensors_a_pseudo_layer_has(sizes: Any, expected: int) -> None:
    assert lower.count(sizes) == expected
