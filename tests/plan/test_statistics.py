"""What stands for statistics of the batch: the author's flag, moving averages, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.batch_norm import normalise, values_of
from support.graphs import drawing, model, placeholder, v1, variable
from support.plans import plan_graph

from cudnn_convert.errors import UnsupportedModelError
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
