"""How feeds become calls in a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.verification import calls_in_a_row
from cudnn_convert.verification.calls_in_a_row import _find_open_axes, _list_calls

PLAN: Any = SimpleNamespace(states=(SimpleNamespace(start="h:0"),), variable_states=())


def test_the_steps_of_a_feed_are_shared_out_and_only_the_first_call_has_states() -> None:
    feeds = [
        {"x:0": np.arange(5)[None], "one:0": np.zeros((1, 2)), "h:0": np.full(1, number)}
        for number in range(2)
    ]
    calls = _list_calls(PLAN, feeds, {"x:0": 1, "one:0": 1}, [2])
    assert [call["x:0"].tolist() for call in calls[:3]] == [[[0, 1]], [[2, 3]], [[4]]]
    assert [call["one:0"].shape for call in calls] == [(1, 2)] * 6
    # The first sequence begins with what the source holds.
    assert ["h:0" in call for call in calls] == [False, False, False, True, False, False]


def test_an_open_axis_that_is_not_the_first_may_be_the_steps() -> None:
    with drawing() as graph:
        for name, shape in {"x": (None, None, 3), "rows": (None, 3), "h": (None, 4), "fixed": (2,)}.items():
            placeholder(name, shape)
        tf.compat.v1.placeholder(tf.float32, None, "any")
    names = ("x", "rows", "h", "fixed", "any")
    signature = SimpleNamespace(inputs={name: f"{name}:0" for name in names})
    plan: Any = SimpleNamespace(**vars(PLAN), signature=signature, graph=SimpleNamespace(shapes=graph))
    assert _find_open_axes(plan) == {"x:0": 1, "rows:0": 0}


def test_a_plan_without_such_states_has_no_calls() -> None:
    from dataclasses import dataclass

    @dataclass
    class Settings:
        plan: Any
        golden: None = None

    comparison: Any = SimpleNamespace(settings=Settings(PLAN))
    assert calls_in_a_row.call_in_a_row(comparison, lambda _: {}) == ()
