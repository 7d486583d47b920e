"""Which outputs are chosen or asked for where nobody names any: small graphs, recorded and real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, PATH, UNITS, drawing, lstm, model, placeholder, v1, variable
from support.plans import plan_graph
from support.samples import CHOOSING, FIXTURES, REAL, STATEFUL, Fixture, fixture

from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.passes import tf1_ops
from cudnn_convert.plan import Plan, choose_outputs
from cudnn_convert.plan.from_graph import inline_model
from cudnn_convert.read import read


def chosen(graph: tf.Graph) -> list[str]:
    return choose_outputs.infer_outputs(PATH, Graph(graph.as_graph_def())).outputs


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


@pytest.mark.parametrize("is_decoded", [False, True])
def test_tags_that_a_crf_decodes_come_before_what_it_decodes_them_from(is_decoded: bool) -> None:
    """Of scores and transitions, in the likelihood of TensorFlow 1 and a decoder that a metric reads."""
    tags = 4
    with drawing() as graph:
        y = tf.transpose(lstm(placeholder("x"), blob()).output, [1, 0, 2])
        flat = tf.reshape(y, [-1, UNITS]) @ variable("w", [UNITS, tags])
        scores = tf.reshape(flat, [-1, tf.shape(y)[1], tags], name="scores")
        transitions = tf.identity(variable("transitions", [tags, tags]), "transitions/read")

        def step(t: Any, alphas: Any) -> Any:
            expanded = tf.expand_dims(alphas, 2) + tf.expand_dims(transitions, 0)
            return t + 1, tf.reduce_logsumexp(expanded, 1) + scores[:, t]

        start = scores[:, 0]
        invariants = [tf.TensorShape([]), start.shape]
        last = v1.while_loop(lambda t, _: t < 2, step, [1, start], shape_invariants=invariants)[1]
        tf.reduce_mean(last, name="likelihood")
        if is_decoded:
            best = tf.argmax(scores + tf.reduce_max(transitions, 0), -1, tf.int32)
            labels = placeholder("labels", [None, None], tf.int32)
            tf.reduce_mean(tf.cast(tf.equal(best, labels), tf.float32), name="accuracy")
    (reason,) = refused(graph, AmbiguousSourceError)
    read = "--outputs scores:0,transitions:0"
    assert reason.partition("; choose with ")[2] == (f"--outputs ArgMax:0 | {read}" if is_decoded else read)


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


def whole_mean(x: Any) -> Any:
    """tensorflow v1.15.0 python/ops/math_ops.py reduce_mean of a tensor of unknown rank."""
    return tf.raw_ops.Mean(input=x, axis=tf.range(0, tf.raw_ops.Rank(input=x)))


TRAINING: dict[str, Callable[[Any], Any]] = {
    "labels": lambda y: tf.reduce_mean(tf.abs(y - placeholder("labels", (None, None, UNITS)))),
    "loss-of-unknown-rank": lambda y: 0.5 * whole_mean(tf.abs(y - placeholder("labels", None))),
    "right": lambda y: tf.cast(tf.equal(tf.argmax(y, 2), placeholder("y", None, tf.int64)), tf.float32),
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


def test_where_only_a_loss_reads_the_model_the_user_is_asked() -> None:
    with drawing() as graph:
        y = tf.nn.softmax(lstm(placeholder("x"), blob()).output, name="probs")
        tf.nn.l2_loss(y)
    assert refused(graph, AmbiguousSourceError) == (
        "outputs: expected tensors of numbers at the end of the graph, found none behind a recurrence; "
        "choose with --outputs probs:0",
    )


def test_no_recurrence_is_refused() -> None:
    with drawing() as graph:
        tf.nn.relu(placeholder("x"), name="scores")
    assert refused(graph, UnsupportedModelError) == (
        "graph: expected a node CudnnRNN, BlockLSTM or LSTMBlockCell, found none; choose with "
        "--outputs scores:0",
    )
    assert refused(tf.Graph(), UnsupportedModelError)[0].endswith("found none; name --outputs")


def weigh(x: Any, name: str) -> Any:
    """A layer with weights of its own."""
    return tf.multiply(x, variable(f"{name}_weights", [UNITS]), name=name)


BEHIND: dict[str, Callable[[Any], Any]] = {
    "mask": lambda y: y * tf.sequence_mask(placeholder("y", [None], tf.int32), dtype=y.dtype)[..., None],
    "features": lambda y: tf.concat([y, placeholder("features", (None, None, 1))], 2),
    "print": lambda y: tf.raw_ops.Print(input=y, data=[tf.reduce_mean(y)], message="mean"),
    "scatter": lambda y: tf.scatter_nd([[0], [2]], y, [4, 2, UNITS]),
    "word-mask": lambda y: tf.where(tf.equal(placeholder("words", [None, None, UNITS]), 0.0), y, -y),
}


@pytest.mark.parametrize("add", BEHIND.values(), ids=BEHIND.keys())
def test_what_stands_behind_the_recurrence_belongs_to_the_model(add: Callable[[Any], Any]) -> None:
    with drawing() as graph:
        made = lstm(placeholder("x"), blob())
        tf.identity(made.output_h, name="state")
        tf.identity(add(made.output), name="scores")
    assert chosen(graph) == ["state:0", "scores:0"]


def loss(scores: Any, labels: Any = None) -> None:
    labels = placeholder("y", [None, None], tf.int32) if labels is None else labels
    with tf.name_scope("loss"):
        first = scores[:, 0], labels[:, 0]
        tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=first[0], labels=first[1], name="xent")


def part(add: Callable[[Any], Any]) -> tuple[str, ...]:
    """Why the state of a recurrence is not taken for the whole of a model that `add` makes of its output."""
    with drawing() as graph:
        made = lstm(placeholder("x"), blob())
        tf.identity(made.output_h, name="state")
        add(made.output)
    return refused(graph, AmbiguousSourceError)


def test_weights_that_only_a_loss_reads_are_part_of_the_model() -> None:
    (reason,) = part(lambda y: loss(weigh(y, "logits")))
    assert reason == (
        "outputs: state:0 leave out logits_weights, rnn:0, logits:0; choose with "
        "--outputs logits:0,state:0 | --outputs state:0 | --outputs logits:0"
    )


def test_so_are_layers_behind_an_input_of_their_own() -> None:
    features = (None, None, 1)
    (reason,) = part(
        lambda y: loss(weigh(tf.concat([y, placeholder("features", features)], 2)[..., 1:], "head"))
    )
    assert "leave out head_weights, rnn:0, head:0; choose with --outputs head:0,state:0 |" in reason


def test_so_is_what_a_loss_of_plain_arithmetic_reads() -> None:
    (reason,) = part(lambda y: tf.reduce_mean(tf.square(weigh(y, "prediction") - placeholder("y", None))))
    assert "leave out prediction_weights, rnn:0; choose with --outputs prediction:0,state:0 |" in reason


def test_a_prediction_without_weights_counts_too() -> None:
    with drawing() as graph:
        y = lstm(placeholder("x"), blob()).output
        tf.identity(y[0], name="first")
        loss(tf.square(y, name="energies"))
    (reason,) = refused(graph, AmbiguousSourceError)
    assert "outputs: first:0 leave out energies:0; choose with --outputs energies:0,first:0 |" in reason


def test_an_average_of_what_passes_is_no_weight() -> None:
    with drawing() as graph:
        y = tf.identity(lstm(placeholder("x"), blob()).output, name="y")
        tf.identity(y, name="scores")
        average = variable("average", [UNITS])
        v1.assign_sub(average, average - tf.reduce_mean(y, [0, 1]))
    assert chosen(graph) == ["scores:0"]


def test_components_of_an_iterator_may_be_labels() -> None:
    with drawing() as graph:
        handle = placeholder("iterator", [], tf.resource)
        x, labels, mask = tf.raw_ops.IteratorGetNext(
            iterator=handle, output_types=[tf.float32, tf.int32, tf.float32],
            output_shapes=[[None, None, INPUTS], [None, None], [None, None, 1]],
        )  # fmt: skip
        scores = tf.multiply(lstm(x, blob()).output, mask, name="scores")
        tf.nn.softmax(scores, name="probs")
        loss(scores, labels)
    assert chosen(graph) == ["probs:0"]


def test_what_may_need_labels_is_asked() -> None:
    with drawing() as graph:
        y = tf.identity(lstm(placeholder("x"), blob()).output, name="states")
        tf.identity(y, name="scores")
        tf.subtract(y, tf.one_hot(placeholder("labels", [None, None], tf.int32), UNITS), name="error")
    (reason,) = refused(graph, AmbiguousSourceError)
    assert reason.startswith(
        "outputs: error:0 needs labels:0, which may hold labels; choose with "
        "--outputs scores:0 | --outputs scores:0,error:0 | "
    )


def test_what_a_loss_takes_for_a_label_and_a_layer_for_an_input_is_asked() -> None:
    """A decoder that learns from the words which it should say."""
    with drawing() as graph:
        words = placeholder("words", [None, None], tf.int32)
        y = lstm(placeholder("x"), blob()).output
        scores = weigh(y + tf.one_hot(words, UNITS), "decoder")
        tf.argmax(scores, 2, name="said")
        loss(scores, words)
    (reason,) = refused(graph, AmbiguousSourceError)
    assert reason.startswith(
        "outputs: said:0 needs words:0, which may hold labels; choose with --outputs said:0 |"
    )


def test_a_measure_of_what_a_loss_takes_for_a_label_is_no_output() -> None:
    with drawing() as graph:
        y = tf.identity(lstm(placeholder("x"), blob()).output, name="states")
        words = placeholder("words", [None, None], tf.int32)
        tf.identity(y, name="scores")
        tf.subtract(y, tf.one_hot(words, UNITS), name="error")
        loss(y, words)
    assert chosen(graph) == ["scores:0"]


@pytest.mark.parametrize(("name", "is_chosen"), [("class_ids", True), ("ArgMax", False)])
def test_a_choice_that_only_a_metric_reads_counts_where_it_has_a_name(name: str, is_chosen: bool) -> None:
    with drawing() as graph:
        scores = weigh(lstm(placeholder("x"), blob()).output, "logits")
        loss(scores)
        ids = tf.cast(tf.argmax(scores, 2, name=name), tf.int32)
        tf.equal(ids, placeholder("wanted", [None, None], tf.int32))
    if is_chosen:
        assert chosen(graph) == ["class_ids:0"]
    else:
        refused(graph, AmbiguousSourceError)


def test_a_loss_of_plain_arithmetic_is_known_by_its_scope() -> None:
    """As `tf.nn.sigmoid_cross_entropy_with_logits` is."""
    with drawing() as graph:
        scores = weigh(lstm(placeholder("x"), blob()).output, "logits")
        with tf.name_scope("logistic_loss"):
            product = tf.multiply(scores, placeholder("y", [None, None, UNITS]), name="mul")
            tf.add(tf.nn.relu(scores) - product, tf.math.log1p(tf.exp(-tf.abs(scores))))
    (reason,) = refused(graph, AmbiguousSourceError)
    assert reason.endswith("; choose with --outputs logits:0")


def test_candidates_stand_in_the_order_of_their_names_and_of_what_they_are() -> None:
    with drawing() as graph:
        y = weigh(lstm(placeholder("x"), blob()).output, "plain")
        with tf.name_scope("logits"):
            scores = tf.nn.relu(tf.abs(y), name="Relu")
        tf.nn.softmax(scores, name="normed")
        tf.nn.l2_loss(tf.nn.softmax(scores, name="probs"))
        tf.nn.l2_loss(tf.cast(tf.argmax(scores, 2, name="best"), tf.float32))
        tf.greater(scores, 0.5, name="sure")
        v1.summary.histogram("histogram", scores)
        tf.nn.l2_loss(graph.get_tensor_by_name("normed:0"))
    (reason,) = refused(graph, AmbiguousSourceError)
    listed = [way.removeprefix("--outputs ") for way in reason.partition("choose with ")[2].split(" | ")]
    assert listed == ["probs:0", "logits/Relu:0", "best:0", "normed:0", "Cast:0", "plain:0"]


def test_leaves_that_are_no_numbers_are_named() -> None:
    with drawing() as graph:
        y = tf.identity(lstm(placeholder("x"), blob()).output, name="scores")
        tf.identity(y, name="out")
        tf.strings.as_string(tf.argmax(y, 2), name="words")
        tf.greater(y, 0.0, name="positive")
    assert choose_outputs.infer_outputs(PATH, Graph(graph.as_graph_def())) == choose_outputs.Choice(
        ["out:0"], {"words:0": "string", "positive:0": "bool"}
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


def branched(flag: Any, *, inverted: bool = False) -> tf.Graph:
    """A layer in training mode in a branch of tf.cond, not so in the other; another tf.cond before them."""
    with drawing() as graph:
        shared, plain = tf.identity(blob(), "blob/read"), placeholder("x")
        x = v1.cond(placeholder("mirror", [], tf.bool), lambda: plain[::-1], lambda: plain + 0.0)
        sides = [
            lambda: lstm(x, shared, name="train", training=True).output,
            lambda: lstm(x, shared, name="predict").output,
        ]
        taken = flag()
        either = v1.cond(tf.logical_not(taken), *sides[::-1]) if inverted else v1.cond(taken, *sides)
        tf.multiply(either, variable("w", [UNITS]), name="scores")
    return graph


def switch() -> Any:
    return placeholder("is_training", [], tf.bool)


def phase() -> Any:
    return tf.equal(placeholder("phase", [], tf.int32), 1)


def default(value: bool) -> Callable[[], Any]:
    return lambda: v1.placeholder_with_default(value, [], "is_training")


def planned(graph: tf.Graph, **flags: list[str]) -> Plan:
    values = {"w": np.array([0.25, -1.5], np.float32)}
    return plan_graph(model(graph, values), constants=flags.get("set", []), outputs=flags.get("outputs", []))


@pytest.mark.first("placeholder", "two", "number", "default")
@pytest.mark.parametrize(
    ("flag", "inverted", "cure"),
    [
        (switch, False, "--set is_training:0=false"),
        (switch, True, "--set is_training:0=false"),
        (phase, False, "--set phase:0=false"),
        (default(True), False, "--set is_training:0=false"),
        (lambda: tf.logical_or(switch(), phase()), False, "--outputs scores:0"),
    ],
    ids=["placeholder", "inverted", "number", "default", "two"],
)
def test_a_branch_for_training_is_asked_about(flag: Callable[[], Any], inverted: bool, cure: str) -> None:
    graph = branched(flag, inverted=inverted)
    training = "cond_1/train"
    assert choose_outputs.infer_outputs(PATH, Graph(graph.as_graph_def())) == choose_outputs.Choice(
        ["scores:0"], {}, (training,)
    )
    with pytest.raises(AmbiguousSourceError) as caught:
        planned(graph)
    assert caught.value.reasons == (
        f"outputs: scores:0 may come from {training}, meant for training; choose with {cure}",
    )
    name, value = cure.removeprefix("--").split()
    kept = [one.node for one in planned(graph, **{name: [value]}).recurrences]
    assert kept == (["cond_1/predict"] if name == "set" else ["cond_1/train", "cond_1/predict"])


@pytest.mark.parametrize("flag", [default(False), lambda: tf.constant(False)], ids=["default", "constant"])
def test_a_branch_for_training_that_is_never_taken_is_left_out(flag: Callable[[], Any]) -> None:
    made = planned(branched(flag))
    assert [one.node for one in made.recurrences] == ["cond_1/predict"]
    assert made.notes == (
        "outputs chosen from the graph: scores:0",
        "left out because their branches are for training and not taken: cond_1/train",
    )


def test_each_placeholder_that_decides_is_asked_about_once() -> None:
    with drawing() as graph:
        shared, x = tf.identity(blob(), "blob/read"), placeholder("x")
        for flag, count in (("warm", 2), ("late", 1)):
            taken = placeholder(flag, [], tf.bool)
            for _ in range(count):
                x = v1.cond(
                    taken,
                    lambda x=x: lstm(x, shared, name="train", training=True).output,
                    lambda x=x: lstm(x, shared, name="predict").output,
                )
                x = tf.pad(x, [[0, 0], [0, 0], [0, INPUTS - UNITS]])
        tf.identity(x, name="scores")
    with pytest.raises(AmbiguousSourceError) as caught:
        planned(graph)
    begin = "outputs: scores:0 may come from"
    assert caught.value.reasons == (
        f"{begin} cond/train, cond_1/train, meant for training; choose with --set warm:0=false",
        f"{begin} cond_2/train, meant for training; choose with --set late:0=false",
    )
    made = planned(graph, set=["warm:0=false", "late:0=false"])
    assert [one.node for one in made.recurrences] == ["cond/predict", "cond_1/predict", "cond_2/predict"]


def test_who_says_so_gets_the_branch_for_training() -> None:
    made = planned(branched(switch), set=["is_training:0=true"])
    assert [one.node for one in made.recurrences] == ["cond_1/train"]


def test_what_only_a_branch_for_training_gives_goes_with_it() -> None:
    with drawing() as graph:
        shared, x = blob(), placeholder("x")
        tf.identity(lstm(x, shared, name="predict").output, name="scores")
        trained = lstm(x, shared, name="train", training=True).output
        tf.identity(v1.cond(switch(), lambda: trained, lambda: tf.zeros_like(trained)), name="checked")
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


def test_what_a_policy_draws_its_action_from_is_offered_with_the_value() -> None:
    with drawing() as graph:
        y = tf.reshape(lstm(placeholder("x"), blob()).output, [-1, UNITS])
        policy = tf.matmul(y, variable("w", [UNITS, 3]), name="policy")
        value = tf.matmul(y, variable("v", [UNITS, 1]), name="value")
        tf.reduce_mean((value - placeholder("reward", [None, 1])) ** 2, name="loss")
        drawn = tf.raw_ops.Multinomial(logits=policy, num_samples=1)
        tf.reshape(drawn, [-1], name="action")
    (reason,) = refused(graph, AmbiguousSourceError)
    assert "found action:0, drawn anew in each; choose with --outputs policy:0,value:0 | " in reason


def test_the_best_action_is_offered_for_one_that_explores() -> None:
    with drawing() as graph:
        y = lstm(placeholder("x"), blob()).output
        best = tf.argmax(y, -1, name="best")
        other = tf.raw_ops.RandomUniformInt(shape=tf.shape(best), minval=np.int64(0), maxval=np.int64(UNITS))
        chance = tf.raw_ops.RandomUniform(shape=tf.shape(best), dtype=tf.float32)
        tf.where(chance < placeholder("epsilon", []), other, best, name="action")
    (reason,) = refused(graph, AmbiguousSourceError)
    assert reason.endswith("found action:0, drawn anew in each; choose with --outputs best:0")


def test_heads_of_several_tasks_on_one_recurrence_are_offered_together() -> None:
    with drawing() as graph:
        shared = blob()
        for name in "ab":
            y = lstm(placeholder(name), shared, name=f"rnn_{name}").output
            tf.multiply(y, variable(f"w_{name}", [UNITS]), name=f"task_{name}")
    (reason,) = refused(graph, AmbiguousSourceError)
    sets = ("task_a:0,task_b:0", "task_a:0", "task_b:0")
    assert reason.partition("; choose one of: ")[2] == " | ".join(f"--outputs {each}" for each in sets)


@pytest.mark.parametrize("scope", ["loss", "loss_1/loss"], ids=["beside", "inside"])
def test_what_a_loss_makes_of_the_scores_is_no_output(scope: str) -> None:
    """One tower for training and prediction: the scores have readers, all of them for the loss."""
    with drawing() as graph:
        scores = tf.identity(lstm(placeholder("x"), blob(), training=True).output, name="scores")
        prefix = scope if "/" not in scope else scope.partition("/")[0]
        flat = tf.raw_ops.Reshape(tensor=scores, shape=[-1, UNITS], name=f"{prefix}/Reshape")
        labels = tf.reshape(placeholder("labels", [None, None], tf.int32), [-1])
        tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=flat, labels=labels, name=scope)
    (reason,) = refused(graph, AmbiguousSourceError)
    assert reason.endswith("; choose with --outputs scores:0")


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
    names = choose_outputs.infer_outputs(model.path, Graph(model.graph)).outputs
    assert {"cnn_lstm_3/logits:0", "cnn_lstm_3/softmax:0"} <= set(names)
    assert all(
        name.startswith(("cnn_lstm_3/softmax", "cnn_lstm_3/logits", "cnn_lstm_3/decoded_")) for name in names
    )


@pytest.mark.parametrize("name", ["block_fused_lengths", "block_cell_loop", "block_cell_bidirectional"])
def test_recurrences_that_run_on_a_cpu_are_found_where_no_cudnn_node_is(name: str) -> None:
    sample = fixture(f"1.15.5-{name}")
    model = read(sample.prefix)
    assert (
        sorted(choose_outputs.infer_outputs(model.path, Graph(model.graph)).outputs) == sample.case["outputs"]
    )


def test_a_target_network_with_a_residual_branch() -> None:
    """Its nodes are found in any order: the sum is nearer to the recurrence than the branch."""
    with drawing() as graph:
        values = tf.identity(lstm(placeholder("x"), blob()).output, name="values")
        tf.nn.softmax(values, name="policy")
        later = lstm(placeholder("later"), variable("target_blob", BLOB.shape), name="target").output
        goal = tf.stop_gradient(later + tf.tanh(tf.sin(tf.cos(later))))
        v1.losses.huber_loss(goal, values)
    assert chosen(graph) == ["policy:0"]


PROJECTS = {
    "agent": ["q_values:0", "actions:0", "next_h:0", "next_c:0"],
    "handwriting": ["state_out_h:0", "state_out_c:0", "x:0", "y:0"],
    "pointer": ["from:0", "to:0"],
}


@pytest.mark.parametrize("name", PROJECTS)
def test_outputs_of_projects(name: str) -> None:
    """A target network is none, nor the value of a chosen action, nor what the loss of a mixture reads."""
    model = read(fixture(f"1.15.5-project_{name}").prefix)
    choice = choose_outputs.infer_outputs(model.path, Graph(model.graph))
    assert choice.outputs == PROJECTS[name]
    left = ["weights:0", "wide:0", "high:0", "correlation:0", "end_of_stroke:0"]
    assert [*choice.beside] == (left if name == "handwriting" else [])


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("forecast", "forecast:0 | --outputs Abs_1:0 | --outputs decoder/while/Exit_3:0"),
        ("music", "mean/BiasAdd:0,deviation/Softplus:0 | --outputs deviation/BiasAdd:0"),
        ("tasks", "grade:0,topics:0,tags:0 | --outputs topics:0,tags:0"),
        ("translation", "scores:0,translation:0 | --outputs decoder/loop/decoder/transpose_1:0,scores:0,"),
    ],
)
def test_candidates_of_projects(name: str, first: str) -> None:
    """Losses and loops come last; a mean and a deviation together; what is behind a draw not at all."""
    model = read(fixture(f"1.15.5-project_{name}").prefix)
    with pytest.raises(AmbiguousSourceError) as caught:
        choose_outputs.infer_outputs(model.path, Graph(model.graph))
    (reason,) = caught.value.reasons
    assert f"; choose with --outputs {first}" in reason
    assert "decoder/logits" not in reason


def has_a_choice(sample: Fixture) -> bool:
    """Whether its outputs are a choice, but for projects: other tests know the words for each."""
    name = sample.folder.name
    return name in CHOOSING or ("--outputs" in sample.case["flags"] and not name.startswith("project_"))


UNCHOSEN = pytest.mark.slow("cudnn_convert/graph", "cudnn_convert/plan")


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.name, marks=() if has_a_choice(sample) else UNCHOSEN)
        for sample in FIXTURES + STATEFUL
    ],
)
def test_what_the_author_reads_is_chosen_or_listed(sample: Fixture) -> None:
    """What is listed is a flag that can be given as it stands."""
    model = inline_model(read(sample.prefix))
    model = replace(model, graph=tf1_ops.replace_gather_tree(Graph.of(model.graph)))
    wanted = set(sample.case["outputs"])
    if model.signatures:
        assert wanted <= {name for one in model.signatures.values() for name in one.outputs.values()}
        return
    try:
        choice = choose_outputs.infer_outputs(model.path, Graph(model.graph))
        assert wanted <= {*choice.outputs, *choice.beside}
    except (AmbiguousSourceError, UnsupportedModelError) as error:
        (reason,) = error.reasons
        ways = [way.removeprefix("--outputs ") for way in reason.partition("choose with ")[2].split(" | ")]
        assert wanted in [set(way.split(",")) for way in ways[:2]]
        for way in ways:
            plan = plan_graph(model, outputs=[way])
            assert [*plan.source.outputs.values()] == way.split(",")
