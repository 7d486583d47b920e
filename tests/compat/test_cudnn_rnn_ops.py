"""Functions and classes on a blob: numbers, gradients, dropout."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case, swapped
from support.published_networks import INPUTS, NETWORKS, measure_distance
from support.recorded_networks import read_gradients
from support.tiers import some

from cudnn_convert import reference
from cudnn_convert.compat import cudnn_rnn_ops
from cudnn_convert.model import Array, Mode
from cudnn_convert.weights import layouts

v1 = tf.compat.v1


DIRECTIONS = ("unidirectional", "bidirectional")


def call(case: Case, x: Any, h: Any, c: Any, blob: Any, **named: Any) -> list[Any]:
    """What the function on a blob of this mode gives: y, h and an LSTM's c."""
    functions: dict[Mode, Callable[..., Any]] = {
        Mode.LSTM: cudnn_rnn_ops.cudnn_lstm,
        Mode.GRU: cudnn_rnn_ops.cudnn_gru,
        Mode.RNN_TANH: cudnn_rnn_ops.cudnn_rnn_tanh,
        Mode.RNN_RELU: cudnn_rnn_ops.cudnn_rnn_relu,
    }
    states = [h, c] if case.mode is Mode.LSTM else [h]
    named = {
        "is_training": False,
        "input_mode": case.input_mode,
        "direction": DIRECTIONS[case.directions - 1],
        "time_major": case.time_major,
        **({"num_proj": case.projection} if case.projection else {}),
        **named,
    }
    return list(functions[case.mode](x, *states, blob, **named))


CASES = [
    Case(Mode.LSTM, 2, 2, op="CudnnRNNV3"),
    Case(Mode.GRU, 2, 2, op="CudnnRNNV3", time_major=False),
    Case(Mode.RNN_TANH, 2, 1, op="CudnnRNNV3"),
    Case(Mode.RNN_RELU, 1, 2),
    Case(Mode.LSTM, 2, 1, input_mode="skip_input"),
    Case(Mode.LSTM, 2, 2, op="CudnnRNNV3", projection=3),
]


MORE = [
    Case(mode, layers, directions, op, dtype=dtype)
    for mode, layers, directions, op, dtype in itertools.product(
        Mode, (1, 3), (1, 2), ("CudnnRNN", "CudnnRNNV3"), ("float32", "float64")
    )
]


@pytest.mark.parametrize("case", some(CASES, *MORE), ids=str)
def test_a_blob_is_computed_as_cudnn_does(case: Case) -> None:
    feeds = case.feeds()
    given = {key: value if case.time_major else swapped(value) for key, value in feeds.items()}
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = [tf.constant(given[key]) for key in ("x", "h", "c")]
        answers = session.run(call(case, *tensors, case.blob, sequence_lengths=given.get("lengths")))
    expected = case.expected(feeds)
    bound = 1e-12 if case.dtype == "float64" else 3e-6
    for answer, wanted in zip(answers, expected, strict=True):
        time_major = answer if case.time_major else swapped(answer)
        np.testing.assert_allclose(time_major, wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("row", "mode"), [("CUDNN", Mode.LSTM), ("CUDNN", Mode.GRU), ("BLOCK_LSTM_V1", Mode.LSTM)]
)
def test_two_gates_swapped_are_seen(monkeypatch: pytest.MonkeyPatch, row: str, mode: Mode) -> None:
    """Of the rows that stand between a blob and what computes it."""
    layout = getattr(layouts, row)
    first, second, *others = layout.gates[mode]
    gates = {**layout.gates, mode: (second, first, *others)}
    monkeypatch.setattr(layouts, row, dataclasses.replace(layout, gates=gates))
    case = Case(mode)
    feeds = case.feeds()
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = [tf.constant(feeds[key]) for key in ("x", "h", "c")]
        y, *_ = session.run(call(case, *tensors, case.blob))
    assert np.abs(y - case.expected(feeds)[0]).max() > 1e-3


@pytest.fixture(params=some([True], False), ids=["tensorflow_1", "tensorflow_2"])
def _control_flow(request: pytest.FixtureRequest) -> Iterator[None]:
    """Loops and branches of TensorFlow 1, which old code has after disable_v2_behavior, and those of 2."""
    if request.param:
        v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


@pytest.mark.usefixtures("_control_flow")
@pytest.mark.parametrize(
    "case",
    some([Case(Mode.LSTM, 2, 2)],
         *(Case(mode, 2, 2, dtype=dtype) for mode in Mode for dtype in ("float32", "float64"))),
    ids=str,
)  # fmt: skip
def test_gradients_are_the_slopes_of_the_reference(case: Case) -> None:
    """Along random lines: x, both states, every weight; ragged lengths, a factor for each output."""
    random = np.random.default_rng(5)
    feeds = Case.feeds(dataclasses.replace(case, op="CudnnRNNV3"), batch=3)
    feeds |= {"w": case.blob}
    is_lstm = case.mode is Mode.LSTM
    keys = ["x", "h", "c", "w"] if is_lstm else ["x", "h", "w"]
    lines = {key: random.uniform(-1, 1, feeds[key].shape) for key in keys}
    factors: list[Array] = []

    def total(values: dict[str, Array]) -> float:
        steps = reference.steps_from_blob(
            values["w"], case.mode.value,
            layers=case.layers, directions=case.directions, units=case.units, input_size=case.inputs,
        )  # fmt: skip
        outputs = reference.run(steps, values["x"], values["h"], values["c"], directions=case.directions,
                                lengths=feeds["lengths"])[: 3 if is_lstm else 2]  # fmt: skip
        factors.extend(random.uniform(-1, 1, output.shape) for output in outputs[len(factors) :])
        return float(sum((output * factor).sum() for output, factor in zip(outputs, factors, strict=True)))

    wide = {key: feeds[key].astype(np.float64) for key in ("x", "h", "c", "w")}

    def slope(key: str) -> float:
        above, below = (total(wide | {key: wide[key] + sign * 1e-6 * lines[key]}) for sign in (1, -1))
        return (above - below) / 2e-6

    slopes = {key: slope(key) for key in lines}
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = {key: tf.constant(feeds[key]) for key in ("x", "h", "c", "w")}
        outputs = call(case, *tensors.values(), sequence_lengths=feeds["lengths"], is_training=True)
        loss = tf.add_n([tf.reduce_sum(y * f) for y, f in zip(outputs, factors, strict=True)])
        gradients = session.run(dict(zip(keys, v1.gradients(loss, [tensors[k] for k in keys]), strict=True)))
    bound = 1e-7 if case.dtype == "float64" else 1e-5
    for key, expected in slopes.items():
        length = np.linalg.norm(gradients[key])
        assert length > 0
        assert abs(np.sum(gradients[key] * lines[key]) - expected) <= bound * length, key


@pytest.mark.every
@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if network.gradients])
def test_gradients_sum_to_those_that_cudnn_published(name: str) -> None:
    network = NETWORKS[name]
    given = network.fill_ones(1) | {"w": network.blob}
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = {key: tf.constant(value) for key, value in given.items()}
        outputs = call(network, *(tensors[key] for key in ("x", "h", "c", "w")), is_training=True)
        loss = tf.add_n([tf.reduce_sum(value) for value in outputs])
        wanted = {title: tensors[INPUTS[title]] for title in network.gradients}
        gradients = session.run(dict(zip(wanted, v1.gradients(loss, [*wanted.values()]), strict=True)))
        answers = session.run(dict(zip(network.outputs, outputs, strict=True)))
    assert max(network.compare(answers).values()) <= 2e-5
    for title, published in network.gradients.items():
        total = gradients[title].astype(np.float64).sum() * network.batch
        assert measure_distance(total, published) <= 2e-5, title


@pytest.mark.parametrize("mode", some([Mode.LSTM], *(mode for mode in Mode if mode is not Mode.LSTM)))
def test_gradients_are_those_that_cudnn_computed(mode: Mode) -> None:
    """Of x, both initial states and each parameter, element by element, with ragged lengths."""
    network, recorded = read_gradients(mode, layers=2, directions=2)
    for given in recorded:
        keys = ["x", "h", "c", "w"] if mode is Mode.LSTM else ["x", "h", "w"]
        with tf.Graph().as_default(), v1.Session() as session:
            feeds = {**given.feeds, "w": network.blob}
            tensors = {key: tf.constant(feeds[key]) for key in ("x", "h", "c", "w")}
            outputs = call(
                network, *tensors.values(), sequence_lengths=given.feeds["lengths"], is_training=True
            )
            pairs = zip(outputs, given.factors.values(), strict=False)
            loss = tf.add_n([tf.reduce_sum(output * factor) for output, factor in pairs])
            gradients = session.run(v1.gradients(loss, [tensors[key] for key in keys]))
        for key, gradient in zip(keys, gradients, strict=True):
            expected = given.gradients[key]
            assert np.abs(gradient - expected).max() <= 1e-5 * np.abs(expected).max(), key


def test_dropout_of_training_lies_between_layers_and_keeps_the_mean() -> None:
    """Two relu layers that copy their input: a value is dropped, or divided by the share that is kept."""
    case = Case(Mode.RNN_RELU, 2, 1, input_mode="skip_input")
    identity, zeros = np.eye(case.units, dtype=np.float32), np.zeros((case.units,) * 2, np.float32)
    x = np.random.default_rng(1).uniform(1, 2, (1, 400, case.units)).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        training = v1.placeholder(tf.bool, [])
        model = cudnn_rnn_ops.CudnnRNNRelu(2, case.units, case.units, dropout=0.75, seed=3)
        biases = [np.zeros(case.units, np.float32)] * 4
        blob = model.canonical_to_params([identity, zeros] * 2, biases)
        y, _ = model(x, tf.zeros([2, 400, case.units]), blob, is_training=training)
        single = cudnn_rnn_ops.CudnnRNNRelu(1, case.units, case.units, dropout=0.75)
        one = single.canonical_to_params([identity, zeros], biases[:2])
        alone, _ = single(x, tf.zeros([1, 400, case.units]), one, is_training=True)
        np.testing.assert_array_equal(session.run(alone), x)
        np.testing.assert_array_equal(session.run(y, {training: False}), x)
        drops = session.run(y, {training: True})
        assert (drops != session.run(y, {training: True})).any()
    kept = drops > 0
    np.testing.assert_allclose(drops[kept], 4 * x[kept], rtol=1e-6)
    assert 0.2 < kept.mean() < 0.3
