"""The parameter blob: lengths that others published, offsets written out, sizes that are only claimed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.graphs import BLOB, SIZES

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import BlobEvidence, Convention, Mode, Recurrence, Sizes
from cudnn_convert.plan import notes
from cudnn_convert.weights import parameter_blob


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
        # By cuDNN 9.28.0's host code, which scripts/record_cudnn.py --without-device asks.
        pytest.param(
            Sizes(Mode.GRU, 2, 2, 3, 3, skip_input=True),
            2 * 3 * 3 * (0 + 3 + 2) + 2 * 3 * 3 * (6 + 3 + 2),
            id="gru-skipped",
        ),
        pytest.param(
            Sizes(Mode.LSTM, 2, 2, 5, 7, projection=3),
            2 * 4 * 5 * (7 + 3 + 2) + 2 * 4 * 5 * (6 + 3 + 2) + 4 * 3 * 5,
            id="lstm-projected",
        ),
    ],
)
def test_the_length(sizes: Sizes, expected: int) -> None:
    assert parameter_blob.length(sizes) == expected
    assert parameter_blob.solve_input_size(expected, sizes) == sizes.input_size


def test_all_matrices_come_before_all_biases() -> None:
    """Two directions of one plain layer, 1 unit, 2 inputs: fw W W R, bw W W R, fw b b, bw b b."""
    ((forward, backward),) = parameter_blob.split(
        np.arange(10.0), Sizes(Mode.RNN_TANH, 1, 2, 1, 2), where="blob"
    )
    assert forward.kernel.tolist() == [[[0, 1]]]
    assert forward.recurrent_kernel.tolist() == [[[2]]]
    assert backward.kernel.tolist() == [[[3, 4]]]
    assert backward.recurrent_kernel.tolist() == [[[5]]]
    assert [forward.bias.item(), forward.recurrent_bias.item()] == [6, 7]
    assert [backward.bias.item(), backward.recurrent_bias.item()] == [8, 9]


def test_a_second_layer_sees_both_directions() -> None:
    layers = parameter_blob.split(np.arange(60.0), Sizes(Mode.RNN_RELU, 2, 2, 2, 3), where="blob")
    assert [cell.kernel.shape for layer in layers for cell in layer] == [(1, 2, 3)] * 2 + [(1, 2, 4)] * 2
    assert layers[1][0].kernel[0, 1].tolist() == [24, 25, 26, 27]  # row-major: the second unit's row


def test_a_projection_follows_the_recurrent_kernels_of_its_pseudo_layer() -> None:
    """Two directions, 2 units, 1 input, 1 projected: fw 8 W, 8 R, 2 Q, bw the same, then all biases."""
    sizes = Sizes(Mode.LSTM, 1, 2, 2, 1, projection=1)
    ((forward, backward),) = parameter_blob.split(np.arange(68.0), sizes, where="blob")
    assert forward.kernel.ravel().tolist() == [*range(8)]
    assert forward.recurrent_kernel.ravel().tolist() == [*range(8, 16)]
    assert forward.projection is not None
    assert backward.projection is not None
    assert forward.projection.tolist() == [[16, 17]]
    assert backward.kernel.ravel().tolist() == [*range(18, 26)]
    assert backward.projection.tolist() == [[34, 35]]
    assert [forward.bias[0, 0], backward.recurrent_bias[3, 1]] == [36, 67]


def test_a_projection_is_row_major() -> None:
    ((cell,),) = parameter_blob.split(
        np.arange(120.0), Sizes(Mode.LSTM, 1, 1, 4, 3, projection=2), where="blob"
    )
    assert cell.recurrent_kernel.shape == (4, 4, 2)
    assert cell.projection is not None
    assert cell.projection.tolist() == [[80, 81, 82, 83], [84, 85, 86, 87]]


def test_a_second_layer_sees_both_projections() -> None:
    sizes = Sizes(Mode.LSTM, 2, 2, 5, 7, projection=3)
    layers = parameter_blob.split(np.zeros(parameter_blob.length(sizes)), sizes, where="blob")
    assert [layer[0].kernel.shape for layer in layers] == [(4, 5, 7), (4, 5, 6)]


def test_a_skipped_input_has_identities_and_both_biases() -> None:
    sizes = Sizes(Mode.GRU, 2, 1, 2, 2, skip_input=True)
    (first,), (second,) = parameter_blob.split(np.arange(60.0), sizes, where="blob")
    assert first.kernel.tolist() == [[[1, 0], [0, 1]]] * 3
    assert first.recurrent_kernel[0].tolist() == [[0, 1], [2, 3]]
    assert second.kernel[0].tolist() == [[12, 13], [14, 15]]
    assert [first.bias[0, 0], first.recurrent_bias[0, 0], second.bias[0, 0]] == [36, 42, 48]


def test_only_an_input_as_wide_as_the_units_is_skipped() -> None:
    sizes = Sizes(Mode.GRU, 1, 1, 2, 3, skip_input=True)
    with pytest.raises(InvalidModelError) as refused:
        parameter_blob.split(np.zeros(parameter_blob.length(sizes)), sizes, where="rnn: params")
    assert str(refused.value) == "rnn: params: expected an input of 2 values, which skip_input needs, found 3"


def test_the_sizes_that_fit_are_listed_in_order() -> None:
    """The rounder units first, then the fewer layers, one direction before two; at most 8 layers."""
    found = parameter_blob.fitting(36, Mode.RNN_TANH)
    fits = [
        (layers, ways, units, inputs)
        for layers, ways, units, inputs in product(range(1, 9), (1, 2), range(1, 7), range(1, 37))
        if ways * units * (inputs + units + 2 + (layers - 1) * (ways * units + units + 2)) == 36
    ]
    rounder = {1: 1, 2: 2, 3: 1, 4: 4, 5: 1, 6: 2}
    assert {units for _, _, units, _ in fits} == {1, 2, 3, 4}
    assert max(fits)[:2] == (8, 1)
    assert [(one.layers, one.directions, one.units, one.input_size) for one in found] == sorted(
        fits, key=lambda fit: (-rounder[fit[2]], fit[0])
    )


@pytest.mark.parametrize("units", [1, 2, 5, 64, 1000])
def test_as_many_units_as_a_blob_can_have_are_tried(units: int) -> None:
    """One layer of one input: a blob of as many units has no less than these elements."""
    found = parameter_blob.fitting(units * (1 + units + 2), Mode.RNN_RELU, layers=1, directions=1)
    assert Sizes(Mode.RNN_RELU, 1, 1, units, 1) in found


@pytest.mark.parametrize(("units", "found"), [(1 << 14, True), ((1 << 14) + 1, False)])
def test_no_more_than_16384_units_are_looked_for_unasked(units: int, found: bool) -> None:
    elements, sizes = units * (1 + units + 2), Sizes(Mode.RNN_RELU, 1, 1, units, 1)
    assert (sizes in parameter_blob.fitting(elements, Mode.RNN_RELU, 1, 1)) is found
    assert parameter_blob.fitting(elements, Mode.RNN_RELU, 1, 1, units) == [sizes]


def test_a_mode_that_is_not_known_may_be_any() -> None:
    """36 elements, one unit: 4 * (6 + 3), 3 * (9 + 3) or 33 + 3."""
    found = parameter_blob.fitting(36, layers=1, directions=1, units=1)
    inputs = {Mode.LSTM: 6, Mode.GRU: 9, Mode.RNN_TANH: 33, Mode.RNN_RELU: 33}
    assert {one.mode: one for one in found} == {mode: Sizes(mode, 1, 1, 1, n) for mode, n in inputs.items()}


@pytest.mark.parametrize("shape", [(279,), (281,), (28, 10), ()], ids=str)
def test_another_length_is_refused(shape: tuple[int, ...]) -> None:
    sizes = Sizes(Mode.LSTM, 1, 1, 5, 7)
    with pytest.raises(InvalidModelError) as refused:
        parameter_blob.split(np.zeros(shape), sizes, where="rnn: params")
    assert str(refused.value) == f"rnn: params: expected 280 values for {sizes}, found shape {shape}"


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_length_of_many_layers_is_that_of_each(layers: int, projection: int, directions: int) -> None:
    sizes = Sizes(Mode.LSTM, layers, directions, 7, 4, projection=projection)
    width = projection or 7
    each = [
        4 * 7 * (inputs + width + 2) + projection * 7 for inputs in [4, *[directions * width] * (layers - 1)]
    ]
    assert parameter_blob.length(sizes) == directions * sum(each)


def test_layers_beyond_all_measure_have_a_length() -> None:
    assert parameter_blob.length(Sizes(Mode.GRU, 10**15, 1, 1, 1)) == 3 * 4 * 10**15
    assert parameter_blob.fitting(56, Mode.LSTM, 10**12, 1, 2) == []


def test_units_are_looked_for_up_to_a_limit() -> None:
    for units, found in ((1 << 14, True), ((1 << 14) + 1, False)):
        sizes = Sizes(Mode.RNN_TANH, 1, 1, units, 5)
        fits = parameter_blob.fitting(parameter_blob.length(sizes), Mode.RNN_TANH, 1, 1)
        assert (sizes in fits) is found
    assert sizes in parameter_blob.fitting(parameter_blob.length(sizes), Mode.RNN_TANH, 1, 1, units)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "place", [0, 24, 41, 55], ids=["kernel", "recurrent kernel", "bias", "recurrent bias"]
)
def test_weights_that_are_no_numbers_are_told_of(place: int, value: float) -> None:
    blob = BLOB.copy()
    recurrences = []
    for name, held in (("sound", BLOB), ("one", blob), ("two", blob)):
        if name == "one":
            blob[place] = value
        recurrences.append(
            Recurrence(
                node=name,
                op="CudnnRNN",
                sizes=SIZES,
                time_major=True,
                lengths=False,
                dtype=held.dtype,
                cells=parameter_blob.split(held, SIZES, where=name),
                evidence=BlobEvidence(held),
                shared=name,
                convention=Convention(),
            )
        )
    told = "one, two: weights hold NaN or infinite values, and are converted as they are"
    assert list(notes.no_numbers(recurrences)) == [told]
    assert list(notes.no_numbers(recurrences[:1])) == []
