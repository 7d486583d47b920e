"""Zeros of an open size: found through what moves elements, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, variable

from cudnn_convert.graph.index import Index
from cudnn_convert.graph.zeros import is_zeros
from cudnn_convert.model import InMemory


def zeros(x: Any) -> Any:
    return tf.zeros([1, tf.shape(x)[1], 2])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(zeros, True, id="open"),
        pytest.param(lambda x: tf.concat([zeros(x), tf.zeros_like(x)], 2), True, id="joined"),
        pytest.param(lambda x: tf.transpose(tf.tanh(zeros(x))), True, id="moved"),
        pytest.param(lambda _: tf.tile(variable("empty", [1, 2]), [3, 1]), True, id="variable"),
        pytest.param(lambda x: tf.concat([zeros(x), x], 2), False, id="half"),
        pytest.param(lambda x: tf.exp(zeros(x)), False, id="computed"),
        pytest.param(lambda _: variable("full", [1, 2]) + 0.0, False, id="values"),
        pytest.param(lambda _: variable("absent", [1, 2]) + 0.0, False, id="unknown"),
    ],
)
def test_zeros_are_known(make: Any, expected: bool) -> None:
    with drawing() as graph:
        name = make(placeholder("x")).name
    values = {name: InMemory(np.full([1, 2], value)) for name, value in (("empty", 0.0), ("full", 2.0))}
    assert is_zeros(Index(graph.as_graph_def()), name, values) == expected
