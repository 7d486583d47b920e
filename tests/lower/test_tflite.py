"""The lowering to TensorFlow Lite, before its converter sees it."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import BATCH, INPUTS, STEPS, UNITS, Case, v1
from support.graphs import drawing, ops

from cudnn_convert.graph.graph import Graph, import_graph, prune
from cudnn_convert.graph.session import session
from cudnn_convert.lower import tflite
from cudnn_convert.model import InMemory, Mode

# What a graph becomes on the way to TensorFlow Lite, before its converter sees it.

FLOATS = {tf.float32.as_datatype_enum, tf.float16.as_datatype_enum, tf.float64.as_datatype_enum}
FLOATS.add(tf.bfloat16.as_datatype_enum)


def lowered(*graph: Any, ends: Sequence[str]) -> Any:
    return tflite.lower_tflite(*graph, ends=ends).graph.definition


def kinds(graph: Any) -> set[int]:
    """The float types that anything of a graph has: nodes, functions' nodes, arguments and results."""
    functions = graph.library.function
    nodes = [*graph.node, *(node for one in functions for node in one.node_def)]
    found = {value.type for node in nodes for value in node.attr.values()}
    found |= {value.tensor.dtype for node in nodes for value in node.attr.values()}
    found |= {kind for node in nodes for value in node.attr.values() for kind in value.list.type}
    for one in functions:
        found |= {argument.type for argument in (*one.signature.input_arg, *one.signature.output_arg)}
    return found & FLOATS


@pytest.mark.first("float16")
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_every_float_becomes_float32(dtype: str) -> None:
    case = Case(Mode.GRU, 1, 2, dtype=dtype)
    graph, signature = case.graph()
    ends = [*signature.inputs.values(), "c:0", *signature.outputs.values()]
    made = lowered(graph, [case.recurrence()], {}, ends=ends)
    assert kinds(made) == {tf.float32.as_datatype_enum}
    assert "While" in "".join(ops(made).values())
    placeholders = {node.name: node.attr["dtype"].type for node in made.node if node.op == "Placeholder"}
    assert placeholders == dict.fromkeys("xhc", tf.float32.as_datatype_enum)
    assert tflite.notes(graph) == (
        f"{dtype} becomes float32, inputs and outputs too: TensorFlow Lite has no kernels for it",
    )


def test_of_floats_alone_nothing_is_said() -> None:
    graph, _ = Case(Mode.LSTM).graph()
    assert tflite.notes(graph) == ()
    with tf.Graph().as_default() as two:
        tf.cast(v1.placeholder("float64", [2], "a"), tf.float16)
    assert tflite.notes(two.as_graph_def())[0].startswith("float16 and float64 becomes float32")


def test_variables_become_constants_and_a_block_a_loop() -> None:
    """BlockLSTM runs on a CPU, and has no kernel in TensorFlow Lite."""
    random = np.random.default_rng(2)
    kernel = random.normal(size=(INPUTS + UNITS, 4 * UNITS)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [STEPS, BATCH, INPUTS], "x")
        weights = tf.raw_ops.VariableV2(shape=kernel.shape, dtype=tf.float32, name="w")
        zeros, row = tf.zeros([BATCH, UNITS]), tf.zeros([UNITS])
        found = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.constant(STEPS, tf.int64), x=x, cs_prev=zeros, h_prev=zeros, w=weights,
            wci=row, wcf=row, wco=row, b=tf.zeros([4 * UNITS]), cell_clip=-1.0, name="block",
        )  # fmt: skip
        tf.identity(found.h, name="y")
    made = lowered(graph.as_graph_def(), [], {"w": InMemory(kernel)}, ends=["x:0", "y:0"])
    found = collections.Counter(ops(made).values())
    assert not {"BlockLSTM", "CudnnRNN", "VariableV2", "VarHandleOp"} & set(found)
    assert found["While"] + found["StatelessWhile"] >= 1
    loop = np.concatenate([kernel[:INPUTS].reshape(INPUTS, 4, UNITS)[:, gate] for gate in (0, 2, 3, 1)], 1)
    constants = [tf.make_ndarray(node.attr["value"].tensor) for node in made.node if node.op == "Const"]
    assert sum(np.array_equal(value, loop) for value in constants) == 1  # i, f, o, c of i, c, f, o


def test_a_graph_without_recurrences_stays_what_it_was() -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(v1.placeholder("float32", [None, 2], "a") * 2.0, name="y")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "y:0"])
    assert ops(made) == {"a": "Placeholder", "mul/y": "Const", "mul": "Mul", "y": "Identity"}


def switched(case: Case, *, through: bool) -> Any:
    """A cond with a node in each branch; `through`: their input comes right from the Switch."""
    with drawing() as graph:
        x, h, c = case.placeholders()
        which = v1.placeholder("bool", [], "which")

        def node(name: str) -> Any:
            return lambda: case.op_call(x if through else x * 2.0, h, c, name=name).output

        tf.identity(v1.cond(which, node("one"), node("two"), name="cond"), name="y")
    return graph.as_graph_def()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_switch_and_a_recurrence_have_an_identity_between_them(dtype: str) -> None:
    case = Case(Mode.LSTM, dtype=dtype)
    graph = switched(case, through=True)
    recurrences = [case.recurrence(f"cond/{name}") for name in ("one", "two")]
    made = lowered(graph, recurrences, {}, ends=["x:0", "h:0", "c:0", "which:0", "y:0"])
    nodes = {node.name: node for node in made.node}
    for name in ("one", "two"):
        between = nodes[f"cond/{name}/input"]
        assert between.op == "Identity"
        assert nodes[between.input[0].partition(":")[0]].op == "Switch"
        readers = [node for node in made.node if f"cond/{name}/input" in node.input]
        assert readers
        assert all(reader.name.startswith(f"cond/{name}/") for reader in readers)


def test_elsewhere_there_is_none() -> None:
    case = Case(Mode.LSTM)
    graph = switched(case, through=False)
    recurrences = [case.recurrence(f"cond/{name}") for name in ("one", "two")]
    made = lowered(graph, recurrences, {}, ends=["x:0", "h:0", "c:0", "which:0", "y:0"])
    assert not [name for name in ops(made) if name.endswith("/input")]


def test_checks_of_shapes_stay_where_they_are_known_to_hold() -> None:
    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, 2], "a")
        tf.ensure_shape(a * 1.0, [None, 2], name="known")
        tf.ensure_shape(a * 1.0, [3, 2], name="unknown")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "known:0", "unknown:0"])
    nodes = {node.name: node for node in made.node}
    assert (nodes["known"].op, nodes["unknown"].op) == ("EnsureShape", "Identity")
    assert set(nodes["unknown"].attr) == {"T"}
    with session(made, {}) as running:
        found = running.run(["known:0", "unknown:0"], {"a:0": np.ones((5, 2))})
    assert [value.shape for value in found] == [(5, 2), (5, 2)]


# What the converter fails on, written in another way.


def lite_answers(graph: Any, given: dict[str, Any], wanted: list[str]) -> list[Any]:
    """What the file that the converter makes of a lowered graph answers, by the names of tensors."""
    with import_graph(graph).as_default() as imported, v1.Session() as running:
        ends = [[imported.get_tensor_by_name(name) for name in names] for names in (given, wanted)]
        content = v1.lite.TFLiteConverter.from_session(running, *ends).convert()
    run = tf.lite.Interpreter(model_content=content)
    for detail, value in zip(run.get_input_details(), given.values(), strict=True):
        run.resize_tensor_input(detail["index"], np.shape(value))
    run.allocate_tensors()
    for detail, value in zip(run.get_input_details(), given.values(), strict=True):
        run.set_tensor(detail["index"], value)
    run.invoke()
    return [run.get_tensor(detail["index"]) for detail in run.get_output_details()]


@pytest.mark.usefixtures("v1_control_flow")
def test_ends_of_loops_and_branches_are_outputs() -> None:
    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, 2], "a")
        _, grown = v1.while_loop(lambda k, _: k < 3, lambda k, b: (k + 1, tf.tanh(b) + a), [0, a])
        chosen = v1.cond(tf.reduce_sum(a) > 0, lambda: grown * 2, lambda: a)
    assert [value.op.type for value in (grown, chosen)] == ["Exit", "Merge"]
    ends = ["a:0", grown.name, chosen.name]
    made = lowered(graph.as_graph_def(), [], {}, ends=ends)
    nodes = {node.name: node for node in made.node}
    for value in (grown, chosen):
        end = nodes[value.op.name]
        assert (end.op, nodes[end.input[0]].op) == ("Identity", value.op.type)
    given = {"a:0": np.array([[1, 2], [-1, 4]], np.float32)}
    with v1.Session(graph=graph) as running:
        expected = running.run(ends[1:], given)
    for answer, value in zip(lite_answers(made, given, ends[1:]), expected, strict=True):
        np.testing.assert_allclose(answer, value, rtol=1e-6)


@pytest.mark.usefixtures("v1_control_flow")
def test_a_variable_that_only_the_condition_reads_has_a_switch() -> None:
    def body(k: Any, total: Any, _: Any) -> Any:
        return k + 1, total + a, total[0, 0] < 9

    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, 2], "a")
        loop = v1.while_loop(lambda k, _, go: tf.logical_and(k < 9, go), body, [0, a, tf.constant(True)])
        tf.identity(loop[1], "y")
    source = prune(Graph(graph.as_graph_def()), ["y:0"])
    made = lowered(source, [], {}, ends=["a:0", "y:0"])
    index = Graph.of(made).index
    merges = [node for node in source.node if node.op == "Merge"]
    assert len(merges) == 3
    for merge in merges:
        assert [node.op for node in index.consumers(merge.name)].count("Switch") == 1
    added = {*index.nodes} - {*source.index.nodes}
    assert sorted(index.nodes[name].op for name in added) == ["Identity", "Switch"]
    assert added <= prune(Graph.of(made), ["y:0"]).index.nodes.keys()
    given = {"a:0": np.array([[1, 2], [-1, 1]], np.float32)}
    with v1.Session(graph=graph) as running:
        expected = running.run("y:0", given)
    np.testing.assert_array_equal(lite_answers(made, given, ["y:0"]), [expected])


@pytest.mark.parametrize(
    ("shape", "axes", "is_sliced"),
    [
        ([None, None, 1], [2], True),
        ([None, 1, None, 1], [-1, 1], True),
        ([1, None, None, 3], [0], True),
        ([None, 3, 1], [2], False),
        ([None, None, 1], [], False),
        (None, [1], False),
    ],
)
def test_a_squeeze_that_leaves_several_open_sizes_is_a_slice(shape: Any, axes: Any, is_sliced: bool) -> None:
    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", shape, "a")
        order = a if shape is None else tf.transpose(a, [*range(len(shape))][::-1])
        axes = axes if shape is None else [len(shape) - 1 - axis % len(shape) for axis in axes]
        tf.identity(tf.squeeze(order, axes or None, name="narrow"), "y")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "y:0"])
    assert ops(made)["narrow"] == ("StridedSlice" if is_sliced else "Squeeze")
    assert all(value.WhichOneof("value") for node in made.node for value in node.attr.values())
    if is_sliced:
        sizes = [size or k + 2 for k, size in enumerate(shape)]
        given = {"a:0": np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)}
        with v1.Session(graph=graph) as running:
            expected = running.run("y:0", given)
        known = Graph.of(made).shapes.get_tensor_by_name("y:0").shape
        assert known.as_list() == graph.get_tensor_by_name("y:0").shape.as_list()
        np.testing.assert_array_equal(lite_answers(made, given, ["y:0"]), [expected])


@pytest.mark.parametrize(
    "cut",
    [
        lambda a, n: a[:, :, None],
        lambda a, n: a[:, 0, None],
        lambda a, n: a[None, ..., None, :, None],
        lambda a, n: a[:, None, 1:, None],
        lambda a, n: a[None, :, 1, None],
        lambda a, n: a[..., -1:, None, None],
        lambda a, n: a[1:n, :, None],
        lambda a, n: a[None, None],
    ],
    ids=["last", "shrunk", "ellipsis", "two", "first", "behind", "tensor", "only"],
)
def test_new_axes_beside_several_open_sizes_are_inserted(cut: Any) -> None:
    with tf.Graph().as_default() as graph:
        a, n = v1.placeholder("float32", [None, None, None], "a"), v1.placeholder("int32", [], "n")
        tf.identity(cut(tf.transpose(a, [1, 0, 2]), n), "y")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "n:0", "y:0"])
    assert not any(node.attr["new_axis_mask"].i for node in made.node)
    given = {"a:0": np.arange(60, dtype=np.float32).reshape(4, 3, 5), "n:0": np.int32(3)}
    with v1.Session(graph=graph) as running:
        expected = running.run("y:0", given)
    np.testing.assert_array_equal(lite_answers(made, given, ["y:0"]), [expected])


def test_new_axes_that_the_converter_takes_stay() -> None:
    """A Reshape may have one open size; of computed bounds nothing says which to leave out."""
    with tf.Graph().as_default() as graph:
        a, bounds = v1.placeholder("float32", [None, 3], "a"), v1.placeholder("int32", [3], "bounds")
        tf.strided_slice(a, [0, 0, 0], [0, 0, 0], begin_mask=3, end_mask=3, new_axis_mask=4, name="single")
        wide = v1.placeholder("float32", [None, None], "wide")
        tf.strided_slice(wide, bounds, bounds, begin_mask=3, end_mask=3, new_axis_mask=4, name="computed")
        odd = v1.placeholder("float32", None, "odd")
        tf.strided_slice(odd, [0, 0], [0, 0], begin_mask=1, end_mask=1, new_axis_mask=2, name="unknown")
    expanded = tflite._expand_slices(Graph(graph.as_graph_def()))
    kinds = {node.name: node.op for node in expanded.node}
    assert (kinds["single"], kinds["computed"], kinds["unknown"]) == (
        "StridedSlice",
        "StridedSlice",
        "ExpandDims",
    )


@pytest.mark.usefixtures("v1_control_flow")
def test_a_new_axis_is_inserted_in_its_loop() -> None:
    def body(k: Any, total: Any) -> Any:
        return k + 1, total + (tf.transpose(a)[:, k:, None] * tf.ones([2]))[:, 0]

    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, None], "a")
        first = tf.zeros([tf.shape(a)[1], 2])
        shapes = [tf.TensorShape([]), tf.TensorShape([None, 2])]
        tf.identity(v1.while_loop(lambda k, _: k < 3, body, [0, first], shapes)[1], "y")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "y:0"])
    assert "ExpandDims" in ops(made).values()
    given = {"a:0": np.arange(12, dtype=np.float32).reshape(4, 3)}
    with v1.Session(graph=graph) as running:
        expected = running.run("y:0", given)
    np.testing.assert_array_equal(lite_answers(made, given, ["y:0"]), [expected])


def test_lists_of_functions_are_rows_of_numbers() -> None:
    def inner(rows: Any) -> Any:
        return tf.map_fn(lambda row: tf.tanh(row) + 1, rows)

    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, None, None], "a")
        tf.identity(tf.map_fn(inner, a), "y")
    source = graph.as_graph_def()
    assert any(node.op.startswith("TensorList") for body in source.library.function for node in body.node_def)
    made = lowered(source, [], {}, ends=["a:0", "y:0"])
    assert not [op for op in ops(made).values() if op.startswith("Tensor")]
    given = {"a:0": np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 12}
    with v1.Session(graph=graph) as running:
        expected = running.run("y:0", given)
    np.testing.assert_allclose(lite_answers(made, given, ["y:0"]), [expected], rtol=1e-6)


@pytest.mark.usefixtures("v1_control_flow")
def test_a_squeeze_is_sliced_in_its_loop() -> None:
    def body(k: Any, total: Any) -> Any:
        return k + 1, total + tf.reduce_sum(tf.squeeze(tf.transpose(a, [1, 0, 2]), 2), 0)

    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, None, 1], "a")
        tf.identity(v1.while_loop(lambda k, _: k < 3, body, [0, tf.zeros([4])])[1], "y")
    made = lowered(graph.as_graph_def(), [], {}, ends=["a:0", "y:0"])
    assert "Squeeze" not in ops(made).values()
    given = {"a:0": np.arange(12, dtype=np.float32).reshape(4, 3, 1)}
    with v1.Session(graph=graph) as running:
        expected = running.run("y:0", given)
    np.testing.assert_array_equal(lite_answers(made, given, ["y:0"]), [expected])
