"""The page of a report: whole in itself, safe whatever names it holds, and sound in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.browser import measure_in_frame
from support.page_reader import Reader

from cudnn_convert.report import Report, Verification, page
from cudnn_convert.report.values import (
    DecodingReport,
    Distribution,
    Element,
    GateReport,
    LayoutReport,
    MicroReport,
    OutputReport,
    OverTime,
    PieceReport,
    RecurrenceReport,
    StreamReport,
    Subject,
    TensorRegion,
    VariableReport,
    WeightsReport,
)

EVIL = '<script>alert("x")</script>'
LONG = "a_scope_that_goes_on/" * 12 + "cudnn_lstm/opaque_kernel"
RISING = OverTime(0, 4, tuple(1e-9 * 1.1**k for k in range(100)))
BINS = Distribution(5, -8.0, 0.5, (0,) * 9 + (3, 40, 900, 17) + (0,) * 15)


def output(name: str = "scores", *, passed: bool = True, **given: Any) -> OutputReport:
    message = "" if passed else "at [1] expected 1, found 2"
    made = OutputReport(
        name, passed, 965, 1e-7, 0.01, 1e-5, 1e-5, "float32", 0, message,
        1e-7, 2e-6, 1e-5, 3, 0.9999999, Element(1, (2, 0, 5), 1.0, 1.0000001), RISING, BINS,
    )  # fmt: skip
    return replace(made, **given)


def proof(*outputs: OutputReport, name: str = "model.ckpt", node: str = "rnn") -> Verification:
    rows = tuple(
        GateReport(0, "forward", gate, field, TensorRegion(name, "[0:4]", "as it is"), target, doubt)
        for gate, field, target, doubt in (
            ("input", "kernel", TensorRegion(name, "[:, 0:4]", "transposed"), ""),
            ("forget", "kernel", None, ""),
            ("cell", "recurrent_kernel", TensorRegion(name, "[0, 4:8]", "as it is"), "transposed here"),
        )
    )
    order = LayoutReport(("input", "output", "forget", "cell"), ("onnx",))
    others = (VariableReport(name, (3, 4), "needed", None), VariableReport("w", (2,), "needed", name))
    weights = WeightsReport({node: rows}, {node: order}, {node: LayoutReport((), ())}, others)
    found = RecurrenceReport(node, "CudnnRNN", "lstm", 1, 1, 4, 3, "float32", "raw")
    told = Subject(name, "checkpoint", "onnx", name, {name: name}, {name: name}, (found,), (name,), weights)
    passed = all(one.passed for one in outputs)
    return Verification(passed, 7, ({"x": (17, 3, 4)}, {"x": (9, 2, 4)}), outputs, (name,), told)


def test_every_recurrence_comes_before_the_outputs_with_what_it_would_have_shown() -> None:
    hidden = "layer 0 forward: kernel zero: 2 tolerances"
    asked = PieceReport(
        EVIL, (0, 1), asked=True, passed=True, piece="GRU_0", compared=4321, worst=2.5e-7, needed=0.0123,
        atol=1e-5, rtol=1e-5, smallest=3456.0, weakest=12.0, unseen=(hidden,),
    )  # fmt: skip
    wrong = replace(asked, node="other", passed=False, message="layer 1 backward: y", unseen=())
    silent = PieceReport("third", (0,), asked=False, passed=True, message="not asked by itself: why")
    told = replace(proof(output()), passed=False, recurrences=(asked, wrong, silent))
    read = Reader(page.of(told))
    assert read.said.index("Recurrences by themselves") < read.said.index("Outputs")
    assert "1 of 3 recurrences agree by themselves with the float64 reference." in read.said
    for figure in (EVIL, "0, 1", "GRU_0", "4,321", "2.50e-07", "1.2%", "3,456", "12", hidden, "not asked",
                   "other : layer 1 backward: y", "third : not asked by itself: why"):  # fmt: skip
        assert figure in read.said, figure
    assert "script" not in {tag for tag, _ in read.tags}


def test_what_is_not_judged_is_called_neither_equal_nor_different() -> None:
    one = output(judged=False, message="not judged end to end: why")
    read = Reader(page.of(replace(proof(one), end_to_end="not judged")))
    assert "Recurrences equal, end to end not judged" in read.said
    assert "0 of 1 outputs agree" in read.said
    assert "not judged end to end: why" in read.said


def test_the_verdict_comes_first_and_every_figure_is_there() -> None:
    read = Reader(page.of(proof(output(), output("other", passed=False))))
    assert not read.open
    first = next(k for k, (tag, _) in enumerate(read.tags) if tag == "h1")
    assert first < next(k for k, (tag, _) in enumerate(read.tags) if tag == "table")
    assert (
        "Different in 1 of 2 outputs 1 of 2 outputs agree with the float64 reference. other : at [1]"
        in read.said
    )
    for figure in (
        "1.00e-07",
        "2.00e-06",
        " 3 ",
        "0.999999900",
        "1.0%",
        "feed 2",
        "[2, 0, 5]",
        "above 1e-05",
    ):
        assert figure in read.said, figure
    assert "input output forget cell as onnx" in read.said
    assert "not found by its values" in read.said
    assert "transposed here" in read.said


def test_what_has_no_meaning_is_left_out() -> None:
    bare = OutputReport("tags", False, 12, 3.0, 3.0, 0.0, 0.0, "equal", 0, "3 of 12 values differ")
    nothing = OutputReport("lost", False, 0, float("inf"), float("inf"), 0.0, 0.0, "none", 0, "missing")
    text = page.of(proof(bare, nothing))
    assert "<svg" not in text
    assert not re.search(r"\b(nan|inf|None)\b", Reader(text).said)


def test_names_out_of_files_are_text() -> None:
    text = page.of(proof(output(EVIL, message=EVIL, reason=EVIL), name=EVIL, node=EVIL))
    assert "<script" not in text
    read = Reader(text)
    assert read.count("script") == 0
    assert read.said.count(EVIL) >= 10


@pytest.mark.parametrize("passed", [True, False])
def test_nothing_is_fetched(passed: bool) -> None:
    text = page.of(proof(output(passed=passed)))
    assert not re.search(r"https?://|url\(|@import|\bsrc=|\bhref=", text)
    assert Reader(text).count("script", "link", "img", "iframe", "object", "base", "form") == 0
    assert "default-src 'none'" in text


def test_a_conversion_that_was_not_verified_says_so() -> None:
    bare = Report("s", "k", "onnx", "o", {"x": "x:0"}, {"y": "y:0"}, (), (), (), None)
    assert "Not verified Nothing was compared (--no-verify)." in Reader(page.of(bare)).said
    assert "Portable already" in Reader(page.of(replace(bare, out=None))).said


def test_the_needs_of_a_file_in_micro_are_there() -> None:
    needed = MicroReport(41960, 39680, ("ADD", EVIL), (EVIL,), 4800)
    bare = Report("s", "k", "tflite", "o", {"x": "x:0"}, {"y": "y:0"}, (), (), (), None)
    text = page.of(replace(bare, micro=needed))
    said = Reader(text).said
    for words in ("In TensorFlow Lite Micro", "41,960 bytes", "39,680 bytes, the smallest", f"ADD, {EVIL}"):
        assert words in said, words
    assert "<script" not in text
    assert "4,800 bytes" in page.fragment(replace(bare, micro=needed))
    assert "Micro" not in page.of(bare)


# In a browser.


@pytest.mark.every
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_nothing_overflows_in_a_browser(width: int, tmp_path: Path) -> None:
    asked = PieceReport(LONG, (0, 1), asked=True, passed=True, piece="GRU_0", compared=4321, smallest=3456.0)
    found = proof(output(LONG), output("other", passed=False, needed=3e25), name=LONG, node=LONG)
    found = replace(found, recurrences=(asked,), remarks=(LONG,))
    told = measure_in_frame(page.of(found), width, tmp_path)
    assert told["inner"] == width
    assert told["scroll"] <= width
    assert told["wide"] == []
    assert told["cut"] == []
    assert told["fetched"] == []
    assert len(told["marks"]) == 4
    assert all(told["marks"])


def test_chunks_and_searches_have_a_sentence_each() -> None:
    chunks = StreamReport(True, ("of 1", "of 7"), 90, 1e-7, 0.034, ("loss",))
    search = DecodingReport(True, "beam", 12, 10, 2, 7, 84, 1e-7, 0.1)

    def sentences(streamed: StreamReport, searched: DecodingReport) -> str:
        return Reader(page.of(replace(proof(output()), streaming=streamed, decoding=searched))).said

    said = sentences(chunks, search)
    assert "Sequences in chunks of 1, of 7 are equal to the whole (3.4% of the tolerance at most)" in said
    assert "not judged: loss" in said
    assert "The search (beam) finds what one in NumPy finds on the step's own numbers: 84 tokens" in said
    assert "7 ends; rounding turned 2 rows." in said
    failed = {"passed": False, "message": "output y"}
    said = sentences(replace(chunks, **failed), replace(search, **failed))
    assert "Given in chunks, not equal: output y." in said
    assert "The search (beam) is not equal: output y." in said
