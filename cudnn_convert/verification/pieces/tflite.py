"""The loops of a TensorFlow Lite file, each cut out with its weights as a model of its own.

A layer's direction is one loop over its steps. Before it stands the product of all inputs with the kernel,
behind it the loop's rows lose those that fill up its last block, and are turned round where it goes backward.
All of that is cut out: the product's rows, the initial states and the lengths become inputs, and where the
sizes are read off a tensor that tensor does too. Weights that a branch or a loop of the model is handed come
along. The file says which loop is which direction of which layer.
Source: tensorflow v2.21.0 compiler/mlir/lite/schema/schema.fbs (SubGraph, WhileOptions, IfOptions: operands
and arguments are in the same order), lite/kernels/while.cc.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from cudnn_convert.formats import part_file
from cudnn_convert.model import WAYS, Array, Recurrence
from cudnn_convert.verification.pieces.inputs import Asked
from cudnn_convert.verification.pieces.piece import Answer, Artifact, Piece, Pieces

_KEY: Final = b"cudnn_convert"
_OP: Final = schema.BuiltinOperator
_PRODUCTS: Final = frozenset({_OP.FULLY_CONNECTED, _OP.BATCH_MATMUL})
_INT: Final = schema.TensorType.INT32


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Every layer whose loops the files of an artifact name."""
    known = {one.node: one for one in recurrences}
    cuts: list[Piece] = []
    reasons = dict.fromkeys(known, "the file does not say which of its loops computes it")
    for file in dict.fromkeys(part_file(artifact.path, part.name, ".tflite") for part in artifact.plan.parts):
        model = _Model(flatbuffer_utils.convert_bytearray_to_object(bytearray(file.read_bytes())))
        loops = model.loops()
        for (node, layer), names in model.recorded().items():
            if node not in known or not all(name in loops for name in names):
                continue
            try:
                parts = [_cut(model, *loops[name], backward=way > 0) for way, name in enumerate(names)]
            except _CannotCut as cause:
                reasons[node] = str(cause)
                continue
            ask = partial(_ask, parts)
            lengths = all(_LENGTHS in part.inputs for part in parts)
            cuts.append(Piece(node, (layer,), names[0], ask, lengths=lengths))
    return Pieces(tuple(cuts), reasons)


class _CannotCut(Exception):
    """A loop stands in what this module does not cut."""


@dataclass(frozen=True, slots=True)
class _Model:
    """A file as an object that its schema describes."""

    content: Any
    callers: dict[int, tuple[Any, Any, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph in self.content.subgraphs:
            for op in graph.operators:
                for number, skipped in self.called(op):
                    self.callers[number] = (graph, op, skipped)

    def code(self, op: Any) -> int:
        """The number of an operator's kind; small ones are in the older of two fields."""
        kind = self.content.operatorCodes[op.opcodeIndex]
        return max(kind.builtinCode, kind.deprecatedBuiltinCode)

    def called(self, op: Any) -> list[tuple[int, int]]:
        """The subgraphs that an operator runs, and how many of its operands are no arguments of theirs."""
        of, code = op.builtinOptions, self.code(op)
        if code == _OP.WHILE:
            return [(of.condSubgraphIndex, 0), (of.bodySubgraphIndex, 0)]
        return [(of.thenSubgraphIndex, 1), (of.elseSubgraphIndex, 1)] if code == _OP.IF else []

    def is_constant(self, tensor: Any) -> bool:
        """Whether the file holds a tensor's value."""
        data = self.content.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def loops(self) -> dict[str, tuple[Any, Any]]:
        """Each loop and the subgraph that it stands in, by the name of its first result."""
        return {
            graph.tensors[op.outputs[0]].name.decode(): (graph, op)
            for graph in self.content.subgraphs
            for op in graph.operators
            if self.code(op) == _OP.WHILE
        }

    def recorded(self) -> dict[tuple[str, int], list[str]]:
        """The loops of each `(recurrence, layer)`, forward first, as the provenance has them."""
        entry = next((one for one in self.content.metadata or () if one.name == _KEY), None)
        named: dict[tuple[str, int], list[str]] = {}
        if entry is None:
            return named
        try:
            provenance = json.loads(bytes(bytearray(self.content.buffers[entry.buffer].data)))
            for one in provenance.get("pieces", ()):
                key = (str(one["node"]), int(one["layer"]))
                named.setdefault(key, []).insert(WAYS.index(one["direction"]), str(one["piece"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        return named

    def handed(self, graph: Any, place: int) -> Any:
        """The constant that an argument of a subgraph is wherever it runs, or None."""
        number = next(k for k, one in enumerate(self.content.subgraphs) if one is graph)
        if number not in self.callers:
            return None
        caller, op, skipped = self.callers[number]
        argument = [*graph.inputs].index(place)
        if self.code(op) == _OP.WHILE and not _is_carried_only(graph, argument):
            return None
        operand = int(op.inputs[argument + skipped])
        if self.is_constant(caller.tensors[operand]):
            return caller.tensors[operand]
        return self.handed(caller, operand) if operand in caller.inputs else None


def _is_carried_only(graph: Any, argument: int) -> bool:
    """Whether what a subgraph gives in an argument's place is that argument."""
    return len(graph.outputs) <= argument or graph.outputs[argument] == graph.inputs[argument]


#: What the inputs of a part are.
_X, _ROWS, _H, _C, _LENGTHS = "x", "rows", "h", "c", "lengths"


@dataclass(frozen=True, slots=True)
class _Part:
    """A direction of a layer as a model of its own, `opened` at the first call.

    `inputs` says what each of its inputs is; its outputs are `y`, `h` and, of an LSTM, `c`.
    """

    opened: Callable[[], Any]
    inputs: Sequence[str]

    def run(self, given: dict[str, Array]) -> list[Array]:
        """Its outputs."""
        interpreter = self.opened()
        details = interpreter.get_input_details()
        for detail, name in zip(details, self.inputs, strict=True):
            interpreter.resize_tensor_input(detail["index"], given[name].shape)
        interpreter.allocate_tensors()
        for detail, name in zip(details, self.inputs, strict=True):
            interpreter.set_tensor(detail["index"], given[name])
        interpreter.invoke()
        return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def _opened(model: _Model, alone: Any) -> Any:
    content = _packed(model, alone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        return tf.lite.Interpreter(model_content=content)


def _ask(parts: Sequence[_Part], asked: Asked) -> Answer:
    """The answer of a layer, whose directions are asked one after the other."""
    x = asked.x.astype(np.float32)
    fed = {_X: x, _ROWS: x.reshape(-1, x.shape[2]), _LENGTHS: asked.lengths}
    answers = []
    for way, part in enumerate(parts):
        states = {_H: asked.h[way].astype(np.float32), _C: asked.c[way].astype(np.float32)}
        answers.append(part.run(fed | states))
    y, h, *c = zip(*answers, strict=True)
    return np.concatenate(y, 2), np.stack(h), np.stack(c[0]) if c else None


def _cut(model: _Model, graph: Any, loop: Any, *, backward: bool) -> _Part:
    """A loop with what stands directly before and behind it. Raises _CannotCut."""
    body = model.content.subgraphs[loop.builtinOptions.bodySubgraphIndex]
    makers = {int(place): op for op in graph.operators for place in op.outputs}
    carried = [k for k in range(len(loop.inputs)) if not _is_carried_only(body, k)]
    states = [k for k in carried if _rank(body.tensors[body.inputs[k]]) == 2]
    blocks = [k for k in carried if _rank(body.tensors[body.inputs[k]]) == 3]
    if not states or len(blocks) != 1:
        raise _CannotCut("in the file its loop does not carry a state and the outputs of its steps")
    after = _behind(model, graph, int(loop.outputs[blocks[0]]), backward=backward)

    tensors = [copy.copy(one) for one in graph.tensors]
    inputs: dict[int, str] = {}
    copied = copy.copy(loop)
    copied.inputs = [int(one) for one in loop.inputs]
    for name, k in zip((_H, _C), states, strict=False):
        tensors.append(copy.copy(graph.tensors[loop.outputs[k]]))  # which is of its shape, and no constant
        copied.inputs[k] = len(tensors) - 1
        inputs[copied.inputs[k]] = name
    for k in range(len(loop.inputs)):
        tensor = graph.tensors[loop.inputs[k]]
        if k not in carried and tensor.type == _INT and _rank(tensor) == 1 and not model.is_constant(tensor):
            inputs[int(loop.inputs[k])] = _LENGTHS
    operators, todo = [copied, *after], [*copied.inputs, *(int(k) for op in after for k in op.inputs)]
    results = {int(place) for op in operators for place in op.outputs}
    seen = {*inputs, *results, -1}
    while todo:
        place = todo.pop()
        if place in seen or model.is_constant(tensors[place]):
            continue
        seen.add(place)
        op = makers.get(place)
        if op is None:
            constant = model.handed(graph, place) if place in graph.inputs else None
            if constant is None:
                name = graph.tensors[place].name.decode()
                raise _CannotCut(f"in the file its loop reads {name}, which is no input of a recurrence")
            tensors[place].buffer = constant.buffer
            continue
        code = model.code(op)
        if code in _PRODUCTS:
            first = int(op.inputs[0])
            inputs[first] = _X if _rank(tensors[first]) == 3 else _ROWS
            seen.add(first)
        if code == _OP.SHAPE:
            first = int(op.inputs[0])
            if _rank(tensors[first]) != 3:
                raise _CannotCut("in the file the sizes of its loop are those of another tensor")
            inputs[first] = _X
            seen.add(first)
        operators.append(op)
        todo += [int(one) for one in op.inputs]
    order = {id(op): number for number, op in enumerate(graph.operators)}
    order[id(copied)] = order[id(loop)]
    operators.sort(key=lambda op: order[id(op)])
    alone = schema.SubGraphT()
    alone.name, alone.tensors, alone.operators = b"main", tensors, operators
    alone.inputs = [*inputs]
    ends = after[-1].outputs[0] if after else loop.outputs[blocks[0]]
    alone.outputs = [ends, *(loop.outputs[k] for k in states)]
    return _Part(cache(partial(_opened, model, alone)), [*inputs.values()])


def _behind(model: _Model, graph: Any, rows: int, *, backward: bool) -> list[Any]:
    """The operators that make the outputs of a loop's rows: the slice of its steps, and for backward a turn."""
    behind: list[Any] = []
    wanted = [_OP.STRIDED_SLICE, *([_OP.REVERSE_V2] if backward else [])]
    for code in wanted:
        readers = [op for op in graph.operators if rows == op.inputs[0] and model.code(op) == code]
        if len(readers) != 1:
            raise _CannotCut("in the file what its loop gives is not read as the outputs of a recurrence")
        behind += readers
        rows = int(readers[0].outputs[0])
    return behind


def _rank(tensor: Any) -> int:
    return 0 if tensor.shape is None else len(tensor.shape)


def _packed(model: _Model, alone: Any) -> bytes:
    """A file whose first subgraph is `alone`, with what that runs and reads of another model."""
    made = copy.copy(model.content)
    subgraphs, numbers, buffers = [alone], {}, {0}

    def moved(op: Any) -> Any:
        moved = copy.copy(op)
        if model.called(op):
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
        graph.operators = [moved(op) for op in graph.operators]
        read = {int(place) for op in graph.operators for place in (*op.inputs, *op.outputs)}
        tensors = []
        for place, tensor in enumerate(graph.tensors):
            tensors.append(copy.copy(tensor))
            tensors[-1].buffer = tensor.buffer if place in read else 0
            buffers.add(tensors[-1].buffer)
        graph.tensors = tensors
    made.subgraphs, made.signatureDefs, made.metadata, made.metadataBuffer = subgraphs, [], [], []
    empty = schema.BufferT()
    made.buffers = [one if k in buffers else empty for k, one in enumerate(model.content.buffers)]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(made))
