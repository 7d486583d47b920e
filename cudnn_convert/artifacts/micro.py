"""Runs a TensorFlow Lite file in TensorFlow Lite Micro's interpreter, and measures the memory.

The interpreter is that of the package tflite-micro. It takes a fixed memory, the arena, verifies nothing, and
ends its process where the arena is too small or a kernel meets what it does not expect. So it runs in a
process of its own. What it prints stays there; after an error the lines are the error's text.

It runs the first subgraph, and knows inputs and outputs by their numbers alone: here they are found by the
keys of a signature. The variable tensors of fused LSTMs keep their values from call to call, so every call
begins with a reset. The memory of inputs is used again for later tensors, so every call sets all of them.
Source: tflite-micro 90b983c python/tflite_micro/runtime.py (Interpreter), interpreter_wrapper.cc,
tensorflow/lite/micro/micro_interpreter_graph.cc (ResetVariableTensors).
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.apart import Apart
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.micro_operators import METHODS
from cudnn_convert.artifacts.tflite import check_model, operator_kind, pack_model, schema, unpack_model
from cudnn_convert.model import SERVING, Array, Part
from cudnn_convert.report.values import MicroReport
from cudnn_convert.text import first_line

#: The seconds that one call may take.
_SECONDS: Final = 300
#: Arenas are measured in these bytes, to which Micro aligns what lies in them.
#: Source: tflite-micro 90b983c tensorflow/lite/micro/micro_arena_constants.h (MicroArenaBufferAlignment).
_ALIGNMENT: Final = 16
#: The types of inputs and outputs, by their numbers in TensorFlow Lite's schema.
_TYPES: Final[Mapping[int, np.dtype[Any]]] = {
    number: np.dtype(name.lower())
    for name, number in vars(schema.TensorType).items()
    if name in "FLOAT16 FLOAT32 FLOAT64 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 BOOL".split()
}
#: The names of operators, by their numbers in TensorFlow Lite's schema.
_OPERATORS: Final = {number: name for name, number in vars(schema.BuiltinOperator).items() if name.isupper()}


class MicroError(ValueError):
    """An error for a file refused by TensorFlow Lite Micro."""


def is_available() -> bool:
    """Return True if the package tflite-micro is installed, and processes fork; imports nothing."""
    return hasattr(os, "fork") and find_spec("tflite_micro") is not None


def open_part(path: Path, part: Part) -> runners.Runner:
    """Return a runner of a part's file.

    Raises ReadError where the bytes are unsound, MicroError with the interpreter's reason where it refuses
    the file, and UsageError where the keys of the part are not the file's.
    """
    check_model(path)
    content = path.read_bytes()
    model = unpack_model(content)
    if missing := _list_missing(_list_operators(model)):
        raise MicroError(f"operators that TensorFlow Lite Micro has no kernels for: {', '.join(missing)}")
    takes, gives = _find_ends(path, model, part)
    content = strip(content)
    inputs = runners.pair_inputs(path, part.signature.inputs, takes)
    keys = runners.pair_outputs(part.signature.outputs, gives)
    process = Apart(lambda: _open(content, _ample(content, model)), _SECONDS)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        fed = {takes[name].number: feeds[key].astype(takes[name].dtype) for key, name in inputs.items()}
        answers = _ask(process, fed, [end.number for end in gives.values()])
        return {keys[name]: answer for name, answer in zip(gives, answers, strict=True)}

    _ask(process, None, [])
    return run


def measure(path: Path) -> MicroReport:
    """Return the needs of a file, with the smallest arena if the package is installed.

    Raises ReadError where the bytes are unsound, and MicroError with the interpreter's reason where it
    refuses a file of which it has all operators.
    """
    check_model(path)
    content = path.read_bytes()
    model = unpack_model(content)
    operators = _list_operators(model)
    missing = _list_missing(operators)
    stripped = strip(content)
    variables = [tensor for graph in model.subgraphs for tensor in graph.tensors if tensor.isVariable]
    return MicroReport(
        bytes=len(content),
        arena=_measure_arena(stripped, model) if is_available() and not missing else None,
        operators=operators,
        missing=missing,
        variables=sum(map(_count_bytes, variables)),
        flash=len(stripped),
    )


def strip(content: bytes) -> bytes:
    """Return the bytes of a model stripped of names, signatures and metadata.

    Micro reads none of them. Numbers of tensors stay. Source: tflite-micro 90b983c
    tensorflow/lite/micro/micro_interpreter.cc, micro_allocator.cc (of the metadata it reads a plan of memory
    alone, which no file of this tool has).
    """
    model = unpack_model(content)
    for entry in model.metadata or ():
        model.buffers[entry.buffer].data = None
    model.metadata, model.signatureDefs = [], []
    for graph in model.subgraphs:
        graph.name = None
        for tensor in graph.tensors:
            tensor.name = None
    return bytes(pack_model(model))


def _list_operators(model: Any) -> tuple[str, ...]:
    """Return the names of a file's operators, of custom operators too."""
    return tuple(sorted({_name(model, op) for graph in model.subgraphs for op in graph.operators or ()}))


def _name(model: Any, op: Any) -> str:
    custom = (model.operatorCodes[op.opcodeIndex].customCode or b"").decode(errors="replace")
    number = operator_kind(model, op)
    return custom or _OPERATORS.get(number, f"operator {number}")


def _list_missing(operators: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in operators if name not in METHODS)


def _count_bytes(tensor: Any) -> int:
    width = _TYPES[tensor.type].itemsize if tensor.type in _TYPES else 1
    return prod(_sizes(tensor)) * width


def _sizes(tensor: Any) -> tuple[int, ...]:
    return () if tensor.shape is None else tuple(map(int, tensor.shape))


@dataclass(frozen=True, slots=True)
class _End:
    """The number and type of an input or output."""

    number: int
    dtype: np.dtype[Any]


def _find_ends(path: Path, model: Any, part: Part) -> tuple[dict[str, _End], dict[str, _End]]:
    """Return inputs and outputs by the keys of the part's signature.

    A file without signatures has them by the names of tensors.
    """
    graph = model.subgraphs[0]
    numbers = ([*graph.inputs], [*graph.outputs])
    signatures = {each.signatureKey.decode(): each for each in model.signatureDefs or ()}
    named = [{graph.tensors[k].name.decode(): k for k in side} for side in numbers]
    if signatures:
        name = part.name if part.name in signatures else SERVING
        chosen = signatures[runners.choose_signature(path, name, signatures)]
        sides = (chosen.inputs or (), chosen.outputs or ())
        named = [{end.name.decode(): end.tensorIndex for end in side} for side in sides]
        if chosen.subgraphIndex or any(
            k not in side for ends, side in zip(named, numbers, strict=True) for k in ends.values()
        ):
            raise MicroError("a signature of other inputs and outputs than those of the first subgraph")
    takes, gives = (
        {name: _End(side.index(k), _dtype(graph.tensors[k])) for name, k in ends.items()}
        for ends, side in zip(named, numbers, strict=True)
    )
    return takes, gives


def _dtype(tensor: Any) -> np.dtype[Any]:
    if tensor.type not in _TYPES:
        raise MicroError(f"an input or output of type {tensor.type} in TensorFlow Lite's schema")
    return _TYPES[tensor.type]


def _ample(content: bytes, model: Any) -> int:
    """Return the bytes of an arena with more than enough room for a file.

    All tensors lie beside each other in it, with several times as much for what kernels keep.
    """
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    values = sum(_count_bytes(tensor) for tensor in tensors if not _is_constant(model, tensor))
    nodes = sum(len(graph.operators or ()) for graph in model.subgraphs)
    return 8 * values + 2 * len(content) + 1024 * (len(tensors) + nodes) + (1 << 16)


def _is_constant(model: Any, tensor: Any) -> bool:
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def _measure_arena(content: bytes, model: Any) -> int:
    graph = model.subgraphs[0]
    zeros = {k: _zeros(graph.tensors[number]) for k, number in enumerate(graph.inputs)}
    arena: int = _ask(Apart(lambda: _find_arena, _SECONDS), content, zeros, _ample(content, model))
    return arena


def _find_arena(content: bytes, zeros: Mapping[int, Array], ample: int) -> int:
    """Return the bytes of the smallest arena for a file.

    It runs in copies of a process that has the interpreter: those in too small an arena mostly crash.
    """
    _load()
    process = Apart(lambda: lambda arena: _open(content, arena)(zeros, []), _SECONDS)
    low, high = 0, -(-ample // _ALIGNMENT)
    _ask(process, high * _ALIGNMENT)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _ask(process, middle * _ALIGNMENT)
            high = middle
        except MicroError:
            low = middle
    return high * _ALIGNMENT


def _zeros(tensor: Any) -> Array:
    return np.zeros(_sizes(tensor), _dtype(tensor))


def _ask(process: Apart, *arguments: Any) -> Any:
    """Return the answer of a separate process; every error becomes a MicroError."""
    try:
        return process.run(*arguments)
    except RuntimeError as cause:
        raise MicroError(str(cause)) from cause


def _open(content: bytes, arena: int) -> Callable[[Mapping[int, Array] | None, Sequence[int]], list[Array]]:
    """Return a function from inputs by number to chosen outputs, of an open file.

    Without inputs nothing is run.
    """
    with _hear():
        interpreter = _load().Interpreter.from_bytes(content, arena_size=arena)

    def run(fed: Mapping[int, Array] | None, numbers: Sequence[int]) -> list[Array]:
        if fed is None:
            return []
        with _hear():
            interpreter.reset()
            for number, value in fed.items():
                interpreter.set_input(value, number)
            interpreter.invoke()
            return [interpreter.get_output(number) for number in numbers]

    return run


def _load() -> Any:
    from tflite_micro.python.tflite_micro import runtime

    return runtime


@contextmanager
def _hear() -> Iterator[None]:
    """Turn printed lines into the text of an exception."""
    streams = (1, 2)  # the system's numbers of stdout and stderr, which native code knows alone
    with tempfile.TemporaryFile() as printed, redirect_stdout(StringIO()):
        kept = [os.dup(stream) for stream in streams]
        for stream in streams:
            os.dup2(printed.fileno(), stream)
        try:
            yield
        except Exception as cause:
            printed.seek(0)
            lines = [line.strip(" .") for line in printed.read().decode(errors="replace").splitlines()]
            raise MicroError("; ".join(filter(None, lines)) or first_line(cause)) from cause
        finally:
            for stream, copy in zip(streams, kept, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
