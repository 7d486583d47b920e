"""Draws the network around recurrences, from the inputs to the outputs.

Boxes lie in rows, each below all that lead to it; at most two lie side by side, so that words can be read on
a phone. An edge that skips rows passes their boxes in a lane, which all edges from the same box share. A box
says over how many ops its edges come.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cudnn_convert.report.html import Markup, tag
from cudnn_convert.report.values import OutputReport, PieceReport, Proof, RecurrenceReport, Subject
from cudnn_convert.text import visible
from cudnn_convert.values import Network

WIDTH: Final = 340
#: Above the first row and below the last, between boxes side by side, and between rows.
_SIDE, _GAP, _BETWEEN = 4, 12, 30
#: The width of a lane, and the least share of a row that a box has.
_LANE, _NARROW = 8, 110
#: The height of a line, and the width of a character of 11 px in the widest usual font.
_LINE, _CHARACTER = 14, 6.4
_PAD: Final = 8
#: Lines of one name, names of one box, and boxes side by side.
_MOST_LINES, _NAMES, _MOST_SIDE = 4, 5, 2
_INPUT, _OUTPUT = "input ", "output "
#: More boxes than this are no picture any more.
_MOST: Final = 60


@dataclass(frozen=True, slots=True)
class _Words:
    """The words in a box: names, facts below, and the class of the verdict."""

    names: Sequence[str]
    facts: Sequence[str]
    tone: str = ""


@dataclass(frozen=True, slots=True)
class _Box:
    """A box with lines and a position.

    The first `names` lines are names.
    """

    title: str
    lines: tuple[str, ...]
    names: int
    tone: str
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class _Placement:
    """The position of boxes and lanes.

    `links` are those that lead down. `boxes` and `row_of` are by name, `rows` has the top and the bottom of
    each row, `lanes` the x of the lane of a box past a row, by name and number of the row.
    """

    links: Sequence[tuple[str, str]]
    boxes: dict[str, _Box] = field(default_factory=dict)
    row_of: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[float, float]] = field(default_factory=list)
    lanes: dict[tuple[str, int], float] = field(default_factory=dict)

    def leads_on(self, name: str) -> bool:
        """Return True if a box leads to a box still to be placed."""
        return any(source == name and target not in self.row_of for source, target in self.links)


def network(subject: Subject, proof: Proof | None) -> Markup:
    """Return the picture of a report's network, with a line on the parts cut away."""
    assert subject.network is not None
    cut = _describe_cut(subject.network)
    groups, links = _group(subject.network)
    described = _describe(subject, proof, groups, links)
    count = f"{len(described)} inputs, outputs and recurrences"
    if not 0 < len(described) <= _MOST:
        return tag("p", f"{count}: too many for a picture. {cut}")
    layout = _place(links, described)
    if layout is None:
        return tag("p", f"{count}: too many edges past others for a picture. {cut}")
    arrows = [part for source, target in layout.links for part in _arrow(layout, source, target)]
    shapes = [part for box in layout.boxes.values() for part in _shape(box)]
    label = "Inputs, recurrences and outputs, with the number of ops between them"
    box = f"0 0 {WIDTH} {layout.rows[-1][1] + _SIDE:.0f}"
    picture = tag("svg", *arrows, *shapes, viewBox=box, role="img", class_="network", aria_label=label)
    return tag("div", tag("figure", picture, tag("figcaption", cut), class_="wide"), class_="card")


#: The names that share a box, by the first of them, and the numbers of ops of each link between boxes.
_Groups = Mapping[str, Sequence[str]]
_Links = Mapping[tuple[str, str], Sequence[int]]


def _group(drawn: Network) -> tuple[_Groups, _Links]:
    """Put inputs with the same targets into a box, and outputs with the same sources."""
    around: dict[str, set[str]] = {}
    for link in drawn.links:
        if link.source.startswith(_INPUT):
            around.setdefault(link.source, set()).add(link.target)
        if link.target.startswith(_OUTPUT):
            around.setdefault(link.target, set()).add(link.source)
    first: dict[tuple[str, frozenset[str]], str] = {}
    groups: dict[str, list[str]] = {}
    member: dict[str, str] = {}
    for name, others in around.items():
        lead = first.setdefault((name.partition(" ")[0], frozenset(others)), name)
        groups.setdefault(lead, []).append(name)
        member[name] = lead
    links: dict[tuple[str, str], list[int]] = {}
    for link in drawn.links:
        ends = member.get(link.source, link.source), member.get(link.target, link.target)
        links.setdefault(ends, []).append(link.ops)
    return groups, links


def _describe_cut(drawn: Network) -> str:
    if not drawn.kept:
        return "Weights alone: each recurrence is a signature of its own."
    left = f"; {drawn.left_out:,} of the source's were cut away" if drawn.left_out else ""
    return f"{drawn.kept:,} ops are kept{left}."


def _describe(subject: Subject, proof: Proof | None, groups: _Groups, links: _Links) -> dict[str, _Words]:
    """Return the words of each box, by the box's first name in links."""
    states: dict[str, list[str]] = {}
    for state in subject.states:
        states.setdefault(state.recurrence, []).append(state.kind)
    pieces: dict[str, list[PieceReport]] = {}
    for piece in proof.recurrences if proof else ():
        pieces.setdefault(piece.node, []).append(piece)
    judged = {output.output: output for output in proof.outputs} if proof else {}
    boxes = {}
    for lead, names in groups.items():
        keys = [name.partition(" ")[2] for name in names]
        outputs = [judged[key] for key in keys if key in judged]
        if lead.startswith(_INPUT):
            boxes[lead] = _Words(_shorten(keys), [_count("input", len(keys))])
        else:
            facts = [*_distance(links, lead), _count("output", len(keys))]
            if outputs:
                facts.append(f"largest error {max(output.worst for output in outputs):.1e}")
            boxes[lead] = _Words(_shorten(keys), facts, _tone(outputs))
    for recurrence in subject.recurrences:
        node, asked = recurrence.node, pieces.get(recurrence.node, [])
        sizes = [*_distance(links, node), *_sizes(recurrence)]
        lines = [*sizes, *_states(states.get(node, ())), *_errors(asked)]
        boxes[node] = _Words([node], lines, _judge(asked))
    return boxes


def _shorten(keys: Sequence[str]) -> list[str]:
    return [*keys[:_NAMES], *([f"and {len(keys) - _NAMES} more"] if len(keys) > _NAMES else [])]


def _count(what: str, count: int) -> str:
    return what if count == 1 else f"{count} {what}s"


def _tone(outputs: Sequence[OutputReport]) -> str:
    if not all(output.passed for output in outputs):
        return "bad"
    return "good" if outputs and all(output.judged for output in outputs) else ""


def _distance(links: _Links, name: str) -> Iterator[str]:
    """Yield the number of ops on the edges to a box, as text."""
    counts = [count for (_, target), ops in links.items() if target == name for count in ops]
    if most := max(counts, default=0):
        least = min(counts)
        several = f"{least:,} to {most:,} ops" if least < most else f"{most:,} ops"
        yield f"after {'1 op' if least == most == 1 else several}"


def _sizes(recurrence: RecurrenceReport) -> Iterator[str]:
    layers = f"{recurrence.layers} layer{'s' * (recurrence.layers > 1)}"
    directions = "both directions" if recurrence.directions == 2 else "one direction"
    yield f"{recurrence.mode}, {layers}, {directions}"
    yield f"{recurrence.units} units, {recurrence.input_size} inputs"


def _states(kinds: Sequence[str]) -> Iterator[str]:
    if kinds:
        yield f"states {', '.join(kinds)} go in and come out"


def _errors(pieces: Sequence[PieceReport]) -> Iterator[str]:
    asked = [piece for piece in pieces if piece.asked]
    if asked:
        worst = max(asked, key=lambda piece: piece.needed)
        yield f"largest error {worst.worst:.1e}"
        yield f"{worst.needed:.1%} of its tolerance"
    elif pieces:
        yield "not asked by itself"


def _judge(pieces: Sequence[PieceReport]) -> str:
    asked = [piece for piece in pieces if piece.asked]
    if not asked:
        return "warn" if pieces else ""
    return "good" if all(piece.passed for piece in asked) else "bad"


def _place(links: _Links, described: Mapping[str, _Words]) -> _Placement | None:
    """Place the boxes in rows, each below all sources of the box.

    None where lanes leave them no room.
    """
    ranks = _rank(links, described)
    layout = _Placement(
        [edge for edge in links if {*edge} <= ranks.keys() and ranks[edge[0]] < ranks[edge[1]]]  # no loops
    )
    exits: dict[str, float] = {}  # the x of each box's edge below the rows so far
    for rank in sorted({*ranks.values()}):
        means = {name: _mean(layout, exits, name) for name in described if ranks[name] == rank}
        names = sorted(means, key=means.__getitem__)
        for first in range(0, len(names), _MOST_SIDE):
            row = {name: described[name] for name in names[first : first + _MOST_SIDE]}
            layout.row_of.update(dict.fromkeys(row, len(layout.rows)))
            passing = {name: x for name, x in exits.items() if layout.leads_on(name)}
            share = (WIDTH - _LANE * len(passing)) / len(row)
            if share < _NARROW:
                return None
            wished = {**means, **passing}
            exits = _place_row(layout, row, sorted([*row, *passing], key=wished.__getitem__), share)
    return layout


def _place_row(
    layout: _Placement, row: Mapping[str, _Words], order: Sequence[str], share: float
) -> dict[str, float]:
    """Place a row below the last row, and return the x of each edge.

    Boxes and lanes are in `order`; an edge leaves below the row.
    """
    top = layout.rows[-1][1] + _BETWEEN if layout.rows else float(_SIDE)
    lines = {name: _fit(words, share - _GAP) for name, words in row.items()}
    height = _LINE * max(len(names) + len(facts) for names, facts in lines.values()) + 2 * _PAD
    exits, x = {}, 0.0
    for name in order:
        if name in row:
            words, (names, facts) = row[name], lines[name]
            box = _Box(
                ", ".join(words.names), (*names, *facts), len(names), words.tone, x + _GAP / 2, top,
                share - _GAP, height,
            )  # fmt: skip
            layout.boxes[name], exits[name] = box, box.middle
            x += share
        else:
            layout.lanes[name, len(layout.rows)] = exits[name] = x + _LANE / 2
            x += _LANE
    layout.rows.append((top, top + height))
    return exits


def _mean(layout: _Placement, exits: Mapping[str, float], name: str) -> float:
    """Return the mean x of a box's incoming edges.

    Rows sorted by it have few crossing arrows.
    """
    above = [exits[source] for source, target in layout.links if target == name and source in exits]
    return sum(above) / len(above) if above else 0.0


def _rank(links: _Links, described: Mapping[str, _Words]) -> dict[str, int]:
    """Return the row of each box: inputs first, outputs last.

    Recurrences have rows by the longest way to them.
    """
    recurrences = [name for name in described if not name.startswith((_INPUT, _OUTPUT))]
    ranks = {name: 0 if name.startswith(_INPUT) else 1 for name in described}
    for _ in recurrences:  # as many times as the longest way has recurrences; a loop ends here too
        for source, target in links:
            if source in recurrences and target in recurrences and source != target:
                ranks[target] = min(max(ranks[target], ranks[source] + 1), len(recurrences))
    last = max([ranks[name] for name in recurrences], default=0) + 1
    return {name: last if name.startswith(_OUTPUT) else rank for name, rank in ranks.items()}


def _fit(words: _Words, width: float) -> tuple[list[str], list[str]]:
    """Return the lines of names and of facts for a box of given width."""
    room = int((width - 2 * _PAD) / _CHARACTER)
    names = [part for name in words.names for part in _wrap(visible(name), room, "/")]
    return names, [part for fact in words.facts for part in _wrap(fact, room, " ")]


def _wrap(text: str, room: int, behind: str) -> list[str]:
    """Break text into lines of at most `room` characters.

    A line is broken behind a separator, and anywhere if it must.
    """
    pieces = [piece + behind for piece in text.split(behind)]
    pieces[-1] = pieces[-1].removesuffix(behind)
    lines = [""]
    for piece in pieces:
        rest = piece
        if lines[-1] and len((lines[-1] + rest).rstrip()) > room:
            lines.append("")
        while len(rest.rstrip()) > room:
            lines[-1:] = [rest[:room], ""]
            rest = rest[room:]
        lines[-1] += rest
    lines = [line.rstrip() for line in lines if line.strip()] or [""]
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], f"{lines[-1][: room - 3]}..."]


def _shape(box: _Box) -> Iterator[Markup]:
    first = box.y + (box.height - _LINE * len(box.lines)) / 2
    words = [
        tag(
            "text", line, x=f"{box.middle:.1f}", y=f"{first + _LINE * (k + 0.8):.1f}", text_anchor="middle",
            class_="named" if k < box.names else "fact",
        )
        for k, line in enumerate(box.lines)
    ]  # fmt: skip
    frame = tag(
        "rect", x=f"{box.x:.1f}", y=f"{box.y:.1f}", width=f"{box.width:.1f}", height=f"{box.height:.1f}",
        rx="6", class_="box-of",
    )  # fmt: skip
    yield tag("g", tag("title", box.title), frame, *words, class_=f"node {box.tone}".rstrip())


def _arrow(layout: _Placement, source: str, target: str) -> Iterator[Markup]:
    """Yield a line from below a box to above another box.

    It passes the rows between in the lane of the first.
    """
    end = layout.boxes[target]
    x, y = layout.boxes[source].middle, layout.rows[layout.row_of[source]][1]
    path = f"M{x:.1f} {y:.1f}"
    for number in range(layout.row_of[source] + 1, layout.row_of[target]):
        lane, (top, bottom) = layout.lanes[source, number], layout.rows[number]
        path += f"{_bend(x, y, lane, top)} L{lane:.1f} {bottom:.1f}"
        x, y = lane, bottom
    yield tag("path", d=path + _bend(x, y, end.middle, end.y - 5), class_="way")
    head = f"M{end.middle - 3.5:.1f} {end.y - 7:.1f} l7 0 l-3.5 6 Z"
    yield tag("path", d=head, class_="head")


def _bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a curve with upright ends."""
    half = (y1 + y2) / 2
    return f" C{x1:.1f} {half:.1f} {x2:.1f} {half:.1f} {x2:.1f} {y2:.1f}"
