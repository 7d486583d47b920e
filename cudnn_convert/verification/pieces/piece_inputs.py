"""A recurrence asked alone: the inputs, and the movement by wrong weights.

Inputs are such that the answer depends on every weight. Normal ones saturate some models and cannot see
others: what counts is the sum that a gate gets. So inputs are scaled to the matrices, each row of which then
adds about a standard deviation of 1, and initial states too, which may become large where recurrent weights
are tiny. At one step all that is computed shows. How much is measured by answers of wrong weights, and more
rows are drawn until the weakest weight shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert import reference
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.model import WAYS, Array, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.reference import Gates, mutants
from cudnn_convert.verification import effort
from cudnn_convert.verification.compare import Tolerance

#: `(y [time, batch, directions*width], h [layers*directions, batch, width], c [..., units] or None)`, of the
#: layers that were asked.
Answer = tuple[Array, Array, Array | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Layers of the recurrence `node` in an artifact.

    `name` says where it computes them. `ask` gives its answer in the type that it computes in; c is None in
    what is no LSTM. `lengths`: it takes rows of several lengths. `projected`: a projection is part of it;
    where it stands around it, it takes and gives the state before that. `tied`: both initial states of an
    LSTM are one tensor. `outputs`: something reads `y`; else it is not compared. `steps` and `rows`: the
    sizes that the artifact holds it to beside a single step, which it takes of any number of rows.
    """

    node: str
    layers: tuple[int, ...]
    name: str
    ask: Callable[[PieceInputs], Answer]
    lengths: bool = True
    projected: bool = True
    tied: bool = False
    outputs: bool = True
    steps: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact to test: format, path, source plan, and a function for runs."""

    form: str
    path: Path
    plan: Plan
    answer: Callable[..., Any]

    @property
    def is_repaired(self) -> bool:
        """True for a SavedModel of TensorFlow 2 with some replaced functions."""
        return self.plan.model.has_functions and Keeps.FUNCTIONS in FORMATS[self.form].keeps


@dataclass(frozen=True, slots=True)
class Pieces:
    """All pieces of an artifact, and by node the reason for a missing piece.

    `same`: by node another node whose piece is the very same computation on the same weights.
    """

    pieces: tuple[Piece, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)

    def of(self, recurrence: Recurrence, others: Iterable[Recurrence]) -> list[Piece]:
        """Return the pieces of a recurrence, else of a recurrence with the same weights."""
        node = self.same.get(recurrence.node, recurrence.node)
        own = [piece for piece in self.pieces if piece.node == node]
        wanted = (recurrence.shared, recurrence.sizes, recurrence.dtype)
        twins = [other.node for other in others if (other.shared, other.sizes, other.dtype) == wanted]
        return own or [piece for piece in self.pieces if piece.node in twins]


@dataclass(frozen=True, slots=True)
class PieceInputs:
    """`x [time, batch, inputs]`, `h [layers*directions, batch, width]`, `c [..., units]`, `lengths [batch]`.

    Floats are of float64 and hold values of the type that the artifact takes.
    """

    x: Array
    h: Array
    c: Array
    lengths: Array

    def rows(self, start: int, stop: int) -> PieceInputs:
        """Return some rows of the batch."""
        part = slice(start, stop)
        return PieceInputs(self.x[:, part], self.h[:, part], self.c[:, part], self.lengths[part])


def _norm(matrices: Sequence[Array] | None) -> float:
    """Return the mean norm of a row of some matrices; 1 for all-zero matrices."""
    if matrices is None:
        return 1.0
    norms = [np.sqrt((np.asarray(matrix, np.float64) ** 2).sum(axis=-1)).mean() for matrix in matrices]
    return float(np.mean(norms)) or 1.0


@dataclass(frozen=True, slots=True)
class Stack:
    """The cells of some consecutive layers, the directions of a layer together.

    `first` is the number of the first layer. `tied`: both initial states are one tensor.
    """

    cells: Sequence[Gates]
    directions: int
    first: int = 0
    tied: bool = False

    def steps(self, order: np.random.Generator | None = None) -> list[Any]:
        """Return the reference's steps."""
        return [cell.step(order) for cell in self.cells]

    def draw(
        self, rng: np.random.Generator, *, steps: int, batch: int, dtype: np.dtype[Any], scale: float = 1.0
    ) -> PieceInputs:
        """Draw random inputs for these cells.

        The lengths are 1 to `steps`; the last row has full length. `dtype` is the type that the artifact
        takes.
        """
        cells, most = self.cells, effort.LARGEST_STATES.get(dtype.name, effort.LARGEST_STATE)
        x = rng.standard_normal((steps, batch, cells[0].inputs))
        x *= scale / max(_norm(cell.kernel) for cell in cells[: self.directions])
        h = rng.standard_normal((len(cells), batch, cells[0].width))
        for position, cell in enumerate(cells):
            wide = min(scale / _norm(cell.recurrent_kernel), most)
            h[position] *= wide
            # A large state hides in a GRU what is added to it: every other row keeps it small.
            h[position, 1::2] *= min(1.0, 1.0 / wide)
        c = h if self.tied else rng.standard_normal((len(cells), batch, cells[0].units))
        # An early end keeps a row's state in every step behind it.
        few = np.linspace(steps, 1, batch).round()[::-1]
        lengths = few if batch < steps else steps - np.arange(batch)[::-1] % steps
        x, h, c = (value.astype(dtype).astype(np.float64) for value in (x, h, c))
        return PieceInputs(x, h, c, lengths.astype(np.int32))

    def run(self, asked: PieceInputs, order: np.random.Generator | None = None) -> tuple[Array, Array, Array]:
        """Return `y`, `h` and `c` of `reference.run`, in the type of the inputs."""
        return reference.run(
            self.steps(order), asked.x, asked.h, asked.c, directions=self.directions, lengths=asked.lengths
        )

    def firsts(self, asked: PieceInputs) -> Iterator[tuple[int, list[mutants.First]]]:
        """Yield `(layer, cells at the first step)` for inputs of a single step."""
        steps, count = self.steps(), self.directions
        run = reference.layers(steps, asked.x, asked.h, asked.c, directions=count, lengths=asked.lengths)
        for number, layer in enumerate(run):
            places = range(number * count, (number + 1) * count)
            cells = [mutants.First(self.cells[k], layer.x[0], asked.h[k], asked.c[k]) for k in places]
            yield self.first + number, cells


@dataclass(slots=True)
class Power:
    """The errors visible on inputs of a single step, in tolerances.

    `smallest`: of the wrong recurrence that moves the answer least, `weakest`: of the weakest single weight;
    infinite where there is none. `sampled`: the rows of each gate's matrix whose single weights were looked
    at, None for all. `unseen` names what shows less than `effort.LEAST_SHOWN`, with what it would show.
    """

    asked: PieceInputs
    smallest: float = np.inf
    weakest: float = np.inf
    sampled: int | None = None
    unseen: list[str] = field(default_factory=list)


def choose_inputs(
    rng: np.random.Generator, stack: Stack, dtype: np.dtype[Any], bound: Tolerance, *, most: int
) -> Power:
    """Choose one-step inputs with every wrong weight visible by `effort.LEAST_SHOWN` tolerances.

    If no try reaches that, the best is returned. `most` limits the batches beyond the smallest one.
    """
    best: Power | None = None
    rows = [
        count for count in effort.PIECE_ROWS if count <= most and dtype.itemsize > 2
    ] or effort.PIECE_ROWS[:1]
    for scale in effort.PIECE_SCALES:
        inputs = _try_inputs(rng, stack, dtype, bound, scale=scale, rows=rows)
        if best is None or min(inputs.weakest, inputs.smallest) > min(best.weakest, best.smallest):
            best = inputs
        if not best.unseen or dtype.itemsize <= 2:
            break
    assert best is not None
    return best


def _try_inputs(
    rng: np.random.Generator,
    stack: Stack,
    dtype: np.dtype[Any],
    bound: Tolerance,
    *,
    scale: float,
    rows: Sequence[int],
) -> Power:
    asked = stack.draw(rng, steps=1, batch=rows[-1], dtype=dtype, scale=scale)
    weights = [mutants.WeightEffects(cell) for cell in stack.cells]
    fewest = min((weight.sampled for weight in weights if weight.sampled is not None), default=None)
    start, power = 0, Power(asked, sampled=fewest)
    for stop in rows:
        part = asked.rows(start, stop)
        for number, (_, ways) in enumerate(stack.firsts(part)):
            for direction, first in enumerate(ways):
                weights[number * stack.directions + direction].add(first, bound.atol, bound.rtol)
        start, power.asked = stop, asked.rows(0, stop)
        power.weakest = min(weight.weakest() for weight in weights)
        if power.weakest >= effort.LEAST_SHOWN:
            break
    _look(power, stack, weights, bound)
    return power


def _look(power: Power, stack: Stack, weights: Sequence[mutants.WeightEffects], bound: Tolerance) -> None:
    """Measure mutants on the chosen rows, and name the mutants left unseen."""
    for number, (layer, ways) in enumerate(stack.firsts(power.asked)):
        right = [first.answer() for first in ways]
        for direction, name, answer in mutants.structural(ways):
            share = shares(answer, right[direction], bound, is_lstm=ways[direction].gates.mode == "lstm")
            power.smallest = min(power.smallest, share)
            if share < effort.LEAST_SHOWN:
                power.unseen.append(f"layer {layer} {WAYS[direction]}: {name}: {share:.2g} tolerances")
        for direction in range(len(ways)):
            of = weights[number * stack.directions + direction]
            power.unseen += [
                f"layer {layer} {WAYS[direction]}, {title}: {count} of {every} weights show less than "
                f"{effort.LEAST_SHOWN:g} tolerances when moved by {mutants.MOVED:g} of its norm, "
                f"the weakest {least:.2g}"
                for title, count, every, least in of.below(effort.LEAST_SHOWN)
            ]


def shares(
    answer: tuple[Array, Array], right: tuple[Array, Array], bound: Tolerance, *, is_lstm: bool
) -> float:
    """Return the largest difference of two answers, in tolerances."""
    largest = 0.0
    for value, other in zip(answer[: 1 + is_lstm], right, strict=False):
        with np.errstate(invalid="ignore"):
            gap = np.abs(value - other) / (bound.atol + bound.rtol * np.abs(other))
        largest = max(largest, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return largest
