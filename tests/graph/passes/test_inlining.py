"""Calls of functions laid flat: the same numbers and the same effects in the same order, and no call left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.graphs import BLOB, INPUTS, lstm, ops

from cudnn_convert.graph import control_flow
from cudnn_convert.graph import ops as op_sets
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, all_nodes, split
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.inlining import LOWERED
from cudnn_convert.model import Mode

v1 = tf.compat.v1


def run(
    graph: Any, fetches: list[str], feeds: list[dict[str, Any]], *, first: str | None = None
) -> list[Any]:
    """What the calls of a Session give, one after the other, once the op `first` has run."""
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(Graph.of(graph).definition, name="")
        if first is not None:
            session.run(first)
        return [session.run(fetches, feed) for feed in feeds]


def no_calls(graph: Any) -> bool:
    return not op_sets.CALLS & {*ops(graph).values()}


def test_calls_two_deep() -> None:
    inner = tf.function(lambda x: tf.add(3 * x, 1, name="line"))
    middle = tf.function(lambda x, y: (inner(x) * 2, inner(y)))
    outer = tf.function(lambda x: tf.subtract(*middle(x, x + 5), name="gap"))
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        y = tf.identity(outer(x), name="y")
    definition = graph.as_graph_def()
    assert inlining.needs_inlining(Graph(definition), [y.name])
    found = inlining.inline_functions(definition, [y.name])
    assert no_calls(found)
    assert not any(name.startswith("Func/") for name in ops(found))
    assert sum(name.endswith("/line") for name in ops(found)) == 2
    # 2 (3x + 1) - (3 (x + 5) + 1)
    ((answer,),) = run(found, ["y:0"], [{"x:0": [1.5, -2.0]}])
    np.testing.assert_array_equal(answer, [-9.5, -20.0])


def test_names_and_origins() -> None:
    inner = tf.function(lambda x: tf.multiply(x, 7.0, name="seven"))
    outer = tf.function(lambda x: tf.identity(inner(x), name="end"))
    with tf.Graph().as_default() as graph:
        made = outer(v1.placeholder(tf.float32, [], "x"))
    root = made.op.name
    library = {function.signature.name: function for function in graph.as_graph_def().library.function}
    found = inlining.inline_functions(graph.as_graph_def(), [made.name], origins=True)
    (seven,) = (node for node in found.node if node.name.endswith("/seven"))
    assert seven.name.startswith(f"{root}/")
    origin = inlining.origin(seven)
    assert origin is not None
    function, name = origin
    assert name == "seven"
    assert [node.op for node in library[function].node_def if node.name == name] == ["Mul"]
    assert inlining.origin(next(node for node in found.node if node.name == "x")) is None
    unmarked = inlining.inline_functions(graph.as_graph_def(), [made.name])
    assert {inlining.origin(node) for node in unmarked.node} == {None}


def test_only_what_is_wanted() -> None:
    called = tf.function(lambda x: (x + 1, x * 2))
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        one, two = called(x)
        tf.identity(one, name="one")
        tf.identity(two, name="two")
        tf.identity(x - 3, name="three")
    definition = graph.as_graph_def()
    assert not inlining.needs_inlining(Graph(definition), ["three:0"])
    found = ops(inlining.inline_functions(definition, ["two:0"]))
    assert "one" not in found
    assert "three" not in found
    assert run(inlining.inline_functions(definition, ["two:0"]), ["two:0"], [{"x:0": 4.0}]) == [[8.0]]


@pytest.mark.parametrize("attribute", ["_noinline", "_XlaMustCompile"])
def test_bodies_that_would_be_kept_apart(attribute: str) -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        tf.identity(tf.function(lambda x: x * 3)(x), name="y")
    definition = graph.as_graph_def()
    for holder in (*definition.node, *definition.library.function):
        if holder in [*definition.library.function] or holder.op in op_sets.CALLS:
            holder.attr[attribute].b = True
    found = inlining.inline_functions(definition, ["y:0"])
    assert no_calls(found)
    assert run(found, ["y:0"], [{"x:0": 2.0}]) == [[6.0]]


def test_an_assignment_happens_before_a_later_read() -> None:
    """Nothing but control dependencies of the calls says so."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        held = tf.Variable(5.0, name="held")

        @tf.function
        def bump(x: Any) -> None:
            held.assign_add(x)

        @tf.function
        def read() -> Any:
            return held.read_value()

        @tf.function
        def outer(x: Any) -> tuple[Any, Any]:
            bump(x)
            between = read()
            bump(10 * x)
            return between, read()

        ends = [value.name for value in outer(x)]
    first = held.initializer.name
    found = inlining.inline_functions(graph.as_graph_def(), [*ends, first])
    assert no_calls(found)
    assert run(found, ends, [{"x:0": 2.0}, {"x:0": 1.0}], first=first) == [[7.0, 27.0], [28.0, 38.0]]


def test_an_assignment_that_no_output_needs_happens() -> None:
    """A stateful layer's: its output is there before its state is written."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        held = tf.Variable(5.0, name="held")

        @tf.function
        def layer(x: Any) -> Any:
            y = held * x
            held.assign(x)
            return y

        y = tf.function(lambda x: layer(x) + 1)(x)
    first = held.initializer.name
    found = inlining.inline_functions(graph.as_graph_def(), [y.name, first])
    assert no_calls(found)
    assert run(found, [y.name], [{"x:0": 3.0}, {"x:0": 2.0}, {"x:0": 4.0}], first=first) == [
        [16.0],
        [7.0],
        [9.0],
    ]


def test_a_branch_that_waits_for_the_rest() -> None:
    """A call that has other reasons to wait than its arguments still waits, whatever it reads."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        held = tf.Variable(1.0, name="held")
        read = tf.function(lambda: held.read_value() * 2)
        with tf.control_dependencies([held.assign(x)]):
            y = read()
    first = held.initializer.name
    found = inlining.inline_functions(graph.as_graph_def(), [y.name, first])
    assert no_calls(found)
    assert run(found, [y.name], [{"x:0": 8.0}, {"x:0": -1.0}], first=first) == [[16.0], [-2.0]]


def test_a_call_with_effects_that_is_only_read() -> None:
    """Nothing waits for it and no one asks for the call itself, as where TensorFlow 1 calls a function."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        held = tf.Variable(5.0, name="held")
        tf.identity(tf.function(lambda x: held.assign_add(x) * 2)(x), name="y")
    first = held.initializer.name
    found = inlining.inline_functions(graph.as_graph_def(), ["y:0", first])
    assert no_calls(found)
    assert run(found, ["y:0"], [{"x:0": 2.0}, {"x:0": 1.0}], first=first) == [[14.0], [16.0]]


def call_by_name(definition: Any) -> None:
    """Make calls nodes of their functions' names, as `Defun` of TensorFlow 1 does, in place.

    A call's output in a function is then called by the result's name, `call:result:0`.
    """
    functions = definition.library.function
    results = {item.signature.name: [arg.name for arg in item.signature.output_arg] for item in functions}
    for node in all_nodes(definition):
        if node.op in op_sets.CALLS:
            node.op = node.attr["f"].func.name
            node.attr.clear()
    for function in functions:
        function.control_ret.clear()
        function.signature.ClearField("control_output")
        function.signature.is_stateful = True
        calls = {node.name: results[node.op] for node in function.node_def if node.op in results}

        def renamed(source: str, calls: dict[str, list[str]] = calls) -> str:
            call, _, number = source.partition(":output:")
            return f"{call}:{calls[call][int(number)]}:0" if call in calls and number else source

        for node in function.node_def:
            node.input[:] = map(renamed, node.input)
        for key, source in [*function.ret.items()]:
            function.ret[key] = renamed(source)


def test_functions_that_nodes_of_their_names_call() -> None:
    inner = tf.function(lambda x, blob: 3 * lstm(x, blob).output, autograph=False)
    outer = tf.function(lambda x, blob: inner(x + 1, blob) - 7, autograph=False)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, INPUTS], "x")
        blob = tf.constant(BLOB)
        tf.add(outer(x, blob), outer(tf.reverse(x, [0]), blob), name="y")
    definition = graph.as_graph_def()
    call_by_name(definition)
    library = Graph(definition).functions
    assert sum(node.op in library for node in definition.node) == 2
    assert inlining.needs_inlining(Graph(definition), ["y:0"])
    flat = inlining.inline_functions(definition, ["y:0"])
    kinds = [*ops(flat).values()]
    assert kinds.count("CudnnRNN") == 2
    assert not library.keys() & {*kinds}
    assert {"ReverseV2", "Sub", "Mul", "AddV2"} <= {*kinds}


def both_kinds(kind: str) -> tuple[Any, list[str]]:
    """A graph and its ends: in a function a branch or loop around a cuDNN node, and one around a product."""

    def branches(x: Any, blob: Any) -> tuple[Any, Any]:
        yes = tf.reduce_sum(x) > 0
        return (
            tf.cond(yes, lambda: lstm(x, blob).output, lambda: x[:, :, :2]),
            tf.cond(yes, lambda: x * 2, lambda: x - 1),
        )

    def loops(x: Any, blob: Any) -> tuple[Any, Any]:
        def again(k: Any, y: Any) -> tuple[Any, Any]:
            return k + 1, tf.pad(lstm(y, blob).output, [[0, 0], [0, 0], [0, 1]])

        shape = tf.TensorShape([None, None, INPUTS])
        known = (tf.TensorShape([]), shape)
        rnn = tf.while_loop(lambda k, _: k < 3, again, (tf.constant(0), x), shape_invariants=known)
        twice = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, y * 2), (tf.constant(0), x))
        return rnn[1], twice[1]

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, INPUTS], "x")
        made = tf.function({"If": branches, "While": loops}[kind], autograph=False)(x, tf.constant(BLOB))
    return graph.as_graph_def(), [value.name for value in made]


@pytest.mark.parametrize("kind", ["If", "While"])
def test_what_holds_a_cudnn_node_becomes_switch_and_merge(kind: str) -> None:
    graph, ends = both_kinds(kind)
    found = inlining.inline_functions(graph, ends)
    (node,) = (node for node in found.node if node.op == "CudnnRNN")
    above = {Index(found).nodes[op].op for op in Index(found).ancestors([node.name])}
    assert above >= ({"Switch"} if kind == "If" else {"Enter", "Merge", "Switch", "NextIteration"})
    kinds = [node.op for node in found.node if node.op.removeprefix("Stateless") in ("If", "While")]
    assert kinds == [f"Stateless{kind}"]
    (loop_or_branch,) = (node for node in found.node if node.op == kinds[0])
    used = Index(found).ancestors([loop_or_branch.name])
    assert node.name not in used


# Functions of Python as parts of a graph: what of their control flow TensorFlow takes apart when it runs.

SPECS = (tf.TensorSpec([None]), tf.TensorSpec([]))


def halved(x: Any, bound: Any) -> Any:
    """A branch around a loop around a branch."""

    def step(value: Any) -> Any:
        return tf.cond(value > 2 * bound, lambda: value / 4, lambda: value / 2)

    total = tf.reduce_sum(x)
    return tf.cond(
        total > bound, lambda: tf.while_loop(lambda value: value > bound, step, [total])[0], lambda: total
    )


def halved_once(x: Any, bound: Any) -> Any:
    """A branch around a branch."""
    total = tf.reduce_sum(x)

    def halve() -> Any:
        return tf.cond(total > 2 * bound, lambda: total / 4, lambda: total / 2)

    return tf.cond(total > bound, halve, lambda: total)


@pytest.mark.parametrize(("function", "lowered"), [(halved_once, False), (halved, True)])
def test_branches_stay_calls_unless_a_loop_does_not(function: Any, lowered: bool) -> None:
    """Of a branch made of Switch nodes both sides run, one without values; a loop's nodes need it."""
    body = inlining.trace_function(function, *SPECS)
    _, functions = inlining.library(function, *SPECS)
    for nodes in (body.nodes, body.library, functions):
        inner = [node for made in nodes for node in getattr(made, "node_def", [made])]
        branches = [node for node in inner if node.op in {"If", "StatelessIf"}]
        loops = [node for node in inner if node.op in {"While", "StatelessWhile"}]
        assert branches
        assert {LOWERED in node.attr and node.attr[LOWERED].b for node in branches} == {lowered}
        assert nodes is body.nodes or bool(loops) is lowered
        assert all(node.attr[LOWERED].b for node in loops)


def test_loops_with_a_recurrence_are_laid_flat() -> None:
    """What the condition reads is in the loop, constants too; other loops stay functions."""
    case = Case(Mode.GRU)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()

        def step(k: Any, h: Any) -> tuple[Any, Any]:
            return k + 1, case.op_call(x, h, c).output_h

        last = tf.while_loop(lambda k, _: k < 3, step, [tf.constant(0), h], name="own")[1]
        tf.identity(
            tf.while_loop(lambda k: k < 9, lambda k: [k + 2], [tf.size(last)], name="other"), name="n"
        )
    definition = graph.as_graph_def()
    assert inlining.needs_inlining(Graph(definition), [last.name])
    for node in definition.node:
        node.attr.pop(LOWERED, None)
    flat = inlining.inline_functions(definition, [last.name, "n:0"])
    assert [node.name for node in flat.node if node.op in ("While", "StatelessWhile")] == ["other"]
    assert not inlining.needs_inlining(flat, ["n:0"])
    index, around = flat.index, control_flow.frames(flat.index)
    (condition,) = (node for node in flat.node if node.op == "LoopCond")
    (less,) = (index.nodes[name] for name in condition.input)
    (frame,) = {around[condition.name], *(around[split(name)[0]] for name in less.input)}
    assert len(frame) == 1
