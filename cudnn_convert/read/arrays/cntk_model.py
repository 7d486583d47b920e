"""Reads CNTK's models: the weights and sizes of each OptimizedRNNStack.

A model is a Dictionary of type CompositeFunction. Its `primitive_functions` are all functions, those of
blocks too. Number 49 is OptimizedRNNStack, cuDNN's recurrence, with the attributes `recurrentOp`,
`numLayers`, `hiddenSize` and `bidirectional`; its inputs are the operand and the parameter. `inputs` has the
parameters and constants with their values, column-major: NumPy's shape is CNTK's backwards. In whatever
shape, the values of that parameter are cuDNN's blob. Initial states are zeros.
Source: CNTK v2.7 Source/CNTKv2LibraryDll/CompositeFunction.cpp Serialize, PrimitiveFunction.cpp Serialize,
BlockFunction.h, API/Internals/PrimitiveOpType.h, PrimitiveFunctionAttribute.cpp, API/CNTKLibrary.h DataType,
StorageFormat; Source/Math/CuDnnRNN.cpp CuDnnRNNExecutor::ForwardCore, RNNCommon.h RnnAttributes.
"""

import itertools
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Mode, Model, PartialSizes, Tensor
from cudnn_convert.read.arrays import cntk_dictionary, containers
from cudnn_convert.read.arrays.containers import ArrayFiles, PackedTensor, StoredTensor
from cudnn_convert.weights import parameter_blob

KIND: Final = "CNTK model"
TAGS: Final = False
#: The version, the first entry of the data, and its key.
_BEGIN: Final = re.compile(rb"\x08[\x01-\x7f]\x12[\x80-\xff]{0,4}[\0-\x7f]\x0a[\x01-\x40][A-Za-z_ ]+\x12")
#: Source: CNTK v2.7 Source/CNTKv2LibraryDll/BackCompat.cpp IsLegacyModel.
_LEGACY: Final = "BCN\0".encode("utf-16-le")
_SPLIT: Final = b"ktnc"
_HEAD: Final = 80
_TYPE: Final = "CompositeFunction"
_OPERATION: Final = 49
_MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {"lstm": Mode.LSTM, "gru": Mode.GRU, "rnnReLU": Mode.RNN_RELU, "rnnTanh": Mode.RNN_TANH}
)
_DOUBLE: Final = 2
#: The types of values in the file and of the arrays, by number: float16 is stored as float32.
_TYPES: Final[Mapping[int, tuple[np.dtype[Any], np.dtype[Any]]]] = {
    1: (np.dtype("<f4"), np.dtype("<f4")),
    _DOUBLE: (np.dtype("<f8"), np.dtype("<f8")),
    4: (np.dtype("<f4"), np.dtype("<f2")),
}
_DENSE: Final = 0
#: The axes of an array of NumPy.
_MOST_AXES: Final = 64
#: The operand and the weights.
_INPUTS: Final = 2
#: A larger size is one that CNTK is to infer, or damage.
_MOST: Final = 2**31 - 1
_NAME: Final = "OptimizedRNNStack"
_ON_CPU: Final = "a model without it runs on a CPU as it is, in CNTK"
_CONVERTED: Final = "load it in CNTK 2, and save it again"
_FLOATS: Final = "save its weights as dense float32"


def recognise(path: Path) -> ArrayFiles | None:
    """Return the model of CNTK at `path`.

    A model of CNTK 1 too: `read` refuses it.
    """
    head = containers.read_head(path, _HEAD)
    begin = head[8:] if head.startswith(_SPLIT) else head
    return ArrayFiles(path, (path,)) if _BEGIN.match(begin) or head.startswith(_LEGACY) else None


def read(source: ArrayFiles) -> Model:
    """Read the weights and sizes of each OptimizedRNNStack. Raises ReadError, OSError."""
    file = _open(source.path)
    try:
        functions = [_Function.parse(entry) for entry in file.list_entries("primitive_functions")]
        stacks = [function for function in functions if function.operation == _OPERATION]
        if not stacks:
            expected = f"a function {_NAME}, cuDNN's recurrence"
            raise file.refuse("primitive_functions", expected, "none", _ON_CPU)
        given = {key: value for function in functions for key, value in function.arguments.items()}
        arrays = _list_arrays(file)
        recurrences = [_find_recurrence(file, function, arrays, given) for function in stacks]
    except (ValueError, TypeError, AttributeError) as cause:
        raise file.refuse("file", "the dictionaries of a model", "others") from cause
    return _make_model(file, recurrences, arrays)


@dataclass(frozen=True, slots=True)
class _File:
    """A parsed file.

    The values of arrays are behind `end` where the message is without them.
    """

    path: Path
    root: Any
    size: int
    end: int | None

    def refuse(self, where: str, expected: str, actual: str, advice: str = AGAIN) -> ReadError:
        return ReadError(self.path, where, expected=expected, found=actual, advice=advice)

    def list_entries(self, key: str) -> list[dict[str, Any]]:
        """Return the dictionaries of a list as values by key. Raises ValueError."""
        vector = cntk_dictionary.values(self.root).get(key)
        return [cntk_dictionary.values(member) for member in cntk_dictionary.members(vector)]


def _open(path: Path) -> _File:
    with path.open("rb") as stream:
        head = stream.read(len(_SPLIT) + struct.calcsize("<I"))
        if head.startswith(_LEGACY):
            expected = "a model of CNTK 2"
            raise ReadError(path, "file", expected=expected, found="one of CNTK 1", advice=_CONVERTED)
        size = -1
        if head.startswith(_SPLIT):
            (size,) = struct.unpack("<I", head[len(_SPLIT) :])
        else:
            stream.seek(0)
        message = stream.read(size)
        end = stream.tell() if size >= 0 else None
    try:
        root = cntk_dictionary.message_class().FromString(message)
        file = _File(path, root, path.stat().st_size, end)
        kind = cntk_dictionary.values(root).get("type")
    except (DecodeError, ValueError) as cause:
        expected, actual = "a whole dictionary of CNTK", "a damaged or incomplete one"
        raise ReadError(path, "file", expected=expected, found=actual, advice=AGAIN) from cause
    if kind != _TYPE:
        advice = "give the model, which CNTK saves beside it"
        raise file.refuse("type", _TYPE, f"{kind or 'none'}", advice)
    return file


@dataclass(frozen=True, slots=True)
class _Function:
    """A function: the number of the operation, the ids of inputs, the attributes.

    `arguments` are the ids that a block puts in the place of the ids of its own inputs.
    """

    operation: Any
    uid: str
    name: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any]
    arguments: Mapping[str, str]

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> "_Function":
        """Return the function of an entry. Raises ValueError, TypeError."""
        attributes = entry.get("attributes")
        keys, values = (
            cntk_dictionary.members(entry.get(f"block_function_composite_arguments_map_{kind}"))
            for kind in ("keys", "values")
        )
        return cls(
            entry.get("op"),
            f"{entry.get('uid') or ''}",
            f"{entry.get('name') or ''}",
            cntk_dictionary.members(entry.get("inputs")),
            {} if attributes is None else cntk_dictionary.values(attributes),
            dict(zip(keys, values, strict=True)),
        )

    @property
    def title(self) -> str:
        """The name for people, else the id."""
        return self.name or self.uid or _NAME


@dataclass(frozen=True, slots=True)
class _Input:
    """An input of the model.

    `tensor` is that of a parameter or constant of dense floats, None for all others.
    """

    name: str
    shape: tuple[int, ...]
    tensor: PackedTensor | StoredTensor | None


def _list_arrays(file: _File) -> dict[str, _Input]:
    """Return the inputs of the model by id. Raises ReadError, ValueError."""
    arrays: dict[str, _Input] = {}
    offset = file.end
    for entry in file.list_entries("inputs"):
        uid, view = f"{entry.get('uid')}", entry.get("value")
        name, tensor = f"{entry.get('name') or uid}", None
        shape = tuple(reversed(getattr(entry.get("shape"), "shape_dim", ())))
        if hasattr(view, "storage_format"):
            tensor, offset = _take_values(file, name, view, offset)
        arrays[uid] = _Input(name, shape, tensor)
    if offset is not None:
        kept = sum(array.tensor is not None for array in arrays.values())
        if offset != file.size or kept != cntk_dictionary.count_arrays(file.root):
            raise file.refuse("file", "the values of parameters and constants alone behind it", "more")
    return arrays


def _take_values(
    file: _File, name: str, view: Any, offset: int | None
) -> tuple[PackedTensor | StoredTensor | None, int | None]:
    """Return an array, and the offset of the next array's values. Raises ReadError."""
    shape = tuple(reversed(view.shape.shape_dim))
    if view.data_type not in _TYPES or view.storage_format != _DENSE:
        if offset is not None:
            raise file.refuse(name, "dense floats", "others", _FLOATS)
        return None, None
    stored, dtype = _TYPES[view.data_type]
    if len(shape) > _MOST_AXES:  # their product would take long
        raise file.refuse(name, f"at most {_MOST_AXES} axes", f"{len(shape)}")
    size = math.prod(shape) * stored.itemsize
    chunks = (view.double_values if view.data_type == _DOUBLE else view.float_values).value
    actual = sum(map(len, chunks))
    if actual == size:
        return PackedTensor(chunks, stored, shape, dtype), offset
    if offset is None or size > file.size - offset:
        actual = actual if offset is None else file.size - offset
        raise file.refuse(name, f"{size} bytes of values", f"{actual}")
    if stored != dtype:
        raise file.refuse(name, "floats or doubles", "float16 behind the message", _FLOATS)
    return StoredTensor(file.path, offset, shape, dtype), offset + size


@dataclass(frozen=True, slots=True)
class _OptimizedStack:
    """An OptimizedRNNStack: the id of the parameter, and the sizes."""

    title: str
    weights: str
    sizes: PartialSizes


def _find_recurrence(
    file: _File, function: _Function, arrays: Mapping[str, _Input], given: Mapping[str, str]
) -> _OptimizedStack:
    """Return the recurrence of a function. Raises ReadError for incomplete or unfit sizes."""
    ids = [f"{_resolve(uid, given)}" for uid in function.inputs]
    weights = arrays.get(ids[-1]) if len(ids) == _INPUTS else None
    if weights is None or weights.tensor is None:
        expected = "a parameter or constant of dense floats as its weights"
        raise file.refuse(function.title, expected, "another", _FLOATS)
    attributes = function.attributes
    mode = _MODES.get(f"{attributes.get('recurrentOp')}")
    layers, units = (attributes.get(key) for key in ("numLayers", "hiddenSize"))
    is_whole = all(isinstance(number, int) and 0 < number <= _MOST for number in (layers, units))
    if mode is None or not is_whole:
        expected = "recurrentOp, numLayers and hiddenSize"
        raise file.refuse(function.title, expected, f"{attributes.get('recurrentOp')}, {layers} and {units}")
    sizes = PartialSizes(mode, layers, units, 2 if attributes.get("bidirectional") else 1)
    count = math.prod(weights.tensor.shape)
    fitting = parameter_blob.fitting(count, mode, layers, sizes.directions, units)
    operand = arrays[ids[0]].shape if ids[0] in arrays else ()
    if not fitting or (len(operand) == 1 and 0 < operand[0] <= _MOST and fitting[0].input_size != operand[0]):
        inputs = f" and an input of {operand[0]}" if fitting else ""
        expected = f"weights for {layers} layers of {units} units{inputs}"
        raise file.refuse(function.title, expected, f"{count} values")
    return _OptimizedStack(function.title, ids[-1], sizes)


def _resolve(uid: str, given: Mapping[str, str]) -> str:
    """Follow an id through the arguments of blocks."""
    for _ in range(len(given)):
        if uid not in given:
            break
        uid = given[uid]
    return uid


def _make_model(file: _File, recurrences: Sequence[_OptimizedStack], arrays: Mapping[str, _Input]) -> Model:
    tensors: dict[str, Tensor] = {}
    blobs: dict[str, PartialSizes] = {}
    names: dict[_OptimizedStack, str] = {}
    notes: list[str] = []

    def add(title: str, tensor: Tensor) -> str:
        numbered = (f"{title}_{number}" for number in itertools.count(1))
        name = next(name for name in itertools.chain([title], numbered) if name not in tensors)
        tensors[name] = tensor
        return name

    for recurrence in recurrences:
        first = replace(recurrence, title="")
        if first in names:
            other = "another" if recurrence.title == names[first] else recurrence.title
            notes.append(f"{names[first]}: {other} has the same weights and sizes, and is converted with it")
            continue
        tensor = arrays[recurrence.weights].tensor
        assert tensor is not None
        names[first] = add(recurrence.title, replace(tensor, shape=(math.prod(tensor.shape),)))
        blobs[names[first]] = recurrence.sizes
    taken = {recurrence.weights for recurrence in recurrences}
    for uid, array in arrays.items():
        if array.tensor is not None and uid not in taken:
            add(array.name, array.tensor)
    model = containers.make_model(file.path, KIND, tensors, blobs=blobs, notes=tuple(notes))
    lack = f"the graph of {file.path.name} is one of CNTK"
    return replace(model, graphless=replace(model.graphless, lack=lack))
