"""Tables of a checkpoint: protocol buffer fields, checksums, LevelDB blocks.

Protocol buffers are parsed in place: fields by number, no descriptors, no copies. A message registered here
would conflict with TensorFlow's of that name if TensorFlow is imported later.
Source: protobuf's "Encoding"; groups, which proto3 never had, are refused.

CRC-32C covers every block of a table and every tensor of a checkpoint.
Source: tensorflow v2.21.0 (tsl) lib/hash/crc32c.h (Mask: a checksum that is stored beside its data is rotated
and moved, so that it can be covered by another one).

Tables are TensorFlow's copy of LevelDB's: sorted keys and values in blocks, each with its checksum.

    block ... block | meta index | index | footer of 48 bytes: two handles, padding, magic
    block   = entry ... entry, offsets of 32 bits where a key stands in full, their number | kind | checksum
    entry   = shared, unshared, length (varints), the rest of the key, value

Source: tensorflow v2.21.0 (tsl) lib/io/table_format.txt, format.h, format.cc, block.cc; unchanged since 0.5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Final

import cramjam
import google_crc32c
import numpy as np
import numpy.typing as npt

Fields = dict[int, list["int | memoryview"]]
_FIXED: Final = {1: 8, 5: 4}
_VARINT, _LENGTH = 0, 2
_LONGEST: Final = 10


def varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Return the unsigned 64-bit varint at `offset`, and the next offset. Raises ValueError."""
    number = 0
    for count, byte in enumerate(data[offset : offset + _LONGEST]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, offset + count + 1
    raise ValueError("a number without an end")


def fields(data: memoryview) -> Fields:
    """Return the values of a message by field number, in order. Raises ValueError.

    Varints and fixed-width numbers become integers, length-delimited fields bytes.
    """
    by_number: Fields = {}
    offset = 0
    while offset < len(data):
        tag, offset = varint(data, offset)
        value: int | memoryview
        if (kind := tag & 7) == _VARINT:
            value, offset = varint(data, offset)
        elif kind == _LENGTH or kind in _FIXED:
            size, offset = varint(data, offset) if kind == _LENGTH else (_FIXED[kind], offset)
            body = data[offset : offset + size]
            if len(body) < size:
                raise ValueError("a message that ends within a field")
            offset += size
            value = body if kind == _LENGTH else int.from_bytes(body, "little")
        else:
            raise ValueError(f"a field of kind {kind}")
        by_number.setdefault(tag >> 3, []).append(value)
    return by_number


def integer(message: Fields, number: int) -> int:
    """Return a field's last value as a signed 64-bit integer. Raises ValueError.

    The default is 0.
    """
    value = message.get(number, (0,))[-1]
    if not isinstance(value, int):
        raise ValueError(f"bytes for the number in field {number}")
    return value - (1 << 64) if value >> 63 else value


def contents(message: Fields, number: int) -> list[memoryview]:
    """Return the bytes of each occurrence of a field. Raises ValueError."""
    values = message.get(number, [])
    whole = [value for value in values if isinstance(value, memoryview)]
    if len(whole) != len(values):
        raise ValueError(f"a number for the bytes in field {number}")
    return whole


def content(message: Fields, number: int) -> memoryview:
    """Return the bytes of a field, empty by default.

    Raises ValueError where it occurs twice.
    """
    values = contents(message, number)
    if len(values) > 1:
        raise ValueError(f"{len(values)} of field {number}")
    return values[0] if values else memoryview(b"")


def numbers(message: Fields, number: int, width: int) -> npt.NDArray[np.uint64] | Bytes:
    """Return the values of a repeated field, packed or unpacked.

    `width` 0 means varints, decoded; 4 or 8 means fixed-width numbers, whose raw bytes are returned.
    Raises ValueError.
    """
    values = message.get(number, [])
    if not width:
        chunks = [varints(v) if isinstance(v, memoryview) else np.array([v], np.uint64) for v in values]
        return np.concatenate(chunks) if chunks else np.empty(0, np.uint64)
    raw = [v if isinstance(v, memoryview) else v.to_bytes(8, "little")[:width] for v in values]
    return np.frombuffer(raw[0] if len(raw) == 1 else b"".join(raw), np.uint8)


def varints(data: memoryview) -> npt.NDArray[np.uint64]:
    """Decode all varints of a packed field. Raises ValueError."""
    raw = np.frombuffer(data, np.uint8)
    if not raw.size:
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if not ends.size or ends[-1] != raw.size - 1:
        raise ValueError("a number without an end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise ValueError("a number without an end")
    values = np.zeros(ends.size, np.uint64)
    for count in range(int(lengths.max())):
        longer = lengths > count
        values[longer] |= (raw[starts[longer] + count] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(
            7 * count
        )
    return values


Bytes = npt.NDArray[np.uint8]
_MOVED_BY: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF
#: Fits the processor's cache, so that the checksum reads from the cache what was just read.
_CHUNK: Final = 1 << 18


def extend_crc(checksum: int, data: Bytes) -> int:
    """Extend a CRC-32C by `data`."""
    given: Any = data  # accepts arrays as well as bytes, since google-crc32c 1.7 in its Python fallback too
    return int(google_crc32c.extend(checksum, given))


def mask_crc(checksum: int) -> int:
    """Mask a checksum as files store it."""
    return ((checksum >> 15 | checksum << 17 & _WORD) + _MOVED_BY) & _WORD


def fill(stream: FileIO, array: Bytes) -> int:
    """Fill a flat array from the stream and compute the CRC-32C in a single pass.

    Raises ValueError at the end of the file, OSError.
    """
    checksum, offset = 0, 0
    while offset < array.size:
        chunk = array[offset : offset + _CHUNK]
        count = stream.readinto(chunk.data)
        if not count:
            raise ValueError(f"the end of {Path(str(stream.name)).name} after {offset} of {array.size} bytes")
        checksum = extend_crc(checksum, chunk[:count])
        offset += count
    return checksum


#: The last eight bytes of every table.
MAGIC: Final = bytes.fromhex("57fb808b247547db")
_FOOTER: Final = 48
_PLAIN, _SNAPPY = 0, 1
#: Snappy's longest copy gives 64 bytes from three; a block that claims more is a decompression bomb.
EXPANSION: Final = 22
#: Bound on decoded key bytes over block size: a key is written in full every 16 entries.
_SPELT: Final = 64
#: The largest block that is cached after a look-up; TensorFlow begins a new block at 256 KiB.
_KEPT: Final = 1 << 20

Handle = tuple[int, int]


class Table:
    """A sorted table file; only the index is kept in memory."""

    def __init__(self, path: Path) -> None:
        """Read the index. Raises ValueError, OSError."""
        self.path = path
        with FileIO(str(path)) as stream:
            self.size = stream.seek(0, 2)
            if self.size < _FOOTER:
                raise ValueError(f"a file of {self.size} bytes")
            stream.seek(-_FOOTER, 2)
            footer = memoryview(stream.read(_FOOTER))
            if footer[-len(MAGIC) :] != MAGIC:
                raise ValueError("a file that does not end as a table")
            _, offset = _handle(footer, 0)
            block = self._block(stream, _handle(footer, offset)[0])
        index = [(key, _handle(value, 0)[0]) for key, value in _entries(block)]
        self._lasts, self._handles = [key for key, _ in index], [handle for _, handle in index]
        if any(last >= other for last, other in zip(self._lasts, self._lasts[1:], strict=False)):
            raise ValueError("an index out of order")
        self._looked_into: dict[int, dict[bytes, memoryview]] = {}

    def entries(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield every key with the value, in order. Raises ValueError, OSError."""
        with FileIO(str(self.path)) as stream:
            for position, handle in enumerate(self._handles):
                yield from self._iterate_entries(position, self._block(stream, handle))

    def block_size(self, key: bytes) -> int:
        """Return the byte size of the stored block with `key`, 0 past the last key."""
        position = bisect_left(self._lasts, key)
        return self._handles[position][1] if position < len(self._handles) else 0

    def find(self, key: bytes) -> memoryview:
        """Return the value of `key`. Raises ValueError, OSError."""
        position = bisect_left(self._lasts, key)
        if position == len(self._handles):
            raise ValueError("no such key")
        items = self._looked_into.get(position)
        if items is None:
            with FileIO(str(self.path)) as stream:
                block = self._block(stream, self._handles[position])
            items = dict(self._iterate_entries(position, block))
            self._looked_into = {position: items} if len(block) <= _KEPT else {}
        if key not in items:
            raise ValueError("no such key")
        return items[key]

    def _iterate_entries(self, position: int, block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the entries of a block, checked for order and the index's bounds."""
        before = self._lasts[position - 1] if position else None
        for key, value in _entries(block):
            if (before is not None and key <= before) or key > self._lasts[position]:
                raise ValueError("keys out of order")
            before = key
            yield key, value

    def _block(self, stream: FileIO, handle: Handle) -> memoryview:
        offset, size = handle
        if offset + size + 5 > self.size - _FOOTER:
            raise ValueError(f"a block of {size} bytes at {offset} in a file of {self.size} bytes")
        stored = np.empty(size + 1, np.uint8)
        stream.seek(offset)
        checksum, trailer = fill(stream, stored), np.empty(4, np.uint8)
        fill(stream, trailer)
        if mask_crc(checksum) != int.from_bytes(trailer, "little"):
            raise ValueError(f"a block at {offset} of another checksum")
        if stored[-1] == _PLAIN:
            return stored.data[:-1]
        if stored[-1] == _SNAPPY:
            return _decompress(stored[:-1])
        raise ValueError(f"a block at {offset} of kind {stored[-1]}")


def _decompress(stored: Any) -> memoryview:
    try:
        size = cramjam.snappy.decompress_raw_len(stored)
        if size > EXPANSION * stored.size:
            raise ValueError(f"{size} bytes in {stored.size}")
        return memoryview(cramjam.snappy.decompress_raw(stored))
    except cramjam.DecompressionError as cause:
        raise ValueError(str(cause)) from cause


def _handle(data: memoryview, cursor: int) -> tuple[Handle, int]:
    offset, cursor = varint(data, cursor)
    size, cursor = varint(data, cursor)
    return (offset, size), cursor


def _entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise ValueError(f"a block of {len(block)} bytes that ends before it begins")
    offset, key, spelt = 0, b"", 0
    while offset < end:
        shared, offset = varint(block, offset)
        unshared, offset = varint(block, offset)
        length, offset = varint(block, offset)
        start = offset + unshared
        if shared > len(key) or start + length > end:
            raise ValueError("a block that ends within an entry")
        key = key[:shared] + bytes(block[offset:start])
        spelt += len(key)
        if spelt > _SPELT * len(block):
            raise ValueError(f"{spelt} bytes of keys in a block of {len(block)}")
        offset = start + length
        yield key, block[start:offset]
