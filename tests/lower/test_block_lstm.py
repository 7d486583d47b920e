"""BlockLSTM nodes in ONNX, in ONNX Runtime, against the op's equations written out in NumPy."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from support.tiers import combinations

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import ops, session
from cudnn_convert.graph.passes import inlining
from cudnn_convert.lower import block_lstm
from cudnn_convert.lower.onnx.convert import lower
from cudnn_convert.lower.onnx.walk import all_nodes
from cudnn_convert.model import Array, Mode, Signature, Sizes

v1 = tf.compat.v1
INPUTS, UNITS = 3, 4
NAMES = ("i", "cs", "f", "o", "ci", "co", "h")


def weights(dtype: Any) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    shapes = {"w": (INPUTS + UNITS, 4 * UNITS), "wci": (UNITS,), "wcf": (UNITS,), "wco": (UNITS,)}
    shapes["b"] = (4 * UNITS,)
    return {name: rng.uniform(-0.8, 0.8, shape).astype(dtype) for name, shape in shapes.items()}


@dataclass(frozen=True)
class Node:
    """A BlockLSTM node: its attributes, and how its number of steps is written."""

    op: str = "BlockLSTM"
    forget_bias: float = 0.75
    clip: float = -1.0
    peephole: bool = False
    dtype: Any = np.float32
    all_steps: bool = False

    def place(self, x: Any, c: Any, h: Any, steps: Any, given: dict[str, Any]) -> Any:
        attributes = {"cell_clip": self.clip, "use_peephole": self.peephole}
        if self.op == "BlockLSTM":
            attributes["forget_bias"] = self.forget_bias
        if self.all_steps:
            steps = tf.cast(tf.shape(x)[0], tf.int64)
        make = getattr(tf.raw_ops, self.op)
        return make(seq_len_max=steps, x=x, cs_prev=c, h_prev=h, **given, **attributes)

    def graph(self, wanted: Any, *, constant: bool = True) -> Any:
        """`wanted` maps the node's results and its weights to outputs by key."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(self.dtype, [None, None, INPUTS], "x")
            c, h = (v1.placeholder(self.dtype, [None, UNITS], name) for name in ("c0", "h0"))
            steps = v1.placeholder(tf.int64, [], "steps")
            given = {
                name: tf.identity(tf.constant(value), name=f"{name}/read")
                if constant
                else v1.placeholder(value.dtype, value.shape, name)
                for name, value in weights(self.dtype).items()
            }
            outputs = wanted(self.place(x, c, h, steps, given))
            named = {key: tf.identity(value, name=key).name for key, value in outputs.items()}
        fed = {op.name: f"{op.name}:0" for op in graph.get_operations() if op.type == "Placeholder"}
        if self.all_steps:
            del fed["steps"]
        return graph.as_graph_def(), Signature(fed, named)

    def feeds(self, time: int, batch: int, steps: int) -> dict[str, Array]:
        rng = np.random.default_rng(time + 10 * batch)
        shapes = {"x": (time, batch, INPUTS), "c0": (batch, UNITS), "h0": (batch, UNITS)}
        made = {name: rng.standard_normal(shape).astype(self.dtype) for name, shape in shapes.items()}
        return {**made, "steps": np.array(steps, np.int64), **weights(self.dtype)}

    def answers(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """The seven results in float64, zero behind the last step that counts."""
        x, c, h, w, wci, wcf, wco, b = (
            feeds[k].astype(np.float64) for k in "x c0 h0 w wci wcf wco b".split()
        )
        if not self.peephole:
            wci = wcf = wco = np.zeros(UNITS)
        time, batch = x.shape[:2]
        found = {name: np.zeros((time, batch, UNITS)) for name in NAMES}
        for t in range(time if self.all_steps else int(feeds["steps"])):
            parts = np.split(np.concatenate([x[t], h], 1) @ w + b, 4, axis=1)
            i, memory, f, o = parts if self.op == "BlockLSTM" else (parts[0], parts[2], parts[1], parts[3])
            i = sigmoid(i + wci * c)
            f = sigmoid(f + wcf * c + (self.forget_bias if self.op == "BlockLSTM" else 0))
            memory = np.tanh(memory)
            c = i * memory + f * c
            if self.clip > 0:
                c = np.clip(c, -self.clip, self.clip)
            o = sigmoid(o + wco * c)
            h = o * np.tanh(c)
            for name, value in zip(NAMES, (i, c, f, o, memory, np.tanh(c), h), strict=True):
                found[name][t] = value
        return found


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def run(model: Any, feeds: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [entry.name for entry in session.get_outputs()]
    given = {entry.name: feeds[entry.name] for entry in session.get_inputs()}
    values: list[Any] = session.run(names, given)
    return dict(zip(names, values, strict=True))


def counts(model: Any) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in all_nodes(model.graph))


def close(found: Array, expected: Array, bound: float = 1e-6) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


def last(results: Any) -> dict[str, Any]:
    return {"y": results.h, "tail": results.cs[-1:], "end": results.cs[-1, :, 1:]}


#: Steps of the input, rows, and steps that count: all, fewer and none; a loop takes an empty input too.
SHAPES = ((9, 2, 9), (7, 3, 4), (5, 2, 0))


@combinations(
    lambda op, peephole: peephole == (op == "BlockLSTM"),
    ids=lambda value: {False: "plain", True: "peephole"}[value] if isinstance(value, bool) else None,
    op=["BlockLSTM", "BlockLSTMV2"],
    peephole=[False, True],
)
def test_is_fused_where_the_last_cell_state_will_do(op: str, peephole: bool) -> None:
    node = Node(op, peephole=peephole)
    graph, signature = node.graph(last)
    model = lower(graph, signature, []).whole()
    assert counts(model)["LSTM"] == 1
    assert not {"Loop", "Scan", "If"} & set(counts(model))
    for time, batch, steps in SHAPES:
        feeds = node.feeds(time, batch, steps)
        found, expected = run(model, feeds), node.answers(feeds)
        close(found["y"], expected["h"])
        close(found["tail"], expected["cs"][-1:])
        close(found["end"], expected["cs"][-1, :, 1:])


def test_all_steps_need_no_lengths() -> None:
    node = Node(all_steps=True)
    graph, signature = node.graph(lambda results: {"y": results.h, "tail": results.cs[-1:]})
    model = lower(graph, signature, []).whole()
    (fused,) = (found for found in model.graph.node if found.op_type == "LSTM")
    assert fused.input[4] == ""
    assert "Less" not in counts(model)
    for time, batch in ((6, 3), (1, 1), (0, 2)):
        feeds = node.feeds(time, batch, time)
        found, expected = run(model, feeds), node.answers(feeds)
        close(found["y"], expected["h"])
        close(found["tail"], expected["cs"][-1:])


@pytest.mark.slow("cudnn_convert/lower")
@pytest.mark.first("all_steps", "V1-clip-peephole")
@pytest.mark.parametrize(
    "node",
    [
        pytest.param(Node(), marks=pytest.mark.every),
        Node("BlockLSTMV2", peephole=True),
        Node(clip=0.25, peephole=True),
        Node("BlockLSTMV2", clip=0.25),
        Node(all_steps=True),
    ],
    ids=["V1", "V2-peephole", "V1-clip-peephole", "V2-clip", "all_steps"],
)
def test_is_a_loop_that_gives_everything(node: Node) -> None:
    graph, signature = node.graph(lambda results: dict(zip(NAMES, results, strict=True)))
    model = lower(graph, signature, []).whole()
    assert counts(model)["Loop"] == 1
    assert "LSTM" not in counts(model)
    for time, batch, steps in (*SHAPES, (0, 2, 0)):
        feeds = node.feeds(time, batch, steps)
        found, expected = run(model, feeds), node.answers(feeds)
        for name in NAMES:
            close(found[name], expected[name])


def test_weights_that_are_inputs() -> None:
    node = Node(peephole=True)
    graph, signature = node.graph(last, constant=False)
    feeds = node.feeds(6, 3, 6)
    found, expected = run(lower(graph, signature, []).whole(), feeds), node.answers(feeds)
    close(found["y"], expected["h"])
    close(found["end"], expected["cs"][-1, :, 1:])


def test_attributes_that_are_not_written_have_their_defaults() -> None:
    """SavedModels leave them out: a forget bias of 1, a clip of 3."""
    node = Node(forget_bias=1.0, clip=3.0)
    graph, signature = node.graph(last)
    (block,) = (found for found in graph.node if found.op == "BlockLSTM")
    for name in ("forget_bias", "cell_clip", "use_peephole"):
        del block.attr[name]
    feeds = node.feeds(30, 2, 30)
    feeds["x"] *= 8
    found, expected = run(lower(graph, signature, []).whole(), feeds), node.answers(feeds)
    assert np.abs(expected["cs"]).max() == 3
    close(found["y"], expected["h"], 1e-5)
    close(found["tail"], expected["cs"][-1:], 1e-5)


@pytest.mark.first("fused")
@pytest.mark.parametrize("clip", [-1.0, 0.25], ids=["fused", "loop"])
def test_half(clip: float) -> None:
    node = Node(clip=clip, dtype=np.float16)
    graph, signature = node.graph(last)
    feeds = node.feeds(6, 3, 5)
    found, expected = run(lower(graph, signature, []).whole(), feeds), node.answers(feeds)
    assert found["y"].dtype == np.float16
    close(found["y"], expected["h"], 2e-3)
    close(found["tail"], expected["cs"][-1:], 2e-3)


def turning(node: Node) -> tuple[Any, Signature]:
    """Three rounds, each from the cell state that the last one ended in."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, INPUTS], "x")
        c, h = (v1.placeholder(tf.float32, [None, UNITS], name) for name in ("c0", "h0"))
        steps = v1.placeholder(tf.int64, [], "steps")
        given = {name: tf.identity(tf.constant(value)) for name, value in weights(np.float32).items()}

        def body(turn: Any, state: Any, _: Any) -> tuple[Any, ...]:
            results = node.place(x, state, h, steps, given)
            state = tf.ensure_shape(results.cs[-1], [None, UNITS])
            return turn + 1, state, tf.ensure_shape(results.h[-1], [None, UNITS])

        _, state, y = v1.while_loop(lambda turn, *_: turn < 3, body, (tf.constant(0), c, h))
        names = {"state": tf.identity(state, "state").name, "y": tf.identity(y, "y").name}
    return graph.as_graph_def(), Signature({name: f"{name}:0" for name in ("x", "c0", "h0", "steps")}, names)


def compare_turns(node: Node, feeds: dict[str, Array], found: Any) -> None:
    state = feeds
    for _ in range(3):
        expected = node.answers(state)
        state = {**feeds, "c0": expected["cs"][-1]}
    close(found["state"], expected["cs"][-1])
    close(found["y"], expected["h"][-1])


@pytest.mark.usefixtures("v1_control_flow")
def test_inside_a_loop_of_the_graph() -> None:
    node = Node(peephole=True)
    feeds = node.feeds(5, 2, 5)
    compare_turns(node, feeds, run(lower(*turning(node), []).whole(), feeds))


def test_inside_a_loop_whose_body_is_a_function() -> None:
    """As TensorFlow 2 writes loops: the body is laid flat, where its block can be replaced."""
    node = Node(peephole=True)
    graph, signature = turning(node)
    assert [each.op for each in graph.node if each.op.endswith("While")]
    flat = inlining.flatten(graph, signature.outputs.values())
    feeds = node.feeds(5, 2, 5)
    compare_turns(node, feeds, run(lower(flat, signature, []).whole(), feeds))


def test_a_loop_inside_a_loop_is_one_of_tensorflow_lite() -> None:
    node = Node(clip=0.25)
    graph, signature = turning(node)
    flat = inlining.flatten(graph, signature.outputs.values())
    lowered, recurrences = block_lstm.lower_block_lstm(flat, signature.outputs.values(), nests_loops=True)
    assert recurrences == ()
    assert not any(each.op in ops.BLOCK_LSTMS for each in lowered.node)
    feeds = node.feeds(5, 2, 5)
    with session.session(lowered, {}) as opened:
        fed = {tensor: feeds[name] for name, tensor in signature.inputs.items()}
        compare_turns(node, feeds, opened.run(dict(signature.outputs), fed))


@pytest.mark.usefixtures("v1_control_flow")
def test_a_loop_inside_a_loop_is_refused() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        lower(*turning(Node(clip=0.25)), []).whole()
    (reason,) = refused.value.reasons
    assert reason == (
        "while/BlockLSTM: expected a BlockLSTM that fits into one op (constant weights, no clip, only the "
        "last cell state read), found one in the loop while/while_context that does not; choose the format "
        "savedmodel or frozen"
    )


@pytest.mark.slow("cudnn_convert/lower/")
def test_the_same_bytes_every_time() -> None:
    graph, signature = Node(clip=0.25).graph(last)
    one, other = (lower(graph, signature, []).whole().SerializeToString(deterministic=True) for _ in range(2))
    assert one == other


def test_a_graph_without_a_block_stays_as_it_is() -> None:
    """Its functions too, in their order."""
    with tf.Graph().as_default() as graph:
        tf.identity(v1.placeholder(tf.float32, [], "x"), name="y")
    given = graph.as_graph_def()
    for name in ("second", "first"):
        given.library.function.add().signature.name = name
    before = given.SerializeToString()
    found, recurrences = block_lstm.lower_block_lstm(given, ["y:0"], nests_loops=True)
    assert (found.definition.SerializeToString(), recurrences) == (before, ())


def test_functions_that_a_graph_has_stay_beside_those_of_a_loop() -> None:
    graph, signature = Node(clip=0.25).graph(last)
    graph.library.function.add().signature.name = "own"
    found, recurrences = block_lstm.lower_block_lstm(graph, signature.outputs.values(), nests_loops=True)
    names = [function.signature.name for function in found.library.function]
    assert names == sorted(names)
    assert "own" in names
    assert len(names) == 3  # and a condition and a body
    assert recurrences == ()


def test_a_fused_block_is_told_by_its_sizes_and_weights() -> None:
    node = Node("BlockLSTMV2", peephole=True)
    graph, signature = node.graph(last)
    _, (found,) = block_lstm.lower_block_lstm(graph, signature.outputs.values(), nests_loops=True)
    assert (found.node, found.op) == ("BlockLSTMV2/cudnn", "BlockLSTMV2")
    assert (found.sizes, found.lengths) == (Sizes(Mode.LSTM, 1, 1, UNITS, INPUTS), True)
    ((cell,),) = found.cells
    w = weights(np.float32)
    ifco = np.split(w["w"].T, 4)
    for gate in range(4):  # in the order of cuDNN, which is the same
        np.testing.assert_array_equal(cell.kernel[gate], ifco[gate][:, :INPUTS])
        np.testing.assert_array_equal(cell.recurrent_kernel[gate], ifco[gate][:, INPUTS:])
    np.testing.assert_array_equal(cell.bias.ravel(), w["b"])
    assert not cell.recurrent_bias.any()
    np.testing.assert_array_equal(cell.peepholes, np.stack([w["wci"], w["wcf"], w["wco"]]))
