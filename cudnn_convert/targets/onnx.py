"""Writes an ONNX file, with weights past 2 GiB in a second file.

The file is written field by field: a proto with the weights, and its bytes, would be two copies in memory.

Sources: onnx v1.18 onnx/onnx.proto (the numbers of fields, external_data), docs/ExternalData.md; protobuf's
"Encoding" (a message in a message is its tag, its length and its bytes; fields may come in any order, and
repeated).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import onnx

from cudnn_convert import context
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import part_file
from cudnn_convert.lower.onnx import finish, reduced_precision
from cudnn_convert.model import Parts
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.report.provenance import with_pieces

#: The encoded length of a constant, and its bytes in pieces.
_Encoded = tuple[int, Iterable[Any]]
KEY: Final = "cudnn_convert"
#: A proto may not reach 2 GiB; the rest is for nodes and names.
_LIMIT: Final = 2**31 - 2**24
_PAGE: Final = 4096  # runtimes memory-map external tensors, which must start on a page
_SMALL: Final = 1024
#: Bytes written at a time: for larger writes Linux' page cache uses larger pages, which are slow to allocate
#: on a virtual machine.
_CHUNK: Final = 1 << 16
#: Parts that are prefetched while one is written: about as many as are written while a layer is read.
_AHEAD: Final = 64
#: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW = (number << 3 | 2 for number in (7, 5, 9))


def prepare(plan: Plan, options: Options) -> Plan:
    """Return the plan: the lowering refuses constructs missing from ONNX."""
    return plan


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a file for each part of a plan.

    Returns the notes of quantization. Raises UsageError where `--quantize` finds no LSTM.
    """
    notes: list[str] = []
    count, parts = 0, dict[str, finish.Finished]()
    for part, finished in zip(plan.all_parts, _models(plan, options), strict=True):
        if options.weights_dtype == "float16":
            finished = reduced_precision.to_float16(finished)  # noqa: PLW2901 - the same model
        file = part_file(path, part.name)
        if options.quantize:
            quantized = reduced_precision.to_int8(finished)
            finished, count = quantized.model, count + quantized.nodes  # noqa: PLW2901
            notes += [f"{file.name}: {line}" for line in reduced_precision.notes(quantized)]
        text = with_pieces(provenance, finished.pieces)
        write(finished.model, finished.weights, file, provenance=text)
        parts |= {part.name: finished} if plan.decoder else {}
    if plan.decoder:
        from cudnn_convert.lower.onnx import search

        searching = search.lower_search(
            plan.decoder, parts.pop(plan.parts[0].name), parts, opset=options.opset
        )
        beside = part_file(path, plan.decoder.part.name)
        write(searching.model, searching.weights, beside, provenance=provenance)
    if options.quantize and not count:
        expected = "an LSTM of float32 whose weights are constants"
        raise UsageError(f"--quantize: expected {expected}, found none; leave out --quantize and --max-error")
    return tuple(notes)


def _models(plan: Plan, options: Options) -> Iterator[finish.Finished]:
    """Yield the model of each part.

    Single recurrences need neither TensorFlow nor tf2onnx.
    """
    if isinstance(plan, RecurrencesPlan):
        yield from (finish.lower(single, opset=options.opset) for single in plan.singles)
        return
    from cudnn_convert.graph import session
    from cudnn_convert.lower.onnx import convert

    ends = [*plan.signature.outputs.values()]
    ends += [name for part in plan.all_parts for name in part.signature.outputs.values()]
    ends = [*dict.fromkeys(ends)]
    detached = session.without_parameters(plan.graph, plan.recurrences, ends)
    graph = session.freeze_variables(detached, ends, variables=plan.model.variables)
    for part in plan.all_parts:
        finished = convert.lower(
            graph,
            part.signature,
            plan.recurrences,
            opset=options.opset,
            user=plan.find_user_graph(part.signature),
        )
        finish.name_axes(finished.model, plan.axes)
        yield finished


def write(model: Any, weights: Mapping[str, Parts], path: Path, *, provenance: str) -> None:
    """Write a ModelProto to `path` with deterministic bytes.

    The proto is not changed. `weights` has, by name, the values of the main graph's constants that only have
    a shape. A model too large for one file has its large constants in `<path>.data`. Only a few parts, or one
    other constant, are in memory at a time. Raises OSError.
    """
    rest, graph = _without_constants(model)
    rest.metadata_props.add(key=KEY, value=provenance)
    constants = model.graph.initializer
    total = sum(map(_size, constants))
    beside = _beside(constants, weights, Path(f"{path}.data"), total) if total > _LIMIT else {}
    encoded = [
        beside.get(constant.name) or _inside(constant, weights.get(constant.name)) for constant in constants
    ]
    nodes = graph.SerializeToString(deterministic=True)
    heads = [bytes([_INITIALIZER]) + _varint(length) for length, _ in encoded]
    length = len(nodes) + sum(map(len, heads)) + sum(size for size, _ in encoded)
    with path.open("wb") as file:
        file.write(rest.SerializeToString(deterministic=True))
        file.write(bytes([_GRAPH]) + _varint(length) + nodes)
        end = file.tell() - len(nodes) + length
        for head, (_, pieces) in zip(heads, encoded, strict=True):
            for piece in chain([head], pieces):
                _put(file, piece)
                context.report_progress("writing", file.tell(), end)


def _put(file: BinaryIO, piece: Any) -> None:
    """Write a bytes-like object in chunks."""
    content = memoryview(piece).cast("B")
    for start in range(0, len(content), _CHUNK):
        file.write(content[start : start + _CHUNK])


def _without_constants(model: Any) -> tuple[Any, Any]:
    """Copy the model except for the graph, and the graph except for the constants."""
    rest, graph = onnx.ModelProto(), onnx.GraphProto()
    for target, source, left_out in ((rest, model, "graph"), (graph, model.graph, "initializer")):
        for field, value in source.ListFields():
            if field.name == left_out:
                continue
            if isinstance(value, MutableSequence):
                getattr(target, field.name).extend(value)
            else:
                setattr(target, field.name, value)
    return rest, graph


def _size(tensor: Any) -> int:
    width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(width * math.prod(tensor.dims))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _inside(tensor: Any, weights: Parts | None) -> _Encoded:
    """Encode a constant with the values."""
    if weights is None:
        return tensor.ByteSize(), (tensor.SerializeToString(deterministic=True) for _ in range(1))
    size = _size(tensor)
    head = tensor.SerializeToString(deterministic=True) + bytes([_RAW]) + _varint(size)
    return len(head) + size, chain([head], (part.data for part in weights()))


def _beside(
    constants: Iterable[Any], weights: Mapping[str, Parts], path: Path, total: int
) -> dict[str, _Encoded]:
    """Write large constants to `path`; return encoded references by name.

    `total` is the size of all constants, for progress.
    """
    from cudnn_convert.weights.buffers import prefetch  # few models need threads, which take time to import

    moved = [
        constant
        for constant in constants
        if _size(constant) > _SMALL and (constant.name in weights or constant.raw_data)
    ]
    starts: dict[str, int] = {}
    with path.open("wb") as data:
        for name, piece in prefetch(_pieces(moved, weights), _AHEAD):
            if name not in starts:
                data.write(b"\0" * (-data.tell() % _PAGE))
                starts[name] = data.tell()
            _put(data, piece)
            context.report_progress("writing", data.tell(), total)
    return {
        constant.name: _inside(_place_outside(constant, path.name, starts[constant.name]), None)
        for constant in moved
    }


def _pieces(constants: Iterable[Any], weights: Mapping[str, Parts]) -> Iterator[tuple[str, Any]]:
    """Yield the name and bytes of each part of the constants."""
    for constant in constants:
        if constant.name in weights:
            yield from ((constant.name, part.data) for part in weights[constant.name]())
        else:
            yield constant.name, constant.raw_data


def _place_outside(tensor: Any, location: str, start: int) -> Any:
    """Return a constant with external values, in a file beside the model's."""
    tensor_proto = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in {"location": location, "offset": start, "length": _size(tensor)}.items():
        tensor_proto.external_data.add(key=key, value=str(value))
    return tensor_proto
