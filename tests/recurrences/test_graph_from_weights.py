"""Graphs made for weights alone: their signatures and notes."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from recurrences.test_graphless import alone
from support.plans import plan_graph

from cudnn_convert import UsageError
from cudnn_convert.model import PartialSizes
from cudnn_convert.read import read
from cudnn_convert.recurrences.graph_from_weights import assemble_graph
from cudnn_convert.recurrences.graphless import SignatureOptions


@pytest.mark.parametrize("layout", ["time", "batch"])
def test_the_signature_that_was_asked_for(tmp_path: Path, layout: str) -> None:
    model = read(alone("1.15.5-lstm_bi_2l_states", tmp_path / "source"))
    made = assemble_graph(model, PartialSizes(), SignatureOptions(layout, states=True, lengths=True))
    (signature,) = made.signatures.values()
    assert [*signature.inputs] == ["inputs", "initial_h", "initial_c", "sequence_lengths"]
    assert [*signature.outputs] == ["outputs", "state_h", "state_c"]
    assert made.notes == ()
    assert assemble_graph(model, PartialSizes(), SignatureOptions()).notes == (
        "cudnn_lstm: inputs and outputs are time-major; --layout chooses",
    )
    with pytest.raises(UsageError, match="--signature"):
        plan_graph(made, signature="another")


def test_states_of_zeros_need_no_op_for_their_shape(tmp_path: Path) -> None:
    """TensorFlow.js runs no EnsureShape (docs/serving/javascript.md)."""
    model = read(alone("1.15.5-lstm_bi_2l_states", tmp_path / "source"))
    made = assemble_graph(model, PartialSizes(), SignatureOptions("time"))
    assert "EnsureShape" not in {node.op for node in made.graph.node}
    with tf.Graph().as_default():
        shapes = [each.shape for each in tf.import_graph_def(made.graph, {}, ["cudnn_lstm/zeros:0"])]
    assert [shape.as_list() for shape in shapes] == [[4, None, 5]]
