"""States of cuDNN nodes as inputs and outputs: in which axes, and with which default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, variable

from cudnn_convert.graph.graph import Graph, extract_nodes, import_graph
from cudnn_convert.graph.passes import stream_states
from cudnn_convert.values import StreamState

#: Two layers of three units.
DEPTH, UNITS, INPUTS = 2, 3, 4


def drawn(initial: Any, *, time_major: bool, batch: int | None = None) -> Graph:
    """`x` -> `rnn`, a GRU, whose initial state is what `initial` makes of the input."""
    shape = (None, batch, INPUTS) if time_major else (batch, None, INPUTS)
    with drawing() as graph:
        x = placeholder("x", shape)
        tf.raw_ops.CudnnRNNV3(
            input=x, input_h=initial(x), input_c=tf.zeros([]), params=variable("blob", [99]), rnn_mode="gru",
            sequence_lengths=tf.fill([2], 5), is_training=False, time_major=time_major, name="rnn",
        )  # fmt: skip
    return Graph(graph.as_graph_def())


def changed(graph: Graph, *, time_major: bool, defaults: bool = False) -> Graph:
    state = StreamState(
        *("rnn", "h", time_major, "gru_h", "gru_h_next", "gru_h:0", "gru_h_next:0"),
        *(DEPTH, UNITS, "gru_h_begin:0"),
    )
    return stream_states.stream_states(graph, [state], defaults=defaults)


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("batch", [None, 4])
def test_a_state_has_its_layers_first_in_any_axes(time_major: bool, batch: int | None) -> None:
    def zeros(x: Any) -> Any:
        return tf.zeros([DEPTH, 4, UNITS] if time_major else [4, DEPTH, UNITS])

    made = changed(drawn(zeros, time_major=time_major, batch=batch), time_major=time_major)
    for name in ("gru_h:0", "gru_h_next:0"):
        assert made.shapes.get_tensor_by_name(name).shape.is_compatible_with([DEPTH, batch, UNITS])
    assert made.shapes.get_tensor_by_name("gru_h:0").shape.as_list() == [DEPTH, batch, UNITS]
    h = made.shapes.get_operation_by_name("rnn").inputs[1]
    assert h.shape.as_list() == ([DEPTH, batch, UNITS] if time_major else [batch, DEPTH, UNITS])


def of_each_layer(x: Any) -> np.ndarray:
    """The same in each of four rows, another in each layer."""
    return np.tile(np.arange(6, dtype=np.float32).reshape(DEPTH, 1, UNITS), [1, 4, 1])


def of_each_row(x: Any) -> np.ndarray:
    return np.arange(24, dtype=np.float32).reshape(DEPTH, 4, UNITS)


@pytest.mark.parametrize(
    ("initial", "rows"), [(of_each_layer, 7), (of_each_row, 4)], ids=["rows alike", "rows that differ"]
)
@pytest.mark.parametrize("time_major", [True, False])
def test_a_default_is_what_the_source_begins_with(initial: Any, rows: int, time_major: bool) -> None:
    """For any number of rows where all begin alike."""

    def begun(x: Any) -> Any:
        value = initial(x)
        return tf.constant(value if time_major else value.swapaxes(0, 1))

    made = changed(drawn(begun, time_major=time_major), time_major=time_major, defaults=True)
    needed = extract_nodes(made, made.index.ancestors(["gru_h"]))
    x = np.zeros([5, rows, INPUTS] if time_major else [rows, 5, INPUTS], np.float32)
    with tf.compat.v1.Session(graph=import_graph(needed)) as session:
        value = session.run("gru_h:0", {"x:0": x} if "x" in needed.index.nodes else {})
        np.testing.assert_array_equal(
            value, np.tile(initial(x)[:, :1], [1, 7, 1]) if rows == 7 else initial(x)
        )
        given = np.ones([DEPTH, 2, UNITS], np.float32)
        np.testing.assert_array_equal(session.run("gru_h:0", {"gru_h:0": given}), given)
