"""Which axis of an output is time, and which of its steps are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.testing.sides import array, is_array
from cudnn_convert.verification.compare import Difference

Answers = Sequence[Mapping[str, Array]]


def axes(told: int | Mapping[str, int] | None, feeds: Answers, answers: Answers) -> dict[str, int]:
    """The axis of time of each output that has one. Raises UsageError.

    `told`: by output, or one for every output of three axes or more that is as long there as an input is.
    """
    names = answers[0]
    if isinstance(told, Mapping):
        ranks = {name: min(answer[name].ndim for answer in answers) for name in names}
        wrong = [f"{name}: {axis}" for name, axis in told.items() if not 0 <= axis < ranks.get(name, 0)]
        if wrong:
            listed = ", ".join(f"{name} of {rank} axes" for name, rank in ranks.items())
            raise UsageError(f"time_axis: expected axes of {listed}, found {', '.join(wrong)}")
        return dict(told)
    if told is None:
        return {}
    if told < 0:
        raise UsageError(f"time_axis: expected an axis counted from 0, found {told}")
    pairs = [*zip(feeds, answers, strict=True)]
    return {
        name: told
        for name in names
        if all(
            answer[name].ndim > max(told, 2)
            and answer[name].shape[told]
            in {value.shape[told] for value in feed.values() if value.ndim > told}
            for feed, answer in pairs
        )
    }


def lengths(given: Any, feeds: Answers) -> list[Array] | None:
    """How many steps each row of each call has, `[batch]`: of the input of that key, or as given."""
    if given is None:
        return None
    if isinstance(given, str):
        if any(given not in feed for feed in feeds):
            raise UsageError(f"lengths: expected one of {', '.join(feeds[0])}, found {given}")
        found = [feed[given] for feed in feeds]
    else:
        found = [array(one, "lengths") for one in ([given] if is_array(given) else given)]
    strange = [one for one in found if one.ndim != 1 or one.dtype.kind not in "iu"]
    if len(found) != len(feeds) or strange:
        what = f"{len(feeds)} arrays of integers [batch], one a call"
        listed = ", ".join(f"{one.dtype}{list(one.shape)}" for one in found) or "none"
        raise UsageError(f"lengths: expected {what}, found {listed}")
    return found


def beyond(values: Mapping[str, Array], sizes: Array, axes: Mapping[str, int]) -> dict[str, Array]:
    """Where each output lies past its row's length: True there, in the output's shape.

    The batch is the first axis, or the second where time is the first. Raises UsageError where no output has
    an axis of time, or one's batch is not that of the lengths.
    """
    if not axes:
        raise UsageError(
            "lengths: expected outputs with an axis of time, found none; name it with time_axis="
        )
    found = {}
    for name, axis in axes.items():
        value, batch = values[name], 0 if axis else 1
        if value.ndim < 2 or value.shape[batch] != sizes.size:
            shape = f"{name} {list(value.shape)}"
            raise UsageError(f"lengths: expected {sizes.size} rows in axis {batch} of outputs, found {shape}")
        steps, rows = ([-1 if k == one else 1 for k in range(value.ndim)] for one in (axis, batch))
        late = np.arange(value.shape[axis]).reshape(steps) >= sizes.reshape(rows)
        found[name] = np.broadcast_to(late, value.shape)
    return found


def without(values: Mapping[str, Array], late: Mapping[str, Array]) -> dict[str, Array]:
    """The values with zeros, or what is nothing in their type, where they are `late`."""
    found = dict(values)
    for name, there in late.items():
        if name in found and found[name].shape == there.shape:
            found[name] = np.where(there, np.zeros((), found[name].dtype), found[name])
    return found


def uncounted(difference: Difference, late: Mapping[str, Array]) -> Difference:
    """The difference of values that were compared `without` those that are `late`, which prove nothing."""
    there = late.get(difference.output)
    if there is None or not difference.compared:
        return difference
    count = int(there.sum())
    figures = difference.figures
    if figures.counts:
        figures = replace(figures, exact=figures.exact - count)
    return replace(difference, compared=difference.compared - count, figures=figures)
