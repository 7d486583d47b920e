"""The two plots of an output as SVG, which scales with the page and needs nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from cudnn_convert.page.html import Markup, tag
from cudnn_convert.report import Distribution, OverTime

WIDTH: Final = 320
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 42
_INNER: Final = WIDTH - _LEFT - _RIGHT
_FLOOR: Final = HEIGHT - _BOTTOM
#: More points than this are a line alone.
_DOTS: Final = 64


def over_time(found: OverTime, atol: float) -> Markup:
    """The error of each step on a logarithmic scale; a step without any lies on the lowest line."""
    nonzero = [error for error in found.errors if error > 0]
    limits = [*nonzero, *([atol] if atol > 0 else [])] or [1.0]
    low, high = math.floor(math.log10(min(limits))), math.ceil(math.log10(max(limits)))
    high = max(high, low + 1)

    def y(error: float) -> float:
        share = (math.log10(error) - low) / (high - low) if error > 0 else 0.0
        return _TOP + (1 - share) * (_FLOOR - _TOP)

    count = len(found.errors)

    def x(place: float) -> float:
        return _LEFT + _INNER * ((place + 0.5) / count)

    points = [(x(k), y(error)) for k, error in enumerate(found.errors)]
    way = "M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    marks = [tag("path", d=way, class_="curve")]
    if count <= _DOTS:
        marks += [tag("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r="2.6", class_="dot") for a, b in points]
    every = -(-(high - low) // 6)
    decades = [(y(10.0**power), _power(power)) for power in range(low, high + 1, every)]
    steps = [(x(k), str(k * found.group)) for k in _ticks(count)]
    unit = "time step" if found.group == 1 else f"time step, the worst of each {found.group}"
    limit = [_line(_LEFT, y(atol), WIDTH - _RIGHT, y(atol), "limit")] if atol > 0 else []
    label = f"Largest absolute error of {count} points along axis {found.axis}"
    return _plot(label, decades, steps, [*limit, *marks], unit=unit, unit_up="absolute error")


def distribution(found: Distribution) -> Markup:
    """How many values have which share of their tolerance; to the right of the dashed line are failures."""
    kept = [k for k, count in enumerate(found.counts) if count]
    zero = round(-found.first / found.width)
    first, last = min([*kept, zero - 2]), max([*kept, zero + 1])
    counts, most = found.counts[first : last + 1], max(*found.counts, 1)
    wide = _INNER / len(counts)

    def x(edge: int) -> float:
        return _LEFT + wide * (edge - first)

    bars = []
    for k, count in enumerate(counts, first):
        tall = (_FLOOR - _TOP) * count / most
        if count:
            tall = max(tall, 1.5)
            bars.append(
                tag(
                    "rect", tag("title", f"{count} values"),
                    x=f"{x(k) + 1:.1f}", y=f"{_FLOOR - tall:.1f}", width=f"{max(wide - 2, 1):.1f}",
                    height=f"{tall:.1f}", class_="bar over" if k >= zero else "bar",
                )
            )  # fmt: skip
    values = sorted({0, most // 2, most})
    levels = [(_FLOOR - (_FLOOR - _TOP) * value / most, f"{value:,}") for value in values]
    whole = [k for k in range(first, last + 2) if (found.first + k * found.width) % 1 == 0]
    every = -(-len(whole) // 8)
    edges = [(x(k), _power(round(found.first + k * found.width))) for k in whole[::-1][::every]]
    limit = _line(x(zero), _TOP, x(zero), _FLOOR, "limit")
    label = f"{sum(found.counts)} values with an error by its share of the tolerance"
    return _plot(label, levels, edges, [*bars, limit], unit="error / tolerance", unit_up="values")


def _plot(
    label: str,
    levels: Iterable[tuple[float, str]],
    ticks: Iterable[tuple[float, str]],
    marks: Iterable[Markup],
    *,
    unit: str,
    unit_up: str,
) -> Markup:
    parts = []
    for height, words in levels:
        parts += [_line(_LEFT, height, WIDTH - _RIGHT, height, "grid")]
        parts += [_words(_LEFT - 5, height + 3.5, words, "end")]
    parts += [_words(place, _FLOOR + 15, words, "middle") for place, words in ticks]
    parts += [_words(_LEFT + _INNER / 2, HEIGHT - 6, unit, "middle")]
    middle = f"{(_TOP + _FLOOR) / 2:.0f}"
    place = f"translate(10 {middle}) rotate(-90)"
    turned = tag("text", unit_up, x="0", y="0", text_anchor="middle", transform=place)
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *parts, turned, *marks, viewBox=box, role="img", aria_label=label)


def _power(exponent: int) -> str:
    return f"1e{exponent}" if exponent else "1"


def _ticks(count: int) -> Sequence[int]:
    every = max(1, -(-count // 8))
    return range(0, count, every)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _words(x: float, y: float, words: str, anchor: str) -> Markup:
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
