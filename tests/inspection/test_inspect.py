"""An inspection as people and scripts see it, and what it loads, runs and leaves behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.command_line import beside, command, contents, copied
from support.graphs import drawing, saved, variable
from support.keras3_samples import exported
from support.keras_samples import keras_fixture
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert import text
from cudnn_convert.cli import terminal

# What an inspection loads, runs and leaves behind: no TensorFlow without a graph, no code of the file.

HEAVY = "tensorflow,tf_keras,keras,onnx,onnxruntime,tf2onnx"
#: Inspects all that it is given; gives for each the exit code, what is loaded then, and what was said.
PROGRAM = """
import contextlib, io, json, sys
from cudnn_convert import cli
heavy, calls = sys.argv[1].split(","), json.loads(sys.argv[2])
found = []
for words in calls:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["inspect", *words])
    found.append([code, [name for name in heavy if name in sys.modules], out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


ARCHITECTURE = ROOT / "tests" / "data" / "keras" / "keras-2.2.4" / "weights_sequential" / "model.json"


def graphless(folder: Path) -> Path:
    shutil.copytree(
        fixture("1.15.5-gru_bi").folder, folder / "source", ignore=shutil.ignore_patterns("*.meta")
    )
    return folder / "source" / "model.ckpt"


SOURCES = {
    "HDF5 model": lambda _: [keras_fixture("keras-2.2.4-nested").path],
    "HDF5 weights": lambda _: [keras_fixture("keras-2.2.4-weights_functional").path],
    "HDF5 weights and model.json": lambda _: [
        keras_fixture("keras-2.2.4-weights_functional").path,
        "--architecture",
        keras_fixture("keras-2.2.4-weights_functional").architecture,
    ],
    "weights of the newer form": lambda _: [keras_fixture("tf_keras-2.21.0-weights_format_3").path],
    "archive": lambda _: [keras_fixture("tf_keras-2.21.0-archive_nested").path],
    "archive of Keras 3": lambda _: [exported("keras-3.15.1-archive").archive],
    "custom class": lambda _: [
        keras_fixture("keras-2.2.4-custom_layer").path,
        "--custom-objects",
        "no:Scale",
    ],
    "checkpoint without its graph": lambda folder: [graphless(folder)],
    "object-based checkpoint": lambda _: [fixture_of("1.15.5-keras_weights_functional")],
}


def fixture_of(name: str) -> Path:
    version, _, case = name.partition("-")
    return ROOT / "tests" / "data" / "tf1" / version / case / "model.ckpt"


def test_without_a_graph_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    """One process inspects all such sources, as a table and as JSON: in the end it has loaded nothing."""
    sources = [[str(word) for word in made(tmp_path)] for made in SOURCES.values()]
    calls = [[*words, *flags] for words in sources for flags in ([], ["--json"])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, HEAVY, json.dumps(calls)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for words, (code, loaded, out, err) in zip(calls, json.loads(done.stdout), strict=True):
        assert (code, loaded, err) == (0, [], ""), words
        assert out


@pytest.mark.parametrize(
    "name", ["keras-2.2.4-lambda_pwned", "tf_keras-2.21.0-lambda_pwned", "tf_keras-2.21.0-archive_pwned"]
)
def test_code_in_a_file_is_not_run_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cudnn_convert.inspect(keras_fixture(name).path).command is not None
    assert contents(tmp_path) == {}


def test_the_modules_of_custom_objects_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    source = keras_fixture("keras-2.2.4-custom_layer").path
    found = cudnn_convert.inspect(source, custom_objects="mine:Scale")
    assert found.command is not None
    assert "--custom-objects=mine:Scale" in found.command
    assert "--no-verify" not in found.command
    assert found.reasons == ()
    assert "mine" not in sys.modules


# `cudnn-convert inspect` as people and scripts see it: streams, exit codes, tables, plain text in a pipe.


def test_results_go_to_stdout_and_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = fixture("1.15.5-twins_training").prefix
    ended = command("inspect", source)
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == f"{source}: TensorFlow 1 checkpoint (tensorflow 1.15.5, graph 134)"
    rows = [line.split() for line in lines if line.startswith("cudnn_lstm/CudnnRNN")]
    assert [(row[0], row[2:6], row[-2:]) for row in rows] == [
        ("cudnn_lstm/CudnnRNN", ["lstm", "2", "1", "5"], ["no", "-"]),
        ("cudnn_lstm/CudnnRNN_1", ["lstm", "2", "1", "5"], ["yes", "yes"]),
    ]
    assert "weights of cudnn_lstm/CudnnRNN, cudnn_lstm/CudnnRNN_1: both, agree" in lines
    assert "  takes x = x:0 float32 [?, ?, 3]" in lines
    assert "runs on a CPU as it is: no, because of CudnnRNN" in lines
    line = f"  {text.command(['cudnn-convert', str(source), 'model_cpu'])} --format savedmodel"
    streaming = "in chunks of steps, with its states as inputs and outputs:"
    assert lines[-4:] == ["convert it with:", line, streaming, f"{line} --states"]
    assert "\x1b" not in ended.stdout
    assert not [*tmp_path.iterdir()]


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 200])
def test_a_terminal_gets_a_table_in_which_no_name_is_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    for name, value in (("COLUMNS", str(width)), ("TERM", "xterm-256color")):
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.delitem(os.environ, "NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    found = cudnn_convert.inspect(keras_fixture("keras-2.2.4-chunked_names").path)
    terminal.show_inspection(found)
    text = sys.stdout.getvalue()
    assert "\x1b[1m" in text
    assert "the_pair_of_recurrent_layers_comes_last" in text or width < 100
    assert "…" not in text


def test_the_reasons_stand_before_the_command_that_follows_them() -> None:
    lines = command("inspect", fixture("1.15.5-dropout_needs_set").prefix).stdout.splitlines()
    [reason] = [line for line in lines if "expected no dropout at inference" in line]
    assert reason.endswith("turn it off with --set keep_prob:0=1")
    chosen = [line for line in lines if line.endswith("--set=keep_prob:0=1")]
    assert chosen
    assert lines.index(reason) < lines.index(chosen[0]) - 1


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    beside(prefix, ".meta").write_bytes(b"\x0a\xff")
    for source in (prefix, tmp_path / "nothing", tmp_path):
        ended = command("inspect", source)
        assert (ended.code, ended.stdout) == (1, "")
        [line] = ended.stderr.splitlines()
        assert line.startswith(f"cudnn-convert: {source}")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--architecture", str(ARCHITECTURE)],
            "--architecture: expected weights of Keras, or a checkpoint without .meta, found TensorFlow 1",
        ),
        (["--tag", "serve"], "--tag: "),
        (["--signature", "other"], "--signature: expected one of none, found other"),
        (["--mode", "gru"], "expected a source without a graph, found TensorFlow 1 checkpoint"),
        (["--outputs", "nothing:0"], "nothing"),
        (["--format", "h5"], "--format h5: expected the layers of a Keras model, found TensorFlow 1"),
        (["--format", "h5", "--set", "x=1"], "--set: expected a format that keeps a graph, found h5"),
        (["--opset", "17"], "--opset: expected a flag of cudnn-convert inspect, found an unknown one"),
    ],
)
def test_flags_that_do_not_fit_the_source(flags: list[str], message: str) -> None:
    ended = command("inspect", fixture("1.15.5-gru_bi").prefix, *flags)
    assert (ended.code, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert message in line


def test_a_subcommand_wins_over_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inspect").write_bytes(b"")
    assert "required: SOURCE" in command("inspect").stderr


def test_what_nothing_converts_has_no_command(tmp_path: Path) -> None:
    with drawing() as graph:
        variable("counter", [2])
    source = saved(tmp_path, graph, {"counter": np.zeros(2, np.float32)})
    lines = command("inspect", source).stdout.splitlines()
    assert lines[-1] == "no command converts it as it is"
    assert any("expected a node CudnnRNN, BlockLSTM or LSTMBlockCell, found none" in line for line in lines)


def test_outputs_that_a_refusal_lists_are_commands() -> None:
    lines = command("inspect", fixture("1.15.5-two_heads").prefix).stdout.splitlines()
    place = lines.index("convert it with one of:")
    assert "leave out intents/bias, intents/kernel, intents/BiasAdd:0; choose with" in lines[place - 1]
    assert [line.rpartition(" ")[2] for line in lines[place + 1 :]] == [
        "--outputs=intents/BiasAdd:0,tag_probs:0",
        "--outputs=tag_probs:0",
        "--outputs=tags/BiasAdd:0",
        "--outputs=intents/BiasAdd:0",
    ]


def test_functions_that_nothing_calls_are_counted() -> None:
    source = (
        fixture("1.15.5-gru_bi").folder.parents[2] / "keras3_exports/tf_keras-2.21.0/portable/saved_model"
    )
    lines = command("inspect", source).stdout.splitlines()
    assert any(
        line.endswith("more in functions that nothing calls: dead (--json lists them)") for line in lines
    )
    assert "runs on a CPU as it is: yes" in lines
    assert "portable already" in lines[-1]
