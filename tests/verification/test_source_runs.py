"""Which outputs move with a recurrence, and on which feeds that is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, model, placeholder, variable
from support.plans import plan_graph

from cudnn_convert.model import Array
from cudnn_convert.options import Options
from cudnn_convert.verification import source_runs
from cudnn_convert.verification.judges import Draw, RunningSource
from cudnn_convert.verification.settings import make_settings
from cudnn_convert.verification.trials import Trial


def test_each_output_names_the_recurrences_that_move_it() -> None:
    with drawing() as graph:
        blob = variable("blob", BLOB.shape)
        first, second, third = (
            lstm(placeholder(f"x{number}"), blob, name=f"rnn{number}").output[:1, :1] for number in range(3)
        )
        tf.identity(first, "one")
        tf.identity(first + second, "both")
        tf.identity(first + tf.where(second > 1e6, third, 0), "gated")  # the gate never opens
    made = plan_graph(model(graph), outputs=["one", "both", "gated"])
    trial = source_runs.run_source(make_settings(made, Options(format="savedmodel")))
    assert trial.moved == {"rnn0": {"one", "both", "gated"}, "rnn1": {"both"}, "rnn2": set()}


def test_feeds_are_tried_until_an_output_moves() -> None:
    """The smallest comes first."""
    disturbed: list[object] = []

    answers = {
        1: [np.full(3, 1e-7), np.array([1, 2])],
        2: [np.zeros(3), np.array([1, 3])],
        3: [np.full(3, 1.0), np.array([1, 2])],
    }
    asked: list[int] = []

    def run(feed: Mapping[str, Array], _: Sequence[str]) -> list[Array]:
        asked.append(feed["x"].size)
        disturbed.append(source.draw.disturbed)
        return answers[asked[-1]]

    source = RunningSource(run, [], lambda: None, Draw())
    signature = SimpleNamespace(outputs={"scores": "a:0", "tags": "b:0"})
    plan = SimpleNamespace(states=(), parts=[None], signature=signature)
    settings: Any = SimpleNamespace(plan=plan, wanted=["a:0", "b:0"])
    exact = [[np.zeros(3, np.float32), np.array([1, 2])]] * 3
    trial = Trial([{"x": np.zeros(size)} for size in (3, 1, 2)], exact, [])
    assert source_runs.find_dependent_outputs(settings, source, trial, "rnn") == {"tags"}
    assert asked == [1, 2]
    assert disturbed == [["rnn"], ["rnn"]]
    assert source.draw.disturbed == ()
