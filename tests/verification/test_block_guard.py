"""BlockLSTM in a source that is run: no feed ends the process, and rounding is judged by its own type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from graphs import drawing, placeholder, saved
from samples import fixture

import cudnn_convert
from cudnn_convert.errors import UsageError


def test_more_steps_than_the_input_has(out: Path, tmp_path: Path) -> None:
    sample = fixture("1.15.5-block_fused_lengths")
    feed = sample.feeds()[0]
    data = {key: feed[f"{key}:0"] for key in ("x", "c0", "h0", "lengths")}
    data["lengths"] = np.array([4, 8, 6], np.int32)  # of 7 steps
    np.savez(tmp_path / "data.npz", **data)
    with pytest.raises(UsageError, match="expected inputs that the model accepts"):
        cudnn_convert.convert(sample.prefix, out, data=tmp_path / "data.npz", **sample.options)
    assert not out.exists()


def test_half_is_judged_as_half(out: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with drawing() as graph:
        x = placeholder("x", (None, None, 3))
        variables = {"w": rng.uniform(-1, 1, (7, 16)), "b": rng.uniform(-1, 1, 16)}
        values = {name: value.astype(np.float16) for name, value in variables.items()}
        w, b = (tf.raw_ops.VariableV2(shape=v.shape, dtype=tf.half, name=n) for n, v in values.items())
        zeros, unused = tf.zeros([tf.shape(x)[1], 4], tf.half), tf.zeros([4], tf.half)
        found = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(tf.shape(x)[0], tf.int64), x=tf.cast(x, tf.half), cs_prev=zeros, h_prev=zeros,
            w=w, wci=unused, wcf=unused, wco=unused, b=b, cell_clip=-1,
        )  # fmt: skip
        tf.cast(found.h, tf.float32, name="y")
    report = cudnn_convert.convert(saved(tmp_path, graph, values), out, format="onnx", outputs="y")
    assert report.verification is not None
    (judged,) = report.verification.outputs
    assert judged.reason.startswith("float16")
    assert judged.worst > 1e-5
