"""Frozen graphs as artifacts: their provenance, constants and answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.artifacts import frozen
from cudnn_convert.formats import FROZEN_KEY
from cudnn_convert.model import SERVING, Part, Signature


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        tf.multiply(x, tf.constant([3.0], name="three"), "y")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return tmp_path / "model.pb"


def test_tensors_are_found_by_the_names_of_the_signature(path: Path) -> None:
    part = Part(SERVING, Signature({"feed": "x:0"}, {"answer": "y:0"}))
    (run,) = frozen.open_parts(path, [part], None)
    (answer,) = run({"feed": np.array([1, 2], np.float32)}).values()
    np.testing.assert_array_equal(answer, [3, 6])


def test_its_constants_are_listed(path: Path) -> None:
    assert {name: value.tolist() for name, value in frozen.arrays(path)} == {"three": [3.0]}


def test_only_a_graph_that_carries_it_has_provenance(path: Path) -> None:
    assert frozen.provenance(path) is None
    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    assert FROZEN_KEY not in graph.node[0].attr
    path.write_bytes(b"no graph")
    assert frozen.provenance(path) is None
