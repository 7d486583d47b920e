"""The seed and the type of a proof, and when a recurrence is large."""

from __future__ import annotations

import pytest
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, model, placeholder, variable
from support.plans import plan_graph

from cudnn_convert.options import Options
from cudnn_convert.verification import effort
from cudnn_convert.verification.graph_judge import GraphJudge
from cudnn_convert.verification.settings import choose_seed, make_settings
from cudnn_convert.weights import lazy


def test_the_seed_is_the_users_or_the_usual_one() -> None:
    assert choose_seed(Options(format="npz")) == effort.SEED
    assert choose_seed(Options(format="npz", seed=0)) == 0


def test_the_coarsest_type_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, "scores")
    plan = plan_graph(model(graph), outputs=["scores"])
    usual = make_settings(plan, Options(format="savedmodel"))
    assert (usual.dtype.name, usual.wanted, usual.has_bound, usual.is_large) == (
        *("float32", ["scores:0"], False, False),
    )
    assert isinstance(usual.judge, GraphJudge)
    half = make_settings(plan, Options(format="tflite", weights_dtype="float16", max_error=0.1))
    assert (half.dtype.name, half.has_bound) == ("float16", True)
    monkeypatch.setattr(lazy, "LARGE", 1)
    assert usual.is_large
