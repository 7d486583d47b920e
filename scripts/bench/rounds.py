"""Everything in turn: blocks of calls, in an order drawn anew for every round; processes round by round."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

#: Seconds that a block takes, at least one call: its fastest is likely to have had the core to itself, for
#: neighbours on a shared machine come and go within milliseconds.
BLOCK: Final = 50e-3
#: Seconds before a block: threads of other runtimes that wait by spinning have gone to sleep then.
PAUSE: Final = 22e-3
_WARM: Final = 3
#: What is to be said of a round wherever its times are shown; the pause and the block in milliseconds.
TOLD: Final = {"pause": round(PAUSE * 1e3), "block": round(BLOCK * 1e3), "counts": "the fastest call"}

_ROUND: Final = b"r"
_END: Final = b"e"
_ENDED: Final = "bench: a process that measured beside this one has ended"


class Ring:
    """Processes that measure in turn: each does a round and waits while the others do theirs.

    `get` is the descriptor of a pipe that a process reads its turn from, `give` that of the next process's.
    The first one decides how many rounds there are. Raises SystemExit where another process has ended early.
    """

    def __init__(self, get: int, give: int, *, first: bool) -> None:
        self.get, self.give, self.first = get, give, first

    @classmethod
    def of_one(cls) -> Ring:
        """A process that need not wait."""
        return cls(*os.pipe(), first=True)

    def rounds(self, least: int, seconds: float) -> Iterator[None]:
        """A turn for each round: at least so many, and as many as the first begins in so many seconds."""
        if not self.first:
            while (word := self._wait()) == _ROUND:
                yield
                self._pass(word)
            self._pass(word)
            return
        spent, count = 0.0, 0
        while count < least or spent < seconds:
            start = time.perf_counter()
            yield
            spent, count = spent + time.perf_counter() - start, count + 1
            self._pass(_ROUND)
            self._wait()
        self._pass(_END)
        self._wait()

    def _wait(self) -> bytes:
        if not (word := os.read(self.get, 1)):
            raise SystemExit(_ENDED)
        return word

    def _pass(self, word: bytes) -> None:
        try:
            os.write(self.give, word)
        except BrokenPipeError:
            raise SystemExit(_ENDED) from None


def timed(
    calls: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    seconds: float,
    chance: random.Random,
    ring: Ring | None = None,
) -> dict[str, list[float]]:
    """The microseconds of the fastest call of each round, by name; a call is complete when it returns.

    What else runs on a machine only ever makes a call slower (Python 3.13, Lib/timeit.py, Timer.repeat).
    There are at least so many rounds, and as many as begin within so many seconds: short calls, whose times
    vary most, have more. `ring`: the processes whose rounds stand between those of this one.
    """
    ring = ring or Ring.of_one()
    counts: dict[str, int] = {}
    for _ in ring.rounds(1, 0):
        counts = {name: max(1, round(BLOCK / _shortest(call, _WARM))) for name, call in calls.items()}
    micros: dict[str, list[float]] = {name: [] for name in calls}
    names = sorted(calls)
    gc.collect()
    gc.disable()
    try:
        for _ in ring.rounds(rounds, seconds):
            chance.shuffle(names)
            for name in names:
                time.sleep(PAUSE)
                calls[name]()
                micros[name].append(round(_shortest(calls[name], counts[name]) * 1e6, 2))
    finally:
        gc.enable()
    return micros


def _shortest(call: Callable[[], Any], count: int) -> float:
    """The seconds of the fastest of so many calls."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
