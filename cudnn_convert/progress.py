"""How far the work is: told by what does it, heard by whoever listens, handed on by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol


class Listener(Protocol):
    """Takes the name of a step of the walk, and how much of it is done: 0 of 0 where nobody knows.

    The amounts of `writing` are bytes, those of `verifying` calls of a model. It is called by what works.
    """

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None: ...


def unheard(step: str, done: int = 0, total: int = 0) -> None:
    """Progress that nobody wants to see."""


_LISTENER: Final[ContextVar[Listener]] = ContextVar("progress", default=unheard)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """In this context `listener` is told."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def at(step: str, done: int = 0, total: int = 0) -> None:
    """Says that `step` is being done, and `done` of `total` in it."""
    _LISTENER.get()(step, done, total)
