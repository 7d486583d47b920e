"""A TensorFlow Lite file, checked before the interpreter maps it: its bytes, its numbers, its subgraphs.

The interpreter verifies no flatbuffer: a changed byte makes it read beside the file or crash. It does check
shapes, types and most numbers, but some only in builds for tests.
Source: tensorflow v2.21.0 compiler/mlir/lite/schema/schema.fbs, lite/core/interpreter_builder.cc,
lite/tools/verifier.cc, lite/string_util.h.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tensorflow.lite.python import schema_py_generated as schema

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.verification import flatbuffer
from cudnn_convert.verification.flatbuffer import FlatbufferError

_IDENTIFIER: Final = b"TFL3"
#: A tensor that an op does without.
_NONE: Final = -1
_UNIONS: Final = {
    "BuiltinOptions": schema.BuiltinOptions,
    "BuiltinOptions2": schema.BuiltinOptions2,
    "Details": schema.QuantizationDetails,
    "ArraySegments": schema.SparseIndexVector,
    "ArrayIndices": schema.SparseIndexVector,
}


def require(path: Path) -> None:
    """Raises ReadError where a file is no sound model."""
    data = path.read_bytes()
    try:
        if data[4:8] != _IDENTIFIER:
            raise FlatbufferError(f"the identifier {data[4:8]!r}")
        flatbuffer.require(data, schema.Model, _unions())
        _require_numbers(schema.Model.GetRootAs(data, 0), data)
    except FlatbufferError as cause:
        expected = "a sound TensorFlow Lite model"
        raise ReadError(path, "artifact", expected=expected, found=str(cause), advice=AGAIN) from cause


@cache
def _unions() -> Mapping[str, Mapping[int, type]]:
    return {
        name: {
            number: getattr(schema, kind)
            for kind, number in vars(numbers).items()
            if isinstance(number, int) and hasattr(schema, kind)
        }
        for name, numbers in _UNIONS.items()
    }


def _require_numbers(model: Any, data: bytes) -> None:
    """Every number that names a buffer, a tensor, an op or a subgraph names one that is there."""
    buffers = [model.Buffers(k) for k in range(model.BuffersLength())]
    for buffer in buffers:
        _require_within("a buffer", buffer.Offset(), buffer.Size(), data)
    if model.ExternalBuffersLength():
        raise FlatbufferError("values in other files")
    graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    if not graphs:
        raise FlatbufferError("no subgraph")
    for k in range(model.MetadataLength()):
        _require_one("a buffer of metadata", [model.Metadata(k).Buffer()], len(buffers))
    for k in range(model.SignatureDefsLength()):
        _require_signature(model.SignatureDefs(k), graphs)
    called: list[set[int]] = []
    for graph in graphs:
        count = graph.TensorsLength()
        _require_one("an input", _numbers(graph.InputsAsNumpy()), count)
        _require_one("an output", _numbers(graph.OutputsAsNumpy()), count)
        for k in range(count):
            tensor = graph.Tensors(k)
            _require_one("a buffer of a tensor", [tensor.Buffer()], len(buffers))
            if tensor.Type() == schema.TensorType.STRING:
                _require_texts(_content(buffers[tensor.Buffer()]))
        called.append(set())
        for k in range(graph.OperatorsLength()):
            operator = graph.Operators(k)
            _require_one("an op", [operator.OpcodeIndex()], model.OperatorCodesLength())
            _require_within(
                "options", operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize(), data
            )
            inputs = [found for found in _numbers(operator.InputsAsNumpy()) if found != _NONE]
            inner = [found for found in _numbers(operator.IntermediatesAsNumpy()) if found != _NONE]
            outputs = _numbers(operator.OutputsAsNumpy())
            _require_one("a tensor of an op", [*inputs, *inner, *outputs], count)
            subgraphs = [*_subgraphs(operator)]
            _require_one("a subgraph of an op", subgraphs, len(graphs))
            called[-1].update(subgraphs)
    _require_end(called)


def _numbers(found: Any) -> list[int]:
    """A vector of numbers; where there is none the reader gives 0."""
    return [] if isinstance(found, int) else [int(number) for number in found]


def _require_one(what: str, numbers: Iterable[int], count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise FlatbufferError(f"{what} of number {number} of {count}")


def _require_within(what: str, offset: int, size: int, data: bytes) -> None:
    """Of what stands behind the flatbuffer, in large files."""
    if offset + size > len(data):
        raise FlatbufferError(f"{what} of {size} bytes at {offset} of {len(data)}")


def _require_signature(signature: Any, graphs: Collection[Any]) -> None:
    if signature.SignatureKey() is None:
        raise FlatbufferError("a signature without a name")
    _require_one("a signature's subgraph", [signature.SubgraphIndex()], len(graphs))
    count = [*graphs][signature.SubgraphIndex()].TensorsLength()
    ends = [signature.Inputs(k) for k in range(signature.InputsLength())]
    ends += [signature.Outputs(k) for k in range(signature.OutputsLength())]
    if any(end.Name() is None for end in ends):
        raise FlatbufferError("an input or output of a signature without a name")
    _require_one("a tensor of a signature", [end.TensorIndex() for end in ends], count)


def _content(buffer: Any) -> bytes:
    found = buffer.DataAsNumpy()
    return b"" if isinstance(found, int) else bytes(found)


def _require_texts(content: bytes) -> None:
    """Texts as a tensor holds them: how many, where each begins, where the last ends, then all of them."""
    if not content:
        return
    try:
        (count,) = struct.unpack_from("<i", content)
        places = struct.unpack_from(f"<{max(count, 0) + 1}i", content, 4)
    except struct.error as cause:
        raise FlatbufferError("texts that end too soon") from cause
    if count < 0 or [*places] != sorted(places) or places[0] != 4 * (count + 2) or places[-1] > len(content):
        raise FlatbufferError("texts that do not lie in their buffer")


def _subgraphs(operator: Any) -> Iterator[int]:
    """The subgraphs that an op names in its options."""
    for name, number, options in (
        ("BuiltinOptions", operator.BuiltinOptionsType(), operator.BuiltinOptions()),
        ("BuiltinOptions2", operator.BuiltinOptions2Type(), operator.BuiltinOptions2()),
    ):
        if options is not None and (reader := _unions()[name].get(number)) is not None:
            found: Any = reader()
            found.Init(options.Bytes, options.Pos)
            for field in vars(reader):
                if field.endswith("SubgraphIndex"):
                    yield getattr(found, field)()


def _require_end(called: list[set[int]]) -> None:
    """No subgraph leads back to itself: the interpreter would follow it until its stack ends."""
    left = {number: set(names) for number, names in enumerate(called)}
    while ready := {number for number, names in left.items() if not names & left.keys()}:
        for number in ready:
            del left[number]
    if left:
        raise FlatbufferError(f"subgraphs that call themselves: {sorted(left)}")
