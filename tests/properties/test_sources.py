"""What each source stores of the same weights: decoded to the same cells, and judged to compute the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import by_hand
from properties.budget import examples
from properties.strategies import MODES, Run, runs

from cudnn_convert import reference
from cudnn_convert.lower.tensorflow.tf1_cells import Cells
from cudnn_convert.model import Array, Cell, Convention, Mode
from cudnn_convert.weights import layouts, parameter_blob

#: What MIOpen has in cuDNN's places; those who convert its blob as cuDNN's write that down.
MIOPEN = {Mode.LSTM: "ifog", Mode.GRU: "zrn", Mode.RNN_TANH: "h", Mode.RNN_RELU: "h"}
ORDERS = st.sampled_from(["tf", "lingvo", "miopen"])
#: Added and taken away again, these leave float32 sums as good as they were.
BIASES = st.sampled_from([0.0, 1.0, 0.5])
WAYS = {
    1: ("rnn/multi_rnn_cell/cell_{layer}/",),
    2: tuple(f"stack_bidirectional_rnn/cell_{{layer}}/bidirectional_rnn/{way}/" for way in ("fw", "bw")),
}
SCOPES = {
    Mode.LSTM: "cudnn_compatible_lstm_cell/",
    Mode.GRU: "cudnn_compatible_gru_cell/",
    Mode.RNN_TANH: "basic_rnn_cell/",
    Mode.RNN_RELU: "basic_rnn_cell/",
}
#: The scope of each LSTM cell of TensorFlow 1, and what it adds to its forget gate by itself.
CELLS = {
    "compatible": ("cudnn_compatible_lstm_cell/", 0.0),
    "lstm_block": ("lstm_cell/", 1.0),
    "basic_lstm": ("basic_lstm_cell/", 1.0),
}


def stored(parts: by_hand.Parts, mode: Mode, convention: Convention) -> dict[str, Array]:
    """The variables of TensorFlow 1's cell as a writer of this convention leaves them."""
    if convention.gate_order == "miopen":
        parts = by_hand.relabelled(parts, by_hand.CUDNN[mode], MIOPEN[mode])
    lingvo = convention.gate_order == "lingvo" and mode is Mode.LSTM
    found = by_hand.canonical(mode, parts, "gifo" if lingvo else "")
    if mode is Mode.LSTM:
        lacking = np.zeros((4, parts.R["i"].shape[0]), found["bias"].dtype)
        lacking[2] = convention.forget_bias  # the forget gate's place in i g f o, g i f o and i o f g
        found["bias"] = found["bias"] - lacking.reshape(-1)
    return found


def keyed(run: Run, convention: Convention, scope: str) -> dict[str, Array]:
    """All of a network's, by the keys of its checkpoint."""
    return {
        f"{stem.format(layer=number)}{scope}{key}": value
        for number, layer in enumerate(run.parts)
        for stem, parts in zip(WAYS[run.directions], layer, strict=True)
        for key, value in stored(parts, run.mode, convention).items()
    }


def answers(run: Run, steps: Any) -> list[Array]:
    x, h, c = (run.fed[key].astype(np.float64) for key in "xhc")
    return list(reference.run(steps, x, h, c, directions=run.directions, lengths=run.fed.get("lengths")))


def close(found: Cell, parts: by_hand.Parts, mode: Mode) -> None:
    expected = by_hand.cell(mode, parts)
    for part in ("kernel", "recurrent_kernel"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), err_msg=part)
    total = expected.bias + expected.recurrent_bias
    np.testing.assert_allclose(found.bias + found.recurrent_bias, total, rtol=0, atol=1e-6)
    if mode is Mode.GRU:
        np.testing.assert_array_equal(found.bias[2], expected.bias[2])
        np.testing.assert_array_equal(found.recurrent_bias[2], expected.recurrent_bias[2])


@given(st.data(), MODES, ORDERS, BIASES)
@examples(80, runs=False)
def test_canonical_tensors(data: st.DataObject, mode: Mode, order: str, forget_bias: float) -> None:
    run, convention = data.draw(runs(mode, ["float32"], plain=True)), Convention(order, forget_bias)
    for parts in (parts for layer in run.parts for parts in layer):
        cell = layouts.unpack_contrib(mode, stored(parts, mode, convention))
        close(layouts.conventional(cell, convention, canonical=True), parts, mode)
    steps = reference.steps_from_canonical(
        keyed(run, convention, SCOPES[mode]),
        mode.value,
        layers=run.layers,
        directions=run.directions,
        gate_order=order,
        forget_bias=forget_bias,
    )
    run.judged(turned(run, answers(run, steps)), 1e-6)


@given(st.data(), MODES, ORDERS, BIASES)
@examples(80, runs=False)
def test_a_blob(data: st.DataObject, mode: Mode, order: str, forget_bias: float) -> None:
    """Lingvo's order and a forget bias are of canonical tensors alone."""
    run = data.draw(runs(mode, ["float32"]))
    letters = by_hand.CUDNN[mode], MIOPEN[mode] if order == "miopen" else by_hand.CUDNN[mode]
    kept = [[by_hand.relabelled(parts, *letters) for parts in layer] for layer in run.parts]
    blob, sizes = by_hand.blob(mode, kept), run.sizes
    convention = Convention(order, forget_bias)
    for layer, cells in zip(run.parts, parameter_blob.split(blob, sizes, where="blob"), strict=True):
        for parts, cell in zip(layer, cells, strict=True):
            found, expected = (
                layouts.conventional(cell, convention, canonical=False),
                by_hand.cell(mode, parts),
            )
            for part in ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "projection"):
                np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), err_msg=part)
    size = {"layers": sizes.layers, "directions": sizes.directions, "units": sizes.units}
    size |= {"input_size": sizes.input_size, "projection": sizes.projection}
    steps = reference.steps_from_blob(blob, mode.value, **size, skip_input=sizes.skip_input, gate_order=order)
    run.judged(turned(run, answers(run, steps)), 1e-12)


@given(st.data(), st.sampled_from([Mode.LSTM, Mode.GRU]))
@examples(80, runs=False)
def test_a_keras_layer(data: st.DataObject, mode: Mode) -> None:
    run = dataclasses.replace(data.draw(runs(mode, ["float32"], plain=True)), layers=1)
    stems = ("",) if run.directions == 1 else ("forward_layer/", "backward_layer/")
    tensors = {
        f"{stem}{key}": value
        for stem, parts in zip(stems, run.parts[0], strict=True)
        for key, value in by_hand.keras(mode, parts).items()
    }
    steps = reference.steps_from_keras(tensors, mode.value, layers=1, directions=run.directions)
    run.judged(turned(run, answers(run, steps)), 1e-12)


@given(st.data(), MODES, st.sampled_from(list(CELLS)))
@examples(80, runs=False)
def test_the_checkpoint_of_a_cpu_network(data: st.DataObject, mode: Mode, cell: str) -> None:
    """Every key where such a network looks for it, without what its cells add."""
    run = data.draw(runs(mode, ["float32"], plain=True))
    node, (scope, added) = run.recurrence(), CELLS[cell] if mode is Mode.LSTM else (SCOPES[mode], 0.0)
    found = Cells({node.shared: "scope/"}, cell, "fast").tensors(node, node.cells)
    stored = keyed(run, Convention(forget_bias=added), scope)
    expected = {f"scope/{key}": value for key, value in stored.items()}
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key, strict=True)


def turned(run: Run, found: list[Array]) -> list[Array]:
    """In the axis order of the node, as `Run.judged` takes them."""
    return [value if run.time_major else value.swapaxes(0, 1) for value in found[: run.outputs]]
