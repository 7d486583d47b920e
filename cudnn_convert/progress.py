"""How far the work is, and on which file: told by what does it, heard by a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


#: Takes the path of the file that is worked on, "" for the source.
Marker = Callable[[str], None]
_MARKER: Final[ContextVar[Marker]] = ContextVar("marker", default=lambda _: None)


def mark_with(marker: Marker) -> None:
    """From here on `marker` is told which file is worked on."""
    _MARKER.set(marker)


@contextmanager
def on(artifact: object) -> Iterator[None]:
    """In this context an artifact is worked on, not the source: if native code crashes, on this file."""
    mark = _MARKER.get()
    mark(str(artifact))
    try:
        yield
    finally:
        mark("")
