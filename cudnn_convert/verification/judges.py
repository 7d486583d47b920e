"""Judges of a source: the protocol, and a judge for each recurrence alone.

A judge runs a source with every recurrence computed as `reference` does. `graph_judge` runs the source's own
graph; weights without a graph need none, and no TensorFlow.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from cudnn_convert import casts
from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array, CanonicalEvidence, Recurrence
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.verification import effort
from cudnn_convert.weights import lazy

Sizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Floats:
    """The way floats are drawn: with a standard deviation, or from `values` by tensor."""

    spread: float = 1.0
    values: Mapping[str, Array] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator, name: str, shape: Sequence[int]) -> Array:
        """Draw values for a tensor; given rows stay together where the last axis fits."""
        given = self.values.get(name)
        if given is None or not given.size:
            return np.asarray(self.spread * rng.standard_normal(shape))
        if given.ndim > 1 and len(shape) > 1 and given.shape[-1] == shape[-1]:
            rows = given.reshape(-1, given.shape[-1])
            return np.asarray(rows[rng.integers(0, len(rows), shape[:-1])])
        return np.asarray(rng.choice(given.ravel(), shape))


USUAL: Final = Floats()


#: `(x, h, c, lengths or None) -> [y, h, c]` in the axes and the type that the op has.
Computation = Callable[..., list[Array]]


@dataclass(frozen=True, slots=True)
class RecurrenceCall:
    """The inputs of the op `node`, time-major, and the outputs in the op's axes."""

    node: str
    x: Array
    h: Array
    c: Array
    lengths: Array | None
    gave: Sequence[Array]


_Taking = TypeVar("_Taking")


def nearest(calls: Sequence[_Taking], x: Array, h: Array, c: Array | None) -> _Taking:
    """Return the call nearest to the given `x`, `h` and `c`, all time-major.

    A node in a loop is called often, and recurrences of equal weights share a name. Raises LookupError where
    no call took an input of that shape.
    """

    def distance(call: Any) -> float:
        pairs = [(call.x, x), (call.h, h), *([] if c is None else [(call.c, c)])]
        fit = [(value, other) for value, other in pairs if value.shape == other.shape]
        with np.errstate(invalid="ignore"):
            return sum(float(np.nan_to_num(np.abs(a - b), nan=np.inf).max(initial=0.0)) for a, b in fit)

    fitting: list[Any] = [*calls]
    fitting = [call for call in fitting if call.x.shape == x.shape]
    if not fitting:
        raise LookupError(f"a recurrence is called with {[*x.shape]}, which the source's is not")
    taking: _Taking = min(fitting, key=distance)
    return taking


@dataclass(slots=True)
class Draw:
    """The computation of recurrences: the order of summation, disturbances, or given calls.

    `number` 0 is the reference's own order, each other one another order. `disturbed` are nodes that give
    values which are off by `effort.DISTURBANCE` of their spread. `given` are calls by node: it gives what the
    nearest of these gave, and nothing is computed. All three hold from the next run on. `calls` collects what
    the nodes of the last run took and gave.
    """

    number: int = 0
    disturbed: Collection[str] = ()
    calls: list[RecurrenceCall] = field(default_factory=list)
    given: Mapping[str, Sequence[RecurrenceCall]] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """True if every node gives the reference's values in the reference's order."""
        return not (self.number or self.disturbed or self.given)


def computation(recurrence: Recurrence, dtype: Any, seen: list[tuple[int, int]], draw: Draw) -> Computation:
    """Return a cuDNN op on arrays, computed in `dtype`; each (time, batch) goes to `seen`.

    The computation raises ValueError on lengths beyond the steps, as cuDNN refuses them: its documentation
    of cudnnSetRNNDataDescriptor names CUDNN_STATUS_BAD_PARAM.
    """
    from cudnn_convert import reference  # which a conversion without a proof does not need

    sizes, time_major = recurrence.sizes, recurrence.time_major
    is_lstm = sizes.mode.value == "lstm"
    large = lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype)
    layers = steps(recurrence, dtype)
    # Large weights are read again in every call, so that no call is made twice.
    natural = layers if large else tuple(layers)
    known: dict[tuple[bytes | None, ...], list[Array]] = {}

    @cache
    def draw_order(number: int) -> Sequence[Any]:
        order = np.random.default_rng(number)
        return tuple(step.gates().step(order) for step in natural)

    def compute(x: Array, h: Array, c: Array, lengths: Array | None = None) -> list[Array]:
        kind, cell = x.dtype, c
        x, h = (t if time_major else t.swapaxes(0, 1) for t in (x, h))
        c = (c if time_major else c.swapaxes(0, 1)) if is_lstm else np.zeros_like(h)
        if lengths is not None and not _are_within(lengths, x.shape[0]):
            actual = f"{lengths.min()} to {lengths.max()}"
            raise ValueError(f"sequence lengths: expected 0 to {x.shape[0]} steps, found {actual}")
        seen.append((x.shape[0], x.shape[1]))
        if recurrence.node in draw.given:
            return list(nearest(draw.given[recurrence.node], x, h, c).gave)
        key = tuple(None if t is None else t.tobytes() for t in (x, h, c, lengths))
        is_off = recurrence.node in draw.disturbed
        if key in known and not is_off:
            return known[key]
        # TensorFlow lends the memory of a variable, which an assignment changes afterwards.
        taken = (x.copy(), h.copy(), c.copy(), None if lengths is None else lengths.copy())
        floats = (t.astype(dtype) for t in (x, h, c))
        ordered = draw_order(draw.number) if draw.number and not large else natural
        y, h, c = reference.run(ordered, *floats, directions=sizes.directions, lengths=lengths)
        y, h, c = (t if time_major else t.swapaxes(0, 1) for t in (y, h, c))
        if is_off:
            y, h, c = (_off(value) for value in (y, h, c))
        outputs = [np.ascontiguousarray(t, kind) for t in (y, h, c if is_lstm else cell)]
        if not large:
            draw.calls.append(RecurrenceCall(recurrence.node, *taken, outputs))
        known.update({key: outputs} if large and not is_off else {})
        return outputs

    return compute


def _are_within(lengths: Array, steps: int) -> bool:
    return bool(((lengths >= 0) & (lengths <= steps)).all())


def _off(value: Array) -> Array:
    """Move each value by `effort.DISTURBANCE` of the spread, up or down."""
    if not value.size:
        return value
    spread = float(np.ptp(value.astype(np.float64))) or 1.0
    ways = np.random.default_rng(value.size).choice([-1.0, 1.0], value.shape)
    return np.asarray(value + effort.DISTURBANCE * spread * ways, value.dtype)


def steps(recurrence: Recurrence, dtype: Any) -> Sequence[Any]:
    """Return the reference's steps from the source's stored arrays, untouched by any lowering."""
    from cudnn_convert import reference

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


@dataclass(slots=True)
class RunningSource:
    """An open source; `sizes` collects the (time, batch) seen by recurrences.

    What a run leaves in variables the next one finds there, until `restart` puts back what the file holds.
    `draw` chooses how recurrences are computed from then on, and collects their calls. `words` are the keys
    of its tables where those are strings.
    """

    run: Callable[[Mapping[str, Array], Sequence[str]], list[Array]]
    sizes: list[tuple[int, int]]
    restart: Callable[[], None]
    draw: Draw
    words: tuple[bytes, ...] = ()


class Judge(Protocol):
    """A judge with runs of a plan's source, and with feeds by tensor."""

    @property
    def plan(self) -> Plan:
        """The plan, with variables of the judging values."""

    def open(self, *, dtype: Any = np.float64, trust: bool = False) -> AbstractContextManager[RunningSource]:
        """Open the source, with recurrences in `dtype`. May raise UnsupportedModelError."""

    def make_feeds(
        self, source: RunningSource, *, seed: int, more: Sizes = (), usual: Sizes = (), floats: Floats = USUAL
    ) -> list[dict[str, Array]]:
        """Make feeds by tensor accepted by an open source, with floats drawn by `floats`.

        The feeds have the sizes `usual`, by default those of `sizes`, and where the source takes those too
        `more`.
        """

    def fit(self, values: Mapping[str, Array], *, where: str) -> dict[str, Array]:
        """Convert arrays by key to a feed by tensor, of the inputs' types.

        Raises UsageError.
        """

    def require_accepted(self, source: RunningSource, feed: Mapping[str, Array], *, where: str) -> None:
        """Raise UsageError where an open source refuses a feed."""

    def dtypes(self) -> set[np.dtype[Any]]:
        """Return the types of fused recurrences beside cuDNN nodes."""

    def scores(self) -> dict[str, tuple[str, int]]:
        """Return, for each choice output, the deciding tensor and the tensor's axis."""


def sizes(plan: Plan) -> Sizes:
    """Return the (time, batch) of the feeds drawn for a plan."""
    large = [
        lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype) for recurrence in plan.recurrences
    ]
    return effort.FEED_SIZES_OF_LARGE if large and all(large) else effort.FEED_SIZES


@dataclass(frozen=True, slots=True)
class StandaloneJudge:
    """A judge of plain weights: each recurrence is computed alone, with arithmetic only."""

    plan: RecurrencesPlan

    @contextmanager
    def open(self, *, dtype: Any = np.float64, trust: bool = False) -> Iterator[RunningSource]:
        """Open the source, trusted or untrusted."""
        seen: list[tuple[int, int]] = []
        draw = Draw()
        computations = {
            single.name: computation(single.recurrence, dtype, seen, draw) for single in self.plan.singles
        }

        def run(feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
            seen.clear()
            draw.calls.clear()
            answers: dict[str, Array] = {}
            for single in self.plan.singles:
                answers |= _answer(single, computations[single.name], feeds)
            return [answers[name] for name in wanted]

        try:
            yield RunningSource(run, seen, lambda: None, draw)
        finally:
            computations.clear()  # the answers stay, the weights in `dtype` need not

    def make_feeds(
        self, source: RunningSource, *, seed: int, more: Sizes = (), usual: Sizes = (), floats: Floats = USUAL
    ) -> list[dict[str, Array]]:
        """Draw normal values, and lengths from 1 step up."""
        pairs = (*(usual or sizes(self.plan)), *more)
        feeds: list[dict[str, Array]] = [{} for _ in pairs]
        for single in self.plan.singles:
            rng = np.random.default_rng(seed)
            for feed, (time, batch) in zip(feeds, pairs, strict=True):
                widths = {"time": time, "batch": batch}
                for key, (dtype, shape) in single.inputs.items():
                    full = [widths[width] if isinstance(width, str) else width for width in shape]
                    is_length = dtype.kind == "i"
                    name = single.signature.inputs[key]
                    value = rng.integers(1, time + 1, full) if is_length else floats.draw(rng, name, full)
                    feed[name] = value.astype(dtype)
        return feeds

    def fit(self, values: Mapping[str, Array], *, where: str) -> dict[str, Array]:
        """Convert arrays by key to a feed by tensor. Raises UsageError."""
        reasons, feed = [], {}
        for part, single in zip(self.plan.parts, self.plan.singles, strict=True):
            for key, (dtype, shape) in single.inputs.items():
                given = values.get(part.prefix + key)
                if given is None:
                    continue
                name = part.prefix + key
                if not _is_like(given.shape, shape):
                    wanted = ", ".join("None" if isinstance(width, str) else str(width) for width in shape)
                    what = f"found {given.dtype}{list(given.shape)}"
                    reasons.append(f"{where}: {name}: expected {dtype.name}({wanted}), {what}")
                elif loss := casts.explain_loss(given, dtype):
                    reasons.append(f"{where}: {name}: {loss}")
                else:
                    feed[single.signature.inputs[key]] = casts.cast(given, dtype, where=where)
        if reasons:
            raise UsageError(*reasons)
        return feed

    def require_accepted(self, source: RunningSource, feed: Mapping[str, Array], *, where: str) -> None:
        """Raise UsageError where inputs of a signature disagree on time and batch."""
        for part, single in zip(self.plan.parts, self.plan.singles, strict=True):
            widths: dict[str, int] = {}
            for key, (_, shape) in single.inputs.items():
                for name, width in zip(shape, feed[single.signature.inputs[key]].shape, strict=True):
                    if isinstance(name, str) and widths.setdefault(name, width) != width:
                        reason = (
                            f"expected a {name} of {widths[name]} as in the inputs before it, found {width}"
                        )
                        raise UsageError(f"{where}: {part.prefix + key}: {reason}")
            time, lengths = widths["time"], feed.get(single.signature.inputs.get("sequence_lengths", ""))
            if lengths is not None and not _are_within(lengths, time):
                reason = f"expected lengths of 0 to {time} steps, found {lengths.min()} to {lengths.max()}"
                raise UsageError(f"{where}: {part.prefix}sequence_lengths: {reason}")

    def dtypes(self) -> set[np.dtype[Any]]:
        """Return an empty set: all recurrences are cuDNN's."""
        return set()

    def scores(self) -> dict[str, tuple[str, int]]:
        """Return an empty dict: choices are absent from the outputs."""
        return {}


def _answer(single: Single, compute: Computation, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a signature by tensor."""
    ends, of = single.signature, single.recurrence.sizes
    answers = {key: feeds[name] for key, name in ends.inputs.items()}
    x = answers["inputs"].swapaxes(0, 1) if single.batch_major else answers["inputs"]
    h, c = (
        answers.get(f"initial_{key}", np.zeros((of.layers * of.directions, x.shape[1], width), x.dtype))
        for key, width in (("h", of.width), ("c", of.units))
    )
    y, h, c = compute(x, h, c, answers.get("sequence_lengths"))
    y = y.swapaxes(0, 1) if single.batch_major else y
    return dict(zip(ends.outputs.values(), (y, h, c), strict=False))


def _is_like(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(isinstance(width, str) or width == size for size, width in zip(shape, wanted, strict=True))
