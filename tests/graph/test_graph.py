"""Functions that nothing calls leave a graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.graph.graph import Graph, drop_uncalled_functions, prune


def functions_of(*kept: str) -> tuple[Graph, list[str]]:
    """A graph that calls one of two functions, which calls a third; and the names that are left."""

    @tf.function
    def inner(x: Any) -> Any:
        return tf.tanh(x)

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) * 2.0

    @tf.function
    def other(x: Any) -> Any:
        return x + 1.0

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3], "x")
        tf.identity(outer(x), "y")
        tf.identity(other(x), "z")
    source = Graph(graph.as_graph_def())
    left = drop_uncalled_functions(prune(source, kept))
    return source, sorted(name.strip("_").split("_")[1] for name in left.functions)


def test_what_is_called_by_calls_stays() -> None:
    source, left = functions_of("y:0")
    assert left == ["inner", "outer"]
    assert len(source.functions) == 3
    assert functions_of("z:0")[1] == ["other"]
    assert functions_of("x:0")[1] == []


def test_a_graph_without_others_is_the_same() -> None:
    source, left = functions_of("y:0", "z:0")
    assert left == ["inner", "other", "outer"]
    assert drop_uncalled_functions(source) is source


def test_a_function_that_tensorflow_may_call_in_anothers_place_stays() -> None:
    source, _ = functions_of("y:0")
    functions = []
    for name, each in source.functions.items():
        copied = type(each)()
        copied.CopyFrom(each)
        if "inner" not in name:
            copied.attr["api_implements"].s = b"one"
        functions.append(copied)
    marked = prune(Graph(source, source.node, functions), ["y:0"])
    assert len(drop_uncalled_functions(marked).functions) == 3
