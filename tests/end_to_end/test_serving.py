"""Programs of docs/serving in C, C++, Java, and in Python beside TensorFlow: compiled, and run on artifacts.

A block whose first line is a comment with a file's name is a program. The block of commands behind it
compiles it, runs it, and shows its answer. What no command runs says "Untested" where its section begins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from support.samples import ROOT

from cudnn_convert import convert

#: tests/targets/test_firmware.py compiles the program of the page that is left out.
PAGES: Final = sorted(
    {*(ROOT / "docs" / "serving").glob("*.md")} - {ROOT / "docs/serving/microcontrollers.md"}
)
TAGGER: Final = ROOT / "tests" / "data" / "tf1" / "1.15.5" / "bilstm_tagger" / "model.ckpt"
ARTIFACTS: Final = ("tagger.onnx", "tagger.tflite", "served/tagger/1")
#: What a reader has installed, by the variable that a command names: a folder or a jar.
INSTALLED: Final = {
    "ONNXRUNTIME": "an unpacked release of ONNX Runtime, with include/onnxruntime_cxx_api.h and lib",
    "ONNXRUNTIME_JAR": "the jar com.microsoft.onnxruntime:onnxruntime",
    "LITERT": "a folder with include/litert and lib/libLiteRt.so, as docs/serving/cpp.md says",
}
COMPILED: Final = ("c", "cpp", "java", "csharp")
SECTION: Final = re.compile(r"^## (?P<title>[^\n]*)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"// (\S+\.\w+)\n")


@dataclass(frozen=True)
class Program:
    """A file, the commands that compile and run it, and the answer that the page shows."""

    name: str
    text: str
    commands: str
    shown: str

    @property
    def lacks(self) -> list[str]:
        """Say what a machine lacks to compile and run the program."""
        tools = {words.split()[0] for words in self.commands.splitlines()} & {"g++", "gcc", "javac", "java"}
        lacks = [f"no {tool}" for tool in sorted(tools) if shutil.which(tool) is None]
        for variable, what in INSTALLED.items():
            if f"${variable}/" in self.commands or f"${variable}:" in self.commands:
                path = os.environ.get(variable)
                lacks += [] if path and Path(path).exists() else [f"{variable} must name {what}"]
        return lacks


def sections() -> list[tuple[str, str]]:
    """Each section of the pages: its place, and its text."""
    return [
        (f"{page.stem}: {match['title']}", match["text"])
        for page in PAGES
        for match in SECTION.finditer(page.read_text(encoding="utf-8"))
    ]


def programs() -> list[Program]:
    found = []
    for _, text in sections():
        blocks = BLOCK.findall(text)
        for (_, program), (language, commands) in pairwise(blocks):
            named = NAMED.match(program)
            if named and language == "console":
                typed = re.findall(r"^\$ (.*)$", commands, re.MULTILINE)
                shown = [line for line in commands.splitlines() if not line.startswith("$ ")]
                found.append(Program(named[1], program, "\n".join(typed), "\n".join(shown)))
    return found


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages convert."""
    folder = tmp_path_factory.mktemp("serving")
    for name in ARTIFACTS:
        convert(TAGGER, folder / name, verify=False)
    return folder


def run(commands: str, folder: Path) -> str:
    """What commands of a shell say, with this Python as `python`."""
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin" / "python"
    python.unlink(missing_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return "\n".join(line.rstrip() for line in ended.stdout.splitlines())


def test_each_program_is_run_or_says_that_it_is_untested() -> None:
    run_here = {program.text for program in programs()}
    assert len(run_here) >= 4
    for place, text in sections():
        texts = {block for language, block in BLOCK.findall(text) if language in COMPILED}
        assert texts <= run_here or text.lstrip().startswith("Untested"), place


@pytest.mark.every
@pytest.mark.parametrize("program", programs(), ids=lambda program: program.name)
def test_a_program_answers_as_its_page_shows(program: Program, artifacts: Path) -> None:
    if program.lacks:
        pytest.skip("; ".join(program.lacks))
    (artifacts / program.name).write_text(program.text, encoding="utf-8")
    assert re.findall(r"\d", program.shown) == list("556661")
    assert run(program.commands, artifacts) == program.shown


@pytest.mark.every
@pytest.mark.skipif(
    find_spec("ai_edge_litert") is None, reason="no ai-edge-litert: pip install ai-edge-litert"
)
def test_litert_answers_as_its_page_shows(artifacts: Path) -> None:
    """In a process without TensorFlow, which has an interpreter of its own."""
    page = (ROOT / "docs" / "serving" / "tensorflow-lite.md").read_text(encoding="utf-8")
    (text,) = (text for language, text in BLOCK.findall(page) if "ai_edge_litert" in text)
    (shown,) = re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE)
    (artifacts / "tagger_lite.py").write_text(text, encoding="utf-8")
    assert run("python tagger_lite.py", artifacts) == shown == "[[5 5 6 6 6 1]]"
