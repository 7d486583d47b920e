"""Sizes and lengths of a cuDNN node in a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from support.cases import Case

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index
from cudnn_convert.model import Mode, Model, Recurrence, Sizes
from cudnn_convert.recurrences import resolve, weight_copies
from cudnn_convert.recurrences.resolve import lengths_are_trivial
from cudnn_convert.weights import parameter_blob

# The input mode of a node and the length of its parameters: which pairs are taken, and what refusals say.

PATH = Path("model.ckpt")
LINEAR, SKIP = Sizes(Mode.GRU, 2, 2, 3, 3), Sizes(Mode.GRU, 2, 2, 3, 3, skip_input=True)
OTHER = dataclasses.replace(LINEAR, input_size=5)
UNKNOWN = dataclasses.replace(LINEAR, input_size=0)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("input_mode", "sizes", "taken"),
    [
        ("linear_input", LINEAR, True),
        ("linear_input", OTHER, True),
        ("linear_input", SKIP, False),
        ("skip_input", SKIP, True),
        ("skip_input", LINEAR, False),
        ("skip_input", OTHER, False),
        ("auto_select", SKIP, True),
        ("auto_select", OTHER, True),
        ("auto_select", LINEAR, False),
    ],
)
def test_the_length_must_be_that_of_the_mode(input_mode: str, sizes: Sizes, taken: bool, known: bool) -> None:
    said = dataclasses.replace(sizes, skip_input=False) if known else UNKNOWN
    assert weight_copies.solve_sizes(parameter_blob.length(sizes), said, input_mode) == (
        sizes if taken else None
    )


@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input", "auto_select"])
def test_another_input_size_than_the_graphs_is_not_taken(input_mode: str) -> None:
    for sizes in (OTHER, SKIP):
        assert (
            weight_copies.solve_sizes(
                parameter_blob.length(sizes), dataclasses.replace(LINEAR, input_size=4), input_mode
            )
            is None
        )


def test_both_lengths_are_told() -> None:
    # 2 directions * 3 gates * 3 units: (3+3+2) and (6+3+2) of them, or (0+3+2) in the first layer.
    assert weight_copies.describe_lengths(LINEAR) == "342 values for linear_input, 288 for skip_input"
    assert (
        weight_copies.describe_lengths(UNKNOWN)
        == "288 + 18 * input size values for linear_input, 288 for skip_input"
    )


def decoded(
    case: Case, *, inputs: int | None = None, cell: int | None = None, **attributes: Any
) -> Recurrence:
    """The one node of `case`, after its graph was changed; `inputs` and `cell` are widths of x and c."""
    graph, _ = case.graph()
    for node in graph.node:
        for name, width in (("x", inputs), ("c", cell)):
            if node.name == name and width is not None:
                node.attr["shape"].shape.dim[2].size = width
        if node.name == "rnn":
            for key, value in attributes.items():
                if isinstance(value, int):
                    node.attr[key].i = value
                else:
                    node.attr[key].s = value.encode()
    (found,) = resolve.recurrences(Model(PATH, "frozen", graph, {}), Graph(graph))
    return found


def reasons(case: Case, **changed: Any) -> tuple[str, ...]:
    with pytest.raises(UnsupportedModelError) as refused:
        decoded(case, **changed)
    return refused.value.reasons


@pytest.mark.parametrize("mode", list(Mode))
def test_auto_select_follows_the_input_size(mode: Mode) -> None:
    skipped = decoded(Case(mode, 2, 2, input_mode="skip_input"), input_mode="auto_select")
    assert skipped.sizes.skip_input
    assert not decoded(Case(mode, 2, 2), input_mode="auto_select").sizes.skip_input


@pytest.mark.parametrize("mode", list(Mode))
def test_an_input_size_that_the_graph_leaves_open_comes_from_the_length(mode: Mode) -> None:
    skipped = decoded(Case(mode, 2, 2, input_mode="skip_input"), inputs=-1, input_mode="auto_select")
    assert (skipped.sizes.skip_input, skipped.sizes.input_size) == (True, 5)
    linear = decoded(Case(mode, 2, 2), inputs=-1, input_mode="auto_select")
    assert (linear.sizes.skip_input, linear.sizes.input_size) == (False, 4)


@pytest.mark.parametrize(
    ("case", "input_mode", "linear", "skipped", "found"),
    [
        pytest.param(
            Case(Mode.LSTM, input_mode="skip_input"), "linear_input", 240, 140, 140, id="skip-for-linear"
        ),
        pytest.param(Case(Mode.LSTM), "skip_input", 220, 140, 220, id="linear-for-skip"),
        pytest.param(Case(Mode.LSTM, units=4), "auto_select", 160, 96, 160, id="linear-for-auto"),
        pytest.param(
            Case(Mode.LSTM, op="CudnnRNNV3", input_mode="skip_input", projection=3),
            "linear_input",
            215,
            115,
            115,
            id="projected",
        ),
    ],
)
def test_a_length_of_the_other_mode_is_refused_with_both(
    case: Case, input_mode: str, linear: int, skipped: int, found: int
) -> None:
    assert reasons(case, input_mode=input_mode) == (
        f"rnn: rnn/blob: expected {linear} values for linear_input, {skipped} for skip_input, "
        f"found {found} where the op says {input_mode}; are graph and weights of one model?",
    )


def test_a_projection_of_another_width_is_refused() -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=3)
    assert reasons(case, num_proj=2) == (
        "rnn: rnn/blob: expected 680 values for linear_input, 520 for skip_input, "
        "found 860 where the op says linear_input; are graph and weights of one model?",
    )


def test_a_projection_wider_than_the_units_is_refused() -> None:
    case = Case(Mode.LSTM, op="CudnnRNNV3", projection=6)
    assert reasons(case) == (
        "rnn: num_proj: expected at most the 5 units, found 6; choose --outputs without it",
    )


def test_only_an_lstm_has_a_projection() -> None:
    assert reasons(Case(Mode.GRU, op="CudnnRNNV3"), num_proj=3) == (
        "rnn: num_proj: expected 0, for only an LSTM has a projection, found 3 in a gru; "
        "choose --outputs without it",
    )


@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
def test_units_and_width_of_a_projection_come_from_the_two_states(time_major: bool) -> None:
    found = decoded(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", time_major, projection=3))
    assert found.sizes == Sizes(Mode.LSTM, 2, 2, 5, 4, projection=3)


def test_a_projection_needs_the_width_of_the_cell_state() -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=3)
    assert reasons(case, cell=-1) == (
        "rnn: input_c: expected a static shape [layers*directions, batch, units], found none; "
        "give the shape of its input with --inputs",
    )


# Lengths that say nothing are told from those that do: ragged ones taken for full would change answers.

v1 = tf.compat.v1


def full(lengths: Callable[[Any], Any], *, time_major: bool = False, change: Any = tf.identity) -> bool:
    """Whether the lengths, made of the model's input `[?, ?, 3]`, are full for a node that reads `change`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], "x")
        state = tf.zeros([1, 2, 4] if time_major else [2, 1, 4])
        tf.raw_ops.CudnnRNNV3(
            input=change(x),
            input_h=state,
            input_c=state,
            params=tf.zeros([4 * 4 * (3 + 4 + 2)]),
            sequence_lengths=lengths(x),
            time_major=time_major,
            name="node",
        )
    index = Index(graph.as_graph_def())
    return lengths_are_trivial(index, index.nodes["node"])


def steps(axis: int) -> Callable[[Any], Any]:
    """All rows as long as an axis of the input."""
    return lambda x: tf.fill([tf.shape(x)[1 - axis]], tf.shape(x)[axis])


@pytest.mark.parametrize("time_major", [False, True])
def test_the_axis_of_time_is_full(time_major: bool) -> None:
    assert full(steps(0 if time_major else 1), time_major=time_major)


@pytest.mark.parametrize("time_major", [False, True])
def test_the_axis_of_the_batch_is_not(time_major: bool) -> None:
    assert not full(steps(1 if time_major else 0), time_major=time_major)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: tf.reverse(x, [1]),
        lambda x: tf.reverse_sequence(x, tf.constant([1, 2]), 1),
        tf.stop_gradient,
    ],
    ids=["reverse", "reverse_sequence", "stop_gradient"],
)
def test_what_keeps_the_steps_keeps_them_full(change: Callable[[Any], Any]) -> None:
    assert full(steps(1), change=change)


@pytest.mark.parametrize(
    "lengths",
    [
        lambda x: v1.placeholder(tf.int32, [None]),
        lambda x: tf.fill([tf.shape(x)[0]], 2),
        lambda x: tf.fill([tf.shape(x)[0]], tf.shape(x)[1] - 1),
        lambda x: tf.reduce_sum(tf.ones_like(x[:, :, 0], tf.int32), 1),
        lambda x: tf.fill([tf.shape(x)[0]], tf.shape(v1.placeholder(tf.float32, [None, None, 3]))[1]),
    ],
    ids=["fed", "constant", "one less", "counted", "of another tensor"],
)
def test_any_other_lengths_are_not(lengths: Callable[[Any], Any]) -> None:
    assert not full(lengths)


def test_a_part_of_the_input_is_not_the_input() -> None:
    assert not full(steps(1), change=lambda x: x[:, 1:])
