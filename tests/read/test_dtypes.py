"""TensorFlow's numbers of types: its own list of them is the judge."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from cudnn_convert.read.tensorbundle import entries

NUMBERS = {name: number for name, number in types_pb2.DataType.items() if 0 < number < 100}
NO_NUMBERS = {"DT_STRING", "DT_RESOURCE", "DT_VARIANT"}
SMALL = "INT32 UINT8 INT16 INT8 QINT8 QUINT8 QINT32 UINT16"


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - NO_NUMBERS))
def test_each_number_is_the_type_that_tensorflow_means(name: str) -> None:
    expected = np.dtype(tf.as_dtype(NUMBERS[name]).as_numpy_dtype)
    assert entries.of(NUMBERS[name]) == entries.numeric(NUMBERS[name]) == expected


@pytest.mark.parametrize(
    "number", [0, *sorted(NUMBERS[name] for name in NO_NUMBERS), max(NUMBERS.values()) + 1]
)
def test_what_has_no_numbers_is_refused(number: int) -> None:
    assert entries.of(number) == np.dtype(object)
    with pytest.raises(ValueError, match=f"elements of type {number}, which are no numbers"):
        entries.numeric(number)


def test_the_types_that_have_names_of_their_own() -> None:
    names = "FLOAT DOUBLE STRING COMPLEX64 INT64 BOOL COMPLEX128 HALF".split()
    assert {name: getattr(entries, name) for name in names} == {name: NUMBERS[f"DT_{name}"] for name in names}
    assert {NUMBERS[f"DT_{name}"] for name in SMALL.split()} == entries.SMALL_INTEGERS
    assert {entries.numeric(number).itemsize for number in entries.SMALL_INTEGERS} == {1, 2, 4}
