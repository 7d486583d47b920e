"""Sizes that a file or a call only claims: told from a few numbers, in no time."""

from __future__ import annotations

import pytest
from graphs import BLOB, SIZES

from cudnn_convert.model import BlobEvidence, Convention, Mode, Recurrence, Sizes
from cudnn_convert.plan import notes
from cudnn_convert.weights import lazy


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_length_of_many_layers_is_that_of_each(layers: int, projection: int, directions: int) -> None:
    sizes = Sizes(Mode.LSTM, layers, directions, 7, 4, projection=projection)
    width = projection or 7
    each = [
        4 * 7 * (inputs + width + 2) + projection * 7 for inputs in [4, *[directions * width] * (layers - 1)]
    ]
    assert lazy.length(sizes) == directions * sum(each)


def test_layers_beyond_all_measure_have_a_length() -> None:
    assert lazy.length(Sizes(Mode.GRU, 10**15, 1, 1, 1)) == 3 * 4 * 10**15
    assert lazy.fitting(56, Mode.LSTM, 10**12, 1, 2) == []


def test_units_are_looked_for_up_to_a_limit() -> None:
    for units, found in ((1 << 14, True), ((1 << 14) + 1, False)):
        sizes = Sizes(Mode.RNN_TANH, 1, 1, units, 5)
        fits = lazy.fitting(lazy.length(sizes), Mode.RNN_TANH, 1, 1)
        assert (sizes in fits) is found
    assert sizes in lazy.fitting(lazy.length(sizes), Mode.RNN_TANH, 1, 1, units)


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
                cells=lazy.split(held, SIZES, where=name),
                evidence=BlobEvidence(held),
                shared=name,
                convention=Convention(),
            )
        )
    told = "one, two: weights hold NaN or infinite values, and are converted as they are"
    assert list(notes.no_numbers(recurrences)) == [told]
    assert list(notes.no_numbers(recurrences[:1])) == []
