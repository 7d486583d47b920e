"""What optimizers remember of weights: found beside them, and moved to the CPU cells' variables."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from graphs import BLOB, INPUTS, SIZES, UNITS, drawing, lstm, model, placeholder, resource, variable

from cudnn_convert.lower.tensorflow import tf1_cells
from cudnn_convert.model import BlobEvidence, Model, Recurrence
from cudnn_convert.weights import lazy

OTHER = np.linspace(2, 3, BLOB.size, dtype=np.float32)
RECURRENCE = Recurrence(
    "rnn", "CudnnRNN", SIZES, True, False, BLOB.dtype,
    lazy.split(BLOB, SIZES, where="blob"), BlobEvidence(BLOB), "blob",
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
    found = tf1_cells.find(source, source.graph, [RECURRENCE], ["scores:0"])
    assert set(found.plain) == {"scope/w/Adam", "scope/w/Momentum", "scope/w/Adam_1"}
    assert set(found.blobs) == {"blob/Adam", "blob/Adam_1"}
    assert found.lost == ("scope/raw/Adam",)
    assert set(found.scalars) == {"global_step", "beta1_power"}
    assert len(found) == 6


def test_slots_of_a_variable_that_an_output_needs_are_not_lost() -> None:
    source = trained()
    found = tf1_cells.find(source, source.graph, [RECURRENCE], ["scores:0", "scope/raw:0"])
    assert "scope/raw/Adam" in found.plain
    assert found.lost == ()


def test_a_blob_s_slots_lie_where_its_weights_do_and_biases_have_one_half() -> None:
    """BasicLSTMCell has its gates in the order i, j, f, o, and adds 1 to f itself: to a slot nothing is."""
    source = trained()
    plain = tf1_cells.find(source, source.graph, [RECURRENCE], ["scores:0"])
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
    plain = tf1_cells.find(source, source.graph, pair, ["one:0", "two:0"])
    found = tf1_cells.keep_slots(plain, pair, cells)
    assert len(found) == 4
    for name, blob in (("one", OTHER), ("two", OTHER + 1)):
        bias = found[f"{name}/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias/Adam"].read()
        assert set(bias) == set(blob[-8 * UNITS : -4 * UNITS])
