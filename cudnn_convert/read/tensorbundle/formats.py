"""The two formats of checkpoints: V1 tables of slices, V2 index and data files.

Checkpoints of the V1 format: a table, or one a shard, of slices as lists of numbers in TensorProtos.

Its first entry announces the tensors, and what slices of them the others are.
Source: tensorflow v1.15.0 core/util/tensor_slice_{reader,writer}.cc, saved_tensor_slice_util.h (which field
of a TensorProto holds which type), core/framework/tensor.proto.

Checkpoints of the V2 format: `<prefix>.index`, a table of entries, and `<prefix>.data-00000-of-00001` etc.

Bytes are read into arrays of their own, not mapped: a mapped file that another program cuts off ends the
process, and one that it changes gives weights that no checksum covers.
Source: tensorflow v2.21.0 core/util/tensor_bundle/tensor_bundle.{h,cc}, naming.cc.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.read.tensorbundle import entries, tables
from cudnn_convert.read.tensorbundle.entries import Entry, Extents, Stored, shape, whole
from cudnn_convert.read.tensorbundle.tables import EXPANSION, Bytes, Table, extend_crc, fill, mask_crc
from cudnn_convert.weights import lazy

_ANNOUNCEMENT: Final = b""
#: The field of each type that the format has, and the bytes of a number where it is no varint.
_FIELDS: Final = {
    **{entries.FLOAT: (5, 4), entries.DOUBLE: (6, 8), entries.COMPLEX64: (9, 4), entries.COMPLEX128: (12, 8)},
    **{entries.HALF: (13, 0), entries.INT64: (10, 0), entries.BOOL: (11, 0)},
    **dict.fromkeys(entries.SMALL_INTEGERS, (7, 0)),
}
_STRINGS: Final = 8


def read_v1(files: Sequence[Path]) -> dict[str, Stored]:
    """Every tensor of all the files, by its key. Raises ValueError, OSError."""
    found: dict[str, Stored] = {}
    for path in files:
        table = Table(path)
        for tensor in entries.announced_tensors(table.find(_ANNOUNCEMENT)):
            before = found.get(tensor.name, Stored(tensor.shape, tensor.dtype, ()))
            if (before.shape, before.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"tensor {tensor.name} of two kinds")
            pieces = tuple(
                Slice(
                    table,
                    entries.slice_key(tensor.name, each),
                    tensor.dtype,
                    entries.resolve_slice(each, tensor.shape),
                )
                for each in tensor.slices
            )
            found[tensor.name] = Stored(tensor.shape, tensor.dtype, before.pieces + pieces)
    return found


@dataclass(frozen=True, slots=True)
class Slice:
    """One entry of a table."""

    table: Table
    key: bytes
    dtype: int
    extents: Extents

    def check(self) -> None:
        """Raises ValueError where the entry's block cannot hold it."""
        size, most = math.prod(shape(self.extents)), self.table.stored(self.key) * EXPANSION
        if size > most:  # no element is smaller than a byte
            raise ValueError(f"a block too small for {size} elements")

    def read(self) -> Array:
        """The array; the block's checksum is its own. Raises ValueError, OSError."""
        self.check()
        slices = tables.fields(tables.content(tables.fields(self.table.find(self.key)), 2))
        tensor = tables.fields(tables.content(slices, 3))
        array = self._strings(tensor) if self.dtype == entries.STRING else self._numbers(tensor)
        if array.size != math.prod(shape(self.extents)):
            raise ValueError(f"{array.size} elements for the shape {shape(self.extents)}")
        return array.reshape(shape(self.extents))

    def _strings(self, tensor: tables.Fields) -> Array:
        held = [bytes(value) for value in tables.contents(tensor, _STRINGS)]
        array: Array = np.empty(len(held), np.object_)
        array[:] = held
        return array

    def _numbers(self, tensor: tables.Fields) -> Array:
        if self.dtype not in _FIELDS:
            raise ValueError(f"elements of type {self.dtype}, which the format does not have")
        dtype, (field, width) = entries.numeric(self.dtype), _FIELDS[self.dtype]
        found: Any = tables.numbers(tensor, field, width)
        if width:  # a copy: the block is neither aligned nor to be kept for one of its tensors
            if found.size % dtype.itemsize:
                raise ValueError(f"{found.size} bytes for elements of {dtype.itemsize}")
            array = np.empty(found.size // dtype.itemsize, dtype)
            array.view(np.uint8)[:] = found
            return array
        if self.dtype == entries.BOOL:
            return np.asarray(found != 0)
        bits = found.astype(np.dtype(f"u{dtype.itemsize}"))
        return np.asarray(bits.view(dtype))


_HEADER: Final = b""
_WORD: Final = 1 << 32


def read_v2(prefix: Path) -> dict[str, Stored]:
    """Every tensor by its key. Raises ValueError, OSError."""
    values = dict(Table(Path(f"{prefix}.index")).entries())
    if _HEADER not in values:
        raise ValueError("no header")
    shards = entries.shards(values.pop(_HEADER))
    known = {key: entries.entry(value) for key, value in values.items()}
    slices: set[bytes] = set()
    found = {}
    for key, entry in known.items():
        if entry.slices:
            keys = [entries.slice_key(entries.text(key), each) for each in entry.slices]
            slices |= set(keys)
            found[key] = _sliced(prefix, shards, entry, keys, known)
        else:
            spans = (Span(prefix, shards, entry, whole(entry.shape)),)
            found[key] = Stored(entry.shape, entry.dtype, spans)
    return {entries.text(key): tensor for key, tensor in found.items() if key not in slices}


def _sliced(
    prefix: Path, shards: int, entry: Entry, keys: list[bytes], known: Mapping[bytes, Entry]
) -> Stored:
    spans = []
    for key, each in zip(keys, entry.slices, strict=True):
        held, extents = known.get(key), entries.resolve_slice(each, entry.shape)
        if held is None or held.slices or (held.dtype, held.shape) != (entry.dtype, shape(extents)):
            raise ValueError(f"no entry for the slice {list(extents)} of the shape {entry.shape}")
        spans.append(Span(prefix, shards, held, extents))
    return Stored(entry.shape, entry.dtype, tuple(spans))


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a tensor, or of a slice of one, in a data file."""

    prefix: Path
    shards: int
    entry: Entry
    extents: Extents

    def check(self) -> None:
        """Raises ValueError where the file cannot hold it, OSError."""
        with self._opened():
            pass

    def read(self) -> Array:
        """The array, once its bytes match their checksum. Raises ValueError, OSError."""
        with self._opened() as stream:
            stream.seek(self.entry.offset)
            if self.entry.dtype == entries.STRING:
                held = np.empty(self.entry.size, np.uint8)
                fill(stream, held)
                strings, checksum = _strings(held, math.prod(self.entry.shape))
                array: Array = np.empty(len(strings), np.object_)
                array[:] = strings
                array = array.reshape(self.entry.shape)
            else:
                array = lazy.empty(self.entry.shape, entries.numeric(self.entry.dtype))
                checksum = fill(stream, array.reshape(-1).view(np.uint8))
        if mask_crc(checksum) != self.entry.checksum:
            raise ValueError("bytes of another checksum")
        return array

    def _opened(self) -> FileIO:
        """The data file, once its size and the entry's claims agree: no memory is taken before."""
        entry = self.entry
        if not 0 <= entry.shard < self.shards:
            raise ValueError(f"a tensor in file {entry.shard} of {self.shards}")
        if entry.dtype != entries.STRING:
            expected = math.prod(entry.shape) * entries.numeric(entry.dtype).itemsize
            if expected != entry.size:
                raise ValueError(f"{entry.size} bytes for a tensor of {expected}")
        path = Path(f"{self.prefix}.data-{entry.shard:05d}-of-{self.shards:05d}")
        try:
            stream = FileIO(str(path))
        except FileNotFoundError as cause:
            raise ValueError(f"no file {path.name}") from cause
        size, end = stream.seek(0, 2), entry.offset + entry.size
        if entry.offset < 0 or entry.size < 0 or end > size:
            stream.close()
            raise ValueError(f"{path.name} of {size} bytes where {end} are needed")
        return stream


def _strings(held: Bytes, count: int) -> tuple[list[bytes], int]:
    """As many strings as the shape says, and the checksum of them all.

    varint lengths, the masked checksum of the lengths as words of 32 bits (64 for what is longer), then the
    strings; the checksum of all goes over the lengths as words too (ReadStringTensor).
    """
    data, place = held.data, 0
    if count > len(data):
        raise ValueError(f"{len(data)} bytes for {count} strings")
    lengths = []
    for _ in range(count):
        length, place = tables.varint(data, place)
        lengths.append(length)
    words = b"".join(length.to_bytes(4 if length < _WORD else 8, "little") for length in lengths)
    checksum = extend_crc(0, np.frombuffer(words, np.uint8))
    if mask_crc(checksum) != int.from_bytes(data[place : place + 4], "little"):
        raise ValueError("lengths of another checksum")
    if place + 4 + sum(lengths) != len(data):
        raise ValueError(f"{sum(lengths)} bytes of strings in {len(data) - place - 4}")
    checksum = extend_crc(checksum, held[place:])
    strings, place = [], place + 4
    for length in lengths:
        strings.append(bytes(data[place : place + length]))
        place += length
    return strings, checksum
