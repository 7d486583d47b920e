"""The heaps of an HDF5 file, where its strings of any length lie, walked before the library reads one.

The library goes from object to object of a heap, and stands still for ever at one that takes no room: a free
one of no size, or one whose size and header come to 0 in 64 bits.
Source: HDF5 File Format Specification 3.0, II.A (superblock) and III.E (global heap); hdf5 1.14.6 H5HGcache.c
H5HG__cache_heap_deserialize.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

_SUPERBLOCK: Final = b"\x89HDF\r\n\x1a\n"
_HEAP: Final = b"GCOL\x01\x00\x00\x00"
#: Where the superblock of a version says how wide an offset and a length are: all writers take 8.
_WIDTHS: Final = {b"\0": 13, b"\1": 13, b"\2": 9, b"\3": 9}
_WIDE: Final = b"\x08\x08"
_CHUNK: Final = 1 << 24
#: The bytes before a heap's first object and before what an object holds; more than is read of a superblock.
_HEADER: Final = 16


def fault(stream: BinaryIO) -> str | None:
    """Why the library would not come to an end with a file, None where it would."""
    head = _superblock(stream)
    place = _WIDTHS.get(head[8:9])
    if place is None or head[place : place + 2] != _WIDE:
        return "offsets and lengths that are not of 8 bytes"
    size = stream.seek(0, 2)
    room = size // _HEADER
    # A reference may lead to any, also to one in what looks like another: all are walked, in so many steps.
    for found in _places(stream):
        for step in _steps(stream, found, size):
            if not step:
                return f"a heap without an end at byte {found}"
            if not room:
                return "heaps with more objects than there is room for"
            room -= 1
    return None


def _superblock(stream: BinaryIO) -> bytes:
    """The first bytes of the superblock, which stands at 0, 512, 1024, 2048 and so on; none without it."""
    start = stream.seek(0)
    while (head := stream.read(_HEADER)) and not head.startswith(_SUPERBLOCK):
        start = stream.seek(start * 2 or 512)
    return head


def _places(stream: BinaryIO) -> Iterator[int]:
    """Where a heap may begin."""
    end, held = 0, b""
    while True:
        stream.seek(end)
        chunk = stream.read(_CHUNK)
        if not chunk:
            return
        end += len(chunk)
        held = held[1 - len(_HEAP) :] + chunk  # one may lie over the edge
        place = held.find(_HEAP)
        while place >= 0:
            yield end - len(held) + place
            place = held.find(_HEAP, place + len(_HEAP))


def _steps(stream: BinaryIO, place: int, size: int) -> Iterator[int]:
    """How far it is from each object of a heap to the next, in a file of `size` bytes."""
    stream.seek(place + 8)
    end = min(size, place + int.from_bytes(stream.read(8), "little"))
    place += _HEADER
    while place + _HEADER <= end:
        stream.seek(place)
        header = stream.read(_HEADER)
        held = int.from_bytes(header[8:], "little")
        is_free = header[:2] == b"\0\0"
        step = held if is_free else (_HEADER + (held + 7) // 8 * 8) % (1 << 64)
        yield step
        place += step
