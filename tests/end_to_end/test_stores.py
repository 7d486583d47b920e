"""Sources and outputs in S3: a server process of its own, users whose rights differ, objects that fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Ended
from support.record_files import example, record
from support.s3_server import BUCKET, Server, serve
from support.samples import ROOT, fixture

pytestmark = pytest.mark.every
SAMPLE = "1.15.5-v3_batch_major"
SOURCE = f"s3://{BUCKET}/runs/model.ckpt"
MARK = "assets.extra/cudnn_convert.json"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        running.put(fixture(SAMPLE).folder, "runs", "model.ckpt*")
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SavedModel that the same source becomes without a store."""
    folder = tmp_path_factory.mktemp("local")
    assert convert({}, fixture(SAMPLE).prefix, folder / "sm", "--quiet").code == 0
    return folder / "sm"


def convert(user: Any, *words: object) -> Ended:
    """`cudnn-convert WORDS` in a process of its own, as a user."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    call = [sys.executable, "-m", "cudnn_convert", *map(str, words)]
    done = subprocess.run(
        call, env={**environment, **user}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    for name, value in user.items():
        if "KEY" in name:
            assert value not in done.stdout + done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_conversion_has_the_bytes_of_a_local_one(server: Server, local: Path, tmp_path: Path) -> None:
    owner, out = server.users["owner"], f"s3://{BUCKET}/out/sm"
    report = tmp_path / "report.json"
    ended = convert(owner, SOURCE, out, "--report", report, "--quiet")
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"{out}\n", "")
    assert server.contents("out/sm/") == files(local)
    told = json.loads(report.read_text())
    assert (told["source"], told["out"]) == (SOURCE, out)
    assert not any(value in report.read_text() for name, value in owner.items() if "KEY" in name)
    again = convert(owner, SOURCE, out)
    cure = "choose another path, or replace it with --force"
    line = f"cudnn-convert: {out}: expected a new path, found what this tool wrote before; {cure}\n"
    assert (again.code, again.stderr) == (2, line)
    assert convert(owner, SOURCE, out, "--force", "--format", "onnx", "--quiet").code == 0
    assert {*server.contents("out/sm/")} == {"model.onnx", "conversion.json"}
    assert convert(owner, "verify", SOURCE, out, "--quiet").stdout == "equal\n"
    ended = convert(owner, "inspect", SOURCE, "--json")
    assert ended.code == 0 and f'"{SOURCE}"' in ended.stdout
    assert convert(owner, SOURCE, tmp_path / "here.onnx", "--quiet").code == 0
    assert convert(owner, "verify", SOURCE, tmp_path / "here.onnx", "--quiet").stdout == "equal\n"


def test_records_are_shared_out_from_their_addresses(server: Server, tmp_path: Path) -> None:
    owner, rng = server.users["owner"], np.random.default_rng(4)
    for name, rows in (("a", 3), ("b", 4)):
        content = b""
        for steps in range(2, 2 + rows):
            x, state = (rng.normal(size=size).astype(np.float32) for size in (3 * steps, 12))
            content += record(example({"x": x, "h0": state}))
        server.client.put_object(Bucket=BUCKET, Key=f"data/{name}.tfrecord", Body=content)
    made = tmp_path / "made.onnx"
    assert convert(owner, SOURCE, made, "--no-verify", "--quiet").code == 0
    for name in ("*", "b"):
        data = f"s3://{BUCKET}/data/{name}.tfrecord"
        given = ("--data", data, "--features", "x=float32[?,3],h0=float32[2,6]", "--batch", "2", "--json")
        whole = convert(owner, "verify", SOURCE, made, *given, "--quiet")
        assert whole.code == 0, whole.stderr
        assert json.loads(whole.stdout)["data"] == data
        assert convert(owner, "verify", SOURCE, made, *given, "--quiet", "--jobs", "2") == whole


def test_an_upload_that_fails_leaves_nothing(server: Server) -> None:
    out = f"s3://{BUCKET}/failing/sm"
    ended = convert(server.users["denied"], SOURCE, out, "--quiet")
    assert (ended.code, ended.stdout) == (4, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"cudnn-convert: {out}/variables/variables.data-00000-of-00001: cannot write: ")
    assert server.contents("failing/") == {}


def test_an_upload_that_cannot_be_removed_is_not_taken_for_whole(server: Server, local: Path) -> None:
    out = f"s3://{BUCKET}/stuck/sm"
    owner = server.users["owner"]
    assert convert(server.users["stuck"], SOURCE, out, "--quiet").code == 4
    assert {*server.contents("stuck/sm/")} == {".cudnn_convert", "saved_model.pb"}
    for words in (("verify", SOURCE, out), ("inspect", out)):
        ended = convert(owner, *words)
        expected = f"a finished artifact, with conversion.json or {MARK}"
        what = f"artifact: expected {expected}, found one without such a file"
        line = f"{out}: {what}; its upload did not end, so convert it again"
        assert (ended.code, ended.stderr) == (1, f"cudnn-convert: {line}\n")
    assert convert(owner, SOURCE, out, "--quiet").code == 0  # it is replaced without --force
    assert server.contents("stuck/sm/") == files(local)


def test_an_artifact_without_its_provenance_is_not_finished(server: Server) -> None:
    owner, out = server.users["owner"], f"s3://{BUCKET}/mark/sm"
    assert convert(owner, SOURCE, out, "--quiet").code == 0
    server.client.delete_object(Bucket=BUCKET, Key=f"mark/sm/{MARK}")
    ended = convert(owner, "verify", SOURCE, out)
    assert ended.code == 1 and "its upload did not end" in ended.stderr


def test_what_others_wrote_is_never_replaced(server: Server) -> None:
    server.client.put_object(Bucket=BUCKET, Key="thesis/sm/chapter", Body=b"years of work")
    ended = convert(server.users["owner"], SOURCE, f"s3://{BUCKET}/thesis/sm", "--force")
    assert ended.code == 2
    assert "found a folder that this tool did not write" in ended.stderr
    assert server.contents("thesis/") == {"sm/chapter": b"years of work"}


CALLS = {
    "a missing bucket": ("owner", [SOURCE, "s3://nobody/sm"], 4, "The specified bucket does not exist"),
    "a source in none": ("owner", ["s3://nobody/model.ckpt", "x"], 4, "The specified bucket does not exist"),
    "a wrong object": (
        "owner",
        [f"s3://{BUCKET}/runs/none.ckpt", "x"],
        1,
        "expected a model or a file in a bucket, found nothing at this address; check the address",
    ),
    "a wrong key": ("unknown", [SOURCE, "x"], 4, "The AWS Access Key Id you provided does not exist"),
    "a wrong key to write": (
        "unknown",
        [fixture(SAMPLE).prefix, f"s3://{BUCKET}/new/sm"],
        4,
        "The AWS Access Key Id you provided does not exist",
    ),
    "a key in the address": (
        "owner",
        ["s3://AKIA:hidden@models/runs/model.ckpt", "x"],
        2,
        "expected an address without credentials, found some",
    ),
    "too many bytes": ("owner", [SOURCE, "x", "--limit", "staged=1K"], 1, "give --limit staged=26973"),
    "a report": (
        "owner",
        [SOURCE, "x", "--report", f"s3://{BUCKET}/report.html"],
        2,
        "expected a local path, found an address; write here and copy it there",
    ),
}


@pytest.mark.parametrize(("user", "words", "code", "message"), CALLS.values(), ids=CALLS)
def test_a_call_that_fails_has_one_line(
    server: Server, tmp_path: Path, *, user: str, words: list[str], code: int, message: str
) -> None:
    before = server.contents()
    words = [str(tmp_path / "x") if word == "x" else word for word in words]
    ended = convert(server.users[user], *words, "--quiet")
    (line,) = ended.stderr.splitlines()
    assert (ended.code, ended.stdout) == (code, "")
    assert message in line and "hidden" not in line
    assert server.contents() == before and not [*tmp_path.iterdir()]


def test_a_store_that_does_not_answer_has_one_line(tmp_path: Path) -> None:
    user = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a-key",
        "AWS_SECRET_ACCESS_KEY": "hidden",
    }
    ended = convert(user, SOURCE, tmp_path / "x", "--quiet")
    (line,) = ended.stderr.splitlines()
    assert ended.code == 4 and line.startswith(f"cudnn-convert: {SOURCE}: cannot read: Could not connect")


def test_a_name_that_leaves_the_folder_is_refused(server: Server, tmp_path: Path) -> None:
    """S3 takes any name: one with `..` would lie anywhere on this machine."""
    server.client.put_object(Bucket=BUCKET, Key="evil/saved_model.pb", Body=b"")
    server.client.put_object(Bucket=BUCKET, Key="evil/../../escaped", Body=b"")
    ended = convert(server.users["owner"], f"s3://{BUCKET}/evil", tmp_path / "x")
    assert ended.code == 1 and "expected a name that is a path, found another" in ended.stderr


def test_a_batch_reads_and_writes_and_goes_on(server: Server, tmp_path: Path) -> None:
    """The same results and bytes as of the same files here, with a failing model and a stop in between."""
    owner = server.users["owner"]
    models = tmp_path / "models"
    for name in ("v3_batch_major", "gru_bi"):
        kept = shutil.ignore_patterns("*.npz", "*.json")
        shutil.copytree(fixture(f"1.15.5-{name}").folder, models / name, ignore=kept)
    shutil.copy(ROOT / "tests/data/broken/circle.pb", models)
    server.put(models, "archive")
    flags = ("--format", "npz", "--jobs", 1, "--quiet")
    here = convert({}, "batch", models, "--out", tmp_path / "cpu", *flags)
    out = f"s3://{BUCKET}/cpu"
    there = convert(owner, "batch", f"s3://{BUCKET}/archive", "--out", out, *flags)
    assert (there.code, there.stdout) == (1, f"{out}/results.jsonl\n")
    assert there.stderr == here.stderr.replace(str(models), f"s3://{BUCKET}/archive")
    lines = [lines_of(server.contents("cpu/")["results.jsonl"])]
    lines.append(lines_of((tmp_path / "cpu" / "results.jsonl").read_bytes()))
    assert lines[0] == lines[1]
    artifacts = {name: data for name, data in server.contents("cpu/").items() if name != "results.jsonl"}
    local = {name: data for name, data in files(tmp_path / "cpu").items() if name != "results.jsonl"}
    assert artifacts == local
    again = convert(owner, "batch", f"s3://{BUCKET}/archive/**/*.index", "--out", out, *flags)
    assert (again.code, again.stderr) == (0, "")
    statuses = [json.loads(line)["status"] for line in server.contents("cpu/")["results.jsonl"].splitlines()]
    assert sorted(statuses) == ["refused", "skipped", "skipped"]


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """Lines by OUT, without what was measured and where files were."""
    rows = [json.loads(line) for line in content.splitlines()]
    for row in rows:
        for name in ("seconds", "peak_mb", "digests", "source", "reasons"):
            row.pop(name)
    return sorted(rows, key=lambda row: row["out"])
