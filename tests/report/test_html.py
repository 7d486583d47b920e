"""Tables, flags and plots as HTML."""

from __future__ import annotations

import re

import pytest
from support.page_reader import Reader

from cudnn_convert.report import html
from cudnn_convert.report.values import Distribution, OverTime

RISING = OverTime(0, 4, tuple(1e-9 * 1.1**k for k in range(100)))
BINS = Distribution(5, -8.0, 0.5, (0,) * 9 + (3, 40, 900, 17) + (0,) * 15)


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
    over, spread = html.plot_over_time(RISING, 1e-5).text, html.plot_distribution(BINS).text
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
    text = html.plot_over_time(OverTime(1, 1, (0.0, 1e-7, 2e-6)), 1e-5).text
    heights = [float(found) for found in re.findall(r'<circle[^>]*cy="([\d.]+)"', text)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)


def test_errors_beyond_the_tolerance_are_marked() -> None:
    text = html.plot_distribution(Distribution(0, -8.0, 0.5, (0,) * 15 + (2, 3) + (0,) * 11)).text
    assert text.count('class="bar"') == 1
    assert text.count('class="bar over"') == 1
