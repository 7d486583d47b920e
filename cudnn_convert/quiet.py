"""A library does not talk: TensorFlow's and tf2onnx's loggers are held at errors while it works."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

_LOGGERS: Final = ("tensorflow", "tf2onnx", "absl")


@contextmanager
def quiet() -> Iterator[None]:
    """Holds the loggers of the libraries underneath at ERROR, and leaves them as they were."""
    with ExitStack() as stack:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield
