"""Tells apart probabilities, log probabilities and logits, by an output's numbers.

The source runs on the inputs of a proof. Numbers and the ops that make them must say the same; else the user
is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.model import Array
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.scales import LOG_PROBABILITIES, LOGITS, PROBABILITIES, SCALES
from cudnn_convert.verification import effort, source_runs
from cudnn_convert.verification.settings import make_settings


def decide_scale(plan: Plan, options: Options) -> Plan:
    """Decide the scale of a search's numbers, if the plan has a search.

    Raises UnsupportedModelError where ops and numbers do not agree, or where an unproven conversion leaves it
    open.
    """
    decoder = plan.decoder
    if decoder is None:
        return plan
    name = plan.source.outputs[decoder.logits]
    if not options.verify:
        if decoder.scale:
            return plan
        raise UnsupportedModelError(
            plan.model.path, [_ask(name, "numbers whose scale its ops do not tell", SCALES)]
        )
    values = _run(plan, options)
    possible = [scale for scale in SCALES if _is_possible(values, scale)]
    look = describe_numbers(values)
    if decoder.is_scale_given:
        return _with_given_scale(plan, look, values, possible)
    scale = look if look != LOGITS else decoder.scale and LOGITS
    if not scale or decoder.scale not in ("", scale):
        looks = f"numbers that look like {_words(look)}" if look != LOGITS else "numbers without a sum of 1"
        by = f"made as {_words(decoder.scale)}" if decoder.scale else "of which the ops tell nothing"
        raise UnsupportedModelError(plan.model.path, [_ask(name, f"{looks}, {by}", possible)])
    if decoder.scale == scale:
        return plan
    note = f"decode: {name} gives {_words(scale)}, as its numbers say"
    return replace(plan, decoder=replace(decoder, scale=scale), notes=(*plan.notes, note))


def _with_given_scale(plan: Plan, look: str, values: Sequence[Array], possible: Sequence[str]) -> Plan:
    """Keep the user's scale, with a note where the numbers look different."""
    decoder = plan.decoder
    assert decoder is not None
    name = plan.source.outputs[decoder.logits]
    if decoder.scale not in possible:
        numbers = f"numbers from {min(map(np.min, values)):.3g} to {max(map(np.max, values)):.3g}"
        what = f"{numbers}, which are no {_words(decoder.scale)}"
        raise UnsupportedModelError(plan.model.path, [_ask(name, what, possible)])
    if look in (decoder.scale, LOGITS):
        return plan
    taken = f"taken for {_words(decoder.scale)}, as was asked for"
    note = f"decode: {name} is {taken}; its numbers look like {_words(look)}"
    return replace(plan, notes=(*plan.notes, note))


def _words(scale: str) -> str:
    return scale.replace("_", " ")


def _ask(name: str, actual: str, scales: Sequence[str]) -> Reason:
    cures = [Remedy({"logits": f"{name}={scale}"}, "say it with") for scale in scales]
    expected = "expected probabilities, log probabilities or logits"
    return Reason(f"logits: {name}: {expected}, found {actual}; {', or '.join(map(str, cures))}", *cures)


def _run(plan: Plan, options: Options) -> list[Array]:
    """Return the numbers of all feeds in rows `[n, vocabulary]`, except for zero rows.

    Rows of zeros are as behind a mask.
    """
    assert plan.decoder is not None
    settings = make_settings(plan, replace(options, golden=None))
    name = plan.signature.outputs[plan.decoder.logits]
    with settings.judge.open(trust=settings.trust) as source:
        feeds = source_runs.choose_feeds(settings, source)
        values = [source.run(feed, [name])[0] for feed in feeds]
    rows = [value.reshape(-1, value.shape[-1]) for value in values]
    return [kept for value in rows if len(kept := value[np.any(value != 0, -1)])]


def describe_numbers(values: Sequence[Array]) -> str:
    """Return the scale in `SCALES` of rows `[n, vocabulary]`; logits for inconclusive sums."""
    if not values:
        return LOGITS
    most = _sum_tolerance(values[0])
    rows = np.concatenate([value.astype(np.float64) for value in values])
    with np.errstate(over="ignore"):
        for scale, shares in ((PROBABILITIES, rows), (LOG_PROBABILITIES, np.exp(rows))):
            if _is_possible(values, scale) and (np.abs(shares.sum(-1) - 1) <= most).all():
                return scale
    return LOGITS


def _sum_tolerance(value: Array) -> float:
    """Return the allowed distance from 1 of a sum over the vocabulary."""
    return effort.PROBABILITY_SUMS.get(value.dtype.name, effort.PROBABILITY_SUMS["float32"])


def _is_possible(values: Sequence[Array], scale: str) -> bool:
    """Return True if numbers may be of a scale.

    Probabilities lie between 0 and 1, their logarithms not above 0.
    """
    if scale == LOGITS or not values:
        return True
    numbers = np.concatenate([value.astype(np.float64).ravel() for value in values])
    most = 1 + _sum_tolerance(values[0]) if scale == PROBABILITIES else effort.PROBABILITY_ROUNDING
    least = -effort.PROBABILITY_ROUNDING if scale == PROBABILITIES else -np.inf
    return bool(np.all((least <= numbers) & (numbers <= most)))
