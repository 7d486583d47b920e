"""Flax's names: cells of linen and nnx, directions, and what only looks like them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.decoded import assert_decoded_as_the_reference

from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory, Mode
from cudnn_convert.read.dialects import flax

PATH = Path("weights.msgpack")
UNITS, INPUTS = 5, 3
LSTM_STATES = ("hi", "hf", "hg", "ho")
#: The parts of each cell: of the input, of the state, those with a bias; its mode and its gates in each part.
CELLS = {
    "linen LSTM": (("ii", "if", "ig", "io"), LSTM_STATES, LSTM_STATES, Mode.LSTM, 1),
    "nnx LSTM": (("ii", "if_", "ig", "io"), LSTM_STATES, LSTM_STATES, Mode.LSTM, 1),
    "nnx optimized LSTM": (("dense_i",), ("dense_h",), ("dense_h",), Mode.LSTM, 4),
    "linen GRU": (("ir", "iz", "in"), ("hr", "hz", "hn"), ("ir", "iz", "in", "hn"), Mode.GRU, 1),
    "nnx GRU": (("dense_i",), ("dense_h",), ("dense_i",), Mode.GRU, 3),
    "linen simple": (("i",), ("h",), ("i",), Mode.RNN_TANH, 1),
    "nnx simple": (("dense_i",), ("dense_h",), ("dense_i",), Mode.RNN_TANH, 1),
}


def cell(kind: str, *, prefix: str = "", seed: int = 3, units: int = UNITS) -> dict[str, InMemory]:
    """The tensors of a cell, each of its own values."""
    inputs, states, biases, _, gates = CELLS[kind]
    shapes: dict[str, tuple[int, ...]] = {f"{part}/kernel": (INPUTS, gates * units) for part in inputs}
    shapes |= {f"{part}/kernel": (units, gates * units) for part in states}
    shapes |= {f"{part}/bias": (gates * units,) for part in biases}
    rng = np.random.default_rng(seed)
    return {prefix + key: InMemory(rng.normal(size=shape)) for key, shape in shapes.items()}


@pytest.mark.parametrize(
    "form", ["{}", "params/LSTMCell_0/{}", "params.encoder.cell.{}", "cell/{}/value", "['rnns'][0]{}"]
)
@pytest.mark.parametrize("kind", CELLS)
def test_a_cell(kind: str, form: str) -> None:
    tensors = {form.format(key): tensor for key, tensor in cell(kind).items()}
    if "[" in form:
        keys = {key: "".join(f"['{part}']" for part in key.split("/")) for key in cell(kind)}
        tensors = {form.format(keys[key]): tensor for key, tensor in cell(kind).items()}
        form = "rnns/0/{}"
    if "." in form:
        tensors = {key.replace("/", "."): tensor for key, tensor in tensors.items()}
    (found,) = flax.find(PATH, tensors)
    mode = CELLS[kind][3]
    assert found.modes == ((Mode.RNN_TANH, Mode.RNN_RELU) if mode is Mode.RNN_TANH else (mode,))
    assert (found.layers, found.directions, found.units, found.input_size) == (1, 1, UNITS, INPUTS)
    scope = form.partition("{}")[0].rstrip("./")
    assert found.scope == (f"{scope}/" if scope else "")
    assert found.batch_major and found.note is not None
    assert found.note.startswith(f"{scope or 'the root scope'}: read as ")
    assert "reverse=True" in found.note and ("residual=True" in found.note) == (len(found.modes) == 2)
    assert_decoded_as_the_reference(found, "flax", mode)


def test_gates_stand_in_flaxs_order() -> None:
    """flax/nnx/nn/recurrent.py: i, f, g, o and r, z, n side by side, as cuDNN has them one by one."""
    for kind, mode in (("nnx optimized LSTM", Mode.LSTM), ("nnx GRU", Mode.GRU)):
        tensors = cell(kind)
        (found,) = flax.find(PATH, tensors)
        ((decoded,),) = found.decode(mode)
        columns = tensors["dense_i/kernel"].array
        for gate in range(len(mode.gates)):
            np.testing.assert_array_equal(
                decoded.kernel[gate], columns[:, gate * UNITS : (gate + 1) * UNITS].T
            )


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("around", ["", "params/encoder/"])
def test_two_directions_are_one_recurrence(kind: str, around: str) -> None:
    tensors = cell(kind, prefix=f"{around}backward_rnn/cell/", seed=4)
    tensors |= cell(kind, prefix=f"{around}forward_rnn/cell/")
    (found,) = flax.find(PATH, tensors)
    assert (found.scope, found.directions) == (around, 2)
    assert found.note is not None and "Bidirectional of two" in found.note
    assert_decoded_as_the_reference(found, "flax", CELLS[kind][3])
    forward = found.tensors["forward_rnn/" + next(iter(cell(kind)))].read()
    np.testing.assert_array_equal(forward, next(iter(cell(kind).values())).array)


def test_directions_that_differ_are_apart() -> None:
    tensors = cell("linen LSTM", prefix="a/forward_rnn/cell/") | cell(
        "linen LSTM", prefix="a/backward_rnn/cell/", units=6
    )
    backward, forward = flax.find(PATH, tensors)
    assert (backward.units, forward.units, forward.directions) == (6, UNITS, 1)
    assert backward.note is not None and "backward direction by its name" in backward.note


def test_an_optimizers_copies_are_no_recurrences() -> None:
    tensors = cell("linen GRU", prefix="params/cell/")
    tensors |= cell("linen GRU", prefix="opt_state/0/mu/cell/", seed=5)
    tensors |= cell("linen GRU", prefix="opt_state.0.nu.cell.", seed=6)
    assert [found.scope for found in flax.find(PATH, tensors)] == ["params/cell/"]


def test_random_numbers_of_nnx_are_no_parts() -> None:
    tensors = cell("nnx GRU", prefix="cell/")
    tensors["cell/rngs/carry/key/value"] = InMemory(np.ones(2, np.uint32))
    assert len(flax.find(PATH, tensors)) == 1


def test_parts_of_other_modules_are_left() -> None:
    """Parts as short as `i` and `h`, a dense layer alone, kernels of images."""
    for tensors in (
        {"net/i/kernel": InMemory(np.ones((3, 5))), "net/h/kernel": InMemory(np.ones((5, 4)))},
        cell("linen simple", prefix="net/") | {"net/o/kernel": InMemory(np.ones((5, 2)))},
        cell("linen simple", prefix="net/") | {"net/h/bias": InMemory(np.ones(5))},
        {"net/dense_i/kernel": InMemory(np.ones((3, 5)))},
    ):
        assert flax.find(PATH, tensors) == ()


@pytest.mark.parametrize("kind", ["linen GRU", "nnx GRU", "nnx optimized LSTM"])
@pytest.mark.parametrize(
    ("side", "shape"), [(0, (3, 1)), (0, (4, 5)), (1, (6, 5)), (1, (5, 1)), (0, (7,)), (1, (7,)), (0, ())]
)
def test_a_kernel_of_other_sizes_is_refused(kind: str, side: int, shape: tuple[int, ...]) -> None:
    """Each kernel has the inputs or units as rows, and the gates of all units as columns."""
    tensors = cell(kind, prefix="a/")
    tensors[f"a/{CELLS[kind][side][-1]}/kernel"] = InMemory(np.ones(shape))
    with pytest.raises(ReadError, match=r"a/\w+/\w+: expected shape \(.*\), found shape \(.*\); does the"):
        flax.find(PATH, tensors)


@pytest.mark.parametrize("side", [0, 1])
def test_a_kernel_without_rows_is_refused(side: int) -> None:
    tensors = cell("nnx GRU", prefix="a/")
    key = f"a/{CELLS['nnx GRU'][side][0]}/kernel"
    tensors[key] = InMemory(np.ones((0, tensors[key].shape[1])))
    with pytest.raises(ReadError):
        flax.find(PATH, tensors)


def test_a_misfit_is_told_with_its_sizes() -> None:
    tensors = cell("linen LSTM", prefix="a/")
    tensors["a/hg/bias"] = InMemory(np.ones(UNITS + 1))
    expected = f"a/hg/bias: expected shape ({UNITS},), found shape ({UNITS + 1},)"
    assert expected in refusal(tensors)


def refusal(tensors: dict[str, InMemory]) -> str:
    with pytest.raises(ReadError) as caught:
        flax.find(PATH, tensors)
    # beside a cell that is right it is left out, and a warning lists its tensors
    assert len(flax.find(PATH, tensors | cell("linen GRU", prefix="sound/"))) == 1
    return str(caught.value)


def test_a_cell_of_two_gates_is_refused() -> None:
    parts = {f"{part}/kernel": InMemory(np.ones((5, 5))) for part in ("if", "in", "hf", "hn")}
    tensors = {f"params/cell/{key}": tensor for key, tensor in parts.items()}
    tensors["params/cell/if/bias"] = InMemory(np.ones(5))
    assert "params/cell: expected a cell that cuDNN computes too, found Flax's MGUCell" in refusal(tensors)


@pytest.mark.parametrize("kind", [kind for kind in CELLS if kind != "linen simple"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "expected a part of .*, found no such key; does the whole file belong"),
        (
            "another",
            "expected the parts of Flax's .* alone, found norm/scale beside them; if it is a cell of",
        ),
        ("bias", "expected the parts of Flax's .* alone, found .*/bias beside them; if it is"),
        ("wide", r"expected shape \(.*\), found shape \(.*\); does the whole file belong"),
        ("stacked", r"expected a kernel of one cell, found shape \(2, .*\), of stacked cells; transforms"),
        (
            "type",
            "expected float64, as the cell's other weights, found float32; save all weights in one type",
        ),
    ],
)
def test_what_looks_like_a_cell_is_refused(kind: str, change: str, message: str) -> None:
    tensors = cell(kind, prefix="a/")
    last = list(tensors)[-1]
    if change == "missing":
        del tensors[last]
    elif change == "another":
        tensors["a/norm/scale"] = InMemory(np.ones(UNITS))
    elif change == "bias":
        part = next(part for part in (*CELLS[kind][0], *CELLS[kind][1]) if part not in CELLS[kind][2])
        tensors[f"a/{part}/bias"] = InMemory(np.ones(UNITS))
    elif change == "wide":
        tensors[last] = InMemory(np.ones(tensors[last].shape[0] + 1))
    elif change == "stacked":
        tensors = {key: InMemory(np.stack([tensor.array] * 2)) for key, tensor in tensors.items()}
    else:
        tensors[last] = InMemory(tensors[last].array.astype(np.float32))
    assert re.search(message, refusal(tensors))
