"""A model that normalises by its batch is never converted in silence: drawn ranks, axes, ops and flags.

A plan without a flag of the user's has no such statistic left, as NumPy shows: its graph normalises by the
averages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from properties.budget import examples
from support.batch_norm import EPSILON, normalise, values_of
from support.graphs import drawing, model, placeholder, v1, variable
from support.plans import plan_graph

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import session
from cudnn_convert.model import InMemory

FLAGS: Final = ("literal", "placeholder", "default", "variable")


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(2, 5))
    fused = rank == 4 and draw(st.booleans())
    return {
        "rank": rank,
        "axis": rank - 1 if fused else draw(st.integers(1, rank - 1)),
        "fused": fused,
        "flag": draw(st.sampled_from(FLAGS)),
        "updates": "sub" if fused else draw(st.sampled_from(["sub", "assign", None])),
        "set": draw(st.sampled_from([None, "false", "true"])),
    }


def make_flag(kind: str) -> Any:
    match kind:
        case "literal":
            return True
        case "placeholder":
            return v1.placeholder(tf.bool, [], "training")
        case "default":
            return v1.placeholder_with_default(True, [], "training")
    return tf.identity(variable("training", [], tf.bool), "training/read")


@examples(40)
@given(cases())
def test_a_statistic_of_the_batch_is_told_or_asked_about(case: dict[str, Any]) -> None:
    width = 3
    shape = [width if axis == case["axis"] else None for axis in range(case["rank"])]
    with drawing() as graph:
        flag = make_flag(case["flag"])
        x = placeholder("x", shape)
        y = normalise(x, case["axis"], flag, fused=case["fused"], updates=case["updates"])
        tf.identity(y, "y")
    values: dict[str, Any] = values_of("norm", width) | {"training": np.array(True)}
    is_set = case["set"] is not None and case["flag"] != "literal"
    constants = [f"training:0={case['set']}"] if is_set else []
    source = model(
        graph,
        {key: value for key, value in values.items() if key != "training" or case["flag"] == "variable"},
    )
    try:
        plan = plan_graph(source, outputs=["y:0"], constants=constants, format="tflite")
    except UnsupportedModelError as refused:
        assert not (is_set and case["set"] == "false")
        assert "batch normalisation" in str(refused) or "statistic of the batch" in str(refused)
        assert ("--set training:0=false" in str(refused)) == (case["flag"] != "literal")
        return
    told = any("statistics of the batch" in note for note in plan.notes)
    assert told == (not (is_set and case["set"] == "false"))
    assert (is_set and case["set"] == "true") == any("as --set" in note for note in plan.notes)
    feed = np.random.default_rng(case["rank"]).normal(size=[size or 2 + k for k, size in enumerate(shape)])
    held = {name: InMemory(value) for name, value in values.items()}
    with session.session(plan.graph, held) as running:
        given_feed = feed.astype(np.float32)
        answer = running.run("y:0", {"x:0": given_feed})
    gamma, beta, mean, variance = (
        values[f"norm/{name}"] for name in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    if is_set and case["set"] == "true":
        axes = tuple(axis for axis in range(case["rank"]) if axis != case["axis"])
        mean, variance = given_feed.mean(axes), given_feed.var(axes)
    along = [width if axis == case["axis"] else 1 for axis in range(case["rank"])]
    gamma, beta, mean, variance = (each.reshape(along) for each in (gamma, beta, mean, variance))
    expected = (given_feed - mean) / np.sqrt(variance + EPSILON) * gamma + beta
    np.testing.assert_allclose(answer, expected, rtol=2e-5, atol=2e-5)
