"""Opens an ONNX file in ONNX Runtime on the CPU, named by the signature's keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import ReadError
from cudnn_convert.formats import part_file
from cudnn_convert.model import SERVING, Array, Part, Signature

#: A location by which ONNX Runtime reads its own memory, at an address that the file gives.
_ADDRESS: Final = "*/_ORT_MEM_ADDR_/*"


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in the metadata."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as cause:
        raise ReadError(path, "file", expected="an ONNX model", found="a file that is not one") from cause
    text = next((entry.value for entry in model.metadata_props if entry.key == "cudnn_convert"), None)
    return None if text is None else runners.parse_provenance(path, text)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise ReadError if weights lie outside the file's folder, or in memory.

    ONNX Runtime checks all else itself, and since 1.24 the folder too; Python 3.10 has 1.23 at most.
    Source: onnxruntime pull requests 26776 and 28709; core/framework/tensorprotoutils.h
    kTensorProtoMemoryAddressTag.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if trust:
        return
    for _, file in runners.files_of(path, ".onnx"):
        try:
            model = onnx.load(str(file), load_external_data=False)
        except DecodeError:  # the runtime will say so
            continue
        folder = file.parent.resolve()
        for location in _external_locations(model):
            if location == _ADDRESS or not (folder / location).resolve().is_relative_to(folder):
                expected, actual = f"weights in the folder of {file.name}", f"external data at {location}"
                raise ReadError(path, "artifact", expected=expected, found=actual)


def _external_locations(model: Any) -> set[str]:
    """Return the locations of a model's external tensors, as spelled in the model."""
    from onnx import TensorProto

    graph = model.graph
    tensors = [*_tensors(graph.node, graph.initializer, graph.sparse_initializer)]
    for function in model.functions:
        tensors += _tensors(function.node)
    external = [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
    return {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}


def _tensors(
    nodes: Iterable[Any], initializers: Iterable[Any] = (), sparse: Iterable[Any] = ()
) -> Iterator[Any]:
    """Yield all tensors of a graph or function, including nested graphs and sparse parts."""
    yield from initializers
    for stored in sparse:
        yield from (stored.values, stored.indices)
    for node in nodes:
        for attribute in node.attribute:
            dense = (attribute.t, *attribute.tensors)
            yield from _tensors((), dense, (attribute.sparse_tensor, *attribute.sparse_tensors))
        for graph in subgraphs_of(node):
            yield from _tensors(graph.node, graph.initializer, graph.sparse_initializer)


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open the file of each part."""
    return [as_runner(open_session(str(part_file(path, part.name))), path, part) for part in parts]


def open_session(model: str | bytes, *, trace: Path | None = None, optimize: bool = True) -> Any:
    """Open an ONNX Runtime session for a file, or for a file's bytes.

    A `trace` begins the name of its profile. Without `optimize` each node runs as it is written, in one
    thread.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if trace is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(trace)
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
    elif (count := context.threads()) is not None:
        options.intra_op_num_threads = count
    else:
        # Its threads would otherwise take a processor while they wait for the next of a few calls.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def as_runner(session: Any, path: Path, part: Part) -> runners.Runner:
    """Return a session's runner by the keys of a part's signature."""
    inputs = runners.pair_inputs(path, part.signature.inputs, [node.name for node in session.get_inputs()])
    names = [output.name for output in session.get_outputs()]
    keys = runners.pair_outputs(part.signature.outputs, names)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values: list[Any] = session.run(names, {inputs[key]: as_fed(value) for key, value in feeds.items()})
        return {keys[name]: _bytes(value) for name, value in zip(names, values, strict=True)}

    return run


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """List an interface for each file, by the graph's input and output names."""
    files = runners.files_of(path, ".onnx")
    return [_interface(file, file.stem if path.is_dir() else SERVING) for _, file in files]


def _interface(file: Path, name: str) -> runners.Interface:
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    specs = {end.name: _spec(end.type.tensor_type) for end in graph.input if end.name not in weights}
    signature = Signature.of_names(specs, [end.name for end in graph.output])
    return runners.Interface(Part(name, signature), specs)


def _spec(kind: Any) -> runners.TensorSpec:
    from onnx.helper import tensor_dtype_to_np_dtype

    dims = (dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
    shape = tuple(dims) if kind.HasField("shape") else None
    return runners.TensorSpec(tensor_dtype_to_np_dtype(kind.elem_type), shape)


def as_fed(value: Array) -> Array:
    """Return an array with strings as text, and bfloat16 as float32.

    Of bytes ONNX Runtime would take what Python prints. It knows no bfloat16 of NumPy, and artifacts have
    float32 in its place.
    """
    if value.dtype.name == "bfloat16":
        return value.astype(np.float32)
    if value.dtype.kind not in "OSU":
        return value
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in value.ravel()
    ]
    return np.array(texts, object).reshape(value.shape)


def _bytes(value: Any) -> Array:
    """Return an array with strings as bytes, like TensorFlow; ONNX Runtime gives text."""
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return np.asarray(value)
    encoded = np.empty(value.shape, object)
    encoded[...] = np.frompyfunc(lambda text: text.encode() if isinstance(text, str) else text, 1, 1)(value)
    return encoded


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the constants of the graphs, nested graphs after the surrounding graph."""
    import onnx

    for prefix, file in runners.files_of(path, ".onnx"):
        for name, value in _constants(onnx.load(str(file)).graph):
            yield f"{prefix}{name}", value


def _constants(graph: Any) -> Iterator[tuple[str, Array]]:
    from onnx.numpy_helper import to_array

    for tensor in graph.initializer:
        yield tensor.name, to_array(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], to_array(attribute.t)
        for nested in subgraphs_of(node):
            yield from _constants(nested)


def subgraphs_of(node: Any) -> Iterator[Any]:
    """Yield the branches of a node, or the body."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else []
        yield from attribute.graphs
