"""Artifacts in Node.js and in a browser: ONNX, and SavedModels and frozen graphs in TensorFlow.js.

What TensorFlow 1 recorded judges, or the float64 reference; no Python runs what was written.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts, browser, javascript
from support.cases import Case
from support.command_line import command
from support.javascript import Stream
from support.keras3_samples import exported
from support.recorded import BOUNDS as BOUNDS_OF_TYPES
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert.model import Mode

pytestmark = pytest.mark.every

#: ONNX Runtime and TensorFlow.js compute what TensorFlow 1 did in float32, in another order: as in Python.
BOUNDS: Final = {"float32": 1e-5}
#: Networks that TensorFlow 1 ran, with flags. The last but one takes 64-bit integers; the last gives them.
SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "bilstm_tagger": {},
    "lstm_bi_2l_states": {},
    "v3_lengths_batch_major": {},
    "estimator_examples": {"outputs": ["probabilities:0"]},  # beside it are strings
    "project_pointer": {},
}


def prepare_case(mode: Mode, folder: Path, form: str, **flags: Any) -> dict[str, Any]:
    """Converts two layers of both directions with lengths and states; the reference judges in float64."""
    case = Case(mode, layers=2, directions=2, op="CudnnRNNV3")
    graph, signature = case.graph()
    source, golden = folder / f"{mode.value}.pb", {}
    source.write_bytes(graph.SerializeToString())
    for number, shape in enumerate([(7, 3), (5, 2), (1, 1)]):  # one row is empty, others are ragged
        feeds = case.feeds(*shape)
        feeds["c"] = feeds["c"] if mode is Mode.LSTM else np.zeros([], np.float32)
        expected = zip(signature.outputs.values(), case.expected(case.feeds(*shape)), strict=True)
        found = {f"{key}:0": value for key, value in feeds.items()}
        found |= {name: value.astype(np.float32) for name, value in expected}
        golden |= {f"feed{number}/{name}": value for name, value in found.items()}
    np.savez(folder / f"{mode.value}.golden.npz", **golden)
    out = folder / mode.value
    outputs = ",".join(f"{key}={name}" for key, name in signature.outputs.items())
    cudnn_convert.convert(source, out, format=form, outputs=outputs, **flags)
    return artifacts.job(out, form, folder / f"{mode.value}.golden.npz", folder / f"{mode.value}.npz")


@pytest.mark.parametrize("runtime", javascript.ONNX_RUNTIMES)
def test_every_mode_with_lengths_and_states_in_onnx_runtime(tmp_path: Path, runtime: str) -> None:
    javascript.find_modules(*javascript.PACKAGES[runtime])
    jobs = [prepare_case(mode, tmp_path, "onnx") for mode in Mode]
    javascript.answer(runtime, jobs, tmp_path)
    for job in jobs:
        javascript.compare(job, BOUNDS)


@pytest.mark.parametrize("runtime", javascript.ONNX_RUNTIMES)
def test_networks_of_tensorflow_1_in_onnx_runtime(tmp_path: Path, runtime: str) -> None:
    javascript.find_modules(*javascript.PACKAGES[runtime])
    jobs = [
        artifacts.convert(fixture(f"1.15.5-{name}"), "onnx", tmp_path, **flags)[1]
        for name, flags in SAMPLES.items()
    ]
    javascript.answer(runtime, jobs, tmp_path)
    for job in jobs:
        javascript.compare(job, BOUNDS)


#: Recorded frames of three rows with lengths of their own, and a text of one row, each recorded as a whole.
STREAMS: Final = {
    "gru_speech": Stream("features", (3, 1, 9, 7), {"cudnn_gru_h": (2, 24)}, ("lengths",)),
    "char_lm": Stream(
        "characters_input",
        (3, 1, 2, 7, 9, 18),
        {f"memory_{layer}_{state}": (1, 40) for layer in (1, 2) for state in "hc"},
    ),
}


def prepare_stream(name: str, folder: Path, form: str, **flags: Any) -> dict[str, Any]:
    """Converts a trained model with its states; what was recorded of it is then cut into chunks."""
    source, out, file = ROOT / "models" / name, folder / name, folder / f"{name}.golden.npz"
    model = source / ("model.h5" if (source / "model.h5").is_file() else "model.ckpt")
    cudnn_convert.convert(model, out, format=form, states=True, **flags)
    with np.load(source / "golden.npz") as golden:
        recorded = {key: golden[key] for key in golden.files if key.startswith("feed0/")}
        if name == "char_lm":  # its second call goes on from the first
            recorded = {
                key: np.concatenate([golden[key], golden[key.replace("feed0/", "feed1/")]], 1)
                for key in recorded
            }
    np.savez(file, **recorded)  # type: ignore[arg-type]
    job = artifacts.job(out, form, file, folder / f"{name}.npz")
    for kind in ("inputs", "outputs"):  # the recorder calls those of Keras by their keys
        for key, names in job[kind].items():
            names["source"] = key if f"feed0/{key}" in recorded else names["source"]
    return {**job, "stream": STREAMS[name]}


@pytest.mark.parametrize("runtime", javascript.ONNX_RUNTIMES)
def test_chunks_are_the_whole_in_onnx_runtime(tmp_path: Path, runtime: str) -> None:
    javascript.find_modules(*javascript.PACKAGES[runtime])
    jobs = [prepare_stream(name, tmp_path, "onnx") for name in STREAMS]
    javascript.answer(runtime, jobs, tmp_path)
    for job in jobs:
        javascript.compare(job, BOUNDS)


#: int8: the bound of --max-error, as in test_quantize.py. float16: that of half, as weights are rounded.
REDUCED: Final = {"int8": 0.05, "float16": BOUNDS_OF_TYPES["float16"]}


@pytest.mark.parametrize("kind", REDUCED)
@pytest.mark.parametrize("runtime", javascript.ONNX_RUNTIMES)
def test_smaller_weights_in_onnx_runtime(tmp_path: Path, runtime: str, kind: str) -> None:
    """Errors stay within the bound, and are larger than those of float32 alone."""
    javascript.find_modules(*javascript.PACKAGES[runtime])
    sample = fixture("1.15.5-v3_lengths_batch_major")
    flags: dict[str, Any] = {"weights_dtype": "float16"}
    if kind == "int8":
        names = sample.case["inputs"]
        feeds = {
            f"feed{k}/{name[:-2]}": feed[name] for k, feed in enumerate(sample.feeds()) for name in names
        }
        np.savez(tmp_path / "feeds.npz", **feeds)  # type: ignore[arg-type]
        flags = {"quantize": "int8", "max_error": REDUCED[kind], "data": tmp_path / "feeds.npz"}
    _, job = artifacts.convert(sample, "onnx", tmp_path, **flags)
    javascript.answer(runtime, [job], tmp_path)
    javascript.compare(job, {"float32": REDUCED[kind]})
    with pytest.raises(AssertionError, match="times the bound"):
        javascript.compare(job, BOUNDS)


def convert_to_tensorflow_js(job: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """What `tensorflowjs_converter` makes of the artifact of a job, as a job."""
    is_frozen, source = job["format"] == "frozen", Path(job["artifact"])
    outputs = ",".join(sorted({names["artifact"].partition(":")[0] for names in job["outputs"].values()}))
    kind = ["tf_frozen_model", "--output_node_names", outputs] if is_frozen else ["tf_saved_model"]
    out = source.with_name(f"{source.name}.js")
    javascript.call_converter("--input_format", *kind, *words, source, out)
    return {**job, "artifact": str(out / "model.json")}


#: Layer normalisation, a projection, and a loop around a loop.
TO_TENSORFLOW_JS: Final = ("frozen_layer_norm", "op_proj_lstm", "while_rows")


@pytest.mark.parametrize("form", ["savedmodel", "frozen"])
def test_every_mode_with_lengths_and_states_in_tensorflow_js(tmp_path: Path, form: str) -> None:
    require_tensorflow_js()
    jobs = [
        convert_to_tensorflow_js(prepare_case(mode, tmp_path, form, lowering="portable")) for mode in Mode
    ]
    answer_in_tensorflow_js(jobs, tmp_path)


def test_networks_of_tensorflow_1_in_tensorflow_js(tmp_path: Path) -> None:
    require_tensorflow_js()
    converted = [
        artifacts.convert(fixture(f"1.15.5-{name}"), "savedmodel", tmp_path, lowering="portable")[1]
        for name in TO_TENSORFLOW_JS
    ]
    answer_in_tensorflow_js([convert_to_tensorflow_js(job) for job in converted], tmp_path)


def test_a_saved_model_of_tensorflow_2_in_tensorflow_js(tmp_path: Path) -> None:
    """A mask makes the lengths of rows; the converter names outputs by the order of their keys."""
    require_tensorflow_js()
    sample, golden = exported("keras-3.15.1-masked_last"), tmp_path / "golden.npz"
    cudnn_convert.convert(sample.path, tmp_path / "out", lowering="portable")
    with np.load(sample.folder / "golden.npz") as recorded:
        named = {key.removeprefix("serving_default/"): recorded[key] for key in recorded.files}
    np.savez(golden, **named)  # type: ignore[arg-type]
    outputs = {"last": "Identity", "y": "Identity_1"}
    job = {
        "artifact": str(tmp_path / "out"),
        "format": "savedmodel",
        "golden": str(golden),
        "answers": str(tmp_path / "answers.npz"),
        "inputs": {"x": {"source": "x", "artifact": "x:0"}},
        "outputs": {key: {"source": f"out/{key}", "artifact": name} for key, name in outputs.items()},
    }
    answer_in_tensorflow_js([convert_to_tensorflow_js(job)], tmp_path)


def test_chunks_are_the_whole_in_tensorflow_js(tmp_path: Path) -> None:
    require_tensorflow_js()
    converted = [prepare_stream(name, tmp_path, "savedmodel", lowering="portable") for name in STREAMS]
    jobs = [convert_to_tensorflow_js(job, "--signature_name", "stream") for job in converted]
    answer_in_tensorflow_js(jobs, tmp_path)


def require_tensorflow_js() -> None:
    """Skips before anything is converted."""
    javascript.find_converter()
    for packages in javascript.TENSORFLOW.values():
        javascript.find_modules(*packages)


def answer_in_tensorflow_js(jobs: list[dict[str, Any]], folder: Path) -> None:
    for runtime in javascript.TENSORFLOW:
        javascript.answer(runtime, jobs, folder)
        for job in jobs:
            javascript.compare(job, BOUNDS)


PAGE: Final = (ROOT / "docs" / "serving" / "javascript.md").read_text(encoding="utf-8")
#: What the page calls the files of the repository.
FILES: Final = {
    "tagger/model.ckpt": "tests/data/tf1/1.15.5/bilstm_tagger/model.ckpt",
    "characters.h5": "models/char_lm/model.h5",
}


def find_blocks(language: str, *, mentioning: str = "") -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [block for block in found if mentioning in block]


def follow_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, made: str) -> None:
    """Runs the page's commands that make a file, except those that install something."""
    monkeypatch.chdir(folder)
    for name, source in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        for part in (ROOT / source).parent.glob(f"{Path(source).name}*"):
            shutil.copy(part, f"{folder / name}{part.name.removeprefix(Path(source).name)}")
    (block,) = find_blocks("sh", mentioning=f" {made}\n")
    for line in block.splitlines():
        program, *words = shlex.split(line)
        if program == "cudnn-convert":
            ended = command(*words, "--quiet")
            assert ended.code == 0, ended.stderr
        elif program.endswith("tensorflowjs_converter"):
            javascript.call_converter(*words)
        else:
            assert "install" in words or "venv" in words, line


def run_program(text: str, folder: Path, packages: Sequence[str]) -> None:
    """Runs a program of the page; it must print what stands behind each `console.log`."""
    (folder / "program.mjs").write_text(text, encoding="utf-8")
    shown = re.findall(r"^ *console\.log\(.*\); // (.*)$", text, re.MULTILINE)
    assert shown
    assert javascript.run_node(folder / "program.mjs", packages=packages).splitlines() == shown


def open_page(text: str, folder: Path) -> None:
    """Opens a page of the page in a browser; the comment behind `textContent` has what its element says."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    element, shown = re.findall(r'getElementById\("(\w+)"\)\.textContent = .*; // (.*)$', text, re.MULTILINE)[
        0
    ]
    assert browser.read_served(folder / "page.html", element, folder / "profile") == shown


def test_the_page_names_the_versions_that_are_installed() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r"^JAVASCRIPT := (.*)$", makefile, re.MULTILINE)
    versions = dict(each.rsplit("@", 1) for each in line.split())
    assert versions.keys() == {package for packages in javascript.PACKAGES.values() for package in packages}
    first, second = sorted({*versions.values()})
    assert f"versions {first} of both ONNX Runtimes and {second} of TensorFlow.js" in PAGE


@pytest.mark.parametrize("runtime", javascript.ONNX_RUNTIMES)
def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    packages = javascript.PACKAGES[runtime]
    javascript.find_modules(*packages)
    programs = find_blocks("js", mentioning='"onnxruntime-web"')
    assert len(programs) == 2
    for made, text in zip(("tagger.onnx", "characters.onnx --states"), programs, strict=True):
        follow_commands(tmp_path, monkeypatch, made)
        run_program(text.replace('"onnxruntime-web"', f'"{runtime}"'), tmp_path, packages)


def test_the_page_of_onnx_runtime_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = javascript.find_modules("onnxruntime-web")
    (text,) = find_blocks("html", mentioning="ort.")
    files = {*re.findall(r"`(ort[\w.-]+)`", PAGE)}
    assert len(files) == 2
    for name in files:
        shutil.copy(modules / "onnxruntime-web" / "dist" / name, tmp_path)
    follow_commands(tmp_path, monkeypatch, "tagger.onnx")
    open_page(text, tmp_path)


def test_the_program_and_the_page_of_tensorflow_js_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_tensorflow_js()
    follow_commands(tmp_path, monkeypatch, "tagger_portable tagger_js")
    (program,) = find_blocks("js", mentioning="@tensorflow/tfjs")
    run_program(program, tmp_path, javascript.PACKAGES["tfjs-cpu"])
    (page,) = find_blocks("html", mentioning="tf.min.js")
    shutil.copy(javascript.find_modules() / "@tensorflow/tfjs/dist/tf.min.js", tmp_path)
    open_page(page, tmp_path)


def test_the_converter_stops_at_the_default_lowering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_tensorflow_js()
    source = ROOT / FILES["tagger/model.ckpt"]
    cudnn_convert.convert(source, tmp_path / "fast", verify=False)
    words = ("--input_format", "tf_saved_model", tmp_path / "fast", tmp_path / "js")
    said = " ".join(javascript.call_converter(*words, code=1).split())
    (shown,) = re.findall(r"`(Unsupported Ops[^`]*)`", PAGE)
    assert said.endswith(shown)
