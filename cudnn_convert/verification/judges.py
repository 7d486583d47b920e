"""Judges of a source: its graph is run, or each recurrence is computed alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.weights import lazy

Sizes = tuple[tuple[int, int], ...]
#: The (time, batch) of the feeds that are made up: more steps than `lower.tensorflow.layer_stack` takes a
#: block for where
#: it takes one for few, and fewer.
SIZES: Final[Sizes] = ((17, 3), (9, 2))
#: The same where all recurrences are too large to be computed often: steps for each form that they may take.
#: A small one has loops that need more.
FEWER: Final[Sizes] = ((12, 2), (2, 3))
#: Milder feeds, tried in turn where outputs on the usual ones are not judged: by how much floats spread, and
#: their (time, batch).
MILDER: Final = ((0.1, (9, 2)), (0.01, (2, 3)))
#: Fewer steps than `lower.tensorflow.layer_stack` takes a block for where weights stay variables.
FEW: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class Floats:
    """How floats are made up: with a standard deviation, or from the `values` of their tensor."""

    spread: float = 1.0
    values: Mapping[str, Array] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator, name: str, shape: Sequence[int]) -> Array:
        """Values for a tensor; those of one place together where its last axis is that of the given ones."""
        given = self.values.get(name)
        if given is None or not given.size:
            return np.asarray(self.spread * rng.standard_normal(shape))
        if given.ndim > 1 and len(shape) > 1 and given.shape[-1] == shape[-1]:
            rows = given.reshape(-1, given.shape[-1])
            return np.asarray(rows[rng.integers(0, len(rows), shape[:-1])])
        return np.asarray(rng.choice(given.ravel(), shape))


USUAL: Final = Floats()


@dataclass(slots=True)
class Source:
    """A source that answers feeds; `sizes` collects the (time, batch) that the recurrences saw.

    What a run leaves in variables the next one finds there, until `restart` puts back what the file holds.
    `draw` chooses the order in which recurrences add up from then on, `disturb` the nodes that are off,
    `give` the calls that nodes answer by; `calls` are those of the last run (`reference_op.Draw`). `words`
    are
    the keys of its tables where those are strings.
    """

    run: Callable[[Mapping[str, Array], Sequence[str]], list[Array]]
    sizes: list[tuple[int, int]]
    restart: Callable[[], None]
    draw: Callable[[int], None]
    disturb: Callable[[Collection[str]], None]
    give: Callable[[Mapping[str, Sequence[Any]]], None] = lambda _: None
    calls: Sequence[Any] = ()
    words: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """`opened(plan, dtype=, trust=)` is a source that answers; it may raise UnsupportedModelError.

    `generated(plan, source, seed=, more=, usual=, floats=)` makes feeds, by tensor, that it accepts: of the
    sizes `usual`, by default those of `sizes`, and where it takes those too `more`; `floats` says
    how those are drawn. `fitting(plan, values, where=)` are arrays by key as feeds by tensor,
    `require_accepted(plan, source, feed, where=)` tries one; both raise UsageError. `dtypes` are those that
    fused recurrences compute in which are no cuDNN nodes; `scores` has, for each output that is a choice, the
    tensor that decides it and the axis of the choice.
    """

    opened: Callable[..., AbstractContextManager[Source]]
    generated: Callable[..., list[dict[str, Array]]]
    fitting: Callable[..., dict[str, Array]]
    require_accepted: Callable[..., None]
    dtypes: Callable[[Plan], set[np.dtype[Any]]]
    scores: Callable[[Plan], dict[str, tuple[str, int]]]


def sizes(plan: Plan) -> Sizes:
    """The (time, batch) of the feeds that are made up for a plan."""
    large = [
        lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype) for recurrence in plan.recurrences
    ]
    return FEWER if large and all(large) else SIZES


def judge_for(plan: Plan) -> Way:
    """The way for a plan; only that with a graph needs TensorFlow."""
    if plan.singles:
        from cudnn_convert.verification import reference_op

        return reference_op.WAY
    from cudnn_convert.verification import graph_judge

    return graph_judge.WAY


def with_judging_values(plan: Plan) -> Plan:
    """The plan with the values that judge, which only a graph may name otherwise than its reader did."""
    if plan.model.checkpoint is None:
        return plan
    from cudnn_convert.verification import state_variables

    return state_variables.with_restored_values(plan)
