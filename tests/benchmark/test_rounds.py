"""Models measured in turns: what is compared, what is said, and what is refused. No test asks for seconds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.browser import measure_in_frame
from support.command_line import Ended, command
from support.samples import ROOT

from cudnn_convert.benchmark import answers, models, page, worker
from cudnn_convert.benchmark.answers import disagreement
from cudnn_convert.benchmark.models import FeedSizes
from cudnn_convert.benchmark.rounds import BenchmarkResult, Measurement
from cudnn_convert.options import Options

RNG = np.random.default_rng(2)
WEIGHTS = RNG.normal(size=(3, 5)).astype(np.float32)
QUICK = ("--batch", "2,3", "--steps", "4", "--rounds", "6")


def dense(path: Path, *, off: float = 0.0, depth: int = 1) -> Path:
    """An ONNX model of x [?, ?, 3], whose first layer is the same whatever its depth."""
    first = numpy_helper.from_array(WEIGHTS + np.float32(off), "w")
    second = numpy_helper.from_array(np.eye(5, dtype=np.float32), "i")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y0"])]
    nodes += [helper.make_node("MatMul", [f"y{k}", "i"], [f"y{k + 1}"]) for k in range(depth)]
    nodes += [helper.make_node("Identity", [f"y{depth}"], ["y"])]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, 3])]
    gives = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None, 5])]
    graph = helper.make_graph(nodes, "g", ends, gives, [first, second])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def benchmark(*words: Any) -> Ended:
    return command("benchmark", *words)


def test_models_are_compared_where_they_answer_alike(tmp_path: Path) -> None:
    base, deep = dense(tmp_path / "a.onnx"), dense(tmp_path / "deep.onnx", depth=300)
    other, report = dense(tmp_path / "other.onnx", off=0.05), tmp_path / "b.html"
    ended = benchmark(deep, other, "--against", base, *QUICK, "--json", "--report", report)
    assert ended.code == 0, ended.stderr
    assert "note: inputs: x [batch, steps, 3] (--layout says which axis is first)" in ended.stderr
    found = json.loads(ended.stdout)
    assert found == json.loads(report.with_suffix(".json").read_text())
    rows = found["results"]
    wanted = "model format batch steps threads median_us p99_us first_call_us load_s peak_mb ratio"
    assert all({*wanted.split()} <= row.keys() for row in rows)
    assert [(row["model"], row["batch"]) for row in rows] == [
        (str(model), batch) for model in (base, deep, other) for batch in (2, 3)
    ]
    for row in rows:
        assert (row["format"], row["steps"], row["threads"]) == ("onnx", 4, 1)
        assert 0 < row["median_low_us"] <= row["median_us"] <= row["median_high_us"]
        assert row["p99_us"] >= row["median_us"] and row["load_s"] > 0 and row["first_call_us"] > 0
        assert row["per_second"] == pytest.approx(row["batch"] / row["median_us"] * 1e6, rel=0.01)
    assert {row["ratio"] for row in rows if row["model"] == str(base)} == {1}
    assert all(row["ratio_high"] < 0.5 for row in rows if row["model"] == str(deep)), "300 layers more"
    assert all(row["ratio"] is None for row in rows if row["model"] == str(other))
    assert re.fullmatch(r"output y: \d\.\de-0[12] apart", rows[-1]["incomparable"])
    text = report.read_text()
    assert (
        re.search(r"<h1>0\.\d\d( to 0\.\d\d)? times as fast as a.onnx</h1>", text)
        and "not comparable" in text
        and "<script" not in text
    )
    assert benchmark(base, *QUICK, "--report", report).code == 2, "a report is replaced by --force alone"
    assert benchmark(base, "--report", base, "--force").code == 2, "never a model"


def test_feeds_of_the_user(tmp_path: Path) -> None:
    base, again = dense(tmp_path / "a.onnx"), dense(tmp_path / "b.onnx")
    np.savez(tmp_path / "d.npz", x=RNG.normal(size=(7, 4, 3)).astype(np.float32))
    ended = benchmark(base, again, "--data", tmp_path / "d.npz", "--rounds", "2", "--json", "--quiet")
    assert ended.code == 0 and not ended.stderr
    found = json.loads(ended.stdout)
    assert [(row["batch"], row["steps"]) for row in found["results"]] == [(7, None)] * 2
    assert found["notes"] == [f"data: {tmp_path / 'd.npz'}"]
    ended = benchmark(base, "--data", tmp_path / "d.npz", "--steps", "3")
    assert (ended.code, ended.stderr) == (
        2, "cudnn-convert: --steps cannot be combined with --data, which has its own; leave one out\n",
    )  # fmt: skip


def test_a_process_asks_every_feed_and_binds_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    server = worker._Server()
    server._opening, server._feeds = SimpleNamespace(run=seen.append), ["a", "b", "c"]  # type: ignore[list-item]
    assert len(server._measure(5)) == 5 and seen == ["a", "b", "c", "a", "b"]
    np.savez(tmp_path / "d.npz", x=np.arange(7))
    server._options = Options(data=tmp_path / "d.npz")
    for batch, shapes in ((3, [3]), (0, [7])):
        answer = server.read(batch=batch, seed=1, out=str(tmp_path / "out.npz"))
        assert answer["shapes"] == {"x": shapes}
    monkeypatch.setattr(worker.os, "environ", environment := {})
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: {4, 2, 7}, raising=False)
    monkeypatch.setattr(
        worker.os, "sched_setaffinity", lambda pid, cores: seen.append((pid, [*cores])), raising=False
    )
    worker.bind_to_cores(2)
    assert seen[-1] == (0, [2, 4]) and {*environment.values()} == {"2"}


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    base = dense(tmp_path / "a.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    for words, code, told in (
        ([base, tmp_path / "broken.onnx"], 1, "broken.onnx: file: expected an ONNX model, found none"),
        ([base, "--threads", "9999"], 2, "--threads: expected at most "),
        ([base, "--batch", "0"], 2, "expected whole numbers above 0 apart by commas, found '0'"),
        ([base, "--rounds", "0"], 2, "--rounds: expected at least 1, found 0"),
        ([base, "--profile", tmp_path], 2, "expected a new or an empty folder, found another"),
        ([tmp_path / "no.onnx"], 1, "expected a SavedModel"),
    ):
        ended = benchmark(*words, *(() if "--batch" in words else QUICK[:2]))
        assert ended.code == code, ended.stderr
        assert told in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_a_profile_of_a_recurrence_in_onnx_runtime(tmp_path: Path) -> None:
    weights = {
        "w": RNG.normal(size=(1, 4 * 48, 3)), "r": RNG.normal(size=(1, 4 * 48, 48)) / 9,
    }  # fmt: skip
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="cell", hidden_size=48)]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, 3])]
    gives = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1, None, 48])]
    values = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ends, gives, values)
    path, folder = tmp_path / "lstm.onnx", tmp_path / "profile"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    ended = benchmark(
        path, "--layout", "time", "--batch", "16", "--steps", "300", "--rounds", "2", "--profile", folder
    )
    assert ended.code == 0, ended.stderr
    assert "inputs: x [steps, batch, 3]" in ended.stderr
    assert f"{path}, 1 thread: the recurrence takes " in ended.stdout, ended.stdout
    assert "of the work, most of it cell;" in ended.stdout
    assert [*folder.rglob("onnxruntime*.json")]


@pytest.mark.every
def test_threads_that_fight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tf_keras
    from support.fighting import Fighting

    from cudnn_convert.benchmark.rounds import count_cores

    if count_cores() < 2:
        pytest.skip("a machine with one core")
    path, folder = tmp_path / "model.h5", tmp_path / "profile"
    tf_keras.Sequential([tf_keras.layers.Input((None, 3)), Fighting()]).save(path)
    monkeypatch.syspath_prepend(ROOT / "tests")
    ended = benchmark(
        path, "--custom-objects", "support.fighting:Fighting", "--batch", "2", "--steps", "3",
        "--rounds", "3", "--threads", "1,2", "--profile", folder,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    match = re.search(r"model.h5, 2 threads: threads fight: one is ([\d.]+)x as fast as 2; ", ended.stdout)
    assert match is not None and float(match[1]) > 2, ended.stdout
    assert f"{path}, 1 thread: threads fight" not in ended.stdout


@pytest.mark.every
def test_every_runtime_and_a_graph_of_another_tool(tmp_path: Path) -> None:
    """A tagger's forms beside the same network of TensorFlow's own ops, frozen without provenance."""
    import tensorflow as tf

    source = ROOT / "models" / "gru_speech" / "model.ckpt"
    built = {"saved": "savedmodel", "a.onnx": "onnx", "a.tflite": "tflite", "a.pb": "frozen"}
    for name, form in built.items():
        made = command(source, tmp_path / name, "--format", form, "--no-verify")
        assert made.code == 0, made.stderr
    graph = tf.compat.v1.GraphDef.FromString((tmp_path / "a.pb").read_bytes())
    for node in graph.node:
        node.attr.pop("_cudnn_convert", None)
        for key in [key for key in node.attr if "cudnn_convert" in key]:
            del node.attr[key]
    (tmp_path / "foreign.pb").write_bytes(graph.SerializeToString())
    paths = [tmp_path / name for name in ("foreign.pb", "saved", "a.onnx", "a.tflite")]
    profiles = tmp_path / "profiles"
    sizes = ("--batch", "2", "--steps", "5", "--rounds", "2")
    ended = benchmark(*paths, *sizes)
    assert ended.code == 1 and "choose with --outputs probabilities:0 | " in ended.stderr
    ended = benchmark(*paths, *sizes, "--outputs", "probabilities:0", "--json", "--profile", profiles)
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert [row["format"] for row in found["results"]] == ["frozen", "savedmodel", "onnx", "tflite"]
    assert all(row["ratio"] is not None for row in found["results"]), found
    assert [profile["format"] for profile in found["profiles"]] == ["frozen", "savedmodel", "onnx", "tflite"]
    for profile in found["profiles"]:
        assert sum(part["share"] for part in profile["parts"]) == pytest.approx(1, abs=0.05)


def test_the_sizes_of_inputs() -> None:
    from cudnn_convert.artifacts.runners import Interface, TensorSpec
    from cudnn_convert.model import SERVING, Part, Signature

    specs = {
        "x": TensorSpec(np.dtype(np.float32), (None, None, 3)),
        "n": TensorSpec(np.dtype(np.int32), (None,)),
        "fixed": TensorSpec(np.dtype(np.float32), (2, None)),
        "mask": TensorSpec(np.dtype(bool), (None, None)),
    }
    interface = Interface(Part(SERVING, Signature.of_names(specs, ["y"])), specs)
    opening = models.Opening("onnx", Path("m"), interface, None)  # type: ignore[arg-type]
    for time_first, x in ((False, (4, 9, 3)), (True, (9, 4, 3))):
        feed, ones = models._draw_feeds(opening, FeedSizes(4, 9, time_first), 1)
        assert {key: value.shape for key, value in feed.items()} == {
            "x": x, "n": (4,), "fixed": (2, 9), "mask": x[:2],
        }  # fmt: skip
        assert (feed["n"] == 9).all() and feed["mask"].all() and (ones["n"] == 1).all()
    assert models.has_steps(interface)


def test_answers_are_paired_and_compared(tmp_path: Path) -> None:
    value = np.array([1.0, np.nan, -2.0], np.float32)
    close, ids = {"scope_y": value + np.float32(1e-4)}, np.array([1, 2])
    assert disagreement({"scope/y:0": value}, close, atol=1e-3, rtol=0) is None
    assert disagreement({"scope/y:0": value}, close, atol=1e-5, rtol=0) == "output scope/y:0: 1.0e-04 apart"
    assert disagreement({"a": ids}, {"b": ids}, atol=0, rtol=0) is None, "by place"
    assert disagreement({"a": ids, "b": value}, {"c": ids, "d": value}, atol=0, rtol=0) is None
    assert disagreement({"a": ids}, {"b": ids + 1}, atol=9, rtol=9) == "output a: other values"
    assert disagreement({"a": ids}, {"a": ids[None]}, atol=0, rtol=0) == "output a: shapes [2] and [1, 2]"
    apart = disagreement({"a": ids}, {"b": ids, "c": ids}, atol=0, rtol=0)
    assert apart == "no output in common: a and b, c"
    calls = [{"a/b:0": value, "c": np.array([[b"x", b"yz"]])}, {"d": ids}]
    answers.write_calls(tmp_path / "c.npz", calls)
    for call, again in zip(calls, answers.read_calls(tmp_path / "c.npz"), strict=True):
        assert [*call] == [*again]
        for key, each in call.items():
            np.testing.assert_array_equal(again[key], each)


LONG = "/a/folder" * 12 + "/<b>model</b>.onnx"


def result() -> BenchmarkResult:
    def row(model: str, batch: int, micros: float, ratio: float | None) -> Measurement:
        return Measurement(
            model, "onnx", batch, 10, 1, micros, micros * 0.9, micros * 1.2, micros * 3, 1e6 / micros, 2e6,
            0.25,
            80.0, ratio, ratio, ratio, "" if ratio else "output y: 1.0e-01 apart",
        )  # fmt: skip

    rows = [
        row("a.onnx", 1, 50, 1.0),
        row("a.onnx", 8, 900, 1.0),
        row(LONG, 1, 2e6, 0.3),
        row(LONG, 8, 70, None),
    ]
    part = {"kind": "loop", "name": LONG, "share": 0.6, "us": 12.0}
    profile = {
        "model": LONG,
        "format": "onnx",
        "threads": 2,
        "parts": [part],
        "ops": [part],
        "sentences": [LONG],
    }
    return BenchmarkResult("a.onnx", tuple(rows), ("a note",), {"cores": 2, "rounds": 3}, (profile,))


@pytest.mark.every
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_in_a_browser(width: int, tmp_path: Path) -> None:
    told = measure_in_frame(page.of(result()), width, tmp_path)
    assert told["scroll"] <= width and told["wide"] == told["cut"] == [] and told["marks"] == [2, 2]


def test_a_page_escapes_names() -> None:
    text = page.of(result())
    assert "<b>model" not in text and "&lt;b&gt;model&lt;/b&gt;.onnx" in text
    assert "at most 0.30 times as fast as " in text and "output y: 1.0e-01 apart" in text
    assert "<h1>0.30 times as fast as a.onnx</h1>" in text
    alone = replace(result(), results=result().results[:2])
    assert "<h1>a.onnx: 50 \N{MICRO SIGN}s to 900 \N{MICRO SIGN}s a call</h1>" in page.of(alone)
