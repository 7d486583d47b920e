"""Weights of an artifact: as arrays by name, and computed in NumPy.

The constants and variables of an artifact, whoever made it: name -> array, floats of rank 1 and more.

What a format needs is imported where it is read: weights become ONNX without TensorFlow, and are proven so.

Decoded weights in a file, computed as `named_weights.Weights` and docs/equations.md say, by a user with
NumPy.

In float64, from the arrays by their names and shapes alone: what the file says is what is tried.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import CudnnConvertError, ReadError, first_line
from cudnn_convert.model import WAYS, Array, Part, is_float
from cudnn_convert.recurrences import named_weights

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
    from cudnn_convert.artifacts.tflite_file import unpack_model

    for file in _files(path, ".tflite"):
        model = unpack_model(file.read_bytes())
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
    yield from named_weights.arrays(path).items()


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

#: `(sums of the input, sums of the state, h, c) -> (h, c)`, the sums by gate.
_Step = Callable[[Mapping[str, Array], Mapping[str, Array], Array, Array], tuple[Array, Array]]
_Runner = Callable[[Mapping[str, Array]], dict[str, Array]]


def open_weights(path: Path, parts: Sequence[Part]) -> list[_Runner]:
    """Each part is a recurrence of the file. Raises KeyError for one that is not in it."""
    arrays = named_weights.arrays(path)
    described = {one["name"]: one for one in named_weights.file_metadata(path)["weights"]}
    return [_runner(described[part.name], arrays) for part in parts]


def _runner(said: Mapping[str, Any], arrays: Mapping[str, Array]) -> _Runner:
    swapped = said["layout"] == "batch"
    dtype = np.dtype("float32" if said["dtype"] == "bfloat16" else said["dtype"])  # as it is in the file

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        x = feeds["inputs"].astype(np.float64)
        x = x.swapaxes(0, 1) if swapped else x
        states = [feeds[f"initial_{key}"].astype(np.float64) for key in "hc" if f"initial_{key}" in feeds]
        lengths = feeds.get("sequence_lengths", np.full(x.shape[1], len(x)))
        y, h, c = stack(said, arrays, x, (states[0], states[-1]), lengths)
        found = {"outputs": y.swapaxes(0, 1) if swapped else y, "state_h": h}
        found |= {"state_c": c} if said["mode"] == "lstm" else {}
        return {key: value.astype(dtype) for key, value in found.items()}

    return run


def stack(
    said: Mapping[str, Any],
    arrays: Mapping[str, Array],
    x: Array,
    states: tuple[Array, Array],
    lengths: Array,
) -> tuple[Array, Array, Array]:
    """All layers, both ways; states `[layers*directions, batch, width]`, those of layer 0 first."""
    last: list[tuple[Array, Array]] = []
    for layer in range(said["layers"]):
        outputs = []
        for way in WAYS[: said["directions"]]:
            prefix = f"{said['name']}/layer_{layer}/{way}/"
            own = {
                key.removeprefix(prefix): v.astype(np.float64)
                for key, v in arrays.items()
                if key.startswith(prefix)
            }
            place = len(last)
            begun = states[0][place], states[1][place]
            y, ended = _direction(said, own, x, begun, lengths, backward=way == WAYS[1])
            outputs.append(y)
            last.append(ended)
        x = np.concatenate(outputs, axis=-1)
    return x, np.stack([h for h, _ in last]), np.stack([c for _, c in last])


def _direction(
    said: Mapping[str, Any],
    own: Mapping[str, Array],
    x: Array,
    state: tuple[Array, Array],
    lengths: Array,
    *,
    backward: bool,
) -> tuple[Array, tuple[Array, Array]]:
    h, c = state
    step, y = STEPS[said["mode"]], np.zeros((*x.shape[:2], h.shape[-1]))
    for k in range(len(x)):
        place = lengths - 1 - k if backward else np.full(x.shape[1], k)  # backward starts at a row's own end
        valid = (k < lengths)[:, None]
        rows = np.arange(x.shape[1])
        seen = x[np.maximum(place, 0), rows]
        inputs = _sums(said["gates"], own.get("kernel"), own["bias"], seen)
        new_h, new_c = step(
            inputs, _sums(said["gates"], own["recurrent_kernel"], own["recurrent_bias"], h), h, c
        )
        if "projection" in own:
            new_h = new_h @ own["projection"].T
        h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)
        y[np.maximum(place, 0), rows] = np.where(valid, h, y[np.maximum(place, 0), rows])
    return y, (h, c)


def _sums(gates: Sequence[str], matrices: Array | None, biases: Array, values: Array) -> dict[str, Array]:
    """`matrix @ value + bias` of each gate; without matrices the value itself goes to each."""
    return {
        gate: biases[k] + (values if matrices is None else values @ matrices[k].T)
        for k, gate in enumerate(gates)
    }


def _lstm(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    i, f, o = (_sigmoid(x[gate] + h[gate]) for gate in ("input", "forget", "output"))
    c = f * c + i * np.tanh(x["cell"] + h["cell"])
    return o * np.tanh(c), c


def _gru(x: Mapping[str, Array], h: Mapping[str, Array], old: Array, c: Array) -> tuple[Array, Array]:
    r, z = (_sigmoid(x[gate] + h[gate]) for gate in ("reset", "update"))
    return z * old + (1 - z) * np.tanh(x["candidate"] + r * h["candidate"]), c


def _tanh(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    return np.tanh(x["hidden"] + h["hidden"]), c


def _relu(x: Mapping[str, Array], h: Mapping[str, Array], _: Array, c: Array) -> tuple[Array, Array]:
    return np.maximum(x["hidden"] + h["hidden"], 0), c


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


STEPS: Final[Mapping[str, _Step]] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}
