"""Models that keep recurrent state in variables, in every format, against TensorFlow 1's recorded calls.

A SavedModel goes on from call to call by itself; a format of constants takes the state and gives the next.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import artifacts
from support.command_line import contents
from support.graphs import BLOB, SIZES, UNITS, drawing, placeholder, resource, saved, v1, variable
from support.recorded import assert_close
from support.samples import GRAPH_FORMATS, STATEFUL, Fixture
from support.tiers import tier
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.formats import Keeps
from cudnn_convert.reference import run, steps_from_blob

LSTM = next(found for found in STATEFUL if found.name.endswith("state_lstm"))
CONSTANT = ("frozen", "onnx", "tflite")
#: Formats as parameters, where one that keeps variables and one of constants show all.
FIRST_TWO = [
    pytest.param(form, marks=tier(first=form in ("savedmodel", "onnx")), id=form) for form in GRAPH_FORMATS
]


def begins_empty(sample: Fixture) -> bool:
    """Whether the state was a scalar 0 before the first call, as in a variable without a shape."""
    return all(sample.feeds()[0][name].shape == () for name in sample.case["states"])


def begun(sample: Fixture, path: Path) -> Path:
    """The recorded calls, the first with zeros of the shape that it wrote where the state was a scalar."""
    with np.load(sample.folder / "golden.npz") as golden:
        calls = dict(golden)
    for name, update in sample.case["states"].items() if begins_empty(sample) else ():
        calls[f"feed0/{name}"] = np.zeros_like(calls[f"feed0/{update}"])
    np.savez(path, **calls)
    return path


@pytest.mark.first("1.15.5-state_reset-onnx", "1.15.5-state_scalar-onnx")
@pytest.mark.parametrize(
    ("sample", "form"),
    [
        # An LSTM's two states in every format; what the others differ in shows in one of each kind.
        pytest.param(
            *(sample, form), marks=tier(first=sample is LSTM or form == "onnx"), id=f"{sample.name}-{form}"
        )
        for sample in STATEFUL
        for form in (*CONSTANT, "savedmodel", "checkpoint")
    ],
)
def test_calls_in_a_row(tmp_path: Path, sample: Fixture, form: str) -> None:
    report, job = artifacts.convert(sample, form, tmp_path)
    case = sample.case
    states = {name.removesuffix(":0").replace("/", "_"): name for name in case["states"]}
    outputs, inputs = list(case["outputs"]), sorted(case["inputs"])
    if Keeps.VARIABLES in GRAPH_FORMATS[form].keeps:
        assert report.notes[-1].endswith("kept as variables: a call changes what the next one gives")
        assert all(name.removesuffix(":0") in report.notes[-1] for name in case["states"])
    else:
        inputs = sorted([*inputs, *states.values()])
        outputs += [*case["states"].values()]
        assert {f"{key}_next" for key in states} < set(report.outputs)
        assert {key: report.inputs[key] for key in states} == states
        begin = "zeros" if begins_empty(sample) else "the values that the source holds"
        said = f"became inputs and outputs; a sequence begins with {begin}"
        assert [note for note in report.notes if note.endswith(said)]
        job["golden"] = str(begun(sample, tmp_path / "begun.npz"))
    assert sorted(report.inputs.values()) == inputs
    assert sorted(report.outputs.values()) == sorted(outputs)
    artifacts.answer([job])
    with np.load(job["answers"]) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key, name in report.outputs.items():
                assert_close(answers[f"feed{number}/{key}"], feed[name])


@pytest.mark.parametrize(
    "sample", [pytest.param(one, marks=tier(first=one is LSTM), id=one.name) for one in STATEFUL]
)
def test_a_session_over_a_saved_model_goes_on_too(tmp_path: Path, sample: Fixture) -> None:
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out")
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        v1.saved_model.load(session, ["serve"], str(tmp_path / "out"))
        for feed in sample.feeds():
            found = session.run(report.outputs, {name: feed[name] for name in report.inputs.values()})
            for key, name in report.outputs.items():
                assert_close(found[key], feed[name])


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("form", FIRST_TWO)
def test_a_verification_leaves_the_artifact_as_it_is(tmp_path: Path, form: str) -> None:
    cudnn_convert.convert(LSTM.prefix, tmp_path / "out", format=form)
    before = contents(tmp_path)
    assert cudnn_convert.verify(LSTM.prefix, tmp_path / "out").passed
    assert contents(tmp_path) == before


def changed(folder: Path, change: Any) -> None:
    """Lets `change` damage the nodes of a SavedModel."""
    path = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString(path.read_bytes())
    change({node.name: node for node in saved_model.meta_graphs[0].graph_def.node})
    path.write_bytes(saved_model.SerializeToString())


def forget(nodes: Any) -> None:
    """The output waits for no assignment any more."""
    kept = [name for name in nodes["Identity"].input if not name.startswith("^")]
    del nodes["Identity"].input[:]
    nodes["Identity"].input.extend(kept)


def mix_up(nodes: Any) -> None:
    """Each state gets the other's next value."""
    one, other = nodes["Assign/assign"], nodes["Assign_1/assign"]
    one.input[1], other.input[1] = other.input[1], one.input[1]


@pytest.mark.first("mix_up")
@pytest.mark.parametrize("damage", [forget, mix_up], ids=lambda damage: damage.__name__)
def test_state_that_goes_wrong_fails_the_verification(tmp_path: Path, damage: Any) -> None:
    cudnn_convert.convert(LSTM.prefix, tmp_path / "out")
    changed(tmp_path / "out", damage)
    with pytest.raises(VerificationError, match="output logits"):
        cudnn_convert.verify(LSTM.prefix, tmp_path / "out")


def test_data_of_one_call_is_given_twice(tmp_path: Path) -> None:
    """The first call alone would not show that the state is forgotten."""
    cudnn_convert.convert(LSTM.prefix, tmp_path / "out")
    changed(tmp_path / "out", forget)
    np.savez(tmp_path / "data.npz", x=np.float32(np.random.default_rng(1).standard_normal([4, 2, 4])))
    with pytest.raises(VerificationError, match="output logits"):
        cudnn_convert.verify(LSTM.prefix, tmp_path / "out", data=tmp_path / "data.npz")


def test_a_saved_model_with_the_state_asked_for(tmp_path: Path) -> None:
    """Naming a variable in `--inputs` takes it out, whatever the format; the other one stays."""
    report = cudnn_convert.convert(LSTM.prefix, tmp_path / "out", inputs=["x,h=stream/h_state"])
    assert report.inputs == {"x": "x:0", "h": "stream/h_state:0"}
    assert report.outputs == {"logits": "logits:0", "h_next": "Assign:0"}
    assert cudnn_convert.verify(LSTM.prefix, tmp_path / "out").passed
    with pytest.raises(UsageError, match="set: expected a tensor that is no state, found stream/h_state:0"):
        cudnn_convert.convert(LSTM.prefix, tmp_path / "other", set=["stream/h_state:0=0"])


def node(x: Any, h: Any) -> Any:
    """A CudnnRNN node whose two states begin as `h`."""
    return tf.raw_ops.CudnnRNN(
        input=x, input_h=h, input_c=h, params=variable("blob", BLOB.shape), is_training=False, name="rnn"
    )


H = np.array([[[0.25, -0.5], [0.125, 0.75]]], np.float32)


def expected(
    calls: list[np.ndarray], h: np.ndarray, *, update: bool = True
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Output and state of each call, by the float64 reference."""
    steps = steps_from_blob(BLOB, "lstm", layers=1, directions=1, units=UNITS, input_size=SIZES.input_size)
    found = []
    for x in calls:
        y, after, _ = run(
            steps, x.astype(np.float64), h.astype(np.float64), h.astype(np.float64), directions=1
        )
        found.append((y, after))
        h = after if update else h
    return found


CALLS = [np.random.default_rng(n).standard_normal([4 + n, 2, 3]).astype(np.float32) for n in range(3)]


def updated_aside(folder: Path, *, kind: Any = variable) -> Path:
    """A model whose update is run beside the output: `session.run([y, update])`."""
    with drawing() as graph:
        h = kind("h", [1, 2, UNITS])
        value = h if kind is variable else tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32)
        found = node(placeholder("x"), tf.identity(value, "h/read"))
        tf.identity(found.output, "y")
        if kind is variable:
            done = tf.raw_ops.Assign(ref=h, value=found.output_h, name="store").op
        else:
            done = tf.raw_ops.AssignVariableOp(resource=h, value=found.output_h, name="store")
        with tf.control_dependencies([done]):
            tf.no_op("update")
    return saved(folder, graph, {"blob": BLOB, "h": H})


@pytest.mark.parametrize("form", FIRST_TWO)
def test_an_update_that_no_output_needs_is_offered(tmp_path: Path, form: str) -> None:
    report = cudnn_convert.convert(updated_aside(tmp_path), tmp_path / "out", format=form)
    assert report.inputs == {"x": "x:0"}
    assert report.notes[-1] == (
        "store: no output needs what updates h, left out; add with --outputs y:0,store:0"
    )


@pytest.mark.first("store-reference")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("store", variable, id="store-reference"),
        pytest.param("update", resource, id="update-resource"),
        pytest.param("store", resource, marks=pytest.mark.every, id="store-resource"),
        pytest.param("update", variable, marks=pytest.mark.every, id="update-reference"),
    ],
)
def test_an_update_among_the_outputs(tmp_path: Path, name: str, kind: Any) -> None:
    prefix = updated_aside(tmp_path, kind=kind)
    report = cudnn_convert.convert(prefix, tmp_path / "kept", outputs=[f"y,{name}"])
    assert report.outputs == {"y": "y:0", "h_next": "store:0"}
    assert report.inputs == {"x": "x:0"}
    loaded = tf.saved_model.load(str(tmp_path / "kept"))
    for x, (y, after) in zip(CALLS, expected(CALLS, H), strict=True):
        found = loaded.signatures["serving_default"](x=tf.constant(x))
        np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["h_next"], after, rtol=1e-5, atol=1e-5)
    report = cudnn_convert.convert(prefix, tmp_path / "frozen", format="frozen", outputs=[f"y,{name}"])
    assert report.outputs == {"y": "y:0", "h_next": "store:0"}
    assert report.inputs == {"x": "x:0", "h": "h:0"}
    for out in ("kept", "frozen"):
        assert cudnn_convert.verify(prefix, tmp_path / out).passed


def stored(
    folder: Path, *, initial: Any = None, shape: Any = (1, 2, UNITS), held: bool = False, local: bool = True
) -> Path:
    """A model whose state is a local variable, which the checkpoint does not hold, or one that it does."""
    with drawing() as graph:
        h = tf.raw_ops.VariableV2(shape=tf.TensorShape(shape), dtype=tf.float32, name="h")
        tf.raw_ops.Assign(
            ref=h, value=H if initial is None else initial(), validate_shape=False, name="h/Assign"
        )
        value = tf.ensure_shape(tf.identity(h), [1, None, UNITS])
        found = node(placeholder("x"), value)
        with tf.control_dependencies(
            [tf.raw_ops.Assign(ref=h, value=found.output_h, validate_shape=False).op]
        ):
            tf.identity(found.output, "y")
    return saved(folder, graph, {"blob": BLOB} if local else {"blob": BLOB, "h": H})


@pytest.mark.first("onnx")
@pytest.mark.parametrize("form", FIRST_TWO)
def test_a_local_variable_begins_as_its_initializer_says(tmp_path: Path, form: str) -> None:
    report = cudnn_convert.convert(stored(tmp_path), tmp_path / "out", format=form)
    assert report.verification is not None
    if form == "savedmodel":
        loaded = tf.saved_model.load(str(tmp_path / "out"))
        for x, (y, _) in zip(CALLS, expected(CALLS, H), strict=True):
            found = loaded.signatures["serving_default"](x=tf.constant(x))
            np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-5)


def test_zeros_to_begin_with_are_said(tmp_path: Path) -> None:
    prefix = stored(tmp_path, initial=lambda: tf.zeros([1, 2, UNITS]))
    report = cudnn_convert.convert(prefix, tmp_path / "out", format="frozen")
    assert "state variable h became inputs and outputs; a sequence begins with zeros" in report.notes


def test_a_local_variable_without_a_constant_to_begin_with(tmp_path: Path) -> None:
    prefix = stored(tmp_path, initial=lambda: tf.random.uniform([1, 2, UNITS]))
    with pytest.raises(UnsupportedModelError) as refused:
        cudnn_convert.convert(prefix, tmp_path / "out")
    assert refused.value.reasons == (
        "state variable h: expected a value in the file or a constant initializer, found neither; give a "
        "file that holds it, or choose other outputs",
    )


@pytest.mark.first("onnx")
@pytest.mark.parametrize("form", FIRST_TWO)
def test_a_variable_declared_without_a_shape(tmp_path: Path, form: str) -> None:
    prefix = stored(tmp_path, shape=None, local=False)
    report = cudnn_convert.convert(prefix, tmp_path / "out", format=form)
    assert report.verification is not None
    assert {shape[1] for feed in report.verification.feeds for shape in feed.values()} == {2}
    if form == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
        x, h = (np.repeat(value, 2, axis=1)[:, :3] for value in (CALLS[0], H))
        y, after = session.run(["y", "h_next"], {"x": x, "h": h})
        for found, wanted in zip((y, after), expected([x], h)[0], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.first("true-savedmodel", "true-onnx")
@pytest.mark.parametrize("form", FIRST_TWO)
@pytest.mark.parametrize("reset", ["true", "false"])
def test_a_reset_that_is_bound(tmp_path: Path, reset: str, form: str) -> None:
    """A state that every call sets anew is none."""
    sample = next(found for found in STATEFUL if found.name.endswith("state_reset"))
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out", format=form, set=[f"reset={reset}"])
    assert report.verification is not None
    goes_on = reset == "false"
    assert ("state_next" in report.outputs) == (goes_on and form in CONSTANT)
    note = "Assign, cond/Assign: no output reads state, which it changes; left out"
    assert (note in report.notes) == (not goes_on and form in CONSTANT)


def counted(folder: Path, use: Any) -> Path:
    """A model that counts its calls; `use` says what the count is for."""
    with drawing() as graph:
        count = variable("count", [])
        y = node(placeholder("x"), tf.zeros([1, 2, UNITS])).output
        with tf.control_dependencies([tf.raw_ops.AssignAdd(ref=count, value=1.0, name="tick")]):
            tf.identity(use(y, count), "y")
    return saved(folder, graph, {"blob": BLOB, "count": np.float32(3)})


@pytest.mark.parametrize("form", [pytest.param(form, marks=tier(first=form == "onnx")) for form in CONSTANT])
def test_a_counter_that_nothing_reads_is_left_out(tmp_path: Path, form: str) -> None:
    report = cudnn_convert.convert(counted(tmp_path, lambda y, _: y), tmp_path / "out", format=form)
    assert report.inputs == {"x": "x:0"}
    assert report.notes[-1] == "tick: no output reads count, which it changes; left out"
    assert cudnn_convert.verify(tmp_path / "model.ckpt", tmp_path / "out").passed


@pytest.mark.parametrize("form", CONSTANT)
def test_a_counter_that_an_output_reads_is_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        cudnn_convert.convert(counted(tmp_path, lambda y, count: y * count), tmp_path / "out", format=form)
    assert refused.value.reasons == (
        "variable count: expected one that is only read, or a recurrence's state, found that tick changes "
        'it; choose other outputs, or format="savedmodel"',
    )
