"""What a graph becomes on the way to TensorFlow Lite, before its converter sees it."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import BATCH, INPUTS, STEPS, UNITS, Case, v1
from graphs import drawing, ops

from cudnn_convert.graph.session import session
from cudnn_convert.lower import tflite
from cudnn_convert.model import InMemory, Mode

FLOATS = {tf.float32.as_datatype_enum, tf.float16.as_datatype_enum, tf.float64.as_datatype_enum}
FLOATS.add(tf.bfloat16.as_datatype_enum)


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
    made = tflite.lower_tflite(graph, [case.recurrence()], {}, ends=ends).graph
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
    made = tflite.lower_tflite(graph.as_graph_def(), [], {"w": InMemory(kernel)}, ends=["x:0", "y:0"]).graph
    found = collections.Counter(ops(made).values())
    assert not {"BlockLSTM", "CudnnRNN", "VariableV2", "VarHandleOp"} & set(found)
    assert found["While"] + found["StatelessWhile"] >= 1
    loop = np.concatenate([kernel[:INPUTS].reshape(INPUTS, 4, UNITS)[:, gate] for gate in (0, 2, 3, 1)], 1)
    constants = [tf.make_ndarray(node.attr["value"].tensor) for node in made.node if node.op == "Const"]
    assert sum(np.array_equal(value, loop) for value in constants) == 1  # i, f, o, c of i, c, f, o


def test_a_graph_without_recurrences_stays_what_it_was() -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(v1.placeholder("float32", [None, 2], "a") * 2.0, name="y")
    made = tflite.lower_tflite(graph.as_graph_def(), [], {}, ends=["a:0", "y:0"]).graph
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
    made = tflite.lower_tflite(graph, recurrences, {}, ends=["x:0", "h:0", "c:0", "which:0", "y:0"]).graph
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
    made = tflite.lower_tflite(graph, recurrences, {}, ends=["x:0", "h:0", "c:0", "which:0", "y:0"]).graph
    assert not [name for name in ops(made) if name.endswith("/input")]


def test_checks_of_shapes_stay_where_they_are_known_to_hold() -> None:
    with tf.Graph().as_default() as graph:
        a = v1.placeholder("float32", [None, 2], "a")
        tf.ensure_shape(a * 1.0, [None, 2], name="known")
        tf.ensure_shape(a * 1.0, [3, 2], name="unknown")
    made = tflite.lower_tflite(graph.as_graph_def(), [], {}, ends=["a:0", "known:0", "unknown:0"]).graph
    nodes = {node.name: node for node in made.node}
    assert (nodes["known"].op, nodes["unknown"].op) == ("EnsureShape", "Identity")
    assert set(nodes["unknown"].attr) == {"T"}
    with session(made, {}) as running:
        found = running.run(["known:0", "unknown:0"], {"a:0": np.ones((5, 2))})
    assert [value.shape for value in found] == [(5, 2), (5, 2)]
