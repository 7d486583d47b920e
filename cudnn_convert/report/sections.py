"""The sections of the HTML page: plots, outputs, recurrences, weights.

The two plots of an output as SVG, which scales with the page and needs nothing from elsewhere.

What the page says of the outputs: one table for all, then each with its plots.

What the page says of each recurrence by itself: its error, and what its inputs would have shown.

What the page says of the weights: each recurrence, its gate orders, and where every tensor went.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cudnn_convert.report import (
    Distribution,
    Element,
    GateReport,
    LayoutReport,
    OutputReport,
    OverTime,
    PieceReport,
    RecurrenceReport,
    Subject,
    TensorRegion,
    VariableReport,
    Verification,
    WeightsReport,
)
from cudnn_convert.report.html import (
    NOTHING,
    Markup,
    brackets,
    bullets,
    join,
    name,
    number,
    pairs,
    section,
    table,
    tag,
)

WIDTH: Final = 320
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 42
_INNER: Final = WIDTH - _LEFT - _RIGHT
_FLOOR: Final = HEIGHT - _BOTTOM
#: More points than this are a line alone.
_DOTS: Final = 64


def over_time(series: OverTime, atol: float) -> Markup:
    """The error of each step on a logarithmic scale; a step without any lies on the lowest line."""
    nonzero = [error for error in series.errors if error > 0]
    limits = [*nonzero, *([atol] if atol > 0 else [])] or [1.0]
    low, high = math.floor(math.log10(min(limits))), math.ceil(math.log10(max(limits)))
    high = max(high, low + 1)

    def y(error: float) -> float:
        share = (math.log10(error) - low) / (high - low) if error > 0 else 0.0
        return _TOP + (1 - share) * (_FLOOR - _TOP)

    count = len(series.errors)

    def x(position: float) -> float:
        return _LEFT + _INNER * ((position + 0.5) / count)

    points = [(x(k), y(error)) for k, error in enumerate(series.errors)]
    line = "M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    marks = [tag("path", d=line, class_="curve")]
    if count <= _DOTS:
        marks += [tag("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r="2.6", class_="dot") for a, b in points]
    every = -(-(high - low) // 6)
    decades = [(y(10.0**power), _power(power)) for power in range(low, high + 1, every)]
    steps = [(x(k), str(k * series.group)) for k in _ticks(count)]
    unit = "time step" if series.group == 1 else f"time step, the worst of each {series.group}"
    limit = [_line(_LEFT, y(atol), WIDTH - _RIGHT, y(atol), "limit")] if atol > 0 else []
    label = f"Largest absolute error of {count} points along axis {series.axis}"
    return _plot(label, decades, steps, [*limit, *marks], unit=unit, unit_up="absolute error")


def distribution(histogram: Distribution) -> Markup:
    """How many values have which share of their tolerance; to the right of the dashed line are failures."""
    kept = [k for k, count in enumerate(histogram.counts) if count]
    zero = round(-histogram.first / histogram.width)
    first, last = min([*kept, zero - 2]), max([*kept, zero + 1])
    counts, most = histogram.counts[first : last + 1], max(*histogram.counts, 1)
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
    whole = [k for k in range(first, last + 2) if (histogram.first + k * histogram.width) % 1 == 0]
    every = -(-len(whole) // 8)
    edges = [(x(k), _power(round(histogram.first + k * histogram.width))) for k in whole[::-1][::every]]
    limit = _line(x(zero), _TOP, x(zero), _FLOOR, "limit")
    label = f"{sum(histogram.counts)} values with an error by its share of the tolerance"
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
    parts += [_words(position, _FLOOR + 15, words, "middle") for position, words in ticks]
    parts += [_words(_LEFT + _INNER / 2, HEIGHT - 6, unit, "middle")]
    middle = f"{(_TOP + _FLOOR) / 2:.0f}"
    position = f"translate(10 {middle}) rotate(-90)"
    turned = tag("text", unit_up, x="0", y="0", text_anchor="middle", transform=position)
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


_OUTPUT_HEADS = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "judged as"),
)
#: From here on a share of the tolerance is told in times.
_TIMES: Final = 10


def outputs(proof: Verification) -> Markup:
    """The table of figures and the plots of each output."""
    rows = table(_OUTPUT_HEADS, map(_output_row, proof.outputs), numbers=range(2, 8))
    return section("Outputs", rows, *(_output_card(output) for output in proof.outputs))


def _output_row(output: OutputReport) -> Iterator[object]:
    yield name(output.output)
    yield _verdict(output)
    yield f"{output.compared:,}"
    yield number(output.max_abs)
    yield number(output.max_rel)
    yield Markup(NOTHING) if output.ulp is None else f"{output.ulp:,}"
    yield Markup(NOTHING) if output.cosine is None else f"{output.cosine:.9f}"
    # Of what must be equal, `needed` counts the values that differ.
    yield Markup(NOTHING) if output.max_abs is None else _share(output.needed)
    yield _element(output.worst_element) if output.worst_element else Markup(NOTHING)
    yield output.reason


def verdict(*, passed: bool) -> Markup:
    return tag("span", "equal" if passed else "different", class_=f"chip {'good' if passed else 'bad'}")


def _verdict(output: OutputReport) -> Markup:
    return verdict(passed=output.passed) if output.judged else tag("span", "not judged", class_="chip warn")


def _share(needed: float) -> Markup:
    """Of the tolerance: in per cent, or as how many times it where that is more to read."""
    if math.isfinite(needed) and needed >= _TIMES:
        return tag("span", f"{needed:,.0f} times")
    return number(needed, ".1%")


def _element(element: Element) -> Markup:
    return join([f"feed {element.feed + 1} ", brackets(element.index)])


def _output_card(output: OutputReport) -> Markup:
    lines = [tag("p", output.message)] if output.message else []
    worst = output.worst_element
    if worst is not None and "at [" not in output.message:
        words = [
            _element(worst),
            ": expected ",
            name(_value(worst.expected)),
            ", found ",
            name(_value(worst.found)),
        ]
        lines.append(tag("p", "Worst element: ", *words, class_="soft"))
    figures = []
    if output.over_time is not None:
        caption = "Error over time (all feeds; dashed: the absolute tolerance)"
        figures.append(_figure(caption, over_time(output.over_time, output.atol)))
    if output.distribution is not None:
        same = f"{output.distribution.exact:,} of {output.compared:,} values have none"
        caption = f"Distribution of the error ({same}; dashed: the tolerance)"
        figures.append(_figure(caption, distribution(output.distribution)))
    plotted = [tag("div", *figures, class_="plots")] if figures else []
    title = tag("h3", name(output.output), " ", _verdict(output))
    return tag("article", title, *lines, *plotted, class_="card output")


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _figure(caption: str, plot: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), plot)


_RECURRENCE_HEADS = (
    *("recurrence", "layers", "verdict", "asked in", "values", "max abs", "of tolerance"),
    *("wrong weights show", "weakest weight shows"),
)


def recurrence_table(proof: Verification) -> Iterator[Markup]:
    """The table of recurrences, and below it what nothing would have shown."""
    if not proof.recurrences:
        return
    rows = table(_RECURRENCE_HEADS, map(_recurrence_row, proof.recurrences), numbers=range(4, 9))
    messages = [
        join([name(recurrence.node), ": ", recurrence.message])
        for recurrence in proof.recurrences
        if recurrence.message
    ]
    messages += [
        join(
            [
                name(recurrence.node),
                f": the weakest weight is that of {recurrence.sampled} rows of each gate's matrix",
            ]
        )
        for recurrence in proof.recurrences
        if recurrence.sampled is not None
    ]
    hidden = [
        join([name(recurrence.node), ", ", line])
        for recurrence in proof.recurrences
        for line in recurrence.unseen
    ]
    cards = [tag("div", bullets(messages), class_="card warn")] if messages else []
    if hidden:
        head = tag("p", "These changes would have moved it by less than ten tolerances:")
        cards.append(tag("div", head, bullets(hidden), class_="card soft"))
    yield section("Recurrences by themselves", rows, *cards)


def verdict_lines(proof: Verification) -> Iterator[str]:
    """The verdict in a line."""
    asked = [recurrence for recurrence in proof.recurrences if recurrence.asked]
    nodes = {recurrence.node for recurrence in proof.recurrences}
    if nodes:
        right = {recurrence.node for recurrence in asked} - {
            recurrence.node for recurrence in asked if not recurrence.passed
        }
        yield f"{len(right)} of {len(nodes)} recurrences agree by themselves with the float64 reference."


def _recurrence_row(piece_report: PieceReport) -> Iterator[object]:
    yield name(piece_report.node)
    yield ", ".join(map(str, piece_report.layers))
    kind = ("good", "equal") if piece_report.passed else ("bad", "different")
    kind = kind if piece_report.asked else ("warn", "not asked")
    yield tag("span", kind[1], class_=f"chip {kind[0]}")
    yield name(piece_report.piece) if piece_report.piece else Markup(NOTHING)
    if not piece_report.asked:
        yield from [Markup(NOTHING)] * 5
        return
    yield f"{piece_report.compared:,}"
    yield number(piece_report.worst)
    yield number(piece_report.needed, ".1%")
    yield number(piece_report.smallest, ",.0f")
    yield number(piece_report.weakest, ",.0f")


_UNKNOWN = "not found by its values"


def recurrence_cards(subject: Subject) -> Markup:
    """A card for each recurrence, its map folded in it."""
    if not subject.recurrences:
        return section(
            "Recurrences", tag("p", "None: no cuDNN op is left that the outputs need.", class_="soft")
        )
    return section(
        "Recurrences", *(_weight_card(recurrence, subject.weights) for recurrence in subject.recurrences)
    )


def _weight_card(recurrence: RecurrenceReport, weights: WeightsReport | None) -> Markup:
    sizes = [
        ("layers", recurrence.layers),
        ("directions", recurrence.directions),
        ("units", recurrence.units),
        ("input size", recurrence.input_size),
        ("type", recurrence.dtype),
        ("weights taken", recurrence.weights),
    ]
    mapped = []
    if weights is not None and recurrence.node in weights.gates:
        orders = [
            ("gates in the source", _layout(weights.source_layouts[recurrence.node])),
            ("gates in the artifact", _layout(weights.target_layouts[recurrence.node])),
        ]
        mapped = [pairs(orders), _map(weights.gates[recurrence.node])]
    title = tag(
        "h3", name(recurrence.node), " ", tag("span", f"{recurrence.op}, {recurrence.mode}", class_="chip")
    )
    return tag("article", title, pairs(sizes, "facts sizes"), *mapped, class_="card")


def _layout(layout_report: LayoutReport) -> Markup:
    if not layout_report.gates:
        return Markup("not told: the tensors hold other values")
    chips = (tag("span", gate, class_="chip") for gate in layout_report.gates)
    known = tag(
        "span",
        f"as {', '.join(layout_report.names)}" if layout_report.names else "an order of no layout known",
        class_="soft",
    )
    return tag("span", *chips, known, class_="chips")


def _map(rows: Sequence[GateReport]) -> Markup:
    lost, odd = sum(row.target is None for row in rows), sum(bool(row.doubt) for row in rows)
    headline = f"{len(rows)} matrices and biases" + (f", {lost} {_UNKNOWN} in the artifact" if lost else "")
    headline += f", {odd} odd" if odd else ""
    heads = ("source tensor", "layer", "direction", "gate", "weights", "artifact tensor")
    first = sorted(rows, key=lambda row: row.target is not None and not row.doubt)
    mapped = table(heads, map(_weight_row, first), numbers=[1])
    summary = tag("summary", f"Map of the weights: {headline}", class_="bad" if lost or odd else "")
    is_open = {"open": "open"} if lost or odd else {}
    return tag("details", summary, tag("div", mapped, class_="box tall", tabindex="0"), **is_open)


def _weight_row(row: GateReport) -> Iterator[object]:
    yield _region(row.source)
    yield row.layer + 1
    yield row.direction
    yield row.gate
    yield row.weights.replace("_", " ")
    doubt = [Markup("<br>"), tag("span", row.doubt, class_="chip bad wrap")] if row.doubt else []
    yield join([_region(row.target), *doubt])


def _region(region: TensorRegion | None) -> Markup:
    if region is None:
        return tag("span", _UNKNOWN, class_="chip warn")
    how = [] if region.axes == "as it is" else [Markup("<br>"), tag("span", region.axes, class_="soft")]
    return join([name(f"{region.tensor}{region.part}"), *how])


def others(variable_reports: Sequence[VariableReport]) -> Markup:
    """The tensors of the source that no recurrence was decoded from."""
    if not variable_reports:
        return Markup("")
    rows = (
        (name(variable.source), brackets(variable.shape), variable.role, _target(variable))
        for variable in variable_reports
    )
    shown = tag(
        "div",
        table(("source tensor", "shape", "role", "artifact tensor"), rows),
        class_="box tall",
        tabindex="0",
    )
    return section("Other tensors of the source", shown)


def _target(variable_report: VariableReport) -> Markup:
    if variable_report.target is not None:
        return name(variable_report.target)
    return tag("span", _UNKNOWN, class_="chip warn") if variable_report.role == "needed" else Markup(NOTHING)
