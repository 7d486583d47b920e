"""An artifact against its source: the walk from feeds to a `Verification`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import progress
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras.custom import NOTHING, Vouched
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report import Verification
from cudnn_convert.verification import compare, golden, merge, own_feeds, run, way
from cudnn_convert.verification.compare import Difference
from cudnn_convert.verification.golden import Golden
from cudnn_convert.verification.steps import axis_of_time
from cudnn_convert.verification.way import FEW, Sizes, Source

SEED: Final = 20240229
#: Recurrences of these types are judged by the rounding of that type, measured on the model itself.
_COARSENESS: Final = ("float64", "float32", "float16", "bfloat16")


def verified(
    plan: Plan,
    artifact: Path | run.Runner,
    *,
    form: str,
    weights_dtype: str = "float32",
    data: Path | None = None,
    recording: Path | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    max_error: float | None = None,
    vouched: Vouched = NOTHING,
) -> Verification:
    """Runs source and artifact, a file or what runs as one, on the same feeds.

    `form` is its format, `weights_dtype` what its matrices are stored in where that is less than they were.
    `max_error` is the bound of every float of an artifact that is not meant to be equal; its choices may
    differ where errors of that size in their scores explain it.

    A `recording` brings the feeds, and answers of the original, which judge in the place of the reference's.
    """
    trust = vouched.trust
    keys = {name: key for key, name in plan.signature.inputs.items()}
    judging = way.of(plan)
    scores = judging.scores(plan)
    wanted = [*plan.signature.outputs.values(), *(name for name, _ in scores.values())]
    told = golden.opened(plan, recording) if recording else None
    with judging.opened(plan, trust=trust) as judge:
        fed = _fed(plan, judge, told, data, _more(plan, form))
        judge.restart()
        exact, seen = [], []
        for feed in _counted(fed, 0):
            exact.append(_answered(plan, judge, feed, wanted))
            seen.append([*judge.sizes])
    dtype = _coarsest(plan, form, weights_dtype)
    with judging.opened(plan, dtype=_working(dtype), trust=trust) as rough:
        rounded = [_answered(plan, rough, feed, wanted) for feed in _counted(fed, 1)]
    answer = run.opened(form, artifact, plan.parts, vouched) if isinstance(artifact, Path) else artifact
    found = _called(plan, answer, fed)
    noise = {name: _noise(exact, rounded, place) for place, name in enumerate(wanted)}
    if dtype.name == "float64":
        noise = dict.fromkeys(noise, 0.0)
    outputs = list(plan.signature.outputs.items())
    bounds = {
        key: compare.tolerance(
            _judged(exact[0][place], dtype), noise[name], atol=atol, rtol=rtol, most=max_error
        )
        for place, (key, name) in enumerate(outputs)
    }
    expected = exact
    if told:
        expected = told.instead(exact, wanted, {name: key for key, name in outputs})
        judged = {key: _judged(exact[0][place], dtype) for place, (key, _) in enumerate(outputs)}
        bounds = {key: told.bound(bound, judged[key]) for key, bound in bounds.items()}
        noise = {name: max(found, told.floor) for name, found in noise.items()}
    if max_error is not None:
        noise = {name: max(found, max_error) for name, found in noise.items()}
    axes = {
        key: axis_of_time([values[place].shape for values in expected], seen)
        for place, (key, _) in enumerate(outputs)
    }
    differences: list[list[Difference]] = []
    for values, artifact_values in zip(expected, found, strict=True):
        by_name = dict(zip(wanted, values, strict=True))
        slack = {}
        for key, (name, axis) in scores.items():
            chosen = by_name[plan.signature.outputs[key]]
            slack[key] = _too_close(by_name[name], axis, artifact_values.get(key), chosen, noise[name])
        by_key = {key: by_name[name] for key, name in outputs}
        single = FORMATS[form].single
        differences.append(compare.outputs(artifact_values, by_key, bounds, slack, single=single, axes=axes))
    reports = tuple(merge.merged(group, bounds) for group in zip(*differences, strict=True))
    shapes = tuple({keys[name]: value.shape for name, value in feed.items()} for feed in fed)
    warnings = [*merge.warnings(reports)]
    failed = {report.output for report in reports if not report.passed}
    warnings += told.disagreements(exact, expected, [*bounds.items()], failed) if told else []
    return Verification(
        all(r.passed for r in reports),
        SEED,
        shapes,
        reports,
        tuple(warnings),
        recording=told.facts if told else None,
    )


def _counted(fed: Sequence[dict[str, Array]], turn: int) -> Iterator[dict[str, Array]]:
    """The feeds of one of three turns: the source exactly, the source in a working type, the artifact."""
    for number, feed in enumerate(fed, turn * len(fed)):
        progress.at("verifying", number, 3 * len(fed))
        yield feed


def _more(plan: Plan, form: str) -> Sizes:
    """The (time, batch) that an artifact computes in another way than those that are always tried."""
    return (*FORMATS[form].sizes, FEW) if plan.model.saved is not None else FORMATS[form].sizes


def _fed(
    plan: Plan, judge: Source, told: Golden | None, data: Path | None, more: Sizes
) -> list[dict[str, Array]]:
    """The feeds by tensor: recorded, given or made up; a recording's are as many calls as it had."""
    if told:
        golden.require_accepted(plan, judge, told)
        return [*told.feeds]
    if data:
        fed = own_feeds.accepted(plan, judge, data)
    else:
        fed = way.of(plan).generated(plan, judge, seed=SEED, more=more)
    # What stays in variables shows from the second call on.
    return fed * 2 if len(fed) == 1 and any(held.stays for held in plan.states) else fed


def _called(plan: Plan, answer: run.Runner, fed: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    """The artifact's answers by key. State that it takes and gives goes on to the next call unless fed."""
    keys = {name: key for key, name in plan.signature.inputs.items()}
    ends, found = {name: key for key, name in plan.signature.outputs.items()}, []
    leaving = [
        (keys[held.start], ends[held.end], plan.model.variables[held.state.key])
        for held in plan.states
        if held.start is not None and held.end is not None
    ]
    carried = {start: value.read() for start, _, value in leaving}
    for feed in _counted(fed, 2):
        found.append(answer(carried | {keys[name]: value for name, value in feed.items()}))
        carried |= {start: found[-1][end] for start, end, _ in leaving if end in found[-1]}
    return found


def _answered(plan: Plan, judge: Source, feed: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
    """The judge's answers to one feed: each part is a call of its own, which the state sees as one."""
    if len(plan.parts) == 1 or not plan.states:
        return judge.run(feed, wanted)
    found: dict[str, Array] = {}
    for part in plan.parts:
        others = {name for one in plan.parts if one is not part for name in one.signature.outputs.values()}
        names = [name for name in wanted if name in part.signature.outputs.values() or name not in others]
        found |= zip(names, judge.run(feed, names), strict=True)
    return [found[name] for name in wanted]


def _coarsest(plan: Plan, form: str, stored: str) -> np.dtype[Any]:
    """The type to judge by: the coarsest of the recurrences' and of what the artifact stores weights in.

    ONNX and TFLite compute doubles as float32.
    """
    kinds = {recurrence.dtype.name: recurrence.dtype for recurrence in plan.recurrences}
    kinds |= {kind.name: kind for kind in way.of(plan).dtypes(plan)}
    if stored != "float32":
        kinds |= {stored: np.dtype(stored)}
    coarsest = max(kinds, key=_COARSENESS.index, default="float32")
    if coarsest == "float64" and (form == "onnx" or FORMATS[form].single):
        coarsest = "float32"
    return kinds.get(coarsest, np.dtype(np.float32))


def _working(dtype: np.dtype[Any]) -> Any:
    return np.float32 if dtype.name == "float64" else dtype.type


def _judged(value: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type whose bound an output gets: its own or the recurrences', whichever is coarser."""
    if value.dtype.name not in _COARSENESS:
        return value.dtype
    return max(value.dtype, dtype, key=lambda kind: _COARSENESS.index(kind.name))


def _noise(exact: Sequence[Sequence[Array]], rounded: Sequence[Sequence[Array]], place: int) -> float:
    """The largest difference that the working type's rounding alone makes to one output."""
    worst = 0.0
    for one, other in zip(exact, rounded, strict=True):
        if one[place].shape == other[place].shape and one[place].dtype.kind == "f":
            with np.errstate(invalid="ignore"):  # of two infinities
                gap = np.abs(one[place].astype(np.float64) - other[place].astype(np.float64))
            worst = max(worst, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return worst


def _too_close(scores: Array, axis: int, found: Array | None, expected: Array, noise: float) -> Array:
    """Where the score of the artifact's choice is within twice the noise of the best one's."""
    if found is None or found.shape != expected.shape or not expected.size:
        return np.zeros(expected.shape, bool)
    is_choice = (found >= 0) & (found < scores.shape[axis])
    places = np.expand_dims(np.where(is_choice, found, 0).astype(int), axis)
    chosen = np.take_along_axis(scores, places, axis).squeeze(axis)
    return np.asarray(is_choice & (scores.max(axis) - chosen <= 2 * noise))
