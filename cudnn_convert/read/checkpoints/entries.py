"""What the values of a checkpoint's tables say, and the keys that stand for slices.

Source: tensorflow v2.21.0 core/protobuf/tensor_bundle.proto, core/util/saved_tensor_slice.proto,
core/framework/{tensor_shape,tensor_slice,versions}.proto, core/util/saved_tensor_slice_util.cc
EncodeTensorNameSlice, core/lib/strings/ordered_code.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cudnn_convert.read.checkpoints import wire

#: `(start, length)` for each axis.
Extents = tuple[tuple[int, int], ...]
_EVERYTHING: Final = -1
#: The newest form of both formats, the only one so far (kTensorBundleVersion, TF_CHECKPOINT_VERSION).
_VERSION: Final = 1
#: TensorShape::MaxDimensions().
_MOST_AXES: Final = 254


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a V2 index, or one stored slice of it: its bytes, or as `slices` those that hold it.

    `dtype` is a number of types.proto. Nothing of it is known to be true.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    slices: tuple[Extents, ...]


@dataclass(frozen=True, slots=True)
class Announced:
    """A tensor as the first entry of a V1 table announces it; each of its slices has an entry of its own."""

    name: str
    shape: tuple[int, ...]
    dtype: int
    slices: tuple[Extents, ...]


def shards(value: memoryview) -> int:
    """The number of data files, from a BundleHeaderProto. Raises ValueError."""
    found = wire.fields(value)
    if wire.integer(found, 2):
        raise ValueError("big-endian numbers")
    _check_version(wire.content(found, 3))
    return wire.integer(found, 1)


def entry(value: memoryview) -> Entry:
    """A BundleEntryProto. Raises ValueError."""
    found = wire.fields(value)
    return Entry(
        dtype=wire.integer(found, 1),
        shape=_shape(wire.content(found, 2)),
        shard=wire.integer(found, 3),
        offset=wire.integer(found, 4),
        size=wire.integer(found, 5),
        checksum=wire.integer(found, 6),
        slices=tuple(_slice(held) for held in wire.contents(found, 7)),
    )


def announced(value: memoryview) -> list[Announced]:
    """The tensors of a SavedTensorSliceMeta in SavedTensorSlices. Raises ValueError."""
    meta = wire.fields(wire.content(wire.fields(value), 1))
    _check_version(wire.content(meta, 2))
    tensors = [wire.fields(held) for held in wire.contents(meta, 1)]
    return [
        Announced(
            text(wire.content(found, 1)),
            _shape(wire.content(found, 2)),
            wire.integer(found, 3),
            tuple(_slice(held) for held in wire.contents(found, 4)),
        )
        for found in tensors
    ]


def text(value: memoryview | bytes) -> str:
    """A name. Raises ValueError where it is no UTF-8."""
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as cause:
        raise ValueError(f"{bytes(value)[:40]!r} for a name") from cause


def _check_version(value: memoryview) -> None:
    found = wire.fields(value)
    if wire.integer(found, 2) > _VERSION or _VERSION in wire.numbers(found, 3, 0):
        raise ValueError(f"a format for other readers than those of version {_VERSION}")


def _shape(value: memoryview) -> tuple[int, ...]:
    found = wire.fields(value)
    sizes = tuple(wire.integer(wire.fields(held), 1) for held in wire.contents(found, 2))
    if wire.integer(found, 3) or any(size < 0 for size in sizes) or len(sizes) > _MOST_AXES:
        raise ValueError(f"a tensor of {len(sizes)} axes, or of sizes unknown")
    return sizes


def _slice(value: memoryview) -> Extents:
    """A TensorSliceProto; an axis that is taken whole has the length -1."""
    axes = [wire.fields(held) for held in wire.contents(wire.fields(value), 1)]
    return tuple(
        (wire.integer(axis, 1), wire.integer(axis, 2) if 2 in axis else _EVERYTHING) for axis in axes
    )


def resolved(slices: Extents, shape: tuple[int, ...]) -> Extents:
    """A stored slice of a tensor of `shape`, each length a number. Raises ValueError where it is none."""
    whole = tuple((0, size) for size in shape)
    if len(slices) != len(shape):
        raise ValueError(f"a slice {slices} of the shape {shape}")
    found = tuple(full if one[1] == _EVERYTHING else one for one, full in zip(slices, whole, strict=True))
    ends = zip(found, shape, strict=True)
    if any(start < 0 or length < 0 or start + length > size for (start, length), size in ends):
        raise ValueError(f"a slice {slices} of the shape {shape}")
    return found


def slice_key(name: str, slices: Extents) -> bytes:
    """The key of a stored slice: zero, name, rank, then start and length of each axis, in ordered code."""
    escaped = name.encode().replace(b"\x00", b"\x00\xff")  # UTF-8 has no byte 255, which is escaped too
    parts = [_unsigned(0), escaped + b"\x00\x01", _unsigned(len(slices))]
    return b"".join(parts + [_signed(number) for extent in slices for number in extent])


def _unsigned(number: int) -> bytes:
    held = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(held)]) + held


def _signed(number: int) -> bytes:
    """As many ones as there are bytes, then the number's own bits, all turned where it is negative.

    No negative number but -1 stands in a slice that there is.
    """
    length = number.bit_length() // 7 + 1
    ones = ((1 << length) - 1) << 7 * length
    bits = number & ((1 << 8 * length) - 1)
    return (bits ^ ones).to_bytes(length, "big")
