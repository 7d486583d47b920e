"""Subcommands: what each says, on which stream, and what it answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.command_line import command, contents, copied, refused

from cudnn_convert.cli import commands
from cudnn_convert.formats import FORMATS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the smallest sample."""
    return copied(tmp_path)


def test_formats_lists_every_format() -> None:
    ended = command("formats")
    assert [line.split()[0] for line in ended.stdout.splitlines()] == list(FORMATS)


def test_help_is_a_command_too() -> None:
    assert command("help") == command("--help")
    assert command("help", "verify") == command("verify", "--help")


def test_a_conversion_may_be_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    ended = command("convert", source, out, "--no-verify", "--quiet")
    assert (ended.code, ended.stdout) == (0, f"{out}\n")


def test_the_help_names_every_subcommand_and_six_flags() -> None:
    text = command("--help").stdout
    flags, also = text.partition("Other commands:")[::2]
    for name in commands.SUBCOMMANDS:
        assert re.search(rf"\b{name}\b", also), name
    assert re.findall(r"^  (--[a-z-]+)", flags, re.MULTILINE) == [
        *("--help-all", "--format", "--outputs", "--set", "--data", "--force", "--report")
    ]


def test_the_suffix_of_out_chooses_the_format_and_the_choice_is_printed(source: Path, tmp_path: Path) -> None:
    ended = command(source, tmp_path / "weights.npz", "--no-verify")
    assert ended.code == 0
    assert "note: format npz; --format chooses another" in ended.stderr.splitlines()
    assert np.load(tmp_path / "weights.npz").files
    ended = command(source, tmp_path / "other.npz", "--no-verify", "--format", "npz")
    assert "--format chooses another" not in ended.stderr


def test_a_suffix_of_another_format_is_refused(source: Path, tmp_path: Path) -> None:
    [line] = refused(tmp_path, source, tmp_path / "m.onnx", "--format", "tflite", code=2)
    assert line == (
        f"OUT {tmp_path / 'm.onnx'}: expected no suffix of another format with --format tflite, "
        "found .onnx, the suffix of onnx; leave out --format, or rename OUT"
    )


def test_a_conversion_speaks_on_stderr_and_answers_on_stdout(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    ended = command(source, out, "--format", "onnx")
    assert (ended.code, ended.stdout) == (0, f"{out}\n")
    first, *others, verdict = ended.stderr.splitlines()
    assert first == "note: outputs chosen from the graph: rnn_out:0, state_h:0"
    assert all(line.startswith("note: ") for line in others)
    facts = re.escape(f"{out}: proven equal to {source} (2 outputs, 1 recurrence; largest error ")
    assert re.fullmatch(rf"{facts}(under )?\d+ % of the tolerance\)", verdict)
    ended = command("verify", source, out)
    assert (ended.code, ended.stdout) == (0, "equal\n")
    assert ended.stderr.splitlines() == [verdict]


def test_figures_are_told_on_request(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    lines = command(source, out, "--verbose").stderr.splitlines()
    assert "repeat with: --inputs=x=x:0,h0=h0:0 --outputs=rnn_out=rnn_out:0,state_h=state_h:0" in lines
    assert sum(line.startswith("cudnn_rnn_tanh/CudnnRNNV3 ") for line in lines) > 1
    (fed,) = (line for line in lines if line.startswith("compared on: "))
    assert fed.startswith("compared on: x [3, 17, 3], h0 [3, 2, 6]; ")
    assert lines[-1].startswith(f"{out}: proven equal to ")
    again = command("verify", source, out, "--verbose").stderr.splitlines()
    assert {fed, lines[-1]} < {*again}
    [line] = command("verify", source, out, "--verbose", "--quiet").stderr.splitlines()
    assert "--quiet: not allowed with argument --verbose" in line


def test_quiet_is_silent(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    ended = command(source, out, "--format", "onnx", "--quiet")
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"{out}\n", "")
    ended = command("verify", source, out, "--quiet")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "equal\n", "")


def test_without_verification_it_says_so_loudly(source: Path, tmp_path: Path) -> None:
    ended = command(source, tmp_path / "out.npz", "--no-verify")
    last = f"{tmp_path / 'out.npz'}: recurrences alone, not proven; nothing was compared with {source}"
    assert (ended.code, ended.stderr.splitlines()[-1]) == (0, last)
    ended = command(source, tmp_path / "out", "--no-verify")
    last = f"{tmp_path / 'out'}: not proven; nothing was compared with {source}"
    assert (ended.code, ended.stderr.splitlines()[-1]) == (0, last)


def test_json_is_all_of_stdout(source: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out.onnx", tmp_path / "report.json"
    ended = command(source, out, "--format", "onnx", "--json", "--report", file)
    assert ended.code == 0
    found = json.loads(ended.stdout)
    assert found == json.loads(file.read_text())
    assert found["out"] == str(out)
    assert found["verification"]["passed"] is True
    ended = command("verify", source, out, "--json", "--quiet")
    proven = json.loads(ended.stdout)
    assert {**proven, "subject": None} == found["verification"]
    assert proven["subject"]["artifact"] == str(out)
    assert proven["subject"]["inputs"] == found["inputs"]
    assert ended.stderr == ""


def test_the_printed_flags_repeat_the_conversion(source: Path, tmp_path: Path) -> None:
    flags = ["--inputs=x:0[?,3,3],h0", "--outputs=y=rnn_out"]
    first = json.loads(command(source, tmp_path / "one", "--json", "--no-verify", *flags).stdout)
    assert command(source, tmp_path / "two", "--no-verify", *first["flags"]).code == 0
    artifacts = [contents(tmp_path / name) for name in ("one", "two")]
    for held in artifacts:
        del held["assets.extra/cudnn_convert.json"]  # it records the flags as they were given
    assert artifacts[0] == artifacts[1]


NEAR = "expected a tensor of the graph, found no node"


WRONG: dict[str, tuple[list[str], str]] = {
    "unknown output": (
        ["--outputs=rnn_oot"],
        f"tensor rnn_oot:0: {NEAR} rnn_oot; similar names are rnn_out:0",
    ),
    "unknown input": (["--inputs=xx"], f"tensor xx:0: {NEAR} xx; similar names are x:0"),
    "unknown in set": (["--set=h1=1"], f"tensor h1:0: {NEAR} h1; similar names are h0:0"),
    "far from all": (["--outputs=zzzzzzz"], f"tensor zzzzzzz:0: {NEAR} zzzzzzz; no name is similar"),
    "glob of nothing": (["--set=zz*=1"], f"tensor zz*:0: {NEAR} zz*"),
    "output past the last": (
        ["--outputs=rnn_out:7"],
        "tensor rnn_out:7: expected a tensor of the graph, found",
    ),
    "input past the last": (["--inputs=x:1,h0"], "tensor x:1: expected a tensor of the graph, found"),
    "set past the last": (["--set=x:1=3"], "tensor x:1: expected a tensor of the graph, found"),
    "set without value": (["--set=x"], "--set: expected TENSOR=VALUE, found 'x'"),
    "set without tensor": (["--set==1"], "--set: expected TENSOR=VALUE, found '=1'"),
    "set to nothing": (["--set=x="], "--set x:0: expected a float32, found ''"),
    "set to a word": (["--set=x=abc"], "--set x:0: expected a float32, found 'abc'"),
    "set of unknown shape": (["--set=x=1"], "--set x:0: expected a tensor of known shape, found"),
    "two keys": (["--outputs=a=b=c"], "--outputs: expected [KEY=]TENSOR[[shape]], found 'a=b=c'"),
    "open bracket": (["--inputs=x[?,h0"], "--inputs: expected [KEY=]TENSOR[[shape]]"),
    "no items": (["--outputs="], "--outputs: expected [KEY=]TENSOR[[shape]]"),
    "only commas": (["--inputs=,"], "--inputs: expected [KEY=]TENSOR[[shape]]"),
    "shape of words": (["--inputs=x[a],h0"], "--inputs: expected [KEY=]TENSOR[[shape]], found 'x[a]'"),
    "a size beyond all": (
        ["--inputs=x[99999999999999999999,1,3],h0"],
        "--inputs: expected a shape like [?,?,39], found 'x[99999999999999999999,1,3]'",
    ),
    "a size of nothing": (
        ["--inputs=x[0,0,3],h0"],
        "--inputs: expected a shape like [?,?,39], found 'x[0,0,3]'",
    ),
    "a size below": (["--inputs=x[?,-1,3],h0"], "--inputs: expected "),
    "another width": (
        ["--inputs=x[?,?,4],h0"],
        "tensor x:0: expected the graph's shape [?,?,3], where only ? may change, found [?,?,4] in --inputs",
    ),
    "another rank": (
        ["--inputs=x[?,3],h0"],
        "tensor x:0: expected the graph's shape [?,?,3], where only ? may change, found [?,3]",
    ),
    "a key twice": (["--inputs=a=x,a=h0"], "expected keys that differ, found a twice"),
    "an input twice": (["--inputs=x,h0,h0"], "--inputs: expected each tensor once, found h0:0 twice"),
    "too few inputs": (["--inputs=x"], "--inputs: the outputs also need h0:0; add them, or bind them"),
    "no such opset": (["--format=onnx", "--opset=99"], "--opset: expected 11 to 18, found 99"),
    "no data": (
        ["--data=nowhere.npz"],
        "--data nowhere.npz: expected a file, or a pattern that matches files, found nothing",
    ),
    "negative tolerance": (["--atol=-1"], "--atol: expected a number of at least 0, found -1.0"),
    "negative seed": (["--seed=-1"], "--seed: expected a whole number from 0 to 2^63 - 1, found -1"),
    "nan tolerance": (["--rtol=nan"], "--rtol: expected a number of at least 0, found nan"),
}


@pytest.mark.parametrize(("flags", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_flag_is_refused(source: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    [line] = refused(tmp_path, source, tmp_path / "out", *flags, code=2)
    assert message in line


def test_verify_tells_other_weights(tmp_path: Path) -> None:
    source = copied(tmp_path, "1.15.5-moving_average")
    assert command(source, tmp_path / "out", "--weights=raw", "--no-verify").code == 0
    record = tmp_path / "out" / "assets.extra" / "cudnn_convert.json"
    said = json.loads(record.read_text())
    said["options"]["weights"] = "ema"
    record.write_text(json.dumps(said))
    lines = refused(tmp_path, "verify", source, tmp_path / "out", code=3)
    assert lines[0].startswith(f"{source}: output rnn_out: at [")
