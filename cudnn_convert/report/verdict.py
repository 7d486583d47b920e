"""The verdict as a sentence or headline: results, errors, and parts left out.

It says what was proven, how closely, and what was not looked at.
"""

from collections.abc import Iterator
from typing import Final

from cudnn_convert.report.values import Conversion, Proof, Subject

#: The relative bound of float32: a wider one is the rounding of half.
_FLOAT32: Final = 1e-5


def of_conversion(report: Conversion) -> str:
    """Return the verdict on a conversion's artifact at `report.out`."""
    assert report.out is not None
    subject = report.as_subject(report.out)
    if report.verification is None:
        lead = "recurrences alone, not proven" if report.alone else "not proven"
        return f"{report.out}: {lead}; nothing was compared with {report.source}"
    return _describe(report.verification, subject)


def of_verification(result: Proof) -> str:
    """Return the verdict on a verification's artifact, `result.subject.artifact`."""
    assert result.subject is not None
    return _describe(result, result.subject)


def headline(result: Proof) -> str:
    """Return the verdict in a few words: `Equal: largest error 5 % of the tolerance`."""
    if not result.passed:
        return f"Different{_place(result)}"
    relation = "Equal" if result.end_to_end == "equal" else "Recurrences equal, end to end not judged"
    if (bound := _find_bound(result)) is not None:
        relation = f"Not equal, but within {bound:g}"
    return f"{relation}: {next(_closeness(result))}"


def _place(result: Proof) -> str:
    """Return the number of differing outputs, else recurrences, else the place around recurrences."""
    wrong = sum(not output.passed for output in result.outputs)
    if wrong:
        return f" in {wrong:,} of {_count(len(result.outputs), 'output')}"
    nodes = {piece.node for piece in result.recurrences}
    if wrong := len({piece.node for piece in result.recurrences if not piece.passed}):
        return f" in {wrong:,} of {_count(len(nodes), 'recurrence')}"
    around = (result.glue, result.ops)
    return " around the recurrences" if any(each is not None and not each.passed for each in around) else ""


def _describe(result: Proof, subject: Subject) -> str:
    facts = [*_counts(result, subject), *_closeness(result), *_omissions(result, subject)]
    alone = "recurrences alone, " if subject.alone else ""
    return f"{subject.artifact}: {alone}{_relation(result, subject)} ({'; '.join(facts)})"


def _relation(result: Proof, subject: Subject) -> str:
    """Return the relation of the artifact to the source."""
    those = "those of " if subject.alone else ""
    source = f"{those}{subject.source}"
    if result.recording is not None:
        source = f"what {source} answered in {result.recording['file']}"
    if (bound := _find_bound(result)) is not None:
        return f"not equal, but within {bound:g} of {source}"
    if result.end_to_end == "equal":
        return f"proven equal to {source}"
    is_whole = any(each is not None and each.asked for each in (result.glue, result.ops))
    return f"proven equal to {source} piece by piece" if is_whole else f"recurrences proven equal to {source}"


def _find_bound(result: Proof) -> float | None:
    """Return the user's bound on errors, if outputs are judged by the bound."""
    return max((output.atol for output in result.outputs if output.origin == "max_error"), default=None)


def _counts(result: Proof, subject: Subject) -> Iterator[str]:
    """Yield the counts of compared parts: `3 outputs, 2 recurrences`."""
    judged = sum(output.judged for output in result.outputs)
    total = len(result.outputs)
    counts = [_count(total, "output") if judged == total else f"{judged} of {_count(total, 'output')}"]
    if subject.recurrences:
        counts.append(_count(len(subject.recurrences), "recurrence"))
    yield ", ".join(counts)
    if result.streaming is not None and result.streaming.compared:
        yield "in chunks of steps too"
    if result.decoding is not None:
        yield f"a search over {_count(result.decoding.compared, 'token')} too"


def _closeness(result: Proof) -> Iterator[str]:
    """Yield the largest error, and the bound if unusual."""
    judged = [output for output in result.outputs if output.judged]
    absolute = [output.max_abs for output in judged if output.max_abs is not None]
    if any(output.origin == "max_error" for output in judged):
        yield f"largest error {max(absolute, default=0.0):.2g}"
    else:
        asked = (piece.needed for piece in result.recurrences if piece.asked)
        others = (each.needed for each in (result.streaming, result.decoding) if each is not None)
        share = max([*(output.needed for output in judged), *asked, *others], default=0.0)
        yield f"largest error {percent(share)} of the tolerance"
    given = [output for output in judged if output.origin == "given"]
    coarse = [output for output in judged if output.origin != "given" and output.rtol > _FLOAT32]
    for what, bounded in (("a given tolerance", given), ("a tolerance", coarse)):
        if bounded:
            atol, rtol = max(each.atol for each in bounded), max(each.rtol for each in bounded)
            yield f"{what} of {atol:.1g} + {rtol:.1g}*|x|"
    if close := sum(output.excused for output in result.outputs):
        yield f"{_count(close, 'choice')} too close to call"


def _omissions(result: Proof, subject: Subject) -> Iterator[str]:
    """Yield the parts left out of the proof, with counts.

    They were not judged, or not reached.
    """
    if unjudged := sum(not output.judged for output in result.outputs):
        yield f"{_count(unjudged, 'output')} not judged end to end"
    # Recurrences with a layer that was not asked by itself.
    if through := len({piece.node for piece in result.recurrences if not piece.asked}):
        yield f"{_count(through, 'recurrence')} asked through outputs alone"
    if result.streaming is not None and result.streaming.unjudged:
        yield f"{_count(len(result.streaming.unjudged), 'output')} not judged in chunks"
    if result.ops is not None and not result.ops.asked:
        yield "ops around recurrences not compared one by one"
    elif result.ops is not None:
        if result.ops.not_reached:
            yield f"{_count(len(result.ops.not_reached), 'gate')} not reached"
        if result.ops.not_looked_at:
            yield f"{_count(len(result.ops.not_looked_at), 'op')} not compared one by one"
    elif result.glue is not None and not result.glue.asked:
        yield "what stands around recurrences not run by itself"
    if subject.unverified:
        yield f"{_count(len(subject.unverified), 'part')} not run: {', '.join(subject.unverified)}"


def percent(share: float) -> str:
    """Return a share in whole per cent, for a verdict."""
    return "under 1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
