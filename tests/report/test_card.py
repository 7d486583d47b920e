"""The model card: the origin and the verdict of an artifact in Markdown."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from support.command_line import command
from support.reports import PROOF, made
from support.samples import fixture

from cudnn_convert.errors import UsageError
from cudnn_convert.report import card, files
from cudnn_convert.report.values import MicroReport, Origin, PieceReport
from cudnn_convert.text import command as quoted
from cudnn_convert.version import list_versions

SOURCE = fixture("1.15.5-v3_batch_major").prefix


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    lines = text.partition(f"## {title}\n")[2].lstrip("\n").split("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_a_card_has_origin_verdict_and_recurrences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    file, out = tmp_path / "card.md", tmp_path / "model.onnx"
    words = [SOURCE, out, "--card", file, "--opset", "16", "--seed", "5"]
    first = command(*words)
    assert first.code == 0, first.stderr
    text = file.read_text()
    call = quoted(["cudnn-convert", str(SOURCE), str(out), "--format=onnx", "--opset=16", "--seed=5"])
    assert "# `model.onnx`" in text
    assert "**Equal** to the float64 reference" in text
    assert "| date | 2023-11-14 22:13 UTC |" in text
    assert f"`{call}`" in text
    files = sorted(SOURCE.parent.glob(f"{SOURCE.name}.*"))
    digests = [[f"`{path.name}`", f"`{hashlib.sha256(path.read_bytes()).hexdigest()}`"] for path in files]
    assert rows(text, "Source files") == digests
    (row,) = rows(text, "Recurrences")
    assert row[:3] == ["`cudnn_rnn_tanh/CudnnRNNV3`", "CudnnRNNV3", "rnn_tanh"]
    assert row[3:8] == ["1", "2", "6", "3", "equal"]
    assert [row[0] for row in rows(text, "Outputs")] == ["`rnn_out`", "`state_h`"]
    for name, version in list_versions().items():
        assert f"{name} {version}" in text
    assert command(*words, "--force").code == 0
    assert file.read_text() == text


def test_an_artifact_has_digests_and_versions_but_no_date_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_of = []
    for moment in ("1700000000", "1800000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", moment)
        out = tmp_path / moment / "model.onnx"
        command(SOURCE, out, "--card", tmp_path / moment / "card.md")
        bytes_of.append(out.read_bytes())
    assert bytes_of[0] == bytes_of[1]
    (text,) = (entry.value for entry in onnx.load(out).metadata_props if "sha256" in entry.value)
    found = json.loads(text)
    index = SOURCE.with_name(f"{SOURCE.name}.index")
    assert found["source"]["sha256"][index.name] == hashlib.sha256(index.read_bytes()).hexdigest()
    assert found["versions"] == list_versions()
    assert "verification" not in text
    assert str(SOURCE.parent) not in text


@pytest.mark.parametrize("given", ["now", "1e9", str(10**30)])
def test_a_bad_date_ends_a_call_before_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    ended = command(SOURCE, tmp_path / "out", "--card", tmp_path / "card.md")
    expected = f"SOURCE_DATE_EPOCH: expected seconds since 1970, found '{given}'; correct it or unset it"
    assert (ended.code, ended.stderr) == (2, f"cudnn-convert: {expected}\n")
    assert not [*tmp_path.iterdir()]


def test_names_of_strangers_end_no_code_span() -> None:
    hidden = "a`|b\n<img src=x>``c"
    report = replace(made(), inputs={hidden: "x:0"}, notes=("<script>*_`",), origin=Origin({}, {}, ()))
    text = card.of(report)
    assert "| input | ``` a`\\|b\\n<img src=x>``c ``` | `x:0` |" in text
    assert "\\<script\\>\\*\\_\\`" in text


def test_a_recurrence_has_a_row_for_each_place_where_it_was_asked() -> None:
    right = PieceReport("rnn", (0,), True, True, piece="LSTM_0", worst=1e-7, needed=0.02, smallest=300.0)
    wrong = replace(right, passed=False, piece="LSTM_1", weakest=12.0)
    text = card.of(replace(made(), verification=replace(PROOF, passed=False, recurrences=(right, wrong))))
    assert "**Different** from" in text
    assert [row[7:] for row in rows(text, "Recurrences")] == [
        ["equal", "`LSTM_0`", "1.00e-07", "2.0%", "300 tolerances", "-"],
        ["**different**", "`LSTM_1`", "1.00e-07", "2.0%", "300 tolerances", "12 tolerances"],
    ]


def test_a_card_replaces_cards_of_this_tool_alone(tmp_path: Path) -> None:
    own, other = tmp_path / "card.md", tmp_path / "README.md"
    own.write_text(card.of(made()))
    other.write_text("# Of somebody else\n")
    assert files.has_mark(own, card.MARK)
    assert not files.has_mark(other, card.MARK)
    ended = command(SOURCE, tmp_path / "out", "--card", other, "--force")
    assert ended.code == 2
    assert "found a file that this tool did not write" in ended.stderr
    assert other.read_text() == "# Of somebody else\n"


def test_a_bad_epoch_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "x")
    with pytest.raises(UsageError, match=r"^SOURCE_DATE_EPOCH: "):
        card.of(made())


def test_a_card_has_the_needs_of_a_file_in_micro() -> None:
    needed = MicroReport(41960, 39680, ("ADD", "a|b"), ("a|b",), 4800)
    found = rows(card.of(replace(made(), micro=needed)), "In TensorFlow Lite Micro")
    assert [row[0] for row in found] == ["file", "arena", "state", "operators", "without a kernel"]
    assert found[0][1] == "41,960 bytes"
    assert found[4][1] == "a\\|b"
    assert "Micro" not in card.of(made())
