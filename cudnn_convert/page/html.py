"""HTML from Python values: what comes out of a file is escaped, and every table has a box to scroll in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cudnn_convert.visible import visible

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
    told = "".join(f' {names[key]}="{escape(visible(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{told}>{''.join(map(text, content))}</{name}>")


def place(index: Iterable[int]) -> Markup:
    """Whole numbers in brackets, on one line."""
    return tag("code", f"[{', '.join(map(str, index))}]", class_="short")


def joined(parts: Iterable[Any], between: str = "") -> Markup:
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
    """A table in a box of its own that scrolls sideways; `numbers` are the columns that align right."""
    right = set(numbers)

    def cells(kind: str, row: Iterable[Any]) -> Markup:
        return tag(
            "tr", *(tag(kind, one, class_="number" if k in right else "text") for k, one in enumerate(row))
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
