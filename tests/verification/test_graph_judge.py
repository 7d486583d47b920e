"""The judge runs arithmetic only, on feeds that end no process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.checkpoints import save
from support.graphs import BLOB, UNITS, drawing, lstm, model, placeholder, resource, saved, v1, variable
from support.plans import plan_graph
from support.samples import fixture

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError
from cudnn_convert.graph.index import Index
from cudnn_convert.model import BlobEvidence, Checkpoint, Model
from cudnn_convert.plan import Plan
from cudnn_convert.read import read, variable_keys
from cudnn_convert.verification import graph_judge

# The judge runs arithmetic only, unless the user vouches for the file.

FEED = {"x:0": np.ones((4, 2, 3), np.float32)}
CURE = "vouch for the file with --trust, or convert with --no-verify"


def acting(act: Callable[[Any], Any]) -> tf.Graph:
    """`scores`, which cannot be computed before `act` was done with its text."""
    with drawing() as graph:
        y = lstm(placeholder("x"), variable("blob", BLOB.shape)).output
        with tf.control_dependencies([act(tf.constant("text"))]):
            tf.identity(y, name="scores")
    return graph


def write(path: Path) -> Callable[[Any], Any]:
    return lambda text: tf.raw_ops.WriteFile(filename=str(path), contents=text, name="write")


def within_a_function(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`act` in the library, two calls away from the graph."""

    @tf.function(autograph=False)
    def inner(text: Any) -> Any:
        with tf.control_dependencies([act(text)]):
            return tf.identity(text)

    @tf.function(autograph=False)
    def outer(text: Any) -> Any:
        return inner(text)

    return outer


def planned(graph: tf.Graph) -> Plan:
    return plan_graph(model(graph), outputs=["scores"])


@pytest.mark.parametrize(
    ("wrap", "scope"),
    [(lambda act: act, ""), (within_a_function, "StatefulPartitionedCall/StatefulPartitionedCall/")],
    ids=["graph", "function"],
)
def test_no_file_is_written_unless_the_file_is_trusted(tmp_path: Path, wrap: Any, scope: str) -> None:
    target = tmp_path / "written"
    made = planned(acting(wrap(write(target))))
    with pytest.raises(UnsupportedModelError) as refused, graph_judge.open_source(made) as judge:
        judge.run(FEED, ["scores:0"])
    assert refused.value.reasons == (
        f"{scope}write: expected arithmetic only while verifying, found WriteFile; {CURE}",
    )
    assert not target.exists()
    with graph_judge.open_source(made, trust=True) as judge:
        judge.run(FEED, ["scores:0"])
    assert target.read_text() == "text"


def test_a_conversion_of_such_a_checkpoint(tmp_path: Path) -> None:
    target, out = tmp_path / "written", tmp_path / "out"
    prefix = saved(tmp_path, acting(write(target)), {"blob": BLOB})
    names = {"outputs": ["scores"]}
    with pytest.raises(UnsupportedModelError, match="found WriteFile"):
        cudnn_convert.convert(prefix, out, **names)
    assert not target.exists()
    assert not out.exists()
    cudnn_convert.convert(prefix, out, verify=False, **names)
    assert not target.exists()
    cudnn_convert.convert(prefix, out, trust=True, force=True, **names)
    assert target.read_text() == "text"


ACTS: dict[str, Callable[[Any], Any]] = {
    "PyFunc": lambda text: tf.raw_ops.PyFunc(input=[text], token="pyfunc_0", Tout=[tf.string], name="act")[0],
    "PyFuncStateless": lambda text: tf.raw_ops.PyFuncStateless(
        input=[text], token="pyfunc_0", Tout=[tf.string], name="act"
    )[0],
    "EagerPyFunc": lambda text: tf.raw_ops.EagerPyFunc(
        input=[text], token="pyfunc_0", Tout=[tf.string], name="act"
    )[0],
    "ReadFile": lambda text: tf.raw_ops.ReadFile(filename=text, name="act"),
    "MatchingFiles": lambda text: tf.raw_ops.MatchingFiles(pattern=text, name="act"),
    "PrintV2": lambda text: tf.raw_ops.PrintV2(input=text, output_stream="file:///dev/null", name="act"),
    "DebugIdentity": lambda text: tf.raw_ops.DebugIdentity(
        input=text, debug_urls=["file:///tmp"], name="act"
    ),
    "SaveV2": lambda text: tf.raw_ops.SaveV2(
        prefix=text, tensor_names=["a"], shape_and_slices=[""], tensors=[text], name="act"
    ),
    "RestoreV2": lambda text: tf.raw_ops.RestoreV2(
        prefix=text, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32], name="act"
    )[0],
}


@pytest.mark.parametrize("op", ACTS)
def test_what_reaches_outside_is_refused(op: str) -> None:
    made = planned(acting(ACTS[op]))
    with pytest.raises(UnsupportedModelError) as refused, graph_judge.open_source(made):
        pass
    assert refused.value.reasons == (f"act: expected arithmetic only while verifying, found {op}; {CURE}",)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_call_of_python_may_stand_where_nothing_reaches_it(is_taken: bool) -> None:
    with drawing() as graph:
        x = placeholder("x")
        call = lambda: tf.ensure_shape(  # noqa: E731
            tf.raw_ops.PyFunc(input=[x], token="pyfunc_0", Tout=[tf.float32], name="act")[0], x.shape
        )
        called = v1.cond(tf.constant(is_taken), call, lambda: tf.identity(x))
        tf.identity(lstm(called, variable("blob", BLOB.shape)).output, "scores")
    if is_taken:
        with pytest.raises(UnsupportedModelError, match="found PyFunc"):
            graph_judge.open_source(planned(graph)).__enter__()
        return
    with graph_judge.open_source(planned(graph)) as judge:
        (scores,) = judge.run(FEED, ["scores:0"])
    assert scores.shape == (4, 2, UNITS)


def test_what_only_prints_or_asserts_is_run(capfd: pytest.CaptureFixture[str]) -> None:
    def act(text: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[text])]):
            return tf.raw_ops.PrintV2(input=text)

    with graph_judge.open_source(planned(acting(act))) as judge:
        (scores,) = judge.run(FEED, ["scores:0"])
    assert scores.shape == (4, 2, UNITS)


def test_effects_that_the_outputs_do_not_need_are_no_matter(tmp_path: Path) -> None:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, "scores")
        write(tmp_path / "written")(tf.constant("text"))
    with graph_judge.open_source(planned(graph)) as judge:
        judge.run(FEED, ["scores:0"])
    assert not (tmp_path / "written").exists()


@pytest.mark.first("True")
@pytest.mark.parametrize("is_read", [False, True])
def test_a_variable_may_be_written_that_no_output_reads(tmp_path: Path, is_read: bool) -> None:
    """As the seed of a layer with dropout; one that outputs read makes the next answer another one."""
    with drawing() as graph:
        y, seed = lstm(placeholder("x"), variable("blob", BLOB.shape)).output, resource("seed", [])
        value = tf.raw_ops.ReadVariableOp(resource=seed, dtype=tf.float32)
        count = tf.raw_ops.AssignVariableOp(resource=seed, value=value + 1, name="count")
        with tf.control_dependencies([count]):
            tf.add(y, value if is_read else tf.zeros_like(y), name="scores")
    prefix = saved(tmp_path, graph, {"blob": BLOB, "seed": np.float32(2)})
    if is_read:
        reason = f"count: expected arithmetic only while verifying, found AssignVariableOp; {CURE}"
        with pytest.raises(UnsupportedModelError) as refused:
            graph_judge.open_source(plan_graph(read(prefix), outputs=["scores"])).__enter__()
        assert refused.value.reasons == (reason,)
        return
    report = cudnn_convert.convert(prefix, tmp_path / "out", outputs=["scores"])
    assert report.verification is not None
    assert report.verification.end_to_end == "equal"


def simple() -> Model:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, "scores")
    return model(graph)


def test_the_judge_notes_the_time_and_batch_that_recurrences_see() -> None:
    with graph_judge.open_source(plan_graph(simple())) as judge:
        judge.run(FEED, ["scores:0"])
        assert judge.sizes == [(4, 2)]
        judge.run({"x:0": np.ones((4, 5, 3), np.float32)}, ["scores:0"])
        assert judge.sizes == [(4, 5)]


def test_the_judge_computes_in_the_dtype_asked_for() -> None:
    made = plan_graph(simple())
    answers = []
    for dtype in (np.float64, np.float32, np.float16):
        with graph_judge.open_source(made, dtype=dtype) as judge:
            answers.append(judge.run(FEED, ["scores:0"])[0])
    exact, single, half = answers
    assert np.abs(single - exact).max() < 1e-6
    assert 1e-5 < np.abs(half - exact).max() < 1e-2


def test_a_feed_is_run_once_but_for_what_is_asked_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    run = reference.run

    def counting(*given: Any, **named: Any) -> Any:
        ran.append(1)
        return run(*given, **named)

    monkeypatch.setattr(reference, "run", counting)
    other = {"x:0": 2 * FEED["x:0"]}
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, name="scores")
    with graph_judge.open_source(planned(graph)) as judge:
        first = judge.run(FEED, ["scores:0"])[0].copy()
        (second,), again = judge.run(other, ["scores:0"]), judge.run(FEED, ["scores:0"])[0]
        assert len(ran) == 2
        assert judge.sizes == [(4, 2)]
        assert len(judge.draw.calls) == 1
        np.testing.assert_array_equal(judge.draw.calls[0].x, FEED["x:0"])
        np.testing.assert_array_equal(again, first)
        assert np.abs(second - first).max() > 1e-3
        judge.draw.disturbed = [one.node for one in plan_graph(model(graph), outputs=["scores"]).recurrences]
        assert np.abs(judge.run(FEED, ["scores:0"])[0] - first).max() > 1e-4
        judge.draw.disturbed = ()
        judge.draw.number = 1
        judge.run(FEED, ["scores:0"])
        assert len(ran) == 4
        judge.draw.number = 0
        np.testing.assert_array_equal(judge.run(FEED, ["scores:0"])[0], first)
        assert len(ran) == 4


# BlockLSTM in a source that is run: no feed ends the process, and rounding is judged by its own type.


def test_more_steps_than_the_input_has(out: Path, tmp_path: Path) -> None:
    sample = fixture("1.15.5-block_fused_lengths")
    feed = sample.feeds()[0]
    data = {key: feed[f"{key}:0"] for key in ("x", "c0", "h0", "lengths")}
    data["lengths"] = np.array([4, 8, 6], np.int32)  # of 7 steps
    np.savez(tmp_path / "data.npz", **data)
    with pytest.raises(UsageError, match="the model does not accept these inputs"):
        cudnn_convert.convert(sample.prefix, out, data=tmp_path / "data.npz", **sample.options)
    assert not out.exists()


def test_half_is_judged_as_half(out: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with drawing() as graph:
        x = placeholder("x", (None, None, 3))
        variables = {"w": rng.uniform(-1, 1, (7, 16)), "b": rng.uniform(-1, 1, 16)}
        values = {name: value.astype(np.float16) for name, value in variables.items()}
        w, b = (tf.raw_ops.VariableV2(shape=v.shape, dtype=tf.half, name=n) for n, v in values.items())
        zeros, unused = tf.zeros([tf.shape(x)[1], 4], tf.half), tf.zeros([4], tf.half)
        found = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(tf.shape(x)[0], tf.int64), x=tf.cast(x, tf.half), cs_prev=zeros, h_prev=zeros,
            w=w, wci=unused, wcf=unused, wco=unused, b=b, cell_clip=-1,
        )  # fmt: skip
        tf.cast(found.h, tf.float32, name="y")
    report = cudnn_convert.convert(saved(tmp_path, graph, values), out, format="onnx", outputs="y")
    assert report.verification is not None
    (judged,) = report.verification.outputs
    assert judged.reason.startswith("float16")
    assert judged.worst > 1e-5


# The judge's own reading of a saver: genuine checkpoints whose keys a reader may mistake.

AVERAGES, TARGET = "1.15.5-averages_saver", "1.15.5-target_saver"


@pytest.mark.first("1.15.5-averages_saver-onnx")
@pytest.mark.parametrize(
    ("name", "form"), [(AVERAGES, "savedmodel"), (AVERAGES, "onnx"), (TARGET, "savedmodel")]
)
def test_values_of_a_wrong_key_do_not_verify(
    out: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """A reader that takes each variable by its own name."""
    monkeypatch.setattr(variable_keys, "find", lambda meta, tensors: variable_keys.Values())
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.convert(fixture(name).prefix, out, format=form, weights="raw")
    assert not out.exists()


def test_what_the_reader_took_rightly_is_left_to_it() -> None:
    plan = plan_graph(read(fixture(AVERAGES).prefix))
    judged = graph_judge.with_restored_values(plan)
    assert judged.model.variables == plan.model.variables
    key = "cudnn_lstm/opaque_kernel/ExponentialMovingAverage"
    for one in (plan, judged):
        (recurrence,) = one.recurrences
        assert isinstance(recurrence.evidence, BlobEvidence)
        np.testing.assert_array_equal(recurrence.evidence.blob, plan.model.variables[key].read())


def test_averages_that_are_asked_for_overrule_the_saver() -> None:
    plan = plan_graph(read(fixture("1.15.5-moving_average").prefix), weights="ema")
    assert graph_judge.with_restored_values(plan) is plan


def test_a_note_names_the_keys() -> None:
    (note,) = (one for one in read(fixture(TARGET).prefix).notes if "saver" in one)
    assert "target/values/kernel from online/values/kernel" in note


def entries(tmp_path: Path, meta: Any) -> dict[str, tuple[str, str]]:
    found = graph_judge._entries(Checkpoint(meta, tmp_path / "model.ckpt"))
    return {name: (entry.key, entry.slices) for name, entry in found}


def saver() -> Any:
    """The MetaGraph of a saver of `{"a": w}`; the variable is a resource."""
    with v1.Graph().as_default():
        w = v1.get_variable("w", [2], use_resource=True)
        return v1.train.Saver({"a": w}).export_meta_graph()


def test_the_names_that_the_restore_op_is_given(tmp_path: Path) -> None:
    assert entries(tmp_path, saver()) == {"w": ("a", "")}


def test_names_that_more_than_arithmetic_makes_are_not_evaluated(tmp_path: Path) -> None:
    meta = saver()
    node = next(node for node in meta.graph_def.node if node.name.endswith("RestoreV2/tensor_names"))
    node.op = "ReadFile"
    node.ClearField("attr")
    node.input.append("save/Const")
    assert entries(tmp_path, meta) == {}


def test_a_graph_without_its_saver_says_nothing(tmp_path: Path) -> None:
    meta = saver()
    meta.ClearField("saver_def")
    assert entries(tmp_path, meta) == {}
    assert Index(meta.graph_def).nodes


def test_an_entry_that_tensorflow_cannot_read(tmp_path: Path) -> None:
    prefix = save(tmp_path / "a", [("w", np.ones(2, np.float32))])
    with pytest.raises(ReadError, match="tensor lost: expected an entry that TensorFlow restores"):
        graph_judge._read(prefix, graph_judge._Entry("lost", ""))
