"""The heaps of an HDF5 file, where its strings of any length lie, walked before the library reads one.

The library goes from object to object of a heap, and stands still for ever at a free one of no size.
Source: HDF5 File Format Specification 3.0, II.A (superblock) and III.E (global heap); hdf5 1.14.6 H5HGcache.c
H5HG__cache_heap_deserialize.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

_SUPERBLOCK: Final = b"\x89HDF\r\n\x1a\n"
_HEAP: Final = b"GCOL\x01\x00\x00\x00"
#: Where the superblock of a version says how wide an offset and a length are: all writers take 8.
_WIDTHS: Final = {0: 13, 1: 13, 2: 9, 3: 9}
_WIDE: Final = b"\x08\x08"
_CHUNK: Final = 1 << 24
_HEADER: Final = 16


def fault(stream: BinaryIO) -> str | None:
    """Why the library would not come to an end with a file, None where it would."""
    head = _superblock(stream)
    place = _WIDTHS.get(head[8] if len(head) > 8 else -1)
    if place is None or head[place : place + 2] != _WIDE:
        return "offsets and lengths that are not of 8 bytes"
    end = 0
    for found in _places(stream):
        if found >= end:  # no heap lies in another
            end = _end(stream, found)
            if end < 0:
                return f"a heap without an end at byte {found}"
    return None


def _superblock(stream: BinaryIO) -> bytes:
    """The first bytes of the superblock, which stands at 0, 512, 1024, 2048 and so on."""
    size, start = stream.seek(0, 2), 0
    while start < size:
        stream.seek(start)
        head = stream.read(16)
        if head.startswith(_SUPERBLOCK):
            return head
        start = start * 2 or 512
    return b""


def _places(stream: BinaryIO) -> Iterator[int]:
    """Where a heap may begin."""
    begin, held = 0, b""
    while True:
        stream.seek(begin + len(held))
        chunk = stream.read(_CHUNK)
        if not chunk:
            return
        held += chunk
        place = held.find(_HEAP)
        while place >= 0:
            yield begin + place
            place = held.find(_HEAP, place + 1)
        kept = min(len(held), len(_HEAP) - 1)
        begin, held = begin + len(held) - kept, held[len(held) - kept :]


def _end(stream: BinaryIO, place: int) -> int:
    """Where a heap ends, -1 where its objects never reach that."""
    stream.seek(place + 8)
    end = place + int.from_bytes(stream.read(8), "little")
    place += _HEADER
    while place + _HEADER <= end:
        stream.seek(place)
        header = stream.read(_HEADER)
        if len(header) < _HEADER:
            break  # cut off: the library sees that
        size = int.from_bytes(header[8:], "little")
        is_free = header[:2] == b"\0\0"
        if is_free and not size:
            return -1
        place += size if is_free else _HEADER + (size + 7) // 8 * 8
    return end
