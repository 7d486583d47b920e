"""HTML from Python values: the style sheet, escaped elements, tables and plots.

The style sheet is light and dark, and fits any width from a phone's up. All text that comes out of a file is
escaped, a table without room becomes a card a row, and the plots are SVG, which scales with the page.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from cudnn_convert.report.values import Distribution, OverTime
from cudnn_convert.text import visible

#: The line by which a page is known as one of this tool's.
MARK: Final = '<meta name="generator" content="cudnn-convert">'
_LIGHT: Final = (
    "--page:#f5f6f8;--card:#ffffff;--ink:#1a1f26;--soft:#57616d;--line:#d9dee5;--mark:#2456c9;"
    "--good:#176b32;--good-tint:#e3f4e8;--bad:#b3261e;--bad-tint:#fdeaea;--warn:#805600;--warn-tint:#fdf3dc"
)
_DARK: Final = (
    "--page:#0f1318;--card:#171c23;--ink:#e6eaf0;--soft:#9ca7b4;--line:#2d3641;--mark:#7fb0ff;"
    "--good:#5fd07f;--good-tint:#15301f;--bad:#ff8a80;--bad-tint:#3a1a1a;--warn:#e8bd4f;--warn-tint:#332a12"
)
#: A table as cards: numbers side by side, anything else over the whole width, each below its column's head.
_CARDS: Final = """
table,tbody{display:block}
thead{display:none}
tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.5rem,1fr));gap:6px 12px;padding:10px 12px;
border-bottom:1px solid var(--line)}
tbody tr:last-child{border-bottom:0}
td{display:block;border:0;padding:0}
td.text{grid-column:1/-1}
td.number{text-align:left;white-space:normal}
td::before{content:attr(data-head);display:block;color:var(--soft);font-size:.8125rem}
td[data-head=""]::before{display:none}
td code{min-width:0;max-width:none}
"""
#: The widths of boxes below which tables of few, some and many columns become cards.
_WIDTHS: Final = {"few": "30rem", "some": "46rem", "many": "60rem"}
_RULES: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1120px;margin:0 auto;padding:24px 16px 48px}
h1,h2,h3{line-height:1.25;margin:0;overflow-wrap:anywhere}
h1{font-size:1.9rem}
h2{font-size:1.25rem;margin:40px 0 12px}
h3{font-size:1rem;margin:0 0 4px}
p{margin:4px 0;overflow-wrap:anywhere}
.eyebrow,.soft{color:var(--soft);font-size:.875rem}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86em;
overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0 0 12px}
.verdict{border-left:6px solid var(--tone);background:var(--tint);padding:20px}
.verdict h1{color:var(--tone)}
.good{--tone:var(--good);--tint:var(--good-tint)}
.bad{--tone:var(--bad);--tint:var(--bad-tint)}
.warn{--tone:var(--warn);--tint:var(--warn-tint)}
.chip{display:inline-block;border-radius:6px;padding:0 7px;font-size:.8125rem;line-height:1.6;
color:var(--tone,var(--ink));background:var(--tint,var(--page));border:1px solid var(--tone,var(--line));
font-weight:500;white-space:nowrap}
.wrap{white-space:normal}
summary.bad{color:var(--tone)}
.chips{display:flex;flex-wrap:wrap;gap:4px 6px;align-items:center}
h1+.chips{margin-top:8px}
.flag{white-space:nowrap}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:10px 24px;margin:0}
.sizes{grid-template-columns:repeat(auto-fill,minmax(120px,1fr));margin:8px 0 10px}
.facts dt{color:var(--soft);font-size:.8125rem}
.facts dd{margin:0;overflow-wrap:anywhere}
.box{container-type:inline-size;overflow-x:auto;margin:0 0 12px;
border:1px solid var(--line);border-radius:10px;background:var(--card)}
.tall{max-height:28rem;overflow:auto}
.tall th{position:sticky;top:0;background:var(--card)}
.tall td code:not(.short){min-width:min(13rem,100%)}
.tall .box{border:0;border-radius:0;margin:0;overflow:visible}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tbody tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
td.text{min-width:5.5rem}
td p{margin:0 0 4px}
td code{display:inline-block;min-width:6rem;max-width:26rem}
td code.short{min-width:0;white-space:nowrap}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
td.number{white-space:nowrap}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,280px),1fr));gap:16px 24px;
margin-top:12px}
figure{margin:0;max-width:400px}
figcaption{font-size:.875rem;color:var(--soft);margin-bottom:4px}
svg{display:block;width:100%;height:auto;overflow:hidden}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:1}
.limit{stroke:var(--bad);stroke-width:1.25;stroke-dasharray:4 3}
.curve{fill:none;stroke:var(--mark);stroke-width:1.75;stroke-linejoin:round}
.dot,.bar{fill:var(--mark)}
.over{fill:var(--bad)}
figure.wide{max-width:440px}
.network text.named{fill:var(--ink);font-weight:600}
.box-of{fill:var(--tint,var(--page));stroke:var(--tone,var(--line));stroke-width:1}
.way{fill:none;stroke:var(--soft);stroke-width:1.1}
.head{fill:var(--soft)}
ul{margin:0;padding-left:20px}
li{margin:4px 0;overflow-wrap:anywhere}
details{margin:12px 0 0}
summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
details>*+*{margin-top:8px}
a{color:var(--mark)}
:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
@media (max-width:480px){main{padding:12px 12px 32px}h1{font-size:1.5rem}.card{padding:12px}
th,td{padding:6px 8px}td code{max-width:15rem}}
@media print{body{background:none}.tall{max-height:none}}
""" + "".join(
    f"@container (max-width:{width}){{.{columns}{{{_CARDS}}}}}\n" for columns, width in _WIDTHS.items()
)

SHEET: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}{_RULES}"
)

#: The class of what a notebook shows, and the style sheet for it alone: rules in a rule (CSS Nesting).
SCOPE: Final = "cudnn-convert"
SCOPED: Final = (
    f".{SCOPE}{{color-scheme:light dark;{_LIGHT};background:var(--page);color:var(--ink);"
    f"font:14px/1.5 system-ui,sans-serif;padding:12px;max-width:1120px;"
    f"@media (prefers-color-scheme:dark){{{_DARK}}}{_RULES}}}"
)

#: A flag in a sentence, not a rule of dashes.
_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

#: What stands where a value has no meaning.
NOTHING = "&ndash;"


@dataclass(frozen=True, slots=True)
class Markup:
    """Text in HTML already.

    Everything else is escaped.
    """

    text: str


def text(value: Any) -> str:
    """Return `value` as HTML."""
    return value.text if isinstance(value, Markup) else escape(visible(str(value)))


def tag(name: str, *content: Any, **attributes: str) -> Markup:
    """Return an element.

    The attribute `class` is `class_`, `text-anchor` is `text_anchor`.
    """
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    message = "".join(f' {names[key]}="{escape(visible(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{message}>{''.join(map(text, content))}</{name}>")


def brackets(index: Iterable[int]) -> Markup:
    """Return whole numbers in brackets, on a single line."""
    return tag("code", f"[{', '.join(map(str, index))}]", class_="short")


def join(parts: Iterable[Any], between: str = "") -> Markup:
    """Join the parts as HTML, with `between` as HTML too."""
    return Markup(between.join(map(text, parts)))


def name(value: Any) -> Markup:
    """Return a name from a file, in a fixed width.

    It is broken behind a slash, and anywhere if it must.
    """
    return tag("code", Markup(text(value).replace("/", "/<wbr>")))


def prose(sentence: str) -> Markup:
    """Return a sentence with unbroken flags.

    A line breaks nowhere behind a flag's dashes.
    """
    return Markup(_FLAG.sub(r'<span class="flag">\g<0></span>', text(sentence)))


def number(value: float | int | None, form: str = ".2e") -> Markup:
    """Format a number, or show a missing or infinite number as a word or sign."""
    if value is None:
        return Markup(NOTHING)
    if isinstance(value, float) and not math.isfinite(value):
        return tag("span", "none", title="no number: nothing could be compared")
    return Markup("0" if value == 0 else format(value, form))


def table(heads: Sequence[str], rows: Iterable[Iterable[Any]], *, numbers: Iterable[int] = ()) -> Markup:
    """Return a table in a box, as cards if narrow.

    In a narrow box each row is a card. `numbers` are the columns that align right.
    """
    right = set(numbers)
    kinds = ["number" if k in right else "text" for k in range(len(heads))]

    def cells(row: Iterable[Any]) -> Markup:
        columns = zip(heads, kinds, row, strict=True)
        return tag("tr", *(tag("td", cell, class_=kind, data_head=head) for head, kind, cell in columns))

    named = (tag("th", head, class_=kind) for head, kind in zip(heads, kinds, strict=True))
    body = tag("table", tag("thead", tag("tr", *named)), tag("tbody", *map(cells, rows)))
    columns = "few" if len(heads) <= _FEW else "some" if len(heads) <= _SOME else "many"
    return tag("div", body, class_=f"box {columns}", tabindex="0")


#: The columns that a table of few, and of some, has at most.
_FEW: Final = 4
_SOME: Final = 7


def pairs(rows: Iterable[tuple[str, Any]], kind: str = "facts") -> Markup:
    """Render rows as a list of terms and descriptions.

    `facts sizes` are short ones, side by side on a phone too.
    """
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", what)) for term, what in rows), class_=kind)


def bullets(items: Iterable[Any]) -> Markup:
    """Return a list, with sentences as `prose`."""
    return tag("ul", *(tag("li", prose(item) if isinstance(item, str) else item) for item in items))


def section(title: str, *content: Any) -> Markup:
    return tag("section", tag("h2", title), *content)


WIDTH: Final = 320
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 10, 42
_INNER: Final = WIDTH - _LEFT - _RIGHT
_FLOOR: Final = HEIGHT - _BOTTOM
#: More points than this are a line alone.
_DOTS: Final = 64


def plot_over_time(series: OverTime, atol: float) -> Markup:
    """Plot each step's error on a logarithmic scale; zero errors lie at the bottom."""
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


def plot_distribution(histogram: Distribution) -> Markup:
    """Plot a histogram of tolerance shares; failures are right of the dashed line."""
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
    levels = [(_FLOOR - (_FLOOR - _TOP) * value / most, shorten_count(value)) for value in values]
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


def shorten_count(value: int) -> str:
    """Format a count in at most four characters: 999, 1.2k, 12k, 3.4M.

    They have room beside an axis.
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= size:
            share = value / size
            return f"{share:.1f}{unit}" if share < 9.95 else f"{share:.0f}{unit}"
    return str(value)


def _power(exponent: int) -> str:
    return f"1e{exponent}" if exponent else "1"


def _ticks(count: int) -> Sequence[int]:
    every = max(1, -(-count // 8))
    return range(0, count, every)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _words(x: float, y: float, words: str, anchor: str) -> Markup:
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
