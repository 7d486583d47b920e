"""What stands for statistics of the batch: the author's flag, moving averages, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.batch_norm import normalise, values_of
from support.graphs import BLOB, INPUTS, UNITS, drawing, lstm, model, placeholder, v1, variable
from support.plans import plan_graph

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import session
from cudnn_convert.graph.passes import batch_statistics
from cudnn_convert.plan import Plan


def planned(training: Any = True, *constants: str, changed: dict[str, Any] | None = None, **how: Any) -> Plan:
    with drawing() as graph:
        if training is not True:
            training = training()
        x = placeholder("x", (None, None, 2, 3) if how.get("fused") else (None, None, 3))
        y = normalise(x, -1, training, **how)
        if how.get("updates") == "twice":
            other = variable("other", [3])
            mean = graph.get_tensor_by_name("norm/moments/mean:0")
            value = (tf.identity(other) - tf.squeeze(mean, [0, 1])) * 0.1
            tf.raw_ops.AssignSub(ref=other, value=value)
        tf.identity(y, "y")
    values = values_of("norm", 3) | {"other": np.ones(3, np.float32)} | (changed or {})
    return plan_graph(model(graph, values), outputs=["y"], constants=constants, format="tflite")


def flag() -> Any:
    return v1.placeholder(tf.bool, [], "training")


def test_averages_are_taken_and_told() -> None:
    plan = planned()
    assert (
        "norm/moments/mean:0, norm/moments/variance:0: statistics of the batch, of training mode; their "
        "moving averages norm/moving_mean, norm/moving_variance are taken" in plan.notes
    )
    assert not batch_statistics.find_statistics(plan.graph, ["y:0"])


@pytest.mark.parametrize("fused", [False, True])
def test_the_flag_is_asked_for_before_averages_are_taken(fused: bool) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(flag, fused=fused)
    (reason,) = refused.value.reasons
    assert reason.endswith("found it in training mode; leave training mode with --set training:0=false")
    assert reason.remedies[0].options == {"set": ("training:0=false",)}


def test_the_users_flag_wins() -> None:
    plan = planned(flag, "training:0=true")
    (note,) = [note for note in plan.notes if "statistics" in note]
    assert note.endswith("as --set training:0=true asks; the answer to a row depends on the others")
    assert batch_statistics.find_statistics(plan.graph, ["y:0"])
    assert not any("statistics" in note for note in planned(flag, "training:0=false").notes)


def test_without_averages_the_tensors_are_named() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        planned(updates=None)
    assert [reason.split(":0: ")[0] for reason in refused.value.reasons] == [
        "norm/moments/mean",
        "norm/moments/variance",
    ]
    assert "found a statistic of the batch (Mean) without a moving average" in str(refused.value)


def test_of_two_averages_none_is_taken() -> None:
    with pytest.raises(UnsupportedModelError, match=r"norm/moments/mean:0: expected each answer to depend"):
        planned(updates="twice")


def test_averages_that_training_never_moved_are_told() -> None:
    plan = planned(changed={"norm/moving_mean": np.zeros(3, np.float32)})
    expected = (
        "norm/moving_mean: all 0 or all 1, as before the first update; did training run the UPDATE_OPS?"
    )
    assert expected in plan.notes


def moved(name: str, value: Any) -> None:
    kept = variable(name, value.shape)
    tf.raw_ops.AssignSub(ref=kept, value=(tf.identity(kept) - value) * 0.01)


def test_a_mean_that_is_a_quotient_is_replaced_whole() -> None:
    """Sums by the number of steps that are no padding; expected are NumPy's numbers."""
    rng = np.random.default_rng(11)
    values = {"mean": rng.normal(size=3) + 5, "variance": rng.uniform(2, 3, 3)}
    with drawing() as graph:
        x, lengths = placeholder("x"), placeholder("lengths", [None], tf.int32)
        mask = tf.sequence_mask(lengths, tf.shape(x)[1], tf.float32)[..., None]
        count = tf.cast(tf.reduce_sum(lengths), tf.float32)
        mean = tf.reduce_sum(x * mask, [0, 1]) / count
        variance = tf.reduce_sum(tf.square(x - mean) * mask, [0, 1]) / count
        moved("mean", mean)
        moved("variance", variance)
        tf.multiply(x - mean, tf.math.rsqrt(variance), name="y")
    kept = {name: np.float32(value) for name, value in values.items()}
    plan = plan_graph(model(graph, kept), outputs=["y"], format="savedmodel")
    assert list(plan.signature.inputs) == ["x"]
    given = rng.normal(size=(2, 4, 3))
    with session.session(plan.graph, plan.model.variables) as running:
        found = running.run("y:0", {"x:0": given})
    expected = (given - values["mean"]) / np.sqrt(values["variance"])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_state_of_a_cell_is_no_average() -> None:
    """A step of tf.nn.rnn_cell.GRUCell behind the recurrence, of a batch of one row."""
    with drawing() as graph:
        x, h = placeholder("x", [None, 1, INPUTS]), variable("h", [1, UNITS])
        y = lstm(x, variable("blob", BLOB.shape)).output[-1]
        update, candidate = tf.sigmoid(y * 2 + tf.identity(h)), tf.tanh(y - tf.identity(h))
        new = update * tf.identity(h) + (1 - update) * candidate
        tf.raw_ops.Assign(ref=h, value=new, name="store")
        tf.identity(new, "y")
    values = {"h": np.array([[0.25, -0.5]], np.float32)}
    plan = plan_graph(model(graph, values), outputs=["y"], format="savedmodel")
    assert {"Tanh", "Sigmoid"} <= {node.op for node in plan.graph.node}
    assert plan.notes == ("store: no output needs what updates h, left out; add with --outputs y:0,store:0",)
