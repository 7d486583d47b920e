"""Files of a report: each beside OUT, whole or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

from report.test_card import SOURCE
from support.command_line import command, copied
from support.page_reader import Reader
from support.reports import PROOF, made

from cudnn_convert.report import card, files, page


def test_the_page_and_its_json_lie_side_by_side(tmp_path: Path) -> None:
    source, out = copied(tmp_path), tmp_path / "out.onnx"
    words = ("--format", "onnx", "--report", tmp_path / "one.html", "--quiet")
    assert command(source, out, *words).code == 0
    assert command("verify", source, out, "--report", tmp_path / "two.html", "--quiet").code == 0
    made, proven = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    subject = proven.pop("subject")
    assert made["verification"] == {**proven, "subject": None}
    assert made["weights"] == subject["weights"]
    assert made["recurrences"] == subject["recurrences"]
    for name in ("one", "two"):
        read = Reader((tmp_path / f"{name}.html").read_text(encoding="utf-8"))
        assert not read.open
        assert re.search(
            r"Equal: largest error (\d+|under 1) % of the tolerance 2 of 2 outputs agree", read.said
        )
        assert "cudnn_rnn_tanh/CudnnRNNV3" in read.said
        assert read.count("svg") >= 3


def test_a_proof_that_failed_has_its_page(tmp_path: Path) -> None:
    source, file = copied(tmp_path), tmp_path / "report.html"
    flags = ("--format=onnx", "--atol=1e-30", "--rtol=0", "--report", file, "--quiet")
    ended = command(source, tmp_path / "out.onnx", *flags)
    assert ended.code == 3
    said = Reader(file.read_text(encoding="utf-8")).said
    assert (
        "Different in 2 of 2 outputs 0 of 2 outputs agree with the float64 reference. rnn_out : at [" in said
    )
    assert json.loads((tmp_path / "report.json").read_text())["weights"]["gates"]


def test_card_and_report_are_files_of_their_own(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = command(SOURCE, tmp_path / "out", "--report", page, "--card", page.with_suffix(".json"))
    assert ended.code == 2
    assert "expected a file of its own, found one of the report; choose another path" in ended.stderr


def test_reports_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    written = {
        "page.html": page.of(made()),
        "conversion.json": made().to_json(),
        "verification.json": PROOF.to_json(),
        "card.md": card.of(made()),
        "other.html": "<p>of somebody else</p>",
        "other.json": "{}",
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    ours = {name for name in written if files.is_ours(tmp_path / name)}
    assert ours == {"page.html", "conversion.json", "verification.json"}
