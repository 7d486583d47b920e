"""Runs of the glue: feeds, given values of recurrences, and the results.

The modules of formats run an artifact on passes; `glue` makes them and judges the results.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert import reference
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification.judges import RecurrenceCall
from cudnn_convert.verification.judges import steps as steps_of


@dataclass(frozen=True, slots=True)
class LayerValues:
    """A call of a layer: the inputs, and the values given for the layer.

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
class GlueRun:
    """A feed by tensor, and the recurrences' calls on the feed."""

    feed: Mapping[str, Array]
    calls: Sequence[RecurrenceCall]

    @property
    def by_node(self) -> dict[str, list[RecurrenceCall]]:
        """The calls of each recurrence."""
        return {node: [call for call in self.calls if call.node == node] for node in self.nodes}

    @property
    def nodes(self) -> set[str]:
        """The recurrences called in the run."""
        return {call.node for call in self.calls}


@dataclass(frozen=True, slots=True)
class GlueResult:
    """The results of the artifact's glue on a feed.

    `outputs` are by key. `entered` has `(what, found, expected)` for each tensor that enters a recurrence.
    """

    outputs: Mapping[str, Array]
    entered: Sequence[tuple[str, Array, Array]]


#: What the artifact's glue answers to one feed after another; what it keeps in variables begins as it was
#: stored. Raises LookupError with the reason where the glue cannot be run by itself.
RunGlue = Callable[[Sequence[GlueRun]], Iterable[GlueResult]]


def match_values(
    plan: Plan,
    calls: Sequence[RecurrenceCall],
    named: Mapping[str, tuple[str, int]],
    *,
    projected: bool = False,
) -> dict[str, list[LayerValues]]:
    """Return the possible values for each piece of an artifact.

    The values are those of its layer, or of one with the same weights: `named` has by piece the recurrence
    and the layer that it stands for. `projected`: a projection is part of it. Raises LookupError where a
    layer that was called has no piece.
    """
    weights = {
        recurrence.node: (recurrence.shared, recurrence.sizes, recurrence.dtype)
        for recurrence in plan.recurrences
    }
    wanted = {piece: (weights.get(node), layer) for piece, (node, layer) in named.items()}
    givens: dict[Any, list[LayerValues]] = {}
    nodes = [*dict.fromkeys(call.node for call in calls)]
    for call in sorted(calls, key=lambda call: nodes.index(call.node)):
        for layer, values in enumerate(_of_call(plan, call, projected=projected)):
            givens.setdefault((weights[call.node], layer), []).append(values)
    if givens.keys() - {*wanted.values()}:
        raise LookupError("the artifact does not have one node for each layer of each recurrence")
    return {piece: givens.get(key, []) for piece, key in wanted.items()}


def _of_call(plan: Plan, call: RecurrenceCall, *, projected: bool) -> Iterator[LayerValues]:
    """Yield the values of each layer of a recurrence on what it took."""
    recurrence = next(recurrence for recurrence in plan.recurrences if recurrence.node == call.node)
    sizes, floats = recurrence.sizes, [np.asarray(value, np.float64) for value in (call.x, call.h, call.c)]
    steps = tuple(steps_of(recurrence, np.float64))
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
        yield LayerValues(x, h, c, call.lengths, y, h_end, c_end, projections)
