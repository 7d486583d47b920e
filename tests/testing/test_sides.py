"""Every kind of model against the LSTM written by hand; each kind also catches one with two gates swapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import tf_keras
from onnx import TensorProto, helper, numpy_helper
from tensorflow.lite.tools import flatbuffer_utils

from cudnn_convert.errors import ReadError, UsageError
from cudnn_convert.testing import EquivalenceError, assert_equivalent

Open = Callable[[Any, Path], Any]


def by_keras(library: Any, lstm: Any) -> Any:
    x = library.Input((None, 3), name="x")
    layer = library.layers.LSTM(lstm.units, return_sequences=True, return_state=True, name="rnn")
    y, h, c = layer(x)
    model = library.Model(x, {"y": y, "h": h, "c": c})
    layer.set_weights(lstm.weights)
    return model


def with_heads(library: Any, lstm: Any) -> Any:
    """Outputs in a list, each by a layer of its own, which names it."""
    x = library.Input((None, 3), name="x")
    layer = library.layers.LSTM(lstm.units, return_sequences=True, return_state=True, name="rnn")
    outputs = [
        library.layers.Activation("linear", name=name)(value)
        for name, value in zip("yhc", layer(x), strict=True)
    ]
    model = library.Model(x, outputs)
    layer.set_weights(lstm.weights)
    return model


def saved(model: Any, file: Path) -> Path:
    model.save(file)
    return file


def exported(lstm: Any, folder: Path) -> Path:
    by_keras(keras, lstm).export(folder / "saved", verbose=False)
    return folder / "saved"


def onnx_file(lstm: Any, file: Path, *, listed: bool = False) -> Path:
    """The gates in ONNX's order, i, o, f, c, and batch and time exchanged on both sides."""
    order = np.arange(4 * lstm.units).reshape(4, -1)[[0, 3, 1, 2]].ravel()
    weights = {
        "W": lstm.kernel.T[order][None],
        "R": lstm.recurrent_kernel.T[order][None],
        "B": np.concatenate([lstm.bias[order], np.zeros_like(lstm.bias)])[None],
        "first": np.array([0]),
        "second": np.array([1]),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "W", "R", "B"], ["Y", "Y_h", "Y_c"], hidden_size=lstm.units),
        helper.make_node("Squeeze", ["Y", "second"], ["y_steps"]),
        helper.make_node("Transpose", ["y_steps"], ["y"], perm=[1, 0, 2]),
        helper.make_node("Squeeze", ["Y_h", "first"], ["h"]),
        helper.make_node("Squeeze", ["Y_c", "first"], ["c"]),
    ]
    graph = helper.make_graph(
        nodes,
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, 3])]
        # Before version 4 of its own form ONNX wanted the weights among the inputs, and still allows it.
        + [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, weights[name].shape)
            for name in "WRB"
            if listed
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yhc"],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def lite_file(lstm: Any, file: Path, *, signed: bool = True) -> Path:
    """One step, from no state, of the hand-written equations in TensorFlow's ops."""

    @tf.function(input_signature=[tf.TensorSpec((None, 1, 3), tf.float32, name="x")])
    def step(x: Any) -> dict[str, Any]:
        i, _, g, o = tf.split(x[:, 0] @ lstm.kernel + lstm.bias, 4, axis=1)
        c = tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        return {"y": h[:, None], "h": h, "c": c}

    module = tf.Module()
    module.step = step
    tf.saved_model.save(module, str(file.parent / "step"), signatures={"step": step})
    made = tf.lite.TFLiteConverter.from_saved_model(str(file.parent / "step"), signature_keys=["step"])
    file.write_bytes(made.convert())
    if not signed:
        model = flatbuffer_utils.read_model(str(file))
        model.signatureDefs = None
        flatbuffer_utils.write_model(model, str(file))
    return file


def loaded_concrete(lstm: Any, folder: Path) -> Any:
    model = by_keras(keras, lstm)
    function = tf.function(lambda x: model(x, training=False))
    return function.get_concrete_function(tf.TensorSpec((None, None, 3), tf.float32, name="x"))


def subclassed(lstm: Any, folder: Path) -> Any:
    inner = by_keras(keras, lstm)

    class Model(keras.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return inner(x)

    return Model()


def unnamed(lstm: Any) -> Any:
    def function(*given: Any, **feed: Any) -> Any:
        return lstm(*given, **feed)

    return function


KINDS: dict[str, Open] = {
    "a function": lambda lstm, _: lstm.__call__,
    "a function of keywords": lambda lstm, _: lambda **feed: lstm(feed["x"]),
    "a function of anything": lambda lstm, _: unnamed(lstm),
    "a function that names it otherwise": lambda lstm, _: lambda value, /, more=None: lstm(value),
    "a function of more": lambda lstm, _: lambda more=None, x=None: lstm(x),
    "an object": lambda lstm, _: lstm,
    "Keras 3": lambda lstm, _: by_keras(keras, lstm),
    "tf_keras": lambda lstm, _: by_keras(tf_keras, lstm),
    "Keras 3, outputs in a list": lambda lstm, _: with_heads(keras, lstm),
    "tf_keras, outputs in a list": lambda lstm, _: with_heads(tf_keras, lstm),
    "a subclass of Keras 3": subclassed,
    ".keras": lambda lstm, folder: saved(by_keras(keras, lstm), folder / "model.keras"),
    ".keras of tf_keras": lambda lstm, folder: saved(by_keras(tf_keras, lstm), folder / "model.keras"),
    ".h5": lambda lstm, folder: saved(with_heads(keras, lstm), folder / "model.h5"),
    ".h5 of tf_keras": lambda lstm, folder: saved(with_heads(tf_keras, lstm), folder / "model.h5"),
    "a SavedModel": exported,
    "its saved_model.pb": lambda lstm, folder: exported(lstm, folder) / "saved_model.pb",
    "a loaded SavedModel": lambda lstm, folder: tf.saved_model.load(str(exported(lstm, folder))),
    "a concrete function": loaded_concrete,
    "a tf.function": lambda lstm, _: tf.function(by_keras(keras, lstm)),
    "ONNX": lambda lstm, folder: onnx_file(lstm, folder / "model.onnx"),
    "ONNX of another name": lambda lstm, folder: str(onnx_file(lstm, folder / "weights.bin")),
    "ONNX with weights among its inputs": lambda lstm, folder: onnx_file(
        lstm, folder / "o.onnx", listed=True
    ),
    "a session": lambda lstm, folder: onnxruntime.InferenceSession(onnx_file(lstm, folder / "model.onnx")),
}


@pytest.mark.first("a concrete function", ".h5 of tf_keras", "ONNX")
@pytest.mark.parametrize("kind", KINDS)
def test_a_right_model_passes_and_a_wrong_one_fails(
    kind: str, lstm: Any, feeds: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """A model of the other weights is wrong where the first is right."""
    given = KINDS[kind](lstm, tmp_path)
    found = assert_equivalent(given, lstm, feeds)
    assert {one.output: one.compared for one in found.outputs} == {"y": 48 * 4, "h": 7 * 4, "c": 7 * 4}
    assert all(0 <= one.needed <= 1 and one.reason == "float32" for one in found.outputs)
    assert found.feeds == ({"x": (2, 9, 3)}, {"x": (5, 6, 3)})
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(given, lstm.swapped(), feeds)
    assert not any(one.passed for one in caught.value.report.outputs)


@pytest.mark.first(".keras", "ONNX")
@pytest.mark.parametrize("kind", ["ONNX", ".keras", "a SavedModel", "tf_keras"])
def test_every_kind_can_be_what_is_expected(
    kind: str, lstm: Any, feeds: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """What another model at the same path answered is not remembered."""
    assert assert_equivalent(lstm, KINDS[kind](lstm, tmp_path), feeds).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(lstm, KINDS[kind](lstm.swapped(), tmp_path), feeds)


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_a_dict_of_inputs_is_given_in_any_order(library: Any) -> None:
    """Its keys are in another order than the sorted one."""
    b, a = library.Input((3,), name="b"), library.Input((4,), name="a")
    side, end = library.layers.Dense(5), library.layers.Dense(2)
    model = library.Model({"b": b, "a": a}, {"q": side(b), "p": end(a)})
    drawn = np.random.default_rng(4)
    feed = {key: drawn.normal(size=(2, size)).astype(np.float32) for key, size in (("a", 4), ("b", 3))}

    def by_hand(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        return {"p": a @ end.get_weights()[0], "q": b @ side.get_weights()[0]}

    assert assert_equivalent(model, by_hand, feed).passed


@pytest.mark.first("True")
@pytest.mark.parametrize("signed", [True, False])
def test_tensorflow_lite(signed: bool, lstm: Any, tmp_path: Path) -> None:
    feed = {"x": np.random.default_rng(3).normal(size=(4, 1, 3)).astype(np.float32)}
    right = lite_file(lstm, tmp_path / "right", signed=signed)
    wrong = lite_file(lstm.swapped(), tmp_path / "wrong.tflite", signed=signed)
    if signed:
        assert assert_equivalent(right, lstm, feed).passed
        assert assert_equivalent(right, lstm, feed, signature="step").passed
        with pytest.raises(EquivalenceError):
            assert_equivalent(wrong, lstm, feed)
        return
    with pytest.raises(UsageError, match=r"outputs: expected y, h, c, found \S+, \S+, \S+; pair them"):
        assert_equivalent(right, lstm, feed, inputs={interpreted(right)[0][0]: "x"})
    # Without a signature its tensors have names of the converter, and an order of their own.
    names = by_shape(right, lstm, feed)
    taken = {interpreted(right)[0][0]: "x"}
    assert assert_equivalent(right, lstm, feed, inputs=taken, outputs=names).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(wrong, lstm, feed, inputs=taken, outputs=names)


def interpreted(file: Path) -> tuple[list[str], list[str]]:
    interpreter = tf.lite.Interpreter(str(file))
    ends = interpreter.get_input_details(), interpreter.get_output_details()
    return tuple([found["name"] for found in end] for end in ends)  # type: ignore[return-value]


def by_shape(file: Path, lstm: Any, feed: dict[str, np.ndarray]) -> dict[str, str]:
    """Output -> ours: `y` has three axes, and `c` is larger than `h`, its bounded share."""
    interpreter = tf.lite.Interpreter(str(file))
    (given,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(given["index"], feed["x"].shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], feed["x"])
    interpreter.invoke()
    values = {
        told["name"]: interpreter.get_tensor(told["index"]) for told in interpreter.get_output_details()
    }
    flat = sorted((name for name in values if values[name].ndim == 2), key=lambda n: np.abs(values[n]).sum())
    return {next(name for name in values if values[name].ndim == 3): "y", flat[0]: "h", flat[1]: "c"}


def test_answers_and_feeds_that_lie_in_files(
    lstm: Any, feeds: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    fed, told = tmp_path / "feeds.npz", tmp_path / "answers.npz"
    np.savez(fed, **{f"feed{k}/{key}": value for k, feed in enumerate(feeds) for key, value in feed.items()})
    answers = [lstm(feed["x"]) for feed in feeds]
    np.savez(told, **{f"feed{k}/{name}": v for k, one in enumerate(answers) for name, v in one.items()})
    for expected in (told, answers):
        found = assert_equivalent(by_keras(keras, lstm), expected, fed)
        assert [len(one) for one in found.feeds] == [1, 1]
        with pytest.raises(EquivalenceError):
            assert_equivalent(lstm.swapped(), expected, str(fed))
    assert assert_equivalent(answers[0], lstm, feeds[0]).passed
    with pytest.raises(UsageError, match="expected answers to 2 calls, found 1"):
        assert_equivalent(lstm, answers[:1], feeds)


def test_one_array_in_and_one_out_need_no_names(lstm: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(size=(4, 5, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input((None, 3), name="feed"), keras.layers.LSTM(4, name="rnn")])
    model.layers[0].set_weights(lstm.weights)
    for ours in (model, saved(model, tmp_path / "model.keras"), tf.function(model)):
        assert assert_equivalent(ours, lambda x: lstm(x)["h"], x).passed
        assert assert_equivalent(ours, lstm(x)["h"], [x]).passed
        with pytest.raises(EquivalenceError):
            assert_equivalent(ours, lambda x: lstm.swapped()(x)["h"], x)


@pytest.mark.slow("cudnn_convert/testing", "cudnn_convert/verification")
def test_layers_for_training_are_as_in_inference(lstm: Any, feeds: Any, tmp_path: Path) -> None:
    """Dropout is off, and what a model was compiled with is not needed."""
    for library in (keras, tf_keras):
        inner = by_keras(library, lstm)
        x = library.Input((None, 3), name="x")
        y = library.layers.Dropout(0.5, name="y")(inner(x)["y"])
        model = library.Model(x, y)
        model.compile(loss=lambda one, other: one - other)
        for ours in (model, saved(model, tmp_path / f"{library.__name__}.keras")):
            assert assert_equivalent(ours, lambda x: lstm(x)["y"], feeds).passed


def test_outputs_of_one_layer_in_a_list_go_by_their_order(lstm: Any, feeds: Any) -> None:
    """Keras 3 calls all three as the layer; tf_keras tells them apart, as TensorFlow 2's SavedModels do."""
    x = keras.Input((None, 3), name="x")
    layer = keras.layers.LSTM(4, return_sequences=True, return_state=True, name="rnn")
    model = keras.Model(x, [*layer(x)])
    layer.set_weights(lstm.weights)
    assert len(assert_equivalent(model, lambda x: [*lstm(x).values()], feeds).outputs) == 3
    with pytest.raises(EquivalenceError):
        assert_equivalent(model, lambda x: [*lstm(x).values()][::-1], feeds)


def test_two_inputs_need_their_names() -> None:
    drawn = np.random.default_rng(4).normal(size=(2, 5, 3)).astype(np.float32)
    left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
    model = keras.Model([left, right], keras.layers.Subtract()([left, right]))
    feed = {"a": drawn[0], "b": drawn[1]}
    expected = lambda a, b=0: a - b  # noqa: E731
    assert assert_equivalent(model, expected, feed, inputs={"left": "a", "right": "b"}).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(model, expected, feed, inputs={"left": "b", "right": "a"})
    with pytest.raises(UsageError, match="inputs: expected left, right, found a, b; pair them with inputs="):
        assert_equivalent(model, expected, feed)
    with pytest.raises(UsageError, match="inputs: expected left, right, found left"):
        assert_equivalent(model, expected, {"a": drawn[0]}, inputs={"left": "a"})
    with pytest.raises(UsageError, match="inputs: expected left, right, found an array without a name"):
        assert_equivalent(model, expected, drawn[0])


def test_a_signature_is_chosen(lstm: Any, tmp_path: Path) -> None:
    module = tf.Module()
    module.models = [by_keras(keras, one) for one in (lstm, lstm.swapped())]
    spec = tf.TensorSpec((None, None, 3), tf.float32, name="x")
    right, wrong = (tf.function(model, input_signature=[spec]) for model in module.models)
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures={"right": right, "wrong": wrong})
    feed = {"x": np.random.default_rng(3).normal(size=(4, 5, 3)).astype(np.float32)}
    for given in (tmp_path / "saved", tf.saved_model.load(str(tmp_path / "saved"))):
        assert assert_equivalent(given, lstm, feed, signature="right").passed
        with pytest.raises(EquivalenceError):
            assert_equivalent(given, lstm, feed, signature="wrong")
        with pytest.raises(UsageError, match="expected serving_default, found right, wrong; choose with"):
            assert_equivalent(given, lstm, feed)
    with pytest.raises(UsageError, match="expected a model with signatures, found Keras and function"):
        assert_equivalent(by_keras(keras, lstm), lstm, feed, signature="right")


def test_what_is_no_model_is_refused_in_one_line(lstm: Any, tmp_path: Path) -> None:
    feed = {"x": np.ones((1, 2, 3), np.float32)}
    text, weights, graph = tmp_path / "notes.onnx", tmp_path / "weights.h5", tmp_path / "graph.pb"
    text.write_text("not a model")
    with h5py.File(weights, "w") as file:
        file["kernel"] = lstm.kernel
    graph.write_bytes(tf.Graph().as_graph_def().SerializeToString())
    for given, found in (
        (text, f"actual {text}: expected a SavedModel, .* found something else; load it, and give"),
        (tmp_path, f"actual {tmp_path}: .* found something else"),
        (tmp_path / "none", f"actual {tmp_path}/none: .* found nothing"),
        (weights, "found weights alone; load them into it, and give the model"),
        (graph, "found a graph that does not say what its inputs and outputs are"),
        (3, "actual: expected a function, .* found a int"),
    ):
        with pytest.raises(UsageError, match=found) as caught:
            assert_equivalent(given, lstm, feed)
        assert len(str(caught.value).splitlines()) == 1
    broken = onnx_file(lstm, tmp_path / "broken.onnx")
    broken.write_bytes(broken.read_bytes().replace(b"Squeeze", b"Squirze"))
    with pytest.raises(ReadError, match="expected a model that loads as onnx, found"):
        assert_equivalent(broken, lstm, feed)


def test_a_damaged_file_is_refused_in_one_line(lstm: Any, tmp_path: Path) -> None:
    feed = {"x": np.ones((1, 1, 3), np.float32)}
    whole = [
        saved(by_keras(keras, lstm), tmp_path / "model.keras"),
        saved(with_heads(tf_keras, lstm), tmp_path / "model.h5"),
        lite_file(lstm, tmp_path / "model.tflite"),
        exported(lstm, tmp_path) / "saved_model.pb",
    ]
    for file in whole:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        with pytest.raises(ReadError) as caught:
            assert_equivalent(file, lstm, feed)
        assert len(str(caught.value).splitlines()) == 1
        assert str(caught.value).startswith(str(file))


def test_code_in_a_file_of_keras_is_not_run(lstm: Any, tmp_path: Path) -> None:
    for library in (keras, tf_keras):
        model = library.Sequential([library.Input((3,)), library.layers.Lambda(lambda x: x * 2)])
        for name in ("model.h5", "model.keras"):
            file = saved(model, tmp_path / name)
            with pytest.raises((UsageError, ReadError)):
                assert_equivalent(file, lambda x: x * 2, np.ones((1, 3), np.float32))
        assert assert_equivalent(model, lambda x: x * 2, np.ones((1, 3), np.float32)).passed
