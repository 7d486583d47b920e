"""Keras models as graphs, judged by equations written out here or by what a graph must hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from support import asking_keras
from support.keras_models import answers, model, written_by
from support.recorded import assert_close
from support.samples import ROOT
from support.tiers import tier
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import trace
from cudnn_convert.model import SERVING, Array, InMemory, Model, Part, Signature
from cudnn_convert.read import keras_archive

LAYERS = tf_keras.layers


def ops(found: Model) -> set[str]:
    index = {node.name: node for node in found.graph.node}
    todo, seen = [name.partition(":")[0] for name in found.signatures[SERVING].outputs.values()], set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [source.lstrip("^").partition(":")[0] for source in index[name].input]
    return {index[name].op for name in seen}


def old_gru(x: Array, kernel: Array, recurrent: Array, bias: Array) -> Array:
    """keras 2.2.4 layers/recurrent.py GRUCell: reset before the product, gates by hard_sigmoid."""

    def hard(value: Array) -> Array:
        return np.clip(0.2 * value + 0.5, 0, 1)

    h = np.zeros((len(x), len(recurrent)))
    for step in range(x.shape[1]):
        z, r, n = np.split(x[:, step] @ kernel + bias, 3, axis=1)
        u, v, w = np.split(recurrent, 3, axis=1)
        z, r = hard(z + h @ u), hard(r + h @ v)
        h = z * h + (1 - z) * np.tanh(n + (r * h) @ w)
    return h


def test_what_an_old_config_leaves_out_has_its_old_meaning() -> None:
    def older(config: dict[str, Any]) -> None:
        inner = config["config"]["layers"][1]["config"]
        for key in ("reset_after", "recurrent_activation", "implementation", "time_major"):
            del inner[key]

    source = model(lambda: tf_keras.Sequential([LAYERS.GRU(3, input_shape=(None, 5), name="g")]), older)
    # keras 2.2.4 GRU: one bias
    kernel, recurrent, bias = (value.read() for _, value in source.architecture.weights["g"])
    source.architecture.weights["g"] = (
        *source.architecture.weights["g"][:2],
        ("g/bias:0", InMemory(bias[0])),
    )
    x = np.random.default_rng(1).standard_normal((2, 4, 5)).astype(np.float32)
    (found,) = answers(trace.trace_model(source), g_input=x)
    np.testing.assert_allclose(found, old_gru(x, kernel, recurrent, bias[0]), atol=1e-6)


def simple_rnn(x: Array, kept: Array, h: Array, weights: list[Array], first: Array | None) -> Array:
    """The outputs of a masked SimpleRNN; a masked step repeats what came before, `first` at the beginning.

    Source: keras 2.2.4 backend/tensorflow_backend.py `rnn`, the state (`first` is None); tf_keras 2.21.0
    src/backend.py, the output.
    """
    kernel, recurrent, bias = weights
    steps, before = [], h if first is None else first
    for step in range(x.shape[1]):
        moved = np.tanh(x[:, step] @ kernel + h @ recurrent + bias)
        alive = kept[:, step, None]
        h, before = np.where(alive, moved, h), np.where(alive, moved, before)
        steps.append(before)
    return np.stack(steps, 1)


@pytest.mark.first("2.1.6-True")
@pytest.mark.parametrize(
    ("version", "unroll"),
    [
        *product(["2.1.6", "2.2.4", "2.3.1"], [False, True]),
        ("2.2.4-tf", False),  # unrolled, it takes the zeros of a row that runs backward from the wrong end
        ("2.13.0", False),
    ],
)
def test_masked_steps_are_those_of_the_writers_keras(version: str, unroll: bool) -> None:
    """Alone with an initial state, and in both directions, where TensorFlow's Keras gives zeros."""

    def build() -> Any:
        x, state = tf_keras.Input((5, 3), name="x"), tf_keras.Input((2,), name="s")
        masked = LAYERS.Masking(0.0)(x)
        alone = LAYERS.SimpleRNN(2, return_sequences=True, unroll=unroll, name="alone")
        inner = LAYERS.SimpleRNN(2, return_sequences=True, unroll=unroll)
        both = LAYERS.Bidirectional(inner, name="both")(masked)
        return tf_keras.Model([x, state], [alone(masked, initial_state=state), both])

    source = written_by(version, model(build))
    rng = np.random.default_rng(5)
    x, state = rng.standard_normal((3, 5, 3)), rng.standard_normal((3, 2))
    kept = np.array([[0, 0, 1, 1, 1], [1, 1, 0, 1, 0], [0, 1, 0, 0, 0]], bool)
    x[~kept] = 0
    alone, both = answers(trace.trace_model(source), x=x, s=state)
    assert source.architecture is not None
    weights = {
        key: [value.read() for _, value in listed] for key, listed in source.architecture.weights.items()
    }
    zeros, is_state = np.zeros((3, 2)), version in ("2.1.6", "2.2.4") and not unroll
    expected = simple_rnn(x, kept, state, weights["alone"], None if is_state else zeros)
    np.testing.assert_allclose(alone, expected, atol=1e-6)
    forward = simple_rnn(x, kept, zeros, weights["both"][:3], zeros)
    backward = simple_rnn(x[:, ::-1], kept[:, ::-1], zeros, weights["both"][3:], zeros)[:, ::-1]
    expected = np.concatenate([forward, backward], 2)
    if version in ("2.2.4-tf", "2.13.0"):
        expected = np.where(kept[:, :, None], expected, 0)
    np.testing.assert_allclose(both, expected, atol=1e-6)


@pytest.mark.slow("cudnn_convert/keras/")
def test_what_later_versions_mask_otherwise_is_noted_for_formats_of_layers() -> None:
    def build() -> Any:
        inner = LAYERS.LSTM(2, return_sequences=True)
        return tf_keras.Sequential(
            [
                LAYERS.Masking(0.0, input_shape=(5, 3)),
                LAYERS.Bidirectional(inner, name="both"),
                LAYERS.LSTM(2),
            ]
        )

    (note,) = trace.trace_part(written_by("2.2.4", model(build))).notes
    repeats = "Keras 2.2.4 repeats at masked steps what came before, and later ones give zeros"
    assert note.startswith("both/forward_") and note.endswith(f": {repeats}")
    assert trace.trace_part(written_by("2.2.4-tf", model(build))).notes == ()


@pytest.mark.first("2.2.4-None")
@pytest.mark.parametrize(("version", "mask"), [("2.2.4", 0.0), ("2.3.1", 0.0), ("2.2.4", None)])
def test_a_masked_initial_state_is_refused_for_formats_of_layers(version: str, mask: float | None) -> None:
    def build() -> Any:
        x, state = tf_keras.Input((5, 3), name="x"), tf_keras.Input((2,), name="s")
        inner = x if mask is None else LAYERS.Masking(mask)(x)
        return tf_keras.Model([x, state], LAYERS.GRU(2, name="dec")(inner, initial_state=state))

    source = written_by(version, model(build))
    if (version, mask) == ("2.2.4", 0.0):
        begun = (
            "layer dec: expected a layer .*, found that Keras 2.2.4 gives out the initial state for padding"
        )
        with pytest.raises(UnsupportedModelError, match=begun):
            trace.trace_part(source)
    else:
        assert trace.trace_part(source).notes == ()


def resized(images: Array, factor: int, axis: int, *, from_corners: bool) -> Array:
    """An axis made longer; tensorflow v2.21.0 core/util/image_resizer_state.h, resize_bilinear_op.cc."""
    wanted = np.arange(images.shape[axis] * factor)
    at = wanted / factor if from_corners else np.maximum((wanted + 0.5) / factor - 0.5, 0)
    low = np.floor(at).astype(int)
    share = (at - low).reshape([-1 if k == axis else 1 for k in range(images.ndim)])
    high = np.minimum(low + 1, images.shape[axis] - 1)
    return images.take(low, axis) * (1 - share) + images.take(high, axis) * share


@pytest.mark.parametrize("form", ["channels_last", "channels_first"])
@pytest.mark.parametrize("version", ["2.2.4", "2.3.1", "2.2.4-tf"])
def test_images_are_resized_as_in_the_writers_keras(version: str, form: str) -> None:
    def build() -> Any:
        options = {"data_format": form, "interpolation": "bilinear"}
        return tf_keras.Sequential([LAYERS.UpSampling2D((2, 3), input_shape=(4, 5, 6), **options, name="u")])

    x = np.random.default_rng(6).standard_normal((2, 4, 5, 6)).astype(np.float32)
    (found,) = answers(trace.trace_model(written_by(version, model(build))), u_input=x)
    rows, from_corners = 1 if form == "channels_last" else 2, not version.endswith("-tf")
    expected = resized(x, 2, rows, from_corners=from_corners)
    expected = resized(expected, 3, rows + 1, from_corners=from_corners)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_inference_has_no_dropout_and_the_moving_averages() -> None:
    def build() -> Any:
        row = [LAYERS.Dropout(0.5, input_shape=(None, 5)), LAYERS.BatchNormalization(name="n")]
        return tf_keras.Sequential([*row, LAYERS.GaussianNoise(1.0)])

    source = model(build)
    found = trace.trace_model(source)
    gamma, beta, mean, variance = (value.read() for _, value in source.architecture.weights["n"])
    x = np.random.default_rng(2).standard_normal((2, 4, 5)).astype(np.float32)
    expected = gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta
    np.testing.assert_allclose(answers(found, dropout_input=x)[0], expected, atol=1e-5)
    assert not {op for op in ops(found) if "Random" in op or "Placeholder" in op} - {"Placeholder"}


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("form", ["onnx", pytest.param("savedmodel", marks=tier(first=False))])
def test_a_plain_layer_beside_a_recurrence_carries_its_state(tmp_path: Path, form: str) -> None:
    """Behind a mask, over calls in a row; its own Keras is the judge."""
    ids = tf_keras.Input((6,), name="ids", batch_size=3, dtype="int32")
    masked = LAYERS.Embedding(9, 4, mask_zero=True)(ids)
    steps = LAYERS.LSTM(5, stateful=True, return_sequences=True, name="steps")(masked)
    side = CuDNNLSTM(2, name="side")(LAYERS.Embedding(9, 3)(ids))
    judge = tf_keras.Model(ids, steps)
    tf_keras.Model(ids, [steps, side]).save(tmp_path / "m.h5")
    report = cudnn_convert.convert(tmp_path / "m.h5", tmp_path / "out", format=form)
    states = {key: np.zeros((3, 5), np.float32) for key in report.inputs if key != "ids"}
    assert len(states) == (2 if form == "onnx" else 0)
    rng = np.random.default_rng(19)
    run = runner(report)
    for _ in range(3):
        fed = rng.integers(0, 9, (3, 6)).astype(np.int32) * (np.arange(6) < [[6], [2], [0]])
        found = run({"ids": fed.astype(np.int32), **states})
        states = {key: found[f"{key}_next"] for key in states}
        np.testing.assert_allclose(found["steps"], judge.predict(fed, batch_size=3, verbose=0), atol=1e-5)


def stateful(inside: bool) -> Any:
    given = tf_keras.Input((None, 5), name="x", batch_size=2)
    gru = CuDNNGRU(3, stateful=True, name="g")
    if not inside:
        return tf_keras.Model(given, LAYERS.Dense(2, name="y")(gru(given)))
    shape = tf_keras.Input((None, 5), batch_size=2)
    inner = tf_keras.Model(shape, gru(shape), name="inner")
    return tf_keras.Model(given, LAYERS.Dense(2, name="y")(inner(given)))


@pytest.mark.first("outer")
@pytest.mark.parametrize("inside", [False, True], ids=["outer", "nested"])
def test_an_output_waits_for_the_states(inside: bool) -> None:
    found = trace.trace_model(model(lambda: stateful(inside)))
    assert {"CudnnRNNV3", "AssignVariableOp"} <= ops(found)
    states = [name for name in found.variables if name.endswith("state_h")]
    assert len(states) == 1
    assert not found.variables[states[0]].read().any()
    assert found.variables[states[0]].shape == (2, 3)


def test_two_states_of_a_bidirectional_lstm_have_names() -> None:
    def build() -> Any:
        layer = CuDNNLSTM(3, stateful=True, name="l")
        return tf_keras.Sequential([LAYERS.Bidirectional(layer, batch_input_shape=(2, 4, 5), name="b")])

    found = trace.trace_model(model(build))
    assert sorted(name for name in found.variables if "state" in name) == [
        f"b/{way}_l/state_{kind}" for way in ("backward", "forward") for kind in "ch"
    ]


def test_names_are_those_of_the_layers() -> None:
    def build() -> Any:
        given = tf_keras.Input((None, 5), name="x")
        return tf_keras.Model(given, CuDNNLSTM(3, return_state=True, name="l")(given))

    signature = trace.trace_model(model(build)).signatures[SERVING]
    assert [*signature.inputs] == ["x"]
    assert [*signature.outputs] == ["l", "l_1", "l_2"]


def test_nothing_of_tensorflow_or_keras_stays_changed() -> None:
    from tf_keras.src import backend

    def held() -> tuple[Any, ...]:
        return backend.rnn, tf_keras.backend.floatx(), tf.compat.v1.control_flow_v2_enabled()

    before = held()
    source = model(lambda: tf_keras.Sequential([LAYERS.LSTM(3, input_shape=(None, 5))]))
    trace.trace_model(source)
    source.architecture.config["config"]["layers"][1]["config"]["units"] = "many"
    with pytest.raises(UnsupportedModelError, match="expected a model that tf_keras can build, found"):
        trace.trace_model(source)
    assert held() == before
    assert tf.executing_eagerly()


def test_weights_that_do_not_fit_are_listed() -> None:
    source = model(lambda: tf_keras.Sequential([CuDNNGRU(3, input_shape=(None, 5), name="g")]))
    (name, _), *rest = source.architecture.weights["g"]
    source.architecture.weights["g"] = ((name, InMemory(np.zeros((4, 9), np.float64))), *rest)
    with pytest.raises(UnsupportedModelError) as caught:
        trace.trace_model(source)
    assert str(caught.value).splitlines() == [
        f"m.h5: layer g: weight {name}: expected shape [5, 9], found [4, 9]; does the architecture belong to "
        "these weights?",
        f"m.h5: layer g: weight {name}: expected float32, found float64; does the architecture belong to "
        "these weights?",
    ]


def test_a_call_on_nothing_does_not_hang() -> None:
    def build() -> Any:
        given = tf_keras.Input((None, 5), name="x")
        return tf_keras.Model(given, LAYERS.Dense(2, name="y")(CuDNNGRU(3, name="g")(given)))

    def circular(config: dict[str, Any]) -> None:
        config["config"]["layers"][1]["inbound_nodes"][0][0][0] = "y"

    with pytest.raises(
        UnsupportedModelError, match=r"layer .*g: expected a call with outputs of other layers"
    ):
        trace.trace_model(model(build, circular))


def test_weights_of_a_cudnn_layer_in_a_cpu_layer() -> None:
    """keras 2.2.4 engine/saving.py converts them when it loads; so do we."""
    cudnn = model(lambda: tf_keras.Sequential([CuDNNLSTM(3, input_shape=(None, 5), name="l")]))

    def build() -> Any:
        layer = LAYERS.LSTM(3, input_shape=(None, 5), name="l")
        return tf_keras.Sequential([layer])

    cpu = model(build)
    cpu.architecture.weights["l"] = cudnn.architecture.weights["l"]
    found = {name: value.read() for name, value in trace.trace_model(cpu).variables.items()}
    kernel, recurrent, bias = (value.read() for _, value in cudnn.architecture.weights["l"])
    # tf_keras v2.21.0 src/saving/legacy/hdf5_format.py transform_kernels
    expected = np.hstack([block.T.reshape(block.shape, order="F") for block in np.hsplit(kernel, 4)])
    np.testing.assert_array_equal(found["l/lstm_cell/kernel"], expected)
    np.testing.assert_array_equal(
        found["l/lstm_cell/recurrent_kernel"], np.hstack([block.T for block in np.hsplit(recurrent, 4)])
    )
    np.testing.assert_array_equal(found["l/lstm_cell/bias"], bias[:12] + bias[12:])


# Archives of Keras 3 in formats of graphs, against what Keras itself answers on a CPU.

ARCHIVES = sorted((ROOT / "tests" / "data" / "keras3_exports").glob("keras-*/archive/*.keras"))
FORMATS = ("frozen", "onnx", "tflite")


def is_first(path: Path, form: str) -> bool:
    """Whether the first tier has it: the oldest's and the newest's; those between write the same."""
    return form == "onnx" and path.parts[-3] in ("keras-3.3.3", "keras-3.15.1")


def runner(report: cudnn_convert.Report) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """The artifact opened, to be run with the state that it holds."""
    assert report.out is not None
    out = Path(report.out)
    form, path, recorded = runners.identify(out if out.is_dir() else out.parent)
    assert recorded is not None
    tensors = recorded["tensors"]
    return open_artifact(form, path, [Part(SERVING, Signature(tensors["inputs"], tensors["outputs"]))])


def answered(report: cudnn_convert.Report, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return runner(report)(feeds)


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
@pytest.mark.parametrize(
    ("path", "form"),
    [
        pytest.param(path, form, marks=tier(first=is_first(path, form)))
        for path in ARCHIVES
        for form in FORMATS
    ],
    ids=lambda value: value if isinstance(value, str) else value.parts[-3],
)
def test_of_every_keras_3(tmp_path: Path, path: Path, form: str) -> None:
    report = cudnn_convert.convert(path, tmp_path / "out", format=form)
    assert [found.mode for found in report.recurrences] == ["lstm", "gru"]
    with np.load(path.parent / "golden.npz") as data:
        golden = {
            key.removeprefix("serving_default/feed0/"): data[key] for key in data.files if "feed0" in key
        }
    (key,) = report.inputs
    (value,) = answered(report, {key: golden[key]}).values()
    (expected,) = (found for name, found in golden.items() if name.startswith("out/"))
    assert_close(value, expected)


def saved(folder: Path, *layers: Any, shape: tuple[int | None, ...], **named: Any) -> tuple[Any, Path]:
    keras.utils.set_random_seed(11)
    model = keras.Sequential([keras.Input(shape, name="x", **named), *layers])
    rng = np.random.default_rng(5)
    model.set_weights([rng.normal(0, 0.4, weight.shape) for weight in model.weights])
    path = folder / "model.keras"
    model.save(path)
    return model, path


@pytest.mark.first("value1-False")
@pytest.mark.parametrize(("value", "is_read"), [(None, True), ([0], False)])
def test_an_initializer_of_a_newer_keras(tmp_path: Path, value: Any, is_read: bool) -> None:
    """Such as `input_axes`, which Keras 3.15 writes and Keras 3.12 does not take."""
    model, path = saved(tmp_path, keras.layers.GRU(4, return_sequences=True), shape=(None, 3))

    def change(config: Any) -> None:
        if isinstance(config, dict):
            if config.get("module") == "keras.initializers":
                config["config"]["axes_of_later"] = value
            config = [*config.values()]
        for inner in config if isinstance(config, list) else ():
            change(inner)

    asking_keras.change_archive(path, change)
    if not is_read:
        with pytest.raises(UnsupportedModelError, match=r"that Keras .* can build.*'axes_of_later'"):
            cudnn_convert.convert(path, tmp_path / "out", format="onnx")
        return
    report = cudnn_convert.convert(path, tmp_path / "out", format="onnx")
    x = np.random.default_rng(6).normal(size=(2, 6, 3)).astype(np.float32)
    (answer,) = answered(report, {"x": x}).values()
    np.testing.assert_allclose(answer, model(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
@pytest.mark.parametrize("form", [pytest.param(form, marks=tier(first=form == "onnx")) for form in FORMATS])
def test_masked_steps_are_zero(tmp_path: Path, form: str) -> None:
    layers = keras.layers
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True))
    model, path = saved(
        tmp_path,
        layers.Embedding(9, 3, mask_zero=True),
        both,
        layers.GRU(5, return_sequences=True),
        shape=(None,),
    )
    report = cudnn_convert.convert(path, tmp_path / "out", format=form)
    assert len(report.recurrences) == 3
    ids = np.array([[3, 1, 4, 1], [5, 8, 0, 0]], np.float32)
    (found,) = answered(report, {"x": ids}).values()
    expected = model(ids).numpy()
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1, :2], expected[1, :2], rtol=1e-5, atol=1e-5)
    assert not found[1, 2:].any()


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
def test_operations_between_layers_of_keras_3(tmp_path: Path) -> None:
    """A slice, an ellipsis, an array and a tensor are objects in the config, and no layers."""
    keras.utils.set_random_seed(12)
    rng = np.random.default_rng(13)
    array, constant = rng.normal(size=(2, 5)).astype(np.float32)
    x = keras.Input((None, 4), name="x")
    steps = keras.layers.LSTM(5, return_sequences=True)(x) * array + tf.constant(constant)
    steps = keras.layers.Activation("swish")(steps)  # which Keras 3 writes as silu
    model = keras.Model(x, [steps[:, -1], steps[..., 2:]])
    model.save(tmp_path / "m.keras")
    report = cudnn_convert.convert(tmp_path / "m.keras", tmp_path / "out", format="onnx")
    fed = rng.normal(size=(2, 6, 4)).astype(np.float32)
    for value, expected in zip(answered(report, {"x": fed}).values(), model(fed), strict=True):
        np.testing.assert_allclose(value, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.first("m.keras")
@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_layers_with_several_lists_of_weights(tmp_path: Path, name: str) -> None:
    """Keys have the shapes of queries; in HDF5 files Keras 3 leaves out where a model's class is."""
    layers, rng = keras.layers, np.random.default_rng(15)
    x = keras.Input((6, 4), name="x")
    steps = layers.LSTM(4, return_sequences=True)(x)
    cells = layers.RNN([layers.LSTMCell(3), layers.GRUCell(5)], return_sequences=True)(steps)
    model = keras.Model(x, [layers.MultiHeadAttention(2, 3)(steps, x), cells])
    model.set_weights([rng.normal(0, 0.6, weight.shape) for weight in model.weights])
    model.save(tmp_path / name)
    report = cudnn_convert.convert(tmp_path / name, tmp_path / "out", format="onnx")
    fed = rng.normal(size=(2, 6, 4)).astype(np.float32)
    for value, expected in zip(answered(report, {"x": fed}).values(), model(fed), strict=True):
        np.testing.assert_allclose(value, expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
def test_the_mask_of_an_embedding_in_hdf5_of_keras_3(tmp_path: Path) -> None:
    """It is an op whose module Keras 3 leaves out there, so that Keras 3 itself does not open the file."""
    rng = np.random.default_rng(18)
    ids = keras.Input((5,), name="ids", dtype="int32")
    model = keras.Model(ids, keras.layers.LSTM(3)(keras.layers.Embedding(9, 4, mask_zero=True)(ids)))
    model.set_weights([rng.normal(0, 0.6, weight.shape) for weight in model.weights])
    model.save(tmp_path / "m.h5")
    report = cudnn_convert.convert(tmp_path / "m.h5", tmp_path / "out", format="onnx")
    (note,) = (note for note in report.notes if "padding" in note)
    assert note.endswith(
        "takes rows that are padded behind alone (padding='post'), as on a GPU; others get other "
        "answers than on a CPU"
    )
    fed = np.array([[3, 4, 0, 0, 0], [1, 8, 2, 7, 5], [6, 2, 2, 0, 0]], np.int32)
    (found,) = answered(report, {"ids": fed}).values()
    np.testing.assert_allclose(found, model(fed).numpy(), rtol=1e-5, atol=1e-5)


def test_the_part_before_a_layer_of_code_will_do(tmp_path: Path) -> None:
    def with_code(config: dict[str, Any]) -> None:
        config["config"]["layers"].append({"class_name": "Lambda", "config": {"name": "code"}})

    def build() -> Any:
        return tf_keras.Sequential([CuDNNGRU(3, input_shape=(4, 5), name="gru"), LAYERS.Dense(2, name="y")])

    source = model(build, with_code)
    with pytest.raises(UnsupportedModelError) as refusal:
        trace.trace_model(source)
    (reason,) = refusal.value.reasons
    assert reason.endswith("or convert what comes before it with --outputs y")
    found = trace.trace_model(source, cut=True)
    assert [*found.signatures[SERVING].outputs.values()] == ["y/BiasAdd:0"]
    assert {name.partition("/")[0] for name in found.variables} >= {"gru", "y"}


def test_normalization_computes_with_the_statistics_of_its_file(tmp_path: Path) -> None:
    """Its layer computes with copies, which are made anew where weights are loaded."""
    rng = np.random.default_rng(17)
    data = rng.normal(7, 3, (20, 5, 3)).astype(np.float32)
    norm = keras.layers.Normalization()
    norm.adapt(data)
    x = keras.Input((5, 3), name="x")
    model = keras.Model(x, keras.layers.SimpleRNN(4)(norm(x)))
    model.save(tmp_path / "m.keras")
    traced = trace.trace_model(keras_archive.read(tmp_path / "m.keras"))
    (found,) = answers(traced, x=data[:3])
    np.testing.assert_allclose(found, model(data[:3]).numpy(), rtol=1e-5, atol=1e-5)


def test_state_becomes_an_input(tmp_path: Path) -> None:
    layer = keras.layers.GRU(4, stateful=True, return_sequences=True)
    model, path = saved(tmp_path, layer, shape=(None, 3), batch_size=2)
    report = cudnn_convert.convert(path, tmp_path / "out", format="onnx")
    x = np.random.default_rng(6).normal(size=(2, 6, 3)).astype(np.float32)
    (state,) = (key for key in report.inputs if key != "x")
    held = np.zeros((2, 4), np.float32)
    for part in (x[:, :4], x[:, 4:]):
        found = answered(report, {"x": part, state: held})
        held = found.pop(f"{state}_next")
        (value,) = found.values()
        np.testing.assert_allclose(value, model(part).numpy(), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_nobodys_is_refused(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("own")
    class Twice(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return 2 * x

    _, path = saved(tmp_path, keras.layers.LSTM(4), Twice(name="twice"), shape=(None, 3))
    with pytest.raises(UnsupportedModelError, match="layer twice: expected a layer of Keras itself"):
        cudnn_convert.convert(path, tmp_path / "out", format="onnx")
    assert not (tmp_path / "out").exists()


def test_no_module_that_a_file_names_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought takes the place of a class by its name, whatever module and package the file names."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise SystemExit('imported')")
    Path("brought.py").write_text("import keras\n\n\nclass Start(keras.initializers.Zeros):\n    pass\n")
    named = {"module": "evil", "class_name": "Start", "config": {}, "registered_name": "pack>Start"}
    source = asking_keras.archive(tmp_path, kernel_initializer=named)
    told = "found Start of another module; bring it with --custom-objects MODULE:Start"
    with pytest.raises(UnsupportedModelError, match=told):
        cudnn_convert.convert(source, tmp_path / "refused", format="onnx")
    report = cudnn_convert.convert(source, tmp_path / "out", format="onnx", custom_objects=["brought:Start"])
    assert report.verification is not None
    assert report.verification.passed
    assert "evil" not in sys.modules


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/verification/ops")
def test_a_mask_beside_a_cudnn_layer(tmp_path: Path) -> None:
    """Keras 3 holds the mask of an Embedding as an operation of the model."""
    words, x = tf_keras.Input((None,), name="words"), tf_keras.Input((None, 3), name="x")
    read = LAYERS.LSTM(4, name="plain")(LAYERS.Embedding(9, 3, mask_zero=True)(words))

    def build(layer: Any) -> Any:
        return tf_keras.Model([words, x], LAYERS.Concatenate(name="both")([read, layer(5)(x)]))

    rng, model, twin = np.random.default_rng(8), build(CuDNNLSTM), build(LAYERS.LSTM)
    model.set_weights([rng.normal(size=weight.shape) for weight in model.weights])
    model.save(tmp_path / "source.h5")
    twin.load_weights(tmp_path / "source.h5")
    report = cudnn_convert.convert(tmp_path / "source.h5", tmp_path / "out", format="keras")
    assert report.verification is not None
    assert [output.output for output in report.verification.outputs] == ["both"]
    ids = np.array([[3, 1, 4, 0], [5, 0, 0, 0]], np.float32)
    feeds = [ids, rng.normal(size=(2, 6, 3)).astype(np.float32)]
    answer = keras.models.load_model(tmp_path / "out" / "model.keras")(feeds)
    np.testing.assert_allclose(answer, twin(feeds), rtol=1e-5, atol=1e-5)
