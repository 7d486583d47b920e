"""`cudnn-convert batch` as it is typed: workers that convert, streams, exit codes, signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.command_line import command, contents, ends_within
from support.samples import GRAPHLESS, ROOT, fixture

import cudnn_convert
from cudnn_convert.batch import Summary
from cudnn_convert.cli import terminal

#: Weights that become an npz in a tenth of a second, without TensorFlow.
WEIGHTS = [found for found in GRAPHLESS if found.prefix.with_suffix(".ckpt.index").exists()][:3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three models and a broken one in `runs`."""
    monkeypatch.chdir(tmp_path)
    for sample in WEIGHTS:
        shutil.copytree(sample.folder, tmp_path / "runs" / sample.folder.name)
    shutil.copy(ROOT / "tests" / "data" / "broken" / "circle.pb", tmp_path / "runs")
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]


def test_a_folder_is_converted_and_then_skipped(folder: Path) -> None:
    ended = command("batch", "runs", "--out", "out", "--format", "npz", "--jobs", 2, "--report", "all.html")
    assert (ended.code, ended.stdout) == (1, "out/results.jsonl\n")
    broken = "cudnn-convert: runs/circle.pb: graph: expected inputs that form no circle, found a circle"
    assert ended.stderr.startswith(broken)
    assert re.search(r"^converted +3 *\n", ended.stderr, re.MULTILINE)
    assert re.search(r"^refused +1 *\n", ended.stderr, re.MULTILINE)
    verdict = r"3 of 4 models converted and proven \(largest error (\d+|under 1) % of the tolerance\)"
    assert re.fullmatch(rf"out/results\.jsonl: {verdict}", ended.stderr.splitlines()[-1])
    assert {line["out"]: line["status"] for line in lines(folder)} == {
        "circle": "refused",
        **{f"{sample.folder.name}/{sample.prefix.name}": "converted" for sample in WEIGHTS},
    }
    for line in lines(folder):
        assert line["seconds"] > 0 and line["peak_mb"] > 10
        if line["status"] == "converted":
            assert line["verification"]["passed"]
            assert cudnn_convert.verify(line["source"], folder / "out" / line["out"]).passed
            assert (folder / "all" / f"{line['out']}.html").is_file()
    assert (folder / "all.html").read_text().count(">report</a>") == 3
    again = command("batch", "runs", "--out", "out", "--format", "npz", "--quiet")
    assert (again.code, again.stdout) == (1, "out/results.jsonl\n")
    assert again.stderr.splitlines() == [line for line in ended.stderr.splitlines() if "circle" in line]
    assert [line["status"] for line in lines(folder)].count("skipped") == 3
    ended = command("batch", "runs/*/*.index", "--out", "out", "--format", "npz")
    assert ended.code == 0


def test_a_dry_run_lists_and_writes_nothing(folder: Path) -> None:
    before = contents(folder)
    ended = command("batch", "runs", "--out", "out", "--format", "npz", "--dry-run")
    assert (ended.code, ended.stderr) == (0, "")
    heads, *rows = (line.split() for line in ended.stdout.splitlines())
    assert heads == ["what", "source", "OUT", "format", "bytes"]
    assert [row[:4] for row in rows] == [
        ["convert", f"runs/{name}{end}", f"{name}", "npz"]
        for name, end in sorted(
            [("circle", ".pb"), *((f"{one.folder.name}/{one.prefix.name}", "") for one in WEIGHTS)]
        )
    ]
    assert contents(folder) == before


def test_rows_of_a_manifest_have_their_own_flags(folder: Path) -> None:
    name = f"{WEIGHTS[0].folder.name}/{WEIGHTS[0].prefix.name}"
    (folder / "list.csv").write_text(
        f"source,out,flags\nruns/{name},first,--format npz\nruns/{name},second,\n"
    )
    call = ("--manifest", "list.csv", "--out", "out", "--format", "safetensors", "--no-verify")
    assert command("batch", *call).code == 0
    assert (folder / "out" / "first" / "weights.npz").is_file()
    assert (folder / "out" / "second" / "weights.safetensors").is_file()
    assert [line["verification"] for line in lines(folder)] == [None, None]


USAGE = {
    "no folder": (["runs"], "the following arguments are required: --out; see cudnn-convert batch --help"),
    "no models": (
        ["--out", "out"],
        "expected models, found none; name files, folders, patterns or a manifest",
    ),
    "no jobs": (["runs", "--out", "out", "--jobs", "0"], "--jobs: expected at least 1, found 0"),
    "a retry": (["runs", "--out", "out", "--retry", "some"], "argument --retry: invalid choice: 'some'"),
    "a limit": (["runs", "--out", "out", "--limit", "x=1"], "--limit: expected NAME=NUMBER with a NAME of"),
    "a page": (
        ["runs", "--out", "out", "--report", "r.json"],
        "--report: expected a name that ends in .html",
    ),
    "a pattern": (
        ["runs/*.h5", "--out", "out"],
        "runs/*.h5: expected a pattern that matches models, found nothing",
    ),
}


@pytest.mark.parametrize(("words", "message"), USAGE.values(), ids=USAGE)
def test_a_call_that_is_wrong_leaves_nothing(folder: Path, words: list[str], message: str) -> None:
    before = contents(folder)
    ended = command("batch", *words)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"cudnn-convert: {message}")
    assert contents(folder) == before


@pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")
@pytest.mark.slow(
    *("cudnn_convert/batch/", "cudnn_convert/cli/batch.py", "cudnn_convert/process.py"),
    "cudnn_convert/workers.py",
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_batch_that_is_told_to_stop_cleans_up_and_goes_on_later(
    folder: Path, number: signal.Signals
) -> None:
    """As Ctrl-C does: once at first, and again while it stops."""
    for k in range(4):
        shutil.copytree(fixture("1.15.5-bilstm_tagger").folder, folder / "runs" / f"slow{k}")
    (folder / "runs" / "circle.pb").unlink()
    hearing = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program = (
        f"{hearing}signal.signal(signal.SIGHUP, signal.SIG_DFL)\nfrom cudnn_convert import cli\ncli.run()"
    )
    call = [sys.executable, "-c", program, "batch", "runs", "--out", "out", "--jobs", "2", "--quiet"]
    running = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    for _ in range(2):
        running.send_signal(number)
        time.sleep(0.1)
    stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout, stderr) == (130, "out/results.jsonl\n", "")
    interrupted = [line for line in lines(folder) if line["status"] == "interrupted"]
    assert 1 <= len(interrupted) <= 2
    for line in interrupted:
        assert (line["exit_code"], line["reasons"]) == (130, [f"{line['source']}: it was told to stop"])
    assert not [*folder.rglob("*.tmp")]
    assert command("batch", "runs/slow*", "--out", "out", "--jobs", "2").code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child")
@pytest.mark.slow("cudnn_convert/batch/", "cudnn_convert/process.py", "cudnn_convert/workers.py")
def test_workers_do_not_outlive_a_batch_that_is_killed(folder: Path) -> None:
    shutil.copytree(fixture("1.15.5-bilstm_tagger").folder, folder / "runs" / "slow")
    call = [sys.executable, "-m", "cudnn_convert", "batch", "runs/slow", "--out", "out", "--quiet"]
    running = subprocess.Popen(call, env={**os.environ, "PYTHONPATH": str(ROOT)})
    children: list[int] = []
    for _ in range(100):
        time.sleep(0.1)
        text = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
        if children := [int(word) for word in text.split()]:
            break
    assert children
    running.kill()
    running.wait()
    assert all(ends_within(30, child) for child in children)


@pytest.mark.slow("cudnn_convert/cli/batch.py")
def test_the_warnings_of_a_converted_model_are_told_unless_quiet(folder: Path) -> None:
    sample = fixture("1.15.5-bilstm_tagger").folder
    shutil.copytree(sample, "lost", ignore=shutil.ignore_patterns("*.meta", "*.npz", "*.json"))
    words = ("batch", "lost", "--out", "out", "--format", "onnx", "--no-verify", "--jobs", 1)
    ended = command(*words)
    assert ended.code == 0
    assert ended.stderr.startswith(
        "warning: lost/model.ckpt: model.ckpt.meta is missing, so that recurrences alone"
    )
    assert ended.stderr.endswith(
        "results.jsonl: 0 of 1 models converted and proven; 1 converted without proof\n"
    )
    assert (command(*words, "--quiet").stderr, lines(folder)[0]["status"]) == ("", "skipped")


def test_the_last_line_counts_what_is_proven_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"end_to_end": "equal", "needed": 0.068}
    proofs = (whole, {"end_to_end": "not judged", "needed": 0.2}, {**whole, "needed": None}, None)
    counts = {"converted": 3, "skipped": 1, "refused": 2}
    terminal.show_summary(Summary(Path("cpu/results.jsonl"), counts, proofs, 1, is_stopped=False))
    told = "3 of 7 models converted and proven (largest error 20 % of the tolerance; 1 not judged end to end)"
    assert capsys.readouterr().err.endswith(f"\ncpu/results.jsonl: {told}; 1 converted without proof\n")
    terminal.show_summary(Summary(Path("r"), {"refused": 2}, (), 0, is_stopped=False))
    assert capsys.readouterr().err.endswith("\nr: 0 of 2 models converted and proven\n")
