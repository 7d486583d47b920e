"""Mutations of msgpack: values of another kind, keys too few or too many, arrays whose parts do not fit."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgpack
import octets
import trees

_MOST = 3
_TYPES = ("float32", "bfloat16", "float8_e4m3fn", "int4", "bool", "object", "V8", "str32", "x", "finfo", "")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A file with one to three changes. Raises ValueError for another file."""
    tree = msgpack.unpackb(data, strict_map_key=False)
    for _ in range(rng.randint(1, _MOST)):
        places = [*trees.every_place(tree)]
        holder, key = rng.choice(places)
        if isinstance(holder[key], msgpack.ExtType) and rng.random() < 0.6:
            holder[key] = _extension(rng, holder[key])
        else:
            _change(rng, places, holder, key)
    written: bytes = msgpack.packb(tree)
    return written


def _change(rng: random.Random, places: list[tuple[Any, Any]], holder: Any, key: Any) -> None:
    """Another value, a value from elsewhere, a value less, or another key."""
    other, taken = rng.choice(places)
    kind = rng.randrange(6)
    if kind <= 1:
        holder[key] = _strange(rng)
    elif kind == 2:
        holder[key] = copy.deepcopy(other[taken])
    elif kind == 3:
        holder[key], other[taken] = copy.deepcopy(other[taken]), holder[key]
    elif kind == 4 or isinstance(holder, list):
        del holder[key]
    else:
        names = (*holder, taken, "", "a/b", "opt_state", "\n", "k" * 5_000, 7, b"k", None)
        holder[rng.choice(names)] = holder.pop(key)


def _extension(rng: random.Random, value: msgpack.ExtType) -> msgpack.ExtType:
    """An array with another shape, type or bytes, or of another code."""
    if rng.random() < 0.2:
        return msgpack.ExtType(rng.choice((0, 1, 2, 3, 4, 127)), octets.mutated(rng, value.data))
    parts = msgpack.unpackb(value.data)
    place = rng.randrange(len(parts))
    if rng.random() < 0.2:
        parts[place] = _strange(rng)
    elif place == 0:
        sizes = [*parts[0], *rng.sample(octets.NUMBERS, 1)]
        rng.shuffle(sizes)
        parts[0] = sizes[: rng.randint(0, len(sizes))]
    elif place == 1:
        parts[1] = rng.choice(_TYPES)
    else:
        parts[2] = octets.mutated(rng, parts[2]) if isinstance(parts[2], bytes) else b""
    return msgpack.ExtType(value.code, msgpack.packb(parts))


def _strange(rng: random.Random) -> Any:
    deep: Any = rng.choice(({}, []))
    for _ in range(rng.choice((2, 400))):
        deep = {"d": deep} if rng.random() < 0.5 else [deep]
    plain = (None, True, -1, 2**63, 1.5, "", "x" * 5_000, b"\0", [], {}, [[1]] * 9, {"0": 3}, deep)
    marks = ({"__msgpack_chunked_array__": True}, msgpack.ExtType(1, b""), msgpack.ExtType(2, b"\x92\1\2"))
    return copy.deepcopy(rng.choice((*plain, *marks)))
