"""Judges a recurrence of an artifact by the float64 reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert.model import WAYS, Array, Mode, Recurrence
from cudnn_convert.reference import Gates, mutants
from cudnn_convert.report import PieceReport
from cudnn_convert.verification import compare, end_to_end
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.verification.pieces import piece_inputs
from cudnn_convert.verification.pieces.piece_inputs import Answer, Asked, Piece, Power, Stack
from cudnn_convert.verification.reference_op import steps as steps_of

#: (time, batch) of the runs beside the first step: rows of all lengths, and as many steps as TensorFlow's
#: lowerings compute in another way than few.
RUNS: Final = ((3, 32), (17, 8))
#: The same of a recurrence too large to be computed often: few steps, which may be a block, and many.
FEWER: Final = ((2, 3), (12, 2))
#: A recurrence amplifies its rounding; other programs were seen to err up to 8 times as far as NumPy's.
_MARGIN: Final = 10
#: Steps of all rows together in a run of a fixed number of steps.
_STEPS: Final = 128
#: Products of weights and inputs that the rows of a single step may cost, one run of them.
_PRODUCTS: Final = 2**34
#: Evaluations in the working type, the first in the reference's own order.
_DRAWS: Final = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """How pieces are judged: in which type, with which seed, on which runs of `(time, batch)` beside `RUNS`.

    `takes` is the type of the inputs, `dtype` the coarsest that the piece computes or is stored in. `large`:
    the weights are too many to be multiplied more often than they must be.
    """

    takes: np.dtype[Any]
    dtype: np.dtype[Any]
    seed: int
    runs: Sequence[tuple[int, int]] = ()
    large: bool = False


def read_gates(recurrence: Recurrence, numbers: Iterable[int]) -> list[Gates]:
    """The weights of some layers, all directions, by the reference's own reading of the stored arrays."""
    steps, directions = steps_of(recurrence, np.float64), recurrence.sizes.directions
    return [
        steps[layer * directions + direction].gates() for layer in numbers for direction in range(directions)
    ]


def judge_piece(piece: Piece, recurrence: Recurrence, weights: Sequence[Gates], terms: Terms) -> PieceReport:
    """Asks a piece for one step on inputs of proven power, then for more; `weights` are its layers'."""
    directions = recurrence.sizes.directions
    own = weights if piece.projected else [cell.compose_projection() for cell in weights]
    stack = Stack(own, directions, piece.layers[0], tied=piece.tied)
    rng = np.random.default_rng([terms.seed, len(piece.node), *piece.layers])
    base = compare.tolerance(terms.dtype, 0.0)
    # A piece of a fixed number of steps multiplies the inputs of all.
    cost = (
        max((piece.steps or 1) * cell.inputs + cell.width for cell in own) * len(own[0].names) * own[0].units
    )
    chosen = piece_inputs.choose_inputs(rng, stack, terms.takes, base, most=_PRODUCTS // cost)
    compared = f"{'y' * piece.outputs}h{'c' * (recurrence.sizes.mode is Mode.LSTM)}"
    worst = _Worst(compared, stack)
    asking = _Asking(piece, stack, terms, worst)
    asking.ask(chosen.asked)
    if worst.needed > 1:
        worst.message += _explain(worst.answer, chosen, stack, base)
    for time, batch in _runs(piece, terms):
        asked = stack.draw(rng, steps=time, batch=batch, dtype=terms.takes)
        whole = np.full(batch, time, np.int32)
        asking.ask(asked if piece.lengths else Asked(asked.x, asked.h, asked.c, whole))
    first = worst.bounds[0]
    narrowed = base.atol / first.atol  # what was measured against the narrowest bound, against the one used
    return PieceReport(
        node=piece.node,
        layers=piece.layers,
        piece=piece.name,
        asked=True,
        passed=worst.needed <= 1,
        compared=worst.compared,
        worst=worst.gap,
        needed=worst.needed,
        atol=first.atol,
        rtol=first.rtol,
        smallest=chosen.smallest * narrowed if np.isfinite(chosen.smallest) else None,
        weakest=chosen.weakest * narrowed if np.isfinite(chosen.weakest) else None,
        sampled=chosen.sampled,
        unseen=tuple(chosen.unseen),
        message=worst.message,
    )


def _runs(piece: Piece, terms: Terms) -> list[tuple[int, int]]:
    """The (time, batch) of the runs beside the first step; of a piece of fixed sizes the one that it has."""
    runs = (*(FEWER if terms.large else RUNS), *terms.runs)
    if piece.steps is not None:
        runs = ((piece.steps, max(2, _STEPS // piece.steps)),)
    return [*dict.fromkeys((time, piece.rows or batch) for time, batch in runs)]


def report_not_asked(recurrence: Recurrence, reason: str) -> PieceReport:
    """The line of a recurrence that could not be asked by itself."""
    layers = tuple(range(recurrence.sizes.layers))
    return PieceReport(node=recurrence.node, layers=layers, asked=False, passed=True, message=reason)


@dataclass(frozen=True, slots=True)
class _Asking:
    """One piece, what judges it, and the worst that was seen."""

    piece: Piece
    stack: Stack
    terms: Terms
    worst: _Worst

    def ask(self, asked: Asked) -> None:
        """Asks on some inputs, and compares."""
        expected = self.stack.run(asked)
        bound = _bound(self.stack, asked, expected, self.terms)
        self.worst.see(self.piece.ask(asked), expected, bound, len(asked.x))


def _bound(stack: Stack, asked: Asked, exact: Sequence[Array], terms: Terms) -> Tolerance:
    """The type's own bound, or that of the recurrence's noise on these inputs where that is more."""
    base = compare.tolerance(terms.dtype, 0.0)
    if terms.dtype.name == "float64":
        return base
    kind, largest = terms.dtype.type, 0.0
    narrow = Stack([cell.as_type(kind) for cell in stack.cells], stack.directions)
    given = {"x": asked.x.astype(kind), "h": asked.h.astype(kind), "c": asked.c.astype(kind)}
    for draw in range(1 if terms.large else _DRAWS):
        order = np.random.default_rng(draw) if draw else None
        fed = Asked(**end_to_end.perturb_feed(given, seed=terms.seed, draw=draw), lengths=asked.lengths)
        for value, other in zip(exact, narrow.run(fed, order), strict=True):
            # Of a large value the relative bound allows the same share.
            gap = np.abs(value - other.astype(np.float64)) / np.maximum(1, np.abs(value))
            largest = max(largest, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    wide = max(base.atol, _MARGIN * largest)
    return base if wide == base.atol else Tolerance(wide, wide, terms.dtype.name)


class _Worst:
    """The worst element of several answers."""

    def __init__(self, compared: str, stack: Stack) -> None:
        self._compared, self._stack = compared, stack
        self.compared, self.gap, self.needed, self.message = 0, 0.0, 0.0, ""
        self.bounds: list[Tolerance] = []
        self.answer: Answer | None = None

    def see(self, answer: Answer, expected: Sequence[Array], bound: Tolerance, time: int) -> None:
        """Compares the answer to `time` steps with the reference's."""
        if self.answer is None:
            self.answer = answer
        self.bounds.append(bound)
        for name, actual, wanted in zip("yhc", answer, expected, strict=True):
            if name in self._compared:
                self._compare(name, actual, wanted, bound, time)

    def _compare(self, name: str, actual: Array | None, wanted: Array, bound: Tolerance, time: int) -> None:
        self.compared += wanted.size
        if actual is None or actual.shape != wanted.shape:
            shape = None if actual is None else [*actual.shape]
            self.needed = np.inf
            self.message = self.message or f"{name}: expected {[*wanted.shape]}, found {shape}"
            return
        wide = actual.astype(np.float64)
        both = np.isnan(wide) & np.isnan(wanted) | (wide == wanted)
        with np.errstate(invalid="ignore"):
            gap = np.where(both, 0.0, np.abs(wide - wanted))
        gap = np.where(np.isnan(gap), np.inf, gap)
        limit = bound.atol + bound.rtol * np.abs(np.where(np.isfinite(wanted), wanted, 0.0))
        share = gap / limit
        self.gap = max(self.gap, float(gap.max(initial=0.0)))
        worst = float(share.max(initial=0.0))
        if worst > max(1.0, self.needed):
            index = np.unravel_index(int(np.argmax(share)), share.shape)
            self.message = (
                f"{self._where(name, index)} of {time} steps: expected {wanted[index]:.9g}, "
                f"found {wide[index]:.9g}, allowed {limit[index]:.1e}"
            )
        self.needed = max(self.needed, worst)

    def _where(self, name: str, indices: Sequence[Any]) -> str:
        index = [int(k) for k in indices]
        stack = self._stack
        if name == "y":
            direction, unit = divmod(index[2], stack.cells[-1].width)
            last = stack.first + len(stack.cells) // stack.directions - 1
            return f"layer {last} {WAYS[direction]}: y of step {index[0]}, row {index[1]}, unit {unit}"
        layer, direction = divmod(index[0], stack.directions)
        return (
            f"layer {stack.first + layer} {WAYS[direction]}: final {name} of row {index[1]}, unit {index[2]}"
        )


def _explain(answer: Answer | None, chosen: Power, stack: Stack, bound: Tolerance) -> str:
    """Which wrong recurrence answers as a piece did at one step, where one does."""
    return next(_explanations(answer, chosen, stack, bound), "")


def _explanations(answer: Answer | None, chosen: Power, stack: Stack, bound: Tolerance) -> Iterator[str]:
    if answer is None or answer[1].shape[0] != len(stack.cells):
        return
    for number, (layer, ways) in enumerate(stack.firsts(chosen.asked)):
        for direction, name, (h, c) in mutants.structural(ways):
            position = number * stack.directions + direction
            state_pair = (answer[1][position], c if answer[2] is None else answer[2][position])
            is_lstm = ways[direction].gates.mode == "lstm"
            if (
                state_pair[0].shape == h.shape
                and piece_inputs.shares(state_pair, (h, c), bound, is_lstm=is_lstm) <= 1
            ):
                yield f"; as with {name} in layer {layer} {WAYS[direction]}"
