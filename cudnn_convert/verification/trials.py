"""Trials: feeds, and the source's exact answers to each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report.values import OpDifference
from cudnn_convert.verification.judges import RunningSource
from cudnn_convert.verification.settings import Settings

#: The turns of a proof, in each of which every feed is run: the source, the artifact, the source once more
#: for its noise, and the recurrences by themselves, which take about as long.
_TURNS: Final = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """Feeds by tensor, and the source's exact answers to each: the tensors `Settings.wanted`.

    `sizes` are the (time, batch) that each recurrence saw, feed by feed. `moved` has by recurrence the keys
    of the outputs that move when what it gives is disturbed. `influence` is how far other rows of a
    batch move the answer to one, by the key of an output. `other_layer` is a layer of the source that was
    traced to something else than what its Keras computes.
    """

    feeds: Sequence[dict[str, Array]]
    exact: Sequence[Sequence[Array]]
    sizes: Sequence[Sequence[tuple[int, int]]]
    moved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    influence: Mapping[str, float] = field(default_factory=dict)
    other_layer: OpDifference | None = None

    def count_values(self, number: int) -> int:
        """Return the number of values of a feed."""
        return sum(value.size for value in self.feeds[number].values())

    def find_smallest(self) -> int:
        """Return the number of the feed with the fewest values."""
        return min(range(len(self.feeds)), key=self.count_values)


def report_turn(turn: int, number: int, feeds: Sequence[Any]) -> None:
    """Report `number` finished feeds of a turn."""
    context.report_progress("verifying", turn * len(feeds) + number, _TURNS * len(feeds))


def count_feeds(feeds: Sequence[dict[str, Array]], turn: int) -> Iterator[dict[str, Array]]:
    """Yield the feeds of a turn, and report progress."""
    for number, feed in enumerate(feeds):
        report_turn(turn, number, feeds)
        yield feed


def run_judge(settings: Settings, source: RunningSource, feed: Mapping[str, Array]) -> list[Array]:
    """Run the source on a feed, part by part where state is kept."""
    plan, wanted = settings.plan, settings.wanted
    if len(plan.parts) == 1 or not plan.states:
        return source.run(feed, wanted)
    ends = {*plan.signature.outputs.values()}
    answers: dict[str, Array] = {}
    for part in plan.parts:
        own = {*part.signature.outputs.values()}
        names = [name for name in wanted if name in own or name not in ends]
        answers |= zip(names, source.run(feed, names), strict=True)
    return [answers[name] for name in wanted]


def try_feeds(
    settings: Settings,
    source: RunningSource,
    feeds: Sequence[dict[str, Array]],
    turn: Iterable[dict[str, Array]] | None = None,
) -> Trial:
    """Run the source on each feed from the first state on; `turn` counts the feeds."""
    source.restart()
    exact, sizes = [], []
    for feed in turn or feeds:
        exact.append(run_judge(settings, source, feed))
        sizes.append([*source.sizes])
    return Trial(feeds, exact, sizes)


def by_key(plan: Plan, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Return a feed by tensor as a feed by the plan's keys."""
    keys = {name: key for key, name in plan.signature.inputs.items()}
    return {keys[name]: value for name, value in feed.items()}
