"""The file that a frozen graph becomes, without a recurrence in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import v1
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.python.convert_phase import ConverterError

from cudnn_convert.artifacts import tflite
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import SERVING, Part, Signature
from cudnn_convert.targets import tflite as write_tflite

NAMES: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
NOTE = json.dumps({"source": "a checkpoint", "options": {"n": 1}, "tensors": NAMES, **NAMES})
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def graph() -> Any:
    """`y = 2 a`, a constant, an input that nothing reads, and what TensorFlow Lite has no ops for."""
    with tf.Graph().as_default() as made:
        a = v1.placeholder(tf.float32, [None, 3], "a")
        v1.placeholder(tf.float32, [None, 4], "unread")
        tf.multiply(a, 2.0, name="y")
        tf.constant([0.5, -1.5], name="k")
        tf.argmax(a, 1, name="choice")
        parts = tf.dynamic_partition(a[:, 0], tf.cast(a[:, 1], tf.int32), 2)
        tf.add(tf.dynamic_partition(parts[0], tf.zeros_like(parts[0], tf.int32), 1)[0], 1.0, name="parted")
        one, row = tf.constant(1, tf.int64), tf.zeros([1, 3], tf.int64)
        found = tf.raw_ops.Unbatch(batched_tensor=a, batch_index=row, id=one, timeout_micros=1, name="left")
        tf.identity(found, name="unknown")
    return made.as_graph_def()


def written(path: Path, inputs: dict[str, str], outputs: dict[str, str], **flags: bool) -> tuple[str, ...]:
    signature = Signature(inputs, outputs)
    return write_tflite.write(graph(), signature, path, provenance=NOTE, **{"built_in": True} | flags)


def test_keys_constants_and_tensors_under_two_keys(tmp_path: Path) -> None:
    inputs, outputs = (
        {"in/0": "a:0"},
        {"y": "y:0", "twice": "y:0", "k": "k:0", "again": "a:0", "c": "choice:0"},
    )
    assert written(tmp_path / "m.tflite", inputs, outputs) == ()
    run = open_artifact("tflite", tmp_path / "m.tflite", [Part(SERVING, Signature(inputs, outputs))])
    for x in (X, np.repeat(X, 3, 0)[:5]):
        found = run({"in/0": x})
        assert found.keys() == outputs.keys()
        assert found["c"].dtype == np.int64
        expected = {"y": 2 * x, "twice": 2 * x, "k": [0.5, -1.5], "again": x, "c": [2] * len(x)}
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value)


def test_an_input_that_nothing_reads_stays(tmp_path: Path) -> None:
    written(tmp_path / "m.tflite", {"a": "a:0", "u": "unread:0"}, {"y": "y:0"})
    interpreter = tf.lite.Interpreter(str(tmp_path / "m.tflite"))
    assert interpreter.get_signature_list() == {SERVING: {"inputs": ["a", "u"], "outputs": ["y"]}}


def test_provenance_and_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.tflite", "b.tflite"):
        written(tmp_path / name, {"a": "a:0"}, {"y": "y:0"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tflite", "b.tflite"]
    assert (tmp_path / "a.tflite").read_bytes() == (tmp_path / "b.tflite").read_bytes()
    assert tflite.provenance(tmp_path / "a.tflite") == json.loads(NOTE)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs((tmp_path / "a.tflite").read_bytes(), 0))
    kept = {entry.name.decode(): bytes(model.buffers[entry.buffer].data) for entry in model.metadata}
    assert kept["cudnn_convert"].decode() == NOTE
    assert "min_runtime_version" in kept  # the converter's own stay


def test_a_file_of_another_tool(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([2])])
    def double(x: Any) -> Any:
        return x * 2

    made = tf.lite.TFLiteConverter.from_concrete_functions([double.get_concrete_function()]).convert()
    (tmp_path / "m.tflite").write_bytes(made)
    assert tflite.provenance(tmp_path / "m.tflite") is None


def test_an_op_that_it_lacks_is_named_with_its_cures(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        written(tmp_path / "m.tflite", {"a": "a:0"}, {"p": "parted:0"})
    (reason,) = refused.value.reasons
    assert reason.startswith("DynamicPartition")
    assert " and 1 more: expected an op that TensorFlow Lite has, found DynamicPartition; " in reason
    wanted = reason.partition("cut the graph before it, which drops p, with --outputs ")[2].partition(",")[0]
    assert reason.endswith(f"{wanted}, or write a kernel of TensorFlow's unproven with --no-verify")
    assert written(tmp_path / "m.tflite", {"a": "a:0"}, {"p": wanted}) == ()
    (tmp_path / "m.tflite").unlink()
    assert not list(tmp_path.iterdir())


def test_kernels_of_tensorflow_where_they_are_let_in(tmp_path: Path) -> None:
    ends = {"a": "a:0"}, {"p": "parted:0"}
    assert written(tmp_path / "m.tflite", *ends, built_in=False) == ("DynamicPartition",)
    assert tflite.flex_ops(tmp_path / "m.tflite") == ("DynamicPartition",)
    assert written(tmp_path / "n.tflite", {"a": "a:0"}, {"y": "y:0"}, built_in=False) == ()


def test_an_op_that_no_kernel_can_stand_in_for(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        written(tmp_path / "m.tflite", {"a": "a:0"}, {"p": "unknown:0"}, built_in=False)
    (reason,) = refused.value.reasons
    assert "\n" not in reason
    assert reason == (
        "left: expected an op that TensorFlow Lite has, found Unbatch; choose --format savedmodel or frozen"
    )


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (
            ConverterError(
                '<unknown>:0: error: loc(fused["Squeeze:", "crf/Squeeze_2@_if_else_branch_0"]): '
                "'tfl.squeeze' op attribute 'squeeze_dims' failed to satisfy constraint: 64-bit array\n"
                '<unknown>:0: error: loc(fused["Squeeze:", "crf/Squeeze_2"]): failed to legalize\n'
                '<unknown>:0: note: loc(fused["Squeeze:", "crf/Squeeze_2"]): Error code: ERROR\n'
            ),
            "crf/Squeeze_2: expected a Squeeze that TensorFlow Lite's converter accepts, found one "
            "that it refuses: "
            "'tfl.squeeze' op attribute 'squeeze_dims' failed to satisfy constraint: 64-bit array; "
            "choose --format savedmodel or frozen",
        ),
        (
            ValueError("\nno such graph\nmore"),
            "expected a graph that TensorFlow Lite's converter accepts, found an error: ValueError: no such "
            "graph; choose --format savedmodel or frozen",
        ),
    ],
)
def test_what_else_the_converter_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception, told: str
) -> None:
    """Of a node that it names, and of none; as TensorFlow 2.21 said it of tf.contrib.crf's decoding."""

    def refusing(*_: Any) -> bytes:
        raise cause

    monkeypatch.setattr(write_tflite, "_by", refusing)
    with pytest.raises(UnsupportedModelError) as refused:
        written(tmp_path / "m.tflite", {"a": "a:0"}, {"y": "y:0"})
    assert refused.value.reasons == (told,)
