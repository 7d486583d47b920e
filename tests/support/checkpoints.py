"""Checkpoints of both formats, by TensorFlow, and by hand: what no saver writes, under a right checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

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


def claimed(*shape: int, **fields: Any) -> bytes:
    """A BundleEntryProto; `slices` are lists of `(start, length)`."""
    slices = fields.pop("slices", ())
    proto = tensor_bundle_pb2.BundleEntryProto(**({"dtype": 1} | fields))
    for size in shape:
        proto.shape.dim.add(size=size)
    for extents in slices:
        held = proto.slices.add()
        for start, length in extents:
            held.extent.add(start=start, length=length)
    return proto.SerializeToString()


def v1_made(folder: Path, dtype: int, tensor: bytes, shape: Sequence[int], *, kind: int = 0) -> Path:
    """A V1 checkpoint of the tensor `x`, whose TensorProto is `tensor`."""
    proto = saved_tensor_slice_pb2.SavedTensorSlices()
    held = proto.meta.tensor.add(name="x", type=dtype)
    for size in shape:
        held.shape.dim.add(size=size)
    parts = held.slice.add()
    for _ in shape:
        parts.extent.add()
    data = (
        b"\x12" + varint(len(tensor) + len(varint(len(tensor))) + 1) + b"\x1a" + varint(len(tensor)) + tensor
    )
    key = b"\0x\0\1\1" + bytes([len(shape)]) + b"\x80\x7f" * len(shape)
    made = block({b"": proto.SerializeToString(), key: data})
    made = bytes(cramjam.snappy.compress_raw(made)) if kind else made
    (folder / "made").write_bytes(table([(key, made)], kind=kind))
    return folder / "made"


def save(prefix: Path, values: Iterable[tuple[str, Any]], slices: Sequence[str] = ()) -> Path:
    """A V2 checkpoint by TensorFlow; a key may come with several of its slices."""
    names, held = zip(*values, strict=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        tensors=[tf.constant(value) for value in held],
    )
    return prefix


def save_v1(path: Path, values: Iterable[tuple[str, Any]], slices: Sequence[str] = ()) -> Path:
    """The same of the V1 format."""
    names, held = zip(*values, strict=True)
    tf.raw_ops.SaveSlices(
        filename=str(path),
        tensor_names=names,
        shapes_and_slices=slices or [""] * len(names),
        data=[tf.constant(value) for value in held],
    )
    return path


def by_tensorflow(prefix: Path) -> Any:
    """TensorFlow's reader."""
    whole = prefix.is_file() or Path(f"{prefix}.index").is_file()
    return tf.compat.v1.train.NewCheckpointReader(str(prefix) if whole else f"{prefix}-?????-of-?????")
