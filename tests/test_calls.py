"""Library calls beside their work: arguments in messages, progress, the log, reports, arrays as data."""

from __future__ import annotations

import ast
import importlib
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.flag_messages import pieces
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert.calls import library_call, mute_import, spell_arguments
from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.options import KINDS

SOURCE = fixture("1.15.5-v3_batch_major").prefix

#: A message as the command line has it, and as a library call has it.
SPELLED = {
    "--format: expected onnx, found 'pickle'": "format: expected onnx, found 'pickle'",
    "leave out --format, or rename OUT": "leave out format, or rename OUT",
    "bind it with --set a:0=1 --set b:0=2; or": 'bind it with set=["a:0=1", "b:0=2"]; or',
    "cut with --outputs 'a b:0,c:0'.": 'cut with outputs="a b:0,c:0".',
    "--jit, or --lowering portable": 'jit=True, or lowering="portable"',
    "give --jit with --lowering fast": 'give jit=True with lowering="fast"',
    "say --mode lstm --units N": 'say mode="lstm", units=N',
    "give --data, or convert with --no-verify": "give data, or convert with verify=False",
    "--data in/x.npz: expected an .npz": 'data="in/x.npz": expected an .npz',
    "the inputs of --data are no tokens": "the inputs of data are no tokens",
    "vouch for it with --trust, or": "vouch for it with trust=True, or",
    "convert without --states": "convert without states",
    "give --limit expanded=3": 'give limit="expanded=3"',
    "--mode, --layers and --units: expected": "mode, layers and units: expected",
    "write --format h5, or bring it with --custom-objects MODULE:Foo": (
        'write format="h5", or bring it with custom_objects="MODULE:Foo"'
    ),
    "need --forget-bias 1, say --seed 7": "need forget_bias=1, say seed=7",
    "--format onnx or --format npz": 'format="onnx" or format="npz"',
    "replace it with --force": "replace it with force=True",
    "a path /x--set/y": "a path /x--set/y",
}


@pytest.mark.parametrize("text", SPELLED)
def test_a_flag_becomes_an_argument(text: str) -> None:
    assert spell_arguments(text) == SPELLED[text]


def test_no_message_of_the_library_keeps_a_flag() -> None:
    """Each text of the package that names a flag, with a tensor where it has a value."""
    left = [piece for piece in pieces() if not piece.file.startswith(("cli/", "batch/"))]
    assert len(left) > 100
    for piece in left:
        spelled = spell_arguments(piece.text.replace("{}", "a/b:0"))
        assert not re.search(r"(?<![\w-])--[a-z]", spelled), piece
        for name, value in re.findall(r"\b([a-z_]+)=(\[.*?\]|\"[^\"]*\"|[^\s,;]+)", spelled):
            if name in KINDS and value.startswith(("[", '"')):
                ast.literal_eval(value)


def test_remedies_are_spelled_by_their_values() -> None:
    """The signature `a b=c` could not be told from prose in a message."""
    cure = Remedy({"signature": "it's", "outputs": ("x:0", "y:0"), "units": 3, "states": True}, "do it with")
    reason = Reason(f"op: expected this, found that; {cure}", cure)
    with pytest.raises(UnsupportedModelError) as caught, library_call():
        raise UnsupportedModelError("m", [reason, "give --trust"])
    first = 'op: expected this, found that; do it with signature="it\'s", outputs=["x:0", "y:0"], '
    assert str(caught.value) == f"m: {first}units=3, states=True\nm: give trust=True"
    assert caught.value.reasons == (f"{first}units=3, states=True", "give trust=True")
    assert caught.value.reasons[0].remedies == (cure,)


def test_what_a_refusal_advises_works_as_arguments(tmp_path: Path) -> None:
    source = fixture("1.15.5-dropout_needs_set").prefix
    with pytest.raises(cudnn_convert.UnsupportedModelError, match="turn it off with") as caught:
        cudnn_convert.convert(source, tmp_path / "out.onnx")
    match = re.search(r'turn it off with (\w+)="(.*?)"', str(caught.value))
    assert match
    report = cudnn_convert.convert(source, tmp_path / "out.onnx", verify=False, **{match[1]: match[2]})
    assert report.out == str(tmp_path / "out.onnx")


def test_reports_and_progress_and_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, int, int]] = []

    def progress(step: str, done: int = 0, total: int = 0) -> None:
        heard.append((step, done, total))

    page, card = tmp_path / "report.html", tmp_path / "card.md"
    with caplog.at_level(logging.INFO, "cudnn_convert"):
        report = cudnn_convert.convert(
            SOURCE, tmp_path / "out.onnx", report=page, card=card, progress=progress
        )
    steps = list(dict.fromkeys(step for step, *_ in heard))
    assert [record.message for record in caplog.records] == steps
    assert {"reading", "lowering", "writing", "verifying"} <= {*steps}
    assert {step for step, done, total in heard if done == total > 0} >= {"writing"}
    assert json.loads(page.with_suffix(".json").read_text()) == json.loads(report.to_json())
    assert report.weights is not None  # the page's map
    assert "**Equal**" in card.read_text()
    with pytest.raises(cudnn_convert.UsageError, match=r"replace it with force=True$"):
        cudnn_convert.convert(SOURCE, tmp_path / "other.onnx", report=page)
    assert not (tmp_path / "other.onnx").exists()
    found = cudnn_convert.verify(SOURCE, tmp_path / "out.onnx", report=page, force=True)
    assert json.loads(page.with_suffix(".json").read_text()) == json.loads(found.to_json())


def test_what_progress_raises_ends_the_call(tmp_path: Path) -> None:
    def stop(step: str, done: int = 0, total: int = 0) -> None:
        if step == "lowering":
            raise KeyError(step)

    with pytest.raises(KeyError):
        cudnn_convert.convert(SOURCE, tmp_path / "out.onnx", progress=stop)
    assert not [*tmp_path.iterdir()]


def test_a_failed_proof_has_its_report(tmp_path: Path) -> None:
    report, card = tmp_path / "report.json", tmp_path / "card.md"
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.convert(SOURCE, tmp_path / "out.onnx", atol=1e-30, rtol=0, report=report, card=card)
    assert json.loads(report.read_text())["verification"]["passed"] is False
    assert "**Different**" in card.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.md", "report.json"]


def test_arrays_are_data(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    rng = np.random.default_rng(3)
    report = cudnn_convert.convert(SOURCE, out, verify=False)
    feed = {key: rng.normal(size=shape).astype(np.float32) for key, shape in _shapes(out).items()}
    found = cudnn_convert.verify(SOURCE, out, data=feed)
    assert found.feeds == ({key: value.shape for key, value in feed.items()},)
    np.savez(tmp_path / "feeds.npz", **feed)
    assert cudnn_convert.verify(SOURCE, out, data=tmp_path / "feeds.npz").outputs == found.outputs
    given, read = cudnn_convert.run(out, data=feed), cudnn_convert.run(out, data=tmp_path / "feeds.npz")
    for key in report.outputs:
        assert np.array_equal(given.outputs[0][key], read.outputs[0][key])
    with pytest.raises(cudnn_convert.UsageError, match=r"^data: expected the keys .*, found \['x'\]$"):
        cudnn_convert.verify(SOURCE, out, data={"x": feed["x"]})
    with pytest.raises(cudnn_convert.UsageError, match=r"^data: x: expected .*, found objects$"):
        cudnn_convert.verify(SOURCE, out, data=feed | {"x": [{}]})


def _shapes(artifact: Path) -> dict[str, tuple[int, ...]]:
    return {key: value.shape for key, value in cudnn_convert.run(artifact).feeds[0].items()}


#: Converts in a process that has not imported TensorFlow, with a function that prints on stderr meanwhile.
LOUD = """
import sys, cudnn_convert
report = cudnn_convert.convert(
    sys.argv[1], sys.argv[2], progress=lambda step, *_: print(step, file=sys.stderr)
)
assert "tensorflow" in sys.modules
"""


@pytest.mark.slow("cudnn_convert/calls.py", "cudnn_convert/process.py")
def test_native_code_writes_nothing_to_the_callers_stderr(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOUD, str(SOURCE), str(tmp_path / "out.onnx")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    steps = "reading planning digesting lowering writing verifying".split()
    assert list(dict.fromkeys(done.stderr.split("\n"))) == [*steps, ""]
    assert done.stdout == ""


def test_calls_of_two_threads_mute_the_same_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its finder; neither asks the other."""
    (tmp_path / "noisy_by_nature.py").write_text("VALUE = 3")
    monkeypatch.syspath_prepend(tmp_path)
    with mute_import("noisy_by_nature"), mute_import("noisy_by_nature"):
        assert importlib.import_module("noisy_by_nature").VALUE == 3


def test_a_notebook_shows_a_report(tmp_path: Path) -> None:
    report: Any = cudnn_convert.convert(SOURCE, tmp_path / "out.onnx")
    shown = report._repr_html_()
    assert shown.startswith('<div class="cudnn-convert"><style>.cudnn-convert{')
    assert ">Equal: largest error " in shown
    assert "cudnn_rnn_tanh/CudnnRNNV3" in shown
    assert not re.search(r"<(html|head|body|script|meta)\b", shown)
    assert ">Equal: largest error " in report.verification._repr_html_()
