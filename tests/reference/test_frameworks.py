"""The equations of other frameworks' weights, against cuDNN's own on the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert import reference

UNITS, INPUTS, LAYERS, WAYS = 4, 3, 2, ("", "_reverse")
#: The gates of a blob by their place: i, f, c, o and r, z, n.
COUNTS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def parts(mode: str, projection: int = 0) -> list[dict[str, Any]]:
    """The matrices and biases of each pseudo-layer, rows of gates in cuDNN's order."""
    rng, gates, width = np.random.default_rng(6), COUNTS[mode], projection or UNITS
    cells = []
    for layer in range(LAYERS):
        for _ in WAYS:
            inputs = INPUTS if layer == 0 else 2 * width
            shapes = {"weight_ih": (gates * UNITS, inputs), "weight_hh": (gates * UNITS, width)}
            shapes |= {"weight_hr": (projection, UNITS)} if projection else {}
            shapes |= {"bias_ih": (gates * UNITS,), "bias_hh": (gates * UNITS,)}
            cells.append({name: rng.uniform(-0.7, 0.7, shape) for name, shape in shapes.items()})
    return cells


def blob(cells: list[dict[str, Any]]) -> Any:
    matrices = [value.ravel() for cell in cells for key, value in cell.items() if key.startswith("weight")]
    biases = [value.ravel() for cell in cells for key, value in cell.items() if key.startswith("bias")]
    return np.concatenate(matrices + biases)


def as_torch(cells: list[dict[str, Any]]) -> dict[str, Any]:
    ends = [f"_l{layer}{way}" for layer in range(LAYERS) for way in WAYS]
    return {key + end: value for end, cell in zip(ends, cells, strict=True) for key, value in cell.items()}


def as_named(cells: list[dict[str, Any]]) -> dict[str, Any]:
    fields = {
        "weight_ih": "kernel",
        "weight_hh": "recurrent_kernel",
        "bias_ih": "bias",
        "bias_hh": "recurrent_bias",
    }
    ends = [f"layer_{layer}/{way}/" for layer in range(LAYERS) for way in ("forward", "backward")]
    named = {}
    for end, cell in zip(ends, cells, strict=True):
        for key, value in cell.items():
            if key == "weight_hr":
                named[f"{end}projection"] = value
            else:
                named[end + fields[key]] = value.reshape(-1, UNITS, *value.shape[1:])
    return named


def as_mxnet(cells: list[dict[str, Any]], head: str = "{side}{layer}_") -> dict[str, Any]:
    tails = {"weight_ih": "i2h_weight", "weight_hh": "h2h_weight", "weight_hr": "h2r_weight"}
    tails |= {"bias_ih": "i2h_bias", "bias_hh": "h2h_bias"}
    heads = [head.format(layer=layer, side=side) for layer in range(LAYERS) for side in "lr"]
    return {
        own + tails[key]: value for own, cell in zip(heads, cells, strict=True) for key, value in cell.items()
    }


FORMS = {"torch": as_torch, "named": as_named, "mxnet": as_mxnet}


@pytest.mark.parametrize("dialect", FORMS)
@pytest.mark.parametrize(("mode", "projection"), [*((mode, 0) for mode in COUNTS), ("lstm", 2)])
def test_the_same_numbers_give_the_same_answers(dialect: str, mode: str, projection: int) -> None:
    cells = parts(mode, projection)
    common = {"layers": LAYERS, "directions": 2}
    expected = reference.steps_from_blob(
        blob(cells), mode, units=UNITS, input_size=INPUTS, projection=projection, **common
    )
    steps = reference.DIALECTS[dialect](FORMS[dialect](cells), mode, **common)
    rng = np.random.default_rng(7)
    width = projection or UNITS
    states = rng.normal(size=(4, 2, width)), rng.normal(size=(4, 2, UNITS))
    x = rng.normal(size=(5, 2, INPUTS))
    answers = [reference.run(each, x, *states, directions=2) for each in (steps, expected)]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    for step in steps:  # the step gate by gate is written independently
        h, c = states[0][0], states[1][0]
        inputs = rng.normal(size=(2, step.gates().inputs))
        for one, other in zip(step(inputs, h, c), step.gates().step()(inputs, h, c), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("order", ["lingvo", "miopen"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_a_convention_moves_gates_and_biases(mode: str, order: str) -> None:
    """As in a source of TensorFlow whose gates stand at other places."""
    cells = parts(mode)
    letters = {"lstm": {"lingvo": "gifo", "miopen": "iofg"}, "gru": {"lingvo": "rz", "miopen": "zr"}}[mode][
        order
    ]
    usual = "igfo" if mode == "lstm" else "rz"
    gates = "ifgo" if mode == "lstm" else "rzn"
    holds = dict(zip(usual, letters, strict=True)) | {"n": "n"}
    moved = []
    for cell in cells:
        blocks = {
            key: dict(zip(gates, np.split(value, len(gates)), strict=True)) for key, value in cell.items()
        }
        moved.append(
            {key: np.concatenate([own[holds[gate]] for gate in gates]) for key, own in blocks.items()}
        )
        if mode == "lstm":
            cell["bias_ih"][UNITS : 2 * UNITS] += 0.75
    x, states = np.ones([3, 2, INPUTS]), (np.ones([4, 2, UNITS]), np.ones([4, 2, UNITS]))
    common = {"layers": LAYERS, "directions": 2}
    usual_steps = reference.DIALECTS["torch"](as_torch(cells), mode, **common)
    steps = reference.DIALECTS["torch"](as_torch(moved), mode, gate_order=order, forget_bias=0.75, **common)
    for one, other in zip(
        *(reference.run(each, x, *states, directions=2) for each in (steps, usual_steps)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("head", ["_unfused.{layer}.{side}_cell.", "1{layer}.{side}_cell."])
@pytest.mark.parametrize("mode", COUNTS)
def test_names_of_mxnet_give_the_same_answers(mode: str, head: str) -> None:
    """Gates apart have the letters of MXNet: an LSTM's c is g, and a GRU's o is n."""
    common = {"layers": LAYERS, "directions": 2}
    cells = parts(mode)
    together = as_mxnet(cells, head)
    letters = {"lstm": "ifco", "gru": "rzo"}.get(mode, "")
    apart = {}
    for key, value in together.items():
        start, _, kind = key.rpartition("_")
        blocks = dict(zip(letters, np.split(value, COUNTS[mode]), strict=False)) or {"": value}
        apart |= {"_".join(filter(None, (start, gate, kind))): block for gate, block in blocks.items()}
    expected = reference.steps_from_blob(blob(cells), mode, units=UNITS, input_size=INPUTS, **common)
    x, states = np.ones([3, 2, INPUTS]), (np.ones([4, 2, UNITS]), np.full([4, 2, UNITS], 0.5))
    answers = reference.run(expected, x, *states, directions=2)
    for tensors in (together, dict(reversed(apart.items()))):
        steps = reference.DIALECTS["mxnet"](tensors, mode, **common)
        for one, other in zip(reference.run(steps, x, *states, directions=2), answers, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


def test_weights_without_biases_and_of_a_cell() -> None:
    (cell, *_) = parts("gru")
    alone = {key: value for key, value in cell.items() if key.startswith("weight")}
    (step,) = reference.DIALECTS["torch"](alone, "gru", layers=1, directions=1)
    zeros = {key: np.zeros_like(cell[key]) for key in ("bias_ih", "bias_hh")}
    (other,) = reference.DIALECTS["torch"](alone | zeros, "gru", layers=1, directions=1)
    x, h = np.ones([2, INPUTS]), np.full([2, UNITS], 0.3)
    np.testing.assert_array_equal(step(x, h, h)[0], other(x, h, h)[0])
