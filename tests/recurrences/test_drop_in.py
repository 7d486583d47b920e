"""Checkpoints that the drop-in trained on a CPU are sources as those of TensorFlow 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from support.tiers import some

import cudnn_convert
from cudnn_convert.compat import cudnn_rnn
from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index
from cudnn_convert.recurrences import drop_in

v1 = tf.compat.v1
CLASSES: dict[str, Any] = {
    "lstm": cudnn_rnn.CudnnLSTM,
    "gru": cudnn_rnn.CudnnGRU,
    "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.CudnnRNNRelu,
}
INPUTS, UNITS, CLASSES_OUT = 5, 6, 3


@dataclass(frozen=True)
class Trained:
    """A model with the drop-in's layer, its gradients in the graph; `answers` are its own, in TensorFlow."""

    mode: str
    directions: int = 1
    layers: int = 2
    time_major: bool = True
    lengths: bool = False

    def save(self, folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
        """The checkpoint, the feeds and the answers by key."""
        direction = ("unidirectional", "bidirectional")[self.directions - 1]
        rng = np.random.default_rng(7)
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, (None, None, INPUTS), "x")
            lengths = v1.placeholder(tf.int32, (None,), "lengths") if self.lengths else None
            y, states = CLASSES[self.mode](self.layers, UNITS, direction=direction)(
                x, training=False, time_major=self.time_major, sequence_lengths=lengths
            )
            kernel = v1.get_variable("kernel", [y.shape[-1], CLASSES_OUT])
            scores = tf.identity(tf.einsum("abu,uk->abk", y, kernel), "scores")
            ends = {"scores": scores}
            ends |= {f"state_{k}": tf.identity(state, f"state_{k}") for k, state in enumerate(states)}
            labels = v1.placeholder(tf.float32, (None, None, CLASSES_OUT), "labels")
            loss = tf.reduce_mean(v1.losses.mean_squared_error(labels, scores))
            v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            session.run(v1.global_variables_initializer())
            for each in v1.trainable_variables():
                session.run(each.assign(rng.uniform(-0.7, 0.7, each.shape).astype(np.float32)))
            v1.train.Saver().save(session, str(folder / "model.ckpt"))
            shape = (7, 3, INPUTS) if self.time_major else (3, 7, INPUTS)
            feeds = {"x": rng.normal(size=shape).astype(np.float32)}
            feeds |= {"lengths": np.array([7, 3, 5], np.int32)} if self.lengths else {}
            answers = session.run(ends, {f"{key}:0": value for key, value in feeds.items()})
        return folder / "model.ckpt", feeds, answers


MODELS = some(
    [Trained("gru", directions=2, lengths=True)],
    *(Trained("lstm", directions=2, time_major=False, lengths=True), Trained("lstm", layers=1)),
    *(Trained("gru", time_major=False), Trained("rnn_tanh"), Trained("rnn_relu", 2, time_major=False)),
)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_it_answers_as_the_drop_in_did(tmp_path: Path, model: Trained) -> None:
    source, feeds, answers = model.save(tmp_path)
    outputs = [",".join(f"{key}:0" for key in answers)]
    report = cudnn_convert.convert(source, tmp_path / "out.onnx", outputs=outputs)
    [recurrence] = report.recurrences
    assert (recurrence.mode, recurrence.layers, recurrence.directions) == (
        *(model.mode, model.layers, model.directions),
    )
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"))
    values = dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))
    for key, expected in answers.items():
        np.testing.assert_allclose(values[key], expected, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("model", some([Trained("gru", time_major=False)], Trained("lstm")), ids=str)
def test_it_streams(tmp_path: Path, model: Trained) -> None:
    source, _, _ = model.save(tmp_path)
    report = cudnn_convert.convert(source, tmp_path / "out.onnx", outputs=["scores:0"], states=True)
    assert report.verification is not None
    assert report.verification.streaming is not None


def test_scores_that_a_loss_alone_reads_are_asked_about(tmp_path: Path) -> None:
    """As in TensorFlow 1: the layer's inner tensors are no candidates."""
    source, _, _ = Trained("lstm").save(tmp_path)
    with pytest.raises(AmbiguousSourceError) as refused:
        cudnn_convert.convert(source, tmp_path / "out")
    assert "CudnnRNN/" not in str(refused.value)


def test_another_scope_of_that_name_stays(tmp_path: Path) -> None:
    """The sizes of a blob need the width of the input."""
    source, _, _ = Trained("rnn_tanh").save(tmp_path)
    meta = v1.MetaGraphDef()
    meta.ParseFromString(Path(f"{source}.meta").read_bytes())
    for node in meta.graph_def.node:
        if node.name.endswith("CudnnRNN/EnsureShape"):
            node.attr["shape"].shape.dim[2].size = -1
    changed = drop_in.restore_nodes(Graph(meta.graph_def))
    assert not any(node.op.startswith("CudnnRNNV") for node in Index(changed).nodes.values())


def test_layers_on_one_another_stream_from_their_own_start(tmp_path: Path) -> None:
    """The second layer reads the first, and begins with a function of the first frame."""
    rng = np.random.default_rng(3)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, None, INPUTS), "x")
        h = tf.tile(v1.get_variable("start", [1, 1, UNITS]), [1, tf.shape(x)[1], 1])
        y, _ = cudnn_rnn.CudnnLSTM(1, UNITS, name="first")(x, initial_state=(h, -h), training=False)
        first_frame = tf.matmul(x[0], v1.get_variable("kernel", [INPUTS, 4]))
        y, _ = cudnn_rnn.CudnnGRU(1, 4, name="second")(y, initial_state=(first_frame[None],), training=False)
        scores = tf.identity(y, "scores")
        session.run(v1.global_variables_initializer())
        for each in v1.trainable_variables():
            session.run(each.assign(rng.uniform(-0.7, 0.7, each.shape).astype(np.float32)))
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
        given = rng.normal(size=(5, 3, INPUTS)).astype(np.float32)
        expected = session.run(scores, {"x:0": given})
    flags: dict[str, Any] = {"format": "onnx", "states": True, "outputs": ["scores:0"]}
    cudnn_convert.convert(tmp_path / "model.ckpt", tmp_path / "out", **flags)
    begin, stream = (
        onnxruntime.InferenceSession(tmp_path / "out" / f"{name}.onnx") for name in ("begin", "stream")
    )
    fed = {"x": given[:1]}
    states = dict(zip([each.name for each in begin.get_outputs()], begin.run(None, fed), strict=True))
    (found,) = stream.run(["scores"], {"x": given, **states})
    np.testing.assert_allclose(found, expected, atol=1e-5)
