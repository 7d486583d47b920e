"""Functions as graphs, and back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.graph import function_graphs, node_defs
from cudnn_convert.graph.graph import Graph, copy_graph


def made() -> tuple[Any, dict[str, Any]]:
    """A function that reads the second output of an op, and its library."""

    @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32, "x")])
    def halves(x: Any) -> Any:
        return tf.split(x, 2)[1] + 1.0

    function = halves.get_concrete_function().function_def
    return function, {function.signature.name: function}


def test_a_body_is_a_graph_of_tensors_by_number() -> None:
    function, functions = made()
    nodes = {node.op: node for node in function_graphs.make_graph(function, functions).node}
    assert nodes["Placeholder"].name == function.signature.input_arg[0].name
    assert nodes["AddV2"].input[0] == f"{nodes['Split'].name}:1"


def test_a_graph_that_did_not_change_is_the_same_body() -> None:
    function, functions = made()
    again = function_graphs.with_body(function, function_graphs.make_graph(function, functions), functions)
    assert again.ret == function.ret
    assert [*again.node_def] == [*function.node_def]


def test_a_node_that_was_put_in_is_read_by_its_name() -> None:
    function, functions = made()
    body = copy_graph(function_graphs.make_graph(function, functions))
    (add,) = (node for node in body.node if node.op == "AddV2")
    body.node.append(node_defs.identity("between", add.input[0], add.attr["T"].type))
    add.input[0] = "between:0"
    changed = function_graphs.with_body(function, Graph(body), functions)
    nodes = {node.name: node for node in changed.node_def}
    assert nodes[add.name].input[0] == "between:output:0"
    assert nodes["between"].input[0].endswith(":output:1")
