"""Files of records, written without TensorFlow: Examples, and records with their checksums."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np


def message(number: int, kind: bytes) -> bytes:
    """A field of a protobuf message, with less than 2^14 bytes."""
    size = len(kind)
    sizes = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + sizes + kind


def example(features: Mapping[str, Any]) -> bytes:
    """An Example (tensorflow v2.21.0 core/example/feature.proto) without TensorFlow's own protos."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0] if len(values) else 0.0, bytes):
            listed = message(1, b"".join(message(1, value) for value in values))
        elif np.asarray(values).dtype.kind == "f":
            listed = message(2, message(1, np.asarray(values, "<f4").tobytes()))
        else:
            listed = message(3, message(1, b"".join(varint(int(value)) for value in values)))
        entries += message(1, message(1, name.encode()) + message(2, listed))
    return message(1, entries)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + masked(head) + data + masked(data)
