"""Mutations of MXNet's parameter files: the heads of arrays, their names, and how many there are."""

from __future__ import annotations

import random
import struct

import octets

_MAGIC = struct.pack("<QQ", 0x112, 0)
_V2 = struct.pack("<Ii", 0xF993FAC9, 0)
_HEADS = (0xF993FAC8, 0xF993FAC9, 0xF993FACA, 0, 1, 2, 0xFFFFFFFF)
_NAMES = (
    "",
    "arg:",
    "aux:x",
    "lstm_parameters",
    "lstm0_l0_i2h_weight",
    "l0_i2h_f_weight",
    "0.l_cell.i2h_bias",
)
_NAMES += (
    "_unfused.0.h2h_weight",
    "1.r_cell.h2r_weight",
    "i2h_gamma",
    "a" * 3000,
    "x\n",
    "encoderr0_i2h_bias",
)
_MOST = 3


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A file with other arrays or names. Raises ValueError for one that is not of version 2."""
    begin, arrays, names = _parsed(data)
    for _ in range(rng.randint(1, _MOST)):
        place, what = rng.randrange(len(arrays)), rng.randrange(6)
        if what <= 1:
            arrays[place] = _headed(rng, arrays[place])
        elif what == 2 and names:
            names[place % len(names)] = rng.choice([*_NAMES, *names]).encode()[:4000].decode(errors="replace")
        elif what == 3:
            arrays[place] = octets.mutated(rng, arrays[place])
        elif what == 4:
            other = rng.randrange(len(arrays))
            arrays[place], arrays[other] = arrays[other], arrays[place]
        elif len(arrays) > 1:
            del arrays[place]
            del names[place : place + rng.randrange(2)]
    counts = [rng.choice(octets.NUMBERS) if rng.random() < 0.1 else len(each) for each in (arrays, names)]
    head, tail = (struct.pack("<Q", count % 2**64) for count in counts)
    kept = b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in names)
    return begin + head + b"".join(arrays) + tail + kept


def _parsed(data: bytes) -> tuple[bytes, list[bytes], list[str]]:
    """What stands before the arrays, the arrays, and their names."""
    if not data.startswith(_MAGIC):
        raise ValueError
    (count,) = struct.unpack_from("<Q", data, 16)
    starts = [place for place in range(24, len(data)) if data.startswith(_V2, place)]
    if len(starts) != count:
        raise ValueError(count)
    at = len(data)
    (names_at,) = [
        place
        for place in range(starts[-1], at)
        if data.startswith(struct.pack("<Q", count), place) and _names(data, place + 8, count) is not None
    ][:1]
    names = _names(data, names_at + 8, count)
    assert names is not None
    ends = [*starts[1:], names_at]
    return data[:16], [data[start:end] for start, end in zip(starts, ends, strict=True)], names


def _names(data: bytes, place: int, count: int) -> list[str] | None:
    """The names from a place on, None where they do not end with the file."""
    names = []
    for _ in range(count):
        if place + 8 > len(data):
            return None
        (size,) = struct.unpack_from("<Q", data, place)
        if size > len(data):
            return None
        names.append(data[place + 8 : place + 8 + size].decode(errors="replace"))
        place += 8 + size
    return names if place == len(data) else None


def _headed(rng: random.Random, array: bytes) -> bytes:
    """An array with another number in its head, of 32 or of 64 bits."""
    at = 4 * rng.randrange(8)
    if at == 0:
        return struct.pack("<I", rng.choice(_HEADS)) + array[4:]
    number, wide = rng.choice((*octets.NUMBERS, *range(14))), rng.choice((4, 8))
    return array[:at] + (number % 2 ** (8 * wide)).to_bytes(wide, "little") + array[at + wide :]
