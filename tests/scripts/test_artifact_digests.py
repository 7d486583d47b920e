"""The manifest of artifacts: the same again, and every difference is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

SAMPLE = "tf1/1.15.5/op_skip_relu"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import artifact_digests

    return artifact_digests


@pytest.mark.slow("scripts/artifact_digests.py")
def test_a_check_names_what_differs(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifest.json"
    assert script.main(["--write", str(file), "--only", f"{SAMPLE} npz"]) == 0
    manifest = json.loads(file.read_text())
    check = ["--check", str(file)]
    assert script.main(check) == 0
    [result] = manifest["digests"].values()
    result["files"] = "0" * 64
    manifest["digests"]["gone npz"] = dict(result)
    file.write_text(json.dumps(manifest))
    capsys.readouterr()
    assert script.main(check) == 1
    differs, missing, _ = capsys.readouterr().out.splitlines()
    assert differs.startswith(f"differs: {SAMPLE} npz: files: {'0' * 64} before, ")
    assert missing == "missing: gone npz"
    assert script.main([*check, "--only", "another"]) == 2
    manifest["versions"]["numpy"] = "1"
    file.write_text(json.dumps(manifest))
    assert script.main(check) == 2


def test_a_digest_has_bytes_and_paths(script: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"xy")
    (tmp_path / "b").write_bytes(b"z")
    first = script.of_files(tmp_path)
    (tmp_path / "a").write_bytes(b"yx")
    second = script.of_files(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    assert len({first, second, script.of_files(tmp_path)}) == 3


@pytest.mark.parametrize(("ops", "is_same"), [(b"Flex", True), (b"WHILE", False)])
def test_files_with_flex_ops_are_not_compared(script: Any, tmp_path: Path, ops: bytes, is_same: bool) -> None:
    (tmp_path / "model.tflite").write_bytes(ops + b"12")
    before = script.of_files(tmp_path)
    (tmp_path / "model.tflite").write_bytes(ops + b"21")
    assert (script.of_files(tmp_path) == before) is is_same


def test_a_fast_run_is_a_part_with_every_sample(script: Any) -> None:
    fast, whole = ({job.name for job in jobs()} for jobs in (script.fast_jobs, script.all_jobs))
    assert fast < whole
    assert {f"{sample.name} savedmodel" for sample in script.samples()} <= fast
