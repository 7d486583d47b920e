"""The picture of the network around recurrences: every box in its row, nothing over another, safe names."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from math import comb
from operator import mul
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert.report import Verification, draw, html
from cudnn_convert.report.values import PieceReport, RecurrenceReport, StateReport, Subject
from cudnn_convert.values import Link, Network

RNN = RecurrenceReport("tower/cudnn_lstm/CudnnRNN", "CudnnRNN", "lstm", 2, 2, 40, 12, "float32", "raw")
HEAD = replace(RNN, node="head", mode="gru", layers=1, directions=1)
LINKS = (
    Link("input ids", RNN.node, 9), Link("input lengths", RNN.node, 2), Link("input mask", "head", 1),
    Link(RNN.node, "head", 1234), Link("head", "output scores", 3), Link("head", "output tags", 40),
    Link(RNN.node, "output state", 0),
)  # fmt: skip
ENDS = (
    {key: f"{key}:0" for key in ("ids", "lengths", "mask")},
    {key: f"{key}:0" for key in ("scores", "tags", "state")},
)
SUBJECT = Subject(
    "model", "checkpoint", "onnx", "out", *ENDS, (RNN, HEAD), (),
    states=(StateReport("head", "h", "head_h", "head_h_next"),), network=Network(LINKS, 1500, 2600),
)  # fmt: skip


def boxes(picture: str) -> list[tuple[str, float, float, float, float]]:
    """The title, left, top, right and bottom of each box."""
    pattern = r'<title>([^<]*)</title><rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"'
    found = [(title, *map(float, numbers)) for title, *numbers in re.findall(pattern, picture)]
    return [(title, x, y, x + width, y + height) for title, x, y, width, height in found]


def test_boxes_lie_in_rows_and_apart() -> None:
    picture = draw.network(SUBJECT, None).text
    placed = {title: place for title, *place in boxes(picture)}
    assert placed.keys() == {"ids, lengths", "mask", RNN.node, "head", "scores, tags", "state"}
    tops = {title: top for title, (_, top, _, _) in placed.items()}
    assert (
        tops["ids, lengths"]
        == tops["mask"]
        < tops[RNN.node]
        < tops["head"]
        < tops["scores, tags"]
        == tops["state"]
    )
    for one, other in combinations(placed.values(), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    height = float(re.search(r'viewBox="0 0 340 (\d+)"', picture)[1])  # type: ignore[index]
    assert all(x >= 0 and right <= draw.WIDTH and bottom <= height for x, _, right, bottom in placed.values())
    assert "1,500 ops are kept; 2,600 of the source&#x27;s were cut away." in picture
    facts = (
        *("after 2 to 9 ops", "after 1 to 1,234 ops", "after 3 to 40 ops"),
        *("lstm, 2 layers, both directions", "gru, 1 layer, one direction"),
    )
    for words in facts:
        assert f'class="fact">{words}<' in picture, words
    assert "states h go in and come out" in picture
    assert "40 units, 12 inputs" in picture


def traced(picture: str) -> list[list[tuple[float, float]]]:
    """Points along each way of a picture: its lines, and its curves of Bezier in 40 steps."""
    ways = []
    for path in re.findall(r'<path d="([^"]*)" class="way"', picture):
        points: list[tuple[float, float]] = []
        for kind, numbers in re.findall(r"([MCL])([\d. -]+)", path):
            values = [*map(float, numbers.split())]
            corners = [*points[-1:], *zip(values[::2], values[1::2], strict=True)]
            order = len(corners) - 1
            for t in (k / 40 for k in range(1, 41)):
                shares = [comb(order, k) * t**k * (1 - t) ** (order - k) for k in range(order + 1)]
                x, y = (sum(map(mul, shares, each)) for each in zip(*corners, strict=True))
                points.append((x, y))
            assert kind in "MCL"
        ways.append(points)
    return ways


def drawn(recurrences: int, links: list[Link]) -> str:
    """The picture of recurrences `r0`, `r1` and so on."""
    nodes = tuple(replace(RNN, node=f"r{k}") for k in range(recurrences))
    return draw.network(replace(SUBJECT, recurrences=nodes, network=Network(tuple(links), 9, 0)), None).text


#: Each recurrence leads to all later ones and to outputs of its own, and an input passes them all.
RESIDUAL = [
    *(Link(f"r{a}", f"r{b}", b) for a, b in combinations(range(6), 2)),
    *(Link(f"r{a}", f"output y{k}", 1) for a in range(6) for k in range(a, 6)),
    *(Link("input x", "r0", 3), Link("input mask", "r5", 2), Link("input mask", "output y0", 1)),
]


@pytest.mark.parametrize("links", [[*LINKS], RESIDUAL], ids=["few", "residual"])
def test_no_way_runs_behind_a_box_and_no_words_beside_one(links: list[Link]) -> None:
    picture = drawn(6, links) if links is RESIDUAL else draw.network(SUBJECT, None).text
    ways, places = traced(picture), [place for _, *place in boxes(picture)]
    assert len(ways) >= 5
    for x, y in (point for way in ways for point in way):
        assert 0 < x < draw.WIDTH
        hidden = [box for box in places if box[0] < x < box[2] and box[1] < y < box[3]]
        assert not hidden, (x, y)
    tips = {way[-1] for way in ways}
    assert all(any(left < x < right and 0 < top - y < 8 for left, top, right, _ in places) for x, y in tips)
    words = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"', picture)
    for x, y in (tuple(map(float, place)) for place in words):
        assert any(left < x < right and top < y < bottom for left, top, right, bottom in places)


def test_ways_that_would_leave_boxes_no_room_are_no_picture() -> None:
    crowd = [Link(f"r{a}", f"r{b}", 1) for a, b in combinations(range(40), 2)]
    assert "40 inputs, outputs and recurrences: too many edges past others for a picture." in drawn(40, crowd)


def test_each_recurrence_has_its_own_error() -> None:
    right = PieceReport(RNN.node, (0,), asked=True, passed=True, worst=1e-7, needed=0.02)
    wrong = PieceReport("head", (0,), asked=True, passed=False, worst=3e-2, needed=50.0)
    proof = Verification(
        False, 7, (), (), (), recurrences=(right, replace(right, layers=(1,), needed=0.03), wrong)
    )
    picture = draw.network(SUBJECT, proof).text
    groups = dict(re.findall(r'<g class="(node[^"]*)"><title>([^<]*)</title>', picture))
    assert {title: kind for kind, title in groups.items()}.items() >= {
        RNN.node: "node good", "head": "node bad",
    }.items()  # fmt: skip
    assert "3.0% of its tolerance" in picture
    assert "largest error 3.0e-02" in picture


def test_names_wrap_behind_slashes_and_end_nothing() -> None:
    long = "a_scope/" * 3 + "x" * 90
    evil = '<script>"x"</script>'
    renamed = replace(SUBJECT, recurrences=(replace(RNN, node=long), replace(HEAD, node=evil)))
    links = tuple(
        replace(link, source=link.source.replace(RNN.node, long), target=link.target.replace("head", evil))
        for link in LINKS
    )
    picture = draw.network(replace(renamed, network=Network(links, 1, 0)), None).text
    assert "<script" not in picture
    lines = re.findall(r'class="named">([^<]*)<', picture)
    assert "a_scope/a_scope/a_scope/" in lines
    assert all(len(line) <= 52 for line in lines)


def test_a_loop_and_a_crowd_are_no_endless_picture() -> None:
    loop = (Link(RNN.node, "head", 1), Link("head", RNN.node, 1), Link("head", "head", 2))
    assert len(boxes(draw.network(replace(SUBJECT, network=Network(loop, 9, 0)), None).text)) == 2
    crowd = tuple(replace(HEAD, node=f"r{k}") for k in range(90))
    told = draw.network(replace(SUBJECT, recurrences=crowd, network=Network((), 9, 0)), None).text
    assert "too many for a picture" in told


@pytest.mark.first("weights")
@pytest.mark.parametrize(
    ("source", "form", "links"),
    [
        (
            ROOT / "models" / "seq2seq" / "model.ckpt",
            "onnx",
            {("input source", "cudnn_lstm/CudnnRNN"), ("input tokens", "training/cudnn_lstm/CudnnRNN_1"),
             ("input h", "training/cudnn_lstm/CudnnRNN_1"), ("input c", "training/cudnn_lstm/CudnnRNN_1"),
             ("cudnn_lstm/CudnnRNN", "output encoded_h"), ("cudnn_lstm/CudnnRNN", "output encoded_c"),
             ("training/cudnn_lstm/CudnnRNN_1", "output log_probs"),
             ("training/cudnn_lstm/CudnnRNN_1", "output next_h"),
             ("training/cudnn_lstm/CudnnRNN_1", "output next_c")},
        ),
        (
            fixture("1.15.5-v3_lengths_time_major").prefix,
            "npz",
            {("input inputs", "cudnn_lstm/CudnnRNNV3"), ("cudnn_lstm/CudnnRNNV3", "output outputs"),
             ("cudnn_lstm/CudnnRNNV3", "output state_h"), ("cudnn_lstm/CudnnRNNV3", "output state_c")},
        ),
    ],
    ids=["graph", "weights"],
)  # fmt: skip
def test_links_are_those_of_the_graph(tmp_path: Path, source: Path, form: str, links: set[Any]) -> None:
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, verify=False)
    assert report.network is not None
    found = {(link.source, link.target) for link in report.network.links}
    assert links <= found
    assert form == "npz" or found == links
    assert (report.network.left_out > 0) is (form == "onnx")


def test_counts_beside_an_axis_are_short() -> None:
    counts = {
        0: "0",
        999: "999",
        1000: "1.0k",
        9960: "10k",
        12_345: "12k",
        999_499: "999k",
        3_400_000: "3.4M",
    }
    assert {count: html.shorten_count(count) for count in counts} == counts
