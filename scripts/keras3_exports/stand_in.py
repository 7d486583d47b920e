"""Runs the path that Keras takes on a GPU, with cuDNN's op stood in for by its equations in float64.

So the answers of the CPU's path are seen to be those of the model that is saved: lengths, reversed steps and
last states, which the two paths find in different ways, included.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from .case import Case, Signature
from .fixture import Answers
from .raw_reference import Shape, evaluate

#: By the answers' type; the CPU's path rounds at every step where this rounds once.
TOLERANCES = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def check(case: Case, fed: Answers, answers: Answers, dtype: str) -> None:
    """The model, built for a GPU, called with each feed of its first signature; `dtype` is its ops'."""
    name, signature = next(iter(case.signatures.items()))
    count = itertools.count()
    op = functools.partial(cudnn_rnn_v3, count)
    keras_2 = mock.patch.object(tf.compat.v2.raw_ops, "CudnnRNNV3", op)
    with keras_2, mock.patch.object(tf.raw_ops, "CudnnRNNV3", op):
        for number, (feed, expected) in enumerate(zip(fed[name], answers[name], strict=True)):
            values = {end: tf.constant(value) for end, value in feed.items()}
            found = case.model(values if len(values) > 1 else next(iter(values.values())))
            named = found if isinstance(found, dict) else {next(iter(expected)): found}
            assert set(named) == set(expected)
            for end, value in named.items():
                seen = np.asarray(tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value)
                compare(signature, number, end, (seen, expected[end]), TOLERANCES[dtype])
    assert next(count) >= len(fed[name]) * len(signature.recurrences) // 2, "Keras went another way"


def compare(
    signature: Signature, number: int, end: str, values: tuple[np.ndarray, np.ndarray], tolerance: float
) -> None:
    """Everywhere, but for a masked output only at its valid steps; past them a recurrence's own is zero."""
    seen, expected = values
    assert seen.shape == expected.shape
    assert seen.dtype == expected.dtype
    valid = np.ones(seen.shape[:2], dtype=bool)
    if end in signature.per_step:
        valid = np.arange(seen.shape[1]) < np.array(signature.lengths[number])[:, None]
    np.testing.assert_allclose(seen[valid], expected[valid], rtol=tolerance, atol=tolerance, err_msg=end)
    assert end not in signature.zero_past_length or not seen[~valid].any()


def cudnn_rnn_v3(
    count: Iterator[int],
    *,
    input: Any,  # noqa: A002 - the op's own name
    input_h: Any,
    input_c: Any,
    params: Any,
    sequence_lengths: Any,
    rnn_mode: str = "lstm",
    time_major: bool = True,
    is_training: bool = True,
) -> tuple[Any, ...]:
    """One layer, one direction: that is how Keras calls the op. The last two outputs are for gradients."""
    major, shape = (1, 0, 2), Shape(rnn_mode, input_h.shape[-1], input.shape[-1], 1, 1)

    def computed(x: Any, h: Any, c: Any, blob: Any, lengths: Any) -> list[np.ndarray]:
        next(count)
        kind = x.dtype
        if not time_major:
            x, h, c = (value.transpose(major) if value.ndim else value for value in (x, h, c))
        start = np.stack([h, c if rnn_mode == "lstm" else np.zeros_like(h)])
        found = evaluate(shape, blob, x, start, lengths)
        return [(value if time_major else value.transpose(major)).astype(kind) for value in found]

    arguments = [input, input_h, input_c, params, sequence_lengths]
    y, last_h, last_c = tf.numpy_function(computed, arguments, 3 * [input.dtype])
    y.set_shape([*input.shape[:2], shape.units])
    last_h.set_shape(input_h.shape)
    last_c.set_shape(input_h.shape)
    return y, last_h, last_c, None, None
