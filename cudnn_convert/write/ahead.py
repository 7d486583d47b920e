"""Making one thing while the one before is written: reading and arithmetic beside the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items; each is made in another thread while its predecessor is used. Raises what making them does.

    Two are in memory at a time. Whoever stops early waits for the one that is being made.
    """
    made, context = iter(items), copy_context()

    def following() -> list[T]:
        return list(islice(made, 1))

    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(context.run, following)
        while item := coming.result():
            coming = maker.submit(context.run, following)
            yield item[0]
