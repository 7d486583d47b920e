"""Checkpoints of the V1 format: a table, or one a shard, of slices as lists of numbers in TensorProtos.

Its first entry announces the tensors, and what slices of them the others are.
Source: tensorflow v1.15.0 core/util/tensor_slice_{reader,writer}.cc, saved_tensor_slice_util.h (which field
of a TensorProto holds which type), core/framework/tensor.proto.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.read.checkpoints import dtypes, entries, wire
from cudnn_convert.read.checkpoints.entries import Extents
from cudnn_convert.read.checkpoints.pieces import Stored, shape
from cudnn_convert.read.checkpoints.table import EXPANSION, Table

_ANNOUNCEMENT: Final = b""
#: The field of each type that the format has, and the bytes of a number where it is no varint.
_FIELDS: Final = {
    **{dtypes.FLOAT: (5, 4), dtypes.DOUBLE: (6, 8), dtypes.COMPLEX64: (9, 4), dtypes.COMPLEX128: (12, 8)},
    **{dtypes.HALF: (13, 0), dtypes.INT64: (10, 0), dtypes.BOOL: (11, 0)},
    **dict.fromkeys(dtypes.SMALL_INTEGERS, (7, 0)),
}
_STRINGS: Final = 8


def stored(files: Sequence[Path]) -> dict[str, Stored]:
    """Every tensor of all the files, by its key. Raises ValueError, OSError."""
    found: dict[str, Stored] = {}
    for path in files:
        table = Table(path)
        for tensor in entries.announced(table.find(_ANNOUNCEMENT)):
            before = found.get(tensor.name, Stored(tensor.shape, tensor.dtype, ()))
            if (before.shape, before.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"tensor {tensor.name} of two kinds")
            pieces = tuple(
                Slice(
                    table,
                    entries.slice_key(tensor.name, each),
                    tensor.dtype,
                    entries.resolved(each, tensor.shape),
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
        slices = wire.fields(wire.content(wire.fields(self.table.find(self.key)), 2))
        tensor = wire.fields(wire.content(slices, 3))
        array = self._strings(tensor) if self.dtype == dtypes.STRING else self._numbers(tensor)
        if array.size != math.prod(shape(self.extents)):
            raise ValueError(f"{array.size} elements for the shape {shape(self.extents)}")
        return array.reshape(shape(self.extents))

    def _strings(self, tensor: wire.Fields) -> Array:
        held = [bytes(value) for value in wire.contents(tensor, _STRINGS)]
        array: Array = np.empty(len(held), np.object_)
        array[:] = held
        return array

    def _numbers(self, tensor: wire.Fields) -> Array:
        if self.dtype not in _FIELDS:
            raise ValueError(f"elements of type {self.dtype}, which the format does not have")
        dtype, (field, width) = dtypes.numeric(self.dtype), _FIELDS[self.dtype]
        found: Any = wire.numbers(tensor, field, width)
        if width:  # a copy: the block is neither aligned nor to be kept for one of its tensors
            if found.size % dtype.itemsize:
                raise ValueError(f"{found.size} bytes for elements of {dtype.itemsize}")
            array = np.empty(found.size // dtype.itemsize, dtype)
            array.view(np.uint8)[:] = found
            return array
        if self.dtype == dtypes.BOOL:
            return np.asarray(found != 0)
        bits = found.astype(np.dtype(f"u{dtype.itemsize}"))
        return np.asarray(bits.view(dtype))
