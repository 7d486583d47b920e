"""The weights of a step gate by gate: another writing of the same equations, in any order of summation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cudnn_convert import reference
from cudnn_convert.reference.steps import CellStep

BATCH, INPUTS, UNITS, WIDTH = 6, 4, 5, 3
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
ORDERS = ("tf", "lingvo", "miopen")


def blob_steps(mode: str, *, skip_input: bool = False, projection: int = 0, **given: Any) -> list[CellStep]:
    """Two layers of two directions of random weights, both biases among them."""
    gates, width = GATES[mode], projection or UNITS
    inputs = UNITS if skip_input else INPUTS
    sizes = [0 if skip_input else gates * UNITS * inputs, gates * UNITS * 2 * width]
    each = gates * UNITS * width + 2 * gates * UNITS + projection * UNITS
    blob = np.random.default_rng(5).uniform(-0.6, 0.6, 2 * (sum(sizes) + 2 * each))
    return list(
        reference.steps_from_blob(
            blob, mode, layers=2, directions=2, units=UNITS, input_size=inputs, skip_input=skip_input,
            projection=projection, **given,
        )
    )  # fmt: skip


def canonical_steps(mode: str, **given: Any) -> list[CellStep]:
    rng = np.random.default_rng(6)
    stem = "rnn/multi_rnn_cell/cell_0/"
    shapes = {
        "lstm": {"cudnn_compatible_lstm_cell/kernel": (INPUTS + UNITS, 4 * UNITS),
                 "cudnn_compatible_lstm_cell/bias": (4 * UNITS,)},
        "gru": {"cudnn_compatible_gru_cell/gates/kernel": (INPUTS + UNITS, 2 * UNITS),
                "cudnn_compatible_gru_cell/gates/bias": (2 * UNITS,),
                "cudnn_compatible_gru_cell/candidate/input_projection/kernel": (INPUTS, UNITS),
                "cudnn_compatible_gru_cell/candidate/input_projection/bias": (UNITS,),
                "cudnn_compatible_gru_cell/candidate/hidden_projection/kernel": (UNITS, UNITS),
                "cudnn_compatible_gru_cell/candidate/hidden_projection/bias": (UNITS,)},
    }  # fmt: skip
    plain = {"basic_rnn_cell/kernel": (INPUTS + UNITS, UNITS), "basic_rnn_cell/bias": (UNITS,)}
    tensors = {stem + name: rng.uniform(-0.6, 0.6, shape) for name, shape in shapes.get(mode, plain).items()}
    return list(reference.steps_from_canonical(tensors, mode, layers=1, directions=1, **given))


def keras_steps(mode: str, **given: Any) -> list[CellStep]:
    rng, gates = np.random.default_rng(7), GATES[mode]
    shapes = {
        "kernel": (INPUTS, gates * UNITS),
        "recurrent_kernel": (UNITS, gates * UNITS),
        "bias": (2 * gates * UNITS,),
    }
    tensors = {
        f"{way}_layer/{name}": rng.uniform(-0.6, 0.6, shape)
        for way in ("forward", "backward")
        for name, shape in shapes.items()
    }  # fmt: skip
    return list(reference.steps_from_keras(tensors, mode, layers=1, directions=2, **given))


def in_each_order(kind: str, make: Callable[..., list[CellStep]], modes: Iterable[str]) -> dict[str, Any]:
    return {
        f"{kind}-{mode}-{order}": (make, mode, {"gate_order": order}) for mode in modes for order in ORDERS
    }


CASES = {
    **in_each_order("blob", blob_steps, GATES),
    **{f"skipped-{mode}": (blob_steps, mode, {"skip_input": True}) for mode in GATES},
    "projected": (blob_steps, "lstm", {"projection": WIDTH}),
    **in_each_order("cells", canonical_steps, GATES),
    "cells-forget-bias": (canonical_steps, "lstm", {"forget_bias": 1.0}),
    **in_each_order("keras", keras_steps, ("lstm", "gru")),
    "keras-forget-bias": (keras_steps, "lstm", {"forget_bias": 1.0}),
    "keras-no-forget-gate": (keras_steps, "gru", {"forget_bias": 1.0}),
}


def fed(step: CellStep, seed: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gates, rng = step.gates(), np.random.default_rng(seed)
    widths = (gates.inputs, gates.width, gates.units)
    x, h, c = (rng.standard_normal((BATCH, width)) for width in widths)
    return x, h, c


@pytest.mark.parametrize("case", CASES)
def test_gates_are_the_weights_that_the_dialects_own_equations_take(case: str) -> None:
    make, mode, given = CASES[case]
    for step in make(mode, **given):
        wanted, found = step(*fed(step)), step.gates().step()(*fed(step))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12, atol=1e-13)
        if mode == "lstm":
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", ["blob-lstm-tf", "blob-gru-tf", "skipped-gru", "projected", "keras-gru-tf"])
def test_another_order_of_summation_rounds_otherwise_and_computes_the_same(case: str) -> None:
    make, mode, given = CASES[case]
    (first, *_) = make(mode, **given, dtype=np.float32)
    x, h, c = (value.astype(np.float32) for value in fed(first))
    natural, other = first(x, h, c), first.gates().step(np.random.default_rng(1))(x, h, c)
    assert other[0].dtype == np.float32
    assert np.any(other[0] != natural[0])
    np.testing.assert_allclose(other[0], natural[0], rtol=1e-5, atol=1e-6)


def test_a_composed_cell_is_the_projected_one_on_the_state_before_it() -> None:
    (step, *_) = blob_steps("lstm", projection=WIDTH)
    gates = step.gates()
    assert (gates.units, gates.width, gates.inputs) == (UNITS, WIDTH, INPUTS)
    x, _, c = fed(step)
    before = np.random.default_rng(9).standard_normal((BATCH, UNITS))
    wanted = step(x, before @ gates.projection.T, c)
    found = gates.compose_projection().step()(x, before, c)
    np.testing.assert_allclose(found[0] @ gates.projection.T, wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)


def test_without_a_projection_nothing_is_composed() -> None:
    gates = blob_steps("gru")[0].gates()
    assert gates.compose_projection() is gates


@pytest.mark.parametrize("given", [{"projection": WIDTH}, {"skip_input": True}, {}])
def test_weights_of_another_type(given: dict[str, Any]) -> None:
    gates = blob_steps("lstm", **given)[0].gates()
    narrow = gates.as_type(np.float32)
    assert (narrow.kernel is None) == ("skip_input" in given)
    assert (narrow.projection is None) == ("projection" not in given)
    groups = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
    pairs = [
        pair
        for name in groups
        for pair in zip(getattr(gates, name) or (), getattr(narrow, name) or (), strict=True)
    ]
    pairs += [(gates.projection, narrow.projection)] if "projection" in given else []
    assert len(pairs) == 16 + ("projection" in given) - 4 * ("skip_input" in given)
    for wide, other in pairs:
        np.testing.assert_array_equal(other, wide.astype(np.float32), strict=True)


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("lstm", ("input", "forget", "cell", "output")),
        ("gru", ("reset", "update", "candidate")),
        ("rnn_relu", ("hidden",)),
    ],
)
def test_gates_have_their_names(mode: str, names: tuple[str, ...]) -> None:
    assert blob_steps(mode)[0].gates().names == names


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
def test_activations_are_inexact_in_another_order(mode: str) -> None:
    """All matrices are 0 here, so that sums are the same in any order."""
    gates = blob_steps(mode)[0].gates().as_type(np.float32)
    assert gates.kernel is not None
    zeros = {
        part: tuple(0 * matrix for matrix in getattr(gates, part)) for part in ("kernel", "recurrent_kernel")
    }
    gates = replace(gates, **zeros)
    x, h, c = (value.astype(np.float32) for value in fed(gates.step()))
    natural, other = gates.step()(x, h, c), gates.step(np.random.default_rng(1))(x, h, c)
    assert np.any(other[0] != natural[0])
    np.testing.assert_allclose(other[0], natural[0], rtol=1e-5, atol=1e-6)


def test_layers_are_handed_out_as_a_run_computes_them() -> None:
    steps, rng = blob_steps("lstm", projection=WIDTH), np.random.default_rng(10)
    x, lengths = rng.standard_normal((4, 3, INPUTS)), np.array([4, 0, 2])
    h0, c0 = rng.standard_normal((4, 3, WIDTH)), rng.standard_normal((4, 3, UNITS))
    y, h, c = reference.run(steps, x, h0, c0, directions=2, lengths=lengths)
    first, last = reference.layers(steps, x, h0, c0, directions=2, lengths=lengths)
    assert (first.x.shape, first.y.shape, last.x.shape) == (
        (4, 3, INPUTS),
        (4, 3, 2 * WIDTH),
        (4, 3, 2 * WIDTH),
    )
    np.testing.assert_array_equal(first.y, last.x)
    np.testing.assert_array_equal(last.y, y)
    np.testing.assert_array_equal(np.concatenate([first.h, last.h]), h)
    np.testing.assert_array_equal(np.concatenate([first.c, last.c]), c)
    np.testing.assert_array_equal(first.h[:, 1], h0[:2, 1])  # a row without steps
    alone, _, _ = reference.run(steps[:2], x, h0[:2], c0[:2], directions=2, lengths=lengths)
    np.testing.assert_array_equal(alone, first.y)
