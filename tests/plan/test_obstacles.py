"""What cannot run on a CPU, or not twice alike, is refused: every reason at once, each with its cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from support.graphs import BLOB, PATH, cast_dropout, drawing, floor_dropout, lstm, placeholder, v1, variable

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph
from cudnn_convert.plan import obstacles
from cudnn_convert.private import tf_private


def reasons(make: Callable[[], Any], *, hint: str | None = None, **changed: str) -> tuple[str, ...]:
    """Of a graph in which the op of each node in `changed` is another."""
    with drawing() as graph:
        make()
    made = graph.as_graph_def()
    for node in made.node:
        node.op = changed.get(node.name, node.op)
    with pytest.raises(UnsupportedModelError) as refused:
        obstacles.check_runs_on_cpu(PATH, Graph(made), hint=hint)
    return refused.value.reasons


def named_scope(make: Callable[[], Any]) -> Callable[[], Any]:
    """`make` under the scope `dropout`, so that the names of its nodes are known."""

    def within() -> Any:
        with tf.name_scope("dropout"):
            return make()

    return within


@pytest.mark.parametrize(
    ("make", "mask", "cure"),
    [
        pytest.param(
            lambda: floor_dropout(placeholder("x"), placeholder("keep_prob", [])),
            "Floor", "--set dropout/keep_prob:0=1", id="keep",
        ),
        pytest.param(
            lambda: cast_dropout(placeholder("x"), placeholder("rate", [])),
            "GreaterEqual", "--set dropout/rate:0=0", id="rate",
        ),
        pytest.param(
            lambda: floor_dropout(placeholder("x"), 1.0 - placeholder("rate", [])),
            "Floor", "--set dropout/rate:0=0", id="keep-is-1-minus-rate",
        ),
        pytest.param(
            lambda: cast_dropout(placeholder("x"), 1.0 - placeholder("keep", [])),
            "GreaterEqual", "--set dropout/keep:0=1", id="rate-is-1-minus-keep",
        ),
        pytest.param(
            lambda: floor_dropout(placeholder("x"), v1.placeholder_with_default(0.5, [], "keep")),
            "Floor", "--set dropout/keep:0=1", id="default",
        ),
        pytest.param(
            lambda: floor_dropout(placeholder("x"), tf.constant(0.5, name="keep")),
            "Floor", "--set dropout/keep:0=1", id="constant",
        ),
        pytest.param(
            lambda: cast_dropout(placeholder("x"), placeholder("a", []) * placeholder("b", [])),
            "GreaterEqual", "--set dropout/mul:0=0", id="two-placeholders",
        ),
    ],
)  # fmt: skip
def test_a_dropout_that_is_on_names_what_turns_it_off(make: Callable[[], Any], mask: str, cure: str) -> None:
    assert reasons(named_scope(make)) == (
        f"dropout/{mask}: expected no dropout at inference, found dropout that is on; "
        f"turn it off with {cure}",
    )


def test_any_other_random_op() -> None:
    def make() -> None:
        tf.raw_ops.RandomStandardNormal(shape=[2], dtype=tf.float32, name="noise")

    assert reasons(make) == (
        "noise: expected the same numbers in every run, found the random op RandomStandardNormal; "
        "bind it with --set noise:0=VALUE or cut the graph behind it with --inputs",
    )


@pytest.mark.parametrize(
    ("outputs", "advice"),
    [
        ({"y": "y:0", "out_z": "out/z:0", "drawn": "drawn:1"}, ("y, drawn", "out/z:0")),
        ({"z": "out/z:0", "y": "y:0", "more": "x:0"}, ("y", "z=out/z:0,more=x:0")),
        ({"y": "y:0"}, None),
        ({}, None),
    ],
)
def test_outputs_that_a_random_op_does_not_decide_are_named(
    outputs: dict[str, str], advice: tuple[str, str] | None
) -> None:
    with tf.Graph().as_default() as graph:
        x = placeholder("x")
        noise = tf.raw_ops.RandomStandardNormal(shape=tf.shape(x), dtype=tf.float32, name="noise")
        tf.identity(x + noise, "y")
        tf.identity(x, "out/z")
        tf.split(noise, 2, name="drawn")
    with pytest.raises(UnsupportedModelError) as caught:
        obstacles.check_runs_on_cpu(PATH, Graph(graph.as_graph_def()), outputs=outputs)
    [reason] = caught.value.reasons
    cure = ""
    if advice:
        cure = ", or leave out {}, which it decides, with --outputs {}".format(*advice)
    assert reason.endswith(f"or cut the graph behind it with --inputs{cure}")
    assert len(reason.remedies) == (advice is not None)


def test_noise_below_a_dropout_is_named_too() -> None:
    def make() -> None:
        x = placeholder("x")
        noise = tf.raw_ops.RandomStandardNormal(shape=tf.shape(x), dtype=tf.float32, name="noise")
        floor_dropout(x + noise, placeholder("keep", []))

    assert [line.partition(":")[0] for line in reasons(make)] == ["Floor", "noise"]


def normalised(x: Any, op: str, **training: bool) -> None:
    moving = {
        key: tf.zeros([0] if training.get("is_training", True) else [3]) for key in ("mean", "variance")
    }
    getattr(tf.raw_ops, op)(x=x, scale=tf.ones([3]), offset=tf.zeros([3]), **moving, name="norm", **training)


@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
def test_batch_normalisation_of_training(op: str) -> None:
    (found,) = reasons(lambda: normalised(placeholder("x", (2, 4, 4, 3)), op))
    assert found == (
        "norm: expected batch normalisation with its moving averages, found it in training mode; "
        "choose an output of the inference graph with --outputs"
    )


def test_batch_normalisation_of_inference_passes() -> None:
    with drawing() as graph:
        normalised(placeholder("x", (2, 4, 4, 3)), "FusedBatchNormV3", is_training=False)
    obstacles.check_runs_on_cpu(PATH, Graph(graph.as_graph_def()))


def test_an_op_that_tensorflow_does_not_know() -> None:
    def make() -> None:
        x = tf.identity(placeholder("x"), "before")
        for name in "abcdefg":
            tf.identity(x, name)

    (found,) = reasons(make, **dict.fromkeys("abcdefg", "MyCustomOp"))
    assert found == (
        f"a, b, c, d, e and 2 more: expected ops that run on a CPU, found MyCustomOp, "
        f"unknown to TensorFlow {tf.__version__}; cut the graph before it with --outputs before:0"
    )


def test_an_op_without_a_cpu_kernel() -> None:
    def make() -> None:
        tf.raw_ops.CudnnRNNParamsSize(
            num_layers=1, num_units=2, input_size=3, T=tf.float32, S=tf.int32, name="size"
        )

    (found,) = reasons(make)
    assert found.startswith(
        "size: expected ops that run on a CPU, found CudnnRNNParamsSize, without a CPU kernel; "
    )


def test_ops_that_the_runtime_replaces_pass() -> None:
    with drawing() as graph:
        lstm(placeholder("x"), variable("blob", BLOB.shape))
        graph_def = graph.as_graph_def()
    graph_def.node.append(node_defs.node("call", "PartitionedCall", ["x"]))
    obstacles.check_runs_on_cpu(PATH, Graph(graph_def))


def test_readers_of_what_gradients_need() -> None:
    def make() -> None:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).reserve_space, "kept")

    (found,) = reasons(make)
    assert found == (
        "kept: expected to read outputs 0 to 2 of rnn, found rnn:3, which only gradients need; "
        "choose other --outputs"
    )


def test_all_reasons_come_at_once_and_the_hint_last() -> None:
    def make() -> None:
        x = placeholder("x")
        tf.raw_ops.RandomStandardNormal(shape=[2], dtype=tf.float32, name="noise")
        normalised(placeholder("image", (2, 4, 4, 3)), "FusedBatchNormV3")
        tf.identity(lstm(x, variable("blob", BLOB.shape)).reserve_space, "kept")
        tf.identity(x, "strange")

    found = reasons(make, hint="outputs chosen from the graph: a:0", strange="MyCustomOp")
    assert [line.partition(":")[0] for line in found[:-1]] == ["noise", "norm", "strange", "kept"]
    assert found[-1] == "outputs chosen from the graph: a:0; others with --outputs"


def test_a_tensorflow_without_cuda_has_no_kernel_of_what_gpus_alone_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor has it one of PartitionedCall, which the runtime replaces."""
    monkeypatch.setattr(tf_private, "list_kernels", lambda op: [])
    has_kernel = obstacles._has_cpu_kernel.__wrapped__
    assert [has_kernel(op) for op in ("BatchFFT", "CudnnRNNParamsSize", "CTCLossV2")] == [False] * 3
    assert has_kernel("PartitionedCall")
