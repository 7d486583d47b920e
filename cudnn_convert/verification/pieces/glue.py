"""The glue: source and artifact run with the outputs of recurrences given.

Source and artifact get the same values in the place of what every recurrence gives. Compared are the
outputs, and what enters each recurrence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cudnn_convert import reference
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report import GlueReport
from cudnn_convert.verification import compare, effort, end_to_end
from cudnn_convert.verification.judges import Call, Source
from cudnn_convert.verification.judges import steps as steps_of


@dataclass(frozen=True, slots=True)
class Given:
    """One call of one layer: its inputs, and the values to give in its place.

    All arrays are float32: `x [time, batch, inputs]`; `h` and `c` `[directions, batch, units]`, the initial
    states; `lengths [batch]` or None; `y [time, directions, batch, units]`; `h_end` and `c_end`, the final
    states.

    With `projections`, a matrix for each direction, `y` and `h_end` are the values before the projection and
    `h` those after it.
    """

    x: Array
    h: Array
    c: Array
    lengths: Array | None
    y: Array
    h_end: Array
    c_end: Array
    projections: Sequence[Array] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One feed by tensor, and the recurrences' calls on it."""

    feed: Mapping[str, Array]
    calls: Sequence[Call]

    @property
    def by_node(self) -> dict[str, list[Call]]:
        """The calls of each recurrence."""
        return {node: [call for call in self.calls if call.node == node] for node in self.nodes}

    @property
    def nodes(self) -> set[str]:
        """The recurrences that run."""
        return {call.node for call in self.calls}


@dataclass(frozen=True, slots=True)
class Seen:
    """The results of the artifact's glue on one feed.

    `outputs` are by key. `entered` has `(what, found, expected)` for each tensor that enters a recurrence.
    """

    outputs: Mapping[str, Array]
    entered: Sequence[tuple[str, Array, Array]]


#: What the artifact's glue answers to one feed after another; what it keeps in variables begins as it was
#: stored. Raises LookupError with the reason where the glue cannot be run by itself.
Run = Callable[[Sequence[Pass]], Iterable[Seen]]


@dataclass(slots=True)
class _Worst:
    """The running result of the comparisons.

    `least` is the absolute bound of the coarsest type that a recurrence or a stored matrix has.
    """

    least: float
    compared: int = 0
    needed: float = 0.0
    message: str = ""
    unjudged: list[str] = field(default_factory=list)

    def see(self, name: str, actual: Array, expected: Array, floor: float) -> None:
        """Compare floats with the larger of their type's bound and ten times their noise.

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
    judge: Source,
    feed: Mapping[str, Array],
    run: Run,
    *,
    dtype: np.dtype[Any],
    rough: Source | None = None,
) -> GlueReport:
    """Compare the artifact's glue with the source's on one feed.

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
    worst = _Worst(compare.tolerance(dtype, 0.0).atol)
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


def _passes(plan: Plan, judge: Source, feed: Mapping[str, Array]) -> list[Pass]:
    """Record what the source's recurrences take and give on one feed.

    Two calls where state stays in variables, else one.
    """
    judge.restart()
    passes = []
    for _ in range(2 if any(state.stays for state in plan.states) else 1):
        judge.run(feed, list(plan.signature.outputs.values()))
        passes.append(Pass(feed, [*judge.draw.calls]))  # of later runs there will be others
    return passes


def fitting(
    plan: Plan, calls: Sequence[Call], named: Mapping[str, tuple[str, int]], *, projected: bool = False
) -> dict[str, list[Given]]:
    """The values that each piece of an artifact may give.

    They are those of its layer, or of one with the same weights: `named` has by piece the recurrence and the
    layer that it stands for. `projected`: a projection is part of
    it. Raises LookupError where a layer that was called has no piece.
    """
    by_layer = _layers(plan, calls, projected=projected)
    weights = {
        recurrence.node: (recurrence.shared, recurrence.sizes, recurrence.dtype)
        for recurrence in plan.recurrences
    }
    wanted = {piece: (weights.get(node), layer) for piece, (node, layer) in named.items()}
    if {(weights[node], layer) for node, layer in by_layer} - {*wanted.values()}:
        raise LookupError("the artifact does not have one node for each layer of each recurrence")
    givens: dict[Any, list[Given]] = {}
    for (node, layer), values in by_layer.items():
        givens.setdefault((weights[node], layer), []).extend(values)
    return {piece: givens.get(key, []) for piece, key in wanted.items()}


def _layers(plan: Plan, calls: Sequence[Call], *, projected: bool) -> dict[tuple[str, int], list[Given]]:
    """Map (node, layer) to the values to give for each call of it."""
    givens: dict[tuple[str, int], list[Given]] = {}
    for call in calls:
        for key, value in _of_call(plan, call, projected=projected).items():
            givens.setdefault(key, []).append(value)
    return givens


def _of_call(plan: Plan, call: Call, *, projected: bool) -> dict[tuple[str, int], Given]:
    """The values of each layer of a recurrence on what it took."""
    recurrence = next(recurrence for recurrence in plan.recurrences if recurrence.node == call.node)
    sizes, floats = recurrence.sizes, [np.asarray(value, np.float64) for value in (call.x, call.h, call.c)]
    steps = tuple(steps_of(recurrence, np.float64))
    values_by_key = {}
    run = reference.layers(steps, *floats, directions=sizes.directions, lengths=call.lengths)
    for number, layer in enumerate(run):
        places = slice(number * sizes.directions, (number + 1) * sizes.directions)
        first_h, first_c = floats[1][places], floats[2][places]
        projections: tuple[Array, ...] = ()
        inner = layer
        if sizes.projection and not projected:
            cells = [step.gates() for step in steps[places]]
            projections = tuple(np.asarray(cell.projection) for cell in cells)
            starts = [h @ np.linalg.pinv(matrix).T for h, matrix in zip(first_h, projections, strict=True)]
            alone = [cell.compose_projection().step() for cell in cells]
            taken = (layer.x, np.stack(starts), first_c)
            (inner,) = reference.layers(alone, *taken, directions=sizes.directions, lengths=call.lengths)
        time, batch, _ = layer.y.shape
        y = inner.y.reshape(time, batch, sizes.directions, -1).swapaxes(1, 2)
        values = (layer.x, first_h, first_c, y, inner.h, inner.c)
        x, h, c, y, h_end, c_end = (np.ascontiguousarray(value, np.float32) for value in values)
        values_by_key[call.node, number] = Given(x, h, c, call.lengths, y, h_end, c_end, projections)
    return values_by_key


def _answers(
    judge: Source, passes: Sequence[Pass], wanted: Sequence[str], rough: Source | None
) -> list[tuple[list[Array], list[float]]]:
    """Compute the source's tensors with recurrences given, and how far rounding moves each.

    The result has one `(values, floors)` for each pass.
    """
    exact = _collect_given(judge, passes, wanted)
    others = [_collect_given(judge, passes, wanted, draw=draw) for draw in range(1, effort.GLUE_DRAWS + 1)]
    others += [] if rough is None else [_collect_given(rough, passes, wanted)]
    answers = []
    for number, values in enumerate(exact):
        gaps = [[*map(end_to_end.difference, values, other[number])] for other in others]
        answers.append((values, [max(column) for column in zip(*gaps, strict=True)]))
    return answers


def _collect_given(
    judge: Source, passes: Sequence[Pass], wanted: Sequence[str], *, draw: int = 0
) -> list[list[Array]]:
    """By pass a source's tensors where recurrences give what is given, moved by rounding."""
    judge.restart()
    givens = []
    for run in passes:
        judge.draw.give(
            {node: [_move_by_rounding(call, draw) for call in calls] for node, calls in run.by_node.items()}
        )
        givens.append(judge.run(end_to_end.perturb_feed(run.feed, seed=1, draw=draw), wanted))
    judge.draw.give({})
    return givens


def _move_by_rounding(call: Call, draw: int) -> Call:
    """A call that gave values a unit in the last place away."""
    named = {str(position): value for position, value in enumerate(call.gave)}
    return replace(call, gave=[*end_to_end.perturb_feed(named, seed=0, draw=draw).values()])


def _share(actual: Array, expected: Array, floor: float, least: float) -> float | None:
    """Return the largest used share of the tolerance; None if noise makes it too wide."""
    base = max(least, compare.tolerance(expected.dtype, 0.0).atol)
    atol = max(base, effort.NOISE_MARGIN * floor)
    wide = expected.astype(np.float64)
    if atol > base and atol > effort.SHARP * end_to_end.spread(wide):
        return None
    both = (np.isnan(actual) & np.isnan(wide)) | (actual == wide)
    with np.errstate(invalid="ignore"):
        share = np.where(both, 0.0, np.abs(actual - wide) / (atol + base * np.abs(wide)))
    return float(np.nan_to_num(share, nan=np.inf).max(initial=0.0))
