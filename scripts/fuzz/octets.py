"""Mutations of bytes, whatever they mean."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

#: What programs take for a size, an offset or a count that nobody has.
NUMBERS = (
    0,
    1,
    -1,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63 - 1,
    2**63,
    -(2**63),
)
#: How many changes one input gets at most.
_MOST = 4


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """`data` with one to four changes; `others` are files that parts may come from. Never fails."""
    for _ in range(rng.randint(1, _MOST)):
        data = rng.choice(_CHANGES)(rng, data, [*others, data])
    return data


def varint(number: int) -> bytes:
    """A number of 64 bits as protocol buffers write it."""
    number &= 2**64 - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _place(rng: random.Random, data: bytes) -> int:
    """Anywhere, more often near the ends, where headers and footers stand."""
    size = len(data)
    return rng.choice(
        (rng.randint(0, size), rng.randint(0, min(64, size)), rng.randint(max(0, size - 64), size))
    )


def _flipped(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _place(rng, data)
    held = bytearray(data)
    for k in range(place, min(len(data), place + rng.choice((1, 1, 2, 8)))):
        held[k] ^= 1 << rng.randrange(8)
    return bytes(held)


def _inserted(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _place(rng, data)
    return data[:place] + rng.randbytes(rng.choice((1, 2, 4, 8, 100))) + data[place:]


def _deleted(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _place(rng, data)
    return data[:place] + data[place + rng.choice((1, 2, 4, 16, 512)) :]


def _doubled(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _place(rng, data)
    held = data[place : place + rng.choice((1, 8, 64, 1024))]
    return data[:place] + held * rng.choice((2, 3, 50)) + data[place + len(held) :]


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)]


def _spliced(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)] + (other := rng.choice(others))[_place(rng, other) :]


def _numbered(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """An interesting number in the place of what stood there."""
    place, number, width = _place(rng, data), rng.choice(NUMBERS), rng.choice((0, 1, 2, 4, 8))
    if width:
        made = (number % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big")))
    else:
        made = varint(number)
    return data[:place] + made + data[place + (width or rng.choice((1, len(made)))) :]


_CHANGES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    *(_flipped, _flipped, _inserted, _deleted, _doubled, _cut, _spliced),
    *(_numbered, _numbered),
)
