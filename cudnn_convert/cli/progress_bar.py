"""A progress line on stderr for work that takes over a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Final

from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from cudnn_convert.context import Listener

#: Seconds in which nothing is shown.
_AFTER: Final = 1.0
#: The step whose amounts are bytes.
_BYTES: Final = "writing"


@contextmanager
def show_progress() -> Iterator[Listener]:
    """A listener whose last word is a line on stderr, from when this context is a second old to its end."""
    line = _Line()
    try:
        yield line.at
    finally:
        line.end()


class _Console(Console):
    """Leaves the cursor where it can be seen: a process that is killed could not bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Share(ProgressColumn):
    """A bar and the amounts, where they are known."""

    _bar = BarColumn(bar_width=24)

    def render(self, task: Task) -> RenderableType:
        return self._bar.render(task) if task.total else Text()


class _Amount(ProgressColumn):
    """Bytes, or a number, of how many."""

    def render(self, task: Task) -> RenderableType:
        if not task.total:
            return Text()
        unit = decimal if task.description == _BYTES else str
        return Text(f"{unit(int(task.completed))} of {unit(int(task.total))}")


class _Time(ProgressColumn):
    """What is left where that can be told, else what has passed."""

    _left, _passed = TimeRemainingColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> RenderableType:
        return self._left.render(task) if task.total else self._passed.render(task)


class _Line:
    """The line; `at` and `end` belong to the thread that works, another draws it."""

    def __init__(self) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
        self._progress = Progress(
            *(*columns, _Share(), _Amount(), _Time()),
            console=_Console(stderr=True),
            refresh_per_second=5,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._step, self._ended, self._lock = "", False, Lock()
        self._timer = Timer(_AFTER, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def at(self, step: str, done: int = 0, total: int = 0) -> None:
        """The listener."""
        if step != self._step:
            self._step = step
            self._progress.reset(self._task, total=None, description=step)
        self._progress.update(self._task, completed=done, total=total or None)

    def end(self) -> None:
        """Takes the line away, or sees to it that none comes."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            self._progress.stop()

    def _begin(self) -> None:
        with self._lock:
            if not self._ended:
                self._progress.start()
