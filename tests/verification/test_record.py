"""Recording what a source's own graph answers in TensorFlow 2; there is no GPU here, so none of cuDNN's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.command_line import command, copied, refused
from support.graphs import drawing, model, placeholder, saved, v1, variable
from support.plans import plan_graph
from support.recorded import assert_close
from support.samples import ROOT, Fixture, fixture

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.feeds.data import Data, read_calls
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.read import read
from cudnn_convert.verification import record, recordings

BLOCK = fixture("1.15.5-block_fused_lengths")
OUTPUTS = ("--outputs", "rnn_out:0,state_c:0,state_h:0")


def fed(sample: Fixture, path: Path, *, calls: int = 2) -> Path:
    """The inputs of a sample's first calls, by key."""
    feeds = sample.feeds()[:calls]
    named = [{name.removesuffix(":0"): feed[name] for name in sample.case["inputs"]} for feed in feeds]
    arrays = {f"feed{k}/{key}": value for k, feed in enumerate(named) for key, value in feed.items()}
    np.savez(path, **(arrays if calls > 1 else named[0]))
    return path


@pytest.mark.slow("cudnn_convert/verification")
def test_a_recording_of_a_block_lstm(tmp_path: Path) -> None:
    """TensorFlow 1.15 answered the same, and judged by it the artifact does."""
    out = tmp_path / "golden.npz"
    ended = command("record", BLOCK.prefix, "--data", fed(BLOCK, tmp_path / "in.npz"), "--out", out, *OUTPUTS)
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"{out}\n", "")
    found = recordings.read_recording(out)
    for feed, given, answers in zip(BLOCK.feeds(), found.feeds, found.answers, strict=True):
        for key, name in found.inputs.items():
            np.testing.assert_array_equal(given[key], feed[name])
        for key, name in found.outputs.items():
            assert_close(answers[key], feed[name])
    assert set(found.outputs.values()) == set(BLOCK.case["outputs"])
    assert (found.facts["recorder"], found.facts["tensorflow"]) == ("cudnn-convert record", tf.__version__)
    assert found.facts["tf32"]["on"] is False
    cudnn_convert.convert(BLOCK.prefix, tmp_path / "out", format="onnx", verify=False, outputs=OUTPUTS[1])
    assert cudnn_convert.verify(BLOCK.prefix, tmp_path / "out", golden=out).passed


def test_the_library_gives_what_the_file_says_of_itself(tmp_path: Path) -> None:
    data = fed(BLOCK, tmp_path / "in.npz", calls=1)
    out = tmp_path / "file"
    meta = cudnn_convert.record(BLOCK.prefix, out, data=data, outputs="y=rnn_out:0", inputs=())
    assert meta["outputs"] == {"y": {"tensor": "rnn_out:0", "dtype": "float32"}}
    with np.load(out) as stored:
        told = json.loads(stored["meta"].tobytes())
        assert {key: told[key] for key in meta} == meta
        assert len([key for key in stored.files if key.startswith("feed0/out/")]) == 1


def test_calls_run_in_order_in_one_session(tmp_path: Path) -> None:
    sample = Fixture(ROOT / "tests" / "data" / "tf1" / "1.15.5" / "state_lstm")
    cudnn_convert.convert(sample.prefix, tmp_path / "cpu", format="checkpoint", verify=False)
    out = tmp_path / "golden.npz"
    data = fed(sample, tmp_path / "in.npz")
    cudnn_convert.record(tmp_path / "cpu" / "model.ckpt", out, data=data, outputs="logits:0")
    for feed, answers in zip(sample.feeds()[:2], recordings.read_recording(out).answers, strict=True):
        assert_close(answers["logits"], feed["logits:0"])


def test_what_a_cpu_cannot_run_is_said_in_one_line(tmp_path: Path) -> None:
    source = copied(tmp_path)
    data = fed(fixture("1.15.5-v3_batch_major"), tmp_path / "in.npz")
    [line] = refused(tmp_path, "record", source, "--data", data, "--out", tmp_path / "new" / "out", code=1)
    assert line == (
        f"{source}: op CudnnRNNV3: expected a kernel for a device of this machine (CPU), found none; "
        "record on a machine with a GPU, or with scripts/record_tf1.py where the model was trained"
    )


def test_what_no_device_runs_is_refused_before_it_is_tried(tmp_path: Path) -> None:
    """With cuDNN 9 TensorFlow refuses the op on a GPU too."""
    sample = fixture("1.15.5-bilstm_tagger")
    data = fed(sample, tmp_path / "in.npz")
    [line] = refused(tmp_path, "record", sample.prefix, "--data", data, "--out", tmp_path / "out", code=1)
    assert line == (
        f"{sample.prefix}: op CudnnRNN: expected an op that TensorFlow {tf.__version__} can run, "
        "found one that it runs on no device; record with scripts/record_tf1.py where the model was trained"
    )


def test_an_out_that_exists_needs_force(tmp_path: Path) -> None:
    data, out = fed(BLOCK, tmp_path / "in.npz"), tmp_path / "golden.npz"
    out.write_text("years of work")
    words = ("record", BLOCK.prefix, "--data", data, "--out", out, *OUTPUTS)
    for flags in ([], ["--force"]):
        [line] = refused(tmp_path, *words, *flags, code=2)
        told = "expected a new path, found a file that this tool did not write; choose another path"
        assert line == f"{out}: {told}"
    out.unlink()
    assert command(*words).code == 0
    [line] = refused(tmp_path, *words, code=2)
    assert line.endswith("found what this tool wrote before; choose another path, or replace it with --force")
    assert command(*words, "--force").code == 0
    assert len(recordings.read_recording(out).feeds) == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones(3, np.float32)}, "expected the keys ['c0', 'h0', 'lengths', 'x'], found ['x']"),
        ({"feed1/x": np.ones(3)}, "expected feed0 to feed0, found feed1"),
        (None, "expected a file, or a pattern that matches files, found nothing"),
    ],
    ids=["keys", "numbers", "nothing"],
)
def test_feeds_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any] | None, message: str) -> None:
    if arrays is not None:
        np.savez(tmp_path / "in.npz", **arrays)
    words = ("--data", tmp_path / "in.npz", "--out", tmp_path / "out", *OUTPUTS)
    [line] = refused(tmp_path, "record", BLOCK.prefix, *words, code=2)
    assert line.removeprefix(f"--data {tmp_path / 'in.npz'}").lstrip(": ") == message


def test_feeds_that_the_model_does_not_take(tmp_path: Path) -> None:
    feed = {name.removesuffix(":0"): BLOCK.feeds()[0][name] for name in BLOCK.case["inputs"]}
    np.savez(tmp_path / "in.npz", **(feed | {"h0": feed["h0"][1:]}))
    told = r"in\.npz: the model does not accept these inputs: "
    with pytest.raises(UsageError, match=told):
        cudnn_convert.record(BLOCK.prefix, tmp_path / "out", data=tmp_path / "in.npz", outputs="rnn_out:0")
    assert not (tmp_path / "out").exists()


def test_weights_alone_are_refused(tmp_path: Path) -> None:
    source = copied(tmp_path)
    Path(f"{source}.meta").unlink()
    with pytest.raises(UnsupportedModelError, match="expected one to run, found weights alone"):
        cudnn_convert.record(source, tmp_path / "out", data=tmp_path / "in.npz")


def test_more_than_arithmetic_needs_trust(tmp_path: Path) -> None:
    with drawing() as graph:
        written = tf.raw_ops.WriteFile(filename=str(tmp_path / "seen"), contents="text", name="write")
        with tf.control_dependencies([written]):
            tf.identity(placeholder("x") * 2, name="scores")
    source = saved(tmp_path, graph, {"unused": np.ones(1, np.float32)})
    np.savez(tmp_path / "in.npz", x=np.ones((1, 1, 3), np.float32))
    words = (
        "record",
        source,
        "--outputs",
        "scores",
        "--data",
        tmp_path / "in.npz",
        "--out",
        tmp_path / "out",
    )
    [line] = refused(tmp_path, *words, code=1)
    assert line == (
        f"{source}: write: expected arithmetic only while recording, found WriteFile; "
        "vouch for the file with --trust"
    )
    assert command(*words, "--trust").code == 0
    assert (tmp_path / "seen").read_text() == "text"


def test_a_blob_is_restored_by_the_graph_s_own_saver(tmp_path: Path) -> None:
    """As a checkpoint of canonical keys has it: parts under their keys, and ops that put them together."""
    parts = {"left": np.array([0.5, -1.25], np.float32), "right": np.array([3.0], np.float32)}
    with drawing() as graph:
        blob = variable("blob", [3])
        tf.identity(placeholder("x") * blob, name="scores")
        file = tf.constant("elsewhere", name="save/Const")
        restored = tf.raw_ops.RestoreV2(
            prefix=file, tensor_names=[*parts], shape_and_slices=["", ""], dtypes=[tf.float32] * 2
        )
        tf.raw_ops.Assign(ref=blob, value=tf.concat([part * 2 for part in restored], 0), name="save/Assign")
    prefix = saved(tmp_path, graph, parts)
    made = plan_graph(model(graph, {"blob": np.zeros(3, np.float32)}), outputs=["scores"])
    made = dataclasses.replace(made, model=dataclasses.replace(made.model, path=prefix, variables={}))
    assert record.restoring(made) == [record.Restore("blob", "save/Assign", ("save/Const:0",), prefix)]
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 1, 3)
    np.savez(tmp_path / "in.npz", x=x)
    record.record_source(
        made, read_calls(Data(tmp_path / "in.npz")), tmp_path / "out", constants=(), trust=False
    )
    (answer,) = recordings.read_recording(tmp_path / "out").answers
    np.testing.assert_array_equal(answer["scores"], x * np.array([1.0, -2.5, 6.0], np.float32))
    bare = tf.Graph()
    with bare.as_default():
        v1.import_graph_def(made.whole.definition, name="")
    lost = dataclasses.replace(made.model, graph=bare.as_graph_def())
    with pytest.raises(UnsupportedModelError) as caught:
        record.restoring(dataclasses.replace(made, model=lost))
    assert caught.value.reasons == (
        "variable blob: expected a value in the file or an op that restores it, found neither; give the "
        "checkpoint that holds it",
    )


def test_a_checkpoint_of_canonical_keys_is_restored_so() -> None:
    """TensorFlow's own saver puts the blob together, by an op that no CPU has: it is looked at only."""
    sample = fixture("1.15.5-gru_bi")
    made = make_plan(read(sample.prefix), Options())
    assert record.restoring(made) == []  # this saver keeps the blob too
    values = {key: value for key, value in made.model.variables.items() if not key.endswith("kernel")}
    made = dataclasses.replace(made, model=dataclasses.replace(made.model, variables=values))
    [found] = record.restoring(made)
    graph = record.runnable(made, [found])
    nodes = {node.name: node for node in graph.node}
    assert (found.files, found.prefix) == (("save/Const:0",), sample.prefix)
    assert nodes[found.op].input[0] == found.variable == "cudnn_gru/opaque_kernel"
    assert nodes[nodes[found.op].input[1]].op == "CudnnRNNCanonicalToParams"
    assert all(name.lstrip("^").partition(":")[0] in nodes for node in graph.node for name in node.input)
    assert len(nodes) == len(graph.node)


A100, V100 = (
    "device: 0, name: A100, compute capability: 8.0",
    "device: 0, name: V100, compute capability: 7.0",
)
CASES: list[tuple[list[str], bool, dict[str, str], bool, str]] = [
    ([], True, {}, False, "no GPU"),
    ([A100], True, {}, True, "compute capability 8"),
    ([V100, A100], True, {}, True, "compute capability 8"),
    ([V100], True, {}, False, "compute capability 7, TF32 needs 8"),
    ([A100], False, {}, False, "switched off in TensorFlow"),
    ([A100], True, {"NVIDIA_TF32_OVERRIDE": "0"}, False, "NVIDIA_TF32_OVERRIDE=0"),
]


@pytest.mark.parametrize(("gpus", "enabled", "environment", "on", "reason"), CASES)
def test_the_state_of_tf32(
    gpus: list[str], enabled: bool, environment: dict[str, str], on: bool, reason: str
) -> None:
    told = record.tf32(gpus, enabled=enabled, environment={"HOME": "elsewhere", **environment})
    assert told == {"on": on, "reason": reason, "execution_enabled": enabled, "environment": environment}


def test_another_checkpoint_is_not_read(tmp_path: Path) -> None:
    """What restores variables is excused by itself, not every op of that kind."""
    other = saved(tmp_path, tf.Graph(), {"w": np.ones(3, np.float32)})
    parts = {"left": np.array([0.5, -1.25, 3.0], np.float32)}
    with drawing() as graph:
        blob = variable("blob", [3])
        read = {"tensor_names": ["w"], "shape_and_slices": [""], "dtypes": [tf.float32]}
        (secret,) = tf.raw_ops.RestoreV2(prefix=tf.constant(str(other)), **read, name="secret")
        tf.identity(placeholder("x") * blob + secret, name="scores")
        file = tf.constant("elsewhere", name="save/Const")
        (restored,) = tf.raw_ops.RestoreV2(prefix=file, **(read | {"tensor_names": ["left"]}))
        tf.raw_ops.Assign(ref=blob, value=restored * 2, name="save/Assign")
    (tmp_path / "own").mkdir()
    prefix = saved(tmp_path / "own", graph, parts)
    made = plan_graph(model(graph, {"blob": np.zeros(3, np.float32)}), outputs=["scores"])
    made = dataclasses.replace(made, model=dataclasses.replace(made.model, path=prefix, variables={}))
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 1, 3), np.float32))
    call = (made, read_calls(Data(tmp_path / "in.npz")), tmp_path / "out")
    with pytest.raises(UnsupportedModelError, match=r"secret: .* found RestoreV2"):
        record.record_source(*call, constants=(), trust=False)
    record.record_source(*call, constants=(), trust=True)
    (answer,) = recordings.read_recording(tmp_path / "out").answers
    np.testing.assert_array_equal(answer["scores"], np.ones((2, 1, 3)))
