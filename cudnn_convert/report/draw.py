"""The network around recurrences as a picture, from its inputs to its outputs.

Boxes lie in rows, each below all that lead to it; at most two lie side by side, so that words can be read on
a phone. An arrow says over how many ops it leads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from cudnn_convert.errors import visible
from cudnn_convert.model import Network
from cudnn_convert.report import OutputReport, PieceReport, RecurrenceReport, Subject, Verification
from cudnn_convert.report.html import Markup, tag

WIDTH: Final = 340
_SIDE, _GAP, _BETWEEN = 4, 12, 34
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
    """What stands in a box: names, facts below them, and the class of its verdict."""

    names: Sequence[str]
    facts: Sequence[str]
    tone: str = ""


@dataclass(frozen=True, slots=True)
class _Box:
    """A box with its lines, of which the first `names` are names, and where it lies."""

    title: str
    lines: tuple[str, ...]
    names: int
    tone: str
    x: float
    y: float
    width: float

    @property
    def height(self) -> float:
        return _LINE * len(self.lines) + 2 * _PAD


def network(subject: Subject, proof: Verification | None) -> Markup:
    """The picture of a report's network, and a line on what was cut away."""
    assert subject.network is not None
    cut = _describe_cut(subject.network)
    groups, links = _group(subject.network)
    described = _describe(subject, proof, groups)
    if not 0 < len(described) <= _MOST:
        return tag("p", f"{len(described)} inputs, outputs and recurrences: too many for a picture. {cut}")
    boxes = _place(links, described)
    height = max(box.y + box.height for box in boxes.values()) + _SIDE
    arrows = [part for (source, target), ops in links.items() for part in _arrow(boxes, source, target, ops)]
    shapes = [part for box in boxes.values() for part in _shape(box)]
    label = "Inputs, recurrences and outputs, with the number of ops between them"
    box = f"0 0 {WIDTH} {height:.0f}"
    picture = tag("svg", *arrows, *shapes, viewBox=box, role="img", class_="network", aria_label=label)
    return tag("div", tag("figure", picture, tag("figcaption", cut), class_="wide"), class_="card")


#: The names that share a box, by the first of them, and the numbers of ops of each link between boxes.
_Groups = Mapping[str, Sequence[str]]
_Links = Mapping[tuple[str, str], Sequence[int]]


def _group(drawn: Network) -> tuple[_Groups, _Links]:
    """Put inputs that lead to the same into one box, and outputs that the same leads to."""
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


def _describe(subject: Subject, proof: Verification | None, groups: _Groups) -> dict[str, _Words]:
    """The words of each box, by the first of its names in links."""
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
            boxes[lead] = _Words(
                _shorten(keys), [*_worst(outputs, _count("output", len(keys)))], _tone(outputs)
            )
    for recurrence in subject.recurrences:
        node, asked = recurrence.node, pieces.get(recurrence.node, [])
        lines = [*_sizes(recurrence), *_states(states.get(node, ())), *_errors(asked)]
        boxes[node] = _Words([node], lines, _judge(asked))
    return boxes


def _shorten(keys: Sequence[str]) -> list[str]:
    return [*keys[:_NAMES], *([f"and {len(keys) - _NAMES} more"] if len(keys) > _NAMES else [])]


def _count(what: str, count: int) -> str:
    return what if count == 1 else f"{count} {what}s"


def _worst(outputs: Sequence[OutputReport], what: str) -> Iterator[str]:
    yield what
    if outputs:
        yield f"largest error {max(output.worst for output in outputs):.1e}"


def _tone(outputs: Sequence[OutputReport]) -> str:
    if not all(output.passed for output in outputs):
        return "bad"
    return "good" if outputs and all(output.judged for output in outputs) else ""


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


def _place(links: _Links, described: Mapping[str, _Words]) -> dict[str, _Box]:
    """The boxes in rows, each below all that lead to it."""
    ranks = _rank(links, described)
    boxes: dict[str, _Box] = {}
    y = float(_SIDE)
    for rank in sorted({*ranks.values()}):
        names = sorted((name for name in described if ranks[name] == rank), key=partial(_mean, links, boxes))
        for first in range(0, len(names), _MOST_SIDE):
            row = names[first : first + _MOST_SIDE]
            width = (WIDTH - 2 * _SIDE - _GAP * (len(row) - 1)) / len(row)
            placed = {
                name: _fit(described[name], _SIDE + k * (width + _GAP), y, width)
                for k, name in enumerate(row)
            }
            boxes |= placed
            y += max(box.height for box in placed.values()) + _BETWEEN
    return boxes


def _mean(links: _Links, boxes: Mapping[str, _Box], name: str) -> float:
    """Where the boxes that lead to one lie on average, so that arrows cross little."""
    above = [boxes[source].x for source, target in links if target == name and source in boxes]
    return sum(above) / len(above) if above else 0.0


def _rank(links: _Links, described: Mapping[str, _Words]) -> dict[str, int]:
    """The row of each box: inputs first, outputs last, recurrences by the longest way to them."""
    recurrences = [name for name in described if not name.startswith((_INPUT, _OUTPUT))]
    ranks = {name: 0 if name.startswith(_INPUT) else 1 for name in described}
    for _ in recurrences:  # as many times as the longest way has recurrences; a loop ends here too
        for source, target in links:
            if source in recurrences and target in recurrences and source != target:
                ranks[target] = min(max(ranks[target], ranks[source] + 1), len(recurrences))
    last = max([ranks[name] for name in recurrences], default=0) + 1
    return {name: last if name.startswith(_OUTPUT) else rank for name, rank in ranks.items()}


def _fit(words: _Words, x: float, y: float, width: float) -> _Box:
    room = int((width - 2 * _PAD) / _CHARACTER)
    names = [part for name in words.names for part in _wrap(visible(name), room, "/")]
    facts = [part for fact in words.facts for part in _wrap(fact, room, " ")]
    return _Box(", ".join(words.names), (*names, *facts), len(names), words.tone, x, y, width)


def _wrap(text: str, room: int, behind: str) -> list[str]:
    """Lines of at most `room` characters, broken behind a separator, and anywhere if they must."""
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
    middle = f"{box.x + box.width / 2:.1f}"
    words = [
        tag(
            "text", line, x=middle, y=f"{box.y + _PAD + _LINE * (k + 0.8):.1f}", text_anchor="middle",
            class_="named" if k < box.names else "fact",
        )
        for k, line in enumerate(box.lines)
    ]  # fmt: skip
    frame = tag(
        "rect", x=f"{box.x:.1f}", y=f"{box.y:.1f}", width=f"{box.width:.1f}", height=f"{box.height:.1f}",
        rx="6", class_="box-of",
    )  # fmt: skip
    yield tag("g", tag("title", box.title), frame, *words, class_=f"node {box.tone}".rstrip())


def _arrow(boxes: Mapping[str, _Box], source: str, target: str, ops: Sequence[int]) -> Iterator[Markup]:
    """A line from below one box to above another, and the number of ops beside it."""
    if source not in boxes or target not in boxes or source == target:
        return
    start, end = boxes[source], boxes[target]
    x1, y1 = start.x + start.width / 2, start.y + start.height
    x2, y2 = end.x + end.width / 2, end.y
    if y2 <= y1:  # a loop: what is below leads to what is above
        return
    bend = min(_BETWEEN, (y2 - y1) / 2)
    path = f"M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2 - 5:.1f}"
    yield tag("path", d=path, class_="way")
    head = f"M{x2 - 3.5:.1f} {y2 - 7:.1f} L{x2 + 3.5:.1f} {y2 - 7:.1f} L{x2:.1f} {y2 - 1:.1f} Z"
    yield tag("path", d=head, class_="head")
    if most := max(ops):
        least = min(ops)
        label = f"{least:,} to {most:,} ops" if least < most else _count_ops(most)
        yield tag("text", label, x=f"{x2 + 7:.1f}", y=f"{y2 - 10:.1f}", class_="count", text_anchor="start")


def _count_ops(count: int) -> str:
    return f"{count:,} op{'s' * (count > 1)}"
