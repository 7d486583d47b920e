"""One plot for a page: how many times as long as ours the others take, on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from cudnn_convert.benchmark.rounds import Ratio

_WIDTH: Final = 640
_LEFT, _RIGHT, _TOP, _ROW, _BOTTOM = 44, 16, 14, 34, 34
_LEGEND: Final = 20
#: What tells series apart without colour, and the two sets of colours: for paper and for a dark screen.
_MARKS: Final = ("circle", "square", "diamond", "triangle", "down", "bar")
_LIGHT: Final = ("#2456c9", "#b3501e", "#176b32", "#8a2f7a", "#6b5a00", "#1f6f7a")
_DARK: Final = ("#7fb0ff", "#ff9d66", "#5fd07f", "#e390d6", "#e0c84f", "#66cbd8")


def chart(title: str, rows: Sequence[str], series: Mapping[str, Sequence[Ratio | None]]) -> str:
    """A row for each name in `rows`, a mark for each of `series` there; the line at 1 is ours."""
    found = [value for values in series.values() for value in values if value is not None]
    low, high = _limits([bound for value in found for bound in (value.low, value.high)])
    floor = _TOP + _ROW * len(rows)

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log(value / low) / math.log(high / low))

    height = floor + _BOTTOM + _LEGEND * math.ceil(len(series) / 2)
    parts = [
        f"<title>{escape(title)}</title>",
        _style(),
        f'<rect class="card" width="{_WIDTH}" height="{height}"/>',
    ]
    for tick in _ticks(low, high):
        kind = "ours" if tick == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{x(tick):.1f} {_TOP} V{floor}"/>')
        parts.append(_text(x(tick), floor + 14, f"{tick:g}", "middle"))
    parts += [_text(_LEFT - 8, _TOP + _ROW * (k + 0.5) + 4, row, "end") for k, row in enumerate(rows)]
    for number, (name, values) in enumerate(series.items()):
        shift = (number + 0.5) / len(series) * (_ROW - 8) + 4
        for k, value in enumerate(values):
            if value is not None:
                parts += _mark(number, x(value.median), _TOP + _ROW * k + shift, x(value.low), x(value.high))
        a, b = 16 + number % 2 * (_WIDTH / 2), floor + 40 + _LEGEND * (number // 2)
        parts += [*_mark(number, a, b - 4, a, a), _text(a + 12, b, name, "start")]
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(parts) + "\n</svg>\n"


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min([*values, 0.8]), max([*values, 1.25])
    return low * 0.95, high * 1.05


def _ticks(low: float, high: float) -> Iterator[float]:
    """1, 2, 5 and 10, in every decade."""
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in (1, 2, 5):
            tick = float(f"{digit}e{power}")
            if low <= tick <= high:
                yield tick


def _mark(number: int, a: float, b: float, low: float, high: float) -> list[str]:
    kind = f"s{number % len(_LIGHT)}"
    r = 4
    way = {
        "circle": f"M{a - r:.1f} {b:.1f} a{r} {r} 0 1 0 {2 * r} 0 a{r} {r} 0 1 0 {-2 * r} 0 z",
        "square": f"M{a - r:.1f} {b - r:.1f} h{2 * r} v{2 * r} h{-2 * r} z",
        "diamond": f"M{a - r - 1:.1f} {b:.1f} l{r + 1} {r + 1} l{r + 1} {-r - 1} l{-r - 1} {-r - 1} z",
        "triangle": f"M{a - r:.1f} {b + r:.1f} h{2 * r} l{-r} {-2 * r} z",
        "down": f"M{a - r:.1f} {b - r:.1f} h{2 * r} l{-r} {2 * r} z",
        "bar": f"M{a - 1.5:.1f} {b - r - 1:.1f} h3 v{2 * r + 2} h-3 z",
    }[_MARKS[number % len(_MARKS)]]
    reach = [f'<path class="reach {kind}" d="M{low:.1f} {b:.1f} H{high:.1f}"/>'] if high - low > 1 else []
    return [*reach, f'<path class="{kind}" d="{way}"/>']


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _style() -> str:
    def sheet(colours: Sequence[str], ink: str, card: str, line: str) -> str:
        own = "".join(f".s{k}{{fill:{c}}}.reach.s{k}{{stroke:{c}}}" for k, c in enumerate(colours))
        return f"text{{fill:{ink}}}.card{{fill:{card}}}.grid{{stroke:{line}}}.ours{{stroke:{ink}}}{own}"

    font = "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}.reach{stroke-width:1.5}"
    dark = sheet(_DARK, "#e6edf3", "#161b22", "#3b4754")
    light = sheet(_LIGHT, "#1b2733", "#ffffff", "#d9dee5")
    return f"<style>{font}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
