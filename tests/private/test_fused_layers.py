"""Plain LSTM and GRU of Keras 2 files are cuDNN's ops where these compute the same; tf_keras is the judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import tf_keras
from support.keras_files import entry, model, sequential
from tf_keras import layers

import cudnn_convert
from cudnn_convert.graph import ops
from cudnn_convert.keras import trace
from cudnn_convert.model import Model
from cudnn_convert.private import fused_layers

STEPS = {"return_sequences": True}


def save(made: Any, folder: Path) -> Path:
    """A file of random weights, of which no two biases are the same."""
    rng = np.random.default_rng(6)
    made.set_weights([rng.normal(size=value.shape) / 2 for value in made.get_weights()])
    made.save(folder / "model.h5")
    return folder / "model.h5"


def many() -> Any:
    """Ways to call a layer: in reverse, both ways, from states, for its states, unrolled, for each piece."""
    x, pieces = layers.Input([6, 5], name="x"), layers.Input([2, 6, 5], name="pieces")
    both = layers.Bidirectional(layers.GRU(4, **STEPS), merge_mode="mul")(x)
    first, *states = layers.LSTM(3, go_backwards=True, return_state=True, **STEPS)(both)
    last = layers.LSTM(3, unroll=True)(first, initial_state=states)
    ends = layers.Bidirectional(layers.LSTM(2, return_state=True))(first)
    each = layers.TimeDistributed(layers.GRU(3, go_backwards=True))(pieces)
    return tf_keras.Model([x, pieces], [last, layers.GRU(2)(first), *ends, each])


@pytest.mark.slow("cudnn_convert/reference", "cudnn_convert/verification/ops")
def test_layers_are_fused_nodes_that_answer_as_keras(tmp_path: Path) -> None:
    made = many()
    source = save(made, tmp_path)
    cudnn_convert.convert(source, tmp_path / "out.onnx")
    kinds = Counter(node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node)
    assert (kinds["LSTM"], kinds["GRU"], kinds["Loop"]) == (4, 4, 0)
    rng = np.random.default_rng(7)
    given = {"x": rng.normal(size=(3, 6, 5)), "pieces": rng.normal(size=(3, 2, 6, 5))}
    fed = {name: value.astype(np.float32) for name, value in given.items()}
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    answers = session.run(None, fed)
    for answer, expected in zip(answers, made.predict_on_batch([*fed.values()]), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
def test_layers_are_asked_by_themselves_in_a_keras_file(tmp_path: Path) -> None:
    x = layers.Input([6, 5], name="x")
    nested = [layers.LSTM(5, name="same", **STEPS), layers.GRU(5, name="after", **STEPS)]
    twice = layers.LSTM(5, name="lstm_cell", **STEPS)
    pieces = layers.Reshape([2, 3, 5])(tf_keras.Sequential(nested, name="inner")(twice(twice(x))))
    each = layers.TimeDistributed(layers.GRU(2, name="each"))(pieces)
    last = layers.Bidirectional(layers.LSTM(3, name="same"))(each)
    source = save(tf_keras.Model(x, last), tmp_path)
    proof = cudnn_convert.convert(source, tmp_path / "out.keras").verification
    assert proof is not None
    assert {one.message for one in proof.recurrences if not one.asked} == set()
    names = {one.piece.split("/")[-1] for one in proof.recurrences}
    assert names == {"lstm_cell", "same", "after", "each", "forward_same", "backward_same"}


@pytest.mark.first("LSTM-activation")
@pytest.mark.parametrize(
    ("layer", "change"),
    [
        ("LSTM", {"recurrent_activation": "hard_sigmoid"}),
        ("LSTM", {"activation": "relu"}),
        ("LSTM", {"use_bias": False}),
        ("LSTM", {"stateful": True}),
        ("GRU", {"reset_after": False}),
        ("GRU", {"recurrent_activation": "hard_sigmoid"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
def test_what_cudnn_does_not_compute_stays_a_loop(layer: str, change: dict[str, Any]) -> None:
    usual = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True}
    usual |= {"reset_after": True} if layer == "GRU" else {}
    assert has_cudnn(layer, usual)
    assert not has_cudnn(layer, usual | change)
    assert not has_cudnn(layer, usual, entry("Masking", "mask", mask_value=0.0))


def has_cudnn(kind: str, config: dict[str, Any], *before: Any) -> bool:
    """Whether the trace of a model with such a layer, behind others, has one of cuDNN's ops."""
    shape = {"batch_input_shape": [2 if config.get("stateful") else None, None, 5]}
    first = [{**each, "config": {**each["config"], **shape}} for each in before]
    last = entry(kind, "layer", units=3, **config, **({} if before else shape))
    gates = 4 if kind == "LSTM" else 3
    weights = [("kernel:0", np.ones([5, gates * 3], np.float32))]
    weights.append(("recurrent_kernel:0", np.ones([3, gates * 3], np.float32)))
    if config["use_bias"]:
        two = [2] if config.get("reset_after") else []
        weights.append(("bias:0", np.ones([*two, gates * 3], np.float32)))
    described = model(sequential(*first, last), {"layer": weights}, keras_version="2.15.0")
    traced = trace.trace_model(Model(Path("model.h5"), "Keras", None, {}, architecture=described))
    return any(node.op in ops.CUDNN for node in traced.graph.node)


def test_a_layer_of_an_older_tf_keras_gets_lengths_of_whole_rows() -> None:
    """Its op is CudnnRNNV2; tf_keras 2.18 and later write these nodes themselves."""
    without_lengths = tf.raw_ops.CudnnRNNV2
    with tf.Graph().as_default() as graph, fused_layers._with_lengths(tf.raw_ops):
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 5], "x")
        state = tf.zeros([1, tf.shape(x)[1], 3])
        named = {"input_h": state, "input_c": state, "params": tf.zeros([144]), "is_training": True}
        outputs = tf.raw_ops.CudnnRNNV2(input=x, **named)[0]
        lengths = outputs.op.inputs[4]
    assert tf.raw_ops.CudnnRNNV2 is without_lengths
    assert (outputs.op.type, lengths.op.type) == ("CudnnRNNV3", "Fill")
    above = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), [lengths.op.name])
    with tf.Graph().as_default() as alone, tf.compat.v1.Session(graph=alone) as session:
        tf.import_graph_def(above, name="")
        assert session.run(lengths.name, {x.name: np.zeros([6, 2, 5])}).tolist() == [6, 6]
