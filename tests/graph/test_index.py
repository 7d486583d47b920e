"""The index of a graph: names that lead nowhere, and what no import takes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import unknown_attribute
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import index, node_defs, ops
from cudnn_convert.graph.graph import Graph, import_checked
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes import inlining
from cudnn_convert.model import Convention, Model
from cudnn_convert.recurrences import resolve, saved_functions

# Names that lead nowhere: told when they are needed, not before.


def test_a_node_that_is_not_there_is_named() -> None:
    found = Index(graph_pb2.GraphDef(node=[node_defs.node("a", "NoOp", ["^b"])]))
    assert list(found.nodes) == ["a"]
    assert "b" not in found.nodes
    assert found.nodes.get("b") is None
    with pytest.raises(InvalidModelError) as caught:
        found.nodes["b"]
    assert str(caught.value) == "node b: expected a node of the graph, found no node of this name"


@pytest.mark.parametrize(
    ("reference", "ends"),
    [
        *(
            ("a:1", ("a", 1)),
            ("a", ("a", 0)),
            ("^a", ("a", -1)),
            ("a:out:2", ("a:out", 2)),
            (":3", (":3", 0)),
        ),
        *(
            ("a:123456789", ("a", 123456789)),
            ("a:1234567890", ("a:1234567890", 0)),
            ("a:\u00b2", ("a:\u00b2", 0)),
        ),
    ],
)
def test_the_number_of_an_output(reference: str, ends: tuple[str, int]) -> None:
    assert index.split(reference) == ends


def test_outputs_that_are_read_and_waited_for() -> None:
    reader = node_defs.node("reader", "IdentityN", ["split:2", "split", "split:2", "^other"])
    read = Index(graph_pb2.GraphDef(node=[reader]))
    assert read.outputs_read("split") == {0, 2}
    assert read.outputs_read("other") == set()


@pytest.mark.parametrize("inputs", [["enter", "next"], ["next", "enter"]])
def test_a_circle_of_carriers_is_followed_once(inputs: list[str]) -> None:
    nodes = [("v", "VariableV2", []), ("enter", "RefEnter", ["v"]), ("merge", "RefMerge", inputs)]
    nodes += [("switch", "RefSwitch", ["merge", "p"]), ("next", "RefNextIteration", ["switch:1"])]
    graph = graph_pb2.GraphDef(node=[node_defs.node(*node) for node in nodes])
    found = Index(graph).maker("switch", ops.REFERENCE_PATHS).name
    assert found == "v" if inputs[0] == "enter" else found in ("merge", "switch", "next")


def test_what_is_kept_must_be_there_to_be_laid_flat() -> None:
    graph = graph_pb2.GraphDef(node=[node_defs.constant("one", np.asarray(1, np.float32))])
    with pytest.raises(
        InvalidModelError, match="graph: expected functions that can be inlined, found Failed"
    ):
        inlining.inline_functions(graph, ["one", "two"])


def test_what_no_import_takes_is_refused() -> None:
    graph = unknown_attribute()
    with pytest.raises(
        InvalidModelError, match=r"graph: expected nodes that TensorFlow \S+ can import, found"
    ):
        resolve.recurrences(Model("m", "a graph", graph, {}), Graph(graph))
    with pytest.raises(
        InvalidModelError, match=r"graph: expected nodes that TensorFlow \S+ can import, found"
    ):
        saved_functions.locate_packed_weights("m", graph, Convention())


@pytest.mark.parametrize("name", ["f", "g"])
def test_functions_of_one_name_are_refused(name: str) -> None:
    graph = graph_pb2.GraphDef(node=[node_defs.constant("one", np.asarray(1, np.float32))])
    for signature in ("f", name):
        function = graph.library.function.add()
        function.signature.name = signature
        function.node_def.add(name=f"node_{len(graph.library.function)}", op="NoOp")
    if name == "g":
        assert import_checked(graph).get_operation_by_name("one") is not None
    else:
        with pytest.raises(
            InvalidModelError, match="found Cannot add function 'f' because a different function"
        ):
            import_checked(graph)


def test_what_the_optimizer_does_not_find_is_told() -> None:
    """An Enter in a function: an import leaves what a function's body lacks to whoever calls it."""
    graph = graph_pb2.GraphDef(node=[node_defs.placeholder("x", tf.float32, tf.TensorShape([]))])
    function = graph.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="a", type=tf.float32.as_datatype_enum)
    function.signature.output_arg.add(name="b", type=tf.float32.as_datatype_enum)
    function.node_def.add(name="Identity", op="Enter", input=["a"]).attr["T"].type = 1
    function.ret["b"] = "Identity:output:0"
    call = node_defs.node("y", "PartitionedCall", ["x"], Tin=[tf.float32], Tout=[tf.float32])
    call.attr["f"].func.name = "f"
    graph.node.append(call)
    with pytest.raises(
        InvalidModelError, match="expected functions that can be inlined, found No attr named"
    ):
        inlining.inline_functions(graph, ["y"])
