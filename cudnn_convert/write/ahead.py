"""Making things while those before them are written: reading and arithmetic beside the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
