"""Loops and fused ops of a TensorFlow Lite file, each as a model.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts.tflite import open_interpreter, operator_kind, pack_model, schema, unpack_model
from cudnn_convert.formats import part_file
from cudnn_convert.graph.index import walk
from cudnn_convert.model import WAYS, Array, Recurrence
from cudnn_convert.verification.pieces.piece_inputs import Answer, Artifact, Piece, PieceInputs, Pieces

_KEY: Final = b"cudnn_convert"
OPS: Final = schema.BuiltinOperator
#: The types of NumPy, by those of the file's schema.
TYPES: Final = {
    getattr(schema.TensorType, name.upper()): np.dtype(name)
    for name in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
}


_RECURRENT: Final = frozenset({OPS.WHILE, OPS.UNIDIRECTIONAL_SEQUENCE_LSTM})


def read_model(file: Path) -> TfliteModel:
    """Read the model in a file."""
    return TfliteModel(unpack_model(file.read_bytes()))


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A file as an object of the file's schema."""

    content: Any
    callers: dict[int, tuple[Any, Any, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph in self.content.subgraphs:
            for op in graph.operators:
                for number, skipped in self.list_called(op):
                    self.callers[number] = (graph, op, skipped)

    def code(self, op: Any) -> int:
        """Return the number of an operator's kind."""
        return operator_kind(self.content, op)

    def list_called(self, op: Any) -> list[tuple[int, int]]:
        """List the subgraphs of an operator, each with the count of skipped leading operands."""
        of, code = op.builtinOptions, self.code(op)
        if code == OPS.WHILE:
            return [(of.condSubgraphIndex, 0), (of.bodySubgraphIndex, 0)]
        return [(of.thenSubgraphIndex, 1), (of.elseSubgraphIndex, 1)] if code == OPS.IF else []

    def operators(self, number: int) -> Sequence[Any]:
        """Return the operators of the subgraph of a number."""
        return list(self.content.subgraphs[number].operators)

    def find_reached(self, op: Any) -> set[int]:
        """Return the subgraphs run by an operator, directly or nested."""

        def calls(operators: Iterable[Any]) -> list[int]:
            return [number for operator in operators for number, _ in self.list_called(operator)]

        return set(walk(calls([op]), lambda number: calls(self.operators(number))))

    def is_constant(self, tensor: Any) -> bool:
        """Return True if the file holds a tensor's value."""
        data = self.content.buffers[tensor.buffer].data
        return data is not None and len(data) > 0

    def dtype(self, tensor: Any) -> np.dtype[Any]:
        """Return the type of a tensor. Raises LookupError for types outside NumPy."""
        if tensor.type not in TYPES:
            raise LookupError(
                f"the artifact has {tensor.name.decode()}, which is neither a number nor a bool"
            )
        return TYPES[tensor.type]

    def constant(self, tensor: Any) -> Array:
        """Return the value of a tensor stored in the file."""
        data = bytes(bytearray(self.content.buffers[tensor.buffer].data))
        shape = () if tensor.shape is None else tuple(tensor.shape)
        return np.frombuffer(data, self.dtype(tensor)).reshape(shape)

    def loops(self) -> dict[str, tuple[Any, Any]]:
        """Map the first result of each loop and fused op to `(subgraph, operator)`."""
        return {
            graph.tensors[op.outputs[0]].name.decode(): (graph, op)
            for graph in self.content.subgraphs
            for op in graph.operators
            if self.code(op) in _RECURRENT
        }

    def read_metadata(self, key: bytes) -> bytes | None:
        """What the file has under a key beside its graph; None where it has nothing."""
        entry = next((each for each in self.content.metadata or () if each.name == key), None)
        return None if entry is None else bytes(bytearray(self.content.buffers[entry.buffer].data))

    def read_recorded(self) -> dict[tuple[str, int], list[str]]:
        """Return the loops of each `(recurrence, layer)` in the provenance, forward first."""
        named: dict[tuple[str, int], list[str]] = {}
        text = self.read_metadata(_KEY) or "{}"
        try:
            for record in json.loads(text).get("pieces", ()):
                loops = named.setdefault((str(record["node"]), int(record["layer"])), [])
                loops.insert(WAYS.index(record["direction"]), str(record["piece"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        return named

    def find_handed(self, graph: Any, index: int) -> Any:
        """Return the constant passed as an argument of a subgraph in every run, or None."""
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
    """Return True if a subgraph returns an argument unchanged in the argument's place."""
    return len(graph.outputs) <= argument or graph.outputs[argument] == graph.inputs[argument]


def rank(tensor: Any) -> int:
    """Return the number of a tensor's axes."""
    return 0 if tensor.shape is None else len(tensor.shape)


def makers_of(graph: Any) -> dict[int, Any]:
    """Map each tensor of a subgraph to the operator behind the tensor."""
    return {int(output): op for op in graph.operators for output in op.outputs}


def open_subgraph(model: TfliteModel, alone: Any) -> Any:
    """Open an interpreter of a subgraph, with all needed parts of a model."""
    return open_interpreter(model_content=_pack(model, alone))


def run_subgraph(interpreter: Any, given: Sequence[Array]) -> list[Array]:
    """Run an interpreter on given inputs, resized to fit, and return the outputs."""
    details = interpreter.get_input_details()
    for detail, value in zip(details, given, strict=True):
        if value.ndim:
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    interpreter.reset_all_variables()
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


def _pack(model: TfliteModel, alone: Any) -> bytes:
    """Serialize a model with `alone` as first subgraph, and all needed parts."""
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


_PRODUCTS: Final = frozenset({OPS.FULLY_CONNECTED, OPS.BATCH_MATMUL})
_INT: Final = schema.TensorType.INT32


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """Return every layer named through loops in the files of an artifact."""
    known = {recurrence.node: recurrence for recurrence in recurrences}
    cuts: list[Piece] = []
    reasons = dict.fromkeys(known, "the file does not say which of its loops computes it")
    for file in dict.fromkeys(
        part_file(artifact.path, part.name, ".tflite") for part in artifact.plan.all_parts
    ):
        model = read_model(file)
        loops = model.loops()
        for (node, layer), names in model.read_recorded().items():
            if node not in known or not all(name in loops for name in names):
                continue
            try:
                parts = [_part(model, loops[name], direction) for direction, name in enumerate(names)]
            except UncutError as cause:
                reasons[node] = str(cause)
                continue
            lengths = all(LENGTHS in part.inputs for part in parts)
            outputs = all(part.outputs for part in parts)
            steps, rows = parts[0].sizes
            ask = partial(_ask, parts)
            cuts.append(
                Piece(node, (layer,), names[0], ask, lengths=lengths, outputs=outputs, steps=steps, rows=rows)
            )
    return Pieces(tuple(cuts), reasons)


class UncutError(Exception):
    """A loop stands in an unsupported place."""


#: What the inputs of a cut are; of `SIZED` the sizes alone are read.
X, ROWS, SIZED, H, C, LENGTHS, START = "x", "rows", "sized", "h", "c", "lengths", "start"
#: What a fused op of the backward direction gives before its rows are turned round.
TURNED: Final = "turned"


@dataclass(frozen=True, slots=True)
class LoopCut:
    """A direction of a layer, cut out of the subgraph `graph` as the subgraph `alone`.

    `operators` are what it consists of, its loop as it was. `inputs` says what each input of `alone` is,
    whose outputs are `h`, of an LSTM `c`, and `y` where something reads that. By such names `enters` has the
    tensors of `graph` that enter, `gives` those that are given.
    """

    graph: Any
    alone: Any
    operators: Sequence[Any]
    inputs: Sequence[str]
    enters: Sequence[tuple[str, int]]
    gives: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _LayerModel:
    """A direction of a layer as a separate model, opened at the first call.

    `inputs` are as in `LoopCut`. `outputs`: whether `y` is read. `sizes` is the (time, batch) that the file
    fixes, None for each that it leaves open.
    """

    opened: Callable[[], Any]
    inputs: Sequence[str]
    outputs: bool
    sizes: tuple[int | None, int | None]
    backward: bool

    @property
    def rows(self) -> int | None:
        """The most rows of a call."""
        return self.sizes[1]

    def ask(self, x: Array, states: Sequence[Array], lengths: Array) -> list[Array]:
        """Return `[y, h]`, and `c` of an LSTM."""
        (asked, rows, width), (time, batch) = x.shape, self.sizes
        full = np.zeros((time or asked, batch or rows, width), np.float32)
        # The last step of a loop of fixed length: it starts there, and so takes a single one.
        start = full.shape[0] - asked
        at = 0 if self.backward else start
        full[at : at + asked, :rows] = x
        none = full.shape[1] - rows
        h, c = (np.pad(state, ((0, none), (0, 0))) for state in states)
        given: dict[str, Array] = {X: full, SIZED: full, ROWS: full.reshape(-1, width), H: h, C: c}
        given[START] = np.array(start, np.int32)
        given[LENGTHS] = np.pad(lengths, (0, none)) + np.int32(start)
        answers = run_subgraph(self.opened(), [given[name] for name in self.inputs])
        *last, y = answers if self.outputs else [*answers, answers[0][None]]
        last = [state[:rows] for state in last]
        # Of one step the output is the new state.
        return [y[:, :rows] if asked == full.shape[0] else last[0][None], *last]


@dataclass(frozen=True, slots=True)
class _FusedModel:
    """A fused op as a separate model, opened at the first call.

    `h` and `c` are the numbers of its variables, each of `rows` rows. Its names are those of `_LayerModel`: a
    backward direction has no `outputs` where nothing turns them round, and the last of them alone is read.
    """

    opened: Callable[[], Any]
    h: int
    c: int
    rows: int
    outputs: bool
    inputs: Sequence[str] = (X,)
    sizes: tuple[int | None, int | None] = (None, None)

    def ask(self, x: Array, states: Sequence[Array], _: Array) -> list[Array]:
        """Return `[y, h, c]`."""
        none = self.rows - x.shape[1]
        h, c = (np.pad(state, ((0, none), (0, 0))) for state in states)
        full = np.pad(x, ((0, 0), (0, none), (0, 0)))
        interpreter = self.opened()
        (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
        interpreter.resize_tensor_input(taken["index"], full.shape)
        interpreter.allocate_tensors()
        for index, value in ((taken["index"], full), (self.h, h), (self.c, c)):
            interpreter.set_tensor(index, np.ascontiguousarray(value, np.float32))
        interpreter.invoke()
        answers = (interpreter.get_tensor(index) for index in (given["index"], self.h, self.c))
        return [value[..., : x.shape[1], :] for value in answers]


def _ask(parts: Sequence[_LayerModel | _FusedModel], asked: PieceInputs) -> Answer:
    """Ask the directions of a layer in turn, and return the layer's answer."""
    x, h, c = (value.astype(np.float32) for value in (asked.x, asked.h, asked.c))
    answers = [
        _ask_in_portions(part, x, (h[direction], c[direction]), asked.lengths)
        for direction, part in enumerate(parts)
    ]
    y, *last = zip(*answers, strict=True)
    ends = [np.stack(values) for values in last]
    if not all(part.outputs for part in parts):
        y = tuple(h[None] for h in last[0])  # one direction has no more
    return np.concatenate(y, 2), ends[0], ends[1] if len(ends) > 1 else None


def _ask_in_portions(
    part: _LayerModel | _FusedModel, x: Array, states: Sequence[Array], lengths: Array
) -> list[Array]:
    """Ask a direction in portions of the accepted number of rows."""
    batch = part.rows or x.shape[1]
    answers = [
        part.ask(x[:, k : k + batch], [state[k : k + batch] for state in states], lengths[k : k + batch])
        for k in range(0, x.shape[1], batch)
    ]
    y, *last = zip(*answers, strict=True)
    return [np.concatenate(y, 1), *(np.concatenate(values) for values in last)]


def _part(model: TfliteModel, loop: tuple[Any, Any], direction: int) -> _LayerModel | _FusedModel:
    """Cut a loop or a fused op out as a model for asking. Raises UncutError."""
    graph, op = loop
    part = cut(model, graph, op, backward=direction > 0)
    opened, outputs = cache(partial(open_subgraph, model, part.alone)), "y" in part.gives
    if model.code(op) != OPS.WHILE:
        h, c = (int(op.inputs[operand]) for operand in _STATES)
        return _FusedModel(opened, h, c, int(graph.tensors[h].shape[0]), outputs)
    return _LayerModel(opened, part.inputs, outputs, _sizes(model, graph, op), direction > 0)


def cut(model: TfliteModel, graph: Any, loop: Any, *, backward: bool) -> LoopCut:
    """Cut a loop or a fused op with the neighbouring operators. Raises UncutError."""
    if model.code(loop) != OPS.WHILE:
        return _cut_fused(model, graph, loop, backward=backward)
    states, blocks, counters = _find_carried(model, loop)
    if not states or len(blocks) != 1:
        raise UncutError("in the file its loop does not carry a state and the outputs of its steps")
    if _has_constant_lengths(model, loop):
        raise UncutError("in the file the lengths of its rows are constants of its loop")
    after = _behind(model, graph, int(loop.outputs[blocks[0]]), backward=backward)
    is_fixed = _sizes(model, graph, loop)[0] is not None

    taken = _Taken(model, graph, makers_of(graph), [copy.copy(tensor) for tensor in graph.tensors])
    copied = copy.copy(loop)
    copied.inputs = [int(index) for index in loop.inputs]
    named = [*zip((H, C), states, strict=False), *((START, k) for k in counters if is_fixed)]
    for name, k in named:
        taken.tensors.append(copy.copy(graph.tensors[loop.outputs[k]]))  # of its shape, and no constant
        copied.inputs[k] = len(taken.tensors) - 1
        taken.inputs[copied.inputs[k]] = name
    for k in range(len(loop.inputs)):
        tensor = graph.tensors[loop.inputs[k]]
        if tensor.type == _INT and rank(tensor) == 1 and not model.is_constant(tensor):
            taken.inputs[int(loop.inputs[k])] = LENGTHS
    taken.take([copied, *after])
    order = {id(op): number for number, op in enumerate(graph.operators)}
    order[id(copied)] = order[id(loop)]
    alone = schema.SubGraphT()
    alone.name, alone.tensors = b"main", taken.tensors
    alone.operators = sorted(taken.operators, key=lambda op: order[id(op)])
    alone.inputs = [*taken.inputs]
    ends = [int(loop.outputs[k]) for k in states]
    gives = dict(zip((H, C), ends, strict=False))
    if after:
        gives["y"] = int(after[-1].outputs[0])
    alone.outputs = [*gives.values()]
    operators = [loop if op is copied else op for op in taken.operators]
    enters = [(name, index) for index, name in taken.inputs.items() if index < len(graph.tensors)]
    enters += [(name, int(loop.inputs[k])) for name, k in named if name != START]
    return LoopCut(graph, alone, operators, [*taken.inputs.values()], enters, gives)


#: The operands of a fused op that are its states, h and c.
_STATES: Final = (18, 19)


def _cut_fused(model: TfliteModel, graph: Any, op: Any, *, backward: bool) -> LoopCut:
    """Cut a fused op, with the reversals of a backward direction. Raises UncutError."""
    first, last = int(op.inputs[0]), int(op.outputs[0])
    operators, gives = [op], {"y": last}
    if backward:
        before = makers_of(graph).get(first)
        behind = [
            reader for reader in graph.operators if last in reader.inputs and _reverses(model, graph, reader)
        ]
        if before is None or not _reverses(model, graph, before):
            raise UncutError("in the file the input of its backward direction is not turned round")
        first, operators = int(before.inputs[0]), [before, op, *behind[:1]]
        gives = {TURNED: last} | ({"y": int(behind[0].outputs[0])} if behind else {})
    alone = schema.SubGraphT()
    alone.name, alone.tensors, alone.operators = b"main", [*graph.tensors], operators
    alone.inputs, alone.outputs = [first], [gives.get("y", last)]
    return LoopCut(graph, alone, operators, [X], [(X, first)], gives)


def _reverses(model: TfliteModel, graph: Any, op: Any) -> bool:
    """Return True if an operator reverses the first axis, the steps."""
    if model.code(op) != OPS.REVERSE_V2 or not model.is_constant(axis := graph.tensors[op.inputs[1]]):
        return False
    return [int(each) for each in model.constant(axis).ravel()] == [0]


def _find_carried(model: TfliteModel, loop: Any) -> tuple[list[int], list[int], list[int]]:
    """Return the positions of a loop's changed inputs: states, output blocks, and counters."""
    body = model.content.subgraphs[loop.builtinOptions.bodySubgraphIndex]
    carried: dict[tuple[bool, int], list[int]] = {}
    for k in range(len(loop.inputs)):
        if not is_handed_on(body, k):
            tensor = body.tensors[body.inputs[k]]
            carried.setdefault((tensor.type == _INT, rank(tensor)), []).append(k)
    states, blocks, counters = (carried.get(kind, []) for kind in ((False, 2), (False, 3), (True, 0)))
    return states, blocks, counters


def _has_constant_lengths(model: TfliteModel, loop: Any) -> bool:
    """Return True if a loop compares steps with a constant for each row."""
    compared = [
        model.content.subgraphs[k].tensors[op.inputs[1]]
        for k in model.find_reached(loop)
        for op in model.operators(k)
        if model.code(op) == OPS.LESS
    ]
    return any(rank(tensor) == 1 and model.is_constant(tensor) for tensor in compared)


@dataclass(slots=True)
class _Taken:
    """A subgraph under extraction.

    `operators` are those taken; `inputs` names, by tensor number, the tensors that become inputs.
    """

    model: TfliteModel
    graph: Any
    makers: dict[int, Any]
    tensors: list[Any]
    operators: list[Any] = field(default_factory=list)
    inputs: dict[int, str] = field(default_factory=dict)

    def take(self, operators: Sequence[Any]) -> None:
        """Take operators and inputs, up to products of the recurrence's inputs."""
        seen = {-1, *self.inputs, *(int(index) for op in operators for index in op.outputs)}
        self.operators += operators
        todo = [int(index) for op in operators for index in op.inputs]
        while todo:
            index = todo.pop()
            if index in seen or index in self.inputs or self.model.is_constant(self.tensors[index]):
                continue
            seen.add(index)
            op = self.makers.get(index)
            if op is None:
                self.tensors[index].buffer = self._find_handed(index).buffer
                continue
            self.operators += [op] if op not in self.operators else []
            first, code = int(op.inputs[0]), self.model.code(op)
            if code in _PRODUCTS:
                self.inputs[first] = X if rank(self.tensors[first]) == 3 else ROWS
            elif code == OPS.SHAPE:
                if rank(self.tensors[first]) != 3:
                    raise UncutError("in the file the sizes of its loop are those of another tensor")
                self.inputs.setdefault(first, SIZED)
            todo += [int(name) for name in op.inputs]

    def _find_handed(self, index: int) -> Any:
        constant = self.model.find_handed(self.graph, index) if index in self.graph.inputs else None
        if constant is None:
            name = self.tensors[index].name.decode()
            raise UncutError(f"in the file its loop reads {name}, which is no input of a recurrence")
        return constant


def _sizes(model: TfliteModel, graph: Any, loop: Any) -> tuple[int | None, int | None]:
    """Return the (time, batch) of a loop's inputs, None for each unknown size.

    Raises UncutError where the loop reads no inputs of its steps.
    """
    makers = makers_of(graph)
    carried = {k for places in _find_carried(model, loop) for k in places}
    for k, index in enumerate(loop.inputs):
        tensor, op = graph.tensors[index], makers.get(int(index))
        if k in carried or rank(tensor) != 3 or model.is_constant(tensor):
            continue
        if op is not None and model.code(op) == OPS.FILL:
            continue
        signature = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        time, batch = (int(size) if size > 0 else None for size in signature[:2])
        return time, batch
    raise UncutError("in the file its loop does not read the inputs of its steps")


def _behind(model: TfliteModel, graph: Any, rows: int, *, backward: bool) -> list[Any]:
    """Return the operators between a loop's rows and the outputs; empty if unused.

    The operators are a slice of the steps, and a reversal for the backward direction. Raises UncutError for
    others.
    """
    behind: list[Any] = []
    for code in (OPS.STRIDED_SLICE, *([OPS.REVERSE_V2] if backward else [])):
        readers = [op for op in graph.operators if rows in op.inputs]
        if not readers and not behind:
            return []
        if [model.code(op) for op in readers] != [code]:
            raise UncutError("in the file what its loop gives is not read as the outputs of a recurrence")
        behind += readers
        rows = int(readers[0].outputs[0])
    return behind
