"""The glue: source and artifact run with the outputs of recurrences given.

Source and artifact get the same values in the place of what every recurrence gives. Compared are the
outputs, and what enters each recurrence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report.values import GlueReport
from cudnn_convert.verification import compare, effort, rounding
from cudnn_convert.verification.judges import RecurrenceCall, RunningSource
from cudnn_convert.verification.pieces.glue_runs import GlueRun, RunGlue


@dataclass(slots=True)
class _WorstDifference:
    """The running result of the comparisons.

    `least` is the absolute bound of the coarsest type that a recurrence or a stored matrix has.
    """

    least: float
    compared: int = 0
    needed: float = 0.0
    message: str = ""
    unjudged: list[str] = field(default_factory=list)

    def see(self, name: str, actual: Array, expected: Array, floor: float) -> None:
        """Compare floats with a bound: the type's bound or ten times the noise, if larger.

        Where this bound is too wide, the name is added to `unjudged`. Values that are not floats are not
        compared.
        """
        if actual.shape != expected.shape:
            self.needed = np.inf
            self.message = self.message or f"{name}: expected {[*expected.shape]}, found {[*actual.shape]}"
            return
        if expected.dtype.kind != "f":
            return  # a choice between scores
        share = _share(actual, expected, floor, self.least)
        if share is None:
            self.unjudged.append(name)
            return
        self.compared += expected.size
        if share > max(1.0, self.needed):
            self.message = f"{name}: off by {share:.3g} times the tolerance"
        self.needed = max(self.needed, share)


def judge_glue(
    plan: Plan,
    judge: RunningSource,
    feed: Mapping[str, Array],
    run: RunGlue,
    *,
    dtype: np.dtype[Any],
    rough: RunningSource | None = None,
) -> GlueReport:
    """Compare the artifact's glue with the source's glue on a feed.

    Two calls are made where state stays in variables. `dtype` is the coarsest type that a recurrence has or
    that the artifact stores matrices in. `rough` is the source with its matrices rounded to that type, or
    None: its difference from `judge` widens the bounds.
    """
    passes = _passes(plan, judge, feed)
    if not any(call.calls for call in passes):
        return GlueReport(asked=False, message="no recurrence runs on these inputs")
    try:
        seen = [*run(passes)]
    except LookupError as reason:
        return GlueReport(asked=False, message=str(reason.args[0]))
    worst = _WorstDifference(compare.tolerance(dtype, 0.0).atol)
    answers = _answers(judge, passes, [*plan.signature.outputs.values()], rough)
    for number, (call, (exact, floors)) in enumerate(zip(seen, answers, strict=True)):
        which = f"call {number + 1}: " if number else ""
        for key, value, floor in zip(plan.signature.outputs, exact, floors, strict=True):
            if key in call.outputs:
                worst.see(f"{which}output {key}", call.outputs[key], value, floor)
        for name, actual, expected in call.entered:
            worst.see(f"{which}{name}", actual, expected, 0.0)
    idle = sorted(
        {recurrence.node for recurrence in plan.recurrences}.difference(*(call.nodes for call in passes))
    )
    if idle and worst.needed <= 1:
        around = [f"what is around {node}, which these inputs do not reach" for node in idle]
        worst.message = f"not looked at: {', '.join(around)}"
    return GlueReport(
        asked=True,
        passed=worst.needed <= 1,
        compared=worst.compared,
        needed=worst.needed,
        unjudged=tuple(dict.fromkeys(worst.unjudged)),
        message=worst.message,
    )


def _passes(plan: Plan, judge: RunningSource, feed: Mapping[str, Array]) -> list[GlueRun]:
    """Record the inputs and outputs of the source's recurrences on a feed.

    Two calls where state stays in variables, else one.
    """
    judge.restart()
    passes = []
    for _ in range(2 if any(state.stays for state in plan.states) else 1):
        judge.run(feed, list(plan.signature.outputs.values()))
        passes.append(GlueRun(feed, [*judge.draw.calls]))  # of later runs there will be others
    return passes


def _answers(
    judge: RunningSource, passes: Sequence[GlueRun], wanted: Sequence[str], rough: RunningSource | None
) -> list[tuple[list[Array], list[float]]]:
    """Compute the source's tensors with recurrences given, and the movement of each by rounding.

    The result has one `(values, floors)` for each pass.
    """
    exact = _collect_given(judge, passes, wanted)
    others = [_collect_given(judge, passes, wanted, draw=draw) for draw in range(1, effort.GLUE_DRAWS + 1)]
    others += [] if rough is None else [_collect_given(rough, passes, wanted)]
    answers = []
    for number, values in enumerate(exact):
        gaps = [[*map(rounding.difference, values, other[number])] for other in others]
        answers.append((values, [max(column) for column in zip(*gaps, strict=True)]))
    return answers


def _collect_given(
    judge: RunningSource, passes: Sequence[GlueRun], wanted: Sequence[str], *, draw: int = 0
) -> list[list[Array]]:
    """Compute a source's tensors for each pass, with recurrence outputs given, moved by rounding."""
    judge.restart()
    givens = []
    for run in passes:
        judge.draw.given = {
            node: [_move_by_rounding(call, draw) for call in calls] for node, calls in run.by_node.items()
        }
        givens.append(judge.run(rounding.perturb_feed(run.feed, seed=1, draw=draw), wanted))
    judge.draw.given = {}
    return givens


def _move_by_rounding(call: RecurrenceCall, draw: int) -> RecurrenceCall:
    """Return a call with outputs moved by a unit in the last place."""
    named = {str(position): value for position, value in enumerate(call.gave)}
    return replace(call, gave=[*rounding.perturb_feed(named, seed=0, draw=draw).values()])


def _share(actual: Array, expected: Array, floor: float, least: float) -> float | None:
    """Return the largest used share of the tolerance.

    Returns None if noise makes the tolerance too wide.
    """
    base = max(least, compare.tolerance(expected.dtype, 0.0).atol)
    atol = max(base, effort.NOISE_MARGIN * floor)
    wide = expected.astype(np.float64)
    if atol > base and atol > effort.SHARP * rounding.spread(wide):
        return None
    both = (np.isnan(actual) & np.isnan(wide)) | (actual == wide)
    with np.errstate(invalid="ignore"):
        share = np.where(both, 0.0, np.abs(actual - wide) / (atol + base * np.abs(wide)))
    return float(np.nan_to_num(share, nan=np.inf).max(initial=0.0))
