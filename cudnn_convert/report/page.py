"""Writes a report as JSON or as one self-contained HTML page.

A report as one page of HTML that needs nothing but itself: no script, no font, no address.

Every name in it comes out of somebody's file, so all text is escaped, and a policy in the page forbids it to
load anything at all.

A report as files: JSON, or a page with the JSON beside it, put in their places once the work is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Final

from cudnn_convert.errors import WriteError
from cudnn_convert.report import Report, Subject, Verification, sections
from cudnn_convert.report.html import SHEET, Markup, bullets, join, name, pairs, section, table, tag
from cudnn_convert.storage import atomic_output

#: By which a page is known as one of this tool's.
MARK = '<meta name="generator" content="cudnn-convert">'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def of(report: Report | Verification) -> str:
    """The page of a conversion or of a verification, as text of HTML."""
    proof: Verification | None
    subject: Subject | None
    if isinstance(report, Report):
        proof, subject = report.verification, _subject(report)
        copied = report.out is not None
    else:
        proof, subject, copied = report, report.subject, True
    title = f"{_word(proof, copied=copied)}: {subject.source if subject else 'verification'}"
    main = tag("main", *_sections(proof, subject, copied=copied))
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup(MARK),
            tag("title", title),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Markup(f"<style>{SHEET}</style>"),
        ],
        "\n",
    )
    body = f"<head>\n{head.text}\n</head>\n<body>\n{main.text}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{body}\n</html>'


def _subject(report: Report) -> Subject:
    return Subject(
        source=report.source,
        kind=report.kind,
        format=report.format,
        artifact=report.out or "none",
        inputs=report.inputs,
        outputs=report.outputs,
        recurrences=report.recurrences,
        notes=report.notes,
        weights=report.weights,
    )


def _word(proof: Verification | None, *, copied: bool) -> str:
    if not copied:
        return "Portable already"
    if proof is None:
        return "Not verified"
    if not proof.passed:
        return "Different"
    return "Equal" if proof.end_to_end == "equal" else "Recurrences equal, end to end not judged"


def _sections(proof: Verification | None, subject: Subject | None, *, copied: bool) -> Iterator[Markup]:
    yield _verdict(proof, copied=copied)
    if subject is not None:
        yield _comparison_card(proof, subject)
    if proof is not None:
        if proof.warnings:
            yield section("Warnings", tag("div", bullets(proof.warnings), class_="card warn"))
        yield from sections.recurrence_table(proof)
        yield sections.outputs(proof)
    if subject is not None:
        yield _names(subject)
        yield sections.recurrence_cards(subject)
        yield sections.others(subject.weights.variables if subject.weights else ())
        if subject.notes:
            yield section("Notes", tag("div", bullets(subject.notes), class_="card"))
    if proof is not None:
        yield _reading(proof)


def _verdict(proof: Verification | None, *, copied: bool) -> Markup:
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
        lines += sections.verdict_lines(proof)
        lines += [f"Weights of {line}." for line in proof.misplaced]
    eyebrow = tag("p", "cudnn-convert, verification report", class_="eyebrow")
    title = tag("h1", _word(proof, copied=copied))
    return tag("header", eyebrow, title, *(tag("p", line) for line in lines), class_=f"card verdict {tone}")


def _comparison_card(proof: Verification | None, subject: Subject) -> Markup:
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
    return tag("div", pairs(rows), class_="card")


def _names(subject: Subject) -> Markup:
    ends = [("input", subject.inputs), ("output", subject.outputs)]
    rows = [(kind, name(key), name(tensor)) for kind, names in ends for key, tensor in names.items()]
    return section("Signature", table(("", "key", "tensor of the source"), rows))


def _reading(proof: Verification) -> Markup:
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


_PAGE: Final = ".html"
#: Bytes of a page that hold its head's first lines.
_HEAD: Final = 1000
Keep = Callable[[Report | Verification], None]


@contextmanager
def prepare_report(path: Path, *, apart: Sequence[tuple[str, Path]] = (), force: bool) -> Iterator[Keep]:
    """Yields what writes a report, JSON or where `path` ends in .html a page too, and then puts it in place.

    Of the files `apart` none is touched; with `force` a report that is there is replaced. Raises UsageError
    and WriteError before anything is done. An exception in the body leaves all as it was.
    """
    paths = [path, path.with_suffix(".json")] if path.suffix == _PAGE else [path]
    with ExitStack() as stack:
        for file in paths:
            atomic_output.refuse(atomic_output.Target(file, is_ours, apart, force))
        fresh = [
            stack.enter_context(
                atomic_output.atomic_output(atomic_output.Target(file, is_ours, apart, force), folder=False)
            )
            for file in paths
        ]

        def keep(report: Report | Verification) -> None:
            for file, written in zip(paths, fresh, strict=True):
                try:
                    text = of(report) if file.suffix == _PAGE else report.to_json()
                    written.write_text(text + "\n", encoding="utf-8")
                except OSError as cause:
                    raise WriteError(file, f"cannot write the report: {cause.strerror}") from cause

        yield keep


def is_ours(path: Path) -> bool:
    """Whether a file is a report of this tool, by what is in it."""
    try:
        if path.suffix == _PAGE:
            with path.open("rb") as stream:
                return MARK.encode() in stream.read(_HEAD)
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    kinds = (Report, Verification)
    return isinstance(record, dict) and any(
        record.keys() >= {field.name for field in fields(kind)} for kind in kinds
    )
