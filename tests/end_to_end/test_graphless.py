"""Checkpoints without their graph, in every format, against TensorFlow 1's own recorded answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import artifacts
from support.recorded import BOUNDS, assert_close
from support.samples import ANY_SOURCE, GRAPH_FORMATS, GRAPHLESS, ROOT, Fixture, fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.formats import Content

STATES = {"h0:0": "initial_h", "c0:0": "initial_c", "h:0": "initial_h", "c:0": "initial_c"}
ENDS = {"rnn_out:0": "outputs", "state_h:0": "state_h", "state_c:0": "state_c"}
#: Genuine checkpoints whose graph is one recurrence and nothing else, and what must be said without it.
ALONE = {
    "1.15.5-lstm_bi_2l_states": {"states": True},
    "1.15.5-gru_bi": {"states": True},
    "1.15.5-gru_uni_2l": {},
    "1.8.0-rnn_tanh_bi_2l": {"states": True},
    "1.12.3-rnn_relu_uni_2l": {"states": True},
    "1.15.5-build_prefix": {},
    "1.15.5-lstm_float16": {},
    "1.15.5-gru_bi_2l_float64": {},
    "1.15.5-moving_average": {"weights": "ema", "mode": "lstm", "layers": 1, "units": 7, "directions": 1},
    "1.15.5-raw_only": {"layers": 1, "units": 4, "directions": 2},
    "1.15.5-v3_lengths_time_major": {"lengths": True},
    "1.15.5-v3_batch_major": {"layout": "batch", "states": True},
    "1.3.0-params_lstm_2l": {"states": True},
    "1.3.0-params_gru_2l": {"states": True},
    "1.3.0-params_tanh_2l": {"states": True, "mode": "rnn_tanh", "directions": 1},
    "1.2.1-params_lstm_2l": {"states": True, "directions": 1},
    "1.2.1-params_relu_2l": {"states": True, "mode": "rnn_relu", "directions": 1},
    "1.2.1-params_lstm_square": {"states": True, "directions": 1, "mode": "lstm"},
    "1.3.0-params_lstm_bi": {"states": True, "mode": "lstm", "layers": 1, "units": 5, "directions": 2},
    "1.3.0-params_gru_bi_2l": {"states": True, "mode": "gru", "layers": 2, "units": 5, "directions": 2},
}
#: Of the formats that not all go to in the first tier: states, layers, either layout, dtypes.
FEW = {
    "onnx": tuple(
        "1.2.1-params_relu_2l 1.3.0-params_gru_bi_2l 1.15.5-gru_bi_2l_float64 1.15.5-lstm_float16 "
        "1.15.5-keras_weights_functional 1.15.5-lstm_bi_2l_states 1.15.5-object_lstm_2l".split()
    ),
    "savedmodel": ("1.15.5-lstm_bi_2l_states",),
    "frozen": (),
    "checkpoint": ("1.15.5-lstm_bi_2l_states",),
    "tflite": (),
    "safetensors": ("1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi_2l_float64", "1.15.5-v3_batch_major"),
}
#: What else an object-based checkpoint of one cell needs.
OBJECTS = {"1.15.5-object_lstm_1l": {"mode": "lstm", "units": 6}}


def without_graph(sample: Fixture, folder: Path) -> Path:
    """The prefix of a copy without the MetaGraph."""
    shutil.copytree(sample.folder, folder, ignore=shutil.ignore_patterns("*.meta"))
    return folder / "model.ckpt"


def keyed(sample: Fixture) -> list[dict[str, np.ndarray]]:
    """The golden tensors of each feed by the keys of a source without a graph, states as that has them."""
    batch_states = sample.name == "1.15.5-v3_batch_major"
    found = []
    for feed in sample.feeds():
        named = {STATES.get(key, ENDS.get(key, key)): value for key, value in feed.items()}
        named |= {"inputs": feed["x:0"]} if "x:0" in feed else {}
        named |= {"sequence_lengths": feed["lengths:0"]} if "lengths:0" in feed else {}
        for key in ("initial_h", "initial_c", "state_h", "state_c"):
            if batch_states and key in named:
                named[key] = named[key].swapaxes(0, 1)
        found.append(named)
    return found


def is_first(form: str, name: str) -> bool:
    """Whether the first tier converts a source to a format: all to one, few to the others."""
    return form == "npz" or name in FEW[form]


def given(name: str, folder: Path) -> tuple[Path, list[dict[str, np.ndarray]], dict[str, Any]]:
    """A source by its name: a prefix without its graph, the golden feeds by key, and the flags."""
    sample = fixture(name)
    if name in ALONE:
        return without_graph(sample, folder / "source"), keyed(sample), ALONE[name]
    return sample.prefix, sample.feeds(), {"states": True} | OBJECTS.get(name, {})


@pytest.mark.parametrize(
    ("form", "name"),
    [
        pytest.param(form, name, marks=tier(first=is_first(form, name)), id=f"{name}-{form}")
        for form in ANY_SOURCE
        for name in (*ALONE, *(sample.name for sample in GRAPHLESS))
    ],
)
def test_answers_as_tensorflow_1_did(tmp_path: Path, is_first_tier: bool, name: str, form: str) -> None:
    source, feeds, flags = given(name, tmp_path)
    verify = form == "onnx" or not is_first_tier
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, verify=verify, **flags)
    flat = {f"feed{n}/{key}": value for n, feed in enumerate(feeds) for key, value in feed.items()}
    np.savez(tmp_path / "golden.npz", **flat)
    jobs = artifacts.jobs_of_parts(tmp_path / "out", form, tmp_path / "golden.npz", tmp_path / f"{name}.npz")
    # Weights are of no signature: states that the feeds lack are zeros.
    if ANY_SOURCE[form].content is Content.RECURRENCES:
        for job in jobs:
            fed = {f"feed0/{one['source']}": key for key, one in job["inputs"].items()}
            job["inputs"] = {key: job["inputs"][key] for source, key in fed.items() if source in flat}
    artifacts.answer(jobs)
    files = [job["answers"] for job in jobs]
    dtype = report.recurrences[0].dtype
    bound = BOUNDS["float32" if form in ("onnx", "tflite") and dtype == "float64" else dtype]
    compared = 0
    for file in files:
        part = Path(file).name.removeprefix(f"{name}.npz.").removesuffix(".npz")
        with np.load(file) as answers:
            for key in answers.files:
                feed, _, short = key.partition("/")
                golden = feeds[int(feed.removeprefix("feed"))]
                expected = golden.get(f"{part}/{short}" if part else short)
                if expected is not None:
                    assert_close(answers[key], expected, bound, name=key)
                    compared += 1
    assert compared >= len(feeds)


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=tier(first=form == "onnx")) for form in GRAPH_FORMATS]
)
def test_several_recurrences_are_signatures_of_one_artifact(tmp_path: Path, form: str) -> None:
    sample = fixture("1.15.5-two_layers")
    source = without_graph(sample, tmp_path / "source")
    report = cudnn_convert.convert(source, tmp_path / "out", format=form)
    assert sorted(report.inputs) == ["outer_inner_encoder/inputs", "outer_inner_encoder_1/inputs"]
    assert report.verification is not None
    assert report.verification.passed
    assert {found.output for found in report.verification.outputs} >= {"outer_inner_encoder_1/state_h"}
    again = cudnn_convert.verify(source, tmp_path / "out")
    assert again.passed
    if form in ("onnx", "tflite"):
        names = sorted(path.name for path in (tmp_path / "out").glob(f"*.{form}"))
        assert names == [f"outer_inner_encoder.{form}", f"outer_inner_encoder_1.{form}"]


def test_the_parts_chained_give_the_whole_model(tmp_path: Path) -> None:
    import onnxruntime

    sample = fixture("1.15.5-two_layers")
    cudnn_convert.convert(without_graph(sample, tmp_path / "source"), tmp_path / "out", format="onnx")
    for feed in sample.feeds():
        y = feed["x:0"]
        for part in ("outer_inner_encoder", "outer_inner_encoder_1"):
            session = onnxruntime.InferenceSession(str(tmp_path / "out" / f"{part}.onnx"))
            (y,) = session.run(["outputs"], {"inputs": y})
        assert_close(y, feed["rnn_out:0"])


def test_what_a_lost_graph_leaves_out_is_listed(tmp_path: Path) -> None:
    source = without_graph(fixture("1.15.5-bilstm_tagger"), tmp_path / "lost")
    report = cudnn_convert.convert(source, tmp_path / "out.npz", verify=False)
    assert (report.alone, report.warnings) == (True, ())  # which is what that format is for
    report = cudnn_convert.convert(source, tmp_path / "out.onnx", verify=False)
    lead = "model.ckpt.meta is missing, so that recurrences alone are converted; left out: "
    cure = "; put that file beside the checkpoint, or give the graph with --architecture"
    (warning,) = report.warnings
    assert report.alone
    assert warning.startswith(lead)
    assert warning.endswith(cure)
    found = warning.removeprefix(lead).removesuffix(cure).split(", ")
    assert {*found} == {"embedding", "scores/bias", "scores/kernel"}
    inspection = cudnn_convert.inspect(source)
    assert warning in inspection.notes
    assert inspection.gpu_ops == ("cudnn_lstm",)
    source = fixture("1.15.5-object_lstm_2l").prefix
    assert not any("is missing" in note for note in cudnn_convert.inspect(source).notes)
    report = cudnn_convert.convert(source, tmp_path / "whole.onnx", verify=False)
    assert (report.alone, report.warnings) == (True, ())


def test_one_of_several(tmp_path: Path) -> None:
    source = without_graph(fixture("1.15.5-two_layers"), tmp_path / "source")
    report = cudnn_convert.convert(
        source, tmp_path / "out.onnx", format="onnx", signature="outer_inner_encoder_1"
    )
    assert report.out == str(tmp_path / "out.onnx")
    assert [found.mode for found in report.recurrences] == ["gru"]


def test_one_file_cannot_hold_several(tmp_path: Path) -> None:
    source = without_graph(fixture("1.15.5-two_layers"), tmp_path / "source")
    with pytest.raises(cudnn_convert.UsageError, match=r"a folder for .*, or choose with signature$"):
        cudnn_convert.convert(source, tmp_path / "out.onnx", format="onnx")


@pytest.mark.parametrize("prefix", ["weights", "training-1"])
def test_weights_of_mirrored_variables(tmp_path: Path, prefix: str) -> None:
    """TensorFlow 2 and Keras keep the first replica's variables of a strategy under the usual keys."""
    folder = ROOT / "tests" / "data" / "tf2" / "mirrored"
    report = cudnn_convert.convert(folder / prefix, tmp_path / "out", format="onnx")
    (one,) = report.recurrences
    assert (one.mode, one.units, one.input_size) == ("lstm", 5, 4)
    (job,) = artifacts.jobs_of_parts(tmp_path / "out", "onnx", folder / "golden.npz", tmp_path / "answers")
    artifacts.answer([job])
    with np.load(job["answers"]) as answers, np.load(folder / "golden.npz") as golden:
        for key in answers.files:
            assert_close(answers[key], golden[key], name=key)
        assert {f"feed{n}/{name}" for n in (0, 1) for name in ("outputs", "state_h", "state_c")} == {
            *answers.files
        }
