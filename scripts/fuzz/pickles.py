"""Mutations of PyTorch files: operations of the pickle, storages, and what their members are called."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import zipfile

import octets

#: Operations without an argument, or with a short one, in any order.
_OPERATIONS = (
    *(
        b"(",
        b"t",
        b"0",
        b"1",
        b"2",
        b")",
        b"\x85",
        b"\x86",
        b"\x87",
        b"}",
        b"d",
        b"s",
        b"u",
        b"]",
        b"a",
        b"e",
    ),
    *(
        b"N",
        b"\x88",
        b"\x89",
        b"R",
        b"b",
        b"\x81",
        b"\x92",
        b"o",
        b"Q",
        b"\x93",
        b"\x94",
        b"\x8f",
        b"\x90",
        b".",
    ),
    *(
        b"h\0",
        b"h\1",
        b"h\2",
        b"h\5",
        b"q\0",
        b"q\1",
        b"q\7",
        b"K\0",
        b"r\xff\xff\xff\xff",
        b"\x82\1",
        b"P0\n",
    ),
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nSize\n"),
    *(
        b"ctorch._utils\n_rebuild_tensor_v3\n",
        b"ctorch._utils\n_rebuild_sparse_tensor\n",
        b"ctorch\nfloat16\n",
    ),
    *(b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nTensor\n", b"ctorch.storage\nUntypedStorage\n"),
    *(b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f"),
)
_TEXTS = (
    "",
    "weight_hh_l0",
    "rnn.weight_ih_l0",
    "a" * 3000,
    "x\n\u202e",
    "optimizer",
    "ema",
    "0",
    "7",
    "../0",
)
_TEXTS += ("rnn.weight_hh_l0_g", "rnn.parametrizations.weight_hh_l0.original0", "state_dict")
_ORDERS = (b"big", b"little", b"", b"middle", b"big" * 1000)
_MOST = 3


def mutated(rng: random.Random, name: str, data: bytes) -> bytes:
    """A PyTorch file with another pickle, other storages or other members. Raises ValueError for no zip."""
    if not data.startswith(b"PK"):
        return octets.mutated(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(member, archive.read(member)) for member in archive.namelist()]
    for _ in range(rng.choice((1, 1, 1, 2, _MOST))):
        _change(rng, members)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for member, content in members:
            info = zipfile.ZipInfo(member)
            info.compress_type = zipfile.ZIP_DEFLATED if rng.random() < 0.005 else zipfile.ZIP_STORED
            archive.writestr(info, content)
    return written.getvalue()


def _change(rng: random.Random, members: list[tuple[str, bytes]]) -> None:
    """One change of one member; mostly of the pickle."""
    pickles = [place for place, (name, _) in enumerate(members) if name.endswith("/data.pkl")]
    place = rng.choice(pickles) if pickles and rng.random() < 0.8 else rng.randrange(len(members))
    name, content = members[place]
    kind = rng.randrange(8)
    if name.endswith("/data.pkl"):
        members[place] = name, _follow(rng, content)
    elif name.endswith("/byteorder"):
        members[place] = name, rng.choice(_ORDERS)
    elif kind == 0:
        members[place] = rng.choice([*_TEXTS, *(other for other, _ in members)]), content
    elif kind == 1:
        del members[place]
    elif kind == 2:
        members.append((name, content))
    elif kind == 3:
        rng.shuffle(members)
    else:
        members[place] = name, octets.mutated(rng, content)


def _follow(rng: random.Random, content: bytes) -> bytes:
    """The operations of a pickle, some of them others."""
    try:
        listed = [place for _, _, place in pickletools.genops(content)]
    except ValueError:
        return octets.mutated(rng, content)
    parts = [content[begin:end] for begin, end in zip(listed, [*listed[1:], len(content)], strict=True)]
    if rng.random() < 0.05:
        return octets.mutated(rng, content)
    for _ in range(rng.choice((1, 1, 2, _MOST))):
        _replace(rng, parts)
    return b"".join(parts)


def _replace(rng: random.Random, parts: list[bytes]) -> None:
    place = rng.randrange(len(parts))
    kind = rng.randrange(10)
    if kind == 0:
        parts[place] = rng.choice(_OPERATIONS)
    elif kind == 1:
        parts.insert(place, rng.choice(_OPERATIONS))
    elif kind == 2 and len(parts) > 1:
        del parts[place]
    elif kind == 3:
        parts[place] = rng.choice(parts)
    elif kind == 4:
        parts[place : place + rng.choice((1, 5, 30))] *= rng.choice((2, 3, 50))
    elif kind in (5, 8):
        numbers = [k for k, part in enumerate(parts) if part[:1] in (b"K", b"M", b"J", b"\x8a")]
        parts[rng.choice(numbers or [place])] = _plain(rng.choice((*octets.NUMBERS, 2, 3, 12, 10**30)))
    elif kind in (6, 9):
        texts = [k for k, part in enumerate(parts) if part[:1] in (b"X", b"\x8c")]
        parts[rng.choice(texts or [place])] = _plain(rng.choice(_TEXTS))
    else:
        other = rng.randrange(len(parts))
        parts[place], parts[other] = parts[other], parts[place]


def _plain(value: int | str) -> bytes:
    """The operations of a number or a text, which are not kept in the memo."""
    if isinstance(value, str):
        text = value.encode()
        return b"X" + len(text).to_bytes(4, "little") + text
    return pickle.dumps(value, protocol=2)[2:-1]
