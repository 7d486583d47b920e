"""From words to options: usage errors in one line, help, completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support.command_line import command, parsed
from support.samples import ROOT

from cudnn_convert.options import Options
from cudnn_convert.text import flag_of

NO_ARGUMENT = "expected a flag of cudnn-convert, found an unknown one"


USAGE: dict[str, tuple[list[str], str]] = {
    "no OUT": (
        ["a b"],
        "OUT: expected a path to write to, found none; give one, as in cudnn-convert model.ckpt model.onnx",
    ),
    "unknown flag": (["a", "b", "--zip"], f"--zip: {NO_ARGUMENT}; see cudnn-convert --help-all"),
    "abbreviated flag": (["a", "b", "--out=x"], f"--out: {NO_ARGUMENT}; did you mean --outputs?"),
    "mistyped flag": (["a", "b", "--fromat", "onnx"], f"--fromat: {NO_ARGUMENT}; did you mean --format?"),
    "mistyped flag first": (["--fromat", "onnx", "a"], f"--fromat: {NO_ARGUMENT}; did you mean --format?"),
    "mistyped flag alone": (["--versoin"], f"--versoin: {NO_ARGUMENT}; did you mean --version?"),
    "mistyped flag for OUT": (["a", "--ouputs=y"], f"--ouputs: {NO_ARGUMENT}; did you mean --outputs?"),
    "help of nothing": (
        ["help", "verfy"],
        "verfy: expected a command of cudnn-convert, found a word that is not one; did you mean",
    ),
    "bad choice": (["a", "b", "--format=pickle"], "argument --format: invalid choice: 'pickle'"),
    "bad number": (["a", "b", "--opset=x"], "argument --opset: invalid int value: 'x'"),
    "inspect": (["inspect"], "required: SOURCE; see cudnn-convert inspect --help"),
    "verify": (["verify", "a"], "required: ARTIFACT; see cudnn-convert verify --help"),
    "record": (["record", "a"], "required: --data, --out; see cudnn-convert record --help"),
    "too many jobs": (
        ["verify", "a", "b", "--jobs=2147483648"],
        "--jobs: expected at most 1024, found 2147483648",
    ),
    "two judges": (
        ["verify", "a", "b", "--golden=g.npz", "--data=d.npz"],
        "--golden cannot be combined with --data: it has its own inputs; leave one out",
    ),
    "formats": (
        ["formats", "x"],
        "x: expected the end of the call of cudnn-convert formats, found one more word; see cudnn-convert",
    ),
    "completion": (["completion", "tcsh"], "argument SHELL: invalid choice: 'tcsh'"),
}


@pytest.mark.parametrize(("words", "message"), USAGE.values(), ids=USAGE)
def test_a_usage_error_is_one_line(words: list[str], message: str) -> None:
    ended = command(*words)
    assert (ended.code, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("cudnn-convert: ")
    assert message in line


def test_help_all_shows_every_flag_in_groups() -> None:
    text = command("--help-all").stdout
    assert [line for line in text.splitlines() if line.endswith(":") and line[0] != " "] == [
        *("positional arguments:", "options:", "what to take:", "sources without a graph:"),
        *("sources of Keras:", "--format checkpoint:", "what to write:", "a decoder in the graph:"),
        *("how to compare:", "examples:"),
    ]
    for option in fields(Options):
        assert (f"  {flag_of(option.name)}" in text) == (option.name not in {"lineage", "golden", "verify"})


def test_the_examples_of_the_help_are_ones_that_it_parses() -> None:
    examples = re.findall(r"^  cudnn-convert (.+?)  ", command("--help").stdout, re.MULTILINE)
    assert len(examples) == 5
    for example in examples[2:]:
        assert parsed(*example.split()).source


def complete(line: str, answer: Path) -> set[str]:
    """What a shell gets that asks how `line` goes on."""
    asking = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    asking |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    subprocess.run([sys.executable, "-m", "cudnn_convert"], env=os.environ | asking, check=True, cwd=ROOT)
    return {word.strip() for word in answer.read_text().split("\n")}


def test_a_shell_completes_subcommands_files_flags_and_values(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    assert {"inspect", "map", "models/"} <= complete("cudnn-convert ", answer)
    assert complete("cudnn-convert models/gru_speech out --weights-", answer) == {"--weights-dtype"}
    assert complete("cudnn-convert models/gru_speech out --format t", answer) == {"tflite"}
    assert complete("cudnn-convert verify models/gru_speech out --gol", answer) == {"--golden"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_code_that_names_the_command(shell: str) -> None:
    ended = command("completion", shell)
    assert (ended.code, ended.stderr) == (0, "")
    assert "_ARGCOMPLETE" in ended.stdout
    assert re.search(r"^\s*complete .*cudnn-convert", ended.stdout, re.MULTILINE)
