"""The page of a benchmark: what it says, and how it fits a window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.browser import measure_in_frame

from cudnn_convert.benchmark import page
from cudnn_convert.benchmark.rounds import BenchmarkResult, Measurement

LONG = "/a/folder" * 12 + "/<b>model</b>.onnx"


def result() -> BenchmarkResult:
    def row(model: str, batch: int, micros: float, ratio: float | None) -> Measurement:
        return Measurement(
            model, "onnx", batch, 10, 1, micros, micros * 0.9, micros * 1.2, micros * 3, 1e6 / micros, 2e6,
            0.25,
            80.0, ratio, ratio, ratio, "" if ratio else "output y: 1.0e-01 apart",
        )  # fmt: skip

    rows = [
        row("a.onnx", 1, 50, 1.0),
        row("a.onnx", 8, 900, 1.0),
        row(LONG, 1, 2e6, 0.3),
        row(LONG, 8, 70, None),
    ]
    part = {"kind": "loop", "name": LONG, "share": 0.6, "us": 12.0}
    profile = {
        "model": LONG,
        "format": "onnx",
        "threads": 2,
        "parts": [part],
        "ops": [part],
        "sentences": [LONG],
    }
    return BenchmarkResult("a.onnx", tuple(rows), ("a note",), {"cores": 2, "rounds": 3}, (profile,))


@pytest.mark.every
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_in_a_browser(width: int, tmp_path: Path) -> None:
    told = measure_in_frame(page.of(result()), width, tmp_path)
    assert told["scroll"] <= width and told["wide"] == told["cut"] == [] and told["marks"] == [2, 2]


def test_a_page_escapes_names() -> None:
    text = page.of(result())
    assert "<b>model" not in text and "&lt;b&gt;model&lt;/b&gt;.onnx" in text
    assert "at most 0.30 times as fast as " in text and "output y: 1.0e-01 apart" in text
    assert "<h1>0.30 times as fast as a.onnx</h1>" in text
    alone = replace(result(), results=result().results[:2])
    assert "<h1>a.onnx: 50 \N{MICRO SIGN}s to 900 \N{MICRO SIGN}s a call</h1>" in page.of(alone)
