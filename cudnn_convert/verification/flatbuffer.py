"""The bytes of a flatbuffer, checked before native code follows the offsets in them.

What a table holds is learnt from TensorFlow's own generated readers: each is called once on a stand-in that
notes which slot it asks for and how it reads. Every offset must then lead into the file, to what fits there.
Source: flatbuffers v25 include/flatbuffers/verifier.h, docs/source/internals.md; python/flatbuffers/table.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, Final

#: Tables inside of tables, and tables in all, as flatbuffers' own verifier has them.
_DEEPEST: Final = 64
_MOST: Final = 1_000_000
#: What generated readers have beside one function for each field.
_OTHERS: Final = ("GetRootAs", "AsNumpy", "Length", "IsNone", "BufferHasIdentifier")
_OFFSET: Final = 4


class FlatbufferError(ValueError):
    """Bytes that do not hold what they claim."""


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is read: of `width` bytes, a `table` or a string behind an offset, a union, a vector.

    Of a vector that is the width of an element; all but plain numbers are offsets in the table itself.
    """

    width: int = _OFFSET
    table: Any = None
    is_string: bool = False
    is_union: bool = False
    is_vector: bool = False

    @property
    def size(self) -> int:
        """Bytes of it in its table."""
        return _OFFSET if self.is_vector else self.width


class _StandIn:
    """Takes the place of a table, and notes how a reader of one field reads it."""

    Pos, Bytes = 0, b""

    def __init__(self) -> None:
        self.slot, self.is_vector, self.found = 0, False, _Field()

    def Offset(self, slot: int) -> int:  # noqa: N802 - the names are flatbuffers' own
        self.slot = slot
        return 1

    def Vector(self, _: int) -> int:  # noqa: N802
        self.is_vector = True
        return 0

    def Get(self, flags: Any, _: int) -> Any:  # noqa: N802
        self.found = _Field(width=flags.bytewidth, is_vector=self.is_vector)
        return flags.py_type(0)

    def Indirect(self, _: int) -> int:  # noqa: N802
        self.found = _Field(table=True, is_vector=self.is_vector)
        return 0

    def String(self, _: int) -> bytes:  # noqa: N802
        self.found = _Field(is_string=True, is_vector=self.is_vector)
        return b""

    def Union(self, *_: Any) -> None:  # noqa: N802
        self.found = _Field(is_union=True)


@cache
def _fields(reader: type) -> Mapping[int, tuple[str, _Field]]:
    """The fields of a table by their slots, with their names."""
    found = {}
    for name, read in vars(reader).items():
        if isinstance(read, FunctionType) and name != "Init" and not name.endswith(_OTHERS):
            made, stand_in = reader(), _StandIn()
            made._tab = stand_in
            value = read(made, *[0] * (read.__code__.co_argcount - 1))
            field = stand_in.found
            if field.table:
                field = _Field(table=type(value), is_vector=field.is_vector)
            found[stand_in.slot] = (name, field)
    return found


def require(data: bytes, root: type, unions: Mapping[str, Mapping[int, type]]) -> None:
    """Raises FlatbufferError where `data` is no sound table `root`.

    `unions` has, by the name of a field that is a union, the tables it may be by the number of their type.
    """
    held = _Bytes(data, unions)
    held.table(held.offset(0), root, 0)


class _Bytes:
    """The file, and the tables in it that were checked already."""

    def __init__(self, data: bytes, unions: Mapping[str, Mapping[int, type]]) -> None:
        self._data, self._unions = data, unions
        self._seen: set[tuple[int, type]] = set()

    def _number(self, form: str, at: int) -> int:
        """A number at its place, which must be in the file and a multiple of the number's size."""
        size = struct.calcsize(form)
        if at < 0 or at % size or at + size > len(self._data):
            raise FlatbufferError(f"a number of {size} bytes at {at} of {len(self._data)}")
        value: int = struct.unpack_from(form, self._data, at)[0]
        return value

    def offset(self, at: int) -> int:
        """Where the offset at a place leads."""
        length = self._number("<I", at)
        if not length:
            raise FlatbufferError(f"an offset at {at} that leads to itself")
        return at + length

    def table(self, at: int, reader: type, depth: int) -> None:
        if (at, reader) in self._seen:
            return
        self._seen.add((at, reader))
        if depth > _DEEPEST or len(self._seen) > _MOST:
            raise FlatbufferError("tables without an end")
        slots = at - self._number("<i", at)
        size, length = self._number("<H", slots), self._number("<H", slots + 2)
        if size < _OFFSET or size % 2 or slots + size > len(self._data) or at + length > len(self._data):
            raise FlatbufferError(f"a table at {at} that does not fit into the file")
        held = {slot: self._number("<H", slots + slot) for slot in range(_OFFSET, size, 2)}
        for slot, (name, field) in _fields(reader).items():
            if place := held.get(slot, 0):
                if place < _OFFSET or place + field.size > length:
                    raise FlatbufferError(f"{reader.__name__}.{name} outside of its table")
                kind = held.get(slot - 2, 0)
                self._field(at + place, name, field, at + kind if kind else None, depth)
            elif field.is_union and (kind := held.get(slot - 2, 0)) and self._number("<B", at + kind):
                raise FlatbufferError(f"{reader.__name__}.{name} of a type, without a value")

    def _field(self, at: int, name: str, field: _Field, kind: int | None, depth: int) -> None:
        if field.is_union:
            number = 0 if kind is None else self._number("<B", kind)
            if (reader := self._unions[name].get(number)) is None:
                raise FlatbufferError(f"{name} of a type that TensorFlow does not know, {number}")
            self.table(self.offset(at), reader, depth + 1)
        elif field.is_vector:
            self._vector(self.offset(at), field, depth)
        elif field.table:
            self.table(self.offset(at), field.table, depth + 1)
        elif field.is_string:
            self._string(self.offset(at))
        elif at % field.width:
            raise FlatbufferError(f"{name} at {at}, no multiple of its {field.width} bytes")

    def _vector(self, at: int, field: _Field, depth: int) -> None:
        count, first = self._number("<I", at), at + _OFFSET
        if first % field.width or first + count * field.width > len(self._data):
            raise FlatbufferError(f"{count} elements of {field.width} bytes at {at} of {len(self._data)}")
        if field.table or field.is_string:
            for place in range(first, first + count * _OFFSET, _OFFSET):
                target = self.offset(place)
                self.table(target, field.table, depth + 1) if field.table else self._string(target)

    def _string(self, at: int) -> None:
        end = at + _OFFSET + self._number("<I", at)
        if end >= len(self._data) or self._data[end]:
            raise FlatbufferError(f"a text at {at} without an end")
