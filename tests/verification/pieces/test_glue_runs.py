"""The values that each piece of an artifact gives in the place of its layer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cases import Case

from cudnn_convert.model import Mode
from cudnn_convert.verification.judges import Draw, RecurrenceCall, computation
from cudnn_convert.verification.pieces.glue_runs import GlueRun, match_values

CASE = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3")
RNG = np.random.default_rng(1)


def called(time: int = 5, batch: int = 3) -> tuple[Any, RecurrenceCall]:
    """A plan of a recurrence and its twin, and a call of the former."""
    recurrence, draw = CASE.recurrence(), Draw()
    x = RNG.standard_normal((time, batch, CASE.inputs)).astype(np.float32)
    h, c = RNG.standard_normal((2, CASE.depth, batch, CASE.units)).astype(np.float32)
    computation(recurrence, np.float64, [], draw)(x, h, c, np.full(batch, time, np.int32))
    plan = SimpleNamespace(recurrences=(recurrence, replace(recurrence, node="twin")))
    return plan, draw.calls[0]


def test_each_layer_gives_what_the_next_one_takes() -> None:
    plan, call = called()
    pieces = {"one": ("rnn", 0), "two": ("rnn", 1)}
    given = match_values(plan, [call], pieces)
    (first,), (second,) = given["one"], given["two"]
    np.testing.assert_array_equal(first.x, call.x)
    joined = first.y.swapaxes(1, 2).reshape(*second.x.shape)
    np.testing.assert_allclose(joined, second.x, rtol=1e-6)
    last = second.y.swapaxes(1, 2).reshape(call.gave[0].shape)
    np.testing.assert_allclose(last, call.gave[0], atol=1e-6)
    np.testing.assert_allclose(second.h_end, call.gave[1][2:], atol=1e-6)


def test_a_twin_gives_the_same_values_and_a_missing_layer_is_refused() -> None:
    plan, call = called()
    given = match_values(plan, [call], {"one": ("twin", 0), "two": ("rnn", 1)})
    assert [len(values) for values in given.values()] == [1, 1]
    with pytest.raises(LookupError, match="one node for each layer"):
        match_values(plan, [call], {"one": ("rnn", 0)})


def test_a_run_has_the_calls_by_node() -> None:
    _, call = called()
    other = replace(call, node="twin")
    run = GlueRun({}, [call, other, call])
    assert run.nodes == {call.node, "twin"}
    assert [len(run.by_node[name]) for name in (call.node, "twin")] == [2, 1]
