"""Models whose images are channels first, in every format, where no CPU has a kernel for them.

The answers are those of TensorFlow 1.15 for the same ops channels last, with the same weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf
from support import artifacts, channels_first
from support.asking_keras import given_images
from support.recorded import assert_close
from support.tiers import combinations, some
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError

FORMATS = ("savedmodel", "frozen", "onnx", "tflite")
FIRST = {("film_pools", "tflite")}


@combinations(lambda group, form: (group, form) in FIRST, group=channels_first.GROUPS, form=FORMATS)
def test_answers_are_those_of_the_twin_channels_last(group: str, form: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = channels_first.flags(group)
    report = cudnn_convert.convert(channels_first.path(group), out, format=form, **flags)
    proof = report.verification
    assert proof is not None
    assert proof.ops is not None
    assert proof.ops.asked
    assert proof.ops.passed
    answers = tmp_path / "answers.npz"
    artifacts.answer([artifacts.job(out, form, channels_first.golden(group), answers)])
    _, expected = channels_first.recorded(group)
    assert sorted(report.outputs.values()) == sorted(expected)
    with np.load(answers) as found:
        for key, name in report.outputs.items():
            assert_close(found[f"feed0/{key}"], expected[name], name=(group, name))


def saved_graph(folder: Path) -> tf.compat.v1.GraphDef:
    content = (folder / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def


def list_turned_images(folder: Path) -> Iterator[str]:
    """The transpositions of four axes in a SavedModel."""
    graph = saved_graph(folder)
    perms = {
        node.name: tf.make_ndarray(node.attr["value"].tensor) for node in graph.node if node.op == "Const"
    }
    for node in graph.node:
        if node.op == "Transpose" and len(perms.get(node.input[1], ())) == 4:
            yield node.name


def test_a_layout_goes_on_between_the_input_and_a_recurrence(tmp_path: Path) -> None:
    """A convolution, a pool and what squeezes rows away: one transposition in, and one out."""
    flags, out = channels_first.flags("carried", "columns"), tmp_path / "out"
    cudnn_convert.convert(channels_first.path("carried"), out, format="savedmodel", **flags)
    graph = saved_graph(out)
    assert sum(node.op == "Transpose" for node in graph.node) == 2
    assert not [node.name for node in graph.node if b"NC" in node.attr["data_format"].s]


def test_onnx_has_no_transposition_for_a_layout_that_is_its_own(tmp_path: Path) -> None:
    names = ["joined", "residual", "reduced"]
    flags, out = channels_first.flags("carried", *names), tmp_path / "out.onnx"
    cudnn_convert.convert(channels_first.path("carried"), out, format="onnx", **flags)
    graph = onnx.load(str(out)).graph
    assert "Transpose" not in {node.op_type for node in graph.node}
    assert "joined/concat:0" in {name for node in graph.node for name in node.output}


CRNN = channels_first.FOLDER / "crnn"
#: The output of a source, where it is not asked for the text: TensorFlow 1 computed it in other ops.
LETTERS = {"model.ckpt": "letters/truediv:0", "model.h5": "letters/Softmax:0"}


@combinations(
    lambda source, form: (source, form) in {("model.ckpt", "frozen"), ("model.h5", "keras")},
    source=("model.ckpt", "model.h5"),
    form=(*FORMATS, "checkpoint", "keras", "h5"),
)
def test_a_network_that_reads_lines(source: str, form: str, is_first_tier: bool, tmp_path: Path) -> None:
    """Its checkpoint gives the text that CTC finds too, without a flag; TensorFlow Lite has no such op."""
    if source == "model.ckpt" and form in ("keras", "h5"):
        pytest.skip("a checkpoint has no layers")
    out = tmp_path / "out"
    has_text = source == "model.ckpt" and form != "tflite"
    flags = {} if has_text or source == "model.h5" else {"outputs": LETTERS[source]}
    verify = source == "model.ckpt" or not is_first_tier
    report = cudnn_convert.convert(CRNN / source, out, format=form, verify=verify, **flags)
    ((key, name),) = report.outputs.items()
    assert name == ("text:0" if has_text else LETTERS[source])
    if form == "savedmodel":  # images are turned once, and the model itself makes columns of them
        assert len([*list_turned_images(out)]) == 2
    job = artifacts.job(out, form, CRNN / "golden.npz", tmp_path / "answers.npz")
    job["inputs"]["images"]["source"] = "images"
    artifacts.answer([job])
    with np.load(tmp_path / "answers.npz") as found, np.load(CRNN / "golden.npz") as golden:
        if has_text:
            np.testing.assert_array_equal(found[f"feed0/{key}"], golden["feed0/text"])
        else:
            assert_close(found[f"feed0/{key}"], golden["feed0/letters"], name=form)


@pytest.mark.parametrize("form", some(["keras"], "h5"))
def test_layers_that_give_images_out_are_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        cudnn_convert.convert(given_images(tmp_path), tmp_path / "out", format=form)
    expected = "expected layers that every CPU runs, found images whose channels come first"
    (line,) = caught.value.reasons
    assert str(line) == f"conv: {expected}; choose --format savedmodel"
    assert not (tmp_path / "out").exists()


class Branching(tf.Module):
    """A convolution, one in a loop, and one of two pools, by the sign of the first pixel."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        kernels = [rng.uniform(-1, 1, (height, 2, 3, 3)).astype(np.float32) for height in (3, 2)]
        self.before, self.inner = (tf.Variable(kernel) for kernel in kernels)
        self.layout, self.rows = ("NCHW", [2, 3]) if first else ("NHWC", [1, 2])

    def convolve(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(x, kernel, 1, "SAME", data_format=self.layout)

    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        def step(k: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.nn.bias_add(self.convolve(y, self.inner), [0.1, 0.2, -0.3], data_format=self.layout)
            return k + 1, tf.tanh(y)

        _, y = tf.while_loop(lambda k, _: k < 2, step, [0, tf.nn.relu(self.convolve(x, self.before))])
        options = {"ksize": 2, "strides": 1, "padding": "SAME", "data_format": self.layout}
        y = tf.cond(
            x[0, 0, 0, 0] > 0, lambda: tf.nn.max_pool2d(y, **options), lambda: tf.nn.avg_pool2d(y, **options)
        )
        return {"y": y, "mean": tf.reduce_mean(y, self.rows)}


@pytest.mark.parametrize("form", some(["savedmodel"], "frozen", "onnx", "tflite"))
def test_functions_of_a_saved_model_are_repaired(form: str, tmp_path: Path) -> None:
    """It has no recurrence, and no kernel on every CPU all the same."""
    module, twin = Branching(first=True), Branching(first=False)
    call = tf.function(module.call, input_signature=[tf.TensorSpec([None, 3, 4, 5], tf.float32, "x")])
    source, out = tmp_path / "source", tmp_path / "out"
    tf.saved_model.save(module, str(source), signatures={"serving_default": call})
    report = cudnn_convert.convert(source, out, format=form)
    assert report.verification is not None
    assert report.verification.ops is not None
    assert report.verification.ops.passed
    assert "computed channels last, as every CPU does: AvgPool, BiasAdd, 2 Conv2D, MaxPool" in report.notes
    image = np.random.default_rng(2).uniform(0.1, 1, (2, 4, 5, 3)).astype(np.float32)
    for x in (image, -image):
        expected = twin.call(tf.constant(x))
        answer = cudnn_convert.run(out, data={"x": x.transpose(0, 3, 1, 2)}).outputs[0]
        assert_close(answer["y"].transpose(0, 2, 3, 1), expected["y"].numpy())
        assert_close(answer["mean"], expected["mean"].numpy())


@pytest.mark.slow("cudnn_convert/graph/passes", "cudnn_convert/keras/config")
def test_inspect_names_what_only_a_gpu_runs() -> None:
    found = cudnn_convert.inspect(channels_first.path("only_onednn"), **channels_first.flags("only_onednn"))
    assert found.runs_on_cpu is False
    assert found.gpu_ops == ("2 DepthwiseConv2dNative of NCHW", "3 Conv2D of NCHW", "Conv3D of NCDHW")
    checkpoint = cudnn_convert.inspect(CRNN / "model.ckpt")
    assert checkpoint.gpu_ops == ("CudnnRNNV2", "2 Conv2D of NCHW", "MaxPool of NCHW")
    layers = cudnn_convert.inspect(CRNN / "model.h5")
    assert (layers.runs_on_cpu, layers.gpu_ops) == (False, ("CuDNNLSTM", "c1, pool, c2 channels first"))
    assert layers.command is not None
    assert layers.command[-1] == "keras"


PROGRAM = """
import sys
import numpy as np, tensorflow as tf
sys.modules["cudnn_convert"] = None
loaded = tf.saved_model.load(sys.argv[1])
function = loaded.signatures["serving_default"]
arrays = np.load(sys.argv[2])
keys = function.structured_input_signature[1]
fed = {key: tf.constant(arrays[f"feed0/{key.rpartition('_')[0]}/x:0"]) for key in keys}
np.savez(sys.argv[3], **{key: value.numpy() for key, value in function(**fed).items()})
"""


@pytest.mark.slow("cudnn_convert/graph/passes", "cudnn_convert/verification/channels_first.py")
@pytest.mark.parametrize("group", channels_first.GROUPS)
def test_neither_the_converting_machine_nor_the_user_s_matters(group: str, tmp_path: Path) -> None:
    """With oneDNN on and off the same bytes are written, and run."""
    written = []
    for opts in "01":
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": opts, "TF_CPP_MIN_LOG_LEVEL": "3"}
        out = tmp_path / f"out_{opts}"
        call = [sys.executable, "-m", "cudnn_convert", str(channels_first.path(group)), str(out), "--quiet"]
        call += [f"--{key}={value}" for key, value in channels_first.flags(group).items()]
        subprocess.run(call, env=environment, check=True)
        written.append((out / "saved_model.pb").read_bytes())
        for run in "01":
            answers = tmp_path / f"answers_{opts}_{run}.npz"
            arguments = [str(out), str(channels_first.golden(group)), str(answers)]
            subprocess.run(
                [sys.executable, "-c", PROGRAM, *arguments],
                env={**environment, "TF_ENABLE_ONEDNN_OPTS": run},
                check=True,
            )
            _, expected = channels_first.recorded(group)
            with np.load(answers) as found:
                for name, value in expected.items():
                    key = name.removesuffix(":0").replace("/", "_")  # as the signature has it
                    assert_close(found[key], value, name=(group, name, opts, run))
    assert written[0].replace(b"out_0", b"") == written[1].replace(b"out_1", b"")
