"""What the page says of each recurrence by itself: its error, and what its inputs would have shown."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_convert.page.html import NOTHING, Markup, bullets, joined, name, number, section, table, tag
from cudnn_convert.report import PieceReport, Verification

_HEADS = (
    *("recurrence", "layers", "verdict", "asked in", "values", "max abs", "of tolerance"),
    *("wrong weights show", "weakest weight shows"),
)


def recurrences(proof: Verification) -> Iterator[Markup]:
    """The table of recurrences, and below it what nothing would have shown."""
    if not proof.recurrences:
        return
    rows = table(_HEADS, map(_row, proof.recurrences), numbers=range(4, 9))
    said = [joined([name(one.node), ": ", one.message]) for one in proof.recurrences if one.message]
    said += [
        joined([name(one.node), f": the weakest weight is that of {one.sampled} rows of each gate's matrix"])
        for one in proof.recurrences
        if one.sampled is not None
    ]
    hidden = [joined([name(one.node), ", ", line]) for one in proof.recurrences for line in one.unseen]
    cards = [tag("div", bullets(said), class_="card warn")] if said else []
    if hidden:
        head = tag("p", "These changes would have moved it by less than ten tolerances:")
        cards.append(tag("div", head, bullets(hidden), class_="card soft"))
    yield section("Recurrences by themselves", rows, *cards)


def verdict_lines(proof: Verification) -> Iterator[str]:
    """The verdict in a line."""
    asked = [one for one in proof.recurrences if one.asked]
    nodes = {one.node for one in proof.recurrences}
    if nodes:
        right = {one.node for one in asked} - {one.node for one in asked if not one.passed}
        yield f"{len(right)} of {len(nodes)} recurrences agree by themselves with the float64 reference."


def _row(found: PieceReport) -> Iterator[object]:
    yield name(found.node)
    yield ", ".join(map(str, found.layers))
    kind = ("good", "equal") if found.passed else ("bad", "different")
    kind = kind if found.asked else ("warn", "not asked")
    yield tag("span", kind[1], class_=f"chip {kind[0]}")
    yield name(found.piece) if found.piece else Markup(NOTHING)
    if not found.asked:
        yield from [Markup(NOTHING)] * 5
        return
    yield f"{found.compared:,}"
    yield number(found.worst)
    yield number(found.needed, ".1%")
    yield number(found.smallest, ",.0f")
    yield number(found.weakest, ",.0f")
