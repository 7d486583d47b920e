"""Protocol buffers as they lie in a file, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from tables import varint

from cudnn_convert.read.tensorbundle import tables

NUMBERS = [0, 1, 127, 128, 300, 2**32, 2**63 - 1, -1, -300, -(2**63)]


def test_numbers_of_a_packed_field() -> None:
    packed = b"".join(varint(number % 2**64) for number in NUMBERS)
    np.testing.assert_array_equal(tables.varints(memoryview(packed)).astype(np.int64), NUMBERS)
    assert tables.varints(memoryview(b"")).size == 0
    for damaged in (b"\x80", b"\1\x80", b"\xff" * 10 + b"\1"):
        with pytest.raises(ValueError, match="a number without an end"):
            tables.varints(memoryview(damaged))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_alone(number: int) -> None:
    found = tables.fields(memoryview(b"\x08" + varint(number % 2**64) + b"\x10\7"))
    assert (tables.integer(found, 1), tables.integer(found, 2), tables.integer(found, 3)) == (number, 7, 0)


def test_a_repeated_field_may_be_packed_or_not() -> None:
    numbers = tables.fields(memoryview(b"\x08\1\x0a\2\2\3\x08\4"))
    assert tables.numbers(numbers, 1, 0).tolist() == [1, 2, 3, 4]
    assert tables.numbers(tables.fields(memoryview(b"\x0a\2\2\3\x0a\1\4")), 1, 0).tolist() == [2, 3, 4]
    floats = tables.fields(memoryview(b"\x0d\0\0\x80\x3f" + b"\x0a\4\0\0\0\x40"))
    assert tables.numbers(floats, 1, 4).view(np.float32).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("width", [0, 4, 8])
def test_a_repeated_field_that_is_not_there_is_empty(width: int) -> None:
    assert tables.numbers({}, 1, width).size == 0


def test_fixed_numbers_are_little_endian_and_take_their_own_bytes_alone() -> None:
    """Numbers of eight bytes, of four, and a varint behind them."""
    found = tables.fields(memoryview(b"\x09\1\2\3\4\5\6\7\x08" + b"\x15\1\2\3\4" + b"\x18\5"))
    assert (tables.integer(found, 1), tables.integer(found, 2)) == (0x0807060504030201, 0x04030201)
    assert tables.integer(found, 3) == 5


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (b"\x0a\5abc", "a message that ends within a field"),
        (b"\x0d\0\0", "a message that ends within a field"),
        (b"\x0b", "a field of kind 3"),
        (b"\x08", "a number without an end"),
        (b"\x08" + b"\x80" * 10 + b"\1", "a number without an end"),
    ],
)
def test_a_message_that_is_none(held: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tables.fields(memoryview(held))


def test_a_field_of_another_kind() -> None:
    found = tables.fields(memoryview(b"\x08\1\x12\1a\x12\1b"))
    with pytest.raises(ValueError, match="bytes for the number in field 2"):
        tables.integer(found, 2)
    with pytest.raises(ValueError, match="a number for the bytes in field 1"):
        tables.content(found, 1)
    with pytest.raises(ValueError, match="2 of field 2"):
        tables.content(found, 2)
