"""Mutations of zip archives: what is in their members, what these are called, what their headers say."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable

import numpy as np
import octets
import trees

#: Changes the content of a member of this name.
Change = Callable[[random.Random, str, bytes], bytes]
_NAMES = ("../x", "/x", "a/../../x", "", "a" * 3000, "meta.npy", "config.json", "x\x00y")
#: Where a member's header says its sizes: from the start of a local and of a central one.
_SIZES = {b"PK\3\4": 18, b"PK\1\2": 20}


def mutated(rng: random.Random, data: bytes, change: Change) -> bytes:
    """An archive whose members are changed and put into a new one, with right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = rng.randrange(len(members))
    name, content = members[place]
    kind = rng.randrange(10)
    if kind <= 6:
        members[place] = name, change(rng, name, content)
    elif kind == 7:
        members[place] = rng.choice([*_NAMES, *(other for other, _ in members)]), content
    elif kind == 8:
        del members[place]
    else:
        members.append((name, change(rng, name, content)))
    made = _written(rng, members)
    return _lying(rng, made) if rng.random() < 0.1 else made


def _written(rng: random.Random, members: list[tuple[str, bytes]]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
            archive.writestr(info, content)
    return held.getvalue()


def _lying(rng: random.Random, data: bytes) -> bytes:
    """One header with other sizes, or flags that say the member is encrypted."""
    start = rng.choice([*_SIZES])
    places = [k for k in range(len(data)) if data.startswith(start, k)]
    if not places:
        return data
    place = rng.choice(places) + rng.choice((_SIZES[start], _SIZES[start] + 4, 6, 8))
    number = rng.choice(octets.NUMBERS) % 2**32
    return data[:place] + number.to_bytes(4, "little") + data[place + 4 :]


def array(rng: random.Random, name: str, content: bytes) -> bytes:
    """A member of an .npz: its header, its values, or the JSON that it holds."""
    kind = rng.randrange(5)
    if kind == 0:
        return octets.mutated(rng, content)
    if kind == 1:
        return _header(rng, content)
    value = np.load(io.BytesIO(content))
    if value.dtype == np.uint8 and kind <= 3:
        value = np.frombuffer(trees.mutated(rng, value.tobytes()), np.uint8)
    elif kind == 2:
        value = value.astype(rng.choice(("f8", "i4", "c8", "S4", "U3", "?", "V4", "f2")))
    elif kind == 3:
        value = np.resize(value, tuple(rng.choice((0, 1, 2, size, size + 1)) for size in value.shape))
    else:
        value = np.stack([value, value]) if rng.random() < 0.5 else value[..., None]
    held = io.BytesIO()
    np.save(held, value)
    return held.getvalue()


def _header(rng: random.Random, content: bytes) -> bytes:
    """What an array says of itself: NumPy evaluates it as a literal of Python."""
    shape = rng.choice(("()", f"({2**40},)", "(-1,)", "(2, 3)", "(1.5,)", f"({2**70},)", "'x'", "(True,)"))
    dtype = rng.choice(("'<f4'", "'|O'", "'>i8'", "[('a', '<f4')]", "'<U999999999'", "'x'", "1", "'|V0'"))
    words = f"{{'descr': {dtype}, 'fortran_order': {rng.choice((True, False, 2))}, 'shape': {shape}, }}"
    words = rng.choice((words, words, words, "(" * 5000 + ")" * 5000, "{}", words[:-2], "[" * 90))
    text = words.ljust(rng.choice((118, 118, 9000))) + "\n"
    return b"\x93NUMPY\1\0" + (len(text) % 2**16).to_bytes(2, "little") + text.encode() + content[128:]


def safetensors(rng: random.Random, data: bytes) -> bytes:
    """A safetensors file with another header; what it says of its maker is JSON in JSON."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    told = header.get("__metadata__", {})
    if rng.random() < 0.6 and told:
        key = rng.choice(sorted(told))
        told[key] = trees.mutated(rng, told[key].encode()).decode()
        text = json.dumps(header).encode()
    else:
        text = trees.mutated(rng, data[8 : 8 + size])
    claimed = rng.choice(octets.NUMBERS) % 2**64 if rng.random() < 0.05 else len(text)
    return claimed.to_bytes(8, "little") + text + data[8 + size :]
