"""What stands around recurrences in a graph of TensorFlow, with their values given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import hidden_recurrences
from support.cases import Case
from support.shut_gates import gated, source, states, v1

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.first("savedmodel")
@pytest.mark.parametrize("form", ["frozen", "savedmodel", "checkpoint"])
def test_the_glue_of_a_graph_is_run_by_itself(form: str, tmp_path: Path) -> None:
    proof = cudnn_convert.convert(
        source(tmp_path), tmp_path / "out", format=form, outputs="answer"
    ).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True), proof.glue
    assert proof.glue.needed < 0.5


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_other_initial_states_of_a_graph_are_seen(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out.pb"
    cudnn_convert.convert(path, out, format="frozen", outputs="answer")
    graph = v1.GraphDef.FromString(out.read_bytes())
    states = [
        node
        for node in graph.node
        if node.op == "Const"
        and [one.size for one in node.attr["value"].tensor.tensor_shape.dim] == [4, 1, 5]
    ]
    value = tf.make_ndarray(states[1].attr["value"].tensor).copy()
    value[2, 0, 3] += 1e-3
    states[1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    out.write_bytes(graph.SerializeToString())
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out, inputs="x,lengths", outputs="answer")
    assert "around the recurrences: initial c of rnn: off by " in str(caught.value)


@pytest.mark.slow("cudnn_convert/verification")
def test_an_einsum_of_tiny_weights_in_a_graph_is_looked_at(tmp_path: Path) -> None:
    kernel = np.random.default_rng(8).uniform(-1e-7, 1e-7, (5, 3)).astype(np.float32)

    def answer(x: Any) -> Any:
        case = Case(Mode.GRU)
        y = case.op_call(x, states(case, x)[0], tf.constant(0.0)).output
        return tf.einsum("tbi,io->tbo", y, tf.constant(kernel, name="dense/kernel"))

    path, out = gated(tmp_path, answer), tmp_path / "out.pb"
    cudnn_convert.convert(path, out, format="frozen", outputs="answer")
    hidden_recurrences.change_constants(out, lambda value: value[::-1] * 1.5, "dense/kernel")
    with pytest.raises(VerificationError, match="differs at dense/kernel:0"):
        cudnn_convert.verify(path, out)
