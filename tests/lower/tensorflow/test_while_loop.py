"""The loop over steps against the float64 reference, and the ops that run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.lowered_recurrences import cells, judged, looped, stored
from support.samples import ROOT
from support.tiers import combinations, some

from cudnn_convert.graph.index import walk
from cudnn_convert.graph.passes import inlining
from cudnn_convert.lower.tensorflow import layer_stack, while_loop
from cudnn_convert.model import Mode
from cudnn_convert.verification import effort

# The loop over steps against the float64 reference, however many it takes in an iteration.


#: The steps an iteration as users have them.
SMALL, OTHERS = layer_stack._SMALL, layer_stack._OTHERS
#: Each mode with lengths and with none, or in either layout; and several layers and directions.
LOOPS = {
    (Mode.LSTM, (2, 2), "CudnnRNNV3", True),
    (Mode.LSTM, (1, 1), "CudnnRNN", False),
    (Mode.GRU, (1, 1), "CudnnRNNV3", False),
    (Mode.GRU, (1, 1), "CudnnRNN", True),
    (Mode.RNN_TANH, (1, 1), "CudnnRNNV3", True),
    (Mode.RNN_RELU, (1, 1), "CudnnRNN", False),
}


def label(value: Any) -> str:
    """A parameter of a loop in a test's id."""
    if isinstance(value, bool):
        return "time_major" if value else "batch_major"
    return "-".join(map(str, value)) if isinstance(value, tuple) else getattr(value, "value", value)


@pytest.mark.first(
    "gru-1-1-CudnnRNNV3-batch_major",
    "lstm-1-1-CudnnRNN-batch_major",
    "rnn_tanh-1-1-CudnnRNNV3-time_major",
    "rnn_relu-1-1-CudnnRNN-batch_major",
)
@combinations(
    lambda *case: case in LOOPS,
    ids=label,
    mode=Mode,
    network=[(1, 1), (2, 2)],
    op=["CudnnRNN", "CudnnRNNV3"],
    time_major=[True, False],
)
def test_the_loop(mode: Mode, network: tuple[int, int], op: str, time_major: bool) -> None:
    case = Case(mode, *network, op, time_major)
    for together in (SMALL, OTHERS, (2, 1), while_loop.PLAIN):
        judged(case, looped(case, together), stored(case, block=False))


@pytest.mark.first("True-Mode.GRU-CudnnRNNV3", "False-Mode.LSTM-CudnnRNN")
@pytest.mark.parametrize(("mode", "op"), [(Mode.LSTM, "CudnnRNN"), (Mode.GRU, "CudnnRNNV3")])
@pytest.mark.parametrize("single", [True, False])
def test_few_rows_and_many_take_no_step_or_some(mode: Mode, op: str, single: bool) -> None:
    """Few rows take a branch of a single step, of loops, or of none, which gives the initial states."""
    case = Case(mode, 2, 2, op, True)
    layer = partial(while_loop.layer, together=(2, 1), many=3, single=single)
    weights = stored(case, block=False)
    each = len(weights) // case.depth
    stack = layer_stack.stack_layers(case.sizes, layer, each, time_major=True)
    steps = [0, 1, 2, 5] if single else [0, 2, 5]
    judged(case, stack, weights, [(count, rows) for count in steps for rows in (0, 1, 2, 3)])


@pytest.mark.parametrize("op", some(["CudnnRNNV3"], "CudnnRNN"))
def test_loops_one_after_another(op: str) -> None:
    """Each of them several times, once and not at all."""
    case = Case(Mode.GRU, 2, 2, op, True)
    sizes = ((19, 2), (22, 3), (15, 2), (6, 2), (3, 2), (2, 1), (1, 2), (0, 2))
    judged(case, looped(case, (5, 2, 1)), stored(case, block=False), sizes)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_states_of_one_row_beside_an_input_of_unknown_many(mode: Mode) -> None:
    """As where zeros of a fixed shape are the first states: what a loop carries has less of a shape."""
    case = Case(mode)
    feeds = case.feeds(batch=1)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(case.dtype, [None, None, case.inputs])
        h, c = tf.constant(feeds["h"]), tf.constant(feeds["c"])
        made = looped(case, (10, 1))(x, h, c, None, *stored(case, block=False))
        with tf.compat.v1.Session(graph=graph) as session:
            expected = case.expected(feeds)
            found = session.run([*made][: len(expected)], {x: feeds["x"]})
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_what_the_loop_gives_is_known_by_its_width_alone(mode: Mode) -> None:
    """A dense layer asks for it; a width taken for the batch would be told to whoever reads the graph."""
    case = Case(mode)
    with tf.Graph().as_default():
        made = looped(case, (10, 1))(*case.placeholders()[:3], None, *stored(case, block=False))
    y, *states = made[: 3 if mode is Mode.LSTM else 2]
    assert y.shape.as_list() == [None, None, case.units]
    assert [state.shape.as_list() for state in states] == [[1, None, case.units]] * len(states)


def test_a_plain_loop_needs_no_op_for_its_width() -> None:
    """TensorFlow.js runs no EnsureShape (docs/serving/javascript.md)."""
    case = Case(Mode.GRU, 2, 2, "CudnnRNNV3")
    with tf.Graph().as_default() as graph:
        y, *_ = looped(case, while_loop.PLAIN)(*case.placeholders(), *stored(case, block=False))
        made = graph.as_graph_def()
    nodes = [*made.node, *(node for function in made.library.function for node in function.node_def)]
    assert "EnsureShape" not in {node.op for node in nodes}
    assert "TensorListStack" in {node.op for node in nodes}
    assert y.shape.as_list() == [None, None, 2 * case.units]


def whole(case: Case) -> list[Any]:
    """The stored arrays of a GRU with the columns of all gates in one matrix, as Keras keeps them."""
    arrays = []
    for cell in cells(case):
        kernel, recurrent, bias, *candidate = while_loop.weights(cell).values()
        arrays += [np.concatenate(pair, -1) for pair in zip((kernel, recurrent), candidate, strict=False)]
        biases = zip((bias / 4, bias * 3 / 4), candidate[2:], strict=True)
        arrays += [np.concatenate(pair) for pair in biases]
    return arrays


@pytest.mark.slow("cudnn_convert/lower/tensorflow/")
@pytest.mark.parametrize("arrays", [partial(stored, block=False), whole], ids=["parts", "whole"])
def test_threads_do_not_share_a_large_product_of_a_step(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In loops of several steps an iteration and in a single step; a plain loop's are fused with biases."""
    case = Case(Mode.GRU, 2, 2, "CudnnRNNV3", True)
    weights = arrays(case)
    each = len(weights) // 4
    products = [value.size for value in weights[:each] if value.ndim == 2 and len(value) == case.units]

    def compute(together: tuple[int, ...]) -> layer_stack.Stack:
        layer = partial(while_loop.layer, together=together)
        return layer_stack.stack_layers(case.sizes, layer, each, time_major=case.time_major)

    def unshared(together: tuple[int, ...], dtype: Any = np.float32, lengths: Any = None) -> int:
        return ops_of_loops(case, compute(together), weights, dtype, lengths)["SparseMatMul"]

    two_loops_and_a_single_step = 3
    for limit in (0, *products):
        monkeypatch.setattr(while_loop, "_UNSHARED", limit)
        judged(case, compute((1, 1)), weights, ((7, 3), (7, 1), (2, 1), (1, 1)))
        expected = 4 * two_loops_and_a_single_step * sum(size > limit for size in products)
        assert unshared((1, 1)) == unshared((1, 1), lengths=[2, 1, 0]) == expected
        assert unshared((1, 1), np.float64) == unshared(while_loop.PLAIN) == 0
    judged(case, compute(while_loop.PLAIN), weights, ((7, 3), (7, 1), (2, 1), (1, 1)))


def ops_of_loops(case: Case, stack: Any, weights: Any, dtype: Any, lengths: Any = None) -> Counter[str]:
    """The number of ops by kind in all loops and branches that compute in `dtype`."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.cast(item, dtype) for item in case.placeholders()[:3]]
        stack(*inputs, lengths, *(value.astype(dtype) for value in weights))
        functions = graph.as_graph_def().library.function
    return Counter(node.op for item in functions for node in item.node_def)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("together", "dtype", "biases"),
    [((1, 1), np.float32, 0), ((1, 1), np.float64, 3), (while_loop.PLAIN, np.float32, 1)],
    ids=["few_rows", "float64", "plain"],
)
def test_a_bias_is_added_once_for_all_steps(
    mode: Mode, together: tuple[int, ...], dtype: Any, biases: int
) -> None:
    """Unless TensorFlow fuses it with the state's product. A GRU's candidate adds a bias at each step."""
    case = Case(mode)
    counts = ops_of_loops(case, looped(case, together), stored(case, block=False), dtype)
    steps = 1 if together == while_loop.PLAIN else 3  # two loops and a single step
    candidates = steps if mode is Mode.GRU else 0
    assert counts["BiasAdd"] == biases + candidates


@pytest.mark.usefixtures("shipped_loops")
def test_the_loop_takes_several_steps_an_iteration_and_none_for_a_single_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`portable` goes step by step, in ops that TensorFlow Lite's converter knows."""
    case, ran = Case(Mode.GRU), []
    right = while_loop.cell_steps

    def counted(*given: Any, **named: bool) -> Any:
        sums, step = right(*given, **named)
        return sums, lambda rows, state, **named: ran.append(len(rows)) or step(rows, state, **named)

    monkeypatch.setattr(while_loop, "cell_steps", counted)
    # From some rows on, large matrices have a plain loop too.
    for lowering, cached, each, loops, plain in (
        *(("fast", 2**20, 16 + 4, 3, 0), ("fast", 0, 10, 2, 1)),
        ("portable", 2**20, 0, 0, 1),
    ):
        monkeypatch.setattr(layer_stack, "_CACHED", cached)
        compute = layer_stack.stack(case.recurrence(), lowering)
        with tf.Graph().as_default() as graph:
            ran.clear()
            compute(*case.placeholders()[:3], None, *stored(case, block=False))
            definition = graph.as_graph_def()
        bodies = [node.op for function in definition.library.function for node in function.node_def]
        # One for the odd steps, one for a single step; traced once, whatever their number.
        assert bodies.count("Tanh") == (each + 2 if each else 0) + plain
        assert len(ran) == (each > 0) + plain
        # A list for each loop: in TensorFlow 1.15 concurrent calls must not share the op that joins sizes.
        nodes = [*bodies, *(node.op for node in definition.node)]
        assert nodes.count("TensorListStack") == loops + plain
        assert not any(op.startswith("TensorListConcat") for op in nodes)
        # Several rows at once, and one as it is; what is stacked of one step stays an item of one.
        assert ("Unpack" in {*bodies}) == (each > 0)


@pytest.mark.parametrize("mode", some([Mode.GRU], Mode.LSTM))
def test_many_rows_go_step_by_step(mode: Mode) -> None:
    """One row fewer takes the other loops; no steps and a single one are as right."""
    case = Case(mode, 2, 2, "CudnnRNNV3", True)
    judged(case, looped(case, (5, 2, 1), 4), stored(case, block=False), ((7, 3), (7, 4), (1, 5), (0, 4)))


def test_loops_for_many_rows_become_nodes_of_the_graph_that_runs() -> None:
    """There oneDNN computes their products; the loops of few rows stay functions on one thread."""
    case = Case(Mode.GRU)
    weights, stack = stored(case, block=False), looped(case, (5, 1), 4)
    specs = [tf.TensorSpec([None, None, width], tf.float32) for width in (case.inputs, case.units)]
    specs += [tf.TensorSpec(shape, tf.float32) for shape in ([], *(value.shape for value in weights))]
    made = inlining.trace_function(lambda x, h, c, *rest: stack(x, h, c, None, *rest), *specs)
    nodes = [*made.nodes, *(node for function in made.library for node in function.node_def)]
    lowered = [node.op for node in nodes if node.attr[inlining.LOWERED].b]
    assert sorted(lowered) == ["StatelessIf", "StatelessIf", "StatelessWhile"]
    assert sum(node.op == "StatelessWhile" for node in nodes) == 3


@pytest.mark.parametrize("many", [None, 4], ids=["few_rows", "any_rows"])
@pytest.mark.parametrize("mode", Mode)
def test_no_branch_waits_for_a_product(mode: Mode, many: int | None) -> None:
    """The branch depends on the input's shape alone, so that the products of one step run side by side."""
    case = Case(mode)
    with tf.Graph().as_default() as graph:
        looped(case, (5, 1), many)(*case.placeholders()[:3], None, *stored(case, block=False))
        operations = graph.get_operations()
    branches = [op for op in operations if op.type in {"If", "StatelessIf"}]
    assert len(branches) == 1
    above = set(walk([branches[0].inputs[0].op], lambda op: [source.op for source in op.inputs]))
    assert {op.type for op in operations} >= {"MatMul", "BiasAdd"}
    assert not {op.type for op in above} & {"MatMul", "BiasAdd"}


def test_the_feeds_of_a_proof_take_every_loop() -> None:
    """They are fewer where no recurrence is small."""
    for counts, sizes in (
        (SMALL, effort.FEED_SIZES),
        (OTHERS, effort.FEED_SIZES),
        (OTHERS, effort.FEED_SIZES_OF_LARGE),
    ):
        for before, count in zip((1000, *counts), counts, strict=False):
            assert any(time % before >= count for time, _ in sizes)


# A candidate's product and its bias are one op where an artifact runs, with oneDNN and without it.

PROGRAM: Final = ROOT / "tests" / "support" / "programs" / "count_products.py"
#: The steps of the loops' bodies as users have them, and a single step; each has a product of the gates,
#: without a bias, and the candidate's, with its bias.
IN_BODIES: Final = sum(SMALL) + 1


@pytest.mark.slow("cudnn_convert/lower/tensorflow/", "tests/support/programs/count_products.py")
@pytest.mark.parametrize("onednn", ["0", "1"], ids=["without_oneDNN", "with_oneDNN"])
def test_a_product_and_its_bias_are_one_op(onednn: str) -> None:
    """In the loops. The two with the input, for all steps, have biases too, and a device at run time."""
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn, "TF_CPP_MIN_LOG_LEVEL": "3"}
    call = [sys.executable, str(PROGRAM)]
    ended = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout) == {"_FusedMatMul": IN_BODIES, "MatMul": IN_BODIES + 2, "BiasAdd": 2}
