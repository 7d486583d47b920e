"""TensorFlow's own copy of LevelDB's table: sorted keys and values in blocks, each with its checksum.

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
import numpy as np

from cudnn_convert.read.checkpoints.checksum import fill, masked
from cudnn_convert.read.checkpoints.wire import varint

#: The last eight bytes of every table.
MAGIC: Final = bytes.fromhex("57fb808b247547db")
_FOOTER: Final = 48
_PLAIN, _SNAPPY = 0, 1
#: Snappy's longest copy is 64 bytes in three; a block that claims more was made to fill memory.
EXPANSION: Final = 22
#: A key is written in full every 16 entries: no block of a table spells out more than this times its size.
_SPELT: Final = 64
#: The last block that was looked into stays where it is no larger: TensorFlow begins another one at 256 KiB.
_KEPT: Final = 1 << 20

Handle = tuple[int, int]


class Table:
    """One file of keys and values, of which only the index is held."""

    def __init__(self, path: Path) -> None:
        """Reads the index. Raises ValueError, OSError."""
        self.path = path
        with FileIO(str(path)) as stream:
            self.size = stream.seek(0, 2)
            if self.size < _FOOTER:
                raise ValueError(f"a file of {self.size} bytes")
            footer = np.empty(_FOOTER, np.uint8)
            stream.seek(-_FOOTER, 2)
            fill(stream, footer)
            held = footer.data
            if held[-len(MAGIC) :] != MAGIC:
                raise ValueError("a file that does not end as a table")
            _, place = _handle(held, 0)
            index = [
                (key, _handle(value, 0)[0])
                for key, value in _entries(self._block(stream, _handle(held, place)[0]))
            ]
        self._lasts, self._handles = [key for key, _ in index], [handle for _, handle in index]
        if any(one >= other for one, other in zip(self._lasts, self._lasts[1:], strict=False)):
            raise ValueError("an index out of order")
        self._looked_into: dict[int, dict[bytes, memoryview]] = {}

    def entries(self) -> Iterator[tuple[bytes, memoryview]]:
        """Every key with its value, in order. Raises ValueError, OSError."""
        with FileIO(str(self.path)) as stream:
            for place, handle in enumerate(self._handles):
                yield from self._ordered(place, self._block(stream, handle))

    def stored(self, key: bytes) -> int:
        """The bytes of the file that hold the block of `key`."""
        place = bisect_left(self._lasts, key)
        return self._handles[place][1] if place < len(self._handles) else 0

    def find(self, key: bytes) -> memoryview:
        """The value of `key`. Raises ValueError, OSError."""
        place = bisect_left(self._lasts, key)
        if place == len(self._handles):
            raise ValueError("no such key")
        held = self._looked_into.get(place)
        if held is None:
            with FileIO(str(self.path)) as stream:
                block = self._block(stream, self._handles[place])
            held = dict(self._ordered(place, block))
            self._looked_into = {place: held} if len(block) <= _KEPT else {}
        if key not in held:
            raise ValueError("no such key")
        return held[key]

    def _ordered(self, place: int, block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
        """The entries of one block, whose keys rise from the index's key before it to its own there."""
        before = self._lasts[place - 1] if place else None
        for key, value in _entries(block):
            if (before is not None and key <= before) or key > self._lasts[place]:
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
        if masked(checksum) != int.from_bytes(trailer, "little"):
            raise ValueError(f"a block at {offset} of another checksum")
        if stored[-1] == _PLAIN:
            return stored.data[:-1]
        if stored[-1] == _SNAPPY:
            return _decompressed(stored[:-1])
        raise ValueError(f"a block at {offset} of kind {stored[-1]}")


def _decompressed(stored: Any) -> memoryview:
    try:
        size = cramjam.snappy.decompress_raw_len(stored)
        if size > EXPANSION * stored.size:
            raise ValueError(f"{size} bytes in {stored.size}")
        return memoryview(cramjam.snappy.decompress_raw(stored))
    except cramjam.DecompressionError as cause:
        raise ValueError(str(cause)) from cause


def _handle(data: memoryview, place: int) -> tuple[Handle, int]:
    offset, place = varint(data, place)
    size, place = varint(data, place)
    return (offset, size), place


def _entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise ValueError(f"a block of {len(block)} bytes that ends before it begins")
    place, key, spelt = 0, b"", 0
    while place < end:
        shared, place = varint(block, place)
        unshared, place = varint(block, place)
        length, place = varint(block, place)
        start = place + unshared
        if shared > len(key) or start + length > end:
            raise ValueError("a block that ends within an entry")
        key = key[:shared] + bytes(block[place:start])
        spelt += len(key)
        if spelt > _SPELT * len(block):
            raise ValueError(f"{spelt} bytes of keys in a block of {len(block)}")
        place = start + length
        yield key, block[start:place]
