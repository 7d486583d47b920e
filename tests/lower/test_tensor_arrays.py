"""What arrays hold is in TensorFlow Lite what it was in TensorFlow; an array used in any other way stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.tiers import some

from cudnn_convert.graph.graph import Graph, import_graph, prune
from cudnn_convert.graph.index import split
from cudnn_convert.graph.passes.inference import drop_waits
from cudnn_convert.lower.tensor_arrays import replace_arrays

# Arrays have handles and flows in loops of TensorFlow 1 alone.
pytestmark = pytest.mark.usefixtures("v1_control_flow")
v1 = tf.compat.v1
X = np.random.default_rng(5).standard_normal((4, 3, 2)).astype(np.float32)
OPEN = (None, None, None)
STEPS = (None, 3, 2)
FIXED = (4, 3, 2)
LAST = (None, 3, None)


def size(kept: Any) -> Any:
    """The count as the op says it; `TensorArray.size` repeats the number that it was given."""
    return tf.cast(tf.raw_ops.TensorArraySizeV3(handle=kept.handle, flow_in=kept.flow), tf.float32)


def array(size: Any, dtype: tf.DType = tf.float32, **options: Any) -> Any:
    return tf.TensorArray(dtype, size, **options)


def loop(steps: Any, body: Callable[..., Any], *start: Any) -> Any:
    return v1.while_loop(lambda step, *_: step < steps, body, [tf.constant(0), *start])[1:]


def each_item(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.tanh(row) * 2, x)


def several_types(x: Any) -> Any:
    """Items of numbers of three types, of which one loop reads and writes."""
    kinds = (tf.float32, tf.int32, tf.bool)

    def rows(row: Any) -> Any:
        return tf.tanh(row), tf.argmax(row, 1, output_type=tf.int32), row[:, 0] > 0

    some, places, signs = tf.map_fn(rows, x, fn_output_signature=kinds)
    more = tf.cast(places, tf.float32) - tf.cast(signs, tf.float32)
    return some + tf.expand_dims(more, 2)


def one_loop_in_another(x: Any) -> Any:
    """The inner one has an array of its own for each item."""
    return tf.map_fn(lambda rows: tf.map_fn(lambda row: tf.tanh(row) - rows[0], rows), x)


def backwards(x: Any) -> Any:
    """The last item is written first."""

    def body(step: Any, kept: Any) -> Any:
        return step + 1, kept.write(tf.shape(x)[0] - 1 - step, x[step] * 3)

    [kept] = loop(tf.shape(x)[0], body, array(tf.shape(x)[0]))
    return kept.stack()


def more_and_more(x: Any) -> Any:
    """An array that grows, which each step reads too, up to a number that the numbers decide."""

    def body(step: Any, kept: Any, total: Any) -> Any:
        kept = kept.write(step + 1, x[step] + total)
        return step + 1, kept, total + kept.read(step)

    start = array(0, dynamic_size=True, clear_after_read=False).write(0, x[1] - 1)
    kept, total = loop(tf.shape(x)[0] - 1, body, start, tf.zeros_like(x[0]))
    return tf.concat([kept.stack(), kept.gather([2, 0]), tf.expand_dims(total, 0)], 0) + tf.cast(
        kept.size(), tf.float32
    )


def in_a_branch(x: Any) -> Any:
    def body(step: Any, kept: Any) -> Any:
        return step + 1, v1.cond(
            tf.equal(step % 2, 0),
            lambda: kept.write(step, tf.tanh(x[step])),
            lambda: kept.write(step, x[step]),
        )

    [kept] = loop(4, body, array(4))
    return kept.stack() + size(kept)


def some_items(x: Any) -> Any:
    """Of items that are not written, the shape alone is known."""

    def body(step: Any, kept: Any) -> Any:
        return step + 1, kept.write(2 * step, x[step][0])

    [kept] = loop(2, body, array(4, element_shape=[2]))
    return kept.stack()


def read_in_any_order(x: Any) -> Any:
    kept = array(tf.shape(x)[0], clear_after_read=False).unstack(x)

    def body(step: Any, total: Any) -> Any:
        return step + 1, tf.tanh(total) + kept.read(kept.size() - 1 - step)

    [total] = loop(kept.size(), body, tf.zeros_like(x[0]))
    return tf.concat([kept.stack(), kept.gather([3, 1]), tf.expand_dims(total, 0)], 0) + size(kept)


def numbers(x: Any) -> Any:
    """Items without axes."""

    def body(step: Any, kept: Any) -> Any:
        return step + 1, kept.write(step, tf.reduce_sum(x[step]))

    [kept] = loop(tf.shape(x)[0], body, array(tf.shape(x)[0]))
    return kept.stack()


def read_alone(x: Any) -> Any:
    """Two items, which nothing stacks; of the second TensorFlow does not know the rank."""
    item = v1.placeholder_with_default(x[1], None)
    kept = array(2, clear_after_read=False).write(0, x[0]).write(1, item)
    return kept.read(1) - kept.read(0) * 2


BUILDS = (
    *(each_item, several_types, one_loop_in_another, backwards, more_and_more, in_a_branch),
    *(some_items, read_in_any_order, numbers, read_alone),
)


def built(build: Callable[[Any], Any], shape: Any = STEPS) -> Graph:
    """The graph of a function of `x`, its nodes in no order that matters."""
    with tf.Graph().as_default() as graph:
        tf.identity(build(v1.placeholder(tf.float32, shape, "x")), name="y")
    nodes = reversed(graph.as_graph_def().node)
    return drop_waits(Graph(graph.as_graph_def(), nodes))


def arrays(graph: Graph) -> list[str]:
    return sorted(node.op for node in graph.node if node.op.startswith("TensorArray"))


def answer(graph: Graph) -> Any:
    with v1.Session(graph=import_graph(graph)) as session:
        return session.run("y:0", {"x:0": X})


def lite_answer(graph: Graph) -> Any:
    with import_graph(graph).as_default() as imported, v1.Session() as session:
        ends = [[imported.get_tensor_by_name(name)] for name in ("x:0", "y:0")]
        content = v1.lite.TFLiteConverter.from_session(session, *ends).convert()
    run = tf.lite.Interpreter(model_content=content)
    [given], [result] = run.get_input_details(), run.get_output_details()
    run.resize_tensor_input(given["index"], X.shape)
    run.allocate_tensors()
    run.set_tensor(given["index"], X)
    run.invoke()
    return run.get_tensor(result["index"])


@pytest.mark.first("one_loop_in_another-last", "read_in_any_order-open")
@pytest.mark.parametrize("shape", some([OPEN, LAST], STEPS, FIXED), ids=["open", "last", "steps", "fixed"])
@pytest.mark.parametrize("build", BUILDS)
def test_tensorflow_lite_answers_as_tensorflow_did(build: Any, shape: Any) -> None:
    before = built(build, shape)
    after = replace_arrays(before, ["y:0"])
    assert arrays(before)
    assert not arrays(after)
    np.testing.assert_allclose(lite_answer(after), answer(before), rtol=1e-6, atol=1e-6)


def test_a_graph_without_arrays_is_returned() -> None:
    before = built(tf.tanh)
    assert replace_arrays(before, ["y:0"]) is before


def test_items_keep_the_sizes_that_are_known() -> None:
    after = replace_arrays(built(backwards, (None, None, 2)), ["y:0"])
    assert after.shapes.get_tensor_by_name("y:0").shape.as_list() == [None, None, 2]


def test_items_have_the_sizes_that_their_array_states() -> None:
    def build(x: Any) -> Any:
        return array(2, element_shape=[3, None]).write(0, x[0]).write(1, x[1]).gather([0, 1])

    after = replace_arrays(built(build, OPEN), ["y:0"])
    assert after.shapes.get_tensor_by_name("y:0").shape.as_list() == [2, 3, None]


def test_a_shape_of_items_that_a_saved_model_strips_is_unknown() -> None:
    graph = built(backwards, OPEN)
    stripped = v1.GraphDef.FromString(graph.definition.SerializeToString())
    for node in stripped.node:
        node.attr.pop("element_shape", None)
    after = replace_arrays(Graph(stripped), ["y:0"])
    assert not arrays(after)
    np.testing.assert_array_equal(answer(after), answer(graph))


@pytest.mark.parametrize("shape", [OPEN, FIXED])
def test_the_first_length_is_of_an_open_size_if_there_is_one(shape: Any) -> None:
    after = replace_arrays(built(more_and_more, shape), ["y:0"])
    assert ("ArgMax" in {node.op for node in after.node}) == (shape == FIXED)


def test_the_first_length_comes_from_any_input() -> None:
    """Of two inputs the open one decides; of numbers whose place TensorFlow Lite does not find, none does."""

    def several(x: Any) -> Any:
        return more_and_more(x * v1.placeholder(tf.float32, [], "a"))

    def of_numbers(_: Any) -> Any:
        return more_and_more(tf.cast(v1.placeholder(tf.int64, [4, 3, 2], "a"), tf.float32))

    kinds = [
        {node.op for node in replace_arrays(built(build), ["y:0"]).node} for build in (several, of_numbers)
    ]
    assert not {"ArgMax"} & {*kinds[0], *kinds[1]}
    assert all("XlaDynamicUpdateSlice" in ops for ops in kinds)


def test_no_zeros_are_added_to_a_row_of_known_length() -> None:
    def grows(shape: Any) -> bool:
        after = replace_arrays(built(backwards, shape), ["y:0"])
        [write] = [node for node in after.node if node.op == "XlaDynamicUpdateSlice"]
        return after.index.nodes[split(write.input[0])[0]].op == "ConcatV2"

    assert grows((None, None, 2))
    assert not grows((None, 3, 2))


def written_twice(x: Any) -> Any:
    """Two writes after the same one: which comes first, the graph does not say."""
    kept = array(4)
    parts = [kept.write(k, x[k]).flow for k in (0, 1)]
    both = tf.TensorArray(tf.float32, handle=kept.handle, flow=parts[0] + parts[1])
    return both.gather([0, 1])


def concatenated(x: Any) -> Any:
    return array(4).write(0, x[0]).concat()


def scattered(x: Any) -> Any:
    return array(4).scatter([3, 1, 0, 2], x).stack()


def scattered_from_the_second_on(x: Any) -> Any:
    return array(5).scatter(tf.range(1, 5), x).gather([1, 2])


def scattered_over_each_second(x: Any) -> Any:
    return array(8).scatter(tf.range(0, 8, 2), x).gather([2, 4])


def scattered_from_anywhere_on(x: Any) -> Any:
    return array(4).scatter(tf.range(tf.shape(x)[0] - 4, tf.shape(x)[0]), x).gather([2, 3])


def read_after_another_flow(x: Any) -> Any:
    """The handle is that of one array, the flow that of another."""
    first, second = (array(4).unstack(x * k) for k in (1.0, 2.0))
    return tf.raw_ops.TensorArrayReadV3(handle=first.handle, index=0, flow_in=second.flow, dtype=tf.float32)


def with_a_flow_in_numbers(x: Any) -> Any:
    kept = array(4).unstack(x)
    return kept.stack() + kept.flow * 0


def filled_and_written(x: Any) -> Any:
    return array(0, dynamic_size=True).unstack(x).write(4, x[0]).stack()


def of_two(x: Any) -> Any:
    """A branch decides which of two arrays is read."""
    first, second = (array(4).unstack(x * k) for k in (1.0, 2.0))
    flows = [v1.cond(x[0, 0, 0] > 0, lambda: first.flow, lambda: second.flow) for _ in "x"]
    return tf.raw_ops.TensorArrayReadV3(handle=first.handle, index=0, flow_in=flows[0], dtype=tf.float32)


def of_unknown_rank(x: Any) -> Any:
    item = v1.placeholder_with_default(x[0], None)
    return tf.ensure_shape(array(1).write(0, item).stack(), [1, 3, 2])


def of_words(x: Any) -> Any:
    """No zeros stand for words."""
    kept = array(2, tf.string).write(0, tf.as_string(x[0])).write(1, tf.as_string(x[1]))
    return tf.strings.to_number(kept.stack())


def of_several_sizes(x: Any) -> Any:
    kept = array(2, infer_shape=False, clear_after_read=False).write(0, x[0]).write(1, x[1][:1])
    return kept.read(0) + kept.read(1)


def of_shapes_that_nothing_states(x: Any) -> Any:
    kept = array(2, infer_shape=False).write(0, x[0]).write(1, x[1])
    return kept.read(0) + kept.read(1)


@pytest.mark.parametrize(
    "build",
    [
        *(
            of_several_sizes,
            of_shapes_that_nothing_states,
            of_unknown_rank,
            written_twice,
            filled_and_written,
        ),
        *(scattered, scattered_from_the_second_on, scattered_over_each_second, scattered_from_anywhere_on),
        *(concatenated, of_two, read_after_another_flow, with_a_flow_in_numbers, of_words),
    ],
)
def test_any_other_array_stays(build: Any) -> None:
    before = prune(built(build), ["y:0"])
    after = replace_arrays(before, ["y:0"])
    assert arrays(after) == arrays(before)
