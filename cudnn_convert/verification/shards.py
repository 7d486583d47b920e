"""Compares shards of a user's feeds in several processes, and joins the findings.

A shard is a file of calls, or some calls of records, as `feeds.data.share_out` cuts them. A process runs
source and artifact on its feeds and keeps none of the values: it gives a `Partial`, whose size does not
depend on theirs. The joined figures are those of one process: what depends on all feeds, such as the noise
of rounding, is joined first, and a shard that was compared by other bounds is compared again. Further
evaluations of the noise, where a verdict hangs on them, and the question which outputs depend on
recurrences, are answered here, on single feeds that are read when they are needed.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UsageError
from cudnn_convert.feeds.data import Data, Shard, read_shard, share_out
from cudnn_convert.model import Array
from cudnn_convert.verification import compare, end_to_end, recordings, rounding, trials
from cudnn_convert.verification.end_to_end import Bounds, Comparison
from cudnn_convert.verification.settings import Settings
from cudnn_convert.verification.trials import Trial

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Partial:
    """The findings of a process on the feeds of a shard, feed by feed.

    `feeds` are the shapes of the inputs by key; `shapes`, `dtypes` and `gaps` are of the wanted tensors: the
    last is how far rounding moved them in the first evaluation, empty where none was made. `sizes` are the
    (time, batch) of each recurrence, `ranges` the least and the largest finite value of each output, None for
    none. `differences` were found by the `bounds`.
    """

    feeds: Sequence[dict[str, tuple[int, ...]]]
    shapes: Sequence[Sequence[tuple[int, ...]]]
    dtypes: Sequence[str]
    gaps: Sequence[list[float]]
    sizes: Sequence[Sequence[tuple[int, int]]]
    ranges: Sequence[dict[str, tuple[float, float] | None]]
    bounds: Bounds
    differences: Sequence[Sequence[compare.OutputDifference]]


#: Gives the partial of each shard, in order, by the bounds given or by the shard's own.
Measure = Callable[[Sequence[Shard], Bounds | None], Iterator[Partial]]


def _require_apart(settings: Settings) -> None:
    """Raise UsageError unless feeds can be compared independently."""
    if not isinstance(settings.options.data, Path):
        cure = "give --data with a pattern, or leave it out"
        raise UsageError(f"--jobs: expected shards of feeds, found none; {cure}")
    if settings.plan.states or settings.plan.streaming:
        what = "expected calls that are apart from each other, found state that goes from one to the next"
        raise UsageError(f"--jobs: {what}; leave it out")


def _data_of(settings: Settings) -> Data:
    data = Data.of(settings.options, seed=settings.seed)
    assert data is not None
    return data


def measure_shard(
    settings: Settings, runner: runners.Runner, shard: Shard, bounds: Bounds | None = None
) -> Partial:
    """Compare the artifact with the source on the feeds of a shard.

    Without `bounds` the noise is measured on them, and they are compared by bounds of their own. Raises
    UsageError for feeds that the source does not take.
    """
    with settings.judge.open(trust=settings.trust) as source:
        calls = read_shard(_data_of(settings), shard)
        feeds = recordings.accept_feeds(settings.judge, source, calls)
        trial = trials.try_feeds(settings, source, feeds)
    comparison = Comparison(settings, trial, end_to_end.run_artifact(settings.plan, runner, feeds))
    gaps = [] if bounds else _measure_gaps(settings, trial)
    noise = [max(column) for column in zip(*gaps, strict=True)]
    bounds = bounds or comparison.choose_bounds(noise)
    outputs = settings.plan.signature.outputs
    return Partial(
        [end_to_end.shapes_of(settings.plan, feed) for feed in feeds],
        comparison.shapes,
        [value.dtype.name for value in trial.exact[0]],
        gaps,
        trial.sizes,
        [dict(zip(outputs, map(_range, values), strict=False)) for values in trial.exact],
        bounds,
        comparison.differences(bounds),
    )


def _measure_gaps(settings: Settings, trial: Trial) -> list[list[float]]:
    """Measure the movement by rounding in the reference's order, per feed and wanted tensor."""
    if settings.dtype.name == "float64":
        return [[0.0] * len(settings.wanted) for _ in trial.feeds]
    with settings.judge.open(dtype=settings.dtype.type, trust=settings.trust) as source:
        source.restart()
        rounded = (trials.run_judge(settings, source, feed) for feed in trial.feeds)
        return [
            [rounding.difference(value, other) for value, other in zip(exact, values, strict=True)]
            for exact, values in zip(trial.exact, rounded, strict=True)
        ]


def _range(values: Array) -> tuple[float, float] | None:
    """Return the least and the largest finite value of floats, if any."""
    if values.dtype.kind not in "fV":
        return None
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    return (float(np.min(finite)), float(np.max(finite))) if finite.size else None


def compare_shards(settings: Settings, measure: Measure) -> Comparison:
    """Have each shard of the user's feeds compared, and join the findings."""
    _require_apart(settings)
    shards, calls = share_out(_data_of(settings))
    settings = replace(settings, calls=calls)
    partials = [*measure(shards, None)]
    begins = [*accumulate((len(partial.feeds) for partial in partials), initial=0)]

    @lru_cache(maxsize=1)  # a single shard is in memory at a time
    def read_feeds(shard: int) -> list[dict[str, Array]]:
        calls = read_shard(_data_of(settings), shards[shard])
        return recordings.read_feeds(settings.judge, calls)

    def read_feed(number: int) -> dict[str, Array]:
        shard = bisect_right(begins, number) - 1
        return read_feeds(shard)[number - begins[shard]]

    def answer(number: int) -> list[Array]:
        with settings.judge.open(trust=settings.trust) as source:
            source.restart()
            return trials.run_judge(settings, source, read_feed(number))

    feeds, exact = _Lazy(begins[-1], read_feed), _Lazy(begins[-1], answer)
    sizes = [size for partial in partials for size in partial.sizes]
    shapes = [shape for partial in partials for shape in partial.feeds]
    trial = _ShardedTrial(feeds, exact, sizes, shapes=shapes)
    return _ShardedComparison(settings, trial, (), shards, measure, partials, [*partials])


class _Lazy(Sequence[_Value]):
    """Values by the number of a feed, each made on request."""

    def __init__(self, count: int, make: Callable[[int], _Value]) -> None:
        self._numbers, self._make = range(count), make

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> _Value: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[_Value]: ...
    def __getitem__(self, number: int | slice) -> Any:
        numbers = self._numbers[number]
        return [*map(self._make, numbers)] if isinstance(numbers, range) else self._make(numbers)


@dataclass(frozen=True, slots=True)
class _ShardedTrial(Trial):
    """A trial with feeds and exact answers made on request; `shapes` are complete."""

    shapes: Sequence[dict[str, tuple[int, ...]]] = ()

    def count_values(self, number: int) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes[number].values())


@dataclass(frozen=True)
class _ShardedComparison(Comparison):
    """A comparison made of partials; partials of different bounds are measured again on request."""

    shards: Sequence[Shard]
    measure: Measure
    partials: Sequence[Partial]
    #: The partials by the bounds that were asked for last.
    latest: list[Partial]

    @property
    def first_gaps(self) -> Sequence[list[float]]:
        return [gaps for partial in self.partials for gaps in partial.gaps]

    def shapes_of_feeds(self) -> Sequence[dict[str, tuple[int, ...]]]:
        return [shapes for partial in self.partials for shapes in partial.feeds]

    @property
    def shapes(self) -> Sequence[Sequence[tuple[int, ...]]]:
        return [shapes for partial in self.partials for shapes in partial.shapes]

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        dtypes = (dtype_of(name) for name in self.partials[0].dtypes)
        return [end_to_end.bound_dtype(dtype, self.settings.dtype) for dtype in dtypes]

    def differences(self, bounds: Bounds) -> Sequence[Sequence[compare.OutputDifference]]:
        others = [k for k, partial in enumerate(self.latest) if partial.bounds != bounds]
        again = self.measure([self.shards[k] for k in others], bounds) if others else iter(())
        for k, partial in zip(others, again, strict=True):
            self.latest[k] = partial
        return [differences for partial in self.latest for differences in partial.differences]

    def spread(self, output: str) -> float:
        every = [ranges[output] for partial in self.partials for ranges in partial.ranges]
        known = [bounds for bounds in every if bounds is not None]
        return max(high for _, high in known) - min(low for low, _ in known) if known else 0.0


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of a name, bfloat16 too."""
    if name == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(name)
