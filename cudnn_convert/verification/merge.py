"""Of the differences of each feed, what a report says of an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudnn_convert.report import OutputReport
from cudnn_convert.verification import figures
from cudnn_convert.verification.compare import Difference, Tolerance


def merged(group: Sequence[Difference], bounds: Mapping[str, Tolerance]) -> OutputReport:
    """One output over all feeds: its worst difference. An output that was empty every time proves nothing."""
    worst = max(group, key=lambda difference: (not difference.passed, difference.needed))
    compared = sum(difference.compared for difference in group)
    message = worst.message or next((found.message for found in group if found.message), "")
    bound = bounds.get(worst.output, Tolerance(0.0, 0.0, "none"))
    told = figures.merged([difference.figures for difference in group])
    return OutputReport(
        output=worst.output,
        passed=compared > 0 and all(difference.passed for difference in group),
        compared=compared,
        worst=worst.worst,
        needed=worst.needed,
        atol=bound.atol,
        rtol=bound.rtol,
        reason=bound.reason,
        excused=sum(difference.excused for difference in group),
        message=message if compared or message else "empty for every feed",
        max_abs=told.max_abs,
        max_rel=told.max_rel,
        rel_floor=None if told.max_abs is None else bound.atol,
        ulp=told.ulp,
        cosine=told.cosine,
        worst_element=told.worst_element,
        over_time=told.over_time,
        distribution=told.distribution,
    )


def warnings(reports: Sequence[OutputReport]) -> tuple[str, ...]:
    """What passed, and yet should be known."""
    found = []
    for report in reports:
        if "noise floor" in report.reason and report.judged:
            found.append(f"{report.output}: ill-conditioned; compared as {report.reason}")
        if report.passed and report.message:
            found.append(f"{report.output}: {report.message}")
        if report.excused:
            found.append(f"{report.output}: {report.excused} choices between scores too close to call differ")
    return tuple(found)
