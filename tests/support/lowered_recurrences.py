"""Recurrences computed in TensorFlow ops, beside the reference; and ONNX Runtime for lowered models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import tensorflow as tf

from cudnn_convert.lower.tensorflow import layer_stack, while_loop
from cudnn_convert.model import Array, Cell
from support.cases import BATCH, STEPS, Case, swapped

#: (steps, batch): many and few steps, fewer rows than steps and more, and a run without any. Of 10 steps an
#: iteration: some and two odd ones, none odd, all odd.
SHAPES = ((STEPS, BATCH), (2, 5), (1, 1), (0, 2), (22, 3), (20, 2))


def run(
    case: Case, compute: Callable[..., Any], arrays: Sequence[Any], shape: tuple[int, int]
) -> tuple[list[Array], list[Array]]:
    """What a function as `body.stack` gives it makes of random feeds, and the reference; both time-major."""
    feeds, turn = case.feeds(*shape), (lambda value: value) if case.time_major else swapped
    x, h, c = (tf.constant(turn(feeds[key])) for key in ("x", "h", "c"))
    expected = case.expected(feeds)
    found = compute(x, h, c, feeds.get("lengths"), *map(tf.constant, arrays))
    return [turn(value.numpy()) for value in found[: len(expected)]], expected


def judged(
    case: Case, compute: Callable[..., Any], arrays: Sequence[Any], shapes: Iterable[tuple[int, int]] = SHAPES
) -> None:
    for shape in shapes:
        for found, expected in zip(*run(case, compute, arrays, shape), strict=True):
            assert found.dtype == case.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def cells(case: Case) -> list[Cell]:
    return [cell for layer in case.recurrence().cells for cell in layer]


def stored(case: Case, *, block: bool) -> list[Array]:
    return [value for cell in cells(case) for value in layer_stack.layer_weights(cell, block=block).values()]


def looped(case: Case, together: Sequence[int], many: int | None = None) -> layer_stack.Stack:
    """The loop over steps, `together` of them an iteration; a plain one from `many` rows on."""
    layer = partial(while_loop.layer, together=together, many=many)
    each = len(while_loop.weights(cells(case)[0]))
    return layer_stack.stack_layers(case.sizes, layer, each, time_major=case.time_major)


def session(model: Any) -> Any:
    """ONNX Runtime with a model, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
