"""A library does not talk, and does not mind what its caller is in the middle of.

TensorFlow's and tf2onnx's loggers are held at errors while it works. ONNX Runtime reports nothing about this
machine: from 1.29 on it sends events over the network unless told not to before its import. TensorFlow runs
ops at once while it works, and sizes are numbers, also where the caller is building a graph or has turned
TensorFlow 2 off.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

#: Source: onnxruntime v1.29.0 docs/Privacy.md.
_NO_EVENTS: Final = "ORT_DISABLE_TELEMETRY"
_LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")


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
