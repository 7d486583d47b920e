"""What the page says of the weights: each recurrence, its gate orders, and where every tensor went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_convert.page.html import NOTHING, Markup, joined, name, pairs, place, section, table, tag
from cudnn_convert.report import (
    GateReport,
    LayoutReport,
    Place,
    RecurrenceReport,
    Subject,
    VariableReport,
    WeightsReport,
)

_UNKNOWN = "not found by its values"


def recurrences(subject: Subject) -> Markup:
    """A card for each recurrence, its map folded in it."""
    if not subject.recurrences:
        return section(
            "Recurrences", tag("p", "None: no cuDNN op is left that the outputs need.", class_="soft")
        )
    return section("Recurrences", *(_card(found, subject.weights) for found in subject.recurrences))


def _card(found: RecurrenceReport, weights: WeightsReport | None) -> Markup:
    sizes = [
        ("layers", found.layers),
        ("directions", found.directions),
        ("units", found.units),
        ("input size", found.input_size),
        ("type", found.dtype),
        ("weights taken", found.weights),
    ]
    mapped = []
    if weights is not None and found.node in weights.gates:
        orders = [
            ("gates in the source", _layout(weights.source_layouts[found.node])),
            ("gates in the artifact", _layout(weights.target_layouts[found.node])),
        ]
        mapped = [pairs(orders), _map(weights.gates[found.node])]
    title = tag("h3", name(found.node), " ", tag("span", f"{found.op}, {found.mode}", class_="chip"))
    return tag("article", title, pairs(sizes, "facts sizes"), *mapped, class_="card")


def _layout(found: LayoutReport) -> Markup:
    if not found.gates:
        return Markup("not told: the tensors hold other values")
    chips = (tag("span", gate, class_="chip") for gate in found.gates)
    known = tag(
        "span",
        f"as {', '.join(found.names)}" if found.names else "an order of no layout known",
        class_="soft",
    )
    return tag("span", *chips, known, class_="chips")


def _map(rows: Sequence[GateReport]) -> Markup:
    lost, odd = sum(row.target is None for row in rows), sum(bool(row.doubt) for row in rows)
    said = f"{len(rows)} matrices and biases" + (f", {lost} {_UNKNOWN} in the artifact" if lost else "")
    said += f", {odd} odd" if odd else ""
    heads = ("source tensor", "layer", "direction", "gate", "weights", "artifact tensor")
    first = sorted(rows, key=lambda row: row.target is not None and not row.doubt)
    told = table(heads, map(_row, first), numbers=[1])
    summary = tag("summary", f"Map of the weights: {said}", class_="bad" if lost or odd else "")
    is_open = {"open": "open"} if lost or odd else {}
    return tag("details", summary, tag("div", told, class_="box tall", tabindex="0"), **is_open)


def _row(row: GateReport) -> Iterator[object]:
    yield _place(row.source)
    yield row.layer + 1
    yield row.direction
    yield row.gate
    yield row.weights.replace("_", " ")
    doubt = [Markup("<br>"), tag("span", row.doubt, class_="chip bad wrap")] if row.doubt else []
    yield joined([_place(row.target), *doubt])


def _place(found: Place | None) -> Markup:
    if found is None:
        return tag("span", _UNKNOWN, class_="chip warn")
    how = [] if found.axes == "as it is" else [Markup("<br>"), tag("span", found.axes, class_="soft")]
    return joined([name(f"{found.tensor}{found.part}"), *how])


def others(found: Sequence[VariableReport]) -> Markup:
    """The tensors of the source that no recurrence was decoded from."""
    if not found:
        return Markup("")
    rows = ((name(one.source), place(one.shape), one.role, _target(one)) for one in found)
    shown = tag(
        "div",
        table(("source tensor", "shape", "role", "artifact tensor"), rows),
        class_="box tall",
        tabindex="0",
    )
    return section("Other tensors of the source", shown)


def _target(one: VariableReport) -> Markup:
    if one.target is not None:
        return name(one.target)
    return tag("span", _UNKNOWN, class_="chip warn") if one.role == "needed" else Markup(NOTHING)
