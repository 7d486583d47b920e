"""Computes the answers of a step with wrong weights, to measure the power of inputs.

At the first step a wrong recurrence combines the same products as the right one: exchanged gates exchange two
of them, a dropped bias omits one term. So every mutant costs a few elementwise operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from cudnn_convert.reference.steps import F64, Gates, finish_step

#: A single weight is moved by this share of its gate matrix's Frobenius norm.
MOVED: Final = 1e-3
#: The step of the finite difference of an answer by a gate's sum, small enough to be linear.
_NUDGE: Final = 1e-6
#: Bound on the products of effects and inputs computed for one cell: about 0.1 s of work.
_BUDGET: Final = 10**8
_FEWEST: Final = 16
#: The number of rows that are used in the end.
_ROWS: Final = 512


@dataclass(frozen=True, slots=True)
class First:
    """A cell at the first step: `x [batch, inputs]`, `h [batch, width]`, `c [batch, units]`.

    All are float64.
    """

    gates: Gates
    x: F64
    h: F64
    c: F64

    def answer(self) -> tuple[F64, F64]:
        """Compute the next `h [batch, width]` and `c [batch, units]`."""
        return self.gates.finish(self.gates.weigh(self.x), self.gates.recur(self.h), self.h, self.c)


@dataclass(frozen=True, slots=True)
class _Sums:
    """The terms of each gate: of the input, of the state, and both biases."""

    wx: tuple[F64, ...]
    rh: tuple[F64, ...]
    bias: tuple[F64, ...]
    recurrent_bias: tuple[F64, ...]

    def exchange(self, a: int, b: int, *parts: str) -> _Sums:
        """Exchange gates `a` and `b` in the named parts."""
        order = [*range(len(self.wx))]
        order[a], order[b] = b, a
        return replace(self, **{part: tuple(getattr(self, part)[k] for k in order) for part in parts})

    def put(self, part: str, gate: int, value: Any) -> _Sums:
        """Replace the term of a gate."""
        values = [*getattr(self, part)]
        values[gate] = value
        return replace(self, **{part: tuple(values)})


_ALL: Final = ("wx", "rh", "bias", "recurrent_bias")


def structural(directions: Sequence[First]) -> Iterator[tuple[int, str, tuple[F64, F64]]]:
    """Yield the direction, fault and answer of each structural mutant of a layer.

    `directions` are those of the layer. Mutants: two gates exchanged, wholly or in one matrix; a kernel or
    recurrent kernel transposed or zero, wholly or for one gate; a bias dropped; a GRU candidate's bias on the
    other side of its reset gate; the directions exchanged. Mutants that equal the original are left out.
    """
    for direction, first in enumerate(directions):
        gates = first.gates
        sums = _Sums(
            tuple(gates.weigh(first.x)), tuple(gates.recur(first.h)), gates.bias, gates.recurrent_bias
        )
        for name, changed in _alter_sums(first, sums):
            yield direction, name, _answer(first, changed)
    if len(directions) == 2 and not _same(directions[0].gates, directions[1].gates):
        for direction, first in enumerate(directions):
            other = First(directions[1 - direction].gates, first.x, first.h, first.c)
            yield direction, "the directions exchanged", other.answer()


def _answer(first: First, sums: _Sums) -> tuple[F64, F64]:
    gates = replace(first.gates, bias=sums.bias, recurrent_bias=sums.recurrent_bias)
    return gates.finish(sums.wx, sums.rh, first.h, first.c)


def _alter_sums(first: First, sums: _Sums) -> Iterator[tuple[str, _Sums]]:
    gates, names = first.gates, first.gates.names
    kernel, recurrent = gates.kernel, gates.recurrent_kernel
    for a, b in combinations(range(len(names)), 2):
        pair = f"gates {names[a]} and {names[b]} exchanged"
        in_kernel = kernel is not None and not np.array_equal(kernel[a], kernel[b])
        in_recurrent = not np.array_equal(recurrent[a], recurrent[b])
        biases = (gates.bias, gates.recurrent_bias)
        if in_kernel or in_recurrent or any(not np.array_equal(bias[a], bias[b]) for bias in biases):
            yield pair, sums.exchange(a, b, *_ALL)
        if in_kernel:
            yield f"{pair} in the kernel", sums.exchange(a, b, "wx")
        if in_recurrent:
            yield f"{pair} in the recurrent kernel", sums.exchange(a, b, "rh")
    for part, title, matrices, values in (
        ("wx", "kernel", kernel, first.x),
        ("rh", "recurrent kernel", recurrent, first.h),
    ):
        if matrices is None:
            continue
        for name, parts in _alter_products(getattr(sums, part), matrices, values, names):
            yield f"{title}{name}", replace(sums, **{part: parts})
    for part, title, vectors in (
        ("bias", "bias", gates.bias),
        ("recurrent_bias", "recurrent bias", gates.recurrent_bias),
    ):
        for gate, vector in enumerate(vectors):
            if vector.any():
                yield f"{title} of gate {names[gate]} dropped", sums.put(part, gate, np.zeros_like(vector))
    if gates.mode == "gru" and gates.recurrent_bias[2].any():
        moved = sums.put("bias", 2, gates.bias[2] + gates.recurrent_bias[2])
        yield (
            f"recurrent bias of gate {names[2]} outside its reset",
            moved.put("recurrent_bias", 2, np.zeros_like(gates.recurrent_bias[2])),
        )


def _alter_products(
    products: tuple[F64, ...], matrices: Sequence[F64], values: F64, names: Sequence[str]
) -> Iterator[tuple[str, tuple[F64, ...]]]:
    """Yield products with zero or transposed matrices, wholly or for a single gate."""
    zeros = tuple(np.zeros_like(product) for product in products)
    if any(matrix.any() for matrix in matrices):
        yield " zero", zeros
    square = matrices[0].shape[0] == matrices[0].shape[1]
    turned = tuple(values @ matrix for matrix in matrices) if square else products
    differ = [square and not np.array_equal(matrix, matrix.T) for matrix in matrices]
    if any(differ):
        yield " transposed", turned
    for gate, matrix in enumerate(matrices if len(matrices) > 1 else ()):
        others = products[:gate], products[gate + 1 :]
        if matrix.any():
            yield f" of gate {names[gate]} zero", (*others[0], zeros[gate], *others[1])
        if differ[gate]:
            yield f" of gate {names[gate]} transposed", (*others[0], turned[gate], *others[1])


def _same(gates: Gates, second: Gates) -> bool:
    stored, other = (
        [*(each.kernel or ()), *each.recurrent_kernel, *each.bias, *each.recurrent_bias]
        for each in (gates, second)
    )
    return all(map(np.array_equal, stored, other))


class WeightEffects:
    """The largest effect of a small change of each weight on any row.

    Rows are added until the weakest effect is large enough. Of a large cell, evenly spaced rows of each
    matrix are used; `sampled` is their number, None for all. Effects are to first order.
    """

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        columns = gates.inputs * (gates.kernel is not None) + gates.width
        most = max(_FEWEST, _BUDGET // (_ROWS * columns * len(gates.names)))
        self.sampled = None if most >= gates.units else most
        self._units = np.unique(np.linspace(0, gates.units - 1, min(most, gates.units)).astype(int))
        self._best: dict[tuple[str, int], F64] = {}

    def add(self, first: First, atol: float, rtol: float) -> None:
        """Add the rows of a first step; effects count in tolerances `atol + rtol*|answer|`."""
        gates = self._gates
        inputs = gates.add_bias(gates.weigh(first.x), gates.bias)
        states = gates.add_bias(gates.recur(first.h), gates.recurrent_bias)

        def answer(inputs: Sequence[F64], states: Sequence[F64]) -> tuple[F64, F64]:
            return finish_step(gates.mode, inputs, states, first.h, first.c)

        right = answer(inputs, states)
        for gate in range(len(gates.names)):
            moved = [*inputs]
            moved[gate] = inputs[gate] + _NUDGE
            effects = self._effects(right, answer(moved, states), atol, rtol)
            if gates.kernel is not None:
                self._raise("kernel", gate, effects, first.x)
            if gates.mode == "gru" and gate == 2:  # its state term is multiplied by the reset gate
                moved = [*states]
                moved[gate] = states[gate] + _NUDGE
                effects = self._effects(right, answer(inputs, moved), atol, rtol)
            self._raise("recurrent kernel", gate, effects, first.h)

    def _effects(self, before: tuple[F64, F64], after: tuple[F64, F64], atol: float, rtol: float) -> F64:
        """Return the change per unit of a gate's sum, in tolerances `[batch, units]`.

        The change is a first-order estimate.
        """
        gates, units = self._gates, self._units
        moved = [np.abs(new - old)[:, units] / _NUDGE for new, old in zip(after, before, strict=True)]
        if gates.projection is None:
            shares = moved[0] / (atol + rtol * np.abs(before[0][:, units]))
        else:
            answer = np.abs(before[0] @ gates.projection.T)
            reach = np.abs(gates.projection[:, units]) / (atol + rtol * answer)[:, :, None]
            shares = moved[0] * reach.max(axis=1)
        if gates.mode == "lstm":
            shares = np.maximum(shares, moved[1] / (atol + rtol * np.abs(before[1][:, units])))
        return np.asarray(shares, np.float32)

    def _raise(self, title: str, gate: int, effects: F64, values: F64) -> None:
        """Update the largest effects of a gate's weights.

        The effects are `effects [batch, units]` of its sum times `values [batch, inputs]`.
        """
        start = np.zeros((len(self._units), values.shape[1]), np.float32)
        best = self._best.setdefault((title, gate), start)
        for effect, row in zip(effects, np.abs(values).astype(np.float32), strict=True):
            np.maximum(best, effect[:, None] * row, out=best)

    def weakest(self) -> float:
        """Return the smallest effect of a weight changed by `MOVED`, in tolerances.

        Infinite where all weights are 0.
        """
        return min((float(shares.min()) for _, shares in self._shares()), default=np.inf)

    def below(self, least: float) -> list[tuple[str, int, int, float]]:
        """Return the matrices of weights with an effect below `least`.

        Each is `(matrix and gate, number of such weights, number of weights, smallest effect)`.
        """
        return [
            (title, int((shares < least).sum()), shares.size, float(shares.min()))
            for title, shares in self._shares()
            if (shares < least).any()
        ]

    def _shares(self) -> Iterator[tuple[str, F64]]:
        for (title, gate), best in self._best.items():
            matrices = self._gates.recurrent_kernel if title == "recurrent kernel" else self._gates.kernel
            assert matrices is not None
            norm = float(np.linalg.norm(matrices[gate]))
            if norm:  # a zero matrix has no scale for a change
                yield f"{title} of gate {self._gates.names[gate]}", best * (MOVED * norm)
