"""An ONNX file, its provenance in the model's metadata; past 2 GiB the weights lie in a file beside it.

Sources: onnx v1.18 onnx/onnx.proto (metadata_props, external_data), docs/ExternalData.md; protobuf's rule
that the bytes of two messages, one after the other, are their merge.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO, Final

import onnx

KEY: Final = "cudnn_convert"
#: A proto may not reach 2 GiB; the rest is for nodes and names.
_LIMIT: Final = 2**31 - 2**24
_PAGE: Final = 4096  # runtimes map external tensors into memory, which wants them to start on a page
_SMALL: Final = 1024


def write(model: Any, path: Path, *, provenance: str) -> None:
    """Writes a ModelProto, which is not changed, to `path`; the same model gives the same bytes.

    Where it is too large for one file, the large constants of its main graph go to `<path>.data`. Holds one
    serialised copy of the model, or of its largest constant. OSErrors are the caller's.
    """
    if sum(_size(tensor) for tensor in model.graph.initializer) > _LIMIT:
        with path.with_name(f"{path.name}.data").open("wb") as data:
            model = _split(model, data)
    note = onnx.ModelProto()
    note.metadata_props.add(key=KEY, value=provenance)
    with path.open("wb") as file:
        file.write(model.SerializeToString(deterministic=True))
        file.write(note.SerializeToString(deterministic=True))


def _size(tensor: Any) -> int:
    width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(width * math.prod(tensor.dims))


def _split(model: Any, data: BinaryIO) -> Any:
    """The model with its large constants in `data`; they are never copied into the new proto."""
    made = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if field.is_repeated:
            getattr(made, field.name).extend(value)
        else:
            setattr(made, field.name, value)
    graph = model.graph
    made.graph.name = graph.name
    for name in ("node", "input", "output", "value_info"):
        getattr(made.graph, name).extend(getattr(graph, name))
    for tensor in graph.initializer:
        if _size(tensor) > _SMALL and tensor.HasField("raw_data"):
            made.graph.initializer.append(_external(tensor, data))
        else:
            made.graph.initializer.append(tensor)
    return made


def _external(tensor: Any, data: BinaryIO) -> Any:
    data.write(b"\0" * (-data.tell() % _PAGE))
    place = {"location": Path(data.name).name, "offset": data.tell(), "length": data.write(tensor.raw_data)}
    made = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in place.items():
        made.external_data.add(key=key, value=str(value))
    return made
