"""Places of TensorFlow Lite files: constants and operators of every subgraph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from corruptions import Array, Corruption, moved_number, of_constants, shifted_step
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

#: Operators that take and give the same, in pairs.
LIKE: Final = (
    *(("GREATER", "GREATER_EQUAL"), ("LESS", "LESS_EQUAL"), ("GREATER", "LESS"), ("EQUAL", "NOT_EQUAL")),
    *(("ADD", "SUB"), ("ADD", "MUL"), ("MUL", "DIV"), ("MAXIMUM", "MINIMUM"), ("LOGICAL_AND", "LOGICAL_OR")),
    *(("REDUCE_ANY", "REDUCE_ALL"), ("REDUCE_MAX", "REDUCE_MIN"), ("SUM", "MEAN"), ("SUM", "REDUCE_MAX")),
    *(("LOGISTIC", "TANH"), ("RELU", "RELU6"), ("RELU", "ELU"), ("FLOOR", "CEIL"), ("SQRT", "RSQRT")),
    *(("ARG_MAX", "ARG_MIN"), ("FLOOR_DIV", "FLOOR_MOD"), ("SQUARE", "ABS"), ("SQUARED_DIFFERENCE", "MUL")),
    *(("POW", "MUL"), ("EXP", "ABS")),
)
_CODES: Final = {name: code for name, code in vars(schema.BuiltinOperator).items() if name.isupper()}
_NAMES: Final = {code: name for name, code in _CODES.items()}
#: Operators with a fused activation, by the name of their options.
_FUSED: Final = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}
_DTYPES: Final = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.INT32: np.int32,
    schema.TensorType.INT64: np.int64,
    schema.TensorType.BOOL: np.bool_,
}
#: Options that say how an operator computes, not what.
_ASIDE: Final = (
    *("asymmetricQuantizeInputs", "weightsFormat", "potScaleInt16", "quantizedBiasType"),
    *("condSubgraphIndex", "bodySubgraphIndex", "thenSubgraphIndex", "elseSubgraphIndex"),
    *("inDataType", "outDataType", "outputType", "initSubgraphIndex"),
)


@dataclass(frozen=True)
class Place:
    """An operator: its file, and its number in a subgraph."""

    file: Path
    subgraph: int
    number: int

    def changing(self, change: Callable[[Any, Any], None]) -> Callable[[Path], None]:
        """Write a change of the model and the operator into a copy."""

        def write(path: Path) -> None:
            file = next(file for file in _files(path) if file.name == self.file.name)
            model = flatbuffer_utils.read_model(str(file))
            change(model, model.subgraphs[self.subgraph].operators[self.number])
            flatbuffer_utils.write_model(model, str(file))

        return write


def list_corruptions(path: Path, seed: int) -> Iterator[Corruption]:
    """All corruptions of a file, or of the files of a folder."""
    constants: dict[str, Array] = {}
    for file in _files(path):
        model = flatbuffer_utils.read_model(str(file))
        for k, graph in enumerate(model.subgraphs):
            own = {
                _place(file, k, number, tensor): value
                for number, tensor in enumerate(graph.tensors)
                if (value := _value(model, tensor)) is not None
            }
            constants |= own
            for number in range(len(graph.operators)):
                yield from _of_operator(Place(file, k, number), model, own)
    yield from of_constants(constants, store, seed)


def store(path: Path, changed: Mapping[str, Array]) -> None:
    """Write new values of constants, each in a buffer of its own."""
    for file in _files(path):
        model = flatbuffer_utils.read_model(str(file))
        for k, graph in enumerate(model.subgraphs):
            for number, tensor in enumerate(graph.tensors):
                if (place := _place(file, k, number, tensor)) in changed:
                    buffer = copy.copy(model.buffers[tensor.buffer])
                    buffer.data = np.frombuffer(np.ascontiguousarray(changed[place]).tobytes(), np.uint8)
                    model.buffers.append(buffer)
                    tensor.buffer = len(model.buffers) - 1
        flatbuffer_utils.write_model(model, str(file))


def _of_operator(at: Place, model: Any, constants: Mapping[str, Array]) -> Iterator[Corruption]:
    graph = model.subgraphs[at.subgraph]
    op = graph.operators[at.number]
    kind = _NAMES.get(_code(model, op), "")
    place = f"{at.file.stem}/{at.subgraph}.{at.number} {kind}"
    for pair in LIKE:
        if kind in pair:
            other = pair[1 - pair.index(kind)]
            write = at.changing(lambda model, one, to=other: _set_kind(model, one, to))
            yield Corruption("op", f"{place} to {other}", write)
    if kind in ("SELECT", "SELECT_V2"):
        write = at.changing(lambda _, one: _exchange(one.inputs, 1, 2))
        yield Corruption("op", f"{place}: branches exchanged", write)
    if kind == "IF":
        yield Corruption("op", f"{place}: branches exchanged", at.changing(_exchange_branches))
    for name, value in sorted(vars(op.builtinOptions).items()) if op.builtinOptions else ():
        if isinstance(value, (bool, int, float)) and name not in _ASIDE:
            new = _moved_option(name, value)
            change = lambda _, one, name=name, new=new: setattr(one.builtinOptions, name, new)  # noqa: E731
            yield Corruption("attribute", f"{place}: {name} to {new}", at.changing(change))
    late = {one for later in graph.operators[at.number :] for one in later.outputs}
    used = {one for other in graph.operators for one in other.inputs} | {*graph.inputs}
    for position, index in enumerate(op.inputs):
        for other in sorted(used - late - {index, -1}) if index >= 0 else ():
            if _type(graph.tensors[other]) == _type(graph.tensors[index]):
                change = lambda _, one, k=position, to=other: _set_input(one, k, to)  # noqa: E731
                yield Corruption("wire", f"{place}: input {position} to {other}", at.changing(change))
    tensors = [(index, graph.tensors[index]) for index in op.inputs]
    names = [_place(at.file, at.subgraph, index, tensor) for index, tensor in tensors]
    yield from _other_steps(kind, place, names, constants)


def _other_steps(
    kind: str, place: str, names: list[str], constants: Mapping[str, Array]
) -> Iterator[Corruption]:
    """The next element of an axis of which a Gather or a slice takes one."""
    if kind == "GATHER" and names[1] in constants and constants[names[1]].size == 1:
        value = constants[names[1]]
        changed = {names[1]: np.full_like(value, shifted_step(int(value.ravel()[0])))}
    elif kind == "STRIDED_SLICE" and names[1] in constants and names[2] in constants:
        begin, end = constants[names[1]].copy(), constants[names[2]].copy()
        axes = [axis for axis in range(begin.size) if end[axis] - begin[axis] == 1 or begin[axis] < 0]
        if not axes:
            return
        first = int(begin[axes[0]])
        begin[axes[0]] = shifted_step(first)
        end[axes[0]] += shifted_step(first) - first
        changed = {names[1]: begin, names[2]: end}
    else:
        return
    yield Corruption("step", place, lambda path: store(path, changed))


def _moved_option(name: str, value: float) -> float:
    if isinstance(value, bool):
        return not value
    if name in ("fusedActivationFunction", "padding"):
        return int(value == 0)
    return moved_number("begin_mask" if name.endswith("Mask") else name, value)


def _set_kind(model: Any, op: Any, name: str) -> None:
    code = copy.copy(model.operatorCodes[op.opcodeIndex])
    code.builtinCode = _CODES[name]
    code.deprecatedBuiltinCode, code.version = min(_CODES[name], 127), 1
    model.operatorCodes.append(code)
    op.opcodeIndex = len(model.operatorCodes) - 1
    if name in _FUSED and op.builtinOptions is not None:
        options = getattr(schema, f"{_FUSED[name]}T")()
        options.fusedActivationFunction = getattr(op.builtinOptions, "fusedActivationFunction", 0)
        op.builtinOptions, op.builtinOptionsType = options, getattr(schema.BuiltinOptions, _FUSED[name])


def _exchange_branches(_: Any, op: Any) -> None:
    options = op.builtinOptions
    options.thenSubgraphIndex, options.elseSubgraphIndex = (
        options.elseSubgraphIndex,
        options.thenSubgraphIndex,
    )


def _set_input(op: Any, number: int, index: int) -> None:
    op.inputs[number] = index


def _exchange(inputs: Any, one: int, other: int) -> None:
    inputs[one], inputs[other] = inputs[other], inputs[one]


def _value(model: Any, tensor: Any) -> Array | None:
    data = model.buffers[tensor.buffer].data
    if tensor.type not in _DTYPES or data is None or not len(data):
        return None
    shape = [] if tensor.shape is None else [int(size) for size in tensor.shape]
    return np.frombuffer(bytes(bytearray(data)), _DTYPES[tensor.type]).reshape(shape)


def _type(tensor: Any) -> tuple[Any, ...]:
    sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
    return tensor.type, tuple(() if sizes is None else map(int, sizes))


def _code(model: Any, op: Any) -> int:
    code = model.operatorCodes[op.opcodeIndex]
    return max(int(code.builtinCode), int(code.deprecatedBuiltinCode))


def _place(file: Path, k: int, number: int, tensor: Any) -> str:
    return f"{file.stem}/{k}.{number} {tensor.name.decode()}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("*.tflite"))
