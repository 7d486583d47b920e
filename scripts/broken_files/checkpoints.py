"""Checkpoints: what lies where, and which one is the latest."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import google_crc32c
import numpy as np
from tensorflow.core.protobuf import tensor_bundle_pb2

_MAGIC = 0xDB4775248B80FB57


def bundle(
    prefix: Path, arrays: Mapping[str, np.ndarray], *, offset: int = 0, size: int | None = None
) -> None:
    """A V2 checkpoint of float32; its index says `offset` more for each, and `size` instead."""
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    header.version.producer = 1
    entries, data = {b"": header.SerializeToString(deterministic=True)}, b""
    for name, array in sorted(arrays.items()):
        held = array.tobytes()
        proto = tensor_bundle_pb2.BundleEntryProto(dtype=1, offset=len(data) + offset, crc32c=_masked(held))
        proto.size = len(held) if size is None else size
        for width in array.shape if size is None else (size // 4,):
            proto.shape.dim.add(size=width)
        entries[name.encode()] = proto.SerializeToString(deterministic=True)
        data += held
    Path(f"{prefix}.index").write_bytes(_table(entries))
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)


def _table(entries: Mapping[bytes, bytes]) -> bytes:
    """One block, and the block that says where it lies (tensorflow v1.15.0 core/lib/io/format.cc)."""
    block = _block(entries)
    data = _signed(block)
    index = _block({max(entries): _varint(0) + _varint(len(block))})
    handles = _varint(0) + _varint(0) + _varint(len(data)) + _varint(len(index))
    return data + _signed(index) + handles.ljust(40, b"\0") + struct.pack("<Q", _MAGIC)


def _block(entries: Mapping[bytes, bytes]) -> bytes:
    spelt = (
        _varint(0) + _varint(len(key)) + _varint(len(held)) + key + held
        for key, held in sorted(entries.items())
    )
    return b"".join(spelt) + struct.pack("<II", 0, 1)


def _signed(block: bytes) -> bytes:
    return block + b"\0" + struct.pack("<I", _masked(block + b"\0"))


def _masked(data: bytes) -> int:
    checksum = google_crc32c.value(data)
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


#: The blob of a recurrence of 2 units on 3 inputs, under the name that TensorFlow gives it.
_BLOB = {"cudnn_lstm/opaque_kernel": np.linspace(-0.5, 0.5, 56, dtype=np.float32)}


def outside(folder: Path) -> None:
    """An index that points behind the end of the data."""
    folder.mkdir()
    bundle(folder / "model.ckpt", _BLOB, offset=1 << 40)


def enormous(folder: Path) -> None:
    """An index that states a tensor of 2^62 bytes."""
    folder.mkdir()
    bundle(folder / "model.ckpt", _BLOB, size=1 << 62)


def sound(folder: Path) -> None:
    """A blob and nothing else: no file is wrong, but the sizes that are asked for may be."""
    folder.mkdir()
    bundle(folder / "model.ckpt", _BLOB)


def _stated(folder: Path, latest: str) -> None:
    folder.mkdir()
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{latest}"\n', encoding="utf-8")


def state_absolute(folder: Path) -> None:
    """The file `checkpoint` says that the latest is /etc/passwd."""
    _stated(folder, "/etc/passwd")


def state_up(folder: Path) -> None:
    """The file `checkpoint` says that the latest is in a folder beside this one."""
    _stated(folder, "../blob/model.ckpt")


MAKERS: dict[str, Callable[[Path], None]] = {
    "index_outside": outside,
    "index_enormous": enormous,
    "blob": sound,
    "state_absolute": state_absolute,
    "state_up": state_up,
}
