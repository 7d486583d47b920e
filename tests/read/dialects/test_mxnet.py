"""MXNet's names: layers, cells, sequences of cells, gates apart, and what contradicts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.decoded import assert_decoded_as_the_reference

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, InMemory, Mode
from cudnn_convert.read.dialects import mxnet

PATH = Path("net.params")
GATES = {Mode.LSTM: 4, Mode.GRU: 3, Mode.RNN_TANH: 1}
LETTERS = {Mode.LSTM: "ifco", Mode.GRU: "rzo"}
UNITS, INPUTS = 5, 3

Tensors = dict[str, InMemory]


def cell(mode: Mode, inputs: int, units: int = UNITS, projection: int = 0, seed: int = 3) -> Tensors:
    """The tensors of a cell by the tails of their keys."""
    rng, gates, width = np.random.default_rng(seed), GATES[mode], projection or units
    shapes = {"i2h_weight": (gates * units, inputs), "h2h_weight": (gates * units, width)}
    shapes |= {"i2h_bias": (gates * units,), "h2h_bias": (gates * units,)}
    shapes |= {"h2r_weight": (projection, units)} if projection else {}
    return {tail: InMemory(rng.normal(size=shape)) for tail, shape in shapes.items()}


def prefixed(head: str, tensors: Tensors) -> Tensors:
    return {head + tail: tensor for tail, tensor in tensors.items()}


def apart(tensors: Tensors, mode: Mode) -> Tensors:
    """As `unpack_weights` writes them, an array for each gate."""
    unpacked = {}
    for key, tensor in tensors.items():
        start, _, kind = key.rpartition("_")
        for letter, rows in zip(LETTERS[mode], np.split(tensor.array, GATES[mode]), strict=True):
            unpacked[f"{start}_{letter}_{kind}"] = InMemory(rows)
    return unpacked


#: The head of a cell, by the form of names; with one direction and with two.
HEADS: dict[str, tuple[Callable[..., str], Callable[..., str]]] = {
    "layered": (lambda layer, side: f"l{layer}_", lambda layer, side: f"{side}{layer}_"),
    "unfused": (
        lambda layer, side: f"_unfused.{layer}.",
        lambda layer, side: f"_unfused.{layer}.{side}_cell.",
    ),
    "numbered": (lambda layer, side: f"{layer}.", lambda layer, side: f"{layer}.{side}_cell."),
}


def layers(
    mode: Mode, form: str, *, count: int = 2, directions: int = 2, projection: int = 0, prefix: str = ""
) -> Tensors:
    """The tensors of a recurrence, each of its own values."""
    tensors: Tensors = {}
    for layer in range(count):
        for number, side in enumerate("lr"[:directions]):
            inputs = INPUTS if layer == 0 else directions * (projection or UNITS)
            own = cell(mode, inputs, projection=projection, seed=10 * layer + number)
            tensors |= prefixed(prefix + HEADS[form][directions - 1](layer, side), own)
    return tensors


def find(tensors: Tensors) -> tuple[CanonicalParameters, ...]:
    return mxnet.find(PATH, tensors)


@pytest.mark.parametrize("prefix", ["", "lstm0_", "net_lstm0_", "1.", "encoder/", "lstm_0"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", GATES)
def test_a_layer(mode: Mode, directions: int, prefix: str) -> None:
    for projection in (0, 2) if mode is Mode.LSTM else (0,):
        tensors = layers(mode, "layered", directions=directions, projection=projection, prefix=prefix)
        (found,) = find(tensors)
        name = prefix.rstrip("._/")
        assert (found.scope, found.note) == (f"{name}/" if name else "", None)
        assert found.modes == ((Mode.RNN_TANH, Mode.RNN_RELU) if mode is Mode.RNN_TANH else (mode,))
        assert (found.layers, found.directions, found.units) == (2, directions, UNITS)
        assert (found.input_size, found.projection) == (INPUTS, projection)
        assert {prefix + key for key in found.tensors} == {*tensors}
        assert_decoded_as_the_reference(found, "mxnet", mode)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("form", ["unfused", "numbered"])
def test_the_names_of_save_parameters(form: str, directions: int) -> None:
    tensors = layers(Mode.GRU, form, directions=directions, prefix="1.rnn.")
    (found,) = find(tensors)
    assert (found.scope, found.layers, found.directions) == ("1.rnn/", 2, directions)
    assert_decoded_as_the_reference(found, "mxnet", Mode.GRU)
    named = "1.rnn: cells 0, 1 are taken for the layers of one recurrence, each fed by the one before"
    assert found.note == (named if form == "numbered" else None)


@pytest.mark.parametrize("mode", LETTERS)
def test_gates_apart(mode: Mode) -> None:
    together = layers(mode, "layered", prefix="x_")
    (found,) = find(apart(together, mode))
    (expected,) = find(together)
    assert (found.layers, found.directions, found.units, found.input_size) == (2, 2, UNITS, INPUTS)
    assert_decoded_as_the_reference(found, "mxnet", mode)
    for one, other in zip(found.decode(mode), expected.decode(mode), strict=True):
        for own, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(own.kernel, theirs.kernel)
            np.testing.assert_array_equal(own.recurrent_bias, theirs.recurrent_bias)


def test_gates_stand_in_mxnets_order() -> None:
    """mxnet 1.9.1 python/mxnet/rnn/rnn_cell.py: _i, _f, _c, _o, and cuDNN's order is i, f, c, o too."""
    tensors = cell(Mode.LSTM, INPUTS)
    (found,) = find(tensors)
    ((own,),) = found.decode(Mode.LSTM)
    rows = tensors["i2h_weight"].array
    for gate in range(4):
        np.testing.assert_array_equal(own.kernel[gate], rows[gate * UNITS : (gate + 1) * UNITS])


def test_more_than_nine_layers_stand_in_the_order_of_their_numbers() -> None:
    tensors = layers(Mode.GRU, "layered", count=12, directions=1)
    (found,) = find(tensors)
    assert found.layers == 12
    assert_decoded_as_the_reference(found, "mxnet", Mode.GRU)
    ((own,),) = found.decode(Mode.GRU)[10:11]
    np.testing.assert_array_equal(own.kernel.reshape(-1, UNITS), tensors["l10_i2h_weight"].array)


@pytest.mark.parametrize("head", ["", "cell0_", "lstm.", "decoder.1.base_cell.", "lstm_l1_", "mycell"])
def test_a_cell(head: str) -> None:
    (found,) = find(prefixed(head, cell(Mode.LSTM, INPUTS)))
    name = head.rstrip("._")
    assert (found.layers, found.directions, found.scope) == (1, 1, f"{name}/" if name else "")
    note = "a cell, taken for a layer that runs forward; LSTMCell's activations are taken to be its own"
    assert (found.note or "").startswith(f"{name or PATH.name}: {note}")
    (gru,) = find(prefixed(head, cell(Mode.GRU, INPUTS)))
    assert "activations" not in (gru.note or "")


def test_the_cells_of_two_directions() -> None:
    tensors = prefixed("a.l_cell.", cell(Mode.GRU, INPUTS, seed=1))
    tensors |= prefixed("a.r_cell.", cell(Mode.GRU, INPUTS, seed=2))
    (found,) = find(tensors)
    assert (found.scope, found.layers, found.directions, found.note) == ("a/", 1, 2, None)
    assert_decoded_as_the_reference(found, "mxnet", Mode.GRU)
    (forward, _), *_ = found.decode(Mode.GRU)
    np.testing.assert_array_equal(forward.kernel.reshape(-1, INPUTS), tensors["a.l_cell.i2h_weight"].array)


def test_a_cell_that_reads_backward_says_so() -> None:
    tensors = layers(Mode.GRU, "numbered", directions=1, prefix="l_cell.")
    tensors |= layers(Mode.GRU, "numbered", directions=1, prefix="r_cell.")
    left, right = find(tensors)
    assert "from the end on" not in (left.note or "")
    assert (right.note or "").endswith("; its BidirectionalCell gives it the sequence from the end on")


def scopes(tensors: Tensors) -> list[str]:
    return [parameters.scope for parameters in find(tensors)]


def test_cells_whose_sizes_do_not_chain_are_recurrences_of_their_own() -> None:
    first, second = cell(Mode.GRU, INPUTS), cell(Mode.GRU, UNITS, units=4)
    assert scopes(prefixed("0.", first) | prefixed("1.", second)) == ["0/", "1/"]
    assert scopes(prefixed("gru_l0_", first) | prefixed("gru_l1_", second)) == ["gru_l0/", "gru_l1/"]
    both = [
        prefixed(f"{layer}.{side}_cell.", own) for layer, own in enumerate((first, second)) for side in "lr"
    ]
    wide = cell(Mode.GRU, 2 * UNITS, units=4)
    both[2:] = [prefixed("1.l_cell.", wide), prefixed("1.r_cell.", wide)]
    assert scopes({**both[0], **both[1], **both[2], **both[3]}) == ["0/", "1/"]


def test_what_stands_between_cells_parts_them() -> None:
    """A ResidualCell adds its input, a DropoutCell does nothing."""
    stack = layers(Mode.LSTM, "numbered", count=2, directions=1)
    spread = {key.replace("1.", "2."): tensor for key, tensor in stack.items()}
    assert scopes(spread) == [""]
    between = prefixed("1.base_cell.", cell(Mode.LSTM, UNITS))
    assert scopes(spread | between) == ["0/", "2/", "1.base_cell/"]
    assert scopes(spread | {"1.weight": InMemory(np.ones([UNITS, UNITS]))}) == ["0/", "2/"]


def test_a_letter_before_the_layer_is_of_a_cell_unless_both_directions_are_there() -> None:
    tensors = layers(Mode.GRU, "layered", directions=1, prefix="encode")
    assert scopes(tensors) == ["encodel0/", "encodel1/"]
    both = layers(Mode.GRU, "layered", directions=2, prefix="encode")
    (found,) = find(both)
    assert (found.scope, found.layers, found.directions) == ("encode/", 2, 2)
    assert_decoded_as_the_reference(found, "mxnet", Mode.GRU)


def test_a_cell_and_a_layer_of_one_prefix_are_two() -> None:
    tensors = layers(Mode.GRU, "layered", directions=1, prefix="gru_") | prefixed("gru_", cell(Mode.GRU, 2))
    assert sorted(scopes(tensors)) == ["gru/", "gru_l0_/"]
    assert {parameters.input_size for parameters in find(tensors)} == {2, INPUTS}


WHOLE, SINGLY = "does the whole file belong to one model", "save the arrays of each recurrence"


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("l1_h2h_weight", None, f"l1_h2h_weight: expected .*, found no such key; {WHOLE}"),
        ("l0_i2h_bias", None, f"l0_i2h_bias: expected .* found no such key; {WHOLE}"),
        ("r1_i2h_weight", (20, 9), r"r1_i2h_weight: expected shape \(20, 10\), found shape \(20, 9\)"),
        ("l0_h2h_bias", (19,), "l0_h2h_bias: expected"),
        ("l1_h2r_weight", (2, 5), "l1_h2r_weight: expected a cell with .*, found more of it; such a cell"),
        ("r0_i2h_gamma", (20,), "r0_i2h_gamma: expected a cell with .*, found more of it; such a cell"),
        ("l0_c_beta", (5,), "l0_c_beta: expected a cell with"),
        ("l3_i2h_weight", (20, 10), f"l3_: expected cells l and r in each layer, .*, found l; {SINGLY}"),
    ],
)
def test_a_set_that_is_not_whole_is_refused(key: str, shape: tuple[int, ...] | None, message: str) -> None:
    tensors = layers(Mode.LSTM, "layered", prefix="a_")
    if shape is None:
        del tensors[f"a_{key}"]
    else:
        tensors[f"a_{key}"] = InMemory(np.ones(shape))
    with pytest.raises(ReadError, match=f"a_{message}"):
        find(tensors)


def test_a_layer_that_is_missing_is_named() -> None:
    tensors = layers(Mode.LSTM, "layered", count=3)
    gone = {key: tensor for key, tensor in tensors.items() if key[1] != "1"}
    with pytest.raises(ReadError, match="l2_: expected layer 1 before it, found none; does the whole"):
        find(gone)


def test_arrays_of_two_types_are_refused() -> None:
    tensors = cell(Mode.LSTM, INPUTS)
    tensors["h2h_bias"] = InMemory(tensors["h2h_bias"].array.astype(np.float32))
    with pytest.raises(ReadError, match=r"h2h_bias: expected float64, as the cell's .* found float32"):
        find(tensors)


def test_a_direction_alone_and_a_layer_twice_are_refused() -> None:
    with pytest.raises(ReadError, match=r"0.l_cell.: expected cells l and r .*, found l; save the arrays"):
        find(prefixed("0.l_cell.", cell(Mode.LSTM, INPUTS)))
    with pytest.raises(ReadError, match=r"_unfused.00.: expected one cell of a layer and direction, found"):
        find({**prefixed("_unfused.0.", cell(Mode.GRU, 3)), **prefixed("_unfused.00.", cell(Mode.GRU, 3))})


def test_other_weights_of_a_cell_in_a_block_are_refused() -> None:
    norm = {"cell.norm.gamma": InMemory(np.ones(20))}
    with pytest.raises(ReadError, match=r"cell.norm.gamma: expected a cell with .*, found more of it"):
        find(prefixed("cell.", cell(Mode.LSTM, INPUTS)) | norm)
    assert scopes(cell(Mode.LSTM, INPUTS) | {"dense.weight": InMemory(np.ones([2, 2]))}) == [""]


@pytest.mark.parametrize("shape", [(20,), (19, 5), (10, 5), (20, 0), (35, 7), (20, 5, 3)])
def test_names_of_other_shapes_are_of_another_cell(shape: tuple[int, ...]) -> None:
    assert find(cell(Mode.LSTM, INPUTS) | {"h2h_weight": InMemory(np.ones(shape))}) == ()
    assert find({"i2h_weight": InMemory(np.ones([20, 5]))}) == ()
