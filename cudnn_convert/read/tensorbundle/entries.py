"""Entries of a checkpoint's tables: dtypes, shapes, slices, and tensors made of slices.

TensorFlow's element types map to NumPy dtypes.
Source: tensorflow v2.21.0 core/framework/types.proto, python/framework/dtypes.py `_TF_TO_NP`.

The values of a table describe tensors; the keys of stored slices are encoded from name and extents.
Source: tensorflow v2.21.0 core/protobuf/tensor_bundle.proto, core/util/saved_tensor_slice.proto,
core/framework/{tensor_shape,tensor_slice,versions}.proto, core/util/saved_tensor_slice_util.cc
EncodeTensorNameSlice, core/lib/strings/ordered_code.cc.

`StoredTensor` assembles a tensor, or a part of one, from its stored slices.
Source: tensorflow v2.21.0 core/util/tensor_bundle/tensor_bundle.cc GetSliceValue; core/util/
tensor_slice_set.cc (what is stored does not overlap); core/framework/tensor_slice.cc and core/kernels/
save_restore_tensor.cc (the words of a slice).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.read.tensorbundle import tables

FLOAT, DOUBLE, STRING, COMPLEX64, INT64, BOOL = 1, 2, 7, 8, 9, 10
COMPLEX128, HALF = 18, 19
#: int32, uint8, int16, int8, qint8, quint8, qint32, uint16
SMALL_INTEGERS: Final = frozenset({3, 4, 5, 6, 11, 12, 13, 17})
_QUANTIZED: Final = {11: ("qint8", "i1"), 12: ("quint8", "u1"), 13: ("qint32", "<i4")} | {
    15: ("qint16", "<i2"),
    16: ("quint16", "<u2"),
}
#: Types of later versions of ml_dtypes than the oldest TensorFlow's.
_NEWER: Final = {31: "int2", 32: "uint2", 33: "float4_e2m1fn"}
#: Numeric types, which a file stores byte for byte as NumPy does.
_NUMBERS: Final = MappingProxyType(
    {
        **{FLOAT: np.float32, DOUBLE: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8},
        **{COMPLEX64: np.complex64, INT64: np.int64, BOOL: np.bool_, 14: ml_dtypes.bfloat16},
        **{17: np.uint16, COMPLEX128: np.complex128, HALF: np.float16, 22: np.uint32, 23: np.uint64},
        **{24: ml_dtypes.float8_e5m2, 25: ml_dtypes.float8_e4m3fn, 26: ml_dtypes.float8_e4m3fnuz},
        **{27: ml_dtypes.float8_e4m3b11fnuz, 28: ml_dtypes.float8_e5m2fnuz},
        **{29: ml_dtypes.int4, 30: ml_dtypes.uint4},
        **{number: getattr(ml_dtypes, name) for number, name in _NEWER.items() if hasattr(ml_dtypes, name)},
        **{number: [field] for number, field in _QUANTIZED.items()},
    }
)


def of(number: int) -> np.dtype[Any]:
    """Return the NumPy dtype of a types.proto number.

    It is `object` for strings and unknown types.
    """
    dtype: np.dtype[Any] = np.dtype(_NUMBERS.get(number, np.object_))
    return dtype


def numeric(number: int) -> np.dtype[Any]:
    """Return the NumPy dtype of a numeric type.

    Raises ValueError for resources, variants and types of a later TensorFlow.
    """
    if number not in _NUMBERS:
        raise ValueError(f"elements of type {number}, which are no numbers")
    return of(number)


#: `(start, length)` for each axis.
Extents = tuple[tuple[int, int], ...]
_EVERYTHING: Final = -1
#: The newest form of both formats, the only one so far (kTensorBundleVersion, TF_CHECKPOINT_VERSION).
_VERSION: Final = 1
#: TensorShape::MaxDimensions().
_MOST_AXES: Final = 254


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of a V2 index: a tensor or a stored slice, unchecked.

    `dtype` is a number of types.proto. `slices` is empty where this entry has the bytes; else other entries
    do.
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
    """A tensor as listed by the first entry of a V1 table.

    Each of its slices has an entry in the table.
    """

    name: str
    shape: tuple[int, ...]
    dtype: int
    slices: tuple[Extents, ...]


def shards(value: memoryview) -> int:
    """Return the number of data files in a BundleHeaderProto. Raises ValueError."""
    header = tables.fields(value)
    if tables.integer(header, 2):
        raise ValueError("big-endian numbers")
    _check_version(tables.content(header, 3))
    return tables.integer(header, 1)


def entry(value: memoryview) -> IndexEntry:
    """Parse a BundleEntryProto. Raises ValueError."""
    parsed = tables.fields(value)
    return IndexEntry(
        dtype=tables.integer(parsed, 1),
        shape=_shape(tables.content(parsed, 2)),
        shard=tables.integer(parsed, 3),
        offset=tables.integer(parsed, 4),
        size=tables.integer(parsed, 5),
        checksum=tables.integer(parsed, 6),
        slices=tuple(_slice(part) for part in tables.contents(parsed, 7)),
    )


def list_announced(value: memoryview) -> list[Announced]:
    """List the tensors of a SavedTensorSliceMeta in SavedTensorSlices. Raises ValueError."""
    meta = tables.fields(tables.content(tables.fields(value), 1))
    _check_version(tables.content(meta, 2))
    tensors = [tables.fields(part) for part in tables.contents(meta, 1)]
    return [
        Announced(
            text(tables.content(tensor, 1)),
            _shape(tables.content(tensor, 2)),
            tables.integer(tensor, 3),
            tuple(_slice(part) for part in tables.contents(tensor, 4)),
        )
        for tensor in tensors
    ]


def text(value: memoryview | bytes) -> str:
    """Decode a name. Raises ValueError for bytes outside UTF-8."""
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as cause:
        raise ValueError(f"{bytes(value)[:40]!r} for a name") from cause


def _check_version(value: memoryview) -> None:
    parsed = tables.fields(value)
    if tables.integer(parsed, 2) > _VERSION or _VERSION in tables.numbers(parsed, 3, 0):
        raise ValueError(f"a format for other readers than those of version {_VERSION}")


def _shape(value: memoryview) -> tuple[int, ...]:
    parsed = tables.fields(value)
    sizes = tuple(tables.integer(tables.fields(part), 1) for part in tables.contents(parsed, 2))
    if tables.integer(parsed, 3) or any(size < 0 for size in sizes) or len(sizes) > _MOST_AXES:
        raise ValueError(f"a tensor of {len(sizes)} axes, or of sizes unknown")
    return sizes


def _slice(value: memoryview) -> Extents:
    """Parse a TensorSliceProto; a whole axis has length -1."""
    axes = [tables.fields(part) for part in tables.contents(tables.fields(value), 1)]
    return tuple(
        (tables.integer(axis, 1), tables.integer(axis, 2) if 2 in axis else _EVERYTHING) for axis in axes
    )


def resolve_slice(slices: Extents, shape: tuple[int, ...]) -> Extents:
    """Return a stored slice of a tensor of `shape`, with whole axes made explicit.

    Raises ValueError where it does not lie in `shape`.
    """
    if len(slices) != len(shape):
        raise ValueError(f"a slice {slices} of the shape {shape}")
    axes = zip(slices, whole(shape), strict=True)
    extents = tuple(full if extent[1] == _EVERYTHING else extent for extent, full in axes)
    ends = zip(extents, shape, strict=True)
    if any(start < 0 or length < 0 or start + length > size for (start, length), size in ends):
        raise ValueError(f"a slice {slices} of the shape {shape}")
    return extents


def slice_key(name: str, slices: Extents) -> bytes:
    """Return the key of a stored slice, in ordered code.

    It encodes zero, name, rank, then start and length of each axis.
    """
    escaped = name.encode().replace(b"\x00", b"\x00\xff")  # UTF-8 has no byte 255, escaped too
    parts = [_encode_unsigned(0), escaped + b"\x00\x01", _encode_unsigned(len(slices))]
    return b"".join(parts + [_encode_signed(number) for extent in slices for number in extent])


def _encode_unsigned(number: int) -> bytes:
    content = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(content)]) + content


def _encode_signed(number: int) -> bytes:
    """Encode a signed integer in ordered code.

    A prefix of ones counts the bytes, then come the bits of the number; all bits are inverted for a negative
    number. The only negative number in a valid slice is -1.
    """
    length = number.bit_length() // 7 + 1
    ones = ((1 << length) - 1) << 7 * length
    bits = number & ((1 << 8 * length) - 1)
    return (bits ^ ones).to_bytes(length, "big")


class StoredSlice(Protocol):
    """A stored slice of a tensor, most often the whole tensor."""

    @property
    def extents(self) -> Extents: ...
    def check(self) -> None:
        """Check, before reading, for room for the slice in the file. Raises ValueError, OSError."""
        ...

    def read(self) -> Array:
        """Read the slice into a new array of the same shape. Raises ValueError, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a checkpoint, and the stored slices of the tensor.

    `dtype` is a number of types.proto. Arrays that a caller still references are returned again: weak
    references avoid both a second read and a cache.
    """

    shape: tuple[int, ...]
    dtype: int
    pieces: tuple[StoredSlice, ...]
    _alive: WeakValueDictionary[Extents, Array] = field(
        default_factory=WeakValueDictionary, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Raise ValueError if two slices overlap."""
        bounds: Any = np.array([piece.extents for piece in self.pieces], np.int64)
        bounds = bounds.reshape(len(self.pieces), len(self.shape), 2)
        starts, ends = bounds[..., 0], bounds.sum(-1)
        for position in range(len(self.pieces) - 1):
            after = slice(position + 1, None)
            if np.any(np.all((starts[after] < ends[position]) & (starts[position] < ends[after]), axis=1)):
                raise ValueError("slices that overlap")

    def read(self, wanted: Extents) -> Array:
        """Return the read-only array of the extents `wanted`. Raises ValueError, OSError."""
        array = self._alive.get(wanted)
        if array is None:
            array = self._assemble(wanted)
            array.flags.writeable = False
            self._alive[wanted] = array
        return array

    def _assemble(self, wanted: Extents) -> Array:
        for piece in self.pieces:
            if piece.extents == wanted:
                return piece.read()
        shared = [(piece, common(piece.extents, wanted)) for piece in self.pieces]
        parts = [(piece, region) for piece, region in shared if math.prod(shape(region))]
        if sum(math.prod(shape(region)) for _, region in parts) != math.prod(shape(wanted)):
            raise ValueError(f"slices that hold less or more than {list(wanted)}")
        for piece, _ in parts:
            piece.check()
        array = np.empty(shape(wanted), of(self.dtype))
        for piece, region in parts:
            array[_within(region, wanted)] = piece.read()[_within(region, piece.extents)]
        return array


def whole(shape: Sequence[int]) -> Extents:
    """Return the extents of a whole tensor of `shape`."""
    return tuple((0, size) for size in shape)


def shape(extents: Extents) -> tuple[int, ...]:
    """Return the shape of a slice."""
    return tuple(length for _, length in extents)


def common(*slices: Extents) -> Extents:
    """Return the intersection of a tensor's slices.

    Disjoint slices give lengths of 0.
    """
    axes = zip(*slices, strict=True)
    shared = [(max(start for start, _ in axis), min(sum(extent) for extent in axis)) for axis in axes]
    return tuple((start, max(0, end - start)) for start, end in shared)


def parse_slice(words: str) -> tuple[tuple[int, ...], Extents]:
    """Parse a saver's slice, `11 4 0,6:-`, into the tensor's shape and the extents.

    Raises ValueError for anything else. Source: tensorflow v1.15.0 python/ops/variables.py
    SaveSliceInfo.spec; core/framework/tensor_slice.cc.
    """
    *sizes, extents = words.split(" ")
    full = tuple(map(int, sizes))
    slices = tuple(
        (0, size) if extent == "-" else _extent(extent)
        for size, extent in zip(full, extents.split(":"), strict=True)
    )
    if any(
        start < 0 or length < 0 or start + length > size
        for (start, length), size in zip(slices, full, strict=True)
    ):
        raise ValueError(f"the slice {words}")
    return full, slices


def _extent(words: str) -> tuple[int, int]:
    start, length = map(int, words.split(","))
    return start, length


def _within(extents: Extents, outer: Extents) -> tuple[slice, ...]:
    """Return the index of `extents` in an array of the extents `outer`."""
    return tuple(
        slice(start - begin, start - begin + length)
        for (start, length), (begin, _) in zip(extents, outer, strict=True)
    )
