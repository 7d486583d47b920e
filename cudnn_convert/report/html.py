"""HTML from Python values, escaped, and the style sheet of the page.

The look of the page: one sheet, light and dark, from the width of a phone up.

HTML from Python values: what comes out of a file is escaped, and every table has a box to scroll in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from cudnn_convert.errors import visible

_LIGHT: Final = (
    "--page:#f5f6f8;--card:#ffffff;--ink:#1a1f26;--soft:#57616d;--line:#d9dee5;--mark:#2456c9;"
    "--good:#176b32;--good-tint:#e3f4e8;--bad:#b3261e;--bad-tint:#fdeaea;--warn:#805600;--warn-tint:#fdf3dc"
)
_DARK: Final = (
    "--page:#0f1318;--card:#171c23;--ink:#e6eaf0;--soft:#9ca7b4;--line:#2d3641;--mark:#7fb0ff;"
    "--good:#5fd07f;--good-tint:#15301f;--bad:#ff8a80;--bad-tint:#3a1a1a;--warn:#e8bd4f;--warn-tint:#332a12"
)
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
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:10px 24px;margin:0}
.sizes{grid-template-columns:repeat(auto-fill,minmax(120px,1fr));margin:8px 0 10px}
.facts dt{color:var(--soft);font-size:.8125rem}
.facts dd{margin:0;overflow-wrap:anywhere}
.box{overflow-x:auto;margin:0 0 12px;border:1px solid var(--line);border-radius:10px;background:var(--card)}
.tall{max-height:28rem;overflow:auto}
.tall th{position:sticky;top:0;background:var(--card)}
.tall td code:not(.short){min-width:13rem}
.tall .box{border:0;border-radius:0;margin:0;overflow:visible}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tbody tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td.text{min-width:5.5rem}
td code{display:inline-block;min-width:6rem;max-width:26rem}
td code.short{min-width:0;white-space:nowrap}
td.number,th.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
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
"""

SHEET: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}{_RULES}"
)

#: What stands where a value has no meaning.
NOTHING = "&ndash;"


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already; everything else is escaped."""

    text: str


def text(value: Any) -> str:
    """`value` as HTML."""
    return value.text if isinstance(value, Markup) else escape(visible(str(value)))


def tag(name: str, *content: Any, **attributes: str) -> Markup:
    """An element; the attribute `class` is `class_`, `text-anchor` is `text_anchor`."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    message = "".join(f' {names[key]}="{escape(visible(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{message}>{''.join(map(text, content))}</{name}>")


def brackets(index: Iterable[int]) -> Markup:
    """Whole numbers in brackets, on one line."""
    return tag("code", f"[{', '.join(map(str, index))}]", class_="short")


def join(parts: Iterable[Any], between: str = "") -> Markup:
    """The parts one after the other; `between` is HTML."""
    return Markup(between.join(map(text, parts)))


def name(value: Any) -> Markup:
    """A name from a file: in a fixed width, and broken anywhere if it must."""
    return tag("code", value)


def number(value: float | int | None, form: str = ".2e") -> Markup:
    """A number, `NOTHING` for None, a word where it is infinite."""
    if value is None:
        return Markup(NOTHING)
    if isinstance(value, float) and not math.isfinite(value):
        return tag("span", "none", title="no number: nothing could be compared")
    return Markup("0" if value == 0 else format(value, form))


def table(heads: Sequence[str], rows: Iterable[Iterable[Any]], *, numbers: Iterable[int] = ()) -> Markup:
    """A table in a box that scrolls sideways; `numbers` are the columns that align right."""
    right = set(numbers)

    def cells(kind: str, row: Iterable[Any]) -> Markup:
        return tag(
            "tr", *(tag(kind, cell, class_="number" if k in right else "text") for k, cell in enumerate(row))
        )

    head, body = tag("thead", cells("th", heads)), tag("tbody", *(cells("td", row) for row in rows))
    return tag("div", tag("table", head, body), class_="box", tabindex="0")


def pairs(rows: Iterable[tuple[str, Any]], kind: str = "facts") -> Markup:
    """Terms and what they are; `facts sizes` are short ones, side by side on a phone too."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", what)) for term, what in rows), class_=kind)


def bullets(items: Iterable[Any]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def section(title: str, *content: Any) -> Markup:
    return tag("section", tag("h2", title), *content)
