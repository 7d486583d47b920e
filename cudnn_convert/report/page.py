"""A report as a self-contained page of HTML: free of scripts, fonts and addresses.

Every name in it comes out of somebody's file: all text is escaped, and a policy in the page forbids it to
load anything. First the page as a whole, then its sections: outputs, recurrences, weights.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from cudnn_convert.report import draw, html, values, verdict
from cudnn_convert.report.html import NOTHING, Markup, bullets, join, name, number, section, table, tag
from cudnn_convert.report.values import Conversion, Proof, Subject

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def of(result: Conversion | Proof) -> str:
    """Return the page of a conversion or of a verification, as text of HTML."""
    proof, subject, copied, micro = _take_apart(result)
    title = f"{_headline(proof, copied=copied)}: {subject.source if subject else 'verification'}"
    return document(title, *_list_sections(proof, subject, copied, micro))


def _take_apart(
    result: Conversion | Proof,
) -> tuple[Proof | None, Subject | None, bool, values.MicroReport | None]:
    """Return the proof, both sides, True if an artifact exists, and the needs in Micro."""
    if isinstance(result, Conversion):
        subject = result.as_subject(result.out or "none")
        return result.verification, subject, result.out is not None, result.micro
    return result, result.subject, True, None


def fragment(result: Conversion | Proof) -> str:
    """Return the result for a notebook: verdict, recurrences and outputs.

    The style stays inside it.
    """
    parts = list(_list_sections(*_take_apart(result)))
    style = Markup(f"<style>{html.SCOPED}</style>")
    return tag("div", style, *parts, class_=html.SCOPE).text


def document(title: str, *sections: Markup) -> str:
    """Return a whole page of sections, with loading forbidden and cudnn-convert's mark.

    The mark makes the page known as this tool's.
    """
    main = tag("main", *sections)
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup(html.MARK),
            tag("title", title),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Markup(f"<style>{html.SHEET}</style>"),
        ],
        "\n",
    )
    body = f"<head>\n{head.text}\n</head>\n<body>\n{main.text}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{body}\n</html>'


def _headline(proof: Proof | None, *, copied: bool) -> str:
    if not copied:
        return "Portable already"
    return "Not verified" if proof is None else verdict.headline(proof)


def _list_sections(
    proof: Proof | None, subject: Subject | None, copied: bool, micro: values.MicroReport | None
) -> Iterator[Markup]:
    yield _header(proof, copied=copied)
    if subject is not None:
        yield _comparison_card(proof, subject)
    if micro is not None:
        yield section("In TensorFlow Lite Micro", tag("div", html.pairs(micro.facts), class_="card"))
    if subject is not None and subject.network is not None and subject.recurrences:
        yield section("The network around its recurrences", draw.network(subject, proof))
    warnings = (*(subject.warnings if subject else ()), *(proof.warnings if proof else ()))
    if warnings:
        yield section("Warnings", tag("div", bullets(warnings), class_="card warn"))
    if proof is not None:
        if proof.remarks:
            yield section("Remarks", tag("div", bullets(proof.remarks), class_="card"))
        yield from recurrence_table(proof)
        yield outputs(proof)
    if subject is not None:
        yield _names(subject)
        yield recurrence_cards(subject)
        yield others(subject.weights.variables if subject.weights else ())
        if subject.notes:
            yield section("Notes", tag("div", bullets(subject.notes), class_="card"))
    if proof is not None:
        yield _reading(proof)


def _header(proof: Proof | None, *, copied: bool) -> Markup:
    tone = "warn" if proof is None else "good" if proof.passed else "bad"
    tone = "warn" if proof is not None and proof.passed and proof.end_to_end != "equal" else tone
    lines: list[object] = []
    if not copied:
        tone, lines = "good", ["Nothing reaches a cuDNN op, so nothing was written."]
    elif proof is None:
        lines = ["Nothing was compared (--no-verify)."]
    else:
        passed = sum(output.passed and output.judged for output in proof.outputs)
        reference = "what was expected" if proof.seed is None else "the float64 reference"
        judge = "the recording" if proof.recording else reference
        lines += [f"{passed} of {len(proof.outputs)} outputs agree with {judge}."]
        lines += [
            join([name(output.output), ": ", output.message]) for output in proof.outputs if not output.passed
        ]
        lines += verdict_lines(proof)
        lines += [_describe_ops(proof.ops)] if proof.ops else []
        lines += [f"Weights of {line}." for line in proof.misplaced]
        lines += [_describe_chunks(proof.streaming)] if proof.streaming else []
        lines += [_describe_search(proof.decoding)] if proof.decoding else []
    eyebrow = tag("p", "cudnn-convert, verification report", class_="eyebrow")
    title = tag("h1", _headline(proof, copied=copied))
    return tag("header", eyebrow, title, *(tag("p", line) for line in lines), class_=f"card verdict {tone}")


def _describe_ops(asked: values.OpsReport) -> str:
    """Return a sentence on the ops around recurrences."""
    regions = f", in {asked.regions:,} regions" if asked.regions else ""
    counts = f"{asked.ops:,} ops, {asked.constants:,} constants, {asked.gates:,} gates{regions}"
    listed = ", ".join(asked.odd)
    odd = f"; other on NaN, infinities, denormals or extremes alone: {listed}" if listed else ""
    return f"Around the recurrences {asked.verdict} ({counts}){odd}."


def _describe_chunks(streamed: values.StreamReport) -> str:
    """Return a sentence on the answers to feeds in chunks."""
    kinds = ", ".join(streamed.chunks)
    if not streamed.passed:
        return f"Given in chunks, not equal: {streamed.message}."
    share = f"{streamed.needed:.1%} of the tolerance at most"
    hidden = f"; not judged: {', '.join(streamed.unjudged)}" if streamed.unjudged else ""
    return f"Sequences in chunks {kinds} are equal to {streamed.beside} ({share}){hidden}."


def _describe_search(searched: values.DecodingReport) -> str:
    """Return a sentence on a search compared with NumPy's search."""
    if not searched.passed:
        return f"The search ({searched.kind}) is not equal: {searched.message}."
    ties = f"; rounding turned {searched.ties} rows" if searched.ties else ""
    return (
        f"The search ({searched.kind}) finds what one in NumPy finds on the step's own numbers: "
        f"{searched.compared} tokens of {searched.examples} rows, {searched.ended} ends{ties}."
    )


def _comparison_card(proof: Proof | None, subject: Subject) -> Markup:
    rows: list[tuple[str, object]] = [
        ("source", name(subject.source)),
        ("recognised as", subject.kind),
        ("artifact", name(subject.artifact)),
        ("format", subject.format),
    ]
    if proof is not None:
        for number, feed in enumerate(proof.feeds, 1):
            sizes = ", ".join(f"{key} {[*shape]}" for key, shape in feed.items())
            rows.append((f"feed {number}", name(sizes)))
        if proof.recording:
            rows += [(f"recording: {key}", name(value)) for key, value in proof.recording.items()]
        elif proof.seed is not None:
            rows.append(("seed of the feeds", proof.seed))
        if proof.data is not None:
            rows.append(("data", name(proof.data)))
    return tag("div", html.pairs(rows), class_="card")


def _names(subject: Subject) -> Markup:
    ends = [("input", subject.inputs), ("output", subject.outputs)]
    rows = [(kind, name(key), name(tensor)) for kind, names in ends for key, tensor in names.items()]
    return section("Signature", table(("", "key", "tensor of the source"), rows))


def _reading(proof: Proof) -> Markup:
    floors = sorted({f"{output.rel_floor:g}" for output in proof.outputs if output.rel_floor is not None})
    above = " or ".join(floors) or "0"
    words = [
        "max abs: the largest |found - expected|, over all feeds.",
        f"max rel: the largest |found - expected| / |expected| where |expected| is above {above}.",
        "max ULP: how many numbers of the output's type lie between expected and found, at most.",
        "wrong weights show: how many tolerances the answer would be off at least with gates exchanged, a "
        "kernel transposed or zero, a bias dropped or the directions exchanged; weakest weight: with any one "
        "weight moved by 0.001 of the norm of its gate's matrix.",
        "cosine: of the angle between all expected and all found values.",
        "of tolerance: the largest share of atol + rtol * |expected| that an error used; 100% is the limit.",
        "The artifact's tensors are found by their values: one that holds others is not found, nor are "
        "several that were folded into one.",
    ]
    return section("How to read this", tag("div", bullets(words), class_="card soft"))


_OUTPUT_HEADS = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "judged as"),
)
#: From here on a share of the tolerance is told in times.
_TIMES: Final = 10
#: From here on with an exponent.
_HUGE: Final = 1e6


def outputs(proof: Proof) -> Markup:
    """Return the table of figures and the plots of each output."""
    rows = table(_OUTPUT_HEADS, map(_output_row, proof.outputs), numbers=range(2, 8))
    return section("Outputs", rows, *(_output_card(output) for output in proof.outputs))


def _output_row(output: values.OutputReport) -> Iterator[object]:
    yield name(output.output)
    yield _verdict(passed=output.passed, judged=output.judged)
    yield f"{output.compared:,}"
    yield number(output.max_abs)
    yield number(output.max_rel)
    yield Markup(NOTHING) if output.ulp is None else f"{output.ulp:,}"
    yield Markup(NOTHING) if output.cosine is None else f"{output.cosine:.9f}"
    # Of what must be equal, `needed` counts the values that differ.
    yield Markup(NOTHING) if output.max_abs is None else _share(output.needed)
    yield _element(output.worst_element) if output.worst_element else Markup(NOTHING)
    yield output.reason


def _verdict(*, passed: bool, judged: bool, otherwise: str = "not judged") -> Markup:
    """Return the result of a comparison as a word in colour."""
    if not judged:
        return tag("span", otherwise, class_="chip warn")
    return tag("span", "equal" if passed else "different", class_=f"chip {'good' if passed else 'bad'}")


def _share(needed: float) -> Markup:
    """Format a share of the tolerance in per cent, a large share as a multiple."""
    if math.isfinite(needed) and needed >= _TIMES:
        return tag("span", f"{needed:,.0f} times" if needed < _HUGE else f"{needed:.1e} times")
    return number(needed, ".1%")


def _element(element: values.Element) -> Markup:
    return join([f"feed {element.feed + 1} ", html.brackets(element.index)])


def _output_card(output: values.OutputReport) -> Markup:
    lines = [tag("p", output.message)] if output.message else []
    worst = output.worst_element
    if worst is not None and output.passed:  # else the message has it
        expected, actual = (name(_value(value)) for value in (worst.expected, worst.found))
        words = [_element(worst), ": expected ", expected, ", found ", actual]
        lines.append(tag("p", "Worst element: ", *words, class_="soft"))
    figures = []
    if output.over_time is not None:
        caption = "Error over time (all feeds; dashed: the absolute tolerance)"
        figures.append(_figure(caption, html.plot_over_time(output.over_time, output.atol)))
    if output.distribution is not None and any(output.distribution.counts):
        same = f"{output.distribution.exact:,} of {output.compared:,} values have none"
        caption = f"Distribution of the error ({same}; dashed: the tolerance)"
        figures.append(_figure(caption, html.plot_distribution(output.distribution)))
    plotted = [tag("div", *figures, class_="plots")] if figures else []
    title = tag("h3", name(output.output), " ", _verdict(passed=output.passed, judged=output.judged))
    return tag("article", title, *lines, *plotted, class_="card output")


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _figure(caption: str, plot: Markup) -> Markup:
    return tag("figure", tag("figcaption", caption), plot)


_RECURRENCE_HEADS = (
    *("recurrence", "layer", "verdict", "asked in", "values", "max abs", "of tolerance"),
    *("wrong weights show", "weakest weight shows"),
)


def recurrence_table(proof: Proof) -> Iterator[Markup]:
    """Render the table of recurrences, and below the changes missed by a test."""
    if not proof.recurrences:
        return
    rows = table(_RECURRENCE_HEADS, map(_recurrence_row, proof.recurrences), numbers=range(4, 9))
    messages = [
        join([name(recurrence.node), ": ", recurrence.message])
        for recurrence in proof.recurrences
        if recurrence.message
    ]
    sampled = ": the weakest weight is that of {} rows of each gate's matrix"
    messages += [
        join([name(recurrence.node), sampled.format(recurrence.sampled)])
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


def verdict_lines(proof: Proof) -> Iterator[str]:
    """Yield the verdict in a line."""
    asked = [recurrence for recurrence in proof.recurrences if recurrence.asked]
    nodes = {recurrence.node for recurrence in proof.recurrences}
    if nodes:
        wrong = {recurrence.node for recurrence in asked if not recurrence.passed}
        right = {recurrence.node for recurrence in asked} - wrong
        yield f"{len(right)} of {len(nodes)} recurrences agree by themselves with the float64 reference."


def _recurrence_row(piece_report: values.PieceReport) -> Iterator[object]:
    yield name(piece_report.node)
    yield ", ".join(map(str, piece_report.layers))
    yield _verdict(passed=piece_report.passed, judged=piece_report.asked, otherwise="not asked")
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
    """Return a card for each recurrence, with the map folded in."""
    cards = [_weight_card(recurrence, subject.weights) for recurrence in subject.recurrences]
    none = tag("p", "None: no cuDNN op is left that the outputs need.", class_="soft")
    return section("Recurrences", *(cards or [none]))


def _weight_card(recurrence: values.RecurrenceReport, weights: values.WeightsReport | None) -> Markup:
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
        mapped = [html.pairs(orders), _map(weights.gates[recurrence.node])]
    kind = tag("span", f"{recurrence.op}, {recurrence.mode}", class_="chip")
    title = tag("h3", name(recurrence.node), " ", kind)
    return tag("article", title, html.pairs(sizes, "facts sizes"), *mapped, class_="card")


def _layout(layout_report: values.LayoutReport) -> Markup:
    if not layout_report.gates:
        return Markup("not told: the tensors hold other values")
    chips = (tag("span", gate, class_="chip") for gate in layout_report.gates)
    names = ", ".join(layout_report.names)
    known = f"as {names}" if names else "an order of no layout known"
    return tag("span", *chips, tag("span", known, class_="soft"), class_="chips")


def _map(rows: Sequence[values.GateReport]) -> Markup:
    lost, odd = sum(row.target is None for row in rows), sum(bool(row.doubt) for row in rows)
    headline = f"{len(rows)} matrices and biases" + (f", {lost} {_UNKNOWN} in the artifact" if lost else "")
    headline += f", {odd} odd" if odd else ""
    heads = ("source tensor", "layer", "direction", "gate", "weights", "artifact tensor")
    first = sorted(rows, key=lambda row: row.target is not None and not row.doubt)
    mapped = table(heads, map(_weight_row, first), numbers=[1])
    summary = tag("summary", f"Map of the weights: {headline}", class_="bad" if lost or odd else "")
    is_open = {"open": "open"} if lost or odd else {}
    return tag("details", summary, tag("div", mapped, class_="box tall", tabindex="0"), **is_open)


def _weight_row(row: values.GateReport) -> Iterator[object]:
    yield _region(row.source)
    yield row.layer + 1
    yield row.direction
    yield row.gate
    yield row.weights.replace("_", " ")
    doubt = [Markup("<br>"), tag("span", row.doubt, class_="chip bad wrap")] if row.doubt else []
    yield join([_region(row.target), *doubt])


def _region(region: values.TensorRegion | None) -> Markup:
    if region is None:
        return tag("span", _UNKNOWN, class_="chip warn")
    how = [] if region.axes == "as it is" else [Markup("<br>"), tag("span", region.axes, class_="soft")]
    return join([name(f"{region.tensor}{region.part}"), *how])


def others(variable_reports: Sequence[values.VariableReport]) -> Markup:
    """Return the tensors of the source apart from the decoded recurrences."""
    if not variable_reports:
        return Markup("")
    rows = (
        (name(variable.source), html.brackets(variable.shape), variable.role, _target(variable))
        for variable in variable_reports
    )
    shown = table(("source tensor", "shape", "role", "artifact tensor"), rows)
    return section("Other tensors of the source", tag("div", shown, class_="box tall", tabindex="0"))


def _target(variable_report: values.VariableReport) -> Markup:
    if variable_report.target is not None:
        return name(variable_report.target)
    return tag("span", _UNKNOWN, class_="chip warn") if variable_report.role == "needed" else Markup(NOTHING)
