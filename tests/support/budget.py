"""The CPU seconds that the first tier may take.

A loop of additions is timed before the tests and after them, and a run's seconds are divided by the loop's.
That takes out the speed of the processor. It does not take out that of its memory.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

#: CPU seconds that the first tier may take on the machine of `LOOP`, beside the models of `samples.REAL`.
#: 2,058 were measured. It is to come down, never to go up.
SECONDS = 2100
#: CPU seconds of `time_loop` there (AMD EPYC 7003, two cores), by Python's minor version.
LOOP = {10: 1.85, 11: 1.3, 12: 1.9, 13: 2.05}
#: A run that is dearer by more than this share of the budget fails where `--within-budget` is given. One
#: machine took 1,042 CPU seconds on a day and 1,397 on another, for tests that were a twentieth more, while
#: the loop took 0.58 and 0.60 s: the loop does not see other users of the memory.
EXCESS = 0.6


def time_loop() -> float:
    """CPU seconds of 20 million additions: twenty times the median of seven rounds of a million."""
    return 20 * statistics.median(_time_million() for _ in range(7))


def _time_million() -> float:
    begin = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - begin


@dataclass(frozen=True)
class Cost:
    """What a run took, and the loop before and after it: CPU seconds."""

    seconds: float
    loops: tuple[float, float]

    @property
    def scaled(self) -> float:
        """CPU seconds that the run would have taken on the machine of `LOOP`."""
        return self.seconds * LOOP[sys.version_info.minor] / statistics.mean(self.loops)

    @property
    def is_over(self) -> bool:
        return self.scaled > SECONDS

    @property
    def is_refused(self) -> bool:
        return self.scaled > SECONDS * (1 + EXCESS)

    def describe(self) -> str:
        """The line that a run prints."""
        loops = " and ".join(f"{loop:.2f}" for loop in self.loops)
        verdict = "over the budget" if self.is_over else "within the budget"
        return (
            f"CPU seconds: {self.seconds:.0f}, a loop before and after: {loops} s; "
            f"{self.scaled:.0f} where the loop takes {LOOP[sys.version_info.minor]:.2f} s: "
            f"{verdict} of {SECONDS}"
        )
