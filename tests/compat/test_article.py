"""The script of a practitioner's article, with the drop-in: two graphs, two checkpoints, a frozen graph.

And how it goes wrong: the wrong saver, the wrong scope, inputs that are not time-major.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import cudnn_convert
from cudnn_convert.compat import cudnn_rnn

v1 = tf.compat.v1
VOCABULARY, EMBEDDING, UNITS, TAGS = 11, 4, 5, 3
IDS = np.random.default_rng(6).integers(0, VOCABULARY, (3, 7)).astype(np.int32)


@dataclass(frozen=True)
class Network:
    graph: Any
    saver: Any
    ids: Any
    logits: Any
    loss: Any


def recurrent(x: Any, use_gpu: bool, *, training: bool, scope: str) -> Any:
    """[steps, batch, EMBEDDING] -> [steps, batch, 2 * UNITS]: the one method with a switch."""
    if use_gpu:
        layer = cudnn_rnn.CudnnLSTM(
            num_layers=1,
            num_units=UNITS,
            direction=cudnn_rnn.CUDNN_RNN_BIDIRECTION,
            kernel_initializer=v1.random_uniform_initializer(-0.5, 0.5, seed=1),
            bias_initializer=v1.random_uniform_initializer(-0.5, 0.5, seed=2),
        )
        return layer(x, training=training)[0]

    def stack() -> Any:
        forward, backward = ([cudnn_rnn.CudnnCompatibleLSTMCell(UNITS)] for _ in range(2))
        return cudnn_rnn.stack_bidirectional_dynamic_rnn(
            forward, backward, x, dtype=tf.float32, sequence_length=None, time_major=True
        )[0]

    if not scope:
        return stack()
    with v1.variable_scope(scope):
        return stack()


def build(
    use_gpu: bool,
    *,
    training: bool = False,
    scope: str = "cudnn_lstm",
    time_major: bool = True,
    saver: Callable[[], Any] = v1.train.Saver,
) -> Network:
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        ids = v1.placeholder(tf.int32, [None, None], name="ids")
        table = v1.get_variable("table", [VOCABULARY, EMBEDDING])
        x = tf.nn.embedding_lookup(table, ids)
        x = tf.transpose(x, [1, 0, 2]) if time_major else x
        y = recurrent(x, use_gpu, training=training, scope=scope)
        y = tf.transpose(y, [1, 0, 2]) if time_major else y
        logits = tf.tensordot(y, v1.get_variable("dense", [2 * UNITS, TAGS]), 1, name="logits")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids % TAGS, logits=logits)
        loss = tf.reduce_mean(losses)
        return Network(graph, saver(), ids, tf.identity(logits, name="scores"), loss)


@dataclass(frozen=True)
class Trained:
    prefix: Path  #: checkpoint 1, of a Saver without arguments
    variables: Path  #: what a Saver of the global variables alone wrote
    answers: np.ndarray


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Steps 1 to 3: the GPU's graph, trained and saved by either Saver; and what it answers."""
    folder = tmp_path_factory.mktemp("article")
    network = build(True, training=True)
    with network.graph.as_default(), v1.Session() as session:
        variables = v1.train.Saver(v1.global_variables())
        update = v1.train.AdamOptimizer(0.05).minimize(network.loss)
        session.run(v1.global_variables_initializer())
        losses = [session.run([network.loss, update], {network.ids: IDS})[0] for _ in range(15)]
        assert losses[-1] < 0.6 * losses[0]
        network.saver.save(session, str(folder / "checkpoint_1"), write_meta_graph=False)
        variables.save(session, str(folder / "variables"), write_meta_graph=False)
        answers = session.run(network.logits, {network.ids: IDS})
    return Trained(folder / "checkpoint_1", folder / "variables", answers)


def restore(network: Network, session: Any, prefix: Path) -> Any:
    network.saver.restore(session, str(prefix))
    return session.run(network.logits, {network.ids: IDS})


@pytest.mark.slow("cudnn_convert/compat", "cudnn_convert/lower/tensorflow")
def test_both_graphs_and_the_frozen_one_answer_alike(trained: Trained, tmp_path: Path) -> None:
    """Steps 4 to 7: the compatible graph, restored, saved as checkpoint 2, and frozen to a .pb."""
    prefix, expected = trained.prefix, trained.answers
    network = build(False)
    with v1.Session(graph=network.graph) as session:
        np.testing.assert_allclose(restore(network, session, prefix), expected, atol=2e-6)
        network.saver.save(session, str(tmp_path / "checkpoint_2"), write_meta_graph=False)
        frozen = v1.graph_util.convert_variables_to_constants(
            session, network.graph.as_graph_def(), ["scores"]
        )
    path = tmp_path / "frozen.pb"
    path.write_bytes(frozen.SerializeToString())
    definition = v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(definition, name="")
        np.testing.assert_allclose(session.run("scores:0", {"ids:0": IDS}), expected, atol=2e-6)
    with v1.Session(graph=network.graph) as session:
        np.testing.assert_allclose(restore(network, session, tmp_path / "checkpoint_2"), expected, atol=2e-6)
    keys = {name for name, _ in tf.train.list_variables(str(tmp_path / "checkpoint_2"))}
    first = {name for name, _ in tf.train.list_variables(str(prefix))}
    assert first - keys == {"cudnn_lstm/opaque_kernel"} and keys < first


def test_the_converter_answers_as_the_trained_graph(trained: Trained, tmp_path: Path) -> None:
    """What the whole script is for, in one call: the GPU's MetaGraph with the trained checkpoint."""
    prefix, expected = trained.prefix, trained.answers
    with cudnn_rnn.build_for("GPU"):
        network = build(True)
    with network.graph.as_default():
        for file in prefix.parent.glob("checkpoint_1.*"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        network.saver.export_meta_graph(str(tmp_path / "checkpoint_1.meta"))
    cudnn_convert.convert(tmp_path / "checkpoint_1", tmp_path / "out", outputs="scores:0", verify=False)
    served = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"]
    np.testing.assert_allclose(next(iter(served(ids=tf.constant(IDS)).values())), expected, atol=2e-6)


def test_cells_outside_the_scope_are_named(trained: Trained) -> None:
    network = build(False, scope="")
    with v1.Session(graph=network.graph) as session, pytest.raises(tf.errors.NotFoundError) as caught:
        restore(network, session, trained.prefix)
    key = "stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias"
    assert f"Key {key} not found in checkpoint" in str(caught.value)


def test_a_saver_of_variables_alone_leaves_the_cells_out(trained: Trained) -> None:
    """The layer's saveable is no variable; the layer itself still restores its blob from such a file."""
    prefix, expected = trained.variables, trained.answers
    assert "cudnn_lstm/opaque_kernel" in {name for name, _ in tf.train.list_variables(str(prefix))}
    network = build(False)
    with v1.Session(graph=network.graph) as session, pytest.raises(tf.errors.NotFoundError) as caught:
        restore(network, session, prefix)
    key = "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias"
    assert f"Key {key} not found in checkpoint" in str(caught.value)
    again = build(True, saver=lambda: v1.train.Saver(v1.global_variables()))
    with v1.Session(graph=again.graph) as session:
        np.testing.assert_allclose(restore(again, session, prefix), expected, atol=2e-6)


def test_the_saver_of_the_other_graph_is_no_saver_here(trained: Trained) -> None:
    gpu, network = build(True, saver=lambda: [v1.train.Saver(), v1.train.Saver()][1]), build(False)
    with v1.Session(graph=network.graph) as session, pytest.raises(Exception) as caught:
        gpu.saver.restore(session, str(trained.prefix))
    line = str(caught.value).splitlines()[0]
    assert "The name 'save_1/Const:0' refers to a Tensor which does not exist" in line


def test_an_input_that_is_not_time_major_is_wrong_without_a_word(trained: Trained) -> None:
    """Shapes fit, so nobody can tell; lengths tell, for there is one a row."""
    network = build(True, time_major=False)
    with v1.Session(graph=network.graph) as session:
        answer = restore(network, session, trained.prefix)
    assert answer.shape == trained.answers.shape
    assert np.abs(answer - trained.answers).max() > 0.05
    with tf.Graph().as_default(), pytest.raises(ValueError) as caught:
        batch_major = v1.placeholder(tf.float32, [3, 7, EMBEDDING])
        cudnn_rnn.CudnnLSTM(1, UNITS)(batch_major, sequence_lengths=tf.constant([7, 2, 5]))
    assert str(caught.value) == (
        "Invalid sequence_lengths: expecting one for each of 7 rows of a time-major input, got 3; "
        "transpose the input to [steps, batch, features], or call with time_major=False"
    )
