"""Files of Keras that are not converted without a question, with a recurrence of cuDNN's in most of them."""

from __future__ import annotations

import base64
import json
import marshal
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from support.keras_files import Arrays, cudnn, entry, sequential, whole

STEPS, INPUTS, UNITS = 6, 5, 3
_LAMBDA: Final = {
    "function_type": "lambda",
    "output_shape": None,
    "output_shape_type": "raw",
    "arguments": {},
}
#: A class that Keras 3 lacks, as its user may write it.
THRESHOLDED: Final = """
import keras


class ThresholdedReLU(keras.layers.Layer):
    def __init__(self, theta=1.0, **options):
        super().__init__(**options)
        self.theta = theta

    def call(self, inputs):
        return keras.ops.where(inputs > self.theta, inputs, 0.0)

    def get_config(self):
        return {**super().get_config(), "theta": self.theta}
"""


def values(*shapes: tuple[int, ...], name: str = "w") -> Arrays:
    rng = np.random.default_rng(7)
    return [(f"{name}{k}:0", rng.normal(size=shape).astype("f") / 3) for k, shape in enumerate(shapes)]


def behind(*layers: Mapping[str, Any], **weights: Arrays) -> Callable[[Path], Path]:
    """An HDF5 file of a CuDNNLSTM `rnn` with these layers behind it."""
    rnn = entry(
        "CuDNNLSTM", "rnn", units=UNITS, return_sequences=True, batch_input_shape=[None, STEPS, INPUTS]
    )
    stored = {"rnn": cudnn(np.random.default_rng(8), 4, UNITS, INPUTS), **weights}

    def made(folder: Path) -> Path:
        stored_in_order = {
            name: stored.get(name, ()) for name in ["rnn", *(one["config"]["name"] for one in layers)]
        }
        return whole(folder / "model.h5", sequential(rnn, *layers), stored_in_order)

    return made


def plain(source: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """The same file with an LSTM in the place of each CuDNNLSTM, as Keras 2 opens it on any machine."""

    def made(folder: Path) -> Path:
        path = source(folder)
        with h5py.File(path, "r+") as file:
            file.attrs["model_config"] = file.attrs["model_config"].replace('"CuDNNLSTM"', '"LSTM"')
            for group in file["model_weights"].values():
                if "bias:0" in group and len(group["bias:0"]) == 2 * group["kernel:0"].shape[1]:
                    both = group["bias:0"][:].reshape(2, -1)
                    del group["bias:0"]
                    group["bias:0"] = both.sum(0)
        return path

    return made


def dense(**config: Any) -> Callable[[Path], Path]:
    weights = values((UNITS, 2), (2,))
    return behind(entry("Dense", "dense", units=2, **config), dense=weights)


def apart(second: Mapping[str, Any], *names: str, steps: int | None = STEPS) -> Callable[[Path], Path]:
    """A layer of nobody's, and `second` behind it, which has weights of these names."""
    first = entry("Scale", "scale", batch_input_shape=[None, steps, INPUTS])
    shapes = ((INPUTS, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,))
    arrays = [(name, array) for name, (_, array) in zip(names, values(*shapes), strict=False)]

    def made(folder: Path) -> Path:
        config = sequential(first, second)
        return whole(folder / "model.h5", config, {"scale": (), second["config"]["name"]: arrays})

    return made


def open_steps(folder: Path) -> Path:
    """Windows of a series of any length, a convolution in each, a recurrence over them."""
    shape = [None, None, STEPS, INPUTS]
    inner = entry("Conv1D", "conv", filters=2, kernel_size=[STEPS])
    first = entry("TimeDistributed", "each", layer=inner, batch_input_shape=shape)
    flat = entry("TimeDistributed", "flat", layer=entry("Flatten", "flatten"))
    rnn = entry("CuDNNLSTM", "rnn", units=UNITS)
    weights = cudnn(np.random.default_rng(8), 4, UNITS, 2)
    stored = {"each": values((STEPS, INPUTS, 2), (2,)), "flat": (), "rnn": weights}
    return whole(folder / "model.h5", sequential(first, flat, rnn), stored)


def with_code(folder: Path) -> Path:
    """A Lambda of this Python's code."""
    code = base64.b64encode(marshal.dumps((lambda x: x * 2).__code__)).decode()
    return behind(entry("Lambda", "code", function=[code, None, None], **_LAMBDA))(folder)


def called(layer: dict[str, Any], *tensors: list[Any]) -> dict[str, Any]:
    """A layer of a functional model, and the tensors that it is called with."""
    name = layer["config"]["name"]
    return {
        **layer,
        "name": name,
        "inbound_nodes": [[[*tensor, {}] for tensor in tensors]] if tensors else [],
    }


def merged_mask(folder: Path) -> Path:
    """What a CuDNNLSTM gives, and masked steps beside it, of which the smaller values go on."""
    shape = [None, STEPS, INPUTS]
    layers = [
        called(entry("InputLayer", "x", batch_input_shape=shape, dtype="float32")),
        called(entry("CuDNNLSTM", "rnn", units=INPUTS, return_sequences=True), ["x", 0, 0]),
        called(entry("Masking", "mask", mask_value=0.0), ["x", 0, 0]),
        called(entry("Minimum", "least"), ["rnn", 0, 0], ["mask", 0, 0]),
    ]
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [["least", 0, 0]]}
    config = {"class_name": "Model", "config": {"name": "model", "layers": layers, **ends}}
    weights = {"rnn": cudnn(np.random.default_rng(8), 4, INPUTS, INPUTS)}
    return whole(folder / "model.h5", config, weights)


def given_images(folder: Path) -> Path:
    """A CuDNNLSTM, and beside it a convolution whose images are an output, channels first."""
    conv = entry("Conv2D", "conv", filters=3, kernel_size=[2, 3], data_format="channels_first")
    layers = [
        called(entry("InputLayer", "x", batch_input_shape=[None, STEPS, INPUTS], dtype="float32")),
        called(entry("CuDNNLSTM", "rnn", units=UNITS), ["x", 0, 0]),
        called(entry("InputLayer", "image", batch_input_shape=[None, 2, 4, 5], dtype="float32")),
        called(conv, ["image", 0, 0]),
    ]
    ends = {"input_layers": [["x", 0, 0], ["image", 0, 0]], "output_layers": [["rnn", 0, 0], ["conv", 0, 0]]}
    config = {"class_name": "Model", "config": {"name": "model", "layers": layers, **ends}}
    weights = {"rnn": cudnn(np.random.default_rng(8), 4, UNITS, INPUTS), "conv": values((2, 3, 2, 3), (3,))}
    return whole(folder / "model.h5", config, weights)


def dilated(folder: Path) -> Path:
    """A transposed convolution with dilations before a CuDNNLSTM."""
    options = {"kernel_size": [2, 2], "dilation_rate": [2, 2], "padding": "valid"}
    layers = [
        called(entry("InputLayer", "x", batch_input_shape=[None, 5, 4, 3], dtype="float32")),
        called(entry("Conv2DTranspose", "conv", filters=2, **options), ["x", 0, 0]),
        called(entry("Reshape", "rows", target_shape=[7, 12]), ["conv", 0, 0]),
        called(entry("CuDNNLSTM", "rnn", units=UNITS), ["rows", 0, 0]),
    ]
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [["rnn", 0, 0]]}
    config = {"class_name": "Model", "config": {"name": "model", "layers": layers, **ends}}
    weights = {"conv": values((2, 2, 2, 3), (2,)), "rnn": cudnn(np.random.default_rng(8), 4, UNITS, 12)}
    return whole(folder / "model.h5", config, weights)


def masked_decoder(folder: Path) -> Path:
    """A masked LSTM that begins with the states of a CuDNNLSTM, by Keras 2.2.4."""
    shape, units = [None, STEPS, INPUTS], {"units": UNITS, "return_sequences": True}
    layers = [
        called(entry("InputLayer", "source", batch_input_shape=shape, dtype="float32")),
        called(entry("InputLayer", "target", batch_input_shape=shape, dtype="float32")),
        called(entry("CuDNNLSTM", "rnn", return_state=True, **units), ["source", 0, 0]),
        called(entry("Masking", "mask", mask_value=0.0), ["target", 0, 0]),
        called(entry("LSTM", "dec", **units), ["mask", 0, 0], ["rnn", 0, 1], ["rnn", 0, 2]),
    ]
    ends = {"input_layers": [["source", 0, 0], ["target", 0, 0]], "output_layers": [["dec", 0, 0]]}
    config = {"class_name": "Model", "config": {"name": "model", "layers": layers, **ends}}
    decoder = values((INPUTS, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,))
    weights = {"rnn": cudnn(np.random.default_rng(8), 4, UNITS, INPUTS), "dec": decoder}
    return whole(folder / "model.h5", config, weights)


def keras_3(folder: Path) -> Path:
    """An HDF5 file of Keras 3, with the operation that makes a mask."""
    import keras

    words = keras.Input((STEPS,), name="words")
    layers = (keras.layers.Embedding(9, INPUTS, mask_zero=True), keras.layers.LSTM(UNITS))
    path = folder / "model.h5"
    keras.Model(words, layers[1](layers[0](words))).save(path)
    return path


def without_shape(folder: Path) -> Path:
    """A layer of a class of its user's, with no shape, and a CuDNNLSTM behind it."""
    config = sequential(entry("Scale", "scale"), entry("CuDNNLSTM", "rnn", units=UNITS))
    stored = {"scale": (), "rnn": cudnn(np.random.default_rng(8), 4, UNITS, INPUTS)}
    return whole(folder / "model.h5", config, stored)


def archive(folder: Path, **config: Any) -> Path:
    """A model of Keras 3, a Dense of it with another config."""
    import keras

    layers = [
        keras.Input((STEPS, INPUTS), name="x"),
        keras.layers.LSTM(UNITS),
        keras.layers.Dense(2, name="dense"),
    ]
    made, path = keras.Sequential(layers), folder / "model.keras"
    made.save(path)
    change_archive(path, lambda stored: stored["config"]["layers"][-1]["config"].update(config))
    return path


def change_archive(path: Path, change: Callable[[Any], None]) -> None:
    """Change the config of a model in an archive of Keras 3."""
    with zipfile.ZipFile(path) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    config = json.loads(members["config.json"])
    change(config)
    members["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as stored:
        for name, content in members.items():
            stored.writestr(name, content)


def archive_with_code(folder: Path) -> Path:
    """A Lambda in a model of Keras 3."""
    import keras

    rows = [
        keras.Input((STEPS, INPUTS), name="x"),
        keras.layers.LSTM(UNITS),
        keras.layers.Lambda(lambda x: x * 2),
    ]
    keras.Sequential(rows).save(folder / "model.keras")
    return folder / "model.keras"


def archive_of_a_class(folder: Path) -> Path:
    """A layer of its user's in a model of Keras 3."""
    import keras
    import scale_for_keras

    rows = [keras.Input((STEPS, INPUTS), name="x"), keras.layers.LSTM(UNITS), scale_for_keras.Scale(2.0)]
    keras.Sequential(rows).save(folder / "model.keras")
    return folder / "model.keras"


def of_another_module(folder: Path) -> Path:
    """A class that a config names by its module."""
    named = {"module": "starting", "class_name": "Start", "config": {}, "registered_name": "Start"}
    return archive(folder, kernel_initializer=named)
