"""Cutting a graph: inputs anywhere, constants by `--set`, and cuts that are advised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, PATH, drawing, lstm, ops, placeholder, resource, v1, variable

from cudnn_convert.errors import Remedy, UsageError
from cudnn_convert.graph import recurrent_state
from cudnn_convert.graph.graph import Graph, import_graph
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes import subgraphs
from cudnn_convert.graph.passes.subgraphs import CutFinder, InputCut
from cudnn_convert.model import UserGraph

# Cutting a graph: inputs anywhere, constants by `--set`, names that still say what they are.


def made(
    graph: tf.Graph, *inputs: InputCut | str, out: str = "out:0", **constants: Any
) -> tuple[Any, dict[str, str]]:
    cuts = [found if isinstance(found, InputCut) else InputCut(found) for found in inputs]
    values = {f"{name}:0": np.array(value, np.float32) for name, value in constants.items()}
    return cut(graph.as_graph_def(), cuts, values, out)


def cut(source: Any, cuts: list[InputCut], values: dict[str, Any], out: str) -> tuple[Any, dict[str, str]]:
    graph = Graph(source)
    found, moved = subgraphs.extract_subgraph(graph, inputs=cuts, constants=values, outputs=[out])
    return found.definition, moved


def shape_of(graph: Any, name: str) -> Any:
    return import_graph(graph).get_tensor_by_name(name).shape


def answer(graph: Any, feeds: dict[str, Any], output: str = "out:0") -> Any:
    with v1.Session(graph=import_graph(graph)) as session:
        return session.run(output, feeds)


def iterator() -> list[Any]:
    """Three components of one iterator: images, widths, labels."""
    kinds = [tf.float32, tf.int32, tf.int64]
    shapes = [[None, 3], [None], [None]]
    made = tf.raw_ops.Iterator(
        shared_name="", container="", output_types=kinds, output_shapes=shapes, name="iterator"
    )
    return list(
        tf.raw_ops.IteratorGetNext(
            iterator=made, output_types=kinds, output_shapes=shapes, name="IteratorGetNext"
        )
    )


def test_an_iterator_is_cut_at_the_components_used() -> None:
    with drawing() as graph:
        images, _, labels = iterator()
        tf.add(images, tf.cast(labels, tf.float32)[:, None], name="out")
    index = Index(graph.as_graph_def())
    assert subgraphs.find_input_pipelines(index, ["out:0"], stop=()) == [
        "IteratorGetNext:0",
        "IteratorGetNext:2",
    ]
    assert subgraphs.find_input_pipelines(index, ["out:0"], stop=["IteratorGetNext:0"]) == [
        "IteratorGetNext:2"
    ]
    assert subgraphs.find_input_pipelines(index, ["out:0"], stop=["out:0"]) == []


def test_components_of_one_iterator_become_inputs_of_their_own() -> None:
    with drawing() as graph:
        images, _, labels = iterator()
        tf.add(images, tf.cast(labels, tf.float32)[:, None], name="out")
    found, moved = made(graph, "IteratorGetNext:0", "IteratorGetNext:2")
    assert moved == {"IteratorGetNext:0": "IteratorGetNext:0", "IteratorGetNext:2": "IteratorGetNext_2:0"}
    assert {name for name, op in ops(found).items() if op == "Placeholder"} == {
        "IteratorGetNext", "IteratorGetNext_2",
    }  # fmt: skip
    assert "Iterator" not in ops(found).values()
    assert shape_of(found, "IteratorGetNext:0").as_list() == [None, 3]
    feeds = {"IteratorGetNext:0": np.ones((2, 3)), "IteratorGetNext_2:0": [4, 5]}
    np.testing.assert_array_equal(answer(found, feeds), [[5] * 3, [6] * 3])


def test_the_shape_of_a_queue_is_what_its_writer_noted() -> None:
    with drawing() as graph:
        queue = v1.FIFOQueue(3, [tf.float32])
        tf.identity(queue.dequeue(name="batch"), "out")
    source = graph.as_graph_def()
    noted = next(node for node in source.node if node.name == "batch").attr["_output_shapes"].list
    noted.shape.add().CopyFrom(tf.TensorShape([None, 3]).as_proto())
    found, _ = cut(source, [InputCut("batch:0")], {}, "out:0")
    assert shape_of(found, "batch:0").as_list() == [None, 3]


def test_an_input_in_the_middle_takes_the_ops_place() -> None:
    with drawing() as graph:
        tf.multiply(tf.nn.relu(placeholder("x"), name="middle"), 2.0, name="out")
    found, moved = made(graph, "middle:0")
    assert moved == {"middle:0": "middle:0"}
    assert ops(found)["middle"] == "Placeholder"
    assert "x" not in ops(found)
    np.testing.assert_array_equal(answer(found, {"middle:0": -np.ones((1, 1, 3))}), -2 * np.ones((1, 1, 3)))


def test_an_op_of_which_more_is_needed_keeps_its_name() -> None:
    with drawing() as graph:
        one, two = tf.split(placeholder("x", (4,)), 2, name="halves")
        tf.add(one, two, name="out")
    found, moved = made(graph, "halves:0")
    assert moved == {"halves:0": "halves_0:0"}
    assert (ops(found)["halves"], ops(found)["halves_0"]) == ("Split", "Placeholder")
    feeds = {"halves_0:0": [10, 20], "x:0": [1, 2, 3, 4]}
    np.testing.assert_array_equal(answer(found, feeds), [13, 24])


def test_what_waits_for_a_placeholder_waits_for_the_new_one() -> None:
    with drawing() as graph:
        x = placeholder("x")
        with tf.control_dependencies([x]):
            late = tf.constant(2.0)
        tf.multiply(x, late, name="out")
    extracted, moved = made(graph, "x:0")
    assert moved == {"x:0": "x:0"}
    assert [name for name, op in ops(extracted).items() if op == "Placeholder"] == ["x"]
    np.testing.assert_array_equal(answer(extracted, {"x:0": np.ones((1, 1, 3))}), 2 * np.ones((1, 1, 3)))


def test_an_input_that_is_also_an_output() -> None:
    with drawing() as graph:
        tf.nn.relu(placeholder("x"), name="middle")
    found, moved = made(graph, "middle:0", out="middle:0")
    assert ops(found) == {"middle": "Placeholder"}
    assert moved["middle:0"] == "middle:0"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(None, [None, None, 3], id="as-it-is"),
        pytest.param((None, 4, 3), [None, 4, 3], id="finer"),
    ],
)
def test_a_shape_refines_what_the_graph_knows(shape: Any, expected: list[int | None]) -> None:
    with drawing() as graph:
        tf.identity(placeholder("x"), "out")
    found, _ = made(graph, InputCut("x:0", shape))
    assert shape_of(found, "x:0").as_list() == expected


def test_an_unknown_rank_is_refined() -> None:
    with drawing() as graph:
        tf.identity(placeholder("x", None), "out")
    found, _ = made(graph, InputCut("x:0", (None, 7)))
    assert shape_of(found, "x:0").as_list() == [None, 7]


@pytest.mark.parametrize("shape", [(None, None, 4), (None, 3), ()], ids=str)
def test_a_shape_against_the_graph_is_refused(shape: tuple[int | None, ...]) -> None:
    with drawing() as graph:
        tf.identity(placeholder("x"), "out")
    with pytest.raises(UsageError) as refused:
        made(graph, InputCut("x:0", shape))
    asked = ",".join("?" if width is None else str(width) for width in shape)
    expected = f"expected the graph's shape [?,?,3], where only ? may change, found [{asked}] in --inputs"
    assert str(refused.value) == f"tensor x:0: {expected}; give x:0[?,?,3]"


def test_a_shape_wider_than_the_graph_is_refused() -> None:
    """It would be repeated as though the artifact took it."""
    with drawing() as graph:
        tf.identity(placeholder("x", (None, 60, 8)), "out")
    with pytest.raises(UsageError) as refused:
        made(graph, InputCut("x:0", (None, None, 8)))
    expected = "expected the graph's shape [?,60,8], where only ? may change"
    assert str(refused.value) == (f"tensor x:0: {expected}, found [?,?,8] in --inputs; give x:0[?,60,8]")


def test_a_constant_in_place_of_a_placeholder_keeps_its_name() -> None:
    with drawing() as graph:
        tf.multiply(placeholder("x"), placeholder("scale", []), name="out")
    found, moved = made(graph, scale=2)
    assert moved == {"scale:0": "scale:0"}
    assert ops(found)["scale"] == "Const"


def test_a_constant_in_the_middle_gets_a_name_of_its_own() -> None:
    with drawing() as graph:
        tf.multiply(placeholder("x"), tf.exp(placeholder("log", []), name="scale"), name="out")
    found, moved = made(graph, scale=2)
    assert moved == {"scale:0": "scale_0_set:0"}
    assert {"scale", "log"}.isdisjoint(ops(found))
    np.testing.assert_array_equal(answer(found, {"x:0": np.ones((1, 1, 3))}), 2 * np.ones((1, 1, 3)))


@pytest.mark.parametrize("kind", [variable, resource], ids=["reference", "resource"])
def test_a_variable_becomes_an_input(kind: Any) -> None:
    with drawing() as graph:
        w = kind("w", [3])
        read = tf.raw_ops.ReadVariableOp(resource=w, dtype=tf.float32) if kind is resource else tf.identity(w)
        tf.multiply(read, 2.0, name="out")
    found, moved = made(graph, "w:0")
    assert moved == {"w:0": "w:0"}
    assert ops(found)["w"] == "Placeholder"
    assert shape_of(found, "w:0").as_list() == [3]
    np.testing.assert_array_equal(answer(found, {"w:0": [1, 2, 3]}), [2, 4, 6])


def test_a_table_that_is_gathered_from_becomes_an_input() -> None:
    with drawing() as graph:
        ids = placeholder("ids", (None,), tf.int32)
        tf.raw_ops.ResourceGather(resource=resource("w", [4, 2]), indices=ids, dtype=tf.float32, name="out")
    found, _ = made(graph, "w:0")
    np.testing.assert_array_equal(
        answer(found, {"w:0": np.arange(8).reshape(4, 2), "ids:0": [3, 0]}), [[6, 7], [0, 1]]
    )


def test_indices_that_become_an_input_leave_the_gather_its_handle() -> None:
    with drawing() as graph:
        ids = placeholder("ids", (None,), tf.int32)
        tf.raw_ops.ResourceGather(resource=resource("w", [4, 2]), indices=ids, dtype=tf.float32, name="out")
    found, _ = made(graph, "ids:0")
    assert {node.name: node.op for node in found.node}["out"] == "ResourceGather"
    import_graph(found)


@pytest.mark.parametrize("kind", [variable, resource], ids=["reference", "resource"])
def test_a_variable_that_is_an_output_gives_its_value(kind: Any) -> None:
    with drawing() as graph:
        kind("w", [3])
    found, names = recurrent_state.read_values(Graph(graph.as_graph_def()), ["w:0"])
    dtype = found.shapes.get_tensor_by_name(names[0]).dtype
    assert dtype.base_dtype == tf.float32


def test_a_handle_is_no_input() -> None:
    with drawing() as graph:
        queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], name="queue")
        tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32], name="out")
    with pytest.raises(UsageError, match=r"^tensor queue:0: expected numbers, found a handle"):
        made(graph, "queue:0")


def require(*names: str) -> None:
    with drawing() as graph:
        for name in ("rnn/scores", "rnn/states", "decoder"):
            tf.constant(0.0, name=name)
        tf.split(tf.zeros([4]), 2, name="halves")
    subgraphs.check_tensors_exist(PATH, Index(graph.as_graph_def()), names)


def test_known_tensors_pass() -> None:
    require("rnn/scores:0", "halves:0", "halves:1")


def test_every_unknown_tensor_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        require("rnn/score:0", "xyzzy:0", "halves:2")
    assert str(refused.value).splitlines() == [
        "model.ckpt: tensor rnn/score:0: expected a tensor of the graph, found no node rnn/score; "
        "similar names are rnn/scores:0, rnn/states:0",
        "model.ckpt: tensor xyzzy:0: expected a tensor of the graph, found no node xyzzy; no name is similar",
        "model.ckpt: tensor halves:2: expected a tensor of the graph, found that halves has 2 outputs",
    ]


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "expected"),
    [
        pytest.param("0.5", tf.float32, [], np.float32(0.5), id="float"),
        pytest.param("1", tf.float32, [2, 3], np.ones((2, 3), np.float32), id="broadcast"),
        pytest.param("1e-3", tf.float64, None, np.float64(1e-3), id="unknown-rank"),
        pytest.param("True", tf.bool, [], np.bool_(True), id="true"),
        pytest.param("false", tf.bool, [2], np.zeros(2, bool), id="false"),
        pytest.param("-3", tf.int32, [], np.int32(-3), id="int"),
        pytest.param("0.5", tf.float16, [], np.float16(0.5), id="half"),
    ],
)
def test_the_text_of_a_value(text: str, dtype: Any, shape: Any, expected: Any) -> None:
    with drawing() as graph:
        placeholder("x", shape, dtype)
    found = subgraphs.parse_value(graph, "x:0", text)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "message"),
    [
        ("soon", tf.float32, [], "--set x:0: expected a float32, found 'soon'"),
        ("0.5", tf.int32, [], "--set x:0: expected a int32, found '0.5'"),
        ("", tf.float32, [], "--set x:0: expected a float32, found ''"),
        ("maybe", tf.bool, [], "--set x:0: expected a bool, found 'maybe'"),
        (
            "1", tf.float32, [None, 3],
            "--set x:0: expected a tensor of known shape, found (None, 3); leave it out, or make it an input "
            "with --inputs x:0 in the place of --set",
        ),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(text: str, dtype: Any, shape: Any, message: str) -> None:
    with drawing() as graph:
        placeholder("x", shape, dtype)
    with pytest.raises(UsageError) as refused:
        subgraphs.parse_value(graph, "x:0", text)
    assert str(refused.value) == message


# Where a refusal advises to cut: what is left is as much of the model as there can be, and converts.


def drawn() -> Any:
    """`x` -> `first` -> `odd` -> `second` -> `odder` -> `last`, sizes of `first` beside it, a loop behind."""
    with drawing() as graph:
        first = tf.nn.relu(placeholder("x"), name="first")
        zeros = tf.fill(tf.shape(first, name="sizes"), 1.0, name="ones")
        odd = tf.add_n([zeros, first], name="odd")
        second = tf.tanh(odd, name="second")
        odder = tf.exp(tf.cast(second, tf.float64, name="wide"), name="odder")
        tf.identity(odder, name="last")

        def step(k: Any, y: Any) -> tuple[Any, Any]:
            return k + 1, tf.sin(y, name="inside")

        tf.while_loop(lambda k, _: k < 3, step, (0, first), name="loop")
        tf.split(first, 3, axis=2, name="parts")
        tf.cos(graph.get_tensor_by_name("parts:2"), name="third")
        tf.cos(tf.constant(1.0), name="fixed")
    return graph.as_graph_def()


@pytest.mark.parametrize(
    ("name", "avoid", "wanted"),
    [
        ("odd", (), "first:0"),  # neither its sizes nor what is made of them
        ("odder", (), "wide:0"),
        ("odder", ("odd",), "first:0"),  # nothing that another refusal is of
        ("odder", ("odd", "first"), None),  # an input is no output by itself
        ("third", (), "parts:2"),
        ("fixed", (), None),  # no input is left of it
        ("of another graph", (), None),
    ],
)
def test_most_of_the_model_is_left(name: str, avoid: tuple[str, ...], wanted: str | None) -> None:
    index = Index(drawn())
    remedy = CutFinder(index).before(name, avoid)
    assert remedy == (Remedy({"outputs": (wanted,)}, "cut the graph before it with") if wanted else None)


def test_a_recurrence_is_left() -> None:
    """Where the graph has one: a model without it is not the one that its user has."""
    with drawing() as graph:
        scaled = tf.multiply(placeholder("x"), 2.0, name="scaled")
        odd = tf.identity(lstm(tf.exp(scaled, name="odd"), variable("blob", BLOB.shape)).output, "odd_too")
        tf.tanh(odd, name="last")
    index = Index(graph.as_graph_def())
    assert str(CutFinder(index).before("last", ())) == "cut the graph before it with --outputs odd_too:0"
    assert CutFinder(index).before("odd", ()) is None
    lowered, wide = Index(drawn()), Remedy({"outputs": ("wide:0",)}, "cut the graph before it with")
    assert CutFinder(lowered, recurrences=["odd"]).before("odder", ()) == wide
    assert CutFinder(lowered, recurrences=["odd"]).before("odd", ()) is None


@pytest.mark.parametrize(
    ("outputs", "advice"),
    [
        ({"last": "last:0"}, "cut the graph before it, which drops last, with --outputs wide:0"),
        (
            {"last": "last:0", "waves": "third:0", "second": "second:0"},
            "cut the graph before it, which drops last, with --outputs waves=third:0,second:0,wide:0",
        ),
        # The place itself is an output already.
        (
            {"last": "last:0", "wide": "wide:0"},
            "cut the graph before it, which drops last, with --outputs wide:0",
        ),
        ({"a": "last:0", "b": "odder:0"}, "cut the graph before it, which drops a, b, with --outputs wide:0"),
    ],
)
def test_advice_keeps_the_other_outputs_and_names_what_it_drops(outputs: Any, advice: str) -> None:
    assert str(CutFinder(Index(drawn()), outputs=outputs).before("odder", ())) == advice


def test_outputs_have_the_names_that_the_user_knows() -> None:
    user = UserGraph({"x", "first", "wide"}, {"last": "scores/out:0", "third": "third_of_the_source:0"})
    moved = {"last": "last:0", "third": "third:0", "made_here": "second:0"}
    cuts = CutFinder(Index(drawn()), user, outputs=moved)
    told = "cut the graph before it, which drops last, with --outputs third=third_of_the_source:0,wide:0"
    assert str(cuts.before("odder", ())) == told
    assert str(cuts.without("odder")) == (
        "leave out last, which it decides, with --outputs third=third_of_the_source:0"
    )
    assert cuts.without("first") is cuts.without("x") is None  # nothing would be left
    assert cuts.without("loop") is None  # decides nothing


def test_no_tensor_of_a_loop_is_offered() -> None:
    index = Index(drawn())
    (inside,) = (name for name in index.nodes if name.endswith("inside"))
    assert CutFinder(index).before(inside, ()) == Remedy(
        {"outputs": ("first:0",)}, "cut the graph before it with"
    )


def test_only_what_its_user_knows_is_offered() -> None:
    index = Index(drawn())
    assert CutFinder(index, UserGraph({"x", "odd"}, {})).before("odder", ()) == Remedy(
        {"outputs": ("odd:0",)}, "cut the graph before it with"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("while/scaled", 1.0 + 3 * 0.5), ("while/scaled/Enter", 1.0 + 3 * 0.25), ("outside", 1.0 + 3 * 0.25)],
)
def test_a_constant_in_a_loop_is_in_its_frame(name: str, expected: float) -> None:
    """`outside` enters the loop, where `scaled` is half of it; each is set to 0.5."""
    with drawing() as graph:
        outside = tf.identity(placeholder("rate", []), "outside")

        def body(k: Any, y: Any) -> Any:
            return k + 1, y + tf.multiply(outside, 0.5, name="scaled")

        y = v1.while_loop(lambda k, _: k < 3, body, [0, tf.constant(1.0)], name="while")[1]
        tf.identity(y, "out")
    made_graph, _ = cut(graph.as_graph_def(), [], {f"{name}:0": np.array(0.5, np.float32)}, "out:0")
    assert not any(node.op == "Placeholder" for node in made_graph.node)
    assert answer(made_graph, {}) == pytest.approx(expected)


def test_a_constant_in_a_branch_is_there_where_the_branch_is_taken() -> None:
    with drawing() as graph:
        x = placeholder("x", [])
        taken = v1.cond(x > 0, lambda: tf.multiply(x, 2.0, name="double"), lambda: tf.identity(x))
        tf.identity(taken, "out")
    made_graph, _ = cut(graph.as_graph_def(), [], {"cond/double:0": np.array(7, np.float32)}, "out:0")
    assert [answer(made_graph, {"x:0": value}) for value in (3.0, -3.0)] == [7.0, -3.0]
