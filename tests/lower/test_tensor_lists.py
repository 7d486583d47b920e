"""A loop with TensorArrays answers as it did with TensorLists; a list that has no such form stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, import_graph
from cudnn_convert.graph.passes.inlining import inline_functions
from cudnn_convert.lower.tensor_lists import replace_lists

v1 = tf.compat.v1
RAW = tf.raw_ops
X = np.random.default_rng(3).standard_normal((4, 2, 3)).astype(np.float32)


def each_item(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.tanh(row) * 2, x)


def several_types(x: Any) -> Any:
    """Items of numbers of two types, of which one loop reads and writes."""
    kinds = (tf.float32, tf.int64)
    rows, places = tf.map_fn(lambda row: (tf.tanh(row), tf.argmax(row, 1)), x, fn_output_signature=kinds)
    return rows + tf.cast(places, tf.float32)[..., tf.newaxis]


def one_loop_in_another(x: Any) -> Any:
    """The inner one reads a list of the outer one too."""

    def row(step: Any) -> Any:
        def cell(k: Any) -> Any:
            return tf.tanh(x[step, k]) + kept.read(step)[k]

        return tf.map_fn(cell, tf.range(2), fn_output_signature=tf.float32)

    kept = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x)
    return tf.map_fn(row, tf.range(4), fn_output_signature=tf.float32)


def each_item_of_each(x: Any) -> Any:
    """The inner loop has lists of the outer one's item."""
    return tf.map_fn(lambda rows: tf.map_fn(lambda row: tf.tanh(row) - rows[0], rows), x)


def in_a_branch(x: Any) -> Any:
    def body(step: Any, kept: Any) -> Any:
        return step + 1, tf.cond(
            tf.equal(step % 2, 0),
            lambda: kept.write(step, tf.tanh(x[step])),
            lambda: kept.write(step, x[step]),
        )

    kept = tf.TensorArray(tf.float32, tf.shape(x)[0])
    return tf.while_loop(lambda step, _: step < 4, body, [0, kept])[1].stack()


def as_many_as_there_are(x: Any) -> Any:
    """A loop as long as the list."""
    kept = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x)

    def body(step: Any, total: Any) -> Any:
        return step + 1, tf.tanh(total) + kept.read(step)

    return tf.while_loop(lambda step, _: step < kept.size(), body, [0, tf.zeros([2, 3])])[1]


def that_grows(x: Any) -> Any:
    """As many items as the numbers decide."""

    def body(step: Any, kept: Any, total: Any) -> Any:
        return step + 1, kept.write(step, tf.tanh(x[step])), total + tf.reduce_sum(tf.abs(x[step]))

    kept = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2, 3])
    loop = tf.while_loop(lambda step, _, total: total < 12.0, body, [0, kept, 0.0])
    return loop[1].stack()


def fewer_than_there_is_room_for(x: Any) -> Any:
    """Zeros stand behind the items that are written."""

    def body(step: Any, kept: Any) -> Any:
        return step + 1, kept.write(step, tf.tanh(x[step]))

    kept = tf.TensorArray(tf.float32, 6, element_shape=[2, 3])
    return tf.while_loop(lambda step, _: step < tf.shape(x)[0], body, [0, kept])[1].stack()


BUILDS = (
    *(each_item, several_types, one_loop_in_another, each_item_of_each, in_a_branch, as_many_as_there_are),
    *(that_grows, fewer_than_there_is_room_for),
)


def flat(build: Any) -> Graph:
    """The graph of a function of `x`, its loops laid flat."""
    with tf.Graph().as_default() as graph:
        tf.identity(build(v1.placeholder(tf.float32, [None, 2, 3], "x")), name="y")
    laid = inline_functions(graph.as_graph_def(), ["y"], around=["Tanh"])
    assert not any(node.op in ("While", "StatelessWhile") for node in laid.node)
    return laid


def answer(graph: Graph) -> Any:
    with v1.Session(graph=import_graph(graph)) as session:
        return session.run("y:0", {"x:0": X})


def lists(graph: Graph) -> list[str]:
    return [node.op for node in graph.node if node.op.startswith("TensorList")]


@pytest.mark.first("as_many_as_there_are", "that_grows", "fewer_than_there_is_room_for")
@pytest.mark.parametrize("build", BUILDS)
def test_a_loop_answers_as_before(build: Any) -> None:
    before = flat(build)
    before = Graph(before, reversed(before.node))  # in no order that matters
    after = replace_lists(before, ["y:0"])
    assert lists(before)
    assert not lists(after)
    np.testing.assert_array_equal(answer(after), answer(before))
    arrays = [node for node in after.node if node.op == "TensorArrayV3"]
    assert {node.attr["dynamic_size"].b for node in arrays} == {build is that_grows}
    assert all(
        node.attr["identical_element_shapes"].b and not node.attr["clear_after_read"].b for node in arrays
    )


def test_items_have_the_shape_of_what_they_come_from() -> None:
    graph = replace_lists(flat(each_item), ["y:0"])
    [read] = [node.name for node in graph.node if node.op == "TensorArrayReadV3"]
    assert graph.shapes.get_tensor_by_name(f"{read}:0").shape.as_list() == [2, 3]
    shapes = [node.attr["element_shape"].shape for node in graph.node if node.op == "TensorArrayV3"]
    assert [tf.TensorShape(shape).as_list() for shape in shapes] == [[2, 3]] * 2  # read, and written
    [gather] = [node for node in graph.node if node.op == "TensorArrayGatherV3"]
    assert tf.TensorShape(gather.attr["element_shape"].shape).as_list() == [2, 3]


def test_items_of_a_list_that_begins_empty_have_the_shape_that_it_states() -> None:
    def build(x: Any) -> Any:
        kept = tf.TensorArray(tf.float32, 4, element_shape=[None, 3])

        def step(k: Any, kept: Any) -> Any:
            return k + 1, kept.write(k, tf.tanh(x[k]))

        return tf.while_loop(lambda k, _: k < 4, step, [0, kept])[1].stack()

    graph = replace_lists(flat(build), ["y:0"])
    [array] = [node for node in graph.node if node.op == "TensorArrayV3"]
    assert tf.TensorShape(array.attr["element_shape"].shape).as_list() == [None, 3]


def test_zeros_stand_for_items_that_no_iteration_writes() -> None:
    """TensorFlow has them already; tf2onnx stacks what the loop wrote alone, as is said to it here."""
    graph = replace_lists(flat(fewer_than_there_is_room_for), ["y:0"])
    [written] = [node.name for node in graph.node if node.op == "TensorArrayGatherV3"]
    with v1.Session(graph=import_graph(graph)) as session:
        found = session.run("y:0", {"x:0": X, f"{written}:0": X})
    np.testing.assert_array_equal(found, np.concatenate([X, np.zeros((2, 2, 3))]))


def test_a_handle_enters_a_loop_once() -> None:
    graph = replace_lists(flat(one_loop_in_another), ["y:0"])
    entered = [
        node
        for node in graph.node
        if node.op == "Enter" and node.attr["T"].type == tf.resource.as_datatype_enum
    ]
    assert all(node.attr["is_constant"].b for node in entered)
    pairs = [(node.input[0], node.attr["frame_name"].s) for node in entered]
    assert len(pairs) == len({*pairs})


def pushed(x: Any) -> Any:
    empty = RAW.EmptyTensorList(element_shape=[2, 3], max_num_elements=-1, element_dtype=tf.float32)
    return RAW.TensorListStack(
        input_handle=RAW.TensorListPushBack(input_handle=empty, tensor=x[0]),
        element_shape=[2, 3],
        element_dtype=tf.float32,
    )


def of_tensor(x: Any) -> Any:
    return RAW.TensorListFromTensor(tensor=x, element_shape=[2, 3])


def stack(handle: Any, shape: Any = (2, 3)) -> Any:
    return RAW.TensorListStack(input_handle=handle, element_shape=[*shape], element_dtype=tf.float32)


def grown(x: Any) -> Any:
    more = RAW.TensorListPushBack(input_handle=of_tensor(x), tensor=x[1])
    return stack(more)


def overwritten(x: Any) -> Any:
    return stack(RAW.TensorListSetItem(input_handle=of_tensor(x), index=1, item=x[0]))


def resized(x: Any) -> Any:
    item = {"index": 4, "item": x[0], "resize_if_index_out_of_bounds": True}
    return stack(RAW.TensorListSetItem(input_handle=of_tensor(x), **item))


def list_of_lists(x: Any) -> Any:
    outer = RAW.TensorListReserve(
        element_shape=tf.zeros([0], tf.int32), num_elements=1, element_dtype=tf.variant
    )
    outer = RAW.TensorListSetItem(input_handle=outer, index=0, item=of_tensor(x))
    got = RAW.TensorListGetItem(
        input_handle=outer, index=0, element_shape=tf.zeros([0], tf.int32), element_dtype=tf.variant
    )
    return stack(got)


def one_of_two(x: Any) -> Any:
    true, false = (RAW.Switch(data=of_tensor(x * k), pred=x[0, 0, 0] > 0) for k in (1.0, 2.0))
    merged, _ = RAW.Merge(inputs=[false[0], true[1]])
    return stack(merged)


@pytest.mark.parametrize("build", [pushed, grown, overwritten, resized, list_of_lists, one_of_two])
def test_any_other_list_stays(build: Any) -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(build(v1.placeholder(tf.float32, [None, 2, 3], "x")), name="y")
    before = Graph(graph.as_graph_def())
    after = replace_lists(before, ["y:0"])
    assert lists(after) == lists(before)
    np.testing.assert_array_equal(answer(after), answer(before))


def test_a_list_that_leaves_its_loop_stays() -> None:
    def build(x: Any) -> Any:
        def body(step: Any, handle: Any) -> Any:
            return step + 1, of_tensor(tf.tanh(x) + tf.cast(step, tf.float32))

        return stack(tf.while_loop(lambda step, _: step < 3, body, [0, of_tensor(x)])[1])

    before = flat(build)
    after = replace_lists(before, ["y:0"])
    assert lists(after) == lists(before)
    np.testing.assert_array_equal(answer(after), answer(before))


@pytest.mark.parametrize("length", [True, False])
def test_lists_outside_of_loops(length: bool) -> None:
    """Items of a shape that is not known, and a constant that waits for the list."""

    def build(x: Any) -> Any:
        handle = RAW.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
        with tf.control_dependencies([handle]):
            late = tf.constant(1, name="late")
        for k in range(2):
            handle = RAW.TensorListSetItem(input_handle=handle, index=late - k, item=x[k])
        if length:
            return RAW.TensorListLength(input_handle=handle)
        return RAW.TensorListStack(input_handle=handle, element_shape=-1, element_dtype=tf.float32)

    with tf.Graph().as_default() as graph:
        tf.identity(build(v1.placeholder(tf.float32, [None, 2, 3], "x")), name="y")
    before = Graph(graph.as_graph_def())
    after = replace_lists(before, ["y:0"])
    assert not lists(after)
    np.testing.assert_array_equal(answer(after), answer(before))
    [array] = [node for node in after.node if node.op == "TensorArrayV3"]
    [late] = [node for node in after.node if node.name == "late"]
    assert [*late.input] == [f"^{array.name}"]


def test_a_list_of_all_items_is_stacked_as_it_is() -> None:
    """In a loop, and one that begins empty stays, for zeros may have to be added where it begins."""

    def build(x: Any) -> Any:
        full, empty = (
            of_tensor(x),
            RAW.TensorListReserve(element_shape=[2, 3], num_elements=4, element_dtype=tf.float32),
        )

        def body(step: Any, total: Any) -> Any:
            partly = RAW.TensorListSetItem(input_handle=empty, index=step, item=x[0])
            return step + 1, tf.tanh(total) + stack(full) + stack(partly)

        return tf.while_loop(lambda step, _: step < 3, body, [0, x])[1]

    before = flat(build)
    after = replace_lists(before, ["y:0"])
    assert sorted(lists(after)) == ["TensorListReserve", "TensorListSetItem", "TensorListStack"]
    assert [node.op for node in after.node if node.op in ("Fill", "ConcatV2")] == []
    np.testing.assert_array_equal(answer(after), answer(before))


def test_a_graph_without_lists_is_the_same_object() -> None:
    x = node_defs.placeholder("x", tf.float32, tf.TensorShape([]))
    graph = Graph(tf.Graph().as_graph_def(), [x])
    assert replace_lists(graph, []) is graph
