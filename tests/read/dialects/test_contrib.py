"""The keys of CPU-compatible cells among the keys of a checkpoint, written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Array, CanonicalParameters, InMemory, Mode
from cudnn_convert.read.dialects import contrib

PATH = Path("model.ckpt")
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
CELLS = {
    Mode.LSTM: "cudnn_compatible_lstm_cell",
    Mode.GRU: "cudnn_compatible_gru_cell",
    Mode.RNN_TANH: "basic_rnn_cell",
}
#: The stems of a single direction's layer `n`, by who wrote them; those of two.
ALONE = {"1.4": "rnn/multi_rnn_cell/cell_{n}/", "1.3": "multi_rnn_cell/cell_{n}/"}
BOTH = [f"stack_bidirectional_rnn/cell_{{n}}/bidirectional_rnn/{way}/" for way in ("fw", "bw")]
INPUTS, UNITS = 3, 2


def shapes(mode: Mode, inputs: int, units: int) -> dict[str, tuple[int, ...]]:
    if mode is Mode.GRU:
        return {
            "gates/kernel": (inputs + units, 2 * units),
            "gates/bias": (2 * units,),
            "candidate/input_projection/kernel": (inputs, units),
            "candidate/input_projection/bias": (units,),
            "candidate/hidden_projection/kernel": (units, units),
            "candidate/hidden_projection/bias": (units,),
        }
    gates = 4 if mode is Mode.LSTM else 1
    return {"kernel": (inputs + units, gates * units), "bias": (gates * units,)}


def made(mode: Mode, stems: list[str], *, layers: int = 1, dtype: Any = np.float32) -> dict[str, Array]:
    """The variables of a layer object by key, every value another."""
    found: dict[str, Array] = {}
    rng = np.random.default_rng(9)
    for n in range(layers):
        for stem in stems:
            inputs = INPUTS if n == 0 else len(stems) * UNITS
            for name, shape in shapes(mode, inputs, UNITS).items():
                found[f"{stem.format(n=n)}{CELLS[mode]}/{name}"] = rng.normal(size=shape).astype(dtype)
    return found


def find(values: dict[str, Array]) -> list[CanonicalParameters]:
    return list(contrib.find(PATH, {key: InMemory(value) for key, value in values.items()}))


def under(scope: str, values: dict[str, Array]) -> dict[str, Array]:
    return {f"{scope}{key}": value for key, value in values.items()}


def sizes(found: CanonicalParameters) -> tuple[Any, ...]:
    return found.scope, found.modes, found.layers, found.directions, found.units, found.input_size


MODES = {Mode.LSTM: (Mode.LSTM,), Mode.GRU: (Mode.GRU,), Mode.RNN_TANH: (Mode.RNN_TANH, Mode.RNN_RELU)}


@pytest.mark.parametrize("mode", CELLS)
@pytest.mark.parametrize("stems", [[ALONE["1.4"]], [ALONE["1.3"]], BOTH], ids=["1.4", "1.3", "both"])
@pytest.mark.parametrize("scope", ["", "net/rnn_1/", "cell_7/"])
def test_a_layer_object_of_two_layers(mode: Mode, stems: list[str], scope: str) -> None:
    values = made(mode, stems, layers=2, dtype=np.float64)
    (found,) = find(under(scope, values))
    assert sizes(found) == (scope, MODES[mode], 2, len(stems), UNITS, INPUTS)
    assert (found.dialect, found.dtype, found.note) == ("contrib", np.float64, None)
    assert not (found.may_be_dense or found.may_be_half or found.batch_major)
    kept = found.tensors
    spelt = {key if key.startswith(("rnn/", "stack")) else f"rnn/{key}": key for key in values}
    assert kept.keys() == spelt.keys()
    for key, own in spelt.items():
        np.testing.assert_array_equal(kept[key].read(), values[own], strict=True)


@pytest.mark.parametrize("stems", [[ALONE["1.3"]], BOTH], ids=["alone", "both"])
def test_cells_stand_in_their_places(stems: list[str]) -> None:
    """The gates of an LSTM's kernel are i, c, f, o, its rows the input's before the state's."""
    values = made(Mode.LSTM, stems, layers=3)
    (found,) = find(under("a/", values))
    cells = found.decode(Mode.LSTM)
    assert [len(layer) for layer in cells] == [len(stems)] * 3
    for n, layer in enumerate(cells):
        for stem, cell in zip(stems, layer, strict=True):
            kernel = values[f"{stem.format(n=n)}cudnn_compatible_lstm_cell/kernel"]
            bias = values[f"{stem.format(n=n)}cudnn_compatible_lstm_cell/bias"]
            for place, gate in enumerate((0, 2, 1, 3)):  # a cell has i, f, c, o
                columns = kernel[:, gate * UNITS : (gate + 1) * UNITS]
                np.testing.assert_array_equal(cell.kernel[place], columns[:-UNITS].T)
                np.testing.assert_array_equal(cell.recurrent_kernel[place], columns[-UNITS:].T)
                sums = cell.bias[place] + cell.recurrent_bias[place]
                np.testing.assert_array_equal(sums, bias[gate * UNITS : (gate + 1) * UNITS])


@pytest.mark.parametrize("mode", [Mode.RNN_TANH, Mode.RNN_RELU])
def test_names_that_leave_the_activation_open_are_decoded_as_either(mode: Mode) -> None:
    values = made(Mode.RNN_TANH, [ALONE["1.4"]])
    (found,) = find(values)
    ((cell,),) = found.decode(mode)
    kernel = values["rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel"]
    assert cell.mode is mode
    np.testing.assert_array_equal(cell.kernel[0], kernel[:INPUTS].T)


@pytest.mark.parametrize(
    ("number", "stem", "cell"),
    [
        (0, "rnn/multi_rnn_cell/cell_12/", "cudnn_compatible_gru_cell/"),
        (1, "stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/", "basic_rnn_cell/"),
        (2, "multi_rnn_cell/cell_3/", "cudnn_compatible_lstm_cell/"),
        (3, "cell-4/", ""),
        (4, "", ""),
    ],
)
def test_each_form_knows_its_own_keys(number: int, stem: str, cell: str) -> None:
    pattern, suffix = contrib._FORMS[number].pattern(), "" if cell else VALUE
    for key in ("kernel", "bias", *(["candidate/input_projection/bias"] if cell else [])):
        match = pattern.fullmatch(f"a/b/{stem}{cell}{key}{suffix}")
        assert match is not None
        assert (match["scope"], match["stem"], match["key"]) == ("a/b/", stem, key)
        assert match.groupdict().get("cell", "") == cell.removesuffix("/")
        assert pattern.fullmatch(f"a/b/{stem}other_cell/{key}{suffix}") is None or not stem


def object_based(stem: str, **dtypes: Any) -> dict[str, Array]:
    return {
        f"{stem}{key.rpartition('/')[2]}{VALUE}": value
        for key, value in made(Mode.LSTM, [""], **dtypes).items()
    }


def test_the_layers_of_an_object_based_checkpoint() -> None:
    values = under("net/lstm/", object_based("cell-0/", dtype=np.float16))
    wide = np.random.default_rng(2).normal(size=(2 * UNITS, 4 * UNITS)).astype(np.float16)
    values |= {f"net/lstm/cell-1/kernel{VALUE}": wide, f"net/lstm/cell-1/bias{VALUE}": wide[0]}
    (found,) = find(values)
    assert sizes(found) == ("net/lstm/", (Mode.LSTM,), 2, 1, UNITS, INPUTS)
    assert (found.dtype, found.may_be_dense) == (np.float16, False)
    assert found.note is not None
    assert found.note.endswith("need --forget-bias 1")
    np.testing.assert_array_equal(found.decode(Mode.LSTM)[1][0].kernel[0], wide[:UNITS, :UNITS].T)
    spelt = "rnn/multi_rnn_cell/cell_1/cudnn_compatible_lstm_cell/kernel"
    np.testing.assert_array_equal(found.tensors[spelt].read(), wide)


def test_a_single_layer_of_an_object_based_checkpoint_may_be_a_dense_one() -> None:
    (found,) = find(under("net/lstm/", object_based("")))
    assert sizes(found) == ("net/lstm/", (Mode.LSTM,), 1, 1, UNITS, INPUTS)
    assert (found.may_be_dense, found.note) == (True, None)


@pytest.mark.parametrize(
    ("kernel", "bias"),
    [((2, 8), (8,)), ((1, 4), (4,)), ((5, 6), (6,)), ((5, 8), (4,)), ((5, 8), (1, 8)), ((5, 8, 1), (8,))],
    ids=str,
)
def test_sizes_that_no_lstm_has(kernel: tuple[int, ...], bias: tuple[int, ...]) -> None:
    """No input beside the state, no four gates, gates of two widths, other ranks."""
    assert not find({f"dense/kernel{VALUE}": np.ones(kernel), f"dense/bias{VALUE}": np.ones(bias)})


def test_a_layer_with_a_recurrent_kernel_of_its_own_is_another() -> None:
    other = {f"a/recurrent_kernel{VALUE}": np.ones((UNITS, 4 * UNITS))}
    assert not find(under("a/", object_based("")) | other)


@pytest.mark.parametrize("lost", ["kernel", "bias"])
@pytest.mark.parametrize("stem", [f"{ALONE['1.4']}cudnn_compatible_lstm_cell/", "cell-{n}/"])
def test_half_a_cell_is_none(stem: str, lost: str) -> None:
    suffix = VALUE if stem.startswith("cell-") else ""
    values = {
        f"{stem.format(n=0)}kernel{suffix}": np.ones((5, 8)),
        f"{stem.format(n=0)}bias{suffix}": np.ones(8),
    }
    assert find(values)
    del values[f"{stem.format(n=0)}{lost}{suffix}"]
    assert not find(values)


def test_other_ranks_are_no_cell() -> None:
    stem = f"{ALONE['1.4'].format(n=0)}basic_rnn_cell/"
    assert not find({f"{stem}kernel": np.ones((5, 2, 1)), f"{stem}bias": np.ones(2)})
    assert not find({f"{stem}kernel": np.ones((5, 2)), f"{stem}bias": np.ones((1, 2))})


@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_a_key_that_is_lost_or_of_another_shape_is_told(mode: Mode) -> None:
    values = made(mode, BOTH, layers=2)
    name, shape = ("bias", (8,)) if mode is Mode.LSTM else ("candidate/input_projection/kernel", (4, 2))
    key = f"{BOTH[1].format(n=1)}{CELLS[mode]}/{name}"
    for value, told in ((None, "no such key"), (np.ones((9, 1), np.float32), "shape (9, 1)")):
        given = {other: held for other, held in values.items() if other != key}
        (found,) = find(given if value is None else given | {key: value})
        with pytest.raises(ReadError) as caught:
            found.decode(mode)
        assert (key in found.tensors) is (value is not None), "the others are there all the same"
        assert {*found.tensors} | {key} == {*values}
        advice = "does the whole checkpoint belong to one model?"
        assert str(caught.value) == f"{PATH}: {key}: expected shape {shape}, found {told}; {advice}"


@pytest.mark.parametrize("number", [2, 999_999_999])
def test_a_layer_beyond_those_that_are_there_is_lost_not_counted_up_to(number: int) -> None:
    values = made(Mode.LSTM, [ALONE["1.4"]])
    last = f"{ALONE['1.4'].format(n=number)}cudnn_compatible_lstm_cell"
    (found,) = find(values | {f"{last}/kernel": np.ones((4, 8), np.float32)})
    assert found.layers == min(number, len(values) + 1) + 1
    lost = f"{ALONE['1.4'].format(n=1)}cudnn_compatible_lstm_cell/kernel"
    with pytest.raises(ReadError, match=rf"{lost}: expected shape \(4, 8\), found no such key"):
        found.decode(Mode.LSTM)


def test_sets_are_in_the_order_of_their_scopes() -> None:
    values = under("b/", made(Mode.GRU, [ALONE["1.4"]])) | under("a/", made(Mode.LSTM, BOTH))
    values |= under("c/", object_based("cell-0/")) | {"global_step": np.ones(()), "kernel": np.ones((5, 8))}
    assert [(found.scope, found.modes[0]) for found in find(values)] == [
        ("a/", Mode.LSTM),
        ("b/", Mode.GRU),
        ("c/", Mode.LSTM),
    ]


ROWS = "expected more than 4 rows, the units of its bias"
SIZES = "expected a kernel with units and inputs"


@pytest.mark.parametrize(
    ("mode", "kernel", "bias", "expected"),
    [
        (Mode.LSTM, (3, 16), (16,), ROWS),
        (Mode.LSTM, (4, 16), (16,), ROWS),
        (Mode.LSTM, (3, 0), (0,), SIZES),
        (Mode.LSTM, (3, 3), (3,), SIZES),
        (Mode.RNN_TANH, (4, 4), (4,), ROWS),
    ],
)
def test_a_kernel_without_rows_for_inputs_is_refused(
    mode: Mode, kernel: tuple[int, ...], bias: tuple[int, ...], expected: str
) -> None:
    prefix = f"{ALONE['1.4'].format(n=0)}{CELLS[mode]}/"
    with pytest.raises(ReadError) as refused:
        find({f"{prefix}kernel": np.ones(kernel, np.float32), f"{prefix}bias": np.ones(bias, np.float32)})
    found = f"shape {kernel}, with a bias of {bias}"
    advice = "does the whole checkpoint belong to one model?"
    assert str(refused.value) == f"{PATH}: {prefix}kernel: {expected}, found {found}; {advice}"


def test_a_gru_without_inputs_is_refused_and_a_dense_layer_of_nothing_is_none() -> None:
    values = made(Mode.GRU, [ALONE["1.4"]])
    empty = next(key for key in values if key.endswith("input_projection/kernel"))
    with pytest.raises(
        ReadError, match="input_projection/kernel: expected a kernel with units and inputs, found shape"
    ):
        find(values | {empty: np.ones((0, UNITS), np.float32)})
    assert find({f"kernel{VALUE}": np.ones((3, 0), np.float32), f"bias{VALUE}": np.ones(0, np.float32)}) == []
