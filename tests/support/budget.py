"""The CPU seconds that the first tier may take, on any machine.

Each process that runs tests times a fixed piece of work between them, all through the run. The CPU seconds of
the run, without this work, are divided by those of the work. A slower processor or memory makes both longer,
and so do others that use them meanwhile.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

#: CPU seconds that the first tier may take where `time_work` takes `WORK`.
SECONDS = 720
#: CPU seconds of `time_work` that `SECONDS` is for. Between tests it took 0.09 to 0.15 on two cores of an AMD
#: EPYC 9004, as others used the machine, and the first tier 6,600 to 8,000 times as long; on two cores of an
#: EPYC 7003, which have half of that cache each, 0.11 to 0.17 and 7,400 to 8,500 times.
WORK = 0.09
#: A run that is dearer by more than this share of the budget fails where `--within-budget` is given.
EXCESS = 0.2
#: CPU seconds of tests after which the work is timed again.
BETWEEN = 10.0
#: Nodes of the graph that `time_work` makes. They take more than a core's own cache, as the tests' graphs do.
_NODES = 2**16
#: With this multiplier and a summand of 1, every node comes once (the theorem of Hull and Dobell).
_STRIDE = 7917


def time_work() -> float:
    """CPU seconds that it takes to make a graph of small objects, to index it and to walk it."""
    collects = gc.isenabled()
    gc.disable()
    begin = time.process_time()
    nodes = [(f"node_{number}", [f"node_{(number * _STRIDE + 1) % _NODES}"]) for number in range(_NODES)]
    index, name, seen = dict(nodes), "node_1", set[str]()
    while name not in seen:
        seen.add(name)
        (name,) = index[name]
    seconds = time.process_time() - begin
    if collects:
        gc.enable()
    return seconds


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a run without its pieces of work, and of each piece."""

    seconds: float
    works: Sequence[float]

    @property
    def scaled(self) -> float:
        """CPU seconds that the run would have taken where the work takes `WORK`."""
        return self.seconds * WORK / statistics.mean(self.works)

    @property
    def is_over(self) -> bool:
        return self.scaled > SECONDS

    @property
    def is_refused(self) -> bool:
        return self.scaled > SECONDS * (1 + EXCESS)

    def describe(self) -> str:
        """The line that a run prints."""
        verdict = "over the budget" if self.is_over else "within the budget"
        mean = statistics.mean(self.works)
        return (
            f"CPU seconds: {self.seconds:.0f}, while a piece of work took {mean:.3f} s "
            f"({len(self.works)} times); {self.scaled:.0f} where it takes {WORK:.3f} s: "
            f"{verdict} of {SECONDS}"
        )
