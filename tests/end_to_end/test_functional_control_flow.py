"""Recurrences in branches and loops of a SavedModel's functions, against the reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf
from support import artifacts
from support.cases import Case
from support.samples import GRAPH_FORMATS
from support.tiers import tier
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import cudnn_convert
from cudnn_convert.model import Mode

LSTM: Final = Case(Mode.LSTM, 2, 2, "CudnnRNNV3")
GRU: Final = Case(Mode.GRU, 2, 2, "CudnnRNNV3")
#: Of the integer that chooses: each branch, what lies between, and what is no branch.
CHOICES: Final = (-1, 0, 1, 2, 7)
#: Runs a recurrence from zero states or given ones; gives outputs, last h and last c.
Run = Callable[..., Any]


def case(lstm: Run, gru: Run, x: Any, k: Any) -> Any:
    """A Case of three branches, two of them recurrences, then one of two branches on the same index."""
    y = tf.switch_case(k, [lambda: lstm(x)[0], lambda: gru(x)[0], lambda: tf.tile(x, [1, 1, 3])[..., :10]])
    return tf.switch_case(k, [lambda: lstm(y[..., 3:7])[0], lambda: y * 2])


def nested(lstm: Run, gru: Run, x: Any, k: Any) -> Any:
    """A branch in each of two branches, one of them behind a Case."""

    def inner() -> Any:
        return tf.cond(k > 1, lambda: lstm(x)[0], lambda: gru(x)[0])

    return tf.cond(k > 0, inner, lambda: tf.switch_case(k, [lambda: inner() - 1, lambda: gru(x)[0] * 3]))


def loop(lstm: Run, gru: Run, x: Any, k: Any) -> Any:
    """A loop that carries states until one of them is large, with a branch in it."""
    zeros = tf.zeros([4, tf.shape(x)[1], 5])

    def body(step: Any, h: Any, c: Any) -> Any:
        _, h, c = lstm(x, h, c)
        return step + 1, tf.cond(step > 0, lambda: gru(x, h)[1], lambda: h), c

    def condition(step: Any, h: Any, c: Any) -> Any:
        return tf.logical_and(step < k, tf.reduce_max(tf.abs(c)) < 5.0)

    _, h, c = tf.while_loop(condition, body, [0, zeros, zeros])
    return h + c


def items(lstm: Run, gru: Run, x: Any, k: Any) -> Any:
    """A loop over several inputs that carries states and keeps each output, and one within another.

    The last keeps fewer items than one list has, and as many as another, which grows.
    """
    several = tf.stack([x, x * 2, -x])
    zeros = tf.zeros([4, tf.shape(x)[1], 5])
    h, c = tf.scan(lambda states, each: tuple(lstm(each, *states)[1:]), several, (zeros, zeros))
    rows = tf.map_fn(lambda h: tf.map_fn(lambda row: row[:2] - tf.cast(k, tf.float32), h), h + c)
    kept = tf.TensorArray(tf.float32, 4, element_shape=[None, None, 10])
    more = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[None, None])

    def body(step: Any, kept: Any, more: Any) -> Any:
        each = tf.cond(step > k, lambda: gru(several[step])[0], lambda: lstm(several[step])[0])
        return step + 1, kept.write(step, each), more.write(step, each[0])

    _, kept, more = tf.while_loop(lambda step, *_: step < 3, body, [0, kept, more])
    return kept.stack() + tf.reduce_max(rows) + tf.reduce_sum(more.stack(), 0)


NETWORKS: Final = {build.__name__: build for build in (case, nested, loop, items)}
FIRST: Final = {("items", "onnx")}


class Network(tf.Module):
    """The nodes on variables."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = tf.Variable(LSTM.blob), tf.Variable(GRU.blob)

    def run(self, which: Case, x: Any, h: Any = None, c: Any = None, *, lengths: Any) -> Any:
        zeros = tf.zeros([4, tf.shape(x)[1], 5])
        h, is_lstm = zeros if h is None else h, which is LSTM
        c = (zeros if c is None else c) if is_lstm else tf.zeros([])
        params = (self.lstm if is_lstm else self.gru).read_value()
        called = which.op_call(x, h, c, lengths, params=params)
        return called.output, called.output_h, called.output_c


def save(network: str, path: Path) -> None:
    model = Network()
    specs = [tf.TensorSpec([None, None, 4]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]

    @tf.function(input_signature=specs)
    def serve(x: Any, lengths: Any, k: Any) -> Any:
        lstm, gru = (partial(model.run, which, lengths=lengths) for which in (LSTM, GRU))
        return {"y": NETWORKS[network](lstm, gru, x, k)}

    tf.saved_model.save(model, str(path), {"serving_default": serve.get_concrete_function()})


def expect(network: str, x: Any, lengths: Any, k: Any) -> Any:
    """What the network answers with the reference in the place of each node."""

    def run(which: Case, x: Any, h: Any = None, c: Any = None) -> Any:
        def compute(x: Any, h: Any, c: Any) -> list[Any]:
            answers = which.expected({"x": x, "h": h, "c": c, "lengths": lengths})
            return [answer.astype(np.float32) for answer in (*answers, answers[1])[:3]]

        zeros = tf.zeros([4, tf.shape(x)[1], 5])
        states = [zeros if state is None else state for state in (h, c)]
        return tf.numpy_function(compute, [x, *states], [tf.float32] * 3)

    lstm, gru = (partial(run, which) for which in (LSTM, GRU))
    return NETWORKS[network](lstm, gru, tf.constant(x), tf.constant(k)).numpy()


def require_answers(source: Path, network: str, form: str, folder: Path, **flags: Any) -> None:
    """Convert a network, each of whose recurrences is asked; compare what a user gets with the reference."""
    out, data, golden = (folder / name for name in ("out", "data.npz", "golden.npz"))
    feeds = LSTM.feeds()
    calls = [
        {"x": feeds["x"] + n, "lengths": feeds["lengths"], "k": np.int32(k)} for n, k in enumerate(CHOICES)
    ]
    np.savez(data, **{f"feed{n}/{key}": value for n, call in enumerate(calls) for key, value in call.items()})
    report = cudnn_convert.convert(source, out, format=form, data=data, **flags)
    pieces = report.verification.recurrences
    assert len({piece.node for piece in pieces}) == {"case": 3, "nested": 5, "loop": 2, "items": 3}[network]
    assert all(piece.asked and piece.passed for piece in pieces)
    tensors = {
        f"feed{n}/{report.inputs[key]}": value for n, call in enumerate(calls) for key, value in call.items()
    }
    np.savez(golden, **tensors)
    artifacts.answer([artifacts.job(out, form, golden, folder / "answers.npz")])
    with np.load(folder / "answers.npz") as answers:
        for n, call in enumerate(calls):
            expected = expect(network, **call)
            np.testing.assert_allclose(answers[f"feed{n}/y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow("cudnn_convert/lower", "cudnn_convert/verification/ops")
@pytest.mark.parametrize(
    ("network", "form"),
    [
        pytest.param(network, form, marks=tier(first=(network, form) in FIRST))
        for network in NETWORKS
        for form in GRAPH_FORMATS
    ],
)
def test_each_recurrence_is_converted_and_asked(tmp_path: Path, network: str, form: str) -> None:
    save(network, tmp_path / "model")
    require_answers(tmp_path / "model", network, form, tmp_path)


#: tf2onnx has no list that two loops write, as TensorFlow leaves it of two that begin alike.
LOWERED: Final = [
    pair for pair in product(("case", "nested", "loop", "items"), GRAPH_FORMATS) if pair != ("items", "onnx")
]


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification/ops")
@pytest.mark.parametrize(
    ("network", "form"), [pytest.param(*pair, marks=tier(first=pair == ("loop", "onnx"))) for pair in LOWERED]
)
def test_control_flow_that_tensorflow_lowered(tmp_path: Path, network: str, form: str) -> None:
    """A frozen graph as TensorFlow 2 makes it by default: weights go round its loops unchanged."""
    save(network, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    frozen = convert_variables_to_constants_v2(loaded.signatures["serving_default"], lower_control_flow=True)
    (tmp_path / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    require_answers(tmp_path / "frozen.pb", network, form, tmp_path, outputs=["y=Identity:0"])
