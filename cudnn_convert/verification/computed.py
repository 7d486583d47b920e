"""A recurrence as `reference` computes it: what stands in a cuDNN node's place, or for a whole source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from cudnn_convert import layers, reference
from cudnn_convert.model import Array, CanonicalEvidence, Recurrence

#: `(x, h, c, lengths or None) -> [y, h, c]` in the axes and the type that the op has.
Computation = Callable[..., list[Array]]


@dataclass(frozen=True, slots=True)
class Call:
    """What the op `node` took, time-major and lengths or None, and what it gave in its own axes."""

    node: str
    x: Array
    h: Array
    c: Array
    lengths: Array | None
    gave: Sequence[Array]


_Taking = TypeVar("_Taking")


def nearest(calls: Sequence[_Taking], x: Array, h: Array, c: Array | None) -> _Taking:
    """The call that took what is nearest to these, time-major; each has `x`, `h` and `c`, as a `Call` has.

    A node in a loop is called often, and recurrences of equal weights share a name. Raises LookupError where
    no call took an input of that shape.
    """

    def distance(call: Any) -> float:
        pairs = [(call.x, x), (call.h, h), *([] if c is None else [(call.c, c)])]
        fit = [(one, other) for one, other in pairs if one.shape == other.shape]
        with np.errstate(invalid="ignore"):
            return sum(float(np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0.0)) for a, b in fit)

    fitting: list[Any] = [*calls]
    fitting = [call for call in fitting if call.x.shape == x.shape]
    if not fitting:
        raise LookupError(f"a recurrence is called with {[*x.shape]}, which the source's is not")
    found: _Taking = min(fitting, key=distance)
    return found


#: The share of its spread by which a recurrence is disturbed.
OFF: Final = 1e-2


@dataclass(slots=True)
class Draw:
    """Which evaluation is made: 0 adds up as the reference does, each other one in another order.

    `disturbed` are nodes that give values which are off by `OFF` of their spread. `given` are calls by node:
    it gives what the nearest of these gave, and nothing is computed. `calls` collects what the nodes of the
    last run took and gave.
    """

    number: int = 0
    disturbed: Collection[str] = ()
    calls: list[Call] = field(default_factory=list)
    given: Mapping[str, Sequence[Call]] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether every node gives what the reference gives in its own order."""
        return not (self.number or self.disturbed or self.given)

    def choose(self, number: int) -> None:
        """Makes that evaluation from now on."""
        self.number = number

    def give(self, calls: Mapping[str, Sequence[Call]]) -> None:
        """Has these nodes give what these calls gave from now on, and computes all others."""
        self.given = calls

    def disturb(self, nodes: Collection[str]) -> None:
        """Disturbs these nodes from now on, and no others."""
        self.disturbed = nodes


def computation(
    recurrence: Recurrence, dtype: Any, seen: list[tuple[int, int]], draw: Draw | None = None
) -> Computation:
    """A cuDNN op on arrays, computed in `dtype`; each call adds its (time, batch) to `seen`."""
    sizes, time_major = recurrence.sizes, recurrence.time_major
    is_lstm = sizes.mode.value == "lstm"
    large = layers.are_large(recurrence.sizes, recurrence.dtype)
    made = steps(recurrence, dtype)
    # Large weights are read again in every call, so that no call is made twice.
    natural = made if large else tuple(made)
    drawn: dict[int, Sequence[Any]] = {0: natural}
    known: dict[tuple[bytes | None, ...], list[Array]] = {}

    def ordered() -> Sequence[Any]:
        number = draw.number if draw is not None and not large else 0
        if number not in drawn:
            order = np.random.default_rng(number)
            drawn[number] = tuple(step.gates().step(order) for step in natural)
        return drawn[number]

    def compute(x: Array, h: Array, c: Array, lengths: Array | None = None) -> list[Array]:
        kind, cell = x.dtype, c
        x, h = (t if time_major else t.swapaxes(0, 1) for t in (x, h))
        c = (c if time_major else c.swapaxes(0, 1)) if is_lstm else np.zeros_like(h)
        seen.append((x.shape[0], x.shape[1]))
        if draw is not None and recurrence.node in draw.given:
            return list(nearest(draw.given[recurrence.node], x, h, c).gave)
        key = tuple(None if t is None else t.tobytes() for t in (x, h, c, lengths))
        is_off = draw is not None and recurrence.node in draw.disturbed
        # TensorFlow lends the memory of a variable, which an assignment changes afterwards.
        taken = (x.copy(), h.copy(), c.copy(), None if lengths is None else lengths.copy())
        if key in known and not is_off:
            if draw is not None and not large:
                draw.calls.append(Call(recurrence.node, *taken, known[key]))
            return known[key]
        floats = (t.astype(dtype) for t in (x, h, c))
        y, h, c = reference.run(ordered(), *floats, directions=sizes.directions, lengths=lengths)
        y, h, c = (t if time_major else t.swapaxes(0, 1) for t in (y, h, c))
        if is_off:
            y, h, c = (_off(value) for value in (y, h, c))
        found = [np.ascontiguousarray(t, kind) for t in (y, h, c if is_lstm else cell)]
        if draw is not None and not large:
            draw.calls.append(Call(recurrence.node, *taken, found))
        known.update({key: found} if large and not is_off else {})
        return found

    return compute


def _off(value: Array) -> Array:
    """Values that are each off by `OFF` of the spread of all, up or down."""
    if not value.size:
        return value
    spread = float(np.ptp(value.astype(np.float64))) or 1.0
    ways = np.random.default_rng(value.size).choice([-1.0, 1.0], value.shape)
    return np.asarray(value + OFF * spread * ways, value.dtype)


def steps(recurrence: Recurrence, dtype: Any) -> Sequence[Any]:
    """The reference's steps from the arrays that the source stores, which no lowering has touched."""
    sizes, evidence, convention = recurrence.sizes, recurrence.evidence, recurrence.convention
    common = {"layers": sizes.layers, "directions": sizes.directions, "dtype": dtype}
    common["gate_order"] = convention.gate_order
    if isinstance(evidence, CanonicalEvidence):
        evaluate = reference.DIALECTS[evidence.dialect]
        return evaluate(evidence.tensors, sizes.mode.value, forget_bias=convention.forget_bias, **common)
    return reference.steps_from_blob(
        evidence.blob,
        sizes.mode.value,
        units=sizes.units,
        input_size=sizes.input_size,
        skip_input=sizes.skip_input,
        projection=sizes.projection,
        **common,
    )
