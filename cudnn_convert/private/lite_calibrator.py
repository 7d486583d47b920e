"""Lets TensorFlow Lite's converter calibrate on whole sequences.

A fused LSTM keeps its states in variables, and the converter's own calibration makes them zeros once, before
the first example. Here they are zeros before each.

Source: tensorflow v2.21.0 lite/python/lite.py (TFLiteConverterBase._quantize),
lite/python/optimize/calibrator.py, lite/python/optimize/calibration_wrapper.cc (Prepare).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tensorflow.lite.python.optimize import calibrator


@contextmanager
def calibrate_sequences(before: Callable[[bytes], bytes], after: Callable[[bytes], bytes]) -> Iterator[None]:
    """Let a converter calibrate on whole sequences, within the context.

    `before` changes the file of floats before the examples are run, `after` the same file with the ranges.
    """

    class Calibrator(calibrator.Calibrator):  # type: ignore[misc]
        def __init__(self, content: bytes, *settings: Any) -> None:
            super().__init__(before(content), *settings)

        def _feed_tensors(self, make_examples: Callable[[], Iterable[Any]], resize_input: bool) -> None:
            def begin_each() -> Iterator[Any]:
                for example in make_examples():
                    self._calibrator.Prepare()
                    yield example

            super()._feed_tensors(begin_each, resize_input)

        def calibrate(self, make_examples: Callable[[], Iterable[Any]]) -> bytes:
            return after(super().calibrate(make_examples))

    with patch.object(calibrator, "Calibrator", Calibrator):
        yield
