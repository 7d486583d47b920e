"""What the page says of the outputs: one table for all, then each with its plots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from cudnn_convert.page import plots
from cudnn_convert.page.html import NOTHING, Markup, joined, name, number, place, section, table, tag
from cudnn_convert.report import Element, OutputReport, Verification

_HEADS = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "judged as"),
)
#: From here on a share of the tolerance is told in times.
_TIMES: Final = 10


def outputs(proof: Verification) -> Markup:
    """The table of figures and the plots of each output."""
    rows = table(_HEADS, map(_row, proof.outputs), numbers=range(2, 8))
    return section("Outputs", rows, *(_card(found) for found in proof.outputs))


def _row(found: OutputReport) -> Iterator[object]:
    yield name(found.output)
    yield _verdict(found)
    yield f"{found.compared:,}"
    yield number(found.max_abs)
    yield number(found.max_rel)
    yield Markup(NOTHING) if found.ulp is None else f"{found.ulp:,}"
    yield Markup(NOTHING) if found.cosine is None else f"{found.cosine:.9f}"
    # Of what must be equal, `needed` counts the values that differ.
    yield Markup(NOTHING) if found.max_abs is None else _share(found.needed)
    yield _element(found.worst_element) if found.worst_element else Markup(NOTHING)
    yield found.reason


def verdict(*, passed: bool) -> Markup:
    return tag("span", "equal" if passed else "different", class_=f"chip {'good' if passed else 'bad'}")


def _verdict(found: OutputReport) -> Markup:
    return verdict(passed=found.passed) if found.judged else tag("span", "not judged", class_="chip warn")


def _share(needed: float) -> Markup:
    """Of the tolerance: in per cent, or as how many times it where that is more to read."""
    if math.isfinite(needed) and needed >= _TIMES:
        return tag("span", f"{needed:,.0f} times")
    return number(needed, ".1%")


def _element(found: Element) -> Markup:
    return joined([f"feed {found.feed + 1} ", place(found.index)])


def _card(found: OutputReport) -> Markup:
    lines = [tag("p", found.message)] if found.message else []
    worst = found.worst_element
    if worst is not None and "at [" not in found.message:
        told = [
            _element(worst),
            ": expected ",
            name(_value(worst.expected)),
            ", found ",
            name(_value(worst.found)),
        ]
        lines.append(tag("p", "Worst element: ", *told, class_="soft"))
    figures = []
    if found.over_time is not None:
        caption = "Error over time (all feeds; dashed: the absolute tolerance)"
        figures.append(_figure(caption, plots.over_time(found.over_time, found.atol)))
    if found.distribution is not None:
        same = f"{found.distribution.exact:,} of {found.compared:,} values have none"
        caption = f"Distribution of the error ({same}; dashed: the tolerance)"
        figures.append(_figure(caption, plots.distribution(found.distribution)))
    plotted = [tag("div", *figures, class_="plots")] if figures else []
    title = tag("h3", name(found.output), " ", _verdict(found))
    return tag("article", title, *lines, *plotted, class_="card output")


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _figure(caption: str, plot: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), plot)
