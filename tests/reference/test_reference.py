"""The judge of everything else, judged by arithmetic spelled out and by TensorFlow's own cells."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, tanh
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert import reference
from cudnn_convert.model import Mode, Sizes
from cudnn_convert.reference import steps
from cudnn_convert.weights import parameter_blob

MODES = pytest.mark.parametrize("mode", [mode.value for mode in Mode])
TIME, BATCH, INPUTS, UNITS = 5, 3, 4, 2


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


# One unit, one input, two steps: x = 1, then -2; h0 = 0.5, c0 = -0.25.
STEPS, H0, C0 = (1.0, -2.0), 0.5, -0.25
#: W of each gate, R of each gate, bW of each gate, bR of each gate.
LSTM = (0.1, 0.2, 0.3, 0.4, -0.5, -0.6, 0.7, 0.8, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08)
GRU = (0.1, 0.2, 0.3, -0.4, 0.5, -0.6, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
PLAIN = (0.1, 0.2, 0.3, 0.4)


def lstm_by_hand() -> list[tuple[float, float]]:
    h, c, found = H0, C0, []
    for x in STEPS:
        i = sigmoid(0.1 * x - 0.5 * h + 0.01 + 0.05)
        f = sigmoid(0.2 * x - 0.6 * h + 0.02 + 0.06)
        g = tanh(0.3 * x + 0.7 * h + 0.03 + 0.07)
        o = sigmoid(0.4 * x + 0.8 * h + 0.04 + 0.08)
        c = f * c + i * g
        h = o * tanh(c)
        found.append((h, c))
    return found


def gru_by_hand() -> list[tuple[float, float]]:
    h, found = H0, []
    for x in STEPS:
        r = sigmoid(0.1 * x - 0.4 * h + 0.01 + 0.04)
        z = sigmoid(0.2 * x + 0.5 * h + 0.02 + 0.05)
        n = tanh(0.3 * x + 0.03 + r * (-0.6 * h + 0.06))
        h = (1 - z) * n + z * h
        found.append((h, C0))
    return found


def plain_by_hand(act: Any) -> list[tuple[float, float]]:
    first = act(0.1 * 1.0 + 0.2 * H0 + 0.3 + 0.4)
    return [(first, C0), (act(0.1 * -2.0 + 0.2 * first + 0.3 + 0.4), C0)]


BY_HAND = {
    "lstm": (LSTM, lstm_by_hand()),
    "gru": (GRU, gru_by_hand()),
    "rnn_tanh": (PLAIN, plain_by_hand(tanh)),
    "rnn_relu": (PLAIN, plain_by_hand(lambda x: max(x, 0.0))),
}


@MODES
def test_one_unit_by_hand(mode: str) -> None:
    blob, expected = BY_HAND[mode]
    steps = reference.steps_from_blob(np.array(blob), mode, layers=1, directions=1, units=1, input_size=1)
    x = np.array(STEPS).reshape(2, 1, 1)
    y, h, c = reference.run(steps, x, np.full((1, 1, 1), H0), np.full((1, 1, 1), C0), directions=1)
    np.testing.assert_allclose(y.ravel(), [pair[0] for pair in expected], rtol=1e-14)
    np.testing.assert_allclose([h.item(), c.item()], expected[-1], rtol=1e-14)


def test_the_hand_made_numbers_are_what_they_were() -> None:
    """Literal values, so that an error in the formulas above is not an error of both sides."""
    firsts = {mode: round(pairs[0][0], 6) for mode, (_, pairs) in BY_HAND.items()}
    assert firsts == {"lstm": 0.127019, "gru": 0.391812, "rnn_tanh": 0.716298, "rnn_relu": 0.9}


def test_a_skipped_input_by_hand() -> None:
    """One unit, x standing where W x did: both biases of the first layer remain."""
    blob = np.array(GRU[3:])
    steps = reference.steps_from_blob(
        blob, "gru", layers=1, directions=1, units=1, input_size=1, skip_input=True
    )
    h, _ = steps[0](np.array([[1.0]]), np.array([[H0]]), np.zeros((1, 1)))
    r = sigmoid(1.0 - 0.4 * H0 + 0.01 + 0.04)
    z = sigmoid(1.0 + 0.5 * H0 + 0.02 + 0.05)
    n = tanh(1.0 + 0.03 + r * (-0.6 * H0 + 0.06))
    np.testing.assert_allclose(h, [[(1 - z) * n + z * H0]], rtol=1e-14)


def test_a_projection_by_hand() -> None:
    """Two units, one input, one projected value: R is [2, 1], Q [1, 2] stands behind all R."""
    w, r, q = np.linspace(-0.5, 0.6, 8), np.linspace(0.7, -0.4, 8), np.array([0.3, -0.8])
    b_w, b_r = np.linspace(0.01, 0.08, 8), np.linspace(-0.05, 0.09, 8)
    steps = reference.steps_from_blob(
        np.concatenate([w, r, q, b_w, b_r]),
        "lstm", layers=1, directions=1, units=2, input_size=1, projection=1,
    )  # fmt: skip
    x, h0, c0 = 1.5, H0, (-0.25, 0.75)
    h, c = steps[0](np.array([[x]]), np.array([[h0]]), np.array([c0]))
    sums = [w[k] * x + r[k] * h0 + b_w[k] + b_r[k] for k in range(8)]  # i i f f g g o o
    cell = [sigmoid(sums[2 + k]) * c0[k] + sigmoid(sums[k]) * tanh(sums[4 + k]) for k in (0, 1)]
    outputs = [sigmoid(sums[6 + k]) * tanh(cell[k]) for k in (0, 1)]
    np.testing.assert_allclose(c, [cell], rtol=1e-14)
    np.testing.assert_allclose(h, [[0.3 * outputs[0] - 0.8 * outputs[1]]], rtol=1e-14)


@MODES
@pytest.mark.parametrize("directions", [1, 2])
def test_a_skipped_input_is_an_identity_kernel(mode: str, directions: int) -> None:
    gates, sizes = len(Mode(mode).gates), Sizes(Mode(mode), 2, directions, UNITS, UNITS, skip_input=True)
    blob = np.random.default_rng(5).uniform(-0.7, 0.7, parameter_blob.length(sizes))
    one, whole, at = np.tile(np.eye(UNITS), (gates, 1)).ravel(), [], 0
    for _ in range(directions):
        whole += [one, blob[at : at + gates * UNITS * UNITS]]
        at += gates * UNITS * UNITS
    common = {"layers": 2, "directions": directions, "units": UNITS, "input_size": UNITS}
    skipped = reference.steps_from_blob(blob, mode, skip_input=True, **common)
    linear = reference.steps_from_blob(np.concatenate([*whole, blob[at:]]), mode, **common)
    _, h0, c0 = inputs(2, directions)
    x = np.random.default_rng(8).normal(size=(TIME, BATCH, UNITS))
    for found, expected in zip(
        reference.run(skipped, x, h0, c0, directions=directions),
        reference.run(linear, x, h0, c0, directions=directions),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_projected_network_has_states_of_two_widths() -> None:
    sizes = Sizes(Mode.LSTM, 2, 2, 4, INPUTS, projection=3)
    blob = np.random.default_rng(5).uniform(-0.7, 0.7, parameter_blob.length(sizes))
    steps = reference.steps_from_blob(
        blob, "lstm", layers=2, directions=2, units=4, input_size=INPUTS, projection=3
    )
    x = np.random.default_rng(6).normal(size=(TIME, BATCH, INPUTS))
    y, h, c = reference.run(steps, x, np.ones((4, BATCH, 3)), np.ones((4, BATCH, 4)), directions=2)
    assert (y.shape, h.shape, c.shape) == ((TIME, BATCH, 6), (4, BATCH, 3), (4, BATCH, 4))
    np.testing.assert_array_equal(y[-1, :, :3], h[2])
    np.testing.assert_array_equal(y[0, :, 3:], h[3])


def weights(mode: str, *, layers: int = 1, directions: int = 1, seed: int = 3) -> np.ndarray:
    sizes = Sizes(Mode(mode), layers, directions, UNITS, INPUTS)
    return np.random.default_rng(seed).uniform(-0.7, 0.7, parameter_blob.length(sizes))


def inputs(layers: int = 1, directions: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    state = (layers * directions, BATCH, UNITS)
    return rng.normal(size=(TIME, BATCH, INPUTS)), rng.normal(size=state), rng.normal(size=state)


def computed(
    mode: str, x: Any, h0: Any, c0: Any, *, layers: int = 1, directions: int = 1, lengths: Any = None
) -> tuple[np.ndarray, ...]:
    blob = weights(mode, layers=layers, directions=directions)
    sizes = {"layers": layers, "directions": directions, "units": UNITS, "input_size": x.shape[2]}
    steps = reference.steps_from_blob(blob, mode, **sizes)
    return reference.run(steps, x, h0, c0, directions=directions, lengths=lengths)


def test_tensorflows_own_lstm_cell_agrees() -> None:
    x, h, c = (value.astype(np.float32) for value in inputs())
    blob = weights("lstm").astype(np.float32)
    matrices, rest = blob[: 4 * UNITS * (INPUTS + UNITS)], blob[4 * UNITS * (INPUTS + UNITS) :]
    kernel = matrices[: 4 * UNITS * INPUTS].reshape(4, UNITS, INPUTS)
    recurrent = matrices[4 * UNITS * INPUTS :].reshape(4, UNITS, UNITS)
    order = [0, 2, 1, 3]  # tensorflow v2.21.0 LSTMBlockCell: icfo
    w = np.vstack([np.hstack([kernel[g].T for g in order]), np.hstack([recurrent[g].T for g in order])])
    b = np.concatenate([rest[:8].reshape(4, 2)[g] + rest[8:].reshape(4, 2)[g] for g in order])
    peephole, h_tf, c_tf, found = np.zeros(UNITS, np.float32), h[0], c[0], []
    for step in x:
        out = tf.raw_ops.LSTMBlockCell(
            x=step, cs_prev=c_tf, h_prev=h_tf, w=w, wci=peephole, wcf=peephole, wco=peephole, b=b,
            forget_bias=0.0, cell_clip=-1.0,
        )  # fmt: skip
        h_tf, c_tf = out.h, out.cs
        found.append(h_tf)
    y, h_n, c_n = computed("lstm", *(value.astype(np.float64) for value in (x, h, c)))
    np.testing.assert_allclose(y, np.array(found), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h_n[0], h_tf, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c_n[0], c_tf, rtol=1e-5, atol=1e-6)


def canonical(mode: str, blob: np.ndarray, *, layers: int, directions: int) -> dict[str, np.ndarray]:
    """The compatible cells' variables of a blob, by slices counted here."""
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    cell = {"lstm": "cudnn_compatible_lstm_cell", "gru": "cudnn_compatible_gru_cell"}.get(
        mode, "basic_rnn_cell"
    )
    at, pairs, found = 0, [], {}

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        at += int(np.prod(shape))
        return blob[at - int(np.prod(shape)) : at].reshape(shape)

    for layer in range(layers):
        width = INPUTS if layer == 0 else directions * UNITS
        for way in ("fw", "bw")[:directions]:
            stem = (
                f"rnn/multi_rnn_cell/cell_{layer}/{cell}/"
                if directions == 1
                else f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/{cell}/"
            )
            pairs.append((stem, take(gates, UNITS, width), take(gates, UNITS, UNITS)))
    for stem, w, r in pairs:
        b, c = take(gates, UNITS), take(gates, UNITS)
        both = [np.vstack([w[g].T, r[g].T]) for g in range(gates)]
        if mode == "gru":
            found[f"{stem}gates/kernel"] = np.hstack(both[:2])
            found[f"{stem}gates/bias"] = (b + c)[:2].ravel()
            found[f"{stem}candidate/input_projection/kernel"] = w[2].T
            found[f"{stem}candidate/input_projection/bias"] = b[2]
            found[f"{stem}candidate/hidden_projection/kernel"] = r[2].T
            found[f"{stem}candidate/hidden_projection/bias"] = c[2]
        else:
            order = [0, 2, 1, 3] if mode == "lstm" else [0]
            found[f"{stem}kernel"] = np.hstack([both[g] for g in order])
            found[f"{stem}bias"] = (b + c)[order].ravel()
    return found


@MODES
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (1, 2), (3, 1), (2, 2)])
def test_blob_and_canonical_tensors_agree(mode: str, layers: int, directions: int) -> None:
    x, h0, c0 = inputs(layers, directions)
    tensors = canonical(
        mode, weights(mode, layers=layers, directions=directions), layers=layers, directions=directions
    )
    steps = reference.steps_from_canonical(tensors, mode, layers=layers, directions=directions)
    found = reference.run(steps, x, h0, c0, directions=directions)
    expected = computed(mode, x, h0, c0, layers=layers, directions=directions)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    assert np.ptp(expected[0], axis=0).max() > 0.1, "an answer that never changes proves nothing"


@pytest.mark.parametrize(
    ("order", "mode", "moved"),
    [
        ("lingvo", "lstm", [0, 1, 2, 3]),
        ("lingvo", "gru", [0, 1, 2]),
        ("miopen", "lstm", [0, 1, 3, 2]),  # i, f, o, c
        ("miopen", "gru", [1, 0, 2]),
    ],
)
def test_gates_of_a_blob_in_another_order(order: str, mode: str, moved: list[int]) -> None:
    gates = len(moved)
    w, r, b = np.split(weights(mode), np.cumsum([gates * UNITS * INPUTS, gates * UNITS * UNITS]))
    parts = [w.reshape(gates, -1), r.reshape(gates, -1), *b.reshape(2, gates, -1)]
    blob = np.concatenate([part[moved].ravel() for part in parts])
    said: Any = {"layers": 1, "directions": 1, "units": UNITS, "input_size": INPUTS, "gate_order": order}
    found = reference.run(reference.steps_from_blob(blob, mode, **said), *inputs(), directions=1)
    for one, other in zip(found, computed(mode, *inputs()), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("order", "moved"), [("lingvo", [1, 0, 2, 3]), ("miopen", [0, 3, 2, 1])])
def test_gates_of_a_canonical_lstm_in_another_order(order: str, moved: list[int]) -> None:
    """TensorFlow's kernel has i, c, f, o."""
    tensors = canonical("lstm", weights("lstm"), layers=1, directions=1)
    columns = {key: value.reshape(*value.shape[:-1], 4, UNITS) for key, value in tensors.items()}
    other = {key: value[..., moved, :].reshape(tensors[key].shape) for key, value in columns.items()}
    steps = reference.steps_from_canonical(other, "lstm", layers=1, directions=1, gate_order=order)
    found = reference.run(steps, *inputs(), directions=1)
    for one, expected in zip(found, computed("lstm", *inputs()), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-12, atol=1e-13)


@MODES
def test_a_row_ends_at_its_own_length(mode: str) -> None:
    x, h0, c0 = inputs(directions=2)
    lengths = np.array([5, 2, 0])
    y, h, c = computed(mode, x, h0, c0, directions=2, lengths=lengths)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = computed(mode, x[:length, one], h0[:, one], c0[:, one], directions=2)
        np.testing.assert_allclose(y[:length, one], alone[0], rtol=1e-13)
        np.testing.assert_array_equal(y[length:, one], 0)
        np.testing.assert_allclose(h[:, one], alone[1], rtol=1e-13)
        np.testing.assert_allclose(c[:, one], alone[2], rtol=1e-13)
    np.testing.assert_array_equal(h[:, 2], h0[:, 2])  # no step: the initial state
    np.testing.assert_array_equal(c[:, 2], c0[:, 2])


def halves(blob: np.ndarray, mode: str) -> Sequence[np.ndarray]:
    """The blobs of each direction alone, of one layer that has both."""
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    size = gates * UNITS * (INPUTS + UNITS)
    matrices, biases = blob[: 2 * size].reshape(2, -1), blob[2 * size :].reshape(2, -1)
    return [np.concatenate(pair) for pair in zip(matrices, biases, strict=True)]


@MODES
def test_the_second_direction_runs_from_the_end(mode: str) -> None:
    x, h0, c0 = inputs(directions=2)
    y, h, c = computed(mode, x, h0, c0, directions=2)
    sizes = {"layers": 1, "directions": 1, "units": UNITS, "input_size": INPUTS}
    for way, blob in enumerate(halves(weights(mode, directions=2), mode)):
        steps, turn = reference.steps_from_blob(blob, mode, **sizes), slice(None, None, -1 if way else 1)
        one, h_one, c_one = reference.run(steps, x[turn], h0[way : way + 1], c0[way : way + 1], directions=1)
        np.testing.assert_array_equal(y[:, :, way * UNITS : (way + 1) * UNITS], one[turn])
        np.testing.assert_array_equal(h[way], h_one[0])
        np.testing.assert_array_equal(c[way], c_one[0])


@MODES
def test_a_run_without_steps_gives_the_initial_state(mode: str) -> None:
    x, h0, c0 = inputs()
    y, h, c = computed(mode, x[:0], h0, c0)
    assert y.shape == (0, BATCH, UNITS)
    np.testing.assert_array_equal(h, h0)
    np.testing.assert_array_equal(c, c0)


def test_parameters_left_over_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"^17 parameters, 16 used$"):
        reference.steps_from_blob(np.zeros(17), "lstm", layers=1, directions=1, units=1, input_size=1)


def test_values_without_a_gate_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        steps.order_gates("ifgo", [np.zeros(1)] * 3, "ifgo")


def test_a_keras_layer_is_one_layer() -> None:
    with pytest.raises(ValueError, match=r"^2 layers$"):
        reference.steps_from_keras({}, "lstm", layers=2, directions=1)


def test_a_forget_bias_is_added_to_keras_variables() -> None:
    rng = np.random.default_rng(6)
    shapes = {"kernel": (INPUTS, 4 * UNITS), "recurrent_kernel": (UNITS, 4 * UNITS), "bias": (8 * UNITS,)}
    tensors = {key: rng.uniform(-0.5, 0.5, shape) for key, shape in shapes.items()}
    raised = {**tensors, "bias": tensors["bias"].copy()}
    raised["bias"][UNITS : 2 * UNITS] += 0.75  # i, f, c, o: the forget gate is the second
    x, h, c = rng.standard_normal((3, INPUTS)), *rng.standard_normal((2, 3, UNITS))
    one, other = (
        reference.steps_from_keras(given, "lstm", layers=1, directions=1, forget_bias=bias)[0](x, h, c)
        for given, bias in ((tensors, 0.75), (raised, 0.0))
    )
    np.testing.assert_allclose(one, other, rtol=1e-14)


@pytest.mark.parametrize("order", ["tf", "miopen"])
@MODES
def test_regions_are_the_blob_with_a_forget_bias(mode: str, order: str) -> None:
    """The biases of the second direction follow those of the first; only an LSTM has a forget gate."""
    gates, rng = {"lstm": 4, "gru": 3}.get(mode, 1), np.random.default_rng(7)
    widths = ([INPUTS] * gates + [UNITS] * gates) * 2
    kernels = [rng.uniform(-0.5, 0.5, (UNITS, width)).astype(np.float32) for width in widths]
    biases = [rng.uniform(-0.5, 0.5, UNITS).astype(np.float32) for _ in widths]
    tensors = {str(k): region for k, region in enumerate([*kernels, *biases])}
    for k in (1, 9) if mode == "lstm" else ():
        biases[k] = biases[k] + np.float32(0.75)
    blob = np.concatenate([kernel.ravel() for kernel in kernels] + biases)
    x, h0, c0 = rng.standard_normal((TIME, BATCH, INPUTS)), *rng.uniform(-1, 1, (2, 2, BATCH, UNITS))
    for dtype in (np.float64, np.float32):
        said: Any = {"layers": 1, "directions": 2, "gate_order": order, "dtype": dtype}
        one = reference.steps_from_regions(tensors, mode, forget_bias=0.75, **said)
        other = reference.steps_from_blob(blob, mode, units=UNITS, input_size=INPUTS, **said)
        arrays = [value.astype(dtype) for value in (x, h0, c0)]
        found, expected = (reference.run(steps, *arrays, directions=2) for steps in (one, other))
        for got, want in zip(found, expected, strict=True):
            assert got.dtype == dtype
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def as_stored(dialect: str) -> Any:
    """The tensors of an LSTM of one layer as a dialect keeps them."""
    if dialect == "regions":
        ends = np.cumsum([UNITS * INPUTS] * 4 + [UNITS * UNITS] * 4 + [UNITS] * 7)
        return {str(k): region for k, region in enumerate(np.split(weights("lstm"), ends))}
    if dialect == "contrib":
        return canonical("lstm", weights("lstm"), layers=1, directions=1)
    shapes = {"kernel": (INPUTS, 4 * UNITS), "recurrent_kernel": (UNITS, 4 * UNITS), "bias": (8 * UNITS,)}
    return {name: np.random.default_rng(3).normal(size=shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("form", ["blob", "contrib", "keras", "regions"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_arithmetic_is_of_the_dtype_asked_for(form: str, dtype: Any) -> None:
    """The noise floor of a model is measured by running this in the model's own precision."""
    common = {"layers": 1, "directions": 1, "dtype": dtype}
    if form == "blob":
        sizes = {"units": UNITS, "input_size": INPUTS}
        (step,) = reference.steps_from_blob(weights("lstm"), "lstm", **sizes, **common)
    else:
        (step,) = reference.DIALECTS[form](as_stored(form), "lstm", forget_bias=0.75, **common)
    x, h0, c0 = (value.astype(dtype) for value in inputs())
    h, c = step(x[0], h0[0], c0[0])
    assert (h.dtype, c.dtype) == (dtype, dtype)


def test_a_saturated_gate_does_not_overflow() -> None:
    with np.errstate(all="raise"):
        assert steps.sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_keras_variables_are_evaluated_as_the_blob_that_keras_packs(mode: str, directions: int) -> None:
    """tensorflow v1.15.0 python/keras/layers/cudnn_recurrent.py `_process_batch`, spelled out."""
    rng, order = np.random.default_rng(5), (0, 1, 2, 3) if mode == "lstm" else (1, 0, 2)
    wide, tensors = len(order) * UNITS, {}
    blocks: list[list[Any]] = [[], []]
    for stem in ("",) if directions == 1 else ("forward_layer/", "backward_layer/"):
        kernels = [rng.uniform(-0.5, 0.5, (rows, wide)) for rows in (INPUTS, UNITS)]
        bias = rng.uniform(-0.5, 0.5, 2 * wide)
        tensors |= {f"{stem}kernel": kernels[0], f"{stem}recurrent_kernel": kernels[1], f"{stem}bias": bias}
        blocks[0] += [kernel[:, k * UNITS : (k + 1) * UNITS].ravel() for kernel in kernels for k in order]
        blocks[1] += [
            bias[n * wide + k * UNITS : n * wide + (k + 1) * UNITS] for n in range(2) for k in order
        ]
    blob = np.concatenate(blocks[0] + blocks[1])
    expected = reference.steps_from_blob(
        blob, mode, layers=1, directions=directions, units=UNITS, input_size=INPUTS
    )
    found = reference.steps_from_keras(tensors, mode, layers=1, directions=directions)
    states = rng.uniform(-1, 1, (2, directions, BATCH, UNITS))
    x = rng.normal(size=(TIME, BATCH, INPUTS))
    pairs = zip(
        *(reference.run(steps, x, *states, directions=directions) for steps in (found, expected)), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)


def test_steps_are_made_when_they_are_asked_for_and_end() -> None:
    asked = []
    made = steps.CellSteps(3, lambda number: asked.append(number) or number)
    assert len(made) == 3
    assert asked == []
    assert [*made] == asked == [0, 1, 2]
    for number in (3, -1):
        with pytest.raises(IndexError):
            made[number]
    assert asked == [0, 1, 2]
