"""Models in chunks of steps: what a user's process gets, beside what TensorFlow 1 answered to the whole.

A conversion with `--states` proves by itself that chunks equal the whole; here the artifact runs where
cudnn_convert cannot be imported, and recorded answers judge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import artifacts
from support.command_line import command
from support.keras3_samples import exported
from support.keras_samples import keras_fixture
from support.recorded import assert_close
from support.samples import FIXTURES, ROOT, STATEFUL, Fixture, fixture
from support.tiers import combinations, tier

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source

FORMATS = ("savedmodel", "frozen", "onnx", "tflite")
#: Of chunks: of one step, of several, and ragged ones.
CHUNKS = (3, 1, 2, 7)
#: Cases that can be run in chunks; tests/plan/test_streaming.py has the reason of each other one.
STREAMED = frozenset(
    "checkpoint_sharded checkpoint_v1_sharded cond_training dropout_needs_set dropout_placeholder "
    "estimator_examples features_loss frozen_layer_norm frozen_text gru_uni_2l horovod_gathered "
    "iterator_input keras_lstm keras_lstm_states lstm_float16 lstm_uni_3l mirrored "
    "moving_average multi_worker decode_beam decoder_inputs op_auto_gru op_auto_lstm op_proj_double "
    "op_proj_plain op_skip_relu params_gru_2l "
    "params_lstm_2l params_lstm_square params_relu_2l params_tanh_2l partitioned phase queue_input "
    "regression resource_vars rnn_relu_uni_2l rnn_tanh_uni same_sizes target_saver twins_training".split()
)
#: In the first tier: last steps alone, states that were inputs, lengths with a projection, batch first.
FIRST = {
    "savedmodel": ("1.15.5-keras_lstm_states",),
    "frozen": ("1.15.5-features_loss",),
    "onnx": ("1.15.5-keras_lstm", "1.15.5-rnn_relu_uni_2l", "1.15.5-op_proj_double", "1.15.5-iterator_input"),
    "tflite": ("1.15.5-gru_uni_2l",),
}
BOUNDS = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-5}


def planned(source: Path, form: str, **flags: Any) -> Plan:
    options = Options(format=form, states=True, **flags)
    return make_plan(read_source(source, options, tag=None), options)


def streamed(sample: Fixture, form: str, folder: Path) -> tuple[cudnn_convert.Report, dict[str, Any]]:
    """Converts with its states; gives the report and the job of a user who gives each feed in chunks."""
    report, job = artifacts.convert(sample, form, folder, states=True)
    plan = planned(sample.prefix, form, **sample.options)
    streaming = plan.streaming
    assert streaming is not None
    recorded = sample.feeds()[0]
    kinds = {recurrence.node: recurrence for recurrence in plan.recurrences}
    rows = next(((report.inputs[key], axis) for key, axis in streaming.rows.items()), None)
    states = {}
    for state in streaming.states:
        # What the source begins with is recorded where it is an input of it: `h0`, or `h`.
        begins = [name for name in streaming.begins.values() if name[0] == state.kind and name in recorded]
        dtype = kinds[state.node].dtype.name
        states[state.key] = {
            "next": state.next_key,
            "shape": [state.depth, plan.graph.shapes.get_tensor_by_name(state.start).shape[1], state.width],
            "dtype": "float32" if form == "tflite" else dtype,
            "source": begins[0] if begins else "",
            "batch_first": bool(begins) and not state.time_major and recorded[begins[0]].ndim == 3,
            "rows": rows,
        }
    ends = [{name: dict(of)} for name, of in (("inputs", streaming.inputs), ("outputs", streaming.outputs))]
    stream = {**ends[0], **ends[1], "lengths": [*streaming.lengths], "chunks": CHUNKS}
    signature = {"signature": "stream"} if form == "savedmodel" else {}
    return report, {**job, **signature, "states": states, "stream": stream}


def judged(sample: Fixture, report: cudnn_convert.Report, answers: Path) -> int:
    """Compares with what was recorded; gives how many outputs were."""
    compared = 0
    dtype = max((one.dtype for one in report.recurrences), key=lambda name: BOUNDS[name])
    with np.load(answers) as arrays:
        for number, feed in enumerate(sample.feeds()):
            for key, name in report.outputs.items():
                if name not in feed:
                    continue  # a state that the recorded program did not ask for
                given, expected = arrays[f"feed{number}/{key}"], feed[name]
                given = given.reshape(expected.shape) if given.size == expected.size else given
                if expected.dtype.kind in "iuS":
                    np.testing.assert_array_equal(given.astype(expected.dtype), expected)
                else:
                    bound = BOUNDS[dtype]
                    assert_close(given, expected, bound, name=(key, number))
                compared += 1
    return compared


@pytest.mark.every
@pytest.mark.parametrize("form", FORMATS)
def test_two_sides_are_run_in_chunks_at_once(tmp_path: Path, form: str) -> None:
    """By the proof alone: the recorded sides are of different lengths."""
    source = fixture("1.15.5-keras_siamese").prefix
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, states=True)
    assert len(report.states) == 4


CASES = [
    pytest.param(sample, form, marks=tier(first=sample.name in FIRST[form]), id=f"{sample.name}-{form}")
    for sample in FIXTURES
    for form in FORMATS
    if sample.folder.name in STREAMED and sample.fits(form)
]


@pytest.mark.first("1.15.5-op_proj_double-onnx")
@pytest.mark.parametrize(("sample", "form"), CASES)
def test_chunks_answer_as_tensorflow_1_did_to_the_whole(tmp_path: Path, sample: Fixture, form: str) -> None:
    report, job = streamed(sample, form, tmp_path)
    proof = report.verification
    assert proof is not None
    assert proof.streaming is not None
    assert proof.streaming.passed
    assert proof.streaming.compared
    artifacts.answer([job])
    assert judged(sample, report, Path(job["answers"]))


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize(
    ("sample", "form"),
    [
        pytest.param(
            *(sample, form),
            marks=tier(first=(sample.folder.name, form) == ("state_lstm", "onnx")),
            id=f"{sample.name}-{form}",
        )
        for sample in STATEFUL
        for form in FORMATS
        if not sample.name.endswith("state_gru_resource")  # both directions
    ],
)
def test_state_in_variables_becomes_the_same_inputs(tmp_path: Path, sample: Fixture, form: str) -> None:
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out", format=form, states=True)
    layer = report.states[0].key.removesuffix("_h")
    assert [state.key for state in report.states] in ([f"{layer}_h"], [f"{layer}_h", f"{layer}_c"])
    assert not {name.removesuffix(":0").replace("/", "_") for name in sample.case["states"]} & {
        *report.inputs
    }
    assert cudnn_convert.verify(sample.prefix, tmp_path / "out").passed


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(fixture(f"1.15.5-{name}"), marks=tier(first=name == "object_lstm_2l"), id=name)
        for name in ("object_lstm_2l", "keras_weights_lstm", "keras_weights_gru_bi")
    ],
)
def test_weights_without_a_graph_are_run_in_chunks_too(tmp_path: Path, sample: Fixture) -> None:
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out", format="onnx", states=True)
    proof = report.verification
    assert proof is not None
    both = any(one.directions == 2 for one in report.recurrences)
    assert (proof.streaming is None) == both
    assert all(state.key.endswith(("initial_h", "initial_c")) for state in report.states)


MODELS = {"gru_speech": ("model.ckpt", "probabilities:0"), "char_lm": ("model.h5", "next")}


@pytest.mark.slow("cudnn_convert/inspection/", "cudnn_convert/plan/streaming.py")
@combinations(lambda name: name == "char_lm", name=MODELS)
def test_the_command_that_inspect_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As printed; a process without the package gives recorded calls in chunks, and gets the answers."""
    file, output = MODELS[name]
    source = ROOT / "models" / name / file
    monkeypatch.chdir(tmp_path)
    words = cudnn_convert.inspect(source).stream_command
    assert words is not None
    ended = command(*words[1:], "--quiet")
    assert (ended.code, ended.stderr) == (0, "")
    form, path, recorded = runners.identify(tmp_path / words[2])
    assert form == "savedmodel"
    assert recorded is not None
    golden = str(ROOT / "models" / name / "golden.npz")
    with np.load(golden) as data:
        feeds = sorted({key.partition("/")[0] for key in data.files})
        recordings = {key: data[key] for key in data.files}
    keys = {state["key"]: state["next_key"] for state in recorded["states"]}
    names = {
        kind: {
            key: {"source": key if f"feed0/{key}" in recordings else tensor, "artifact": tensor}
            for key, tensor in recorded[kind].items()
        }
        for kind in ("inputs", "outputs")
    }
    first = next(key for key in names["inputs"] if key not in keys and key != "lengths")
    depth, width = (2, 24) if name == "gru_speech" else (1, 40)
    zeros = {"shape": [depth, None, width], "dtype": "float32", "rows": [names["inputs"][first]["source"], 0]}
    answer = output.removesuffix(":0")
    job = {
        "artifact": str(path),
        "format": form,
        "golden": golden,
        "answers": str(tmp_path / "answers.npz"),
        "signature": "stream",
        **names,
        "states": {key: {"next": after, **zeros} for key, after in keys.items()},
        "stream": {
            "inputs": {first: 1},
            "outputs": {answer: 1},
            "chunks": CHUNKS,
            "lengths": ["lengths"] if "lengths" in names["inputs"] else [],
        },
    }
    artifacts.answer([job])
    with np.load(tmp_path / "answers.npz") as answers:
        # The second recorded call of char_lm goes on from the first, which begins with zeros.
        for feed in feeds if name == "gru_speech" else feeds[:1]:
            given, expected = answers[f"{feed}/{answer}"], recordings[f"{feed}/{output}"]
            assert_close(given, expected)


@pytest.mark.slow("cudnn_convert/plan", "cudnn_convert/verification")
def test_a_saved_model_has_both_signatures_in_both_loaders(tmp_path: Path) -> None:
    """`serving_default` begins anew in every call; what streams begins where it is told to."""
    sample = fixture("1.15.5-lstm_uni_3l")
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out", states=True)
    assert [*report.outputs] == ["probs", "cudnn_lstm_h_next", "cudnn_lstm_c_next"]
    feed = sample.feeds()[0]
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    assert {*loaded.signatures} == {"serving_default", "stream"}
    x = tf.constant(feed["x:0"])
    for _ in range(2):
        assert_close(loaded.signatures["serving_default"](x=x)["probs"].numpy(), feed["probs:0"])
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "out"))
        stream = meta.signature_def["stream"]
        shape = stream.inputs["cudnn_lstm_h"].tensor_shape.dim
        start = 0.5 * np.ones([shape[0].size, x.shape[1], shape[2].size], np.float32)
        names = {key: end.name for key, end in stream.outputs.items()}
        fed = {stream.inputs["x"].name: feed["x:0"]}
        whole = session.run(names, {**fed, stream.inputs["cudnn_lstm_h"].name: start})
    again = loaded.signatures["stream"](
        x=x, cudnn_lstm_h=tf.constant(start), cudnn_lstm_c=tf.constant(0 * start)
    )
    for key in names:
        np.testing.assert_allclose(again[key], whole[key], rtol=1e-5, atol=1e-5)
    assert np.abs(whole["probs"] - feed["probs:0"]).max() > 1e-3


@pytest.mark.slow("cudnn_convert/plan", "cudnn_convert/verification")
@pytest.mark.parametrize(
    "form", [pytest.param(one, marks=tier(first=one == "savedmodel")) for one in FORMATS]
)
def test_a_saved_model_of_tensorflow_2_streams(tmp_path: Path, form: str) -> None:
    source = exported("keras-3.15.1-lstm").path
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, states=True)
    assert [state.key for state in report.states] == ["lstm_1_h", "lstm_1_c"]
    assert cudnn_convert.verify(source, tmp_path / "out").passed


@pytest.mark.slow("cudnn_convert/verification")
def test_keras_opens_a_batch_that_its_states_held_fixed(tmp_path: Path) -> None:
    sample = keras_fixture("keras-2.2.4-stateful_lstm")
    report = cudnn_convert.convert(sample.path, tmp_path / "out", format="onnx", states=True)
    proof = report.verification
    assert proof is not None
    assert {feed["cu_dnnlstm_1_h"][1] for feed in proof.feeds} == {2, 3}


@pytest.mark.parametrize("form", ["checkpoint", "keras", "h5", "npz"])
def test_formats_without_such_inputs_say_so(tmp_path: Path, form: str) -> None:
    source = keras_fixture("keras-2.2.4-stacked").path
    ended = command(source, tmp_path / "out", "--format", form, "--states")
    assert ended.code == 2
    expected = f"--states: expected --format savedmodel, frozen, onnx, tflite, found {form}"
    assert ended.stderr.splitlines() == [f"cudnn-convert: {expected}"]
    assert not (tmp_path / "out").exists()


@pytest.mark.first("False")
@pytest.mark.parametrize("states", [False, True])
def test_inputs_of_the_user_may_leave_the_states_out(tmp_path: Path, states: bool) -> None:
    sample = fixture("1.15.5-keras_lstm_states")
    feed = sample.feeds()[0]
    arrays = {key: feed[f"{key}:0"] for key in ("x", "h0", "c0")}
    if states:
        zeros = np.zeros([1, *feed["h0:0"].shape], np.float32)
        arrays |= {"cu_dnnlstm_h": zeros + 0.25, "cu_dnnlstm_c": zeros - 0.5}
    np.savez(tmp_path / "feeds.npz", **arrays)
    report = cudnn_convert.convert(sample.prefix, tmp_path / "out", states=True, data=tmp_path / "feeds.npz")
    assert report.verification is not None
    assert {output.output for output in report.verification.outputs} >= {"serving_default/rnn_out", "rnn_out"}
