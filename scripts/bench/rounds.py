"""Everything in turn: blocks of some calls, in an order that is drawn anew for every round."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

#: Seconds that a block takes, at least one call: its fastest is likely to have had the core to itself, for
#: neighbours on a shared machine come and go within milliseconds.
BLOCK: Final = 50e-3
#: Seconds before a block: threads of other runtimes that wait by spinning have gone to sleep then.
PAUSE: Final = 22e-3
_WARM: Final = 3
#: What is to be said of a round wherever its times are shown; the pause and the block in milliseconds.
TOLD: Final = {"pause": round(PAUSE * 1e3), "block": round(BLOCK * 1e3), "counts": "the fastest call"}


def timed(
    calls: Mapping[str, Callable[[], Any]], *, rounds: int, seconds: float, chance: random.Random
) -> dict[str, list[float]]:
    """The microseconds of the fastest call of each round, by name; a call is complete when it returns.

    What else runs on a machine only ever makes a call slower (Python 3.13, Lib/timeit.py, Timer.repeat).
    There are at least so many rounds, and as many as begin within so many seconds: short calls, whose times
    vary most, have more.
    """
    counts = {name: max(1, round(BLOCK / _shortest(call, _WARM))) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    names, rest = sorted(calls), rounds
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        while rest > 0 or time.perf_counter() - start < seconds:
            rest -= 1
            chance.shuffle(names)
            for name in names:
                time.sleep(PAUSE)
                calls[name]()
                found[name].append(round(_shortest(calls[name], counts[name]) * 1e6, 2))
    finally:
        gc.enable()
    return found


def _shortest(call: Callable[[], Any], count: int) -> float:
    """The seconds of the fastest of so many calls."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
