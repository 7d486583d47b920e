"""Protocol buffers as they lie in a file: fields by number, no descriptors, no copies.

A message registered by us would meet TensorFlow's own of that name, should it be imported later.
Source: protobuf's "Encoding"; groups, which proto3 never had, are refused.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cudnn_convert.read.checkpoints.checksum import Bytes

Fields = dict[int, list["int | memoryview"]]
_FIXED: Final = {1: 8, 5: 4}
_VARINT, _LENGTH = 0, 2
_LONGEST: Final = 10


def varint(data: memoryview, place: int) -> tuple[int, int]:
    """The number at `place`, of 64 bits without sign, and where it ends. Raises ValueError."""
    number = 0
    for count, byte in enumerate(data[place : place + _LONGEST]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, place + count + 1
    raise ValueError("a number without an end")


def fields(data: memoryview) -> Fields:
    """The fields of a message by number, each in order: a number, or the bytes of all else."""
    found: Fields = {}
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        value: int | memoryview
        if (kind := tag & 7) == _VARINT:
            value, place = varint(data, place)
        elif kind == _LENGTH or kind in _FIXED:
            size, place = varint(data, place) if kind == _LENGTH else (_FIXED[kind], place)
            held = data[place : place + size]
            if len(held) < size:
                raise ValueError("a message that ends within a field")
            place += size
            value = held if kind == _LENGTH else int.from_bytes(held, "little")
        else:
            raise ValueError(f"a field of kind {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def integer(found: Fields, number: int) -> int:
    """A signed number of 64 bits, 0 where the field is not there. Raises ValueError."""
    value = found.get(number, (0,))[-1]
    if not isinstance(value, int):
        raise ValueError(f"bytes for the number in field {number}")
    return value - (1 << 64) if value >> 63 else value


def contents(found: Fields, number: int) -> list[memoryview]:
    """The bytes of each occurrence of a field. Raises ValueError."""
    values = found.get(number, [])
    whole = [value for value in values if isinstance(value, memoryview)]
    if len(whole) != len(values):
        raise ValueError(f"a number for the bytes in field {number}")
    return whole


def content(found: Fields, number: int) -> memoryview:
    """The bytes of a field, none where it is not there. Raises ValueError where it is there twice."""
    values = contents(found, number)
    if len(values) > 1:
        raise ValueError(f"{len(values)} of field {number}")
    return values[0] if values else memoryview(b"")


def numbers(found: Fields, number: int, width: int) -> npt.NDArray[np.uint64] | Bytes:
    """A repeated field, packed or not: varints, or where `width` is 4 or 8 the bytes of numbers so wide."""
    values = found.get(number, [])
    if not width:
        chunks = [varints(v) if isinstance(v, memoryview) else np.array([v], np.uint64) for v in values]
        return np.concatenate(chunks) if chunks else np.empty(0, np.uint64)
    held = [v if isinstance(v, memoryview) else v.to_bytes(8, "little")[:width] for v in values]
    return np.frombuffer(held[0] if len(held) == 1 else b"".join(held), np.uint8)


def varints(data: memoryview) -> npt.NDArray[np.uint64]:
    """All the numbers of a packed field. Raises ValueError."""
    held = np.frombuffer(data, np.uint8)
    if not held.size:
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(held < 0x80)
    if not ends.size or ends[-1] != held.size - 1:
        raise ValueError("a number without an end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise ValueError("a number without an end")
    found = np.zeros(ends.size, np.uint64)
    for count in range(int(lengths.max())):
        longer = lengths > count
        found[longer] |= (held[starts[longer] + count] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(
            7 * count
        )
    return found
