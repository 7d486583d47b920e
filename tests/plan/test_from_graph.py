"""The plan: what is taken from the file, what from the flags, what is said of it, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import (
    BLOB,
    UNITS,
    drawing,
    lstm,
    model,
    ops,
    placeholder,
    resource,
    saved,
    tagger,
    v1,
    variable,
)
from support.plans import plan_graph
from support.samples import REAL, fixture

import cudnn_convert
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError, UsageError
from cudnn_convert.model import Model, Signature
from cudnn_convert.plan import Plan
from cudnn_convert.read import read

W = np.array([0.25, -1.5], np.float32)


def again(made: Plan, source: Model) -> Plan:
    """The plan that the printed flags make."""
    flags = [flag.removeprefix("--").split("=", 1) for flag in made.flags]
    given: dict[str, list[str]] = {"inputs": [], "outputs": [], "set": [], "weights": []}
    for name, value in flags:
        given[name].append(value)
    weights = (given["weights"] or ["auto"])[0]
    return plan_graph(
        source, inputs=given["inputs"], outputs=given["outputs"], constants=given["set"], weights=weights
    )


def scaled() -> Model:
    """`x` -> `middle` -> recurrence -> `scores`, with a dropout-like placeholder `scale` in between."""
    with drawing() as graph:
        middle = tf.nn.relu(placeholder("x"), name="middle")
        y = lstm(middle, variable("blob", BLOB.shape)).output
        tf.multiply(y, placeholder("tower/scale", []), name="scores")
    return model(graph)


def test_nothing_named_and_nothing_in_the_file() -> None:
    made = plan_graph(tagger())
    assert made.signature == made.source == Signature({"x": "x:0"}, {"scores": "scores:0"})
    assert made.notes == ("outputs chosen from the graph: scores:0",)
    assert made.flags == ("--inputs=x=x:0", "--outputs=scores=scores:0")
    assert [found.node for found in made.recurrences] == ["rnn"]


SIGNATURE = Signature({"words": "x:0"}, {"answer": "scores:0", "state": "rnn:1"})


def test_the_signature_of_the_file() -> None:
    made = plan_graph(replace(tagger(), signatures={"predict": SIGNATURE}))
    assert made.signature == SIGNATURE
    assert made.notes == ()
    assert made.flags == ("--inputs=words=x:0", "--outputs=answer=scores:0,state=rnn:1")


def test_signatures_left_out_for_the_default_are_named() -> None:
    """Not one that is the default under another name."""
    other = Signature({"x": "x:0"}, {"rnn": "rnn:0"})
    source = replace(
        tagger(), signatures={"serving_default": SIGNATURE, "predict": SIGNATURE, "encode": other}
    )
    note = "signature serving_default taken, the default of the file; --signature chooses encode"
    assert note in plan_graph(source).notes
    chosen = plan_graph(source, signature="encode")
    assert chosen.signature == other
    assert not [each for each in chosen.notes if "taken" in each]


def test_several_signatures_without_a_default_are_a_choice() -> None:
    with pytest.raises(AmbiguousSourceError) as refused:
        plan_graph(replace(tagger(), signatures={"b": SIGNATURE, "a": SIGNATURE}))
    assert refused.value.reasons == (
        "signatures: expected serving_default or only one, found a, b; choose with --signature",
    )


def test_outputs_that_are_named_come_before_the_signature() -> None:
    made = plan_graph(replace(tagger(), signatures={"serving_default": SIGNATURE}), outputs=["rnn:2"])
    assert made.source.outputs == {"rnn_2": "rnn:2"}


def test_an_input_of_the_signature_that_no_output_needs_is_left_out() -> None:
    with drawing() as graph:
        placeholder("mask", (None,), tf.bool)
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, name="scores")
    signature = Signature({"x": "x:0", "m": "mask:0"}, {"scores": "scores:0"})
    source = model(graph, signatures={"serving_default": signature})
    plan = plan_graph(source)
    assert plan.signature.inputs == {"x": "x:0"}
    assert "left out of the inputs because no output needs them: m (mask:0)" in plan.notes
    assert again(plan, source).signature == plan.signature


def test_an_input_of_the_signature_that_is_bound_is_no_input() -> None:
    inputs = {"x": "x:0", "s": "tower/scale:0"}
    source = replace(scaled(), signatures={"serving_default": Signature(inputs, {"scores": "scores:0"})})
    plan = plan_graph(source, constants=["tower/scale=2"])
    assert plan.source.inputs == {"x": "x:0"}
    assert "left out of the inputs because --set binds them: s (tower/scale:0)" in plan.notes
    assert again(plan, source).signature == plan.signature


def test_keys_and_their_order_are_the_users() -> None:
    made = plan_graph(scaled(), inputs=["s=tower/scale,x"], outputs=["b=rnn:1,a=scores"])
    assert list(made.signature.inputs.items()) == [("s", "tower/scale:0"), ("x", "x:0")]
    assert list(made.signature.outputs.items()) == [("b", "rnn:1"), ("a", "scores:0")]
    assert list(plan_graph(scaled()).signature.inputs) == ["x", "tower_scale"]


def test_missing_inputs_are_all_named() -> None:
    with pytest.raises(UsageError) as refused:
        plan_graph(scaled(), inputs=["rnn_zeros"])
    assert str(refused.value) == (
        "model.ckpt: --inputs: the outputs also need x:0, tower/scale:0; add them, or bind them with --set"
    )


def test_inputs_that_nothing_needs_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        plan_graph(scaled(), inputs=["x,tower/scale,middle"])
    assert str(refused.value) == "model.ckpt: --inputs: the outputs do not need x:0; leave them out"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inputs": ["x,a=x"]}, "--inputs: expected each tensor once, found x:0 twice; leave one out"),
        (
            {"inputs": ["tower/scale,x"], "constants": ["tower/scale=1"]},
            "--set: expected a tensor that is no input, found tower/scale:0 in --inputs; leave it out of one",
        ),
        ({"constants": ["tower/scale"]}, "--set: expected TENSOR=VALUE, found 'tower/scale'"),
        (
            {"constants": ["tower/scales=1"]},
            "model.ckpt: tensor tower/scales:0: expected a tensor of the graph, found no node tower/scales; "
            "similar names are tower/scale:0",
        ),
        (
            {"outputs": ["a=rnn:0,a=rnn:1"]},
            "--inputs, --outputs: expected keys that differ, found a twice; name one of them KEY=TENSOR",
        ),
    ],
)  # fmt: skip
def test_calls_that_contradict_themselves(given: dict[str, Sequence[str]], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan_graph(scaled(), **given)
    assert str(refused.value) == message


@pytest.mark.parametrize("pattern", ["tower/scale", "tower/scale:0", "*/scale", "*scale*"])
def test_a_constant_is_bound_by_name_or_glob(pattern: str) -> None:
    made = plan_graph(scaled(), constants=[f"{pattern}=1"])
    assert made.signature.inputs == {"x": "x:0"}
    assert ops(made.graph)["tower/scale"] == "Const"


def test_a_glob_binds_every_match_that_the_outputs_need() -> None:
    with drawing() as graph:
        x = placeholder("x") * placeholder("a/keep", []) * placeholder("b/keep", [])
        tf.identity(lstm(x, variable("blob", BLOB.shape)).output, "scores")
        placeholder("c/keep", [None])  # of unknown shape: binding it would fail
    made = plan_graph(model(graph), constants=["*/keep=1"])
    assert made.signature.inputs == {"x": "x:0"}


def test_no_recurrence_on_the_way_is_said() -> None:
    made = plan_graph(tagger(), outputs=["w"])
    assert made.recurrences == ()
    assert made.notes == ("no cuDNN recurrence reaches the outputs; the graph was converted as it is",)


def test_an_input_in_the_middle_is_named_as_in_the_source() -> None:
    made = plan_graph(scaled(), inputs=["tower/scale", "h=rnn_zeros", "middle"])
    assert made.source.inputs == {"tower_scale": "tower/scale:0", "h": "rnn_zeros:0", "middle": "middle:0"}
    assert made.signature.inputs == made.source.inputs
    assert "x" not in ops(made.graph)


def test_an_iterator_is_cut_and_said() -> None:
    source = read(fixture("1.15.5-iterator_input").prefix)
    made = plan_graph(source)
    assert any(note.startswith("cut at the iterator or queue: ") for note in made.notes)
    assert again(made, source).signature == made.signature


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"inputs": ["k=x[?,4,3],tower/scale"], "outputs": ["y=scores"]}, id="shapes-and-keys"),
        pytest.param({"constants": ["*/scale=0.5"]}, id="glob"),
        pytest.param({"inputs": ["middle,tower/scale"], "outputs": ["middle,rnn:1"]}, id="middle"),
        pytest.param({"weights": "raw"}, id="raw"),
    ],
)
def test_the_flags_repeat_the_plan(given: dict[str, Any]) -> None:
    source = scaled()
    if given.get("outputs") == ["middle,rnn:1"]:
        given = {**given, "inputs": ["middle"]}
    made = plan_graph(source, **given)
    repeated = again(made, source)
    assert repeated.signature == made.signature
    assert repeated.source == made.source
    assert repeated.flags == made.flags
    assert ops(repeated.graph) == ops(made.graph)


@pytest.mark.slow("cudnn_convert/graph", "cudnn_convert/plan")
@pytest.mark.skipif(
    not (REAL / "calamari" / "model.ckpt.meta").is_file(), reason=f"no Calamari model under {REAL}"
)
def test_the_flags_repeat_the_plan_of_a_real_model() -> None:
    source = read(REAL / "calamari" / "model.ckpt")
    made = plan_graph(source, constants=["*/dropout_rate=0"])
    assert again(made, source).signature == made.signature


def test_moving_averages_are_taken_and_said() -> None:
    source = tagger()
    shadow = np.arange(BLOB.size, dtype=np.float32)
    averages = model_with(source, {"blob/ExponentialMovingAverage": shadow})
    made = plan_graph(averages, weights="ema")
    (recurrence,) = made.recurrences
    assert recurrence.cells[0][0].kernel.ravel()[:3].tolist() == [0, 1, 2]
    assert made.model.variables["w"].read().tolist() == W.tolist()  # without an average: its own value
    assert made.flags[-1] == "--weights=ema"
    assert not any("moving averages" in note for note in made.notes)
    told = "moving averages of 1 variable lie in the file and are not taken; --weights ema takes them"
    assert told in plan_graph(averages).notes
    assert not any("moving averages" in note for note in plan_graph(source).notes)
    del averages.variables["blob"]  # type: ignore[attr-defined]  # a saver of averages alone
    (found,) = plan_graph(averages, weights="ema").recurrences
    assert found.evidence.blob.tolist() == shadow.tolist()
    with pytest.raises(UnsupportedModelError, match=r"--weights ema: expected keys .*, found none"):
        plan_graph(source, weights="ema")


def model_with(source: Model, values: Mapping[str, np.ndarray]) -> Model:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(source.graph, name="")
    return model(graph, {"w": W, **values})


def test_variables_without_a_value_are_named_with_the_nearest() -> None:
    source = tagger()
    del source.variables["w"]  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedModelError) as refused:
        plan_graph(source)
    assert refused.value.reasons == (
        "variable w: expected a value of shape (2,), found no such key; does the checkpoint belong to this "
        "graph?",
    )


@pytest.mark.first("onnx-reference")
@pytest.mark.parametrize("kind", ["reference", "resource"])
@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
def test_a_variable_that_is_an_output_is_its_value(tmp_path: Path, kind: str, form: str) -> None:
    with drawing() as graph:
        y = lstm(placeholder("x"), variable("blob", BLOB.shape)).output
        w = (variable if kind == "reference" else resource)("w", [UNITS])
        value = w if kind == "reference" else tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32)
        tf.multiply(y, value, name="scores")
    prefix = saved(tmp_path, graph, {"blob": BLOB, "w": W})
    report = cudnn_convert.convert(prefix, tmp_path / "out", format=form, outputs=["w", "scores"])
    assert report.outputs == {"w": "w:0", "scores": "scores:0"}
    made = plan_graph(read(prefix), outputs=["w", "scores"])
    feeds = {"x": np.ones((4, 2, 3), np.float32)}
    found = open_artifact(form, Path(report.out), made.parts)(feeds)
    np.testing.assert_array_equal(found["w"], W)


@pytest.mark.first("frozen")
@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
def test_an_input_can_be_an_output(tmp_path: Path, form: str) -> None:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape)).output, "scores")
    prefix = saved(tmp_path, graph, {"blob": BLOB})
    names = {"inputs": ["x"], "outputs": ["again=x", "scores"]}
    report = cudnn_convert.convert(prefix, tmp_path / "out", format=form, **names)
    made = plan_graph(read(prefix), **names)
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(open_artifact(form, Path(report.out), made.parts)({"x": x})["again"], x)


def test_a_default_is_an_input_only_when_it_is_named() -> None:
    with drawing() as graph:
        x = placeholder("x") * v1.placeholder_with_default(1.0, [], "scale")
        tf.identity(lstm(x, variable("blob", BLOB.shape)).output, "scores")
    assert plan_graph(model(graph)).signature.inputs == {"x": "x:0"}
    assert plan_graph(model(graph), inputs=["x,scale"]).signature.inputs == {"x": "x:0", "scale": "scale:0"}
