"""Which outputs are chosen where nobody names any: small training graphs, and a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from graphs import BLOB, PATH, UNITS, drawing, lstm, placeholder, v1, variable
from samples import REAL, fixture

from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph import choose
from cudnn_convert.read import read


def chosen(graph: tf.Graph) -> list[str]:
    return choose.outputs(PATH, graph.as_graph_def())


def refused(graph: tf.Graph, error: type[AmbiguousSourceError | UnsupportedModelError]) -> tuple[str, ...]:
    with pytest.raises(error) as caught:
        chosen(graph)
    return caught.value.reasons


def blob() -> Any:
    return variable("blob", BLOB.shape)


def test_the_natural_leaf_of_the_recurrence() -> None:
    with drawing() as graph:
        tf.nn.relu(lstm(placeholder("x"), blob()).output, name="scores")
        tf.nn.relu(placeholder("y"), name="elsewhere")  # no recurrence reaches it
    assert chosen(graph) == ["scores:0"]


def test_outputs_and_states_in_the_graphs_order() -> None:
    with drawing() as graph:
        made = lstm(placeholder("x"), blob())
        for name, tensor in (("c", made.output_c), ("y", made.output), ("h", made.output_h)):
            tf.identity(tensor, name)
    assert chosen(graph) == ["c:0", "y:0", "h:0"]


def test_what_nothing_reads_in_a_loop() -> None:
    """As the last state of a decoder that attends, which no step after it takes."""
    with drawing() as graph:
        x, params = placeholder("x"), blob()

        def body(step: Any, held: Any) -> Any:
            y = lstm(x, params).output
            tf.identity(held + 1.0, "unread")
            return step + 1, held + tf.reduce_sum(y)

        _, total = v1.while_loop(lambda step, _: step < 3, body, [0, 0.0])
        tf.reshape(total, [1], name="scores")
    assert chosen(graph) == ["scores:0"]


def test_the_first_replica_of_a_strategy() -> None:
    """tf.distribute copies each variable to each device; a variable that is only called so is no copy."""
    with drawing() as graph:
        x = placeholder("x")
        for name, scope in (("blob", "first"), ("blob/replica_1", "second"), ("other/replica_1", "third")):
            tf.identity(lstm(x, variable(name, BLOB.shape), name=f"rnn_{scope}").output, f"{scope}_y")
    assert chosen(graph) == ["first_y:0", "third_y:0"]


def test_a_recurrence_that_nothing_reads_is_its_own_leaf() -> None:
    with drawing() as graph:
        lstm(placeholder("x"), blob())
    assert chosen(graph) == ["rnn:0", "rnn:1", "rnn:2"]


TRAINING: dict[str, Callable[[Any], Any]] = {
    "labels": lambda y: tf.subtract(y, placeholder("labels", (None, None, UNITS)), name="error"),
    "labels-unknown-rank": lambda y: tf.subtract(y, placeholder("labels", None), name="error"),
    "loss": lambda y: tf.nn.softmax_cross_entropy_with_logits(labels=tf.ones_like(y), logits=y) * 2,
    "l2": tf.nn.l2_loss,
    "ctc": lambda y: tf.raw_ops.CTCLoss(
        inputs=y, labels_indices=[[0, 0]], labels_values=[0], sequence_length=[3]
    ),
    "metric": lambda y: tf.raw_ops.InTopKV2(predictions=y[0], targets=[0], k=1),
    "edit-distance": lambda y: tf.raw_ops.EditDistance(
        hypothesis_indices=tf.where(y[0] > 0), hypothesis_values=y[0, :, 0], hypothesis_shape=[3, 2],
        truth_indices=[[0, 0]], truth_values=[0.0], truth_shape=[3, 2],
    ),
    "summary": lambda y: v1.summary.histogram("histogram", y),
    "gradient": lambda y: tf.identity(y, name="gradients/rnn_grad"),
    "gradient-1": lambda y: tf.identity(y, name="tower/gradients_1/rnn_grad"),
    "state": lambda y: v1.assign(variable("state", [1, 1, UNITS]), y, validate_shape=False),
    "shape": lambda y: tf.shape(y, name="shape"),
    "scalar": lambda y: tf.reduce_mean(y, name="mean"),
    "bool": lambda y: tf.greater(y, 0.0, name="positive"),
    "string": lambda y: tf.strings.as_string(y, name="text"),
    "queue": lambda y: v1.FIFOQueue(3, [tf.float32]).enqueue([y]),
}  # fmt: skip


@pytest.mark.parametrize("add", TRAINING.values(), ids=TRAINING.keys())
def test_nothing_of_training_is_an_output(add: Callable[[Any], Any]) -> None:
    with drawing() as graph:
        y = tf.nn.softmax(lstm(placeholder("x"), blob()).output, name="probs")
        tf.identity(y, name="scores")
        add(y)
    assert chosen(graph) == ["scores:0"]


def test_summaries_do_not_count_as_readers() -> None:
    with drawing() as graph:
        y = tf.nn.softmax(lstm(placeholder("x"), blob()).output, name="probs")
        v1.summary.histogram("histogram", y)
    assert chosen(graph) == ["probs:0"]


def test_a_scalar_placeholder_is_no_label() -> None:
    with drawing() as graph:
        tf.multiply(lstm(placeholder("x"), blob()).output, placeholder("temperature", []), name="scores")
    assert chosen(graph) == ["scores:0"]


def test_what_a_recurrence_needs_is_no_label() -> None:
    with drawing() as graph:
        x = placeholder("x")
        y = lstm(x, blob()).output
        tf.concat([x, y], 2, name="residual")
    assert chosen(graph) == ["residual:0"]


def test_what_is_left_inside_a_branch_is_no_output() -> None:
    """Nothing reads one of its tensors, and it has a value only where its branch is taken."""
    with drawing() as graph:
        y = lstm(placeholder("x"), blob()).output

        def looped() -> Any:
            last, _ = tf.while_loop(lambda _, k: k < 2, lambda v, k: (v + y, k + 1), (y, 0))
            tf.nn.relu(last, name="left")
            return last

        scores = v1.cond(placeholder("flag", [], tf.bool), looped, lambda: y)
        tf.identity(scores, name="scores")
    assert chosen(graph) == ["scores:0"]


def test_the_boundary_where_no_leaf_is_left() -> None:
    with drawing() as graph:
        y = tf.nn.softmax(lstm(placeholder("x"), blob()).output, name="probs")
        tf.nn.l2_loss(y)
    assert chosen(graph) == ["probs:0"]


def test_no_recurrence_is_refused() -> None:
    with drawing() as graph:
        tf.nn.relu(placeholder("x"))
    assert refused(graph, UnsupportedModelError) == (
        "graph: expected a node CudnnRNN, BlockLSTM or LSTMBlockCell, found none; name --outputs",
    )


def twins(**training: bool) -> tf.Graph:
    """One layer applied twice, each application with a leaf of its own."""
    with drawing() as graph:
        shared = blob()
        for name, mode in training.items():
            x = placeholder(f"x_{name}")
            tf.identity(lstm(x, shared, name=name, training=mode).output, f"{name}_scores")
    return graph


def test_the_twin_in_training_mode_goes() -> None:
    assert chosen(twins(train=True, predict=False)) == ["predict_scores:0"]
    assert chosen(twins(predict=False, train=True)) == ["predict_scores:0"]


def test_the_twin_that_training_differentiates_goes() -> None:
    graph = twins(train=True, predict=True)
    with graph.as_default():
        x, h, c, params = graph.get_operation_by_name("train").inputs
        y, h_n, c_n, space = graph.get_operation_by_name("train").outputs
        tf.raw_ops.CudnnRNNBackprop(
            input=x, input_h=h, input_c=c, params=params, output=y, output_h=h_n, output_c=c_n,
            output_backprop=y, output_h_backprop=h_n, output_c_backprop=c_n, reserve_space=space,
            name="gradients/train_grad",
        )  # fmt: skip
    assert chosen(graph) == ["predict_scores:0"]


def test_what_lies_below_a_dropped_twin_goes_with_it() -> None:
    with drawing() as graph:
        shared, x = blob(), placeholder("x")
        predict = lstm(x, shared, name="predict").output
        train = lstm(x, shared, name="train", training=True).output
        tf.identity(predict, name="scores")
        tf.subtract(predict, train, name="difference")
    assert chosen(graph) == ["scores:0"]


def test_two_applications_that_meet_are_one_model() -> None:
    with drawing() as graph:
        shared = blob()
        left, right = (lstm(placeholder(name), shared, name=f"rnn_{name}").output for name in "ab")
        tf.abs(left - right, name="distance")
    assert chosen(graph) == ["distance:0"]


def test_two_applications_with_outputs_of_their_own_are_a_choice() -> None:
    (reason,) = refused(twins(left=False, right=False), AmbiguousSourceError)
    assert reason == (
        "blob feeds 2 recurrences that training tells nothing about; choose one of: "
        "--outputs left_scores:0 | --outputs right_scores:0"
    )


@pytest.mark.parametrize("scope", ["loss", "loss_1/loss"], ids=["beside", "inside"])
def test_what_a_loss_makes_of_the_scores_is_no_output(scope: str) -> None:
    """One tower for training and prediction: the scores have readers, all of them for the loss."""
    with drawing() as graph:
        scores = tf.identity(lstm(placeholder("x"), blob(), training=True).output, name="scores")
        prefix = scope if "/" not in scope else scope.partition("/")[0]
        flat = tf.raw_ops.Reshape(tensor=scores, shape=[-1, UNITS], name=f"{prefix}/Reshape")
        labels = tf.reshape(placeholder("labels", [None, None], tf.int32), [-1])
        tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=flat, labels=labels, name=scope)
    assert chosen(graph) == ["scores:0"]


def test_two_layers_are_no_twins() -> None:
    with drawing() as graph:
        for name in ("left", "right"):
            params = variable(f"{name}_blob", BLOB.shape)
            tf.identity(lstm(placeholder(f"x_{name}"), params, name=name).output, f"{name}_scores")
    assert chosen(graph) == ["left_scores:0", "right_scores:0"]


@pytest.mark.skipif(
    not (REAL / "calamari" / "model.ckpt.meta").is_file(), reason=f"no Calamari model under {REAL}"
)
def test_a_real_training_graph() -> None:
    model = read(REAL / "calamari" / "model.ckpt")
    names = choose.outputs(model.path, model.graph)
    assert {"cnn_lstm_3/logits:0", "cnn_lstm_3/softmax:0"} <= set(names)
    assert all(
        name.startswith(("cnn_lstm_3/softmax", "cnn_lstm_3/logits", "cnn_lstm_3/decoded_")) for name in names
    )


@pytest.mark.parametrize("name", ["block_fused_lengths", "block_cell_loop", "block_cell_bidirectional"])
def test_recurrences_that_run_on_a_cpu_are_found_where_no_cudnn_node_is(name: str) -> None:
    sample = fixture(f"1.15.5-{name}")
    model = read(sample.prefix)
    assert sorted(choose.outputs(model.path, model.graph)) == sample.case["outputs"]
