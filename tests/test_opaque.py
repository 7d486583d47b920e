"""The parameter blob: lengths that others published, offsets written out, and the way there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_convert import opaque
from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import Mode, Sizes

SIZES = st.builds(
    Sizes,
    mode=st.sampled_from(list(Mode)),
    layers=st.integers(1, 3),
    directions=st.integers(1, 2),
    units=st.integers(1, 6),
    input_size=st.integers(1, 7),
)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param(Sizes(Mode.LSTM, 3, 2, 143, 143), 1_315_600, id="tensorflow-20273"),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 5, 7), 280, id="tensorrt-cookbook"),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 100, 20), 48_800, id="tensorflow-9370"),
        pytest.param(Sizes(Mode.LSTM, 1, 2, 100, 20), 97_600, id="tensorflow-9370-both-ways"),
        pytest.param(
            Sizes(Mode.GRU, 2, 1, 2, 3), 3 * 2 * (3 + 2 + 2) + 3 * 2 * (2 + 2 + 2), id="gru-2-layers"
        ),
        pytest.param(
            Sizes(Mode.RNN_TANH, 2, 2, 2, 3), 2 * 2 * (3 + 4) + 2 * 2 * (4 + 4), id="tanh-both-ways"
        ),
    ],
)
def test_the_length(sizes: Sizes, expected: int) -> None:
    assert opaque.length(sizes) == expected
    assert opaque.solve_input_size(expected, sizes) == sizes.input_size


def test_all_matrices_come_before_all_biases() -> None:
    """Two directions of one plain layer, 1 unit, 2 inputs: fw W W R, bw W W R, fw b b, bw b b."""
    ((forward, backward),) = opaque.split(np.arange(10.0), Sizes(Mode.RNN_TANH, 1, 2, 1, 2), where="blob")
    assert forward.kernel.tolist() == [[[0, 1]]]
    assert forward.recurrent_kernel.tolist() == [[[2]]]
    assert backward.kernel.tolist() == [[[3, 4]]]
    assert backward.recurrent_kernel.tolist() == [[[5]]]
    assert [forward.bias.item(), forward.recurrent_bias.item()] == [6, 7]
    assert [backward.bias.item(), backward.recurrent_bias.item()] == [8, 9]


def test_a_second_layer_sees_both_directions() -> None:
    layers = opaque.split(np.arange(60.0), Sizes(Mode.RNN_RELU, 2, 2, 2, 3), where="blob")
    assert [cell.kernel.shape for layer in layers for cell in layer] == [(1, 2, 3)] * 2 + [(1, 2, 4)] * 2
    assert layers[1][0].kernel[0, 1].tolist() == [24, 25, 26, 27]  # row-major: the second unit's row


@given(sizes=SIZES)
def test_join_undoes_split(sizes: Sizes) -> None:
    blob = np.arange(opaque.length(sizes), dtype=np.float32)
    np.testing.assert_array_equal(opaque.join(opaque.split(blob, sizes, where="blob")), blob)


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1))
def test_split_undoes_join(sizes: Sizes, seed: int) -> None:
    cells = opaque.split(np.random.default_rng(seed).normal(size=opaque.length(sizes)), sizes, where="blob")
    again = opaque.split(opaque.join(cells), sizes, where="blob")
    for one, other in zip(sum(cells, ()), sum(again, ()), strict=True):
        for part in ("kernel", "recurrent_kernel", "bias", "recurrent_bias"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


@given(sizes=SIZES)
def test_the_input_size_follows_from_the_length(sizes: Sizes) -> None:
    length = opaque.length(sizes)
    step = sizes.directions * len(sizes.mode.gates) * sizes.units
    assert opaque.solve_input_size(length, sizes) == sizes.input_size
    assert opaque.solve_input_size(length - step * sizes.input_size, sizes) is None  # no input at all
    if step > 1:
        assert opaque.solve_input_size(length + 1, sizes) is None


@pytest.mark.parametrize("shape", [(279,), (281,), (28, 10), ()], ids=str)
def test_another_length_is_refused(shape: tuple[int, ...]) -> None:
    sizes = Sizes(Mode.LSTM, 1, 1, 5, 7)
    with pytest.raises(InvalidModelError) as refused:
        opaque.split(np.zeros(shape), sizes, where="rnn: params")
    assert str(refused.value) == f"rnn: params: expected 280 values for {sizes}, found shape {shape}"
