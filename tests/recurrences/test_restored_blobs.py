"""A blob that only a project's own saveable stores, in its own keys, shapes and sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import INPUTS, UNITS, drawing, lstm, model, placeholder, variable
from support.plans import plan_graph

from cudnn_convert.model import InMemory
from cudnn_convert.read.dialects import contrib
from cudnn_convert.recurrences import restored_blobs

RNG = np.random.default_rng(5)
#: As `BasicLSTMCell` has them: columns of gates i, j, f, o; the cell adds 1 to the forget gate's bias.
KERNEL = RNG.normal(size=(INPUTS + UNITS, 4 * UNITS)).astype(np.float32)
BIAS = RNG.normal(size=4 * UNITS).astype(np.float32)
KEYS = {"net/lstm_cell/kernel": KERNEL, "net/lstm_cell/bias": BIAS}
#: The places of cuDNN's gates i, f, j, o among those of the cell.
ORDER = (0, 2, 1, 3)


def saved_by(names: list[str], slices: str = "", *, reads_file: bool = False) -> Any:
    """A graph whose saver restores the blob of its recurrence from a cell's kernel and bias."""
    with drawing() as graph:
        blob = variable("net/opaque_kernel", None)
        tf.identity(lstm(placeholder("x"), tf.reshape(blob, [-1])).output, "y")
        kernel, bias = tf.raw_ops.RestoreV2(
            prefix="model", tensor_names=names, shape_and_slices=[slices, ""], dtypes=[tf.float32] * 2
        )
        kernel.set_shape(KERNEL.shape)
        bias.set_shape(BIAS.shape)
        gates = tf.split(tf.transpose(kernel), 4)
        biases = tf.split(bias, 4)
        biases[2] = biases[2] + (tf.strings.to_number(tf.io.read_file("one")) if reads_file else 1.0)
        pairs = [tf.split(gates[k], [INPUTS, UNITS], 1) for k in ORDER]
        weights = [tf.reshape(pair[part], [-1]) for part in (0, 1) for pair in pairs]
        halves = [0.5 * biases[k] for _ in (0, 1) for k in ORDER]
        packed = tf.raw_ops.CudnnRNNCanonicalToParams(
            num_layers=1, num_units=UNITS, input_size=INPUTS, weights=weights, biases=halves
        )
        tf.raw_ops.Assign(ref=blob, value=packed, validate_shape=False)
    return model(graph, dict(KEYS))


def expected_blob() -> np.ndarray:
    gates = [KERNEL.reshape(INPUTS + UNITS, 4, UNITS)[:, k].T for k in ORDER]
    biases = BIAS.reshape(4, UNITS) + np.array([[0.0], [0.0], [1.0], [0.0]], np.float32)
    rows = [gate[:, :INPUTS] for gate in gates] + [gate[:, INPUTS:] for gate in gates]
    halves = [0.5 * biases[k] for _ in (0, 1) for k in ORDER]
    return np.concatenate([each.ravel() for each in (*rows, *halves)])


def test_restore_ops_say_what_a_blob_is_made_of() -> None:
    source = restored_blobs.with_restored_blobs(saved_by([*KEYS]))
    np.testing.assert_allclose(source.variables["net/opaque_kernel"].read(), expected_blob(), rtol=1e-6)
    assert source.notes[-1] == (
        "net/opaque_kernel: computed from net/lstm_cell/bias, net/lstm_cell/kernel as the restore ops of the "
        "source's saver do"
    )


def test_a_plan_has_its_cells() -> None:
    (recurrence,) = plan_graph(saved_by([*KEYS]), outputs=["y"]).recurrences
    ((cell,),) = recurrence.cells
    assert cell.kernel.size == 4 * INPUTS * UNITS
    total = np.sort((cell.bias + cell.recurrent_bias).ravel())
    forget = np.array([[0.0], [0.0], [1.0], [0.0]], np.float32)
    np.testing.assert_allclose(total, np.sort((BIAS.reshape(4, UNITS) + forget).ravel()), rtol=1e-6)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: saved_by(["net/other", "net/lstm_cell/bias"]), id="another-key"),
        pytest.param(lambda: saved_by([*KEYS], "5 8 0,5:0,8"), id="a-slice"),
        pytest.param(lambda: saved_by([*KEYS], reads_file=True), id="more-than-arithmetic"),
    ],
)
def test_other_restores_are_left(source: Any) -> None:
    assert "net/opaque_kernel" not in restored_blobs.with_restored_blobs(source()).variables


def test_another_cell_that_has_lost_a_tensor_is_no_obstacle() -> None:
    stem = "other/rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/candidate"
    kept = {f"{stem}/input_projection/kernel": (3, 2), f"{stem}/hidden_projection/bias": (2,)}
    tensors = {key: InMemory(np.ones(shape, np.float32)) for key, shape in kept.items()}
    (lost,) = contrib.find(Path("model.ckpt"), tensors)
    source = restored_blobs.with_restored_blobs(replace(saved_by([*KEYS]), canonical=(lost,)))
    assert "net/opaque_kernel" in source.variables
