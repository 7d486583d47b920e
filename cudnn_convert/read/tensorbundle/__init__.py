"""Reads TensorFlow's checkpoint files of both formats, independent of TensorFlow.

V2: `<prefix>.index` is a table of entries, `<prefix>.data-00000-of-00001` etc. have the bytes. V1: the file
`<prefix>`, a table of slices, or where the saver was sharded `<prefix>-00000-of-00002` and so on; it stores
slices as TensorProtos, and its first entry lists the tensors and their slices. Each tensor is read on demand.
Source: tensorflow v1.15.0 core/util/tensor_bundle/tensor_bundle.h, core/util/tensor_slice_reader.cc,
core/kernels/save_restore_v2_ops.cc (RestoreV2 reads V1 too), core/util/tensor_slice_{reader,writer}.cc,
saved_tensor_slice_util.h (which field of a TensorProto holds which type), core/framework/tensor.proto;
v2.21.0 core/util/tensor_bundle/tensor_bundle.{h,cc}, naming.cc.

Bytes are read into arrays, not memory-mapped: truncation of a mapped file by another program kills the
process, and a change of it gives weights that no checksum covers. `tables` and `entries` raise OSError, and
ValueError that says what is wrong; this module adds the file and tensor.

* tables : Tables of a checkpoint: protocol buffer fields, checksums, LevelDB blocks.
* entries: Entries of a checkpoint's tables: dtypes, shapes, slices, and tensors made of slices.
* object_graph: Reads the names of variables in the object graph of a checkpoint.

May import: errors, model, weights.
Entry: `tensors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AGAIN, AccessError, ReadError
from cudnn_convert.model import Array
from cudnn_convert.read.tensorbundle import entries, tables
from cudnn_convert.read.tensorbundle.entries import Extents, IndexEntry, StoredTensor, shape, whole
from cudnn_convert.read.tensorbundle.tables import EXPANSION, MAGIC, Bytes, Table, extend_crc, fill, mask_crc
from cudnn_convert.weights import buffers

#: Advice where a file of the checkpoint is missing.
WHOLE: Final = "copy all files of the checkpoint"
_SHARDS: Final = "-?????-of-?????"
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})")


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """A tensor of a checkpoint; the bytes are read and checksummed on demand.

    `slices` is empty for the whole tensor, else a slice as a saver spells it: `11 4 0,6:0,4`.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: StoredTensor
    slices: str = ""

    def read(self) -> Array:
        """Read the array as read-only. Raises ReadError for a wrong checksum, AccessError."""
        # Messages are one line, but a key may contain line breaks.
        where = f"tensor {self.key if self.key.isprintable() else repr(self.key)}"
        whole = self.stored.shape
        shape, wanted = entries.parse_slice(self.slices) if self.slices else (whole, entries.whole(whole))
        if shape != whole:
            expected = f"the shape {shape} for its part {self.slices}"
            raise ReadError(self.path, where, expected=expected, found=f"{whole}")
        try:
            return self.stored.read(wanted)
        except (ValueError, OSError) as cause:
            raise _damage_error(self.path, where, cause) from cause

    def part(self, slices: str) -> CheckpointTensor:
        """Return the tensor restricted to a saver's slice. Raises ValueError.

        It is the tensor itself where `slices` is empty.
        """
        return replace(self, slices=slices, shape=shape(entries.parse_slice(slices)[1])) if slices else self


def is_v2(prefix: Path) -> bool:
    """Return True if `prefix` is the prefix of a V2 checkpoint."""
    return Path(f"{prefix}.index").is_file()


def is_v1(prefix: Path) -> bool:
    """Return True if `prefix` is the prefix of a V1 checkpoint."""
    return _is_table(prefix) or any(map(_is_table, _shards(prefix)))


def _shards(prefix: Path) -> list[Path]:
    return sorted(prefix.parent.glob(escape(prefix.name) + _SHARDS))


def _is_table(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size < len(MAGIC):
        return False
    with path.open("rb") as stream:
        stream.seek(-len(MAGIC), 2)
        return stream.read() == MAGIC


def tensors(prefix: Path) -> Mapping[str, CheckpointTensor]:
    """Return every tensor of a checkpoint by key. Raises ReadError, AccessError."""
    files = _files(prefix)
    try:
        result = read_v1(files) if files else read_v2(prefix)
    except (ValueError, OSError) as cause:
        raise _damage_error(prefix, "index", cause) from cause
    return {
        key: CheckpointTensor(prefix, key, stored.shape, entries.of(stored.dtype), stored)
        for key, stored in sorted(result.items())
    }


def _files(prefix: Path) -> list[Path]:
    """Return the table files of a V1 checkpoint, an empty list for V2. Raises ReadError."""
    if is_v2(prefix):
        if not list(prefix.parent.glob(f"{escape(prefix.name)}.data-*-of-*")):
            expected = f"{prefix.name}.data-*"
            raise ReadError(prefix, "checkpoint", expected=expected, found="no such file", advice=WHOLE)
        return []
    if is_v1(prefix):
        return [prefix] if prefix.is_file() else _complete(prefix, _shards(prefix))
    actual = f"the file {prefix.name}, which is no checkpoint" if prefix.is_file() else "no such file"
    raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.index", found=actual, advice=WHOLE)


def _complete(prefix: Path, shards: list[Path]) -> list[Path]:
    """Return the shards of a single save.

    Raises ReadError where some are missing, or of several saves.
    """
    matches = [_SHARD.fullmatch(path.name.removeprefix(prefix.name)) for path in shards]
    numbers = {(int(match[1]), int(match[2])) for match in matches if match}
    counts = sorted({count for _, count in numbers})
    if len(counts) > 1:
        expected, advice = "the files of one save", "copy one save to a folder of its own"
        several = f"files of saves in {' and '.join(map(str, counts))} parts"
        raise ReadError(prefix, "checkpoint", expected=expected, found=several, advice=advice)
    for number in range(counts[0]):
        if (number, counts[0]) not in numbers:
            expected = f"{prefix.name}-{number:05d}-of-{counts[0]:05d}"
            raise ReadError(prefix, "checkpoint", expected=expected, found="no such file", advice=WHOLE)
    return shards


def _damage_error(path: Path, where: str, cause: Exception) -> ReadError | AccessError:
    if isinstance(cause, OSError):
        return AccessError(cause.filename or path, cause.strerror or str(cause))
    expected = "readable bytes that match their checksum"
    return ReadError(path, where, expected=expected, found=str(cause), advice=AGAIN)


_ANNOUNCEMENT: Final = b""
#: The TensorProto field of each type, and the width of a number in bytes, 0 for varints.
_FIELDS: Final = {
    **{entries.FLOAT: (5, 4), entries.DOUBLE: (6, 8), entries.COMPLEX64: (9, 4), entries.COMPLEX128: (12, 8)},
    **{entries.HALF: (13, 0), entries.INT64: (10, 0), entries.BOOL: (11, 0)},
    **dict.fromkeys(entries.SMALL_INTEGERS, (7, 0)),
}
_STRINGS: Final = 8


def read_v1(files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return every tensor of a V1 checkpoint by key. Raises ValueError, OSError."""
    stored: dict[str, StoredTensor] = {}
    for path in files:
        table = Table(path)
        for tensor in entries.list_announced(table.find(_ANNOUNCEMENT)):
            before = stored.get(tensor.name, StoredTensor(tensor.shape, tensor.dtype, ()))
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
            stored[tensor.name] = StoredTensor(tensor.shape, tensor.dtype, before.pieces + pieces)
    return stored


@dataclass(frozen=True, slots=True)
class Slice:
    """An entry of a V1 table: a slice of a tensor."""

    table: Table
    key: bytes
    dtype: int
    extents: Extents

    def check(self) -> None:
        """Check that the entry's block can contain the slice. Raises ValueError."""
        size, most = math.prod(shape(self.extents)), self.table.block_size(self.key) * EXPANSION
        if size > most:  # no element is smaller than a byte
            raise ValueError(f"a block too small for {size} elements")

    def read(self) -> Array:
        """Read the slice; the block's checksum covers it. Raises ValueError, OSError."""
        self.check()
        slices = tables.fields(tables.content(tables.fields(self.table.find(self.key)), 2))
        tensor = tables.fields(tables.content(slices, 3))
        array = self._values(tensor)
        if array.size != math.prod(shape(self.extents)):
            raise ValueError(f"{array.size} elements for the shape {shape(self.extents)}")
        return array.reshape(shape(self.extents))

    def _values(self, tensor: tables.Fields) -> Array:
        if self.dtype == entries.STRING:
            return np.array([*map(bytes, tables.contents(tensor, _STRINGS))], np.object_)
        if self.dtype not in _FIELDS:
            raise ValueError(f"elements of type {self.dtype}, which the format does not have")
        dtype, (field, width) = entries.numeric(self.dtype), _FIELDS[self.dtype]
        values: Any = tables.numbers(tensor, field, width)
        if width:  # a copy: the block is unaligned, and a view would keep all of it in memory
            if values.size % dtype.itemsize:
                raise ValueError(f"{values.size} bytes for elements of {dtype.itemsize}")
            array = np.empty(values.size // dtype.itemsize, dtype)
            array.view(np.uint8)[:] = values
            return array
        if self.dtype == entries.BOOL:
            return np.asarray(values != 0)
        bits = values.astype(np.dtype(f"u{dtype.itemsize}"))
        return np.asarray(bits.view(dtype))


_HEADER: Final = b""
_WORD: Final = 1 << 32


def read_v2(prefix: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a V2 checkpoint by key. Raises ValueError, OSError."""
    values = dict(Table(Path(f"{prefix}.index")).entries())
    if _HEADER not in values:
        raise ValueError("no header")
    shards = entries.shards(values.pop(_HEADER))
    known = {key: entries.entry(value) for key, value in values.items()}
    slices: set[bytes] = set()
    stored = {}
    for key, entry in known.items():
        if entry.slices:
            keys = [entries.slice_key(entries.text(key), each) for each in entry.slices]
            slices |= set(keys)
            stored[key] = _join_slices(prefix, shards, entry, keys, known)
        else:
            spans = (Span(prefix, shards, entry, whole(entry.shape)),)
            stored[key] = StoredTensor(entry.shape, entry.dtype, spans)
    return {entries.text(key): tensor for key, tensor in stored.items() if key not in slices}


def _join_slices(
    prefix: Path, shards: int, entry: IndexEntry, keys: list[bytes], known: Mapping[bytes, IndexEntry]
) -> StoredTensor:
    spans = []
    for key, each in zip(keys, entry.slices, strict=True):
        known_entry, extents = known.get(key), entries.resolve_slice(each, entry.shape)
        if (
            known_entry is None
            or known_entry.slices
            or (known_entry.dtype, known_entry.shape) != (entry.dtype, shape(extents))
        ):
            raise ValueError(f"no entry for the slice {list(extents)} of the shape {entry.shape}")
        spans.append(Span(prefix, shards, known_entry, extents))
    return StoredTensor(entry.shape, entry.dtype, tuple(spans))


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a tensor, or of a slice, in a V2 data file."""

    prefix: Path
    shards: int
    entry: IndexEntry
    extents: Extents

    def check(self) -> None:
        """Check that the data file contains the bytes. Raises ValueError, OSError."""
        with self._open():
            pass

    def read(self) -> Array:
        """Read the array and check the checksum. Raises ValueError, OSError."""
        with self._open() as stream:
            stream.seek(self.entry.offset)
            if self.entry.dtype == entries.STRING:
                values = np.empty(self.entry.size, np.uint8)
                fill(stream, values)
                strings, checksum = _strings(values, math.prod(self.entry.shape))
                array: Array = np.array(strings, np.object_).reshape(self.entry.shape)
            else:
                array = buffers.empty(self.entry.shape, entries.numeric(self.entry.dtype))
                checksum = fill(stream, array.reshape(-1).view(np.uint8))
        if mask_crc(checksum) != self.entry.checksum:
            raise ValueError("bytes of another checksum")
        return array

    def _open(self) -> FileIO:
        """Open the data file after comparing the file's size with the entry.

        That happens before memory is allocated. Raises ValueError, OSError.
        """
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


def _strings(content: Bytes, count: int) -> tuple[list[bytes], int]:
    """Decode `count` strings, and compute the checksum of the tensor. Raises ValueError.

    Layout: varint lengths, the masked checksum of the lengths as words of 32 bits (64 for longer strings),
    then the strings. The tensor's checksum also covers the lengths as words (ReadStringTensor).
    """
    data, offset = content.data, 0
    if count > len(data):
        raise ValueError(f"{len(data)} bytes for {count} strings")
    lengths = []
    for _ in range(count):
        length, offset = tables.varint(data, offset)
        lengths.append(length)
    words = b"".join(length.to_bytes(4 if length < _WORD else 8, "little") for length in lengths)
    checksum = extend_crc(0, np.frombuffer(words, np.uint8))
    if mask_crc(checksum) != int.from_bytes(data[offset : offset + 4], "little"):
        raise ValueError("lengths of another checksum")
    if offset + 4 + sum(lengths) != len(data):
        raise ValueError(f"{sum(lengths)} bytes of strings in {len(data) - offset - 4}")
    checksum = extend_crc(checksum, content[offset:])
    strings, offset = [], offset + 4
    for length in lengths:
        strings.append(bytes(data[offset : offset + length]))
        offset += length
    return strings, checksum
