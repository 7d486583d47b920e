"""Eleven models whose outputs hide what their recurrence computes, and other weights put into artifacts.

Each takes `x [time, batch, 4]` and has a recurrence of two directions. In each a recurrence with other
weights, on random inputs, gives outputs that agree.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import h5py
import numpy as np
import onnx
import tensorflow as tf
from onnx import numpy_helper
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from cudnn_convert.model import Mode
from support import keras_files
from support.cases import Case
from support.keras_files import Arrays, entry

v1 = tf.compat.v1
#: The config of a layer, and its weights.
Tail: TypeAlias = tuple[Mapping[str, Any], Arrays]
CASE: Final = Case(Mode.GRU, directions=2, units=6)
WIDE: Final = 120_000


def _dense(y: Any, classes: int, name: str = "dense") -> Any:
    rng = np.random.default_rng(classes)
    kernel = rng.uniform(-0.5, 0.5, (12, classes)).astype(np.float32)
    return tf.tensordot(y, tf.constant(kernel, name=f"{name}/kernel"), 1)


def _behind_a_rare_value(x: Any, y: Any) -> Any:
    return tf.where(tf.reduce_max(x) > 9.0, _dense(y, 3), tf.zeros_like(_dense(y, 3)))


def _argmax_under_a_large_score(_: Any, y: Any) -> Any:
    scores = _dense(y, 3)
    return tf.argmax(tf.concat([scores, 1e6 + 0 * scores[..., :1]], -1), -1, output_type=tf.int32)


def _softmax_over_many(_: Any, y: Any) -> Any:
    return tf.nn.softmax(_dense(y[-1:], WIDE) * 1e-2)


def _tiny(_: Any, y: Any) -> Any:
    return _dense(y, 3) * 1e-6


def _saturated(_: Any, y: Any) -> Any:
    return tf.sigmoid(_dense(y, 3) + 60.0)


def _masked(x: Any, y: Any) -> Any:
    return _dense(y, 3) * tf.cast(tf.reduce_sum(tf.square(x), -1, keepdims=True) > 1e4, tf.float32)


def _gated_on_zeros(x: Any, y: Any) -> Any:
    return _dense(y, 3) * tf.cast(tf.reduce_all(tf.equal(x, 0.0)), tf.float32)


def _many_rows_alone(x: Any, y: Any) -> Any:
    count = tf.shape(x)[0] * tf.shape(x)[1]
    return tf.where(count > 2000, _dense(y, 3), tf.zeros_like(_dense(y, 3)))


def _not_a_number(_: Any, y: Any) -> Any:
    return _dense(y, 3) * tf.constant(np.nan, tf.float32)


def _infinite(_: Any, y: Any) -> Any:
    return tf.abs(_dense(y, 3)) + tf.constant(np.inf, tf.float32)


def _chaotic(_: Any, y: Any) -> Any:
    return tf.sin(_dense(y, 3) * 1e7)


#: Makes the output of a model from its input and its recurrence's.
HIDING: Final = MappingProxyType(
    {
        made.__name__.strip("_"): made
        for made in (
            *(_behind_a_rare_value, _argmax_under_a_large_score, _softmax_over_many, _tiny, _saturated),
            *(_masked, _gated_on_zeros, _many_rows_alone, _not_a_number, _infinite, _chaotic),
        )
    }
)


def source(name: str, folder: Path) -> Path:
    """A frozen graph of one of `HIDING`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "x")
        batch = tf.shape(x)[1]
        h = tf.zeros([2, batch, CASE.units])
        y = CASE.op_call(x, h, tf.constant(0.0), name="rnn").output
        tf.identity(HIDING[name](x, y), "answer")
    path = folder / f"{name}.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def corrupt_onnx(file: Path, change: Callable[[np.ndarray], np.ndarray], place: int) -> None:
    """Changes what the fused node reads in a place: 1 its kernels, 2 its recurrent kernels, 3 its biases."""
    model = onnx.load(str(file))
    node = next(node for node in model.graph.node if node.op_type == "GRU")
    tensor = next(one for one in model.graph.initializer if one.name == node.input[place])
    value = np.ascontiguousarray(change(numpy_helper.to_array(tensor)))
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(model, str(file))


def corrupt_dense(file: Path, change: Callable[[np.ndarray], np.ndarray]) -> int:
    """Changes the matrices around the recurrence, and says how many."""
    model = onnx.load(str(file))
    own = {name for node in model.graph.node if node.op_type == "GRU" for name in node.input}
    tensors = [one for one in model.graph.initializer if one.name not in own and len(one.dims) == 2]
    for tensor in tensors:
        value = np.ascontiguousarray(change(numpy_helper.to_array(tensor)))
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    onnx.save(model, str(file))
    return len(tensors)


def corrupt_tflite(file: Path, change: Callable[[np.ndarray], np.ndarray]) -> int:
    """Changes every recurrent matrix, which lie in the subgraphs of loops, and says how many."""
    return change_tflite(file, change, lambda graph, shape: graph > 0 and shape[1] == CASE.units)


def corrupt_tflite_dense(file: Path, change: Callable[[np.ndarray], np.ndarray]) -> int:
    """Changes the matrices that read both directions of the recurrence, and says how many."""
    return change_tflite(file, change, lambda graph, shape: graph == 0 and shape[1] == 2 * CASE.units)


def change_tflite(
    file: Path,
    change: Callable[[np.ndarray], np.ndarray],
    is_wanted: Callable[[int, tuple[int, ...]], bool],
    rank: int = 2,
) -> int:
    """Changes constants of floats, by the number of their subgraph and their shape, and says how many."""
    model = flatbuffer_utils.read_model(str(file))
    count = 0
    for number, graph in enumerate(model.subgraphs):
        for tensor in graph.tensors:
            data = model.buffers[tensor.buffer].data
            shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
            is_there = tensor.type == schema.TensorType.FLOAT32 and data is not None and len(data)
            if is_there and len(shape) == rank and is_wanted(number, shape):
                value = np.frombuffer(bytes(bytearray(data)), np.float32).reshape(shape)
                made = np.array(change(value), np.float32, order="C")
                model.buffers[tensor.buffer].data = np.frombuffer(made.tobytes(), np.uint8)
                count += not np.array_equal(made, value)
    flatbuffer_utils.write_model(model, str(file))
    return count


def forget_tflite_loops(file: Path) -> None:
    """Leaves the file without a word of which loop computes what."""
    content = file.read_bytes()
    assert content.count(b'"piece": "') == 2
    file.write_bytes(content.replace(b'"piece": "', b'"PIECE": "'))


def corrupt_frozen(file: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Changes every matrix of the recurrence."""
    change_constants(file, change, "layer_0/")


def change_constants(file: Path, change: Callable[[np.ndarray], np.ndarray], name: str) -> None:
    """Changes the matrices with `name` in their names, in a frozen graph, a SavedModel or a MetaGraph."""
    kinds = {"saved_model.pb": saved_model_pb2.SavedModel, ".meta": meta_graph_pb2.MetaGraphDef}
    kind = next((one for end, one in kinds.items() if file.name.endswith(end)), v1.GraphDef)
    held = kind.FromString(file.read_bytes())
    graph = (
        held.meta_graphs[0].graph_def
        if kind is saved_model_pb2.SavedModel
        else getattr(held, "graph_def", held)
    )
    inner = (node for function in graph.library.function for node in function.node_def)
    for node in (*graph.node, *inner):
        if node.op == "Const" and name in node.name:
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.ndim == 2:
                made = np.ascontiguousarray(change(value)).astype(value.dtype)
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(made))
    file.write_bytes(held.SerializeToString())


def saved(name: str, folder: Path) -> Path:
    """A SavedModel of TensorFlow 2 of one of `HIDING`."""
    module = tf.Module()
    module.weights = tf.Variable(CASE.blob)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, "x")], autograph=False)
    def call(x: Any) -> Any:
        h = tf.zeros([2, tf.shape(x)[1], CASE.units])
        y = CASE.op_call(x, h, tf.constant(0.0), params=module.weights.read_value()).output
        return {"answer": HIDING[name](x, y)}

    module.call = call
    tf.saved_model.save(module, str(folder / name), signatures={"serving_default": call})
    return folder / name


def _normalized(**values: float) -> Tail:
    """Batch normalisation with one value for each of its weights."""
    weights = {"gamma": 1.0, "beta": 0.0, "moving_mean": 0.0, "moving_variance": 1.0, **values}
    kept = [(f"tail/{name}:0", np.full(3, value, np.float32)) for name, value in weights.items()]
    return entry("BatchNormalization", "tail", epsilon=1e-3), kept


#: The same of layers of Keras: what stands behind a dense layer, and the bias of that.
KERAS_HIDING: Final = MappingProxyType(
    {
        "behind_a_rare_value": (entry("ReLU", "tail", threshold=1e3), []),
        "tiny": _normalized(gamma=1e-6),
        "saturated": (entry("Activation", "tail", activation="sigmoid"), []),
        "masked": _normalized(gamma=0.0),
        "not_a_number": _normalized(beta=np.nan),
        "infinite": _normalized(beta=np.inf),
    }
)


def keras_source(name: str, folder: Path) -> Path:
    """An HDF5 file of Keras 2.2.4 with one of `KERAS_HIDING`, two directions of a GRU before it."""
    rng = np.random.default_rng(len(name))
    inner = entry("CuDNNGRU", "gru", units=6, return_sequences=True)
    both = entry("Bidirectional", "both", layer=inner, batch_input_shape=[None, None, 4])
    ways = [keras_files.cudnn(rng, 3, 6, 4, f"both/{way}_gru/") for way in ("forward", "backward")]
    return _keras_file(name, folder, both, [*ways[0], *ways[1]], rng)


def keras_stateful(name: str, folder: Path) -> Path:
    """The same with an LSTM that keeps its state between calls of three rows."""
    rng = np.random.default_rng(len(name))
    more = {"return_sequences": True, "stateful": True, "batch_input_shape": [3, None, 4]}
    layer = entry("CuDNNLSTM", "keeping", units=12, **more)
    return _keras_file(name, folder, layer, keras_files.cudnn(rng, 4, 12, 4, "keeping/"), rng)


def keras_distributed(name: str, folder: Path) -> Path:
    """The same with a dense layer and a GRU that read each of three parts of every row."""
    rng = np.random.default_rng(len(name))
    inner = keras_files.sequential(
        entry("Dense", "before", units=5, batch_input_shape=[None, None, 4]),
        entry("CuDNNGRU", "reading", units=12),
    )
    inner["config"]["name"] = "part"
    layer = entry("TimeDistributed", "parts", layer=inner, batch_input_shape=[None, 3, None, 4])
    before = [
        ("parts/before/kernel:0", rng.uniform(-0.5, 0.5, (4, 5)).astype(np.float32)),
        ("parts/before/bias:0", rng.uniform(-0.5, 0.5, 5).astype(np.float32)),
    ]
    weights = [*before, *keras_files.cudnn(rng, 3, 12, 5, "parts/reading/")]
    return _keras_file(name, folder, layer, weights, rng)


def _keras_file(
    name: str, folder: Path, layer: Mapping[str, Any], weights: Arrays, rng: np.random.Generator
) -> Path:
    """A layer that gives twelve units, a dense one, and the tail that hides both."""
    tail, held = KERAS_HIDING[name]
    dense = [
        ("dense/kernel:0", rng.uniform(-0.5, 0.5, (12, 3)).astype(np.float32)),
        ("dense/bias:0", np.full(3, 60.0 if name == "saturated" else 0.0, np.float32)),
    ]
    listed = {layer["config"]["name"]: weights, "dense": dense, "tail": held}
    config = keras_files.sequential(layer, entry("Dense", "dense", units=3), tail)
    return keras_files.whole(folder / f"{name}.h5", config, listed)


def change_hdf5(file: Path, change: Callable[[np.ndarray], np.ndarray], name: str) -> int:
    """Changes the matrices of a Keras artifact, an archive or HDF5, that have `name` in their path."""
    count = 0

    def visit(path: str, item: Any) -> None:
        nonlocal count
        if isinstance(item, h5py.Dataset) and item.ndim == 2 and name in f"/{path}":
            item[...] = change(item[...])
            count += 1

    if not zipfile.is_zipfile(file):
        with h5py.File(file, "r+") as opened:
            opened["model_weights"].visititems(visit)
        return count
    members = _members(file)
    held = io.BytesIO(members["model.weights.h5"])
    with h5py.File(held, "r+") as opened:
        opened.visititems(visit)
    _pack(file, members | {"model.weights.h5": held.getvalue()})
    return count


def change_config(file: Path, old: str, new: str) -> None:
    """Changes the words of a Keras artifact's configuration."""
    if not zipfile.is_zipfile(file):
        with h5py.File(file, "r+") as opened:
            text = opened.attrs["model_config"]
            assert old in text
            opened.attrs["model_config"] = text.replace(old, new)
        return
    members = _members(file)
    assert old.encode() in members["config.json"]
    _pack(file, members | {"config.json": members["config.json"].replace(old.encode(), new.encode())})


def _members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {one: archive.read(one) for one in archive.namelist()}


def _pack(file: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for one, data in members.items():
            archive.writestr(one, data)
