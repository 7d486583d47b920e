"""The page of a report: whole in itself, safe whatever names it holds, and sound in a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.browser import measure_in_frame
from support.command_line import command, copied

from cudnn_convert.report import (
    DecodingReport,
    Distribution,
    Element,
    GateReport,
    LayoutReport,
    OutputReport,
    OverTime,
    PieceReport,
    RecurrenceReport,
    Report,
    StreamReport,
    Subject,
    TensorRegion,
    VariableReport,
    Verification,
    WeightsReport,
    html,
    page,
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


class Reader(HTMLParser):
    """The elements of a page and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text.replace("<wbr>", ""))  # where a name may be broken
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in ("meta", "br") else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, *tags: str) -> int:
        return sum(tag in tags for tag, _ in self.tags)


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


def test_a_cell_has_the_head_of_its_column_for_where_a_row_is_a_card() -> None:
    made = html.table(("", "name", "count"), [("good", html.name("a/b"), 12)], numbers=[2])
    cells = [attrs for tag, attrs in Reader(made.text).tags if tag == "td"]
    assert [cell["data-head"] for cell in cells] == ["", "name", "count"]
    assert [cell["class"] for cell in cells] == ["text", "text", "number"]
    with pytest.raises(ValueError, match="zip"):
        html.table(("a", "b"), [("one",)])
    columns = {count: html.table("x" * count, []).text.split('"')[1] for count in (4, 5, 7, 8)}
    assert columns == {4: "box few", 5: "box some", 7: "box some", 8: "box many"}
    for kind in ("few", "some", "many"):
        rule = re.search(rf"@container \(max-width:\d+rem\)\{{\.{kind}\{{[^@]*", html.SHEET)
        assert rule is not None
        assert "content:attr(data-head)" in rule[0]


def test_a_flag_in_a_sentence_is_not_broken() -> None:
    said = html.prose("a--b <x>; give --limit expanded=5 or --no-verify.").text
    flag = '<span class="flag">{}</span>'.format
    assert said == f"a--b &lt;x&gt;; give {flag('--limit')} expanded=5 or {flag('--no-verify')}."


def test_the_plots_have_their_marks() -> None:
    (over, spread) = re.findall(r"<svg.*?</svg>", page.of(proof(output())), re.S)
    assert len(re.findall(r" L", over)) == len(RISING.errors) - 1
    assert 'class="limit"' in over
    assert "the worst of each 4" in over
    assert "absolute error" in over
    bars = [float(found) for found in re.findall(r'<rect[^>]*height="([\d.]+)"', spread)]
    assert len(bars) == 4
    assert bars[2] == max(bars)
    assert bars[1] / bars[2] == pytest.approx(40 / 900, abs=1e-2)
    assert "error / tolerance" in spread


def test_a_short_run_has_a_dot_for_every_step() -> None:
    text = page.of(proof(output(over_time=OverTime(1, 1, (0.0, 1e-7, 2e-6)))))
    heights = [float(found) for found in re.findall(r'<circle[^>]*cy="([\d.]+)"', text)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)


def test_errors_beyond_the_tolerance_are_marked() -> None:
    text = page.of(proof(output(distribution=Distribution(0, -8.0, 0.5, (0,) * 15 + (2, 3) + (0,) * 11))))
    assert text.count('class="bar"') == 1
    assert text.count('class="bar over"') == 1


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


# On the command line.


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
