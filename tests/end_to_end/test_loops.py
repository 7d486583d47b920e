"""Recurrences in loops that carry their states from one iteration to the next, against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import artifacts
from support.cases import Case
from support.samples import GRAPH_FORMATS
from support.tiers import tier

import cudnn_convert
from cudnn_convert.model import Mode

v1 = tf.compat.v1
CASE = Case(Mode.LSTM, 2, 2, "CudnnRNNV3")
#: Iterations of the outer loop, and of the inner one where there is one.
OUTER, INNER = 3, 2
#: Those in which each kind of loop meets each depth and format once.
FIRST = {(False, 1, "onnx"), (False, 2, "savedmodel")}


def build_loops(depth: int) -> Any:
    """A graph that calls the recurrence in one loop, or in a loop within another that halves the state."""
    with tf.Graph().as_default() as graph:
        x, h, c, lengths = CASE.placeholders()

        def step(k: Any, h: Any, c: Any) -> tuple[Any, ...]:
            called = CASE.op_call(x, h, c, lengths)
            return k + 1, called.output_h, called.output_c

        def outer(k: Any, h: Any, c: Any) -> tuple[Any, ...]:
            _, h, c = v1.while_loop(lambda k, *_: k < INNER, step, [tf.constant(0), h, c])
            return k + 1, h / 2, c

        body = step if depth == 1 else outer
        _, h, c = v1.while_loop(lambda k, *_: k < OUTER, body, [tf.constant(0), h, c])
        tf.identity(h, name="last_h")
        tf.identity(c, name="last_c")
    return graph.as_graph_def()


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize(
    ("functional", "depth", "form"),
    [
        pytest.param(*case, marks=tier(first=case in FIRST))
        for functional in (False, True)
        for depth in (1, 2)
        for form in GRAPH_FORMATS
        for case in [(functional, depth, form)]
    ],
)
def test_states_go_round(
    request: pytest.FixtureRequest, tmp_path: Path, functional: bool, depth: int, form: str
) -> None:
    """`functional`: loops are functions, as TensorFlow 2 builds them; else Switch and Merge."""
    if not functional:
        request.getfixturevalue("v1_control_flow")
    source, out, golden = (tmp_path / name for name in ("model.pb", "out", "golden.npz"))
    graph = build_loops(depth)
    assert functional == any(node.op in ("While", "StatelessWhile") for node in graph.node)
    source.write_bytes(graph.SerializeToString())
    cudnn_convert.convert(source, out, format=form, outputs=["last_h:0", "last_c:0"])
    feeds = CASE.feeds()
    np.savez(golden, **{f"feed0/{key}:0": value for key, value in feeds.items()})
    artifacts.answer([artifacts.job(out, form, golden, tmp_path / "answers.npz")])
    for _ in range(OUTER):
        for _ in range(INNER if depth == 2 else 1):
            _, feeds["h"], feeds["c"] = CASE.expected(feeds)
        feeds["h"] = feeds["h"] / (2 if depth == 2 else 1)
    with np.load(tmp_path / "answers.npz") as answers:
        for key in ("h", "c"):
            np.testing.assert_allclose(answers[f"feed0/last_{key}"], feeds[key], rtol=1e-5, atol=1e-5)
