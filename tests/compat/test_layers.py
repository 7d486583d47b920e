"""The drop-in's layers and functions on a blob: numbers, gradients, the GPU's graph, wrong arguments."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import STEPS, Case, swapped
from support.published_networks import INPUTS, NETWORKS, measure_distance
from support.recorded_networks import read_gradients
from support.tiers import combinations, some

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.compat import cudnn_rnn, cudnn_rnn_ops
from cudnn_convert.model import Array, Mode
from cudnn_convert.weights import layouts

v1 = tf.compat.v1
LAYERS = {
    Mode.LSTM: cudnn_rnn.CudnnLSTM,
    Mode.GRU: cudnn_rnn.CudnnGRU,
    Mode.RNN_TANH: cudnn_rnn.CudnnRNNTanh,
    Mode.RNN_RELU: cudnn_rnn.CudnnRNNRelu,
}
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


def small(mode: Mode = Mode.LSTM, **named: Any) -> Any:
    """A layer of two bidirectional layers with random biases."""
    biases = v1.random_uniform_initializer(-0.5, 0.5, seed=3)
    return LAYERS[mode](2, 5, direction="bidirectional", bias_initializer=biases, seed=7, **named)


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


def test_the_default_states_of_a_batch_major_call_fit() -> None:
    """TensorFlow 1.15 took their batch from the number of steps."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = np.random.default_rng(2).normal(size=(3, STEPS, 4)).astype(np.float32)
        layer = small()
        y, (h, c) = layer(tf.constant(x), time_major=False, training=False)
        other, (h_other, c_other) = layer(tf.constant(x.swapaxes(0, 1)), training=False)
        v1.global_variables_initializer().run()
        answers = session.run([y, h, c, other, h_other, c_other])
    for ours, theirs in zip(answers[:3], answers[3:], strict=True):
        np.testing.assert_allclose(ours.swapaxes(0, 1), theirs, atol=1e-6)


class TestGpu:
    """The graph that a GPU would run: ops, gradients, and what the converter makes of it."""

    @staticmethod
    def ops(build: Callable[[], Any]) -> list[Any]:
        with tf.Graph().as_default() as graph, cudnn_rnn.build_for("GPU"):
            build()
        return [op for op in graph.get_operations() if op.type.startswith("CudnnRNN")]

    @staticmethod
    def input() -> Any:
        return v1.placeholder(tf.float32, [None, None, 4], name="x")

    def test_a_training_graph_has_the_op_and_its_gradient(self) -> None:
        def build() -> None:
            y, _ = small(dropout=0.25)(self.input())
            v1.train.AdamOptimizer().minimize(tf.reduce_sum(y))

        forward, backward = self.ops(build)
        assert (forward.type, backward.type) == ("CudnnRNNV3", "CudnnRNNBackpropV3")
        assert forward.get_attr("rnn_mode") == b"lstm"
        assert forward.get_attr("direction") == b"bidirectional"
        assert forward.get_attr("input_mode") == b"linear_input"
        assert forward.get_attr("is_training")
        assert round(forward.get_attr("dropout"), 6) == 0.25
        assert (forward.get_attr("seed"), forward.get_attr("seed2")) != (0, 0)

    def test_one_op_stands_for_all(self) -> None:
        """The third version, which has lengths: cuDNN 9 asks for them.

        It is time-major where states have several rows: TensorFlow's kernel mixes up batch-major ones.
        """

        def read(layer: Any, **given: Any) -> Any:
            (op,) = self.ops(
                lambda: layer()(self.input(), training=False, **{k: v() for k, v in given.items()})
            )
            return op

        one = partial(cudnn_rnn.CudnnGRU, 1, 5)
        ops = [
            read(small),
            read(small, sequence_lengths=lambda: tf.constant([2])),
            read(small, time_major=lambda: False),
            read(one, time_major=lambda: False),
        ]
        assert {op.type for op in ops} == {"CudnnRNNV3"}
        assert [op.get_attr("time_major") for op in ops] == [True, True, True, False]
        assert not any(op.get_attr("is_training") for op in ops)

    def test_a_tensor_for_training_has_an_op_for_each_value(self) -> None:
        v1.disable_control_flow_v2()
        try:
            found = self.ops(
                lambda: cudnn_rnn.CudnnGRU(1, 5)(self.input(), training=v1.placeholder(tf.bool, []))
            )
        finally:
            v1.enable_control_flow_v2()
        assert sorted(op.get_attr("is_training") for op in found) == [False, True]

    def test_a_machine_with_a_gpu_takes_it_unless_the_device_is_a_cpu(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["a GPU"])
        with tf.Graph().as_default() as graph:
            cudnn_rnn.CudnnGRU(1, 5, name="there")(self.input())
            with tf.device("/job:worker/device:cpu:0"):
                cudnn_rnn.CudnnGRU(1, 5, name="here")(self.input())
            with cudnn_rnn.build_for("CPU"):
                cudnn_rnn.CudnnGRU(1, 5, name="too")(self.input())
        assert [op.name for op in graph.get_operations() if op.type == "CudnnRNNV3"] == ["there/CudnnRNNV3"]
        monkeypatch.undo()
        with tf.Graph().as_default() as graph, tf.device("/gpu:0"):
            cudnn_rnn.CudnnGRU(1, 5)(self.input())
        assert "CudnnRNNV3" not in {op.type for op in graph.get_operations()}

    @combinations(
        lambda mode, time_major, has_lengths: mode is Mode.LSTM and has_lengths and not time_major,
        mode=Mode,
        time_major=(True, False),
        has_lengths=(True, False),
    )
    def test_its_checkpoint_is_converted(
        self, tmp_path: Path, mode: Mode, time_major: bool, has_lengths: bool
    ) -> None:
        """The graph of a GPU with the weights of the same model built for a CPU, which answers itself."""
        lengths = np.array([6, 2, 4], np.int32)

        def model() -> list[Any]:
            rows = v1.placeholder_with_default(lengths, [None], name="lengths") if has_lengths else None
            layer = small(mode, name="encoder")
            y, states = layer(self.input(), sequence_lengths=rows, time_major=time_major, training=False)
            return [tf.identity(value, name=f"out{number}") for number, value in enumerate([y, *states])]

        x = np.random.default_rng(4).normal(size=(6, 3, 4) if time_major else (3, 6, 4)).astype(np.float32)
        prefix = tmp_path / "model.ckpt"
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = model()
            v1.global_variables_initializer().run()
            v1.train.Saver().save(session, str(prefix))
            expected = session.run(outputs, {"x:0": x})
        with tf.Graph().as_default(), cudnn_rnn.build_for("GPU"):
            model()
            v1.train.Saver().export_meta_graph(f"{prefix}.meta")
        report = cudnn_convert.convert(prefix, tmp_path / "out.npz")
        assert [r.mode for r in report.recurrences] == [mode.value]
        cudnn_convert.convert(prefix, tmp_path / "out", verify=False)
        served = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"]
        fed = {"x": x, "lengths": lengths}
        answers = served(**{key: tf.constant(fed[key]) for key in served.structured_input_signature[1]})
        for number, value in enumerate(expected):
            np.testing.assert_allclose(answers[f"out{number}"], value, atol=2e-6)


def test_a_meta_graph_of_the_drop_in_is_imported(tmp_path: Path) -> None:
    """TensorFlow 1 wrote the saveable's name as that of an op which was not there."""
    with tf.Graph().as_default(), v1.Session() as session:
        y, _ = cudnn_rnn.CudnnGRU(1, 5, direction="bidirectional")(
            v1.placeholder(tf.float32, [None, None, 4], "x"), training=False
        )
        v1.global_variables_initializer().run()
        expected = session.run(y, {"x:0": np.ones((3, 2, 4))})
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
        name = y.name
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(str(tmp_path / "model.ckpt.meta"))
        saver.restore(session, str(tmp_path / "model.ckpt"))
        np.testing.assert_array_equal(session.run(name, {"x:0": np.ones((3, 2, 4))}), expected)


def build_twice() -> None:
    layer = small()
    layer.build([None, None, 4])
    layer._create_saveable()


def three(shape: Any = (None, None, 4)) -> Any:
    return v1.placeholder(tf.float32, shape)


def cell() -> Any:
    return cudnn_rnn.CudnnCompatibleLSTMCell(5)


def stack(forward: Any, backward: Any, **named: Any) -> Any:
    return cudnn_rnn.stack_bidirectional_dynamic_rnn(forward, backward, three(), dtype=tf.float32, **named)


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5, direction="both"),
        ValueError,
        "Invalid direction: both, expecting unidirectional or bidirectional",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5, input_mode="none"),
        ValueError,
        "Invalid input_mode: none, expect one of (linear_input, skip_input, auto_select)",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5, dtype=tf.int32),
        ValueError,
        "Only support float16, float32, float64, provided <dtype: 'int32'>",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5).build([None, 4]),
        ValueError,
        "Expecting input_shape with 3 dims, got 2",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5)(three([None, None, None])),
        ValueError,
        "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`.",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5).input_size,
        ValueError,
        "'input_size' is unknown since layer has not been built.",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5).canonical_weight_shapes,
        RuntimeError,
        "CudnnGRU.canonical_weight_shapes invoked before input shape is known",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5)(three(), initial_state=[tf.zeros([1, 2, 5])]),
        TypeError,
        "Invalid initial_state type: list, expecting tuple.",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5)(three(), initial_state=(tf.zeros([1, 2, 5]),)),
        ValueError,
        "Invalid initial_state: expecting 2 tensors, got 1",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 4, input_mode="auto_select")(three()),
        ValueError,
        "Invalid input_mode: auto_select, expecting linear_input for a layer with input_size == num_units; "
        "cudnn_rnn_ops has classes for skip_input",
    ),
    (build_twice, RuntimeError, "Cudnn saveable already created."),
    (
        lambda: cudnn_rnn_ops.CudnnLSTM(1, 5, 4, input_mode="skip_input"),
        ValueError,
        "Invalid input_mode: skip_input, expecting input_size == num_units, got 4 and 5",
    ),
    (
        lambda: cudnn_rnn_ops.cudnn_rnn_opaque_params_size("rnn", 1, 5, 4),
        ValueError,
        "Invalid rnn_mode: rnn, expect one of (lstm, gru, rnn_tanh, rnn_relu)",
    ),
    (
        lambda: cudnn_rnn.build_for("TPU").__enter__(),
        ValueError,
        "Invalid device: TPU, expecting one of (CPU, GPU)",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5).canonical_bias_shapes,
        RuntimeError,
        "CudnnGRU.canonical_bias_shapes invoked before input shape is known",
    ),
    (
        lambda: [(layer := cudnn_rnn.CudnnGRU(1, 5, name="gru"))(three()), layer(three([None, None, 6]))],
        ValueError,
        'Input 0 of layer "gru" is incompatible with the layer: expected axis -1 of input shape to '
        "have value 4, but received input with shape (None, None, 6)",
    ),
    (
        lambda: cudnn_rnn_ops.CudnnGRU(1, 5, 4, num_proj=3),
        ValueError,
        "Invalid num_proj: 3, expecting none for rnn_mode gru",
    ),
    (
        lambda: cudnn_rnn_ops.CudnnRNNTanh(1, 5, 4).canonical_to_params([tf.zeros([5, 4])], []),
        ValueError,
        "canonical parameters: expected 2 matrices and 2 biases, found 1 and 0",
    ),
    (
        lambda: cudnn_rnn_ops.cudnn_gru(three(), three([None, 2, 5]), tf.zeros([9]), False),
        ValueError,
        "Expecting known sizes of input_h [num_layers * num_dirs, batch, num_units] and of inputs' last "
        "dimension, got (None, 2, 5) and (None, None, 4)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleGRUCell(5).build([None, None]),
        ValueError,
        "Expected inputs.shape[-1] to be known, saw shape: (None, None)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleLSTMCell(5).build([None, None]),
        ValueError,
        "Expecting inputs_shape[1] to be set: (None, None)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleLSTMCell(5)(three([2, 4]), tuple([tf.zeros([2, 5])] * 3)),
        ValueError,
        "Expecting state to be a tuple with length 2.",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three([None, None, None]), dtype=tf.float32),
        ValueError,
        "Expecting inputs_shape[2] to be set: (None, None, None)",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three()),
        ValueError,
        "Either initial_state or dtype needs to be specified",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three(), initial_state=[tf.zeros([2, 5])]),
        ValueError,
        "Expecting initial_state to be a tuple with length 2 or None",
    ),
    (lambda: stack([], [cell()]), ValueError, "Must specify at least one fw cell for BidirectionalRNN."),
    (lambda: stack([cell()], []), ValueError, "Must specify at least one bw cell for BidirectionalRNN."),
    (lambda: stack((cell(),), [cell()]), ValueError, "cells_fw must be a list of RNNCells (one per layer)."),
    (lambda: stack([cell()], (cell(),)), ValueError, "cells_bw must be a list of RNNCells (one per layer)."),
    (
        lambda: stack([cell()], [cell(), cell()]),
        ValueError,
        "Forward and Backward cells must have the same depth.",
    ),
    (
        lambda: stack([cell()], [cell()], initial_states_fw=()),
        ValueError,
        "initial_states_fw must be a list of state tensors (one per layer).",
    ),
    (
        lambda: stack([cell()], [cell()], initial_states_bw=[None, None]),
        ValueError,
        "initial_states_bw must be a list of state tensors (one per layer).",
    ),
    (
        lambda: tf.train.Checkpoint(layer=cudnn_rnn.CudnnGRU(1, 5)).save("unused"),
        NotImplementedError,
        "CudnnGRU: tf.train.Checkpoint is not supported, use tf.compat.v1.train.Saver",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_a_wrong_argument_gets_the_error_of_tensorflow_1(
    wrong: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with tf.Graph().as_default(), v1.Session(), pytest.raises(kind) as caught:
        wrong()
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_a_state_of_another_width_is_refused_by_its_shape(device: str) -> None:
    with tf.Graph().as_default(), cudnn_rnn.build_for(device), pytest.raises(ValueError, match="5") as caught:
        cudnn_rnn.CudnnGRU(1, 5)(three(), initial_state=(tf.zeros([1, 2, 6]),))
    assert "6" in str(caught.value)


def test_a_blob_has_the_matrices_of_each_layer_and_then_all_biases() -> None:
    """Its values are numbers in order, so that each matrix says where it lies."""
    sizes = ("gru", 2, 3, 4)  # layers, units, inputs
    shapes = [(3, 4)] * 3 + [(3, 3)] * 9 + [(3,)] * 12
    ends = np.cumsum([0, *map(np.prod, shapes)])
    blob = np.arange(ends[-1], dtype=np.float32)
    wanted = [
        blob[begin:end].reshape(shape) for shape, begin, end in zip(shapes, ends, ends[1:], strict=False)
    ]
    model = cudnn_rnn_ops.CudnnGRU(2, 3, 4)
    with tf.Graph().as_default(), v1.Session() as session:
        lists = [
            cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(*sizes, blob),
            model.params_to_canonical(tf.constant(blob)),
        ]
        blobs = [
            cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(*sizes, *lists[0]),
            model.canonical_to_params(*lists[1]),
        ]
        counts = [cudnn_rnn_ops.cudnn_rnn_opaque_params_size(*sizes), model.params_size()]
        lists, blobs, counts = session.run((lists, blobs, counts))
    assert counts == [ends[-1]] * 2
    for weights, biases in lists:
        for value, matrix in zip([*weights, *biases], wanted, strict=True):
            np.testing.assert_array_equal(value, matrix)
    for joined in blobs:
        np.testing.assert_array_equal(joined, blob)
