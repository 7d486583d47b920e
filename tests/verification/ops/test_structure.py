"""Graphs of TensorFlow node by node: what outputs hide, and what passes write otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import gated_models
from support.graphs import drawing, placeholder

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report.values import OpsReport
from cudnn_convert.verification.ops import ask
from cudnn_convert.verification.ops.graphs import TensorGraph
from cudnn_convert.verification.ops.structure import Comparer, describe_constants
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import make_settings

INPUTS = "x,ids"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and the frozen graph made of it."""
    folder = tmp_path_factory.mktemp("gated")
    source, out = gated_models.source(folder), folder / "out.pb"
    proof = cudnn_convert.convert(source, out, format="frozen", outputs=gated_models.OUTPUT).verification
    assert proof is not None
    assert proof.ops is not None
    assert proof.ops.verdict == "equal op by op"
    assert (proof.ops.ops, proof.ops.constants) >= (15, 8)
    assert proof.ops.gates == 3
    return source, out


def asked(source: Path, form: str, artifact: Path, *, is_copy: bool = True) -> OpsReport:
    """What statement 4 says of an artifact, with its outputs never run."""
    flags = Options.of({"format": form, "outputs": gated_models.OUTPUT})
    plan = make_plan(read_source(source, flags, tag=flags.tag), flags)
    settings = make_settings(plan, flags)
    given = Artifact(form, artifact, settings.plan, lambda *_: None)
    report = ask.report(given, settings, [], is_copy=is_copy, is_fresh=False)
    assert report is not None
    return report


@pytest.mark.parametrize("name", gated_models.CHANGES)
def test_a_wrong_node_is_seen_without_outputs(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    other = tmp_path / "other.pb"
    other.write_bytes(out.read_bytes())
    gated_models.edit(other, gated_models.CHANGES[name])
    report = asked(source, "frozen", other)
    assert report.asked
    assert not report.passed, report


def test_a_wrong_node_that_outputs_hide_fails_the_proof(pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    other = tmp_path / "other.pb"
    other.write_bytes(out.read_bytes())
    gated_models.edit(other, gated_models.CHANGES["greater_or_equal"])
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, other)
    said = "op by op: differs at gate/over:0 (Greater): expected Greater, found GreaterEqual"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("width", "name", "steps", "is_right"),
    [(4, "x", 2, True), (5, "x", 2, False), (4, "other", 2, False), (4, "x", 1, False)],
)
def test_zeros_of_the_sizes_of_what_a_recurrence_gives(
    width: int, name: str, steps: int, is_right: bool
) -> None:
    """Where its sizes alone are read, a recurrence need not run."""
    graphs = []
    for is_copy in (False, True):
        with drawing() as graph:
            inputs = {each: placeholder(each, [None, None, 3]) for each in ("x", "other")}
            y = tf.identity(inputs["x"], "rnn")
            if is_copy:
                leading = tf.shape(inputs[name])[0:steps]
                y = tf.fill(tf.concat([leading, [width]], 0), 0.0)
            tf.identity(tf.fill(tf.shape(y), 1.0), "out")
        fed, given = frozenset({"x:0", "other:0"}), {"rnn": ("x:0",)}
        graphs.append(TensorGraph(graph.as_graph_def(), fed, given, missing, widths={"rnn": 4}))
    comparer = Comparer(*graphs)
    comparer.compare([("out:0", "out:0")])
    assert bool(comparer.alike.mismatches) != is_right


def test_what_a_saver_restores_is_a_constant_all_the_same() -> None:
    """`x - variable` is a sum with a constant on both sides; the artifact has ops that restore it."""
    graphs = []
    for is_artifact in (False, True):
        with drawing() as graph:
            x = placeholder("x", [None, 3])
            mean = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="mean", name="mean")
            read = tf.raw_ops.ReadVariableOp(resource=mean, dtype=tf.float32, name="read")
            tf.subtract(x, read, name="out")
            if is_artifact:
                (stored,) = tf.raw_ops.RestoreV2(
                    prefix="p", tensor_names=["mean"], shape_and_slices=[""], dtypes=[tf.float32]
                )
                tf.raw_ops.AssignVariableOp(resource=mean, value=tf.identity(stored), name="save/Assign")
        value = np.array([0.25, -0.5, 2.0], np.float32)
        graphs.append(TensorGraph(graph.as_graph_def(), frozenset({"x:0"}), {}, lambda _, value=value: value))
    comparer = Comparer(*graphs)
    comparer.compare([("out:0", "out:0")])
    assert not comparer.alike.mismatches


def missing(node: Any) -> Any:
    raise KeyError(node.name)


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/verification/ops")
@pytest.mark.parametrize("form", ["savedmodel", "checkpoint"])
def test_other_formats_of_graphs(form: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, _ = pair
    out = tmp_path / "out"
    cudnn_convert.convert(source, out, format=form, outputs=gated_models.OUTPUT, verify=False)
    right = asked(source, form, out / "model.ckpt" if form == "checkpoint" else out)
    assert right.verdict == "equal op by op"
    if form == "savedmodel":
        gated_models.edit(out / "saved_model.pb", gated_models.CHANGES["bias"])
        start = "differs at sub:0 (Sub): a constant that it reads: at [0] expected "
        assert asked(source, form, out).verdict.startswith(start)


def test_another_tool_s_graph_is_not_refused_for_its_form(pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = pair
    other = tmp_path / "other.pb"
    other.write_bytes(out.read_bytes())
    gated_models.edit(other, gated_models.CHANGES["bias"])
    report = asked(source, "frozen", other, is_copy=False)
    assert report.passed
    assert report.not_looked_at[0].startswith("sub:0: a constant that it reads: at [0] expected ")


def test_the_predicate_of_a_choice_between_weights_is_compared(tmp_path: Path) -> None:
    rng, case = np.random.default_rng(6), gated_models.CASE
    with drawing() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 4], "x")
        one, other = (tf.constant(rng.uniform(-1, 1, (5, 3)).astype(np.float32)) for _ in range(2))
        is_open = tf.greater(tf.reduce_max(x), 50.0, name="over")
        kernel = tf.cond(is_open, lambda: tf.identity(one), lambda: tf.identity(other))
        y = case.op_call(x, tf.zeros([1, tf.shape(x)[1], 5]), tf.constant(0.0)).output
        tf.identity(tf.tensordot(y, kernel, 1), gated_models.OUTPUT)
    source, out = tmp_path / "chosen.pb", tmp_path / "out.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    cudnn_convert.convert(source, out, format="frozen", outputs=gated_models.OUTPUT, verify=False)
    assert asked(source, "frozen", out).verdict == "equal op by op"
    gated_models.edit(out, gated_models.of_op("over", "GreaterEqual"))
    assert "over:0 (Greater): expected Greater" in asked(source, "frozen", out).verdict


def test_how_constants_differ() -> None:
    value = np.array([1.0, np.nan, 3.0], np.float32)
    assert describe_constants(value, value[:2]) == "expected float32[3], found float32[2]"
    assert describe_constants(value, np.float32([1, np.nan, 4])) == "at [2] expected 3.0, found 4.0"
    assert describe_constants(np.float32([0.0]), np.float32([-0.0])) == "expected a constant of other bits"
