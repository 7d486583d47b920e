"""Runs of a source: feeds, exact answers, and the outputs dependent on recurrences."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.report.values import OpDifference
from cudnn_convert.verification import compare, effort, judges, neighbours, recordings, trials
from cudnn_convert.verification.judges import RunningSource, Sizes
from cudnn_convert.verification.settings import Settings
from cudnn_convert.verification.trials import Trial


def run_source(settings: Settings) -> Trial:
    """Choose feeds, run the source, and find the outputs dependent on recurrences."""
    if settings.calls is None and settings.golden is None:  # else they are read first, which tells how many
        trials.report_turn(0, 0, judges.sizes(settings.plan))
    with settings.judge.open(trust=settings.trust) as source:
        feeds = choose_feeds(settings, source)
        trial = trials.try_feeds(settings, source, feeds, trials.count_feeds(feeds, 0))
        trial = _find_dependence(settings, source, trial)
        return replace(trial, influence=_measure_influence(settings, source, trial))


def find_dependence(settings: Settings, trial: Trial) -> Trial:
    """Return a trial with the outputs dependent on the source's recurrences."""
    with settings.judge.open(trust=settings.trust) as source:
        return _find_dependence(settings, source, trial)


def _find_dependence(settings: Settings, source: RunningSource, trial: Trial) -> Trial:
    trial = replace(trial, other_layer=_find_other_layer(settings, source, trial))
    nodes = [recurrence.node for recurrence in settings.plan.recurrences]
    moved = {node: find_dependent_outputs(settings, source, trial, node) for node in nodes}
    return replace(trial, moved=moved)


def _find_other_layer(settings: Settings, source: RunningSource, trial: Trial) -> OpDifference | None:
    """Find the layer of a Keras file traced to a different computation.

    The layer was traced to something else than its Keras computes.
    """
    if not settings.plan.model.calls or isinstance(settings.plan, RecurrencesPlan):
        return None
    from cudnn_convert.verification import traced_layers

    ops = {node.name for node in settings.plan.whole.node}
    feed = trial.feeds[trial.find_smallest()]
    return traced_layers.find_difference(settings.plan.model, ops, source, feed, seed=settings.seed)


def find_dependent_outputs(
    settings: Settings, source: RunningSource, trial: Trial, node: str
) -> frozenset[str]:
    """Return the outputs moved by a disturbed recurrence, on the smallest feed with any."""
    plan, numbers = settings.plan, range(len(trial.feeds))
    # The state that a later call finds depends on those before it.
    order = [0] if plan.states else sorted(numbers, key=trial.count_values)
    moved: frozenset[str] = frozenset()
    source.draw.disturbed = [node]
    for number in order:
        source.restart()
        values = trials.run_judge(settings, source, trial.feeds[number])
        moved = frozenset(
            key
            for key, position in find_positions(plan).items()
            if _differ(values[position], trial.exact[number][position])
        )
        if moved:
            break
    source.draw.disturbed = ()
    return moved


def _differ(actual: Array, expected: Array) -> bool:
    """Return True if values differ by more than the bound of the type."""
    if actual.shape != expected.shape:
        return True
    if expected.dtype.kind not in "fcV":
        return bool(np.any(actual != expected))
    bound = compare.tolerance(expected.dtype, 0.0)
    left, other = (np.asarray(value, np.complex128) for value in (actual, expected))
    with np.errstate(invalid="ignore"):
        gap = np.abs(left - other) > bound.atol + bound.rtol * np.abs(other)
    return bool(np.any(gap | (np.isnan(left) != np.isnan(other))))


def _measure_influence(settings: Settings, source: RunningSource, trial: Trial) -> dict[str, float]:
    """Measure the movement of a row's answer by neighbour rows of a batch.

    The movement is not asked where calls hang on those before.
    """
    plan = settings.plan
    if plan.states or isinstance(plan, RecurrencesPlan) or plan.streaming or settings.golden:
        return {}
    import tensorflow as tf  # a source with a graph has loaded it

    def answer(feed: Mapping[str, Array]) -> list[Array] | None:
        source.restart()
        try:
            return trials.run_judge(settings, source, feed)
        except (tf.errors.OpError, ValueError):
            return None

    return neighbours.measure_influence(trial, find_positions(plan), answer)


def choose_feeds(
    settings: Settings, source: RunningSource, *, without: Collection[str] = ()
) -> list[dict[str, Array]]:
    """Return the feeds by tensor: recorded, given by the user, or drawn.

    The keys `without` are left out of the user's feeds.
    """
    judge, plan = settings.judge, settings.plan
    if settings.golden:
        recordings.require_accepted(judge, source, settings.golden)
        return [*settings.golden.feeds]
    if settings.calls is not None:
        feeds = recordings.accept_feeds(judge, source, settings.calls, without=without)
    else:
        feeds = judge.make_feeds(source, seed=settings.seed, more=_more_sizes(plan, settings.options.format))
    # What stays in variables shows from the second call on.
    return feeds * 2 if len(feeds) == 1 and any(state.stays for state in plan.states) else feeds


def _more_sizes(plan: Plan, form: str) -> Sizes:
    """Return further (time, batch) with a different computation in an artifact of the format."""
    more = FORMATS[form].sizes
    return (*more, effort.FEED_SIZE_OF_VARIABLES) if plan.model.has_functions else more


def find_positions(plan: Plan) -> dict[str, int]:
    """Return the place of each output among the source's answers."""
    return {key: position for position, key in enumerate(plan.signature.outputs)}
