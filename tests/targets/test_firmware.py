"""C++ source of a model for firmware: its bytes, its arena, its operators, and that it compiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.samples import ROOT

from cudnn_convert.artifacts.micro_operators import METHODS
from cudnn_convert.report.values import MicroReport
from cudnn_convert.targets import firmware

CONTENT = bytes(range(250, 256)) + bytes(range(31))
OPERATORS = ("ADD_N", "L2_POOL_2D", "UNIDIRECTIONAL_SEQUENCE_LSTM")
REPORT = MicroReport(bytes=len(CONTENT), arena=3968, operators=OPERATORS, missing=(), variables=48)
#: A checkout of github.com/tensorflow/tflite-micro, after
#: `make -f tensorflow/lite/micro/tools/make/Makefile third_party_downloads` in it.
CHECKOUT = "CUDNN_CONVERT_TFLITE_MICRO"


def test_the_source_has_bytes_arena_and_operators() -> None:
    text = firmware.make_source(CONTENT, "tagger", REPORT)
    table = re.search(r"alignas\(16\) const unsigned char tagger_data\[\] = \{(.*?)\};", text, re.DOTALL)
    assert table is not None
    assert bytes(int(word, 16) for word in re.findall(r"0x\w\w", table[1])) == CONTENT
    assert f"const unsigned int tagger_size = {len(CONTENT)};" in text
    assert "constexpr int tagger_arena_size = 3968;" in text
    added = re.findall(r"resolver\.(Add\w+)\(\);", text)
    assert added == ["AddAddN", "AddL2Pool2D", "AddUnidirectionalSequenceLSTM"]
    assert set(re.findall(r"MicroMutableOpResolver<(\d+)>", text)) == {"3"}
    assert "interpreter.Reset();" in text
    assert max(map(len, text.splitlines())) <= 120


def test_what_was_not_measured_or_needs_no_reset_is_said() -> None:
    text = firmware.make_source(CONTENT, "tagger", replace(REPORT, arena=None, variables=0))
    assert f"constexpr int tagger_arena_size = {10 * len(CONTENT)};" in text
    assert "They were not measured" in text
    assert "Reset" not in text


def test_operators_without_a_kernel_are_refused() -> None:
    missing = replace(REPORT, operators=("ADD", "POW"), missing=("POW",))
    with pytest.raises(ValueError, match=r"^operators: expected those of TensorFlow Lite Micro, found POW$"):
        firmware.make_source(CONTENT, "tagger", missing)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("my-model.v2", "my_model_v2"), ("2 layers", "model_2_layers"), ("모델", "model"), ("*/ x", "x")],
)
def test_names_are_names_of_cpp(name: str, expected: str) -> None:
    text = firmware.make_source(CONTENT, name, REPORT)
    assert f"const unsigned char {expected}_data[]" in text
    assert f"tflite::GetModel({expected}_data);" in text
    assert name == expected or name not in text


@pytest.mark.slow("cudnn_convert/targets/firmware.py", "cudnn_convert/artifacts/micro_operators.py")
def test_the_source_and_the_calls_in_its_comment_and_on_the_page_compile(tmp_path: Path) -> None:
    """With every operator that it may name: a method that is not there is an error."""
    checkout, compiler = os.environ.get(CHECKOUT), shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    if checkout is None:
        pytest.skip(f"no source of TensorFlow Lite Micro: {CHECKOUT} names a checkout")
    report = replace(REPORT, operators=tuple(sorted(METHODS)))
    text = firmware.make_source(CONTENT, "tagger", report)
    (tmp_path / "model.cc").write_text(text)
    shown = [line.removeprefix("//   ") for line in text.splitlines() if line.startswith("//   ")]
    include, *calls = shown
    lines = [include, '#include "model.cc"', "int main() {", *calls, "return input == output; }"]
    (tmp_path / "main.cc").write_text("\n".join(lines) + "\n")
    downloads = Path(checkout, "tensorflow/lite/micro/tools/make/downloads")
    folders = [Path(checkout), downloads / "flatbuffers" / "include", downloads / "gemmlowp"]
    words = [*("-std=c++17", "-fsyntax-only", "-Wall", "-Werror"), *(f"-I{folder}" for folder in folders)]
    page = (ROOT / "docs" / "serving" / "microcontrollers.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.cc").write_text(block)
    (tmp_path / "model.cc").write_text(firmware.make_source(CONTENT, "sensor", report))
    for name in ("main.cc", "model.cc", "page.cc"):
        done = subprocess.run(
            [compiler, *words, name], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
