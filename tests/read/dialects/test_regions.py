"""Sets of `CudnnRNNParamsToCanonical:<k>` among the keys of a checkpoint, written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Array, CanonicalParameters, InMemory, Mode
from cudnn_convert.read import dialects

PATH = Path("model.ckpt")
OP = "CudnnRNNParamsToCanonical"
#: Gates in a pseudo-layer's weights.
GATES = {Mode.LSTM: 4, Mode.GRU: 3, Mode.RNN_TANH: 1}


def regions(weights: list[int], units: int, dtype: Any = np.float32) -> list[Array]:
    """Outputs of one op: weights of these sizes, as many biases; every value another, one after the other."""
    lengths = [*weights, *[units] * len(weights)]
    ends = np.cumsum(lengths)
    return [np.arange(end - length, end, dtype=dtype) for end, length in zip(ends, lengths, strict=True)]


def named(values: list[Array], op: str = OP) -> dict[str, InMemory]:
    """In no order: keys are strings, of which `:10` comes before `:2`."""
    return dict(sorted((f"{op}:{k}", InMemory(value)) for k, value in enumerate(values)))


def find(tensors: dict[str, Any]) -> list[CanonicalParameters]:
    return list(dialects.regions.find(PATH, tensors))


def one_way(mode: Mode, layers: int, units: int, inputs: int) -> list[int]:
    """The sizes of the weights of a unidirectional layer object."""
    widths = [inputs] + [units] * (layers - 1)
    return [width * units for own in widths for width in [own] * GATES[mode] + [units] * GATES[mode]]


@pytest.mark.parametrize("mode", GATES)
def test_a_layer_object_of_one_direction(mode: Mode) -> None:
    values = regions(one_way(mode, 3, 2, 5), 2, np.float64)
    (found,) = find(named(values))
    modes = (Mode.RNN_TANH, Mode.RNN_RELU) if mode is Mode.RNN_TANH else (mode,)
    assert (found.scope, found.modes, found.layers, found.directions) == ("", modes, 3, 1)
    assert (found.units, found.input_size, found.dtype) == (2, 5, np.float64)
    assert (found.dialect, found.may_be_half, found.may_be_dense) == ("regions", True, False)
    kept = found.tensors
    assert list(kept) == [str(k) for k in range(len(values))]
    for k, value in enumerate(values):
        np.testing.assert_array_equal(kept[str(k)].read(), value, strict=True)
    gates, at = GATES[mode], 0
    for wanted in modes:
        for n, (cell,) in enumerate(found.decode(wanted)):
            assert cell.mode is wanted
            width, at = (5, 0) if n == 0 else (2, gates * 2 * (5 + 2) + (n - 1) * gates * 2 * 4)
            expected = np.arange(at, at + gates * 2 * width).reshape(gates, 2, width)
            np.testing.assert_array_equal(cell.kernel, expected)
            first = len(values) // 2 + 2 * gates * n
            np.testing.assert_array_equal(cell.bias, values[first : first + gates])
            np.testing.assert_array_equal(cell.recurrent_bias, values[first + gates : first + 2 * gates])


def test_a_matrix_may_be_stored_flat_or_turned() -> None:
    """The memory is the same: `[units, inputs]` row by row."""
    flat = regions(one_way(Mode.RNN_TANH, 1, 2, 3), 2)
    turned = [flat[0].reshape(3, 2), flat[1].reshape(2, 2), *flat[2:]]
    for values in (flat, turned):
        (found,) = find(named(values))
        ((cell,),) = found.decode(Mode.RNN_RELU)
        np.testing.assert_array_equal(cell.kernel, [[[0, 1, 2], [3, 4, 5]]])


def test_sizes_of_every_mode_are_read_as_each() -> None:
    """24 square matrices are three layers of an LSTM, four of a GRU and twelve of a plain cell."""
    found = find(named(regions([4] * 24, 2)))
    assert [(one.modes, one.layers) for one in found] == [
        ((Mode.LSTM,), 3),
        ((Mode.GRU,), 4),
        ((Mode.RNN_TANH, Mode.RNN_RELU), 12),
    ]


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
def test_half_of_a_bidirectional_layer_is_known_and_refused(mode: Mode, layers: int) -> None:
    """The first `layers` of its pseudo-layers: two see the input, later ones both directions."""
    gates, units, inputs = GATES[mode], 3, 5
    widths = [inputs, inputs, *[2 * units] * 2 * layers][:layers]
    weights = [width * units for own in widths for width in [own] * gates + [units] * gates]
    (found,) = find(named(regions(weights, units)))
    assert (found.modes[0], found.layers, found.units, found.input_size) == (mode, layers, units, inputs)
    if layers == 1:  # nothing tells it from a layer of one direction
        found.decode(mode)
        return
    whole = gates * units * (inputs + units + 2 + (layers - 1) * (2 * units + 2))
    half = sum(weights) + len(weights) * units
    with pytest.raises(ReadError) as caught:
        found.decode(mode)
    expected = f"expected {whole} values of {layers} layers of one direction, found {half}: half of a"
    assert str(caught.value).startswith(f"{PATH}: {OP}: {expected}")
    assert str(caught.value).endswith("; convert its blob with --directions 2")


@pytest.mark.parametrize("weights", [[6, 4, 4, 5], [6, 4, 4], [4, 4, 4, 6], [6, 6, 4, 4], [6, 4, 8, 5]])
def test_sizes_of_no_layer_are_none(weights: list[int]) -> None:
    assert not find(named(regions(weights, 2)))


@pytest.mark.parametrize("lost", [[1], [3], [0], [2, 3, 1]])
def test_outputs_that_are_not_all_there_are_refused(lost: list[int]) -> None:
    tensors = named(regions(one_way(Mode.RNN_TANH, 1, 2, 3), 2), f"a/{OP}_2")
    for k in lost:
        del tensors[f"a/{OP}_2:{k}"]
    kept = [k for k in range(4) if k not in lost]
    with pytest.raises(ReadError) as caught:
        find(tensors)
    found = f"expected as many weights as biases, found outputs {kept}; is the checkpoint complete?"
    assert str(caught.value) == f"{PATH}: a/{OP}_2: {found}"


def test_two_ops_of_one_scope_are_two_layers() -> None:
    values = regions(one_way(Mode.GRU, 1, 2, 3), 2)
    tensors = {
        key: value
        for op in (OP, f"a/{OP}_1", f"a/{OP}", f"{OP}_1")
        for key, value in named(values, op).items()
    }
    tensors |= {"global_step": InMemory(np.ones(())), f"{OP}:x": InMemory(np.ones(()))}
    assert [found.scope for found in find(tensors)] == ["", f"{OP}_1/", "a/", f"a/{OP}_1/"]
