"""Whether chosen inputs could show that a recurrence is wrong: the least that wrong weights would move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cudnn_convert import reference
from cudnn_convert.model import WAYS, Array
from cudnn_convert.reference import Gates, mutants
from cudnn_convert.reference.mutants import First
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.verification.pieces import inputs
from cudnn_convert.verification.pieces.inputs import Asked

#: Tolerances that each wrong weight should show at least.
LEAST: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stack:
    """The cells of some layers in order, a layer's directions together; `first`: the first one's number.

    `tied`: both initial states are one tensor.
    """

    cells: Sequence[Gates]
    directions: int
    first: int = 0
    tied: bool = False

    def steps(self, order: np.random.Generator | None = None) -> list[Any]:
        """The reference's steps."""
        return [cell.step(order) for cell in self.cells]

    def draw(self, rng: np.random.Generator, **given: Any) -> Asked:
        """Inputs for these cells."""
        return inputs.draw_inputs(rng, self.cells, directions=self.directions, tied=self.tied, **given)

    def run(self, asked: Asked, order: np.random.Generator | None = None) -> tuple[Array, Array, Array]:
        """`y`, `h` and `c` as `reference.run` gives them, in the type of the inputs."""
        return reference.run(
            self.steps(order), asked.x, asked.h, asked.c, directions=self.directions, lengths=asked.lengths
        )

    def firsts(self, asked: Asked) -> Iterator[tuple[int, list[First]]]:
        """`(layer, its cells at the first step)` where the inputs are of one step."""
        steps, count = self.steps(), self.directions
        run = reference.layers(steps, asked.x, asked.h, asked.c, directions=count, lengths=asked.lengths)
        for number, layer in enumerate(run):
            places = range(number * count, (number + 1) * count)
            cells = [First(self.cells[k], layer.x[0], asked.h[k], asked.c[k]) for k in places]
            yield self.first + number, cells


@dataclass(slots=True)
class Power:
    """What inputs of one step would show, in tolerances.

    `smallest`: of the wrong recurrence that moves the answer least, `weakest`: of the weakest single weight;
    infinite where there is none. `sampled`: the rows of each gate's matrix whose single weights were looked
    at, None for all. `unseen` names what shows less than `LEAST`, with what it would show.
    """

    asked: Asked
    smallest: float = np.inf
    weakest: float = np.inf
    sampled: int | None = None
    unseen: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether everything would be seen."""
        return not self.unseen


def choose_inputs(
    rng: np.random.Generator, stack: Stack, dtype: np.dtype[Any], bound: Tolerance, *, most: int
) -> Power:
    """Inputs of one step that show every wrong weight by `LEAST` tolerances, or the best of several tries.

    `most`: the rows that may be drawn beyond the fewest.
    """
    best: Power | None = None
    rows = [one for one in inputs.ROWS if one <= most and dtype.itemsize > 2] or inputs.ROWS[:1]
    for scale in inputs.SCALES:
        made = _tried(rng, stack, dtype, bound, scale=scale, rows=rows)
        if best is None or min(made.weakest, made.smallest) > min(best.weakest, best.smallest):
            best = made
        if best.is_good or dtype.itemsize <= 2:
            break
    assert best is not None
    return best


def _tried(
    rng: np.random.Generator,
    stack: Stack,
    dtype: np.dtype[Any],
    bound: Tolerance,
    *,
    scale: float,
    rows: Sequence[int],
) -> Power:
    asked = stack.draw(rng, steps=1, batch=rows[-1], dtype=dtype, scale=scale)
    weights = [mutants.Weights(cell) for cell in stack.cells]
    fewest = min((one.sampled for one in weights if one.sampled is not None), default=None)
    start, power = 0, Power(asked, sampled=fewest)
    for stop in rows:
        part = asked.rows(start, stop)
        for number, (_, ways) in enumerate(stack.firsts(part)):
            for way, first in enumerate(ways):
                weights[number * stack.directions + way].add(first, bound.atol, bound.rtol)
        start, power.asked = stop, asked.rows(0, stop)
        power.weakest = min(one.weakest() for one in weights)
        if power.weakest >= LEAST:
            break
    _look(power, stack, weights, bound)
    return power


def _look(power: Power, stack: Stack, weights: Sequence[mutants.Weights], bound: Tolerance) -> None:
    """Measures mutants on the rows that were chosen, and names what they do not show."""
    for number, (layer, ways) in enumerate(stack.firsts(power.asked)):
        right = [first.answer() for first in ways]
        for way, name, answer in mutants.structural(ways):
            share = shares(answer, right[way], bound, is_lstm=ways[way].gates.mode == "lstm")
            power.smallest = min(power.smallest, share)
            if share < LEAST:
                power.unseen.append(f"layer {layer} {WAYS[way]}: {name}: {share:.2g} tolerances")
        for way in range(len(ways)):
            of = weights[number * stack.directions + way]
            power.unseen += [
                f"layer {layer} {WAYS[way]}, {title}: {count} of {every} weights show less than {LEAST:g} "
                f"tolerances when moved by {mutants.MOVED:g} of its norm, the weakest {least:.2g}"
                for title, count, every, least in of.below(LEAST)
            ]


def shares(
    answer: tuple[Array, Array], right: tuple[Array, Array], bound: Tolerance, *, is_lstm: bool
) -> float:
    """The largest difference of two answers, in tolerances."""
    found = 0.0
    for one, other in zip(answer[: 1 + is_lstm], right, strict=False):
        with np.errstate(invalid="ignore"):
            gap = np.abs(one - other) / (bound.atol + bound.rtol * np.abs(other))
        found = max(found, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return found
