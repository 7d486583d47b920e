"""A recurrence in a graph: the ops of a GPU, and what the converter makes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.drop_in import small
from support.tiers import combinations

import cudnn_convert
from cudnn_convert.compat import cudnn_rnn
from cudnn_convert.model import Mode

v1 = tf.compat.v1


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

    @pytest.mark.slow("cudnn_convert/compat", "cudnn_convert/recurrences")
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


def three(shape: Any = (None, None, 4)) -> Any:
    return v1.placeholder(tf.float32, shape)


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_a_state_of_another_width_is_refused_by_its_shape(device: str) -> None:
    with tf.Graph().as_default(), cudnn_rnn.build_for(device), pytest.raises(ValueError, match="5") as caught:
        cudnn_rnn.CudnnGRU(1, 5)(three(), initial_state=(tf.zeros([1, 2, 6]),))
    assert "6" in str(caught.value)
