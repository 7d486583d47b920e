"""A TensorFlow Lite file as an object, and parts of it as files.

Source: tensorflow v2.21.0 compiler/mlir/lite/schema/schema.fbs (SubGraph, WhileOptions, IfOptions: operands
and arguments are in the same order), lite/kernels/while.cc.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts.tflite import open_interpreter
from cudnn_convert.artifacts.tflite_file import pack_model, schema, unpack_model
from cudnn_convert.graph.index import walk
from cudnn_convert.model import WAYS, Array

_KEY: Final = b"cudnn_convert"
OPS: Final = schema.BuiltinOperator
_TYPES: Final = {
    getattr(schema.TensorType, name.upper()): np.dtype(name)
    for name in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
}


def read(file: Path) -> Model:
    """The model in a file."""
    return Model(unpack_model(file.read_bytes()))


@dataclass(frozen=True, slots=True)
class Model:
    """A file as an object that its schema describes."""

    content: Any
    callers: dict[int, tuple[Any, Any, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph in self.content.subgraphs:
            for op in graph.operators:
                for number, skipped in self.list_called(op):
                    self.callers[number] = (graph, op, skipped)

    def code(self, op: Any) -> int:
        """The number of an operator's kind; small ones are in the older of two fields."""
        kind = self.content.operatorCodes[op.opcodeIndex]
        return int(max(kind.builtinCode, kind.deprecatedBuiltinCode))

    def list_called(self, op: Any) -> list[tuple[int, int]]:
        """List the subgraphs an operator runs, each with its count of leading operands not passed."""
        of, code = op.builtinOptions, self.code(op)
        if code == OPS.WHILE:
            return [(of.condSubgraphIndex, 0), (of.bodySubgraphIndex, 0)]
        return [(of.thenSubgraphIndex, 1), (of.elseSubgraphIndex, 1)] if code == OPS.IF else []

    def operators(self, number: int) -> Sequence[Any]:
        """The operators of the subgraph of a number."""
        return list(self.content.subgraphs[number].operators)

    def find_reached(self, op: Any) -> set[int]:
        """The subgraphs that an operator runs, and those that run in them."""

        def calls(operators: Iterable[Any]) -> list[int]:
            return [number for operator in operators for number, _ in self.list_called(operator)]

        return set(walk(calls([op]), lambda number: calls(self.operators(number))))

    def is_constant(self, tensor: Any) -> bool:
        """Whether the file holds a tensor's value."""
        data = self.content.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def dtype(self, tensor: Any) -> np.dtype[Any]:
        """The type of a tensor. Raises LookupError where NumPy has none like it."""
        if tensor.type not in _TYPES:
            raise LookupError(
                f"the artifact has {tensor.name.decode()}, which is neither a number nor a bool"
            )
        return _TYPES[tensor.type]

    def constant(self, tensor: Any) -> Array:
        """The value of a tensor that the file holds."""
        data = bytes(bytearray(self.content.buffers[tensor.buffer].data))
        shape = () if tensor.shape is None else tuple(tensor.shape)
        return np.frombuffer(data, self.dtype(tensor)).reshape(shape)

    def loops(self) -> dict[str, tuple[Any, Any]]:
        """Map the name of each loop's first result to `(subgraph, operator)`."""
        return {
            graph.tensors[op.outputs[0]].name.decode(): (graph, op)
            for graph in self.content.subgraphs
            for op in graph.operators
            if self.code(op) == OPS.WHILE
        }

    def read_recorded(self) -> dict[tuple[str, int], list[str]]:
        """The loops of each `(recurrence, layer)`, forward first, as the provenance has them."""
        entry = next((entry for entry in self.content.metadata or () if entry.name == _KEY), None)
        named: dict[tuple[str, int], list[str]] = {}
        if entry is None:
            return named
        try:
            provenance = json.loads(bytes(bytearray(self.content.buffers[entry.buffer].data)))
            for record in provenance.get("pieces", ()):
                loops = named.setdefault((str(record["node"]), int(record["layer"])), [])
                loops.insert(WAYS.index(record["direction"]), str(record["piece"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        return named

    def find_handed(self, graph: Any, index: int) -> Any:
        """The constant that an argument of a subgraph is wherever it runs, or None."""
        number = next(k for k, subgraph in enumerate(self.content.subgraphs) if subgraph is graph)
        if number not in self.callers:
            return None
        caller, op, skipped = self.callers[number]
        argument = [*graph.inputs].index(index)
        if self.code(op) == OPS.WHILE and not is_handed_on(graph, argument):
            return None
        operand = int(op.inputs[argument + skipped])
        if self.is_constant(caller.tensors[operand]):
            return caller.tensors[operand]
        return self.find_handed(caller, operand) if operand in caller.inputs else None


def is_handed_on(graph: Any, argument: int) -> bool:
    """Whether what a subgraph gives in an argument's place is that argument."""
    return len(graph.outputs) <= argument or graph.outputs[argument] == graph.inputs[argument]


def rank(tensor: Any) -> int:
    """The number of a tensor's axes."""
    return 0 if tensor.shape is None else len(tensor.shape)


def makers_of(graph: Any) -> dict[int, Any]:
    """The operator that makes each tensor of a subgraph."""
    return {int(output): op for op in graph.operators for output in op.outputs}


def open_subgraph(model: Model, alone: Any) -> Any:
    """An interpreter of a subgraph, with what it runs and reads of a model."""
    return open_interpreter(model_content=_pack(model, alone))


def run_subgraph(interpreter: Any, given: Sequence[Array]) -> list[Array]:
    """The outputs of an interpreter, whose inputs take the sizes of what is given."""
    details = interpreter.get_input_details()
    for detail, value in zip(details, given, strict=True):
        if value.ndim:
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, given, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    # Of a tensor without elements the interpreter gives nothing but the shape.
    return [
        interpreter.get_tensor(detail["index"])
        if detail["shape"].all()
        else np.empty(detail["shape"], detail["dtype"])
        for detail in interpreter.get_output_details()
    ]


def _pack(model: Model, alone: Any) -> bytes:
    """Serialize a model with `alone` as first subgraph, and all that it needs."""
    packed = copy.copy(model.content)
    subgraphs, numbers, buffers = [alone], {}, {0}

    def with_new_numbers(op: Any) -> Any:
        moved = copy.copy(op)
        if model.list_called(op):
            moved.builtinOptions = copy.copy(op.builtinOptions)
            for name, number in vars(op.builtinOptions).items():
                if name.endswith("SubgraphIndex"):
                    setattr(moved.builtinOptions, name, number_of(number))
        return moved

    def number_of(number: int) -> int:
        if number not in numbers:
            numbers[number] = len(subgraphs)
            subgraphs.append(copy.copy(model.content.subgraphs[number]))
        return numbers[number]

    for graph in subgraphs:  # grows as it goes
        graph.operators = [with_new_numbers(op) for op in graph.operators]
        used = {int(index) for op in graph.operators for index in (*op.inputs, *op.outputs)}
        tensors = []
        for index, tensor in enumerate(graph.tensors):
            tensors.append(copy.copy(tensor))
            tensors[-1].buffer = tensor.buffer if index in used else 0
            buffers.add(tensors[-1].buffer)
        graph.tensors = tensors
    packed.subgraphs, packed.signatureDefs, packed.metadata, packed.metadataBuffer = subgraphs, [], [], []
    empty = schema.BufferT()
    packed.buffers = [buffer if k in buffers else empty for k, buffer in enumerate(model.content.buffers)]
    return pack_model(packed)
