"""Initial states whose sizes come from a recurrence's output: read from its input, they need it no more."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from support.graphs import BLOB, UNITS, drawing, lstm, placeholder

from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.passes.initial_sizes import read_initial_sizes
from cudnn_convert.graph.session import session


def test_zeros_take_their_rows_from_the_input() -> None:
    with drawing() as graph:
        y = lstm(placeholder("x"), BLOB).output
        tf.fill(tf.stack([1, tf.shape(y)[1], tf.shape(y)[2] * 3]), 0.5, name="first")
    source = Graph(graph.as_graph_def())
    name, nodes = read_initial_sizes(source, "first", "begin", {"rnn": UNITS})
    assert name == "begin/first"
    made = replace_nodes(source, {}, nodes)
    assert "rnn" not in made.index.ancestors([name])
    with session(made, {}) as running:
        found = running.run(f"{name}:0", {"x:0": np.zeros((4, 5, 3), np.float32)})
    np.testing.assert_array_equal(found, np.full((1, 5, 3 * UNITS), 0.5, np.float32))


def test_a_state_of_a_recurrences_values_stays() -> None:
    with drawing() as graph:
        y = lstm(placeholder("x"), BLOB).output
        tf.identity(y[-1:], name="last")
        tf.zeros([1, 2, UNITS], name="fixed")
    source = Graph(graph.as_graph_def())
    assert read_initial_sizes(source, "last", "begin", {"rnn": UNITS}) == ("last", [])
    assert read_initial_sizes(source, "fixed", "begin", {"rnn": UNITS}) == ("fixed", [])
