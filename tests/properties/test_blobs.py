"""The parameter blob taken apart, against the same weights put together by hand."""

from __future__ import annotations

import dataclasses
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import by_hand
from properties.budget import examples
from properties.strategies import SEEDS, sizes

from cudnn_convert.model import Sizes
from cudnn_convert.weights import parameter_blob

PARTS = ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "projection")
DTYPES = st.sampled_from(["float16", "float32", "float64"])


@given(sizes(), SEEDS, DTYPES)
@examples(150, runs=False)
def test_split_undoes_the_putting_together(found: Sizes, seed: int, dtype: str) -> None:
    parts = by_hand.drawn(found, seed, dtype)
    blob = by_hand.blob(found.mode, parts)
    assert parameter_blob.length(found) == blob.size
    wanted = [[by_hand.cell(found.mode, one) for one in layer] for layer in parts]
    cells = parameter_blob.split(blob, found, where="blob")
    assert [len(layer) for layer in cells] == [found.directions] * found.layers
    for one, other in zip(chain(*cells), chain(*wanted), strict=True):
        for part in PARTS:
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part), err_msg=part)
        assert one.kernel.dtype == dtype


@given(sizes())
@examples(100, runs=False)
def test_no_value_of_the_blob_is_used_twice_or_left_out(found: Sizes) -> None:
    blob = np.arange(2.0, parameter_blob.length(found) + 2)  # an identity's values are 0 and 1
    cells = [cell for layer in parameter_blob.split(blob, found, where="blob") for cell in layer]
    parts = [getattr(cell, part) for cell in cells for part in PARTS]
    values = np.concatenate([part.ravel() for part in parts if part is not None])
    np.testing.assert_array_equal(np.sort(values[values >= 2]), blob)
    assert np.sum(values < 2) == found.skip_input * found.directions * len(found.mode.gates) * found.units**2


@given(sizes())
@examples(150, runs=False)
def test_the_input_size_follows_from_the_length(found: Sizes) -> None:
    length = parameter_blob.length(found)
    step = found.directions * len(found.mode.gates) * found.units
    assert parameter_blob.solve_input_size(length, found) == found.input_size
    skipped = length if found.skip_input else length - step * found.input_size
    linear, without = (dataclasses.replace(found, skip_input=skip) for skip in (False, True))
    assert parameter_blob.solve_input_size(skipped, linear) is None  # no input at all
    assert parameter_blob.solve_input_size(skipped, without) == found.units
    assert parameter_blob.solve_input_size(skipped + step, without) is None
    if step > 1:
        assert parameter_blob.solve_input_size(length + 1, found) is None


@pytest.mark.slow("cudnn_convert/model.py", "cudnn_convert/weights")
@given(sizes(plain=True), st.sets(st.sampled_from(["mode", "layers", "directions", "units"])))
@examples(60, runs=False)
def test_the_truth_is_among_the_sizes_that_fit(found: Sizes, known: set[str]) -> None:
    found = dataclasses.replace(found, skip_input=False)
    blob = by_hand.blob(found.mode, by_hand.drawn(found, 0))
    fitting = parameter_blob.fitting(blob.size, **{name: getattr(found, name) for name in known})
    assert found in fitting
    for other in fitting:
        assert all(getattr(other, name) == getattr(found, name) for name in known)
        assert by_hand.blob(other.mode, by_hand.drawn(other, 0)).size == blob.size
    assert len(fitting) == len(set(fitting))
