"""Mutations of files of examples: of records under right checksums, and of rows of text."""

from __future__ import annotations

import gzip
import random
import struct

import google_crc32c
import messages
import octets
import tensorflow as tf

_HEAD = struct.Struct("<QI")
_CELLS = ("", "x", "1e999", "nan", "-1", "9" * 400, "1 2 3", '"', "\x00", "1_0", "\u0663", "," * 9)


def masked(data: bytes) -> int:
    """The checksum of bytes as records store it."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes, claimed: int | None = None) -> bytes:
    """A record whose checksums are right, also where it claims another length."""
    size = struct.pack("<Q", (len(data) if claimed is None else claimed) % 2**64)
    return size + struct.pack("<I", masked(size)) + data + struct.pack("<I", masked(data))


def mutated(rng: random.Random, name: str, data: bytes) -> bytes:
    """Records of which one is another, or says another length."""
    if name.endswith(".gz"):
        return gzip.compress(mutated(rng, name.removesuffix(".gz"), gzip.decompress(data)), mtime=0)
    found = [*_contents(data)]
    place = rng.randrange(len(found))
    kind = rng.randrange(8)
    if kind <= 3:
        example = tf.train.Example.FromString(found[place])
        messages.mutated(rng, example)
        found[place] = example.SerializeToString()
    elif kind <= 5:
        found[place] = octets.mutated(rng, found[place], found)
    elif kind == 6:
        del found[place]
    parts = [record(each) for each in found]
    if kind == 7:
        parts[place] = record(found[place], rng.choice(octets.NUMBERS))
    return b"".join(parts)


def _contents(data: bytes) -> list[bytes]:
    """The bytes of each record."""
    found, offset = [], 0
    while offset < len(data):
        size, _ = _HEAD.unpack_from(data, offset)
        found.append(data[offset + 12 : offset + 12 + size])
        offset += size + 16
    return found


def rows(rng: random.Random, _: str, data: bytes) -> bytes:
    """A table of text with another cell."""
    lines = [line.split(",") for line in data.decode().splitlines()]
    line = rng.choice(lines)
    line[rng.randrange(len(line))] = rng.choice(_CELLS)
    if rng.random() < 0.1:
        line.append("more")
    return "\n".join(map(",".join, lines)).encode()
