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
from collections.abc import Callable, Sequence
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
            except _UncutError as cause:
                reasons[node] = str(cause)
                continue
            cuts.append(_piece(node, layer, names[0], parts))
    return Pieces(tuple(cuts), reasons)


def _piece(node: str, layer: int, name: str, parts: Sequence[_Part]) -> Piece:
    return Piece(
        node,
        (layer,),
        name,
        partial(_ask, parts),
        lengths=all(_LENGTHS in part.inputs for part in parts),
        outputs=all(part.outputs for part in parts),
        steps=parts[0].sizes[0],
        rows=parts[0].sizes[1],
    )


class _UncutError(Exception):
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
        return int(max(kind.builtinCode, kind.deprecatedBuiltinCode))

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
        if self.code(op) == _OP.WHILE and not _is_handed_on(graph, argument):
            return None
        operand = int(op.inputs[argument + skipped])
        if self.is_constant(caller.tensors[operand]):
            return caller.tensors[operand]
        return self.handed(caller, operand) if operand in caller.inputs else None


def _is_handed_on(graph: Any, argument: int) -> bool:
    """Whether what a subgraph gives in an argument's place is that argument."""
    return len(graph.outputs) <= argument or graph.outputs[argument] == graph.inputs[argument]


#: What the inputs of a part are.
_X, _ROWS, _H, _C, _LENGTHS, _START = "x", "rows", "h", "c", "lengths", "start"


@dataclass(frozen=True, slots=True)
class _Part:
    """A direction of a layer as a model of its own, `opened` at the first call.

    `inputs` says what each of its inputs is; its outputs are `h`, of an LSTM `c`, and `y` where something
    reads that (`outputs`). `sizes`: the (time, batch) that the file holds it to, None what is open.
    """

    opened: Callable[[], Any]
    inputs: Sequence[str]
    outputs: bool
    sizes: tuple[int | None, int | None]
    backward: bool

    def ask(self, x: Array, states: Sequence[Array], lengths: Array) -> list[Array]:
        """`[y, h]` and an LSTM's `c`; a batch of any size goes in portions of the file's."""
        batch = self.sizes[1] or x.shape[1]
        answers = [
            self._ask(x[:, k : k + batch], [one[k : k + batch] for one in states], lengths[k : k + batch])
            for k in range(0, x.shape[1], batch)
        ]
        y, *last = zip(*answers, strict=True)
        return [np.concatenate(y, 1), *(np.concatenate(part) for part in last)]

    def _ask(self, x: Array, states: Sequence[Array], lengths: Array) -> list[Array]:
        (asked, rows, width), (time, batch) = x.shape, self.sizes
        full = np.zeros((time or asked, batch or rows, width), np.float32)
        # The last step of a loop of fixed length: it starts there, and so takes a single one.
        start = full.shape[0] - asked
        at = 0 if self.backward else start
        full[at : at + asked, :rows] = x
        none = full.shape[1] - rows
        h, c = (np.pad(one, ((0, none), (0, 0))) for one in states)
        given = {_X: full, _ROWS: full.reshape(-1, width), _H: h, _C: c, _START: np.int32(start)}
        given[_LENGTHS] = np.pad(lengths, (0, none)) + np.int32(start)
        *last, y = self._run(given)
        last = [one[:rows] for one in last]
        # Of one step the output is the new state.
        return [y[:, :rows] if asked == full.shape[0] else last[0][None], *last]

    def _run(self, given: dict[str, Any]) -> list[Array]:
        interpreter = self.opened()
        details = interpreter.get_input_details()
        for detail, name in zip(details, self.inputs, strict=True):
            if given[name].ndim:
                interpreter.resize_tensor_input(detail["index"], given[name].shape)
        interpreter.allocate_tensors()
        for detail, name in zip(details, self.inputs, strict=True):
            interpreter.set_tensor(detail["index"], given[name])
        interpreter.invoke()
        found = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
        return found if self.outputs else [*found, found[0][None]]


def _opened(model: _Model, alone: Any) -> Any:
    content = _packed(model, alone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        return tf.lite.Interpreter(model_content=content)


def _ask(parts: Sequence[_Part], asked: Asked) -> Answer:
    """The answer of a layer, whose directions are asked one after the other."""
    x, h, c = (value.astype(np.float32) for value in (asked.x, asked.h, asked.c))
    answers = [part.ask(x, (h[way], c[way]), asked.lengths) for way, part in enumerate(parts)]
    y, *last = zip(*answers, strict=True)
    ends = [np.stack(one) for one in last]
    return np.concatenate(y, 2), ends[0], ends[1] if len(ends) > 1 else None


def _cut(model: _Model, graph: Any, loop: Any, *, backward: bool) -> _Part:
    """A loop with what stands directly before and behind it. Raises _UncutError."""
    body = model.content.subgraphs[loop.builtinOptions.bodySubgraphIndex]
    makers = {int(place): op for op in graph.operators for place in op.outputs}
    carried: dict[tuple[bool, int], list[int]] = {}
    for k in range(len(loop.inputs)):
        if not _is_handed_on(body, k):
            tensor = body.tensors[body.inputs[k]]
            carried.setdefault((tensor.type == _INT, _rank(tensor)), []).append(k)
    states, blocks, counters = (carried.get(kind, []) for kind in ((False, 2), (False, 3), (True, 0)))
    if not states or len(blocks) != 1:
        raise _UncutError("in the file its loop does not carry a state and the outputs of its steps")
    after = _behind(model, graph, int(loop.outputs[blocks[0]]), backward=backward)
    sizes = _sizes(model, graph, loop, makers, {*states, *blocks, *counters})

    cut = _Cut(model, graph, makers, [copy.copy(one) for one in graph.tensors])
    copied = copy.copy(loop)
    copied.inputs = [int(one) for one in loop.inputs]
    named = [*zip((_H, _C), states, strict=False), *((_START, k) for k in counters if sizes[0])]
    for name, k in named:
        cut.tensors.append(copy.copy(graph.tensors[loop.outputs[k]]))  # of its shape, and no constant
        copied.inputs[k] = len(cut.tensors) - 1
        cut.inputs[copied.inputs[k]] = name
    for k in range(len(loop.inputs)):
        tensor = graph.tensors[loop.inputs[k]]
        if tensor.type == _INT and _rank(tensor) == 1 and not model.is_constant(tensor):
            cut.inputs[int(loop.inputs[k])] = _LENGTHS
    cut.take([copied, *after])
    order = {id(op): number for number, op in enumerate(graph.operators)} | {id(copied): -1}
    order[id(copied)] = order.pop(id(loop))
    alone = schema.SubGraphT()
    alone.name, alone.tensors = b"main", cut.tensors
    alone.operators = sorted(cut.operators, key=lambda op: order[id(op)])
    alone.inputs = [*cut.inputs]
    alone.outputs = [*(loop.outputs[k] for k in states), *(op.outputs[0] for op in after[-1:])]
    opened = cache(partial(_opened, model, alone))
    return _Part(opened, [*cut.inputs.values()], bool(after), sizes, backward)


@dataclass(slots=True)
class _Cut:
    """What is taken out of a subgraph: `operators`, and by number the tensors that become `inputs`."""

    model: _Model
    graph: Any
    makers: dict[int, Any]
    tensors: list[Any]
    operators: list[Any] = field(default_factory=list)
    inputs: dict[int, str] = field(default_factory=dict)

    def take(self, operators: Sequence[Any]) -> None:
        """Takes some operators and what they read, up to products of the recurrence's inputs."""
        seen = {-1, *self.inputs, *(int(place) for op in operators for place in op.outputs)}
        self.operators += operators
        todo = [int(place) for op in operators for place in op.inputs]
        while todo:
            place = todo.pop()
            if place in seen or place in self.inputs or self.model.is_constant(self.tensors[place]):
                continue
            seen.add(place)
            op = self.makers.get(place)
            if op is None:
                self.tensors[place].buffer = self._handed(place).buffer
                continue
            self.operators += [op] if op not in self.operators else []
            first, code = int(op.inputs[0]), self.model.code(op)
            if code in _PRODUCTS:
                self.inputs[first] = _X if _rank(self.tensors[first]) == 3 else _ROWS
            elif code == _OP.SHAPE:
                if _rank(self.tensors[first]) != 3:
                    raise _UncutError("in the file the sizes of its loop are those of another tensor")
                self.inputs[first] = _X
            todo += [int(one) for one in op.inputs]

    def _handed(self, place: int) -> Any:
        constant = self.model.handed(self.graph, place) if place in self.graph.inputs else None
        if constant is None:
            name = self.tensors[place].name.decode()
            raise _UncutError(f"in the file its loop reads {name}, which is no input of a recurrence")
        return constant


def _sizes(
    model: _Model, graph: Any, loop: Any, makers: dict[int, Any], carried: set[int]
) -> tuple[int | None, int | None]:
    """The steps and the rows of what a loop reads of each step, where the file knows them."""
    for k, place in enumerate(loop.inputs):
        tensor, op = graph.tensors[place], makers.get(int(place))
        if k in carried or _rank(tensor) != 3 or model.is_constant(tensor):
            continue
        if op is not None and model.code(op) == _OP.FILL:
            continue
        signature = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        time, batch = (int(one) if one > 0 else None for one in signature[:2])
        return time, batch
    raise _UncutError("in the file its loop does not read the inputs of its steps")


def _behind(model: _Model, graph: Any, rows: int, *, backward: bool) -> list[Any]:
    """The operators that make the outputs of a loop's rows; none where nothing reads those.

    They are the slice of its steps, and for backward a turn.
    """
    behind: list[Any] = []
    for code in (_OP.STRIDED_SLICE, *([_OP.REVERSE_V2] if backward else [])):
        readers = [op for op in graph.operators if rows in op.inputs]
        if not readers and not behind:
            return []
        if [model.code(op) for op in readers] != [code]:
            raise _UncutError("in the file what its loop gives is not read as the outputs of a recurrence")
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
