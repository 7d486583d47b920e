"""Haiku's names: cores for certain, cores that may be dense layers, and what cuDNN cannot compute."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.command_line import refused
from support.decoded import assert_decoded_as_the_reference

from cudnn_convert import convert
from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory, Mode
from cudnn_convert.read import is_model, read
from cudnn_convert.read.dialects import haiku
from cudnn_convert.recurrences import graphless

PATH = Path("weights.npz")
UNITS, INPUTS = 5, 3


def drawn(shapes: dict[str, tuple[int, ...]], name: str) -> dict[str, InMemory]:
    rng = np.random.default_rng(3)
    return {
        f"{name}/{key}": InMemory(rng.normal(size=shape).astype(np.float32)) for key, shape in shapes.items()
    }


def lstm(name: str = "lstm") -> dict[str, InMemory]:
    return drawn({"linear/w": (INPUTS + UNITS, 4 * UNITS), "linear/b": (4 * UNITS,)}, name)


def vanilla(name: str = "vanilla_rnn", *, double_bias: bool = True) -> dict[str, InMemory]:
    shapes: dict[str, tuple[int, ...]] = {"linear/w": (INPUTS, UNITS), "linear/b": (UNITS,)}
    shapes |= {"linear_1/w": (UNITS, UNITS)} | ({"linear_1/b": (UNITS,)} if double_bias else {})
    return drawn(shapes, name)


def gru(name: str = "gru") -> dict[str, InMemory]:
    shapes: dict[str, tuple[int, ...]] = {"w_i": (INPUTS, 3 * UNITS), "w_h": (UNITS, 3 * UNITS)}
    return drawn(shapes | {"b": (3 * UNITS,)}, name)


@pytest.mark.parametrize("name", ["lstm", "lstm_1", "net/~/lstm", "net/~encode/lstm_12", "vanilla_rnn_3"])
def test_a_core_by_its_name(name: str) -> None:
    mode = Mode.LSTM if "lstm" in name else Mode.RNN_RELU
    tensors = lstm(name) if mode is Mode.LSTM else vanilla(name)
    (found,) = haiku.find(PATH, tensors)
    assert (found.scope, found.modes, found.may_be_dense) == (f"{name}/", (mode,), False)
    assert (found.layers, found.directions, found.units, found.input_size) == (1, 1, UNITS, INPUTS)
    assert found.note is not None and found.note.startswith(f"{name}: read as hk.")
    assert_decoded_as_the_reference(found, "haiku", mode, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_a_core_of_another_type(dtype: type) -> None:
    tensors = {key: InMemory(tensor.array.astype(dtype)) for key, tensor in vanilla().items()}
    (found,) = haiku.find(PATH, tensors)
    assert_decoded_as_the_reference(found, "haiku", Mode.RNN_RELU, rtol=0)


def test_gates_stand_in_haikus_order_and_the_forget_gate_gets_1() -> None:
    """haiku/_src/recurrent.py LSTM.__call__: i, g, f, o, and sigmoid(f + 1)."""
    tensors = lstm()
    (found,) = haiku.find(PATH, tensors)
    ((cell,),) = found.decode(Mode.LSTM)
    i, g, f, o = np.split(tensors["lstm/linear/b"].array, 4)
    for ours, theirs in zip(cell.bias, (i, f + 1, g, o), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    matrices = np.split(tensors["lstm/linear/w"].array, 4, axis=1)
    np.testing.assert_array_equal(cell.kernel[1], matrices[2][:INPUTS].T)
    np.testing.assert_array_equal(cell.recurrent_kernel[2], matrices[1][INPUTS:].T)


def test_one_bias() -> None:
    (found,) = haiku.find(PATH, vanilla(double_bias=False))
    ((cell,),) = found.decode(Mode.RNN_RELU)
    assert cell.bias.all() and not cell.recurrent_bias.any()


def test_under_another_name_it_may_be_dense(tmp_path: Path) -> None:
    """A dense layer of 12 values of 8 may be an LSTM of 3 units; flags decide."""
    (found,) = haiku.find(PATH, lstm("net/~/forward"))
    assert found.may_be_dense
    both = vanilla("net", double_bias=False)
    assert [each.modes for each in haiku.find(PATH, both)] == [(Mode.RNN_RELU,)]
    path = tmp_path / "weights.npz"
    np.savez(path, **{key: tensor.array for key, tensor in (lstm("net/~/forward") | both).items()})
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    # `net` has more than a core, so that it is none
    assert "net/~/forward may be an LSTM or a dense layer: say --mode lstm --units N" in line
    assert "plain RNN" not in line
    np.savez(path, **{key: tensor.array for key, tensor in both.items()})
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line.endswith("net may be a plain RNN or two dense layers: say --mode rnn_relu --units N")
    report = convert(path, tmp_path / "out.onnx", mode="rnn_relu", units=UNITS)
    assert [each.mode for each in report.recurrences] == ["rnn_relu"]
    assert not is_model(path), "a dense layer may be anything's, so that a batch leaves it"


def test_what_may_be_dense_is_listed_where_it_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez(path, **{key: tensor.array for key, tensor in (lstm() | lstm("head")).items()})
    model = read(path)
    assert graphless.list_other_tensors(model, ["lstm"]) == ["head/linear/w", "head/linear/b"]
    assert graphless.list_other_tensors(model, ["lstm", "head"]) == []


@pytest.mark.parametrize(
    "tensors",
    [
        lstm("net/~"),  # made in __init__, where a core makes none
        lstm("net") | {"net/norm/scale": InMemory(np.ones(5))},
        drawn({"linear/w": (8, 13), "linear/b": (13,)}, "net"),
        drawn({"linear/w": (5, 20), "linear/b": (20,)}, "net"),
        drawn({"linear/w": (3, 5), "linear/b": (5,), "linear_1/w": (5, 6)}, "net"),
        drawn({"linear/w": (8, 20), "linear/b": (19,)}, "net"),
        drawn({"linear/w": (0, 5), "linear/b": (5,), "linear_1/w": (5, 5)}, "net"),
        drawn({"linear/w": (3, 0), "linear/b": (0,), "linear_1/w": (0, 0)}, "net"),
        drawn({"w_i": (3, 15), "w_h": (5, 15), "b": (14,)}, "net"),
        drawn({"w_i": (3, 14), "w_h": (5, 15), "b": (15,)}, "net"),
        drawn({"w_i": (3, 10), "w_h": (5, 10), "b": (10,)}, "net"),
        drawn({"linear/w": (8, 20)}, "net"),
        {"linear/w": InMemory(np.ones((8, 20))), "linear/b": InMemory(np.ones(20))},
        {f"opt_state/0/mu/{key}": tensor for key, tensor in lstm().items()},
    ],
    ids=[
        "in_init",
        "among_others",
        "no_gates",
        "no_input",
        "two_layers",
        "short_bias",
        "empty_input",
        "empty",
        "gru_bias",
        "gru_input",
        "two_gates",
        "no_bias",
        "root",
        "moments",
    ],
)
def test_what_is_no_core(tensors: dict[str, InMemory]) -> None:
    assert haiku.find(PATH, tensors) == ()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            gru(),
            "gru: expected a GRU whose reset acts after the product, as cuDNN's does, found hk.GRU, whose",
        ),
        (gru("net/decoder"), "net/decoder: expected a GRU whose reset acts after the product"),
        (
            lstm() | {"lstm/norm/scale": InMemory(np.ones(5))},
            "lstm: expected the parameters of hk.LSTM alone, found norm/scale beside them; if it is a core",
        ),
        (
            {key: InMemory(np.stack([tensor.array] * 2)) for key, tensor in lstm().items()},
            r"lstm: expected .* hk.LSTM in one type, w of two axes, found .*\[2, 20\].*hk.layer_stack",
        ),
        (
            drawn({"linear/w": (8, 20)}, "lstm"),
            r"lstm: expected .* found linear/w float32\[8, 20\]; does the whole file belong to one model",
        ),
        (
            vanilla() | {"vanilla_rnn/linear/b": InMemory(np.ones(5, np.float16))},
            "vanilla_rnn: expected the parameters of hk.VanillaRNN in one type, w of two axes, found",
        ),
    ],
    ids=["gru", "named_gru", "own_core", "stacked", "no_bias", "types"],
)
def test_what_cannot_be_taken_is_refused(tensors: dict[str, InMemory], message: str) -> None:
    with pytest.raises(ReadError) as caught:
        haiku.find(PATH, tensors)
    assert re.search(message, str(caught.value))
    assert len(haiku.find(PATH, tensors | lstm("sound/lstm"))) == 1
