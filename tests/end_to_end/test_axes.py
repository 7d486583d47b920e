"""Axes of one name have one size, whatever the sizes are: asked of ONNX Runtime, which knows no plan."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, model, placeholder, saved, variable
from support.samples import FIXTURES, ROOT, fixture
from support.tiers import some
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.options import Options
from cudnn_convert.plan import axes
from cudnn_convert.plan.make import make_plan

#: The axes of some models, by key.
AXES: dict[str, dict[str, list[Any]]] = {
    "1.15.5-v3_lengths_time_major": {
        "x": ["time", "batch", 4], "lengths": ["batch"], "rnn_out": ["time", "batch", 10],
        "state_h": [4, "batch", 5], "state_c": [4, "batch", 5],
    },
    "1.15.5-v3_batch_major": {
        "x": ["batch", "time", 3], "h0": ["batch", 2, 6], "rnn_out": ["batch", "time", 12],
        "state_h": ["batch", 2, 6],
    },
    "seq2seq": {  # an encoder and a decoder, each with steps of its own
        "source": ["batch", "time"], "tokens": ["batch", "time_2"], "h": ["batch", 40], "c": ["batch", 40],
        "log_probs": ["batch", "time_2", 12], "next_h": ["batch", 40], "next_c": ["batch", 40],
        "encoded_h": ["batch", 40], "encoded_c": ["batch", 40],
    },
    "crf_tagger": {  # a condition on one step contradicts all other sizes
        "ids": ["batch", "time"], "logits": ["batch", "time", 7], "tags": ["batch", None], "score": [None],
    },
    "ocr_crnn": {  # the steps are columns of an image, two of them each
        "images": ["batch", 12, None, 1], "logits": [None, "batch", 11], "decoded": [None, None],
    },
}  # fmt: skip
#: The least width of an image: strides halve it.
_WIDE = 12


def source(name: str) -> Path:
    model = ROOT / "models" / name / "model.ckpt"
    return model if model.parent.is_dir() else fixture(name).prefix


def dimensions(value: Any) -> list[Any]:
    """The shape that ONNX Runtime tells, None for what is no name of this tool's."""
    return [None if str(size).startswith(("dim_", "unk__")) else size for size in value.shape]


def require_equal_sizes(path: Path) -> int:
    """Run a model with two batches and two numbers of steps; give how many sizes a name has foretold."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = {size for value in session.get_inputs() for size in value.shape if isinstance(size, str)}
    told = 0
    for batch, time in product((2, 5), (_WIDE, _WIDE + 8)):
        # Times of their own differ from each other, and from the batch.
        sizes = {name: time + 2 * number for number, name in enumerate(sorted(names))} | {"batch": batch}
        feed = {
            value.name: make_feed(value, [sizes.get(size, size) for size in value.shape])
            for value in session.get_inputs()
        }
        for value, found in zip(session.get_outputs(), session.run(None, feed), strict=True):
            shape = dimensions(value)
            assert len(shape) == found.ndim, value.name
            for size, actual in zip(shape, found.shape, strict=True):
                if size is not None:
                    assert actual == sizes.get(size, size), (value.name, shape, found.shape)
                    told += isinstance(size, str)
    return told


def make_feed(value: Any, shape: list[int]) -> Any:
    """Numbers for an input; a whole number is 1, which is a token, a length and a truth."""
    names = {"float": "float32", "double": "float64"}
    kind = np.dtype(names.get(name := value.type[len("tensor(") : -1], name))
    values = np.random.default_rng(0).normal(size=shape)
    return values.astype(kind) if kind.kind == "f" else np.ones(shape, kind)


@pytest.mark.first("1.15.5-v3_batch_major", "ocr_crnn")
@pytest.mark.parametrize("name", AXES)
def test_names_are_sizes(tmp_path: Path, name: str) -> None:
    report = cudnn_convert.convert(source(name), tmp_path / "model.onnx", verify=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    shapes = {value.name: dimensions(value) for value in (*session.get_inputs(), *session.get_outputs())}
    assert shapes == AXES[name]
    known = {key: [*shape] for key, shape in report.axes.items()}
    assert known == {key: shape for key, shape in AXES[name].items() if key in known}
    assert require_equal_sizes(tmp_path / "model.onnx") >= 4


@pytest.mark.every
@pytest.mark.parametrize("name", [each.name for each in FIXTURES if each.name.startswith("1.15.5")])
def test_names_are_sizes_in_every_fixture(tmp_path: Path, name: str) -> None:
    try:
        cudnn_convert.convert(fixture(name).prefix, tmp_path / "model.onnx", verify=False)
    except cudnn_convert.CudnnConvertError as error:
        pytest.skip(str(error))
    if not (tmp_path / "model.onnx").is_file():
        pytest.skip("portable already")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    if any(None in dimensions(value) for value in session.get_inputs()):
        pytest.skip("sizes without a name may have to be equal")
    require_equal_sizes(tmp_path / "model.onnx")


def test_a_saved_model_and_every_provenance_have_the_names(tmp_path: Path) -> None:
    name = "1.15.5-v3_lengths_time_major"
    cudnn_convert.convert(source(name), tmp_path / "saved", verify=False)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "saved" / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    infos = {**signature.inputs, **signature.outputs}
    shapes = {
        key: [dimension.name or dimension.size for dimension in info.tensor_shape.dim]
        for key, info in infos.items()
    }
    assert shapes == AXES[name]
    text = (tmp_path / "saved" / "assets.extra" / "cudnn_convert.json").read_text()
    assert json.loads(text)["axes"] == AXES[name]


def test_a_key_that_an_input_and_an_output_share_has_no_names(tmp_path: Path) -> None:
    """Names of one's axes would be wrong for the other."""
    plain = cudnn_convert.convert(source("crf_tagger"), tmp_path / "plain", verify=False)
    logits = f"ids={plain.outputs['logits']}"
    report = cudnn_convert.convert(source("crf_tagger"), tmp_path / "saved", outputs=[logits])
    assert "ids" not in report.axes
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "saved" / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    shapes = [side["ids"].tensor_shape.dim for side in (signature.inputs, signature.outputs)]
    assert [len(shape) for shape in shapes] == [2, 3]
    assert [dimension.name for shape in shapes for dimension in shape] == [""] * 5
    assert [dimension.size for dimension in shapes[1]][-1] == AXES["crf_tagger"]["logits"][-1]


def test_a_search_has_no_names_of_the_steps_it_calls(tmp_path: Path) -> None:
    """Its tokens have other axes than those that the model takes."""
    out = tmp_path / "saved"
    source, inputs = fixture("1.15.5-estimator_examples").prefix, ["tokens:0", "ParseExample/ParseExample:3"]
    report = cudnn_convert.convert(source, out, inputs=inputs, decode="beam", steps=8, verify=False)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((out / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    assert report.axes["tokens"] == ("batch", "time")
    step, begin = (signatures[name].inputs["tokens"].tensor_shape for name in ("stream", "decode"))
    assert [dimension.name for dimension in step.dim] == ["batch", "time"]
    assert [dimension.name for dimension in begin.dim] == [""]


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/lower")
@pytest.mark.parametrize("name", some(["1.15.5-v3_gru_lengths"], "1.15.5-lstm_bi_2l_states"))
def test_a_tensorflow_lite_file_has_the_names_in_its_metadata(tmp_path: Path, name: str) -> None:
    from cudnn_convert.artifacts import runners

    out = tmp_path / "model.tflite"
    report = cudnn_convert.convert(source(name), out, verify=False)
    _, _, recorded = runners.identify(out)
    assert recorded is not None
    assert recorded["axes"] == {key: [*shape] for key, shape in report.axes.items()}
    assert "batch" in recorded["axes"]["x"]


@pytest.mark.parametrize(
    ("timed", "groups"),
    [(1, [[0]]), (2, [[0, 1], [0, 0]]), (3, [[0, 1, 2], [0, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]])],
)
def test_times_are_tried_from_all_different_to_all_the_same(timed: int, groups: list[list[int]]) -> None:
    found = [*axes._partitions(timed)]
    assert sorted(found) == sorted(groups)


def test_halves_that_are_doubled_have_no_name() -> None:
    """As strides make them: of odd times alone the result has the size of the time."""
    with drawing() as graph:
        y = lstm(placeholder("x"), variable("blob", BLOB.shape)).output
        half = y[1::2]
        tf.concat([half, half, y[:1]], axis=0, name="scores")
        tf.identity(y, name="steps")
    options = Options(outputs=["scores:0", "steps:0"])
    named = axes.name_axes(make_plan(model(graph), options))
    assert named == {"x": ("time", "batch", 3), "scores": (None, "batch", 2), "steps": ("time", "batch", 2)}


def test_what_shares_no_data_with_a_recurrence_has_no_name_of_its_axes() -> None:
    """Of a shape that is fed not even the rank is known; what is broadcast has sizes of 1 too."""
    with drawing() as graph:
        y = lstm(placeholder("x"), variable("blob", BLOB.shape)).output
        tf.identity(y, name="steps")
        left, right = (placeholder(name, (None, None)) for name in ("left", "right"))
        tf.math.floormod(left, right, name="rest")
        tf.fill(placeholder("dims", (None,), tf.int32), 1.0, name="filled")
    outputs = ["steps:0", "rest:0", "filled:0"]
    named = axes.name_axes(make_plan(model(graph), Options(outputs=outputs)))
    beside = {"left": (None, None), "right": (None, None), "rest": (None, None), "dims": (None,)}
    assert named == {"x": ("time", "batch", 3), "steps": ("time", "batch", 2), **beside}


def test_an_open_width_is_what_the_weights_take(tmp_path: Path) -> None:
    """Wherever it stands in the input; what no recurrence reads stays open."""
    with drawing() as graph:
        x, beside = (placeholder(name, (None, None, None)) for name in ("x", "beside"))
        y = lstm(tf.transpose(x, [1, 2, 0]), variable("blob", BLOB.shape)).output
        tf.concat([y, beside[:, :, :1]], axis=2, name="scores")
    plan = make_plan(model(graph), Options(outputs=["scores:0"]))
    shapes = {
        name: plan.graph.shapes.get_tensor_by_name(f"{name}:0").shape.as_list() for name in plan.source.inputs
    }
    assert shapes == {"x": [3, None, None], "beside": [None, None, None]}
    report = cudnn_convert.convert(
        saved(tmp_path, graph, {"blob": BLOB}), tmp_path / "out.onnx", outputs=["scores:0"]
    )
    assert report.verification is not None
    assert report.verification.passed
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    assert {value.name: dimensions(value)[0] for value in session.get_inputs()}["x"] == 3
