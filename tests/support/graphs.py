"""Small TensorFlow 1 graphs, made in memory and never run: what the choice, the cut and the plan look at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph import node_defs
from cudnn_convert.model import Array, InMemory, Mode, Model, Signature, Sizes
from cudnn_convert.weights import parameter_blob

v1 = tf.compat.v1
INPUTS, UNITS = 3, 2
SIZES = Sizes(Mode.LSTM, 1, 1, UNITS, INPUTS)
#: Distinct values, none of them special.
BLOB = np.linspace(-0.5, 0.5, parameter_blob.length(SIZES), dtype=np.float32)
PATH = Path("model.ckpt")


@contextlib.contextmanager
def drawing() -> Iterator[tf.Graph]:
    """A fresh graph in which `tf.cond` makes Switch and Merge, as TensorFlow 1 wrote them."""
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            yield graph
    finally:
        if before:
            v1.enable_control_flow_v2()


def placeholder(name: str, shape: Any = (None, None, INPUTS), dtype: Any = tf.float32) -> Any:
    """A placeholder, time-major input of the recurrence if nothing else is said."""
    return v1.placeholder(dtype, shape, name)


def variable(name: str, shape: Any, dtype: Any = tf.float32) -> Any:
    """A reference variable without its initialiser."""
    return tf.raw_ops.VariableV2(shape=shape, dtype=dtype, name=name)


def resource(name: str, shape: Any, dtype: Any = tf.float32) -> Any:
    """The handle of a resource variable."""
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=name, name=name)


def lstm(x: Any, params: Any, *, name: str = "rnn", training: bool = False) -> Any:
    """A CudnnRNN node on zero states; its outputs are `.output`, `.output_h`, `.output_c`."""
    zeros = tf.zeros([1, tf.shape(x)[1], UNITS], name=f"{name}_zeros")
    return tf.raw_ops.CudnnRNN(
        input=x, input_h=zeros, input_c=zeros, params=params, is_training=training, name=name
    )


def uniform(x: Any, *, low: float = 0.0, high: float = 1.0) -> Any:
    """`tf.random_uniform` as TensorFlow 1 wrote it: `RandomUniform * (high - low) + low`."""
    drawn = tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=tf.float32)
    return drawn * (tf.constant(high) - tf.constant(low)) + tf.constant(low)


def floor_dropout(x: Any, keep: Any, **bounds: float) -> Any:
    """tensorflow v1.12.0 python/ops/nn_ops.py dropout."""
    return x / keep * tf.floor(keep + uniform(x, **bounds))


def variational_dropout(x: Any, keep: Any) -> Any:
    """tensorflow v1.15.0 python/ops/rnn_cell_impl.py DropoutWrapper: one mask for all steps of a loop."""
    drawn = uniform(x)

    def drop(step: Any, y: Any) -> tuple[Any, Any]:
        return step + 1, y / keep * tf.floor(keep + drawn)

    return v1.while_loop(lambda step, _: step < 2, drop, (0, x))[1]


def cast_dropout(x: Any, rate: Any, **bounds: float) -> Any:
    """tensorflow v1.15.0 python/ops/nn_ops.py dropout_v2."""
    return x * (1.0 / (1.0 - rate)) * tf.cast(uniform(x, **bounds) >= rate, tf.float32)


def model(
    graph: tf.Graph,
    values: Mapping[str, Array] | None = None,
    *,
    signatures: Mapping[str, Signature] | None = None,
) -> Model:
    """A model in memory; `blob` has its value, `values` adds others."""
    found = {"blob": BLOB, **(values or {})}
    kept = {name: InMemory(np.asarray(value)) for name, value in found.items()}
    return Model(PATH, "test", graph.as_graph_def(), kept, signatures=signatures or {})


def tagger() -> Model:
    """`x` -> recurrence -> `scores`, a variable `w` between them."""
    with drawing() as graph:
        x = placeholder("x")
        y = lstm(x, variable("blob", BLOB.shape)).output
        tf.identity(y * variable("w", [UNITS]), name="scores")
    return model(graph, {"w": np.array([0.25, -1.5], np.float32)})


def ops(graph: Any) -> dict[str, str]:
    """Node name -> op of a GraphDef."""
    return {node.name: node.op for node in graph.node}


def saved(folder: Path, graph: tf.Graph, values: Mapping[str, Array]) -> Path:
    """A checkpoint with its MetaGraph, as `tf.train.Saver` leaves them; returns the prefix."""
    prefix = folder / "model.ckpt"
    with tf.Graph().as_default(), v1.Session() as session:
        made = [v1.get_variable(name, initializer=value) for name, value in values.items()]
        session.run([variable.initializer for variable in made])
        v1.train.Saver(made).save(session, str(prefix), write_meta_graph=False)
    meta = v1.MetaGraphDef(graph_def=graph.as_graph_def())
    Path(f"{prefix}.meta").write_bytes(meta.SerializeToString())
    return prefix


def unknown_attribute() -> graph_pb2.GraphDef:
    """A constant, and a cuDNN node that no import takes."""
    made = graph_pb2.GraphDef(node=[node_defs.constant("one", np.asarray(1, np.float32))])
    made.node.add(name="one/again", op="Identity", input=["one"])
    made.node.add(name="rnn", op="CudnnRNN", input=["one"] * 4)
    return made
