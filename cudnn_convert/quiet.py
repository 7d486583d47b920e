"""A library does not talk, nor does what it runs, and it does not mind what its caller is in the middle of.

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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

#: Source: onnxruntime v1.29.0 docs/Privacy.md.
_NO_EVENTS: Final = "ORT_DISABLE_TELEMETRY"
_LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")
_STREAMS: Final = (1, 2)


@contextmanager
def quiet() -> Iterator[None]:
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
            from tensorflow.python.eager import context

            stack.enter_context(context.eager_mode())
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
def muted() -> Iterator[None]:
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
