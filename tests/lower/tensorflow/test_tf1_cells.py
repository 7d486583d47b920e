"""TensorFlow 1's CPU cells: their variables, and what optimizers remember of them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.graphs import BLOB, INPUTS, SIZES, UNITS, drawing, lstm, model, placeholder, resource, variable
from support.tiers import combinations, some

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.lower.tensorflow import tf1_cells
from cudnn_convert.lower.tensorflow.tf1_cells import Cells, cells
from cudnn_convert.model import BlobEvidence, CanonicalParameters, Cell, Mode, Model, Recurrence
from cudnn_convert.plan.obstacles import refuse_cells
from cudnn_convert.weights import layouts, parameter_blob

# TensorFlow 1's CPU cells: their variables against arrays written out by hand.


def tiny(mode: Mode) -> Cell:
    """One unit, two inputs: W is 1.1, 1.2, 2.1, ... in cuDNN's order, R 10, 20, ..., biases 100 and 1000."""
    gates = np.arange(1, len(mode.gates) + 1, dtype=np.float64)
    kernel = gates[:, None, None] + np.array([[[0.1, 0.2]]])
    return Cell(mode, kernel, 10 * gates[:, None, None], 100 * gates[:, None], 1000 * gates[:, None])


@pytest.mark.parametrize("layout", [layouts.CONTRIB, layouts.LSTM_CELL, layouts.BASIC_LSTM_CELL])
@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_an_lstm_is_icfo(layout: layouts.Layout, forget_bias: float) -> None:
    found = layouts.pack_cell(tiny(Mode.LSTM), layout, forget_bias=forget_bias)
    assert list(found) == ["kernel", "bias"]
    np.testing.assert_allclose(
        found["kernel"], [[1.1, 3.1, 2.1, 4.1], [1.2, 3.2, 2.2, 4.2], [10, 30, 20, 40]], rtol=1e-15
    )
    np.testing.assert_array_equal(found["bias"], [1100, 3300, 2200 - forget_bias, 4400])


def test_a_gru_keeps_the_candidates_tensors_apart() -> None:
    found = layouts.pack_cell(tiny(Mode.GRU), layouts.CONTRIB)
    expected = {
        "gates/kernel": [[1.1, 2.1], [1.2, 2.2], [10, 20]],
        "gates/bias": [1100, 2200],
        "candidate/input_projection/kernel": [[3.1], [3.2]],
        "candidate/input_projection/bias": [300],
        "candidate/hidden_projection/kernel": [[30]],
        "candidate/hidden_projection/bias": [3000],
    }
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize("mode", [Mode.RNN_TANH, Mode.RNN_RELU])
def test_a_plain_cell(mode: Mode) -> None:
    found = layouts.pack_cell(tiny(mode), layouts.CONTRIB)
    np.testing.assert_array_equal(found["kernel"], [[1.1], [1.2], [10]])
    np.testing.assert_array_equal(found["bias"], [1100])


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_reads_back_what_it_packs(mode: Mode) -> None:
    cell = tiny(mode)
    again = layouts.unpack_contrib(mode, layouts.pack_cell(cell, layouts.CONTRIB))
    for name in ("kernel", "recurrent_kernel"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cell, name))
    np.testing.assert_array_equal(again.bias + again.recurrent_bias, cell.bias + cell.recurrent_bias)


def test_one_of_two_biases_is_left_where_cells_have_one() -> None:
    lstm, gru = layouts.one_bias(tiny(Mode.LSTM)), layouts.one_bias(tiny(Mode.GRU))
    np.testing.assert_array_equal(lstm.bias, tiny(Mode.LSTM).bias)
    np.testing.assert_array_equal(lstm.recurrent_bias, np.zeros((4, 1)))
    np.testing.assert_array_equal(gru.recurrent_bias, [[0], [0], [3000]])


def test_moves_say_where_a_gate_stands() -> None:
    assert layouts.moves(Mode.LSTM, layouts.CONTRIB, layouts.LOOP) == [0, 2, 3, 1]
    assert layouts.moves(Mode.LSTM, layouts.LOOP, layouts.CONTRIB) == [0, 3, 1, 2]


FORWARD, BACKWARD = (
    f"net/stack_bidirectional_rnn/cell_{{}}/bidirectional_rnn/{way}/" for way in ("fw", "bw")
)
STACK = "net/rnn/multi_rnn_cell/cell_{}/"


@pytest.mark.parametrize(
    ("mode", "directions", "cell", "expected"),
    [
        (Mode.LSTM, 1, "compatible", [f"{STACK}cudnn_compatible_lstm_cell/"]),
        (Mode.LSTM, 1, "lstm_block", [f"{STACK}lstm_cell/"]),
        (Mode.LSTM, 2, "basic_lstm", [f"{way}basic_lstm_cell/" for way in (FORWARD, BACKWARD)]),
        (Mode.GRU, 2, "lstm_block", [f"{way}cudnn_compatible_gru_cell/" for way in (FORWARD, BACKWARD)]),
        (Mode.GRU, 1, "compatible", [f"{STACK}cudnn_compatible_gru_cell/"]),
        (Mode.RNN_TANH, 1, "basic_lstm", [f"{STACK}basic_rnn_cell/"]),
        (Mode.RNN_RELU, 1, "compatible", [f"{STACK}basic_rnn_cell/"]),
    ],
)
def test_scopes_are_those_of_tensorflows_networks(
    mode: Mode, directions: int, cell: str, expected: list[str]
) -> None:
    recurrence = Case(mode, 2, directions).recurrence()
    found = Cells({recurrence.shared: "net/"}, cell, "fast").stems(recurrence)
    assert [*found] == [stem.format(layer) for layer in range(2) for stem in expected]


@pytest.mark.parametrize(("cell", "added"), [("compatible", 0.0), ("lstm_block", 1.0), ("basic_lstm", 1.0)])
def test_what_a_cell_adds_itself_is_taken_from_weights_and_not_from_slots(cell: str, added: float) -> None:
    layers = ((tiny(Mode.LSTM),), (tiny(Mode.LSTM),))
    recurrence = replace(Case(Mode.LSTM, 2, units=1).recurrence(), cells=layers)
    held = Cells({recurrence.shared: ""}, cell, "fast")
    for adjusted, less in ((True, added), (False, 0.0)):
        found = held.tensors(recurrence, layers, adjusted=adjusted)
        assert [key.rpartition("/")[2] for key in found] == ["kernel", "bias"] * 2
        for key, value in found.items():
            if key.endswith("bias"):
                np.testing.assert_array_equal(value, [1100, 3300, 2200 - less, 4400])


def computed(case: Case, cell: str, lowering: str) -> tuple[set[str], list[Any], list[Any]]:
    """The ops that a form's computation is made of, what it gives and what the reference gives."""
    recurrence = case.recurrence()
    form = Cells({recurrence.shared: ""}, cell, lowering).form
    compute = tf.function(form.compute(recurrence), autograph=False)
    feeds = case.feeds()
    given = [tf.constant(feeds[key]) for key in "xhc"]
    lengths = tf.constant(feeds["lengths"]) if recurrence.lengths else None
    arrays = [tf.constant(value) for value in form.weights(recurrence).values()]
    graph = compute.get_concrete_function(*given, lengths, *arrays).graph
    expected = case.expected(feeds)
    return {op.type for op in graph.get_operations()}, compute(*given, lengths, *arrays), expected


@pytest.mark.first(
    "CudnnRNNV3-lstm_block-portable",
    "CudnnRNNV3-basic_lstm-fast",
    "CudnnRNN-compatible-portable",
    "CudnnRNNV3-compatible-fast",
)
@combinations(
    lambda op, cell, _: op == "CudnnRNNV3" or cell == "compatible",
    op=["CudnnRNN", "CudnnRNNV3"],
    cell=["compatible", "lstm_block", "basic_lstm"],
    lowering=["fast", "portable"],
)
def test_an_lstms_variables_are_computed_on_as_they_are(op: str, cell: str, lowering: str) -> None:
    ops, found, expected = computed(Case(Mode.LSTM, 2, 2, op), cell, lowering)
    assert ("BlockLSTM" in ops) == (lowering == "fast")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", some([Mode.GRU, Mode.RNN_TANH], Mode.RNN_RELU))
def test_so_are_those_of_the_other_modes(mode: Mode) -> None:
    ops, found, expected = computed(Case(mode, 2, 2, "CudnnRNNV3"), "lstm_block", "fast")
    assert "BlockLSTM" not in ops
    for one, other in zip(found, expected, strict=False):  # a cell state is the LSTM's alone
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def named(blob: str, mode: Mode = Mode.LSTM, directions: int = 1, **changes: Any) -> Recurrence:
    return replace(Case(mode, directions=directions).recurrence(blob), shared=blob, **changes)


def made(*recurrences: Recurrence, taken: str = "", canonical: tuple[Any, ...] = ()) -> Cells:
    """The cells of a plan whose graph has an op of the name `taken`."""
    graph = tf.compat.v1.GraphDef()
    if taken:
        graph.node.add(name=taken, op="NoOp")
    model = Model(Path("model.ckpt"), "checkpoint", graph, {}, canonical)
    return cells(model, graph, recurrences, cell="compatible", lowering="fast")


def keys(scope: str, dialect: str) -> CanonicalParameters:
    return CanonicalParameters(scope, (Mode.LSTM,), 1, 1, 5, 4, lambda mode: (), {}, dialect=dialect)


def test_cells_stand_in_the_scope_of_their_blob() -> None:
    blobs = [named("opaque"), named("net/deep/opaque")]
    assert made(*blobs).prefixes == {"opaque": "", "net/deep/opaque": "net/deep/"}


def test_cells_stand_in_the_scope_of_contribs_own_keys_alone() -> None:
    blobs = [named("net/cudnn/opaque"), named("other/cudnn/opaque")]
    canonical = (keys("net/", "contrib"), keys("other/", "keras"))
    assert made(*blobs, canonical=canonical).prefixes == {
        "net/cudnn/opaque": "net/",
        "other/cudnn/opaque": "other/cudnn/",
    }


def test_blobs_of_one_scope_share_it_where_their_cells_have_other_names() -> None:
    apart = [named("net/a", Mode.LSTM), named("net/b", Mode.GRU), named("net/c", Mode.LSTM, 2)]
    assert made(*apart).prefixes == {"net/a": "net/", "net/b": "net/", "net/c": "net/"}
    alike = [named("net/a"), named("net/b"), named("net/c", Mode.GRU)]
    assert made(*alike).prefixes == {"net/a": "net/a/", "net/b": "net/b/", "net/c": "net/"}


def test_an_op_of_a_variables_name_is_refused() -> None:
    key = "net/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias"
    with pytest.raises(UnsupportedModelError) as refused:
        made(named("net/opaque"), taken=key)
    assert refused.value.reasons == (
        f"{key}: --format checkpoint: expected a free name for a cell's variable, found an op of the graph",
    )


def test_a_blob_that_is_read_in_two_types_and_a_projection_are_refused_together() -> None:
    blobs = [named("net/opaque"), named("net/opaque", node="again", dtype=np.dtype(np.float16))]
    projected = Case(Mode.LSTM, op="CudnnRNNV3", projection=3).recurrence("projected")
    with pytest.raises(UnsupportedModelError) as refused:
        refuse_cells(Path("m"), [*blobs, projected])
    assert refused.value.reasons == (
        "again: --format checkpoint: expected one dtype for net/opaque, found float32 and float16; "
        "take another format",
        "projected: --format checkpoint: expected no projection, found one, which its cell does not have; "
        "take another format",
    )


def test_a_blob_that_is_read_twice_in_one_type_has_one_scope() -> None:
    blobs = [named("net/opaque"), named("net/opaque", node="again")]
    assert made(*blobs).prefixes == {"net/opaque": "net/"}


# What optimizers remember of weights: found beside them, and moved to the CPU cells' variables.

OTHER = np.linspace(2, 3, BLOB.size, dtype=np.float32)
RECURRENCE = Recurrence(
    "rnn", "CudnnRNN", SIZES, True, False, BLOB.dtype,
    parameter_blob.split(BLOB, SIZES, where="blob"), BlobEvidence(BLOB), "blob",
)  # fmt: skip


def trained() -> Model:
    """`x` -> recurrence -> `scores`, and another recurrence whose blob is computed of a variable."""
    with drawing() as graph:
        x = placeholder("x")
        y = lstm(x, variable("blob", BLOB.shape)).output
        raw = tf.raw_ops.ReadVariableOp(resource=resource("scope/raw", BLOB.shape), dtype=tf.float32)
        y += lstm(x, tf.tanh(raw), name="second").output
        variable("temperature", [])
        variable("unsaved", [UNITS])
        variable("other", [UNITS])
        tf.identity(y * variable("scope/w", [UNITS]), name="scores")
    row = np.array([0.25, -1.5], np.float32)
    values = {
        "scope/raw": BLOB,
        "scope/w": row,
        "temperature": 1.5,
        "other": row,
        "blob/Adam": OTHER,
        "blob/Adam_1": OTHER + 1,
        "blob/ExponentialMovingAverage": OTHER,
        "blob/short": row,
        "scope/raw/Adam": OTHER,
        "scope/w/Adam": row + 1,
        "scope/w/Momentum": row + 2,
        "scope/w/Adam_1": row + 3,
        "scope/w/ExponentialMovingAverage": row,
        "scope/w/factored": np.ones(UNITS + 1, np.float32),
        "nothing/Adam": row,
        "unsaved/Adam": row,
        "global_step": np.int64(7),
        "beta1_power": np.float32(0.5),
    }
    return model(graph, values)


def test_each_slot_is_found_with_what_it_belongs_to() -> None:
    source = trained()
    found = tf1_cells.find(source, Graph.of(source.graph), [RECURRENCE], ["scores:0"])
    assert set(found.plain) == {"scope/w/Adam", "scope/w/Momentum", "scope/w/Adam_1"}
    assert set(found.blobs) == {"blob/Adam", "blob/Adam_1"}
    assert found.lost == ("scope/raw/Adam",)
    assert set(found.scalars) == {"global_step", "beta1_power"}
    assert len(found) == 6


def test_slots_of_a_variable_that_an_output_needs_are_not_lost() -> None:
    source = trained()
    found = tf1_cells.find(source, Graph.of(source.graph), [RECURRENCE], ["scores:0", "scope/raw:0"])
    assert "scope/raw/Adam" in found.plain
    assert found.lost == ()


def test_a_blob_s_slots_lie_where_its_weights_do_and_biases_have_one_half() -> None:
    """BasicLSTMCell has its gates in the order i, j, f, o, and adds 1 to f itself: to a slot nothing is."""
    source = trained()
    plain = tf1_cells.find(source, Graph.of(source.graph), [RECURRENCE], ["scores:0"])
    cells = tf1_cells.cells(source, source.graph, [RECURRENCE], cell="basic_lstm", lowering="fast")
    found = {key: tensor.read() for key, tensor in tf1_cells.keep_slots(plain, [RECURRENCE], cells).items()}
    stem = "rnn/multi_rnn_cell/cell_0/basic_lstm_cell"
    moved = {f"{stem}/{name}/{suffix}" for name in ("kernel", "bias") for suffix in ("Adam", "Adam_1")}
    others = {"scope/w/Adam", "scope/w/Momentum", "scope/w/Adam_1", "global_step", "beta1_power"}
    assert found.keys() == moved | others
    for key in others:
        np.testing.assert_array_equal(found[key], source.variables[key].read(), strict=True)
    kernels, recurrent = 4 * UNITS * INPUTS, 4 * UNITS * UNITS
    for suffix, blob in (("Adam", OTHER), ("Adam_1", OTHER + 1)):
        order = [0, 2, 1, 3]  # cuDNN has i, f, j, o
        ours = blob[:kernels].reshape(4, UNITS, INPUTS)[order].reshape(-1, INPUTS).T
        theirs = blob[kernels : kernels + recurrent].reshape(4, UNITS, UNITS)[order].reshape(-1, UNITS).T
        bias = blob[kernels + recurrent :].reshape(2, 4, UNITS)[0, order].reshape(-1)
        np.testing.assert_array_equal(found[f"{stem}/kernel/{suffix}"], np.concatenate([ours, theirs]))
        np.testing.assert_array_equal(found[f"{stem}/bias/{suffix}"], bias)


def test_two_blobs_keep_their_slots_apart() -> None:
    with drawing() as graph:
        x = placeholder("x")
        for name in ("one", "two"):
            lstm(x, variable(f"{name}/blob", BLOB.shape), name=name)
    pair = [dataclasses.replace(RECURRENCE, node=name, shared=f"{name}/blob") for name in ("one", "two")]
    values = {f"{name}/blob": BLOB for name in ("one", "two")}
    source = model(graph, values | {"one/blob/Adam": OTHER, "two/blob/Adam": OTHER + 1})
    cells = tf1_cells.cells(source, source.graph, pair, cell="compatible", lowering="fast")
    plain = tf1_cells.find(source, Graph.of(source.graph), pair, ["one:0", "two:0"])
    found = tf1_cells.keep_slots(plain, pair, cells)
    assert len(found) == 4
    for name, blob in (("one", OTHER), ("two", OTHER + 1)):
        bias = found[f"{name}/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias/Adam"].read()
        assert set(bias) == set(blob[-8 * UNITS : -4 * UNITS])
