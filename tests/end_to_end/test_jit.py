"""`--jit`: what XLA compiles answers as TensorFlow 1 did, or Keras on a CPU; refused where nothing can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from end_to_end.test_keras3_exports import NEWEST, assert_close_where_valid
from support import artifacts
from support.command_line import command
from support.keras3_samples import exported
from support.recorded import BOUNDS
from support.samples import fixture
from support.tiers import tier
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert

FORMATS = ("savedmodel", "frozen")
#: XLA takes seconds for each: the first tier has a branch here, and a repaired SavedModel below.
FIRST = ("frozen", "1.12.3-cond")
#: LSTM, GRU and a plain cell; states, lengths, double precision; in a loop and in a branch.
SAMPLES = (
    *("1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi_2l_float64", "1.12.3-rnn_relu_uni_2l"),
    *("1.15.5-v3_lengths_time_major", "1.12.3-while_refine", "1.12.3-cond"),
)
REPAIRED = ("gru", "masked", "lstm", "bidirectional")


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/verification/ops")
@pytest.mark.parametrize(
    ("form", "name"),
    [
        pytest.param(form, name, marks=tier(first=(form, name) == FIRST))
        for form in FORMATS
        for name in SAMPLES
    ],
)
def test_answers_as_tensorflow_1_did(form: str, name: str, tmp_path: Path) -> None:
    sample = fixture(name)
    report, job = artifacts.convert(sample, form, tmp_path, jit=True)
    artifacts.answer([job])
    graph = _graph(Path(job["artifact"]), form)
    assert _compiled(graph) == len(report.recurrences) > 0
    bound = BOUNDS[report.recurrences[0].dtype]
    artifacts.agree(sample, report, Path(job["answers"]), bound=bound)


def _graph(path: Path, form: str) -> Any:
    if form == "frozen":
        return tf.compat.v1.GraphDef.FromString(path.read_bytes())
    (meta,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    return meta.graph_def


def _compiled(graph: Any) -> int:
    """How many nodes, at the root or in functions, XLA compiles."""
    return sum(node.attr["_XlaMustCompile"].b for node in _nodes(graph) if "_XlaMustCompile" in node.attr)


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


@pytest.mark.slow("cudnn_convert/lower/tensorflow/", "cudnn_convert/targets/saved_model.py")
@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(first=name == "gru")) for name in REPAIRED])
def test_a_repaired_saved_model_answers_as_keras_did(name: str, tmp_path: Path) -> None:
    """A proof of its own, later, knows that it is compiled."""
    sample = exported(f"{NEWEST}-{name}")
    cudnn_convert.convert(sample.path, tmp_path / "out", jit=True, verify=False)
    assert cudnn_convert.verify(sample.path, tmp_path / "out").passed
    assert _compiled(_graph(tmp_path / "out", "savedmodel"))
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    for signature in sample.signatures:
        for call in signature.calls():
            found = loaded.signatures[signature.name](
                **{key: tf.constant(value) for key, value in call.feeds.items()}
            )
            for key in call.answers:
                assert_close_where_valid(signature, call, key, found[key].numpy())


@pytest.mark.parametrize("form", FORMATS)
def test_it_is_refused_where_nothing_can_be_compiled(tmp_path: Path, form: str) -> None:
    sample = fixture("1.15.5-block_fused")
    outputs = [f"--outputs={name}" for name in sample.options["outputs"]]
    ended = command(sample.prefix, tmp_path / "out", "--format", form, "--jit", *outputs)
    assert (ended.code, ended.stdout) == (2, "")
    said = "--jit: expected a model with a cuDNN recurrence, found none; leave it out"
    assert ended.stderr == f"cudnn-convert: {said}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--format", "onnx"), "--jit: expected --format savedmodel or frozen, found onnx"),
        (("--lowering", "portable"), "--jit cannot be combined with --lowering portable; leave one out"),
    ],
)
def test_it_is_refused_beside_what_has_none(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    source = fixture("1.15.5-gru_uni_2l").prefix
    ended = command(source, tmp_path / "out", "--jit", *flags)
    assert (ended.code, ended.stdout, ended.stderr) == (2, "", f"cudnn-convert: {said}\n")
