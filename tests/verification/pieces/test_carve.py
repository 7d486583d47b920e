"""What stands in a cuDNN node's place in graphs of TensorFlow, carved out wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.samples import ROOT, fixture

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.verification.pieces import carve

EXPORT = ROOT / "tests/data/keras3_exports/keras-3.15.1"


def converted(name: str, form: str, out: Path) -> tuple[Path, Any]:
    sample = fixture(f"1.15.5-{name}")
    return sample.prefix, cudnn_convert.convert(
        sample.prefix, out, format=form, **sample.options
    ).verification


def nudge_constant(file: Path) -> None:
    """One weight of the last layer's kernel is off by a thousandth of its norm."""
    graph = tf.compat.v1.GraphDef.FromString(file.read_bytes())
    node = [node for node in graph.node if node.op == "Const" and node.name.endswith("/kernel")][-1]
    value = tf.make_ndarray(node.attr["value"].tensor).copy()
    value[-1, 1] += 1e-3 * np.linalg.norm(value)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    file.write_bytes(graph.SerializeToString())


def nudge_variable(prefix: Path, name: str) -> None:
    """The same of a variable of a checkpoint, in whose place a new one is written."""
    reader = tf.train.load_checkpoint(str(prefix))
    names = sorted(reader.get_variable_to_shape_map())
    values = {key: reader.get_tensor(key) for key in names}
    dtypes = reader.get_variable_to_dtype_map()
    (key,) = [key for key in names if name in key and "OBJECT_GRAPH" not in key]
    values[key][-1, 1] += 1e-3 * np.linalg.norm(values[key])
    for file in prefix.parent.glob(f"{prefix.name}.data*"):
        file.unlink()
    tensors = [tf.constant(values[key], dtypes[key]) for key in names]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )


def exchange_tanh(file: Path, loop: str) -> None:
    """In the last step of an iteration of a loop a Tanh becomes a Sigmoid."""
    graph = tf.compat.v1.GraphDef.FromString(file.read_bytes())
    functions = [one for one in graph.library.function if f"{loop}_body" in one.signature.name]
    node = [node for node in functions[-1].node_def if node.op == "Tanh"][-1]
    node.op = "Sigmoid"
    file.write_bytes(graph.SerializeToString())


def refused(source: Path, artifact: Path, node: str) -> None:
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, artifact)
    wrong = {one.node for one in caught.value.report.recurrences if not one.passed}
    assert node in wrong
    assert f"recurrence {node}, by itself: layer " in str(caught.value)


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("lstm_bi_2l_states", "cudnn_lstm/CudnnRNN"),
        ("while_rows", "cudnn_lstm/CudnnRNN"),
        ("cond", "recurrent/cudnn_lstm/CudnnRNN"),
    ],
)
def test_a_frozen_recurrence_is_asked_at_the_root_in_a_loop_and_in_a_branch(
    name: str, node: str, tmp_path: Path
) -> None:
    out = tmp_path / "frozen.pb"
    source, proof = converted(name, "frozen", out)
    (found,) = proof.recurrences
    assert found.asked
    assert found.needed < 0.5
    assert found.weakest >= 5
    nudge_constant(out)
    refused(source, out, node)


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/verification")
def test_each_loop_of_a_layer_is_gone_round(tmp_path: Path) -> None:
    """Three loops, one after the other, take 16, 4 and 1 steps an iteration."""
    out = tmp_path / "frozen.pb"
    source, _ = converted("gru_bi", "frozen", out)
    exchange_tanh(out, "while_1")
    refused(source, out, "cudnn_gru/CudnnRNN")


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("form", ["savedmodel", "checkpoint"])
def test_variables_are_those_of_the_artifact(form: str, tmp_path: Path) -> None:
    source, proof = converted("lstm_bi_2l_states", form, tmp_path / "out")
    assert [one.asked for one in proof.recurrences] == [True]
    prefix = {"savedmodel": "variables/variables", "checkpoint": "model.ckpt"}[form]
    weights = {
        "savedmodel": "layer_1/backward/kernel",
        "checkpoint": "cell_1/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/kernel",
    }[form]
    nudge_variable(tmp_path / "out" / prefix, weights)
    refused(source, tmp_path / "out", "cudnn_lstm/CudnnRNN")


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_a_repaired_saved_model_is_asked_by_the_function_of_each_node(tmp_path: Path) -> None:
    source, out = EXPORT / "stacked" / "saved_model", tmp_path / "out"
    proof = cudnn_convert.convert(source, out).verification
    assert proof is not None
    assert {one.asked for one in proof.recurrences} == {True}
    assert len({one.piece for one in proof.recurrences}) == 3  # two signatures call the same
    assert min(one.weakest for one in proof.recurrences) >= 5
    reader = tf.train.load_checkpoint(str(out / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    key = next(
        key for key in sorted(shapes) if len(shapes[key]) == 2 and shapes[key][1] in (3 * shapes[key][0],)
    )
    nudge_variable(out / "variables" / "variables", key)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert len({one.piece for one in caught.value.report.recurrences if not one.passed}) == 1


def test_a_graph_without_the_node_is_not_asked(tmp_path: Path) -> None:
    out = tmp_path / "frozen.pb"
    source, _ = converted("lstm_bi_2l_states", "frozen", out)
    graph = tf.compat.v1.GraphDef.FromString(out.read_bytes())
    for node in graph.node:
        node.name = node.name.replace("cudnn_lstm/CudnnRNN", "elsewhere")
        node.input[:] = [one.replace("cudnn_lstm/CudnnRNN", "elsewhere") for one in node.input]
    out.write_bytes(graph.SerializeToString())
    outputs = "state_h=state_h:0"
    (found,) = cudnn_convert.verify(source, out, inputs="x,h0,c0", outputs=outputs).recurrences
    assert not found.asked
    assert found.message == "not asked by itself: the artifact has no node of that name"


def test_graphs_that_are_wired_otherwise_are_no_twins() -> None:
    """A twin is not asked again, so it must be the same computation."""

    def carve_difference(*names: str) -> Any:
        with tf.Graph().as_default() as graph:
            values = {name: tf.compat.v1.placeholder(tf.float32, [], name) for name in ("x", "h")}
            tf.subtract(*(values[name] for name in names), name="_minus_".join(names))
        return carve._Carved(graph.as_graph_def(), frozenset(), {}, {})

    recurrence = Case(Mode.GRU).recurrence()
    right, wrong = (carve._work(carve_difference(*names), recurrence) for names in ("xh", "hx"))
    assert right == carve._work(carve_difference("x", "h"), recurrence)
    assert right != wrong
