"""Calls an artifact in a row with carried states, and judges by the source's calls.

The source holds the states in its own variables, the artifact gets those that it gave before. Where inputs
have an open number of steps, a sequence is given in calls of 1, of 7 and of ragged numbers of steps, as far
as the source takes them; else each input is a call. The first sequence begins with what the source holds,
and the others with random states.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from cudnn_convert.artifacts import runners
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import end_to_end, streaming, trials
from cudnn_convert.verification.end_to_end import Comparison
from cudnn_convert.verification.settings import Settings
from cudnn_convert.verification.streaming import Chunked
from cudnn_convert.verification.trials import Trial

_WHOLE: Final = "of whole inputs"
_BESIDE: Final = "the source's own calls"
_Feed = Mapping[str, Array]


def call_in_a_row(comparison: Comparison, runner: runners.Runner) -> tuple[Chunked, ...]:
    """Call source and artifact in a row, from the same states on.

    Returns an empty tuple for a plan without such states. `comparison` has the feeds to make calls of. A
    number of steps that the source refuses is left out.
    """
    settings = replace(comparison.settings, golden=None)  # whose calls are others
    plan = settings.plan
    if not plan.variable_states:
        return ()
    feeds = comparison.trial.feeds if len(comparison.trial.feeds) > 1 else [*comparison.trial.feeds] * 2
    axes = _find_open_axes(plan)
    kinds = streaming.list_kinds(settings.seed) if axes else {}
    import tensorflow as tf  # a source with such states has loaded it

    answered: dict[str, Trial] = {}
    for what, sizes in kinds.items():
        calls = _list_calls(plan, feeds, axes, sizes)
        with suppress(tf.errors.OpError, ValueError):  # the source refuses a number of steps
            answered[what] = _call_source(settings, calls)
    if not answered:
        answered = {_WHOLE: _call_source(settings, _list_calls(plan, feeds, {}, [1]))}
    return tuple(_call_artifact(settings, runner, what, trial) for what, trial in answered.items())


def _find_open_axes(plan: Plan) -> dict[str, int]:
    """Return each input's open axis, possibly the steps; the first axis only if alone."""
    starts = {state.start for state in plan.states}
    axes = {}
    for name in plan.signature.inputs.values():
        shape = plan.graph.shapes.get_tensor_by_name(name).shape
        unknown = [axis for axis, size in enumerate(shape.as_list()) if size is None] if shape.rank else []
        if name not in starts and unknown:
            axes[name] = next((axis for axis in unknown if axis), 0)
    return axes


def _list_calls(
    plan: Plan, feeds: Sequence[_Feed], axes: Mapping[str, int], sizes: Sequence[int]
) -> list[dict[str, Array]]:
    """Return the feeds as calls in a row with the given steps.

    Only the first call of a feed has states.
    """
    starts = {state.start for state in plan.states}
    calls: list[dict[str, Array]] = []
    for feed in feeds:
        given = {name: value for name, value in feed.items() if name in starts and calls}
        steps = {name: axis for name, axis in axes.items() if name in feed}
        longest = max((feed[name].shape[axis] for name, axis in steps.items()), default=1)
        for begin, end in streaming.spans(longest, sizes):
            own = {name: value for name, value in feed.items() if name not in starts}
            for name, axis in steps.items():
                if feed[name].shape[axis] == longest:
                    own[name] = feed[name][(slice(None),) * axis + (slice(begin, end),)]
            calls.append(own | given)
            given = {}
    return calls


def _call_source(settings: Settings, calls: Sequence[dict[str, Array]]) -> Trial:
    """Run the source on calls in a row."""
    with settings.judge.open(trust=settings.trust) as source:
        return trials.try_feeds(settings, source, calls)


def _call_artifact(settings: Settings, runner: runners.Runner, what: str, trial: Trial) -> Chunked:
    """Run the artifact on the calls of a trial."""
    answers = end_to_end.run_artifact(settings.plan, runner, trial.feeds)
    return Chunked(what, Comparison(settings, trial, answers), "of calls in a row, ", _BESIDE)
