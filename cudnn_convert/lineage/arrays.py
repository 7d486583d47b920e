"""The constants and variables of an artifact, whoever made it: name -> array, floats of rank 1 and more.

What a format needs is imported where it is read: weights become ONNX without TensorFlow, and are proven so.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert import weights
from cudnn_convert.errors import CudnnConvertError, ReadError, first_line
from cudnn_convert.model import Array, is_float

_Named = Iterator[tuple[str, Array]]


def read(form: str, artifact: Path) -> dict[str, Array]:
    """The arrays of an artifact of format `form`; nested graphs and functions come after what is around them.

    Reads all of them into memory. Raises ReadError.
    """
    found: dict[str, Array] = {}
    try:
        for name, value in _READERS[form](artifact):
            if is_float(value.dtype) and value.ndim and value.size:
                found.setdefault(name, value)
    except CudnnConvertError:
        raise
    except Exception as cause:  # each format's library has exceptions of its own
        expected = f"weights as {form} has them"
        raise ReadError(artifact, "artifact", expected=expected, found=first_line(cause)) from cause
    return found


def of_graph(graph: Any) -> _Named:
    """The constants of a GraphDef and of its functions."""
    import tensorflow as tf

    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    for node in nodes:
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            yield node.name, tf.make_ndarray(node.attr["value"].tensor)


def _saved_model(path: Path) -> _Named:
    from tensorflow.core.protobuf import saved_model_pb2

    if (path / "variables" / "variables.index").is_file():
        yield from _checkpoint(path / "variables" / "variables")
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for meta in saved.meta_graphs:
        yield from of_graph(meta.graph_def)


def _checkpoint(path: Path) -> _Named:
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2

    reader = tf.train.load_checkpoint(str(path))
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype.is_floating:
            yield name, np.asarray(reader.get_tensor(name))
    meta = Path(f"{path}.meta")
    if meta.is_file():
        yield from of_graph(meta_graph_pb2.MetaGraphDef.FromString(meta.read_bytes()).graph_def)


def _frozen(path: Path) -> _Named:
    from tensorflow.core.framework import graph_pb2

    yield from of_graph(graph_pb2.GraphDef.FromString(path.read_bytes()))


def _onnx(path: Path) -> _Named:
    import onnx

    def of(graph: Any) -> _Named:
        for tensor in graph.initializer:
            yield tensor.name, onnx.numpy_helper.to_array(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    yield node.output[0], onnx.numpy_helper.to_array(attribute.t)
                for nested in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                    yield from of(nested)

    for file in _files(path, ".onnx"):
        for name, value in of(onnx.load(str(file)).graph):
            yield _within(path, file, name), value


def _tflite(path: Path) -> _Named:
    from tensorflow.lite.tools import flatbuffer_utils

    for file in _files(path, ".tflite"):
        model = flatbuffer_utils.read_model(str(file))
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                data = model.buffers[tensor.buffer].data
                if data is not None and len(data) and tensor.type == 0:  # FLOAT32 of schema.fbs TensorType
                    value = np.frombuffer(bytes(bytearray(data)), "<f4").reshape(tensor.shape)
                    yield _within(path, file, tensor.name.decode()), value


def _keras(path: Path) -> _Named:
    from cudnn_convert.read import keras_archive

    keras_archive.require_whole(path)
    with zipfile.ZipFile(path) as archive:
        yield from _datasets(io.BytesIO(archive.read("model.weights.h5")))


def _h5(path: Path) -> _Named:
    from cudnn_convert.read import hdf5

    hdf5.require_whole(hdf5.Store(path))
    yield from _datasets(path)


def _datasets(file: Any) -> _Named:
    import h5py

    found: list[tuple[str, Array]] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer_weights"):
            found.append((name, np.asarray(item)))

    with h5py.File(file) as opened:
        opened.visititems(visit)
    yield from found


def _weights(path: Path) -> _Named:
    yield from weights.arrays(path).items()


def _files(path: Path, suffix: str) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob(f"*{suffix}"))


def _within(path: Path, file: Path, name: str) -> str:
    return name if file == path else f"{file.name}: {name}"


_READERS: Final[Mapping[str, Callable[[Path], _Named]]] = MappingProxyType(
    {
        "savedmodel": _saved_model,
        "checkpoint": _checkpoint,
        "frozen": _frozen,
        "onnx": _onnx,
        "tflite": _tflite,
        "keras": _keras,
        "h5": _h5,
        "npz": _weights,
        "safetensors": _weights,
    }
)
