"""Reads MXNet's `.params`, lists of named arrays, and the symbol beside a checkpoint.

A file is, little-endian, the number 0x112 and a 0 in 64 bits each, the count and the arrays, the count and
the names. A name is its length and its bytes. An array has, by its first 32 bits:

* 0xF993FAC9, version 2: the kind of storage, 0 for a dense one. Shape, device, number of the device, type and
  the values. A shape is 32 bits for its rank, and 64 for each axis. An array of rank 0 has only the shape.
* 0xF993FACA, version 3: as version 2; rank 0 is a scalar, and rank -1 has only the shape.
* 0xF993FAC8, version 1: as version 2, without the kind of storage.
* any other, before version 1: the rank itself. Each axis has 32 bits; then as version 1.

Checkpoints name arrays `arg:` and `aux:`. Source: mxnet 1.9.1 src/ndarray/ndarray.cc NDArray::Save, Load,
LegacyLoad; include/mxnet/tuple.h Tuple::Save; include/mxnet/base.h Context::Save; 3rdparty/mshadow/mshadow/
base.h TypeFlag; python/mxnet/model.py save_checkpoint, load_params.
"""

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import CanonicalParameters, Mode, Model, PartialSizes, Tensor, is_float
from cudnn_convert.read.arrays import containers, mxnet_symbol
from cudnn_convert.read.arrays.containers import ArrayFiles, StoredTensor
from cudnn_convert.read.arrays.mxnet_symbol import FusedOp, Symbol
from cudnn_convert.weights import parameter_blob

KIND: Final = "MXNet parameter file"
TAGS: Final = False
_MAGIC: Final = struct.pack("<QQ", 0x112, 0)
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_STORAGES: Final = ("dense", "row_sparse", "csr")
_TYPES: Final[tuple[Any, ...]] = (
    *(np.float32, np.float64, np.float16, np.uint8, np.int32, np.int8, np.int64, np.bool_),
    *(np.int16, np.uint16, np.uint32, np.uint64, ml_dtypes.bfloat16),
)
#: The largest rank of an array in NumPy 1.
_RANK: Final = 32
#: `save_checkpoint` writes at least four digits.
_EPOCH: Final = re.compile(r"(?P<prefix>.+)-\d{4,}\.params", re.ASCII)
_OF_CHECKPOINT: Final = re.compile(r"(?:arg|aux):")
_PACKED: Final = "parameters"
_LAYERED: Final = re.compile(r"[lr]\d+_[ih]2h", re.ASCII)
_WHOLE: Final = "a whole list of arrays"
_DENSE: Final = "make it dense with tostype('default'), and save it again"
_TYPED: Final = "save it as float32"
_NAMES: Final = "arrays with names, which mx.nd.save writes of a dict"
_TWICE: Final = "rename one of them"
_APART: Final = "give the .params and the symbol of one checkpoint, or move the symbol away"
_PLAINLY: Final = "if gluon or mx.rnn made the cell, save its arrays without arg: in their names"
_REORDERED: Final = "bring the rows of gates to the order i, f, c, o, and save the arrays with mx.nd.save"
_SINGLY: Final = "save the arrays of each cell to a file of its own"
_UNPACKED: Final = "save the arrays of its layers"


def recognise(path: Path) -> ArrayFiles | None:
    """Return the parameter file at `path`, and the checkpoint's symbol if there."""
    head = containers.read_head(path, len(_MAGIC))
    if head != _MAGIC:
        return None
    match = _EPOCH.fullmatch(path.name)
    symbol = path.with_name(f"{match['prefix']}-symbol.json") if match else None
    return ArrayFiles(path, (path, symbol) if symbol is not None and symbol.exists() else (path,))


def read(source: ArrayFiles) -> Model:
    """Read the arrays and the symbol; values stay in the file. Raises ReadError, OSError."""
    path = source.path
    stored = _Parser(path).parse()
    tensors = _strip(path, stored)
    symbol = mxnet_symbol.read(source.files[1]) if len(source.files) > 1 else None
    blobs = {key: PartialSizes() for key, tensor in tensors.items() if _may_be_packed(key, tensor)}
    if symbol is not None:
        blobs |= _find_packed(symbol, tensors)
    notes = (f"{symbol.path.name} was read for what the names leave open",) if symbol else ()
    model = containers.make_model(path, KIND, tensors, blobs=blobs, notes=notes)
    if stored and all(map(str.isdecimal, stored)) and not model.canonical:
        model = replace(model, graphless=replace(model.graphless, expected=_NAMES))
    is_checkpoint = any(map(_OF_CHECKPOINT.match, stored))
    judged = (_judge(model, own, symbol, is_checkpoint=is_checkpoint) for own in model.canonical)
    return replace(model, canonical=tuple(judged))


class _Parser:
    """A walk over a file, inside the bounds of the file."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, path.stat().st_size

    def parse(self) -> dict[str, Tensor]:
        """Return the arrays by name, else by number. Raises ReadError, OSError."""
        with self._path.open("rb") as file:
            self._file = file
            self._skip(len(_MAGIC), "file")
            (count,) = self._take("<Q", "count of arrays")
            if count > self._size:
                raise self._refuse("arrays", "no more than the file has bytes", f"{count}")
            arrays = [self._parse_array(f"array {number}") for number in range(count)]
            (named,) = self._take("<Q", "count of names")
            if named not in (0, len(arrays)):
                raise self._refuse("names", f"{len(arrays)} or none", f"{named}")
            names = [self._parse_name(f"name {number}") for number in range(named)]
            if file.tell() != self._size:
                raise self._refuse("file", "nothing behind the names", f"{self._size - file.tell()} bytes")
        names = names or [str(number) for number in range(len(arrays))]
        if len(set(names)) < len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise self._refuse(twice, "one array of this name", "several")
        return dict(zip(names, arrays, strict=True))

    def _refuse(self, where: str, expected: str, actual: str, advice: str = AGAIN) -> ReadError:
        return ReadError(self._path, where, expected=expected, found=actual, advice=advice)

    def _skip(self, count: int, where: str) -> int:
        """Go on by `count` bytes, and return the begin."""
        begin = self._file.tell()
        if count > self._size - begin:
            raise self._refuse(where, f"{count} bytes", f"{self._size - begin}, the end of the file")
        self._file.seek(begin + count)
        return begin

    def _take(self, layout: str, where: str) -> tuple[int, ...]:
        begin = self._skip(struct.calcsize(layout), where)
        self._file.seek(begin)
        return struct.unpack(layout, self._file.read(struct.calcsize(layout)))

    def _parse_name(self, where: str) -> str:
        (length,) = self._take("<Q", where)
        self._file.seek(self._skip(length, where))
        try:
            return self._file.read(length).decode()
        except UnicodeDecodeError as cause:
            raise self._refuse(where, "a name in UTF-8", "other bytes") from cause

    def _parse_array(self, where: str) -> Tensor:
        (magic,) = self._take("<I", where)
        if magic in (_V2, _V3):
            (storage,) = self._take("<i", where)
            if storage:
                sparse = dict(enumerate(_STORAGES)).get(storage, f"storage {storage}")
                raise self._refuse(where, "a dense array", f"a {sparse} one", _DENSE)
        rank = self._take("<i", where)[0] if magic in (_V1, _V2, _V3) else magic
        if rank == (-1 if magic == _V3 else 0):
            raise self._refuse(where, "values", "none", "give the parameters values, and save them again")
        if not 0 <= rank <= _RANK:
            raise self._refuse(where, f"at most {_RANK} axes", f"{rank}")
        axis = "q" if magic in (_V1, _V2, _V3) else "I"
        shape = self._take(f"<{rank}{axis}", where)
        if shape and min(shape) < 0:
            raise self._refuse(where, "a shape", f"{shape}")
        _, _, kind = self._take("<iii", where)
        if not 0 <= kind < len(_TYPES):
            raise self._refuse(where, "numbers of a known type", f"type {kind}", _TYPED)
        dtype = np.dtype(_TYPES[kind])
        return StoredTensor(self._path, self._skip(math.prod(shape) * dtype.itemsize, where), shape, dtype)


def _strip(path: Path, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the arrays by name in the model.

    Raises ReadError for one that is `arg:` and `aux:`.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        key = _OF_CHECKPOINT.sub("", name, count=1)
        if key in tensors:
            raise ReadError(path, key, expected="one array of this name", found=f"{name} too", advice=_TWICE)
        tensors[key] = tensor
    return tensors


def _may_be_packed(key: str, tensor: Tensor) -> bool:
    """Return True for the vector of a FusedRNNCell, by name.

    The name is the prefix and `parameters`. Source: mxnet 1.9.1 python/mxnet/rnn/rnn_cell.py
    FusedRNNCell.__init__.
    """
    return key.endswith(_PACKED) and len(tensor.shape) == 1 and is_float(tensor.dtype)


def _find_packed(symbol: Symbol, tensors: Mapping[str, Tensor]) -> dict[str, PartialSizes]:
    """Return the sizes of the vectors of RNN ops.

    Raises ReadError for a symbol of other arrays.
    """
    blobs: dict[str, PartialSizes] = {}
    for fused in symbol.fused:
        key = fused.parameters[0]
        if key not in tensors and any(_is_unpacked(name, fused) for name in tensors):
            continue  # the symbol of save_rnn_checkpoint, which unpacks the arrays
        if missing := [name for name in fused.parameters if name not in tensors]:
            raise symbol.refuse(fused.name, "parameters that the file has", missing[0], _APART)
        if len(fused.parameters) > 1 or len(tensors[key].shape) != 1:
            continue
        if fused.projection:
            expected, actual = "a vector of parameters without a projection", f"one of {fused.projection}"
            raise symbol.refuse(fused.name, expected, actual, _UNPACKED)
        sizes, count = fused.sizes, tensors[key].shape[0]
        if not parameter_blob.fitting(count, sizes.mode, sizes.layers, sizes.directions, sizes.units):
            raise symbol.refuse(
                fused.name, f"sizes that fit {key} of {count} values", _describe(sizes), _APART
            )
        if blobs.setdefault(key, sizes) != sizes:
            raise symbol.refuse(fused.name, _describe(blobs[key]), _describe(sizes))
    return blobs


def _is_unpacked(key: str, fused: FusedOp) -> bool:
    """Return True for a part of an op's vector, as by `unpack_weights`."""
    prefix = fused.parameters[0].removesuffix(_PACKED)
    is_packed = len(fused.parameters) == 1 and prefix != fused.parameters[0]
    return is_packed and key.startswith(prefix) and bool(_LAYERED.match(key, len(prefix)))


def _describe(sizes: PartialSizes) -> str:
    mode = sizes.mode.value if sizes.mode is not None else "any mode"
    return f"{mode}, layers {sizes.layers}, units {sizes.units}, directions {sizes.directions}"


def _judge(
    model: Model, own: CanonicalParameters, symbol: Symbol | None, *, is_checkpoint: bool
) -> CanonicalParameters:
    """Add a symbol's facts to a recurrence.

    Names of a checkpoint do not tell the order of gates: not all of MXNet's own examples have that of its
    cells. Raises ReadError where the symbol contradicts the arrays, or is needed.
    """
    keys = model.list_stored_keys(own)
    if own.dialect != "mxnet":
        return own
    ops = [
        fused
        for fused in (symbol.fused if symbol is not None else ())
        if not {*keys}.isdisjoint(fused.parameters) or all(_is_unpacked(key, fused) for key in keys)
    ]
    for fused in ops:
        own = _compare(model, own, fused, keys)
    if ops or not is_checkpoint:
        return own
    if own.modes == (Mode.LSTM,):
        _require_gates(model.path, [key for key in keys if key.endswith("i2h_weight")], symbol)
    if own.layers > 1 and not own.note:
        if symbol is not None and symbol.has_residuals:
            raise symbol.refuse(
                own.scope.rstrip("/"), "layers that feed each other", "a ResidualCell", _SINGLY
            )
        note = "its layers are taken to feed each other, without other cells between them"
        own = replace(own, note=f"{own.scope.rstrip('/')}: {note}")
    return own


def _compare(
    model: Model, own: CanonicalParameters, fused: FusedOp, keys: Sequence[str]
) -> CanonicalParameters:
    """Return the recurrence in the mode of an op. Raises ReadError for misfit sizes."""

    def refuse(expected: str, actual: str) -> ReadError:
        return ReadError(model.path, fused.name, expected=expected, found=actual, advice=_APART)

    if {*keys} != {*fused.parameters} and not _is_unpacked(keys[0], fused):
        differ = min({*keys} ^ {*fused.parameters})
        raise refuse("the arrays of one recurrence in the symbol too", f"{differ}, which one of them lacks")
    sizes = own.sizes(own.modes[0])
    if fused.sizes.mode not in own.modes or not replace(fused.sizes, mode=None).fits(sizes):
        actual = PartialSizes(sizes.mode, sizes.layers, sizes.units, sizes.directions)
        raise refuse(f"{_describe(actual)}, as the arrays have it", _describe(fused.sizes))
    if fused.projection != own.projection:
        raise refuse(f"a projection of {own.projection}, as the arrays have it", f"{fused.projection}")
    return replace(own, modes=(fused.sizes.mode,))


def _require_gates(path: Path, keys: Sequence[str], symbol: Symbol | None) -> None:
    """Require a symbol with the usual gates of LSTM cells. Raises ReadError."""
    for key in keys:
        gates = symbol.gates.get(key, ()) if symbol is not None else ()
        if gates != mxnet_symbol.USUAL_GATES:
            advice, actual = _REORDERED, f"one with {', '.join(gates)}"
            if not gates:
                actual = "none"
                advice = f"put the symbol beside it, as NAME-symbol.json and NAME-0000.params, or {_PLAINLY}"
            expected = f"a symbol whose cell has gates {', '.join(mxnet_symbol.USUAL_GATES)}"
            raise ReadError(path, key, expected=expected, found=actual, advice=advice)
