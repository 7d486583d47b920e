"""The page of a benchmark: table, plots and profiles.

As the page of a report it needs nothing else and loads nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import Any, Final

from cudnn_convert.benchmark.rounds import BenchmarkResult, Measurement
from cudnn_convert.report.html import NOTHING, Markup, bullets, join, name, pairs, section, table, tag
from cudnn_convert.report.page import document

_HEADS: Final = (
    "model", "batch", "steps", "threads", "median", "times as fast", "99 %", "a second",
    "first call", "load", "memory",
)  # fmt: skip
#: Columns that align right.
_NUMBERS: Final = tuple(range(1, len(_HEADS)))
_WIDTH: Final = 320
_LINE: Final = 34
#: Where the bars end, and where their figures begin at the latest.
_LONGEST: Final = 226


#: The smallest share of a part that is shown; the JSON has all.
_SHOWN: Final = 0.005


def of(result: BenchmarkResult) -> str:
    """Return the page of a benchmark, as text of HTML."""
    title = _headline(result)
    header = tag(
        "header",
        tag("p", "cudnn-convert, benchmark", class_="eyebrow"),
        tag("h1", title),
        *(tag("p", line) for line in _extremes(result)),
        class_="card verdict good",
    )
    return document(title, header, *_sections(result))


def _headline(result: BenchmarkResult) -> str:
    """Return the range of the ratios, or of the base model's medians.

    The medians stand where there are no ratios.
    """
    ratios = [row.ratio for row in _list_compared(result) if row.ratio is not None]
    base = PurePath(result.against).name
    if ratios:
        range_ = " to ".join(dict.fromkeys((f"{min(ratios):.2f}", f"{max(ratios):.2f}")))
        return f"{range_} times as fast as {base}"
    medians = [row.median_us for row in result.results if row.model == result.against]
    range_ = " to ".join(dict.fromkeys((micros(min(medians)), micros(max(medians)))))
    return f"{base}: {range_} a call"


def _list_compared(result: BenchmarkResult) -> list[Measurement]:
    return [row for row in result.results if row.ratio is not None and row.model != result.against]


def _extremes(result: BenchmarkResult) -> Iterator[object]:
    """Yield the largest and the smallest ratio, and the models left out of the comparison."""
    compared = _list_compared(result)
    for row, word in ((max, "at most"), (min, "at least")):
        if compared:
            extreme = row(compared, key=lambda each: each.ratio or 0.0)
            figure = f"{word} {extreme.ratio:.2f} times as fast as "
            yield join([name(extreme.model), f": {figure}", name(result.against), f" ({_sizes(extreme)})."])
    for reason, model in sorted(
        {(row.incomparable, row.model) for row in result.results if row.incomparable}
    ):
        yield join([name(model), " is not compared: its answers do not agree: ", name(reason), "."])


def _sizes(row: Measurement) -> str:
    parts = [f"batch {row.batch}"] if row.batch else []
    parts += [f"{row.steps} steps"] if row.steps else []
    parts.append(f"{row.threads} thread{'' if row.threads == 1 else 's'}")
    return ", ".join(parts)


def _sections(result: BenchmarkResult) -> Iterator[Markup]:
    machine = [(key, str(value)) for key, value in result.machine.items()]
    yield tag("div", pairs([("compared with", name(result.against)), *machine]), class_="card")
    ordered = sorted(result.results, key=lambda row: (row.threads, row.batch or 0, row.steps or 0))
    figures = [_plot([*rows]) for _, rows in groupby(ordered, _sizes)]
    yield section("A call's time", tag("div", tag("div", *figures, class_="plots"), class_="card"))
    yield section("All figures", table(_HEADS, map(_row, result.results), numbers=_NUMBERS))
    if result.profiles:
        yield section("Where the time goes", *map(_profile, result.profiles))
    if result.notes:
        yield section("Notes", tag("div", bullets(result.notes), class_="card"))


def micros(value: float) -> str:
    """Return a number of microseconds in a readable unit."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    return f"{value / 1e3:.3g} ms" if value >= 1e3 else f"{value:.3g} \N{MICRO SIGN}s"


def _row(row: Measurement) -> Iterator[object]:
    yield join([name(row.model), tag("div", row.format, class_="soft")])
    for size in (row.batch, row.steps):
        yield Markup(NOTHING) if size is None else size
    yield row.threads
    bounds = f"[{micros(row.median_low_us)}, {micros(row.median_high_us)}]"
    yield join([micros(row.median_us), tag("div", bounds, class_="soft")])
    if row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        yield tag("span", "not comparable", title=row.incomparable)
    else:
        bounds = f"[{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
        yield join([f"{row.ratio:.2f}", tag("div", bounds, class_="soft")])
    yield micros(row.p99_us)
    yield Markup(NOTHING) if row.per_second is None else f"{row.per_second:,.0f}"
    yield micros(row.first_call_us)
    yield micros(row.load_s * 1e6)
    yield Markup(NOTHING) if row.peak_mb is None else f"{row.peak_mb:,.0f} MiB"


def _shorten(label: str) -> str:
    return label if len(label) < 52 else f"{label[:24]}...{label[-24:]}"


def _plot(rows: Sequence[Measurement]) -> Markup:
    """Return a bar chart of the medians at a given size, from 0."""
    longest = max(row.median_us for row in rows)
    marks = []
    for k, row in enumerate(rows):
        top, wide = k * _LINE, max(1.0, _LONGEST * row.median_us / longest)
        label = f"{PurePath(row.model).name}, {row.format}"
        marks += [
            tag("text", _shorten(label), x="0", y=f"{top + 12}"),
            tag(
                "rect", tag("title", f"{row.model}: {micros(row.median_us)}"),
                x="0", y=f"{top + 17}", width=f"{wide:.1f}", height="10", class_="bar",
            ),
            tag("text", micros(row.median_us), x=f"{wide + 6:.1f}", y=f"{top + 26}"),
        ]  # fmt: skip
    box = f"0 0 {_WIDTH} {len(rows) * _LINE}"
    sizes = _sizes(rows[0])
    drawing = tag("svg", *marks, viewBox=box, role="img", aria_label=f"Median time of a call: {sizes}")
    return tag("figure", tag("figcaption", sizes), drawing)


def _profile(profile: Mapping[str, Any]) -> Markup:
    threads = f"{profile['threads']} thread{'' if profile['threads'] == 1 else 's'}"
    lines = [tag("p", sentence) for sentence in profile["sentences"]]
    heads = ("what", "kind", "share", "of a call")
    parts = [
        (name(part["name"]), part["kind"], f"{part['share']:.1%}", micros(part["us"]))
        for part in profile["parts"]
        if part["share"] >= _SHOWN
    ]
    ops = [(name(part["name"]), f"{part['share']:.1%}", micros(part["us"])) for part in profile["ops"]]
    tables = [table(heads, parts, numbers=(2, 3))]
    if ops:
        by_op = table(("op", "share", "of a call"), ops, numbers=(1, 2))
        tables.append(tag("details", tag("summary", "by op"), by_op))
    title = tag("h3", name(profile["model"]), f", {profile['format']}, {threads}")
    return tag("div", title, *lines, *tables, class_="card")
