"""Ambient settings of a call: limits on files, progress, silence.

What a file may ask of the machine: claims above these limits are refused in one line.

Each has a default that no model we know of comes near, and `--limit NAME=NUMBER` changes it. They hold where
they are set (`within`) and need not be handed through every function that reads.

How far the work is, and on which file: told by what does it, heard by a listener.

A library does not talk, nor does what it runs, and it does not mind what its caller is in the middle of.

TensorFlow's and tf2onnx's loggers are held at errors while it works. ONNX Runtime reports nothing about this
machine: from 1.29 on it sends events over the network unless told not to before its import. TensorFlow runs
ops at once while it works, and sizes are numbers, also where the caller is building a graph or has turned
TensorFlow 2 off.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Protocol

from cudnn_convert.errors import UsageError

_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: What bounds the process of a command, and so has no meaning in a process of the caller's.
OF_PROCESS: Final = frozenset({"memory", "seconds", "file"})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits, by the names that `--limit` takes."""

    #: Bytes that the process of a command may allocate; None: the machine's, or the container's.
    memory: int | None = None
    #: How long a command may take.
    seconds: int = 3600
    #: Bytes of any one file that a command writes.
    file: int = 1 << 38
    #: Bytes that a compressed part of a file may always become.
    expanded: int = 1 << 28
    #: How many times its stored bytes a larger part may become.
    expansion: int = 100
    #: Nodes of a graph once its functions are laid flat.
    nodes: int = 1 << 20

    @classmethod
    def of(cls, given: Sequence[str]) -> Limits:
        """The limits, each `NAME=NUMBER` in place; a number may end in K, M, G or T. Raises UsageError."""
        names = [field.name for field in fields(cls)]
        changes = {}
        for item in given:
            name, equals, value = item.partition("=")
            if name not in names or not equals:
                expected = f"NAME=NUMBER with a NAME of {', '.join(names)}"
                raise UsageError(f"--limit: expected {expected}, found {item!r}")
            changes[name] = _number(name, value)
        return replace(cls(), **changes)


def _number(name: str, text: str) -> int:
    digits, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    number = int(digits) * unit if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
    if not 0 < number < 1 << 63:
        raise UsageError(f"--limit {name}: expected a number such as 100 or 8G, found {text!r}")
    return number


def machine_memory() -> int | None:
    """Bytes of memory that this process may use at most; None where the system does not say."""
    amounts = []
    with suppress(OSError, ValueError, AttributeError):
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # of a container; "max" where it has no limit
        amounts.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(amounts, default=None)


def is_bomb(size: int, stored: int) -> bool:
    """Whether `size` bytes are more than the limits let a part of so few `stored` bytes become."""
    limits = current()
    return size > limits.expanded and size > limits.expansion * stored


def raising(size: int) -> str:
    """What to do where a part of a file is large on purpose."""
    return f"if that is meant, give --limit expanded={size}"


_CURRENT: Final[ContextVar[Limits]] = ContextVar("limits")


def current() -> Limits:
    """The limits that hold here."""
    return _CURRENT.get(Limits())


@contextmanager
def within(limits: Limits) -> Iterator[None]:
    """In this context these limits hold."""
    token = _CURRENT.set(limits)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class Listener(Protocol):
    """Takes the name of a step of the walk, and how much of it is done: 0 of 0 if unknown.

    The amounts of `writing` are bytes, those of `verifying` calls of a model. It is called by what works.
    """

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None: ...


def unheard(step: str, done: int = 0, total: int = 0) -> None:
    """The listener that ignores progress."""


_LISTENER: Final[ContextVar[Listener]] = ContextVar("progress", default=unheard)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """In this context `listener` is told."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report_progress(step: str, done: int = 0, total: int = 0) -> None:
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


#: Source: onnxruntime v1.29.0 docs/Privacy.md.
_NO_EVENTS: Final = "ORT_DISABLE_TELEMETRY"
_LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")
_STREAMS: Final = (1, 2)


@contextmanager
def silence() -> Iterator[None]:
    """Holds the loggers of the libraries underneath at ERROR, and leaves all as it was.

    But for ONNX Runtime's events, which stay off, unless the environment says otherwise.
    """
    os.environ.setdefault(_NO_EVENTS, "1")
    with ExitStack() as stack:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        if "tensorflow" in sys.modules:  # else nobody has built a graph yet
            from cudnn_convert.private import tf_private

            stack.enter_context(tf_private.eager_mode())
            stack.enter_context(_sizes_are_numbers())
        yield


@contextmanager
def _sizes_are_numbers() -> Iterator[None]:
    """A shape's items are so in TensorFlow 2; after `tf.disable_v2_behavior()` they are Dimensions."""
    import tensorflow as tf

    if isinstance(tf.TensorShape([1])[0], int):
        yield
        return
    tf.compat.v1.enable_v2_tensorshape()
    try:
        yield
    finally:
        tf.compat.v1.disable_v2_tensorshape()


class _Away:
    """Descriptors 1 and 2 while graphs run: the first who needs that puts them away, the last one back."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0
        self._kept: dict[int, int] = {}

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                _flush()
                for stream in _STREAMS:
                    with suppress(OSError):  # one that is closed stays so
                        self._kept[stream] = os.dup(stream)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                for stream in self._kept:
                    os.dup2(nowhere, stream)
                os.close(nowhere)

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                _flush()
                while self._kept:
                    stream, kept = self._kept.popitem()
                    os.dup2(kept, stream)
                    os.close(kept)


_AWAY: Final = _Away()


@contextmanager
def mute_output() -> Iterator[None]:
    """What is printed to descriptors 1 and 2 in this context goes nowhere, in the whole process.

    A graph may print what looks like a verdict, or until the disk is full (Print, PrintV2); these write past
    Python.
    """
    _AWAY.begin()
    try:
        yield
    finally:
        _AWAY.end()


def _flush() -> None:
    """What Python and C still hold for the descriptors goes where they lead now."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # none, closed, or nobody reads it
            stream.flush()
    with suppress(AttributeError, OSError, TypeError):  # Windows has no such library
        ctypes.CDLL(None).fflush(None)
