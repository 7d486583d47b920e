"""Mutations of a checkpoint's tables under right checksums, so that damage gets past them."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import messages
import octets
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from cudnn_convert.read.tensorbundle.tables import Table

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from support import checkpoints  # the makers of blocks that the tests of the readers use

_KINDS = (0, 0, 0, 1, 2, 255)


def index(rng: random.Random, data: bytes, shards: Mapping[str, bytes]) -> tuple[bytes, dict[str, bytes]]:
    """The table of a V2 checkpoint with other entries, and its data files, whose checksums then fit."""
    entries = _entries(data)
    if rng.random() < 0.3 and shards:
        return _resigned(rng, entries, shards)
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(sorted(entries))
        kind = tensor_bundle_pb2.BundleEntryProto if key else tensor_bundle_pb2.BundleHeaderProto
        _change(rng, entries, key, kind)
    return _table(rng, entries), {}


def v1(rng: random.Random, data: bytes) -> bytes:
    """The table of a V1 checkpoint with other entries."""
    entries = _entries(data)
    for _ in range(rng.randint(1, 3)):
        _change(rng, entries, rng.choice(sorted(entries)), saved_tensor_slice_pb2.SavedTensorSlices)
    return _table(rng, entries)


def _entries(data: bytes) -> dict[bytes, bytes]:
    """What stands in a sound table."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return {bytes(key): bytes(value) for key, value in Table(Path(file.name)).entries()}


def _change(rng: random.Random, entries: dict[bytes, bytes], key: bytes, kind: Any) -> None:
    """One entry: its message, its bytes, its key, or whether it is there."""
    what = rng.randrange(8)
    if what <= 3:
        proto = kind.FromString(entries[key])
        messages.mutated(rng, proto)
        entries[key] = proto.SerializeToString()
    elif what == 4:
        entries[key] = octets.mutated(rng, entries[key])
    elif what == 5:
        entries[octets.mutated(rng, key)[:300]] = entries[key]
    elif what == 6 and len(entries) > 1:
        del entries[key]
    else:
        entries[key] = entries[rng.choice(sorted(entries))]


def _resigned(
    rng: random.Random, entries: dict[bytes, bytes], shards: Mapping[str, bytes]
) -> tuple[bytes, dict[str, bytes]]:
    """Other bytes in a data file, and the checksums of all entries that they make right."""
    name = rng.choice(sorted(shards))
    changed = octets.mutated(rng, shards[name])
    number = int(name.rpartition("-of-")[0][-5:])
    for key, value in entries.items():
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
        if key and entry.shard_id == number:
            entry.crc32c = checkpoints.masked(changed[entry.offset : entry.offset + entry.size])
            entries[key] = entry.SerializeToString()
    return _table(rng, entries), {name: changed}


def _table(rng: random.Random, entries: Mapping[bytes, bytes]) -> bytes:
    """A table of one or two blocks; some of them damaged before they are signed."""
    keys = sorted(entries) if rng.random() < 0.95 else sorted(entries, reverse=True)
    middle = rng.randint(0, len(keys))
    halves = [half for half in (keys[:middle], keys[middle:]) if half]
    blocks = [(half[-1], checkpoints.block({key: entries[key] for key in half})) for half in halves]
    if rng.random() < 0.3:
        blocks = [(last, octets.mutated(rng, held)) for last, held in blocks]
    made = checkpoints.table(blocks, kind=rng.choice(_KINDS) if rng.random() < 0.1 else 0)
    return _with_footer(rng, made) if rng.random() < 0.1 else made


def _with_footer(rng: random.Random, made: bytes) -> bytes:
    """Handles of the index block that point anywhere, to bytes whose checksum is right."""
    held, magic = made[:-48], made[-8:]
    body = octets.mutated(rng, rng.randbytes(rng.randint(0, 40)))
    held += checkpoints.signed(body, 0)
    numbers = [
        rng.choice((*octets.NUMBERS, len(held), len(held) - len(body) - 5, len(body))) for _ in range(4)
    ]
    return held + b"".join(map(octets.varint, numbers))[:40].ljust(40, b"\0") + magic
