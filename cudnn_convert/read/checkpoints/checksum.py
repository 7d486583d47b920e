"""CRC-32C, which covers every block of a table and every tensor of a checkpoint.

Source: tensorflow v2.21.0 (tsl) lib/hash/crc32c.h (Mask: a checksum that is stored beside its data is rotated
and moved, so that it can be covered by another one).
"""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
_MOVED_BY: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF
#: Small enough to be in the processor's cache still when the checksum goes over what was read.
_CHUNK: Final = 1 << 18


def extended(checksum: int, data: Bytes) -> int:
    """The CRC-32C of what `checksum` is that of, followed by `data`."""
    given: Any = data  # an array is as good as bytes, since google-crc32c 1.7 to its Python stand-in too
    return int(google_crc32c.extend(checksum, given))


def masked(checksum: int) -> int:
    """A checksum as files store it."""
    return ((checksum >> 15 | checksum << 17 & _WORD) + _MOVED_BY) & _WORD


def fill(stream: FileIO, array: Bytes) -> int:
    """Reads on into a flat array and gives its CRC-32C, in one pass. Raises ValueError, OSError."""
    checksum, place = 0, 0
    while place < array.size:
        chunk = array[place : place + _CHUNK]
        count = stream.readinto(chunk.data)
        if not count:
            raise ValueError(f"the end of {Path(str(stream.name)).name} after {place} of {array.size} bytes")
        checksum = extended(checksum, chunk[:count])
        place += count
    return checksum
