"""Models measured in turns: what is compared, what is said, and what is refused. No test asks for seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.command_line import Ended, command
from support.samples import ROOT

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


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    base = dense(tmp_path / "a.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    for words, code, told in (
        (
            [base, tmp_path / "broken.onnx"],
            1,
            "broken.onnx: file: expected an ONNX model, found a file that is not one",
        ),
        ([base, "--threads", "9999"], 2, "--threads: expected at most "),
        ([base, "--batch", "0"], 2, "expected whole numbers above 0 with commas between them, found '0'"),
        ([base, "--rounds", "0"], 2, "--rounds: expected at least 1, found 0"),
        ([base, "--profile", tmp_path], 2, "expected a new or an empty folder, found one with files"),
        ([tmp_path / "no.onnx"], 1, "expected a SavedModel"),
    ):
        ended = benchmark(*words, *(() if "--batch" in words else QUICK[:2]))
        assert ended.code == code, ended.stderr
        assert told in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.slow("cudnn_convert/benchmark", "cudnn_convert/cli")
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

    from cudnn_convert.process import count_cores

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
