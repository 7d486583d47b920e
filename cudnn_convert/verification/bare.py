"""The way of weights without a graph: each recurrence is computed by itself, and TensorFlow by nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.graph.interface import Single
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import arrays
from cudnn_convert.verification.computed import Computation, Draw, computation
from cudnn_convert.verification.way import USUAL, Floats, Sizes, Source, Way, sizes


@contextmanager
def _opened(plan: Plan, *, dtype: Any = np.float64, trust: bool = False) -> Iterator[Source]:
    """Only arithmetic runs, whether trusted or not."""
    seen: list[tuple[int, int]] = []
    draw = Draw()
    computations = {one.name: computation(one.recurrence, dtype, seen, draw) for one in plan.singles}

    def run(feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
        seen.clear()
        draw.calls.clear()
        answers: dict[str, Array] = {}
        for one in plan.singles:
            answers |= _answered(one, computations[one.name], feeds)
        return [answers[name] for name in wanted]

    try:
        yield Source(run, seen, lambda: None, draw.choose, draw.disturb, draw.give, draw.calls)
    finally:
        computations.clear()  # the answers stay, the weights in `dtype` need not


def _answered(one: Single, compute: Computation, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of one signature by tensor."""
    ends, of = one.signature, one.recurrence.sizes
    found = {key: feeds[name] for key, name in ends.inputs.items()}
    x = found["inputs"].swapaxes(0, 1) if one.batch_major else found["inputs"]
    zeros = np.zeros((of.layers * of.directions, x.shape[1], of.units), x.dtype)
    h, c = (found.get(f"initial_{key}", zeros) for key in ("h", "c"))
    y, h, c = compute(x, h, c, found.get("sequence_lengths"))
    y = y.swapaxes(0, 1) if one.batch_major else y
    return dict(zip(ends.outputs.values(), (y, h, c), strict=False))


def _generated(
    plan: Plan, source: Source, *, seed: int, more: Sizes = (), usual: Sizes = (), floats: Floats = USUAL
) -> list[dict[str, Array]]:
    """Normal values, and lengths of at least one step; one generator a signature, as for graphs."""
    pairs = (*(usual or sizes(plan)), *more)
    found: list[dict[str, Array]] = [{} for _ in pairs]
    for one in plan.singles:
        rng = np.random.default_rng(seed)
        for feed, (time, batch) in zip(found, pairs, strict=True):
            widths = {"time": time, "batch": batch}
            for key, (dtype, shape) in one.inputs.items():
                full = [widths[width] if isinstance(width, str) else width for width in shape]
                is_length = dtype.kind == "i"
                name = one.signature.inputs[key]
                value = rng.integers(1, time + 1, full) if is_length else floats.draw(rng, name, full)
                feed[name] = value.astype(dtype)
    return found


def _fitting(plan: Plan, values: Mapping[str, Array], *, where: str) -> dict[str, Array]:
    reasons, feed = [], {}
    for part, one in zip(plan.parts, plan.singles, strict=True):
        for key, (dtype, shape) in one.inputs.items():
            given = values.get(part.prefix + key)
            if given is None:
                continue
            if arrays.are_cut_off(given.dtype, dtype) or not _is_like(given.shape, shape):
                wanted = ", ".join("None" if isinstance(width, str) else str(width) for width in shape)
                what = f"found {given.dtype}{list(given.shape)}"
                reasons.append(f"{where}: {part.prefix + key}: expected {dtype.name}({wanted}), {what}")
            else:
                feed[one.signature.inputs[key]] = given.astype(dtype)
    if reasons:
        raise UsageError(*reasons)
    return feed


def _is_like(found: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if len(found) != len(wanted):
        return False
    return all(isinstance(width, str) or width == one for one, width in zip(found, wanted, strict=True))


def _require_accepted(plan: Plan, source: Source, feed: Mapping[str, Array], *, where: str) -> None:
    """All inputs of one signature must agree on time and batch."""
    for part, one in zip(plan.parts, plan.singles, strict=True):
        widths: dict[str, int] = {}
        for key, (_, shape) in one.inputs.items():
            for name, width in zip(shape, feed[one.signature.inputs[key]].shape, strict=True):
                if isinstance(name, str) and widths.setdefault(name, width) != width:
                    reason = f"expected a {name} of {widths[name]} as in the inputs before it, found {width}"
                    raise UsageError(f"{where}: {part.prefix + key}: {reason}")
        time, lengths = widths["time"], feed.get(one.signature.inputs.get("sequence_lengths", ""))
        if lengths is not None and not ((lengths >= 0) & (lengths <= time)).all():
            reason = f"expected lengths of 0 to {time} steps, found {lengths.min()} to {lengths.max()}"
            raise UsageError(f"{where}: {part.prefix}sequence_lengths: {reason}")


WAY: Final = Way(_opened, _generated, _fitting, _require_accepted, lambda plan: set(), lambda plan: {})
