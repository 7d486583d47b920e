"""Tables and V2 checkpoints with anything in them, sound in all that a checksum covers: what no saver writes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
from tensorflow.core.protobuf import tensor_bundle_pb2

MAGIC = 0xDB4775248B80FB57


def masked(data: bytes) -> int:
    """The checksum of some bytes as files store it."""
    checksum = google_crc32c.value(data)
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def entry(shared: int, rest: bytes, value: bytes) -> bytes:
    return varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value


def block(entries: Mapping[bytes, bytes]) -> bytes:
    """A block that spells every key out."""
    return b"".join(entry(0, key, value) for key, value in entries.items()) + struct.pack("<II", 0, 1)


def table(blocks: Sequence[tuple[bytes, bytes]], *, kind: int = 0) -> bytes:
    """A table of `(last key, block)`, each block as it lies in the file."""
    data, index = b"", {}
    for last, held in blocks:
        index[last] = varint(len(data)) + varint(len(held))
        data += signed(held, kind)
    handles = varint(0) + varint(0) + varint(len(data)) + varint(len(block(index)))
    return data + signed(block(index), 0) + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def signed(held: bytes, kind: int) -> bytes:
    return held + bytes([kind]) + struct.pack("<I", masked(held + bytes([kind])))


def header(*, shards: int = 1, endianness: int = 0, reader: int = 0) -> bytes:
    proto = tensor_bundle_pb2.BundleHeaderProto(num_shards=shards, endianness=endianness)
    proto.version.producer, proto.version.min_consumer = 1, reader
    return proto.SerializeToString()


def bundle(folder: Path, entries: Mapping[bytes, bytes], data: bytes = b"") -> Path:
    """The prefix of a V2 checkpoint with these entries, and `data` in its only data file."""
    prefix = folder / "made"
    held = block(dict(sorted(entries.items())))
    Path(f"{prefix}.index").write_bytes(table([(max(entries), held)]))
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    return prefix
