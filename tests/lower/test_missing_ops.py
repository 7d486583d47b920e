"""What stands in the place of sign bits, spectra and buckets answers as they did; other uses stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.graph import Graph, import_graph, prune
from cudnn_convert.lower import missing_ops
from cudnn_convert.lower.missing_ops import replace_buckets, replace_sign_bits, replace_spectra
from cudnn_convert.lower.onnx import convert
from cudnn_convert.lower.tflite import lower_tflite
from cudnn_convert.model import Signature

v1 = tf.compat.v1
TINY = np.finfo(np.float32).smallest_subnormal
X = np.array([[-0.0, 0.0, -1.5, 2.0], [np.inf, -np.inf, TINY, -TINY]], np.float32)


def negative(x: Any, whole: tf.DType = tf.int32, mask: int | None = None) -> Any:
    mask = whole.min if mask is None else mask
    return tf.bitcast(x, whole) & tf.constant(mask, whole) < 0


def drawn(test: Any, dtype: str = "float32") -> tf.Graph:
    with tf.Graph().as_default() as graph:
        tf.identity(test(v1.placeholder(dtype, [None, None], "x")), "y")
    return graph


def answer(graph: Any, x: Any) -> Any:
    with tf.Graph().as_default() as imported, v1.Session(graph=imported) as session:
        tf.import_graph_def(graph, name="")
        return session.run("y:0", {"x:0": x})


@pytest.mark.parametrize(
    ("dtype", "whole"), [("float32", tf.int32), ("half", tf.int16), ("double", tf.int64)]
)
def test_each_float_is_as_negative_as_its_bit_says(dtype: str, whole: Any) -> None:
    source = drawn(lambda x: negative(x, whole), dtype).as_graph_def()
    replaced = replace_sign_bits(Graph(source)).definition
    assert {node.name: node.op for node in replaced.node}["Less"] == "LogicalOr"
    x = X.astype(np.dtype(dtype))
    np.testing.assert_array_equal(answer(replaced, x), np.signbit(x))
    np.testing.assert_array_equal(answer(source, x), np.signbit(x))


@pytest.mark.parametrize(
    "test",
    [
        lambda x: negative(x, mask=1),
        lambda x: tf.bitcast(x, tf.int32) & tf.int32.min < -1,
        lambda x: tf.bitcast(tf.bitcast(x, tf.uint32), tf.int32) & tf.int32.min < 0,
        lambda x: tf.bitcast(x, tf.uint32) & np.uint32(0) < 0,
        lambda x: tf.bitcast(x, tf.int32) < 0,
        lambda x: (tf.cast(x, tf.int32) & tf.int32.min < 0) | (tf.bitcast(x, tf.int32) < 0),
        lambda x: tf.bitcast(x[..., None] * [1.0, 1.0], tf.int64) & tf.int64.min < 0,
    ],
    ids=["mask", "bound", "whole", "unsigned", "no_mask", "cast", "wider"],
)
def test_other_bits_stay(test: Any) -> None:
    graph = Graph(drawn(test).as_graph_def())
    assert replace_sign_bits(graph).node == graph.node


def best(x: Any) -> Any:
    """As argmax of Keras 3: of two zeros the positive one."""
    is_negative_zero = tf.equal(x, 0.0) & negative(x)
    return tf.argmax(tf.where(is_negative_zero, -np.finfo(np.float32).tiny, x), -1, output_type=tf.int32)


def test_argmax_of_keras_in_both_formats() -> None:
    source = drawn(best).as_graph_def()
    model = convert.lower(source, Signature({"x": "x:0"}, {"y": "y:0"}), [], opset=17).model
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    lite = lower_tflite(source, [], {}, ends=["x:0", "y:0"]).graph.definition
    x = X[:1, :3]
    assert answer(source, x).tolist() == [1]
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], [1])
    np.testing.assert_array_equal(answer(lite, x), [1])


def spectra(x: Any, length: Any) -> Any:
    """The parts of a spectrum, one beside the other."""
    numbers = tf.raw_ops.RFFT(
        input=x,
        fft_length=tf.reshape(length, [1]),
        Tcomplex=tf.complex128 if x.dtype == tf.float64 else tf.complex64,
    )
    parts = [tf.math.real(numbers), tf.math.imag(numbers), tf.raw_ops.ComplexAbs(x=numbers, Tout=x.dtype)]
    return tf.concat(parts, -1)


def drawn_frames(dtype: str, width: int | None, build: Any) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        tf.identity(build(v1.placeholder(dtype, [None, None, width], "x")), "y")
    return graph


@pytest.mark.parametrize("length", [12, 8, 7, 1])
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 2e-6), ("float64", 1e-14)])
def test_parts_of_a_spectrum_are_products(dtype: str, bound: float, length: int) -> None:
    source = drawn_frames(dtype, 12, lambda x: spectra(x, length)).as_graph_def()
    old = source.__class__.FromString(source.SerializeToString())
    for node in old.node:  # as TensorFlow 1 writes it
        node.attr.pop("Treal", None) if node.op == "RFFT" and dtype == "float32" else None
    replaced = replace_spectra(Graph(old))
    replaced = prune(replaced, ["y:0"]).definition
    assert not {node.op for node in replaced.node} & {"RFFT", "Real", "Imag", "ComplexAbs"}
    assert all(value.WhichOneof("value") for node in replaced.node for value in node.attr.values())
    x = np.random.default_rng(length).standard_normal((3, 2, 12)).astype(dtype)
    numbers = np.fft.rfft(x[..., :length].astype(np.float64))
    expected = np.concatenate([numbers.real, numbers.imag, np.abs(numbers)], -1)
    np.testing.assert_allclose(answer(replaced, x), expected, rtol=0, atol=bound * length)
    if dtype == "float32":
        model = convert.lower(source, Signature({"x": "x:0"}, {"y": "y:0"}), [], opset=17).model
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(["y"], {"x": x})[0], expected, rtol=0, atol=bound * length)


def test_a_spectrum_of_each_row() -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(spectra(v1.placeholder("float32", [None, 12], "x"), 8), "y")
    replaced = replace_spectra(Graph(graph.as_graph_def())).definition
    x = np.random.default_rng(0).standard_normal((3, 12)).astype(np.float32)
    numbers = np.fft.rfft(x[:, :8])
    expected = np.concatenate([numbers.real, numbers.imag, np.abs(numbers)], -1)
    np.testing.assert_allclose(answer(replaced, x), expected, rtol=0, atol=2e-5)
    assert "Real" not in {node.op for node in replaced.node}


def in_a_loop(x: Any) -> Any:
    v1.disable_control_flow_v2()
    try:
        return v1.while_loop(
            lambda k, _: k < 2,
            lambda k, y: (k + 1, y + spectra(x, 8)[..., :1]),
            [0, tf.zeros_like(x)[..., :1]],
        )[1]
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.parametrize(
    ("width", "build"),
    [
        (12, lambda x: spectra(x, tf.shape(x)[0])),
        (None, lambda x: spectra(x, 8)),
        (6, lambda x: spectra(x, 8)),
        (12, lambda x: spectra(x[0, 0], 8)),
        (12, lambda x: tf.math.angle(tf.signal.rfft(x))),
        (12, in_a_loop),
    ],
    ids=["length", "width", "narrow", "vector", "complex", "loop"],
)
def test_other_spectra_stay(width: int | None, build: Any) -> None:
    graph = Graph(drawn_frames("float32", width, build).as_graph_def())
    assert [node.op for node in replace_spectra(graph).node] == [node.op for node in graph.node]


# Buckets, by what TensorFlow's own op answers.


def buckets(x: Any) -> Any:
    return tf.raw_ops.Bucketize(input=x, boundaries=[-1.5, 0.25, 3.0, 1e6])


NUMBERS = np.array([[-2, -1.5, 3 - 1e-9, 0.25], [3, 1e7, -np.inf, np.nan]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_number_is_in_the_bucket_whose_boundaries_it_has_reached(dtype: str) -> None:
    graph = drawn(buckets, dtype).as_graph_def()
    replaced = replace_buckets(Graph(graph)).definition
    assert "Bucketize" not in {node.op for node in replaced.node}
    x = (
        NUMBERS.astype(dtype)
        if dtype.startswith("float")
        else np.array([[-2, -1, 0, 3], [2, 4, 10**6, 10**7]], dtype)
    )
    expected = answer(graph, x)
    assert len(np.unique(expected)) == 5
    np.testing.assert_array_equal(answer(replaced, x), expected, strict=True)


def test_buckets_in_onnx() -> None:
    graph = drawn(buckets).as_graph_def()
    finished = convert.lower(graph, Signature({"x": "x:0"}, {"y": "y:0"}), ())
    session = onnxruntime.InferenceSession(finished.whole().SerializeToString())
    x = NUMBERS.astype(np.float32)
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], answer(graph, x))


@pytest.mark.usefixtures("v1_control_flow")
def test_buckets_in_a_loop_stay() -> None:
    """A constant of a loop needs an Enter."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [None, None], "x")
        v1.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, tf.cast(buckets(y), tf.float32)), [0, x])
    given = Graph(graph.as_graph_def())
    assert replace_buckets(given) is given


def both(graph: tf.Graph, replace: Any, feeds: dict[str, Any], outputs: list[str]) -> tuple[Any, Any]:
    """What TensorFlow's own op gives, and what stands in its place."""
    source = Graph(graph.as_graph_def())
    answers = []
    for made in (source, replace(source)):
        with v1.Session(graph=import_graph(made)) as session:
            answers.append(session.run(outputs, feeds))
    return answers[0], answers[1]


def test_a_gru_cell_in_a_loop() -> None:
    """Its four outputs, and five steps of it."""
    rng = np.random.default_rng(3)
    sizes = {"x": (2, 3), "h": (2, 4), "w_ru": (7, 8), "w_c": (7, 4), "b_ru": (8,), "b_c": (4,)}
    values = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    with drawing() as graph:
        x, h, *weights = (placeholder(name, size) for name, size in sizes.items())
        names = ("w_ru", "w_c", "b_ru", "b_c")

        def cell(x: Any, h: Any, name: str) -> Any:
            given = dict(zip(names, weights, strict=True))
            return tf.raw_ops.GRUBlockCell(x=x, h_prev=h, name=name, **given)

        for key, value in cell(x, h, "cell")._asdict().items():
            tf.identity(value, key)
        _, last = v1.while_loop(lambda t, _: t < 5, lambda t, h: (t + 1, cell(x, h, "step").h), [0, h])
        tf.identity(last, "last")
    feeds = {f"{name}:0": value for name, value in values.items()}
    source, replaced = both(
        graph, missing_ops.replace_gru_cells, feeds, ["r:0", "u:0", "c:0", "h_1:0", "last:0"]
    )
    for one, other in zip(source, replaced, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.first("1-1-VALID")
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "multiplier"), [(1, 1), (2, 3)])
def test_a_depthwise_convolution_of_open_channels(padding: str, stride: int, multiplier: int) -> None:
    rng = np.random.default_rng(4)
    with drawing() as graph:
        image = placeholder("image", (None, None, None, None))
        kernel = placeholder("kernel", (2, 3, None, multiplier))
        steps = [1, stride, stride, 1]
        op = tf.raw_ops.DepthwiseConv2dNative(input=image, filter=kernel, strides=steps, padding=padding)
        tf.identity(op, "y")
    feeds = {
        "image:0": rng.normal(size=(2, 6, 7, 5)).astype(np.float32),
        "kernel:0": rng.normal(size=(2, 3, 5, multiplier)).astype(np.float32),
    }
    replaced_graph = missing_ops.replace_open_convolutions(Graph(graph.as_graph_def()))
    assert not any(node.op == "DepthwiseConv2dNative" for node in replaced_graph.node)
    (one,), (other,) = both(graph, missing_ops.replace_open_convolutions, feeds, ["y:0"])
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
