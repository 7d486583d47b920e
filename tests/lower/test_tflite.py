"""The lowering to TensorFlow Lite, before its converter sees it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import BATCH, INPUTS, STEPS, UNITS, Case, swapped, v1
from support.graphs import drawing, ops
from support.tiers import combinations, some
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from cudnn_convert.graph.graph import Graph, import_graph, prune
from cudnn_convert.graph.session import session
from cudnn_convert.lower import tflite
from cudnn_convert.lower.tflite import FORM
from cudnn_convert.model import Array, InMemory, Mode, Recurrence

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


# The loop for TensorFlow Lite, run step by step in Python, against the float64 reference.
#
# TensorFlow has `XlaDynamicUpdateSlice` in functions compiled by XLA alone: NumPy does its work here.
# The files that become of the loop are run in tests/properties/test_tflite.py.

#: Steps around the ends of blocks of 32: none, one, a full block and one more, two blocks, three.
NUMBERS_OF_STEPS = (0, 1, 32, 33, 64, 70)
#: How many rows there were to write into, by all updates of a test.
HELD: set[int] = set()
GENUINE = gen_xla_ops.xla_dynamic_update_slice


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """xla/xla_data.proto, DynamicUpdateSlice: an update that would reach over the end begins earlier."""

    def updated(*, input: Any, update: Any, indices: Any) -> Any:  # noqa: A002 - the op's own name
        held = input.numpy().copy()
        HELD.add(len(held))
        first, *others = (int(k) for k in indices)
        assert others == [0, 0]
        first = min(max(first, 0), len(held) - len(update))
        held[first : first + len(update)] = update
        return tf.constant(held)

    monkeypatch.setattr(gen_xla_ops, "xla_dynamic_update_slice", updated)


def computed(recurrence: Recurrence, given: list[Any]) -> list[Array]:
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]
    return [value.numpy() for value in FORM.compute(recurrence)(*given, *weights)]


def judged(case: Case, steps: int) -> None:
    turn = (lambda value: value) if case.time_major else swapped
    feeds = case.feeds(steps)
    given = [tf.constant(turn(feeds[key])) for key in ("x", "h", "c")]
    found = computed(case.recurrence(), [*given, feeds.get("lengths")])
    for got, expected in zip(found, case.expected(feeds), strict=False):
        assert turn(got).shape == expected.shape
        np.testing.assert_allclose(turn(got), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("written")
@combinations(
    lambda op, steps: op == "CudnnRNNV3" or steps == 33, op=["CudnnRNN", "CudnnRNNV3"], steps=NUMBERS_OF_STEPS
)
def test_blocks_of_steps(op: str, steps: int) -> None:
    judged(Case(Mode.GRU, 1, 2, op), steps)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(("steps", "rows"), [(1, 32), (31, 32), (32, 32), (33, 64), (65, 96)])
def test_no_more_rows_are_kept_than_whole_blocks_need(steps: int, rows: int) -> None:
    HELD.clear()
    judged(Case(Mode.GRU), steps)
    assert {32, rows, steps} == HELD  # and the inputs, which are written into themselves


@pytest.mark.usefixtures("written")
@combinations(
    lambda mode, time_major: time_major == (mode in (Mode.LSTM, Mode.RNN_TANH)),
    ids=lambda value: {True: "time_major", False: "batch_major"}[value] if isinstance(value, bool) else None,
    mode=Mode,
    time_major=[True, False],
)
def test_every_mode(mode: Mode, time_major: bool) -> None:
    judged(Case(mode, 2, 2, "CudnnRNNV3", time_major), 35)
    judged(Case(mode, 2, 1, time_major=time_major), 3)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("projection", some([3], 1))
def test_a_projection(projection: int) -> None:
    judged(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=projection), 34)


@pytest.mark.usefixtures("written")
def test_peepholes() -> None:
    """The equations of TensorFlow's BlockLSTM (core/ops/rnn_ops.cc)."""
    case, random = Case(Mode.LSTM), np.random.default_rng(5)
    recurrence = case.recurrence()
    cell = dataclasses.replace(recurrence.cells[0][0], peepholes=random.normal(size=(3, UNITS)).astype("f4"))
    feeds = case.feeds(5)
    given = [tf.constant(feeds[key]) for key in ("x", "h", "c")]
    y, h_n, c_n = computed(dataclasses.replace(recurrence, cells=((cell,),)), [*given, None])
    h, c = feeds["h"][0].astype(float), feeds["c"][0].astype(float)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    rows = []
    for x in feeds["x"]:
        i, f, j, o = (
            x @ cell.kernel[k].T + h @ cell.recurrent_kernel[k].T + cell.bias[k] + cell.recurrent_bias[k]
            for k in range(4)
        )
        at_input, at_forget, at_output = cell.peepholes
        c = sigmoid(f + at_forget * c) * c + sigmoid(i + at_input * c) * np.tanh(j)
        h = sigmoid(o + at_output * c) * np.tanh(c)
        rows.append(h)
    np.testing.assert_allclose(y, np.stack(rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h_n[0], h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c_n[0], c, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("written")
def test_each_pseudo_layer_has_weights_of_its_own_name() -> None:
    case = Case(Mode.GRU, 2, 2, dtype="float16")
    found = FORM.weights(dataclasses.replace(case.recurrence(), shared="scope/blob"))
    stems = [f"scope/blob/layer_{layer}/{way}_float16" for layer in (0, 1) for way in ("forward", "backward")]
    gates = ("kernel", "recurrent_kernel", "bias")
    arrays = [
        *(f"gates_{name}" for name in gates),
        *(f"candidate_{name}" for name in (*gates, "recurrent_bias")),
    ]
    assert [*found] == [f"{stem}/{name}" for stem in stems for name in arrays]
    for stem, cell in zip(stems, (cell for layer in case.recurrence().cells for cell in layer), strict=True):
        np.testing.assert_array_equal(
            found[f"{stem}/gates_bias"], (cell.bias + cell.recurrent_bias)[:2].reshape(-1)
        )  # r, z, n as cuDNN has them
    plain = FORM.weights(Case(Mode.LSTM, 1, 1).recurrence())
    assert {name.rpartition("/")[0] for name in plain} == {"rnn/blob/layer_0/forward_float32"}


@pytest.mark.usefixtures("written")
def test_graphs_know_the_shape_of_what_comes_out() -> None:
    """The batch of the states may be known where the input's is not."""
    case = Case(Mode.LSTM, 1, 2)
    recurrence = case.recurrence()
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gen_xla_ops, "xla_dynamic_update_slice", GENUINE)
        specs = [tf.TensorSpec(shape) for shape in ([None, None, 4], [2, 1, UNITS], [2, 1, UNITS])]
        traced = tf.function(
            lambda x, h, c: FORM.compute(recurrence)(x, h, c, None, *weights), autograph=False
        ).get_concrete_function(*specs)
    assert traced.output_shapes[0].as_list() == [None, None, 2 * UNITS]
    assert [shape.as_list()[-1] for shape in traced.output_shapes[1:]] == [UNITS, UNITS]


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("mode", [Mode.GRU, Mode.LSTM])
def test_no_product_of_all_steps_reads_a_reshape(mode: Mode) -> None:
    """XNNPACK read an earlier call's input there."""
    case = Case(mode, 2, 2)
    recurrence = case.recurrence()
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gen_xla_ops, "xla_dynamic_update_slice", GENUINE)
        specs = [tf.TensorSpec(shape) for shape in ([None, None, 4], [4, None, UNITS], [4, None, UNITS])]
        traced = tf.function(
            lambda x, h, c: FORM.compute(recurrence)(x, h, c, None, *weights), autograph=False
        ).get_concrete_function(*specs)
    products = [op for op in traced.graph.get_operations() if "MatMul" in op.type]
    assert len(products) == 4 * (2 if mode is Mode.GRU else 1)
    assert not [op.name for op in products if op.inputs[0].op.type == "Reshape"]
