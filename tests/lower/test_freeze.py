"""Variables that become constants, and what a GraphDef has room for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import Case
from graphs import ops, placeholder, resource, variable

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import session
from cudnn_convert.model import Array, InMemory, Mode

#: 2 GiB less one MiB for all that is no weight.
MOST = 2**31 - 2**20


class UnreadError(Exception):
    pass


class Huge:
    """A tensor that is too much to hold, and says so when it is read."""

    dtype = np.dtype(np.float32)

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def read(self) -> Array:
        raise UnreadError


def of_one_variable(shape: tuple[int, ...]) -> Any:
    with tf.Graph().as_default() as graph:
        tf.identity(variable("w", shape), name="y")
    return graph.as_graph_def()


def test_weights_that_just_fit_are_read() -> None:
    shape = (2, MOST // 8)
    with pytest.raises(UnreadError):
        session.freeze_variables(of_one_variable(shape), {"w": Huge(*shape)}, ["y:0"])


def test_more_weights_than_fit_are_refused_unread() -> None:
    shape = (2, MOST // 8 + 1)
    with pytest.raises(UnsupportedModelError) as refused:
        session.freeze_variables(of_one_variable(shape), {"w": Huge(*shape)}, ["y:0"])
    assert refused.value.reasons == (
        f"expected under 2 GiB of weights, found {MOST + 8} bytes; choose --format savedmodel",
    )


@pytest.mark.parametrize("make", [variable, resource], ids=["reference", "resource"])
def test_a_variable_is_a_constant_of_its_value_in_a_graph_of_its_version(make: Any) -> None:
    value = np.array([[1.5, -2], [0.25, 8]], np.float32)
    with tf.Graph().as_default() as graph:
        held = make("w", value.shape)
        read = tf.raw_ops.ReadVariableOp(resource=held, dtype=tf.float32) if make is resource else held
        tf.matmul(placeholder("x", [None, 2]), read, name="y")
    given = graph.as_graph_def()
    given.versions.producer, given.versions.min_consumer = 27, 12
    made = session.freeze_variables(given, {"w": InMemory(value)}, ["y:0"])
    assert not {"VariableV2", "VarHandleOp", "ReadVariableOp"} & {*ops(made).values()}
    assert ops(made)["w"] == "Const"
    np.testing.assert_array_equal(
        tf.make_ndarray(next(node for node in made.node if node.name == "w").attr["value"].tensor), value
    )
    assert (made.versions.producer, made.versions.min_consumer) == (27, 12)


def test_without_variables_a_graph_stays_what_it_is() -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(placeholder("x"), name="y")
        tf.constant(1.0, name="beside")
    given = graph.as_graph_def()
    assert session.freeze_variables(given, {}, ["y:0"]) == given


def test_an_empty_constant_in_the_frame_of_the_node_stands_for_a_blob() -> None:
    case = Case(Mode.GRU, dtype="float64")
    graph, signature = case.graph()
    graph.node.add(name="rnn/parameters", op="NoOp")  # the name is taken
    made = session.without_parameters(graph, [case.recurrence()], signature.outputs.values())
    nodes = {node.name: node for node in made.node}
    assert "rnn/blob" not in nodes
    assert nodes["rnn"].input[3] == "rnn/parameters_1"
    empty = nodes["rnn/parameters_1"]
    value = tf.make_ndarray(empty.attr["value"].tensor)
    assert (value.shape, value.dtype) == ((0,), np.float64)
    assert [*empty.input] == ["^x"]
