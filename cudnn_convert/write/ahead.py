"""Making things while those before them are written, and writing several at a time: beside the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """The items; up to `count` are made in another thread while one is used. Raises what making them does.

    So many and one are in memory at a time. Whoever stops early waits for the one that is being made.
    """
    made, context = iter(items), copy_context()

    def following() -> list[T]:
        return list(islice(made, 1))

    with ThreadPoolExecutor(1) as maker:
        coming = deque(maker.submit(context.run, following) for _ in range(count))
        try:
            while item := coming.popleft().result():
                coming.append(maker.submit(context.run, following))
                yield item[0]
        finally:
            for future in coming:
                future.cancel()


def together(calls: Iterable[Callable[[], T]], count: int) -> Iterator[T]:
    """What the calls give, in their order; up to `count` of them run at a time. Raises what they do.

    One more call waits. Whoever stops early, or finds that one failed, waits for those that run.
    """
    with ThreadPoolExecutor(count) as workers:
        running = deque[Future[T]]()
        for call in calls:
            if len(running) == count:
                yield running.popleft().result()
            running.append(workers.submit(call))
        while running:
            yield running.popleft().result()
