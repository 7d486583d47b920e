"""Models whose images are channels first, in every format, where no CPU has a kernel for them.

The answers are those of TensorFlow 1.15 for the same ops channels last, with the same weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf
from support import artifacts, channels_first
from support.recorded import assert_close
from support.tiers import combinations
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert

FORMATS = ("savedmodel", "frozen", "onnx", "tflite")
FIRST = {("carried", "savedmodel"), ("depthwise", "onnx"), ("film_pools", "tflite")}


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
