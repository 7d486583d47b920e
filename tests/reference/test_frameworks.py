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


def test_layers_of_one_direction() -> None:
    """As many layers as no other number here, so that no number stands for another."""
    rng = np.random.default_rng(9)
    tensors = {
        f"{name}_l{layer}": rng.uniform(-0.7, 0.7, shape)
        for layer in range(3)
        for name, shape in (
            *(("weight_ih", (3 * UNITS, INPUTS if layer == 0 else UNITS)), ("weight_hh", (3 * UNITS, UNITS))),
            *(("bias_ih", (3 * UNITS,)), ("bias_hh", (3 * UNITS,))),
        )
    }
    cells = [
        {name: tensors[f"{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        for layer in range(3)
    ]
    common = {"layers": 3, "directions": 1}
    steps = reference.DIALECTS["torch"](tensors, "gru", **common)
    expected = reference.steps_from_blob(blob(cells), "gru", units=UNITS, input_size=INPUTS, **common)
    x, states = rng.normal(size=(5, 2, INPUTS)), rng.normal(size=(2, 3, 2, UNITS))
    answers = [reference.run(each, x, *states, directions=1) for each in (steps, expected)]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mode", COUNTS)
def test_a_skipped_input_goes_to_each_gate(mode: str) -> None:
    """Decoded weights have no kernel then; an identity gives the same."""
    (cell, *_) = parts(mode)
    named = {key: value for key, value in as_named([cell] * 4).items() if key.startswith("layer_0/forward")}
    skipping = {key: value for key, value in named.items() if not key.endswith("/kernel")}
    named["layer_0/forward/kernel"] = np.stack([np.eye(UNITS)] * COUNTS[mode])
    rng = np.random.default_rng(10)
    x, h, c = rng.normal(size=(3, 2, UNITS))
    common = {"layers": 1, "directions": 1}
    (skips,), (step,) = (reference.DIALECTS["named"](each, mode, **common) for each in (skipping, named))
    for each in (skips, skips.gates().step()):
        for own, expected in zip(each(x, h, c), step(x, h, c), strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-13)


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


def split_gates(cell: dict[str, Any], key: str, gates: str) -> dict[str, Any]:
    return dict(zip(gates, np.split(cell[key], len(gates)), strict=True))


def as_linen(cell: dict[str, Any], gates: str) -> dict[str, Any]:
    """Kernels and biases of each gate, as far as Flax has them; the others become 0 in `cell`."""
    named: dict[str, Any] = {}
    for side, weight, bias in (("i", "weight_ih", "bias_ih"), ("h", "weight_hh", "bias_hh")):
        has_bias = {"ifgo": "h" * 4, "rzn": "iii" if side == "i" else "__h", "h": "i"}[gates]
        blocks, vectors = split_gates(cell, weight, gates), split_gates(cell, bias, gates)
        for gate, owner in zip(gates, has_bias, strict=True):
            name = side if gate == "h" else side + gate
            named[f"{name}/kernel"] = blocks[gate].T.copy()
            if owner == side:
                named[f"{name}/bias"] = vectors[gate].copy()
            else:
                vectors[gate][:] = 0
    return named


def as_nnx(cell: dict[str, Any], gates: str) -> dict[str, Any]:
    """All gates side by side."""
    has_bias = "bias_hh" if gates == "ifgo" else "bias_ih"
    cell["bias_hh" if has_bias == "bias_ih" else "bias_ih"][:] = 0
    named = {"dense_i/kernel": cell["weight_ih"].T, "dense_h/kernel": cell["weight_hh"].T}
    return named | {f"dense_{has_bias[-2]}/bias": cell[has_bias].copy()}


@pytest.mark.parametrize("form", [as_linen, as_nnx])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", COUNTS)
def test_flaxs_cells_give_the_same_answers(mode: str, directions: int, form: Any) -> None:
    gates = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
    cells = parts(mode)[:directions]
    stored: dict[str, Any] = {}
    for place, cell in zip(("forward_rnn/", "backward_rnn/"), cells, strict=False):
        named = form(cell, gates)
        if mode == "lstm" and form is as_linen and place == "backward_rnn/":
            named["if_/kernel"] = named.pop("if/kernel")  # of nnx
        stored |= {(place if directions == 2 else "") + key: value for key, value in named.items()}
    assert cells[0]["bias_ih"].any() or cells[0]["bias_hh"].any()
    compare(stored, "flax", mode, cells, directions)


@pytest.mark.parametrize("double_bias", [True, False])
@pytest.mark.parametrize("mode", ["lstm", "rnn_relu"])
def test_haikus_cores_give_the_same_answers(mode: str, double_bias: bool) -> None:
    (cell, *_) = parts(mode)
    if mode == "lstm":
        cell["bias_hh"][:] = 0
        order = [gate for letter in "igfo" for gate in range(4) if "ifgo"[gate] == letter]
        rows = np.concatenate([np.arange(UNITS) + gate * UNITS for gate in order])
        weights = np.concatenate([cell["weight_ih"], cell["weight_hh"]], axis=1)[rows].T
        bias = cell["bias_ih"].copy()
        bias[UNITS : 2 * UNITS] -= 1  # which Haiku adds
        stored = {"linear/w": weights, "linear/b": bias[rows]}
    else:
        cell["bias_hh"] *= double_bias
        stored = {"linear/w": cell["weight_ih"].T, "linear/b": cell["bias_ih"]}
        stored |= {"linear_1/w": cell["weight_hh"].T}
        stored |= {"linear_1/b": cell["bias_hh"]} if double_bias else {}
    compare(stored, "haiku", mode, [cell], 1)


def compare(
    stored: dict[str, Any], dialect: str, mode: str, cells: list[dict[str, Any]], directions: int
) -> None:
    """The answers of one layer, gate by gate too, against those of the blob of its cells."""
    common = {"layers": 1, "directions": directions}
    steps = reference.DIALECTS[dialect](stored, mode, **common)
    expected = reference.steps_from_blob(blob(cells), mode, units=UNITS, input_size=INPUTS, **common)
    rng = np.random.default_rng(8)
    x, states = rng.normal(size=(5, 2, INPUTS)), rng.normal(size=(2, directions, 2, UNITS))
    answers = [reference.run(each, x, *states, directions=directions) for each in (steps, expected)]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    for step in steps:
        for one, other in zip(
            step(x[0], *states[:, 0]), step.gates().step()(x[0], *states[:, 0]), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
