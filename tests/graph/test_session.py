"""Sessions whose variables get their values from files."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.graph import session
from cudnn_convert.model import InMemory

v1 = tf.compat.v1


@pytest.mark.parametrize("together", [1, 40, 1 << 24], ids=["alone", "two in a run", "all in a run"])
def test_every_variable_has_its_value(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(session, "_TOGETHER", together)
    random = np.random.default_rng(5)
    values = {f"v{k}": random.normal(size=(2, k + 2)).astype(np.float32) for k in range(3)}
    with tf.Graph().as_default() as graph:
        for k, (name, value) in enumerate(values.items()):
            v1.get_variable(name, value.shape, use_resource=k != 1)
        reads = [variable.value().name for variable in v1.global_variables()]
    stored = {name: InMemory(value) for name, value in values.items()}
    with session.session(graph.as_graph_def(), stored) as running:
        seen = running.run(reads)
    for value, expected in zip(seen, values.values(), strict=True):
        np.testing.assert_array_equal(value, expected)
