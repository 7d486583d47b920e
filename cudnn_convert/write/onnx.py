"""An ONNX file, its provenance in the model's metadata; past 2 GiB the weights lie in a file beside it.

The file is written field by field: a proto that holds the weights, and its bytes, would be two copies.
Sources: onnx v1.18 onnx/onnx.proto (the numbers of fields, external_data), docs/ExternalData.md; protobuf's
"Encoding" (a message in a message is its tag, its length and its bytes; fields may come in any order, and
repeated).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import onnx

from cudnn_convert import progress
from cudnn_convert.model import Parts

#: The length of a constant as it lies in the file, and its bytes.
_Encoded = tuple[int, Iterable[Any]]
KEY: Final = "cudnn_convert"
#: A proto may not reach 2 GiB; the rest is for nodes and names.
_LIMIT: Final = 2**31 - 2**24
_PAGE: Final = 4096  # runtimes map external tensors into memory, which wants them to start on a page
_SMALL: Final = 1024
#: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW = (number << 3 | 2 for number in (7, 5, 9))


def write(model: Any, weights: Mapping[str, Parts], path: Path, *, provenance: str) -> None:
    """Writes a ModelProto, which is not changed, to `path`; the same model gives the same bytes.

    `weights` are the values of those constants of its main graph that have a shape alone, by name. What is
    too large for one file has its large constants in `<path>.data`. Holds one part, or one other constant, at
    a time. OSErrors are the caller's.
    """
    rest, graph = _without_constants(model)
    rest.metadata_props.add(key=KEY, value=provenance)
    constants = model.graph.initializer
    whole = sum(_size(tensor) for tensor in constants)
    if whole > _LIMIT:
        with path.with_name(f"{path.name}.data").open("wb") as data:
            encoded = [_beside(tensor, weights.get(tensor.name), data, whole) for tensor in constants]
    else:
        encoded = [_inside(tensor, weights.get(tensor.name)) for tensor in constants]
    nodes = graph.SerializeToString(deterministic=True)
    heads = [bytes([_INITIALIZER]) + _varint(length) for length, _ in encoded]
    total = len(nodes) + sum(map(len, heads)) + sum(length for length, _ in encoded)
    with path.open("wb") as file:
        file.write(rest.SerializeToString(deterministic=True))
        file.write(bytes([_GRAPH]) + _varint(total) + nodes)
        end = file.tell() - len(nodes) + total
        for head, (_, pieces) in zip(heads, encoded, strict=True):
            _put(file, [head], end)
            _put(file, pieces, end)


def _put(file: BinaryIO, pieces: Iterable[Any], total: int) -> None:
    """Writes them, and tells how far the file is; it is `total` bytes long at its end."""
    for piece in pieces:
        file.write(piece)
        progress.at("writing", file.tell(), total)


def _without_constants(model: Any) -> tuple[Any, Any]:
    """`(the model without its graph, the graph without its constants)`, copies both."""
    rest, graph = onnx.ModelProto(), onnx.GraphProto()
    for made, source, left_out in ((rest, model, "graph"), (graph, model.graph, "initializer")):
        for field, value in source.ListFields():
            if field.name == left_out:
                continue
            if field.is_repeated:
                getattr(made, field.name).extend(value)
            else:
                setattr(made, field.name, value)
    return rest, graph


def _size(tensor: Any) -> int:
    width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(width * math.prod(tensor.dims))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _inside(tensor: Any, weights: Parts | None) -> _Encoded:
    """A constant with its values."""
    if weights is None:
        return tensor.ByteSize(), (tensor.SerializeToString(deterministic=True) for _ in range(1))
    size = _size(tensor)
    head = tensor.SerializeToString(deterministic=True) + bytes([_RAW]) + _varint(size)

    def pieces() -> Iterator[Any]:
        yield head
        yield from (part.data for part in weights())

    return len(head) + size, pieces()


def _beside(tensor: Any, weights: Parts | None, data: BinaryIO, total: int) -> _Encoded:
    """A constant whose values, if they are many, now lie in `data`, which holds `total` bytes in the end."""
    if _size(tensor) <= _SMALL or not (weights or tensor.HasField("raw_data")):
        return _inside(tensor, weights)
    data.write(b"\0" * (-data.tell() % _PAGE))
    start = data.tell()
    _put(data, [tensor.raw_data] if weights is None else (part.data for part in weights()), total)
    place = {"location": Path(data.name).name, "offset": start, "length": data.tell() - start}
    made = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in place.items():
        made.external_data.add(key=key, value=str(value))
    return _inside(made, None)
