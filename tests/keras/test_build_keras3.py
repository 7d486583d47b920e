"""Models with layers whose code nobody brings, as archives of Keras 3: tf_keras and Keras 3 are the judges.

Each model is built and answered by tf_keras, written without its classes, and opened by Keras 3 with them.
"""

from __future__ import annotations

import json
import marshal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras
from support.keras_files import entry, model, sequential
from support.tiers import tier

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import build_keras3, cpu_layers, translate
from cudnn_convert.model import Architecture
from cudnn_convert.read import keras_archive, keras_hdf5
from cudnn_convert.targets import keras as write_keras

LAYERS = tf_keras.layers
READERS = {"h5": keras_hdf5, "keras": keras_archive}


def classes(library: Any, tanh: Callable[[Any], Any]) -> dict[str, Any]:
    """A user's layer with weights of two kinds, cell and function, for either library."""

    class Scale(library.layers.Layer):
        def __init__(self, factor=1.0, **options):
            super().__init__(**options)
            self.factor = factor

        def build(self, shape):
            self.shift = self.add_weight(shape=(shape[-1],), name="shift", trainable=False)
            self.scale = self.add_weight(shape=(shape[-1],), name="scale")
            super().build(shape)

        def call(self, inputs):
            return inputs * self.scale * self.factor + self.shift

        def compute_output_shape(self, shape):
            return shape

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    class Cell(library.layers.Layer):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = self.state_size = self.output_size = units

        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
            self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")
            super().build(shape)

        def call(self, inputs, states, training=None):
            made = tanh(inputs @ self.kernel + states[0] @ self.recurrent)
            return made, [made]

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    return {"Scale": Scale, "Cell": Cell, "twice": lambda x: x * 2 + 0.1}


OLD = classes(tf_keras, tf_keras.backend.tanh)
NEW = classes(keras, keras.ops.tanh)
Scale, Cell = OLD["Scale"], OLD["Cell"]


def twice(x: Any) -> Any:
    return x * 2 + 0.1


def row(*layers: Any, shape: Any = (6, 5), **options: Any) -> Any:
    return tf_keras.Sequential([LAYERS.Input(shape, **options), *layers])


def nested() -> Any:
    """A model in a model, called twice, with a foreign layer among others, one of them with fixed weights."""
    given = LAYERS.Input((None, 5))
    normal = LAYERS.BatchNormalization(name="normal")(Scale(0.7, name="inner_scale")(given))
    inner = tf_keras.Model(given, LAYERS.LSTM(3, return_sequences=True, name="lstm")(normal), name="inner")
    x = LAYERS.Input((None, 5), name="x")
    one, two = inner(x), inner(LAYERS.Dense(5, name="dense")(x))
    last = LAYERS.GRU(4, name="gru")(Scale(name="scale")(two))
    return tf_keras.Model(x, [one, LAYERS.Add(name="add")([one, two]), last])


def behind() -> Any:
    """A nested model before and behind a foreign layer, with an output of its own."""
    given = LAYERS.Input((None, 5))
    inner = tf_keras.Model(given, LAYERS.LSTM(3, return_sequences=True, name="lstm")(given), name="inner")
    tail = tf_keras.Sequential([LAYERS.Input((None, 3)), LAYERS.GRU(4), Scale(name="end")], name="tail")
    x = LAYERS.Input((None, 5), name="x")
    first = LAYERS.Dense(5, name="behind")(Scale(1.5, name="scale")(x))
    side = LAYERS.Dense(5, activation="relu", name="side")(x)
    one, two = inner(side), inner(first)
    return tf_keras.Model(x, [tail(LAYERS.Add(name="add")([one, two])), one, LAYERS.Dense(2, name="y")(one)])


def attention() -> Any:
    x = LAYERS.Input((6, 5), name="x")
    heads = LAYERS.MultiHeadAttention(2, 3, name="heads")(Scale(name="scale")(x), x)
    return tf_keras.Model(x, LAYERS.AdditiveAttention(name="add")([heads, x]))


def frozen_inside() -> Any:
    """A frozen wrapper in a nested model, before a normalisation that is trained."""
    given = LAYERS.Input((None, 5))
    both = LAYERS.Bidirectional(LAYERS.LSTM(3, return_sequences=True), name="both")(given)
    normal = LAYERS.BatchNormalization(name="normal")(both)
    inner = tf_keras.Model(given, normal, name="inner")
    inner.get_layer("both").trainable = False
    x = LAYERS.Input((None, 5), name="x")
    return tf_keras.Model(x, LAYERS.Dense(2, name="y")(inner(x)))


MODELS: dict[str, Callable[[], Any]] = {
    "behind_each_other": lambda: row(
        Scale(1.5, name="a"), LAYERS.LSTM(4, return_sequences=True), Scale(0.5, name="b"),
        LAYERS.BatchNormalization(), LAYERS.Dense(3), LAYERS.GRU(2, reset_after=True),
    ),
    "nested": nested,
    "behind": behind,
    "attention": attention,
    "frozen_inside": frozen_inside,
    "time_distributed": lambda: row(LAYERS.TimeDistributed(Scale(1.5)), LAYERS.Bidirectional(LAYERS.LSTM(4))),
    "each_step_an_lstm": lambda: row(Scale(), LAYERS.TimeDistributed(LAYERS.LSTM(4)), shape=(6, 4, 5)),
    "cells": lambda: row(
        LAYERS.RNN(Cell(4), return_sequences=True), LAYERS.Bidirectional(LAYERS.RNN(Cell(3))), LAYERS.Dense(2)
    ),
    "stacked_cells": lambda: row(Scale(), LAYERS.RNN([LAYERS.LSTMCell(4), LAYERS.GRUCell(3)])),
    "activation": lambda: row(LAYERS.Dense(4, activation=twice), LAYERS.LSTM(3), LAYERS.Dropout(0.5)),
    "images": lambda: row(
        Scale(), LAYERS.Conv2D(4, 3), LAYERS.BatchNormalization(), LAYERS.DepthwiseConv2D(2),
        LAYERS.Flatten(), LAYERS.Dense(3), shape=(8, 8, 3),
    ),
    "lines": lambda: row(
        Scale(), LAYERS.SeparableConv1D(4, 3), LAYERS.Conv1D(5, 2), LAYERS.PReLU(),
        LAYERS.LayerNormalization(axis=[1, 2]),
    ),
    "frozen": lambda: row(Scale(trainable=False), LAYERS.LSTM(3, trainable=False), LAYERS.Dense(2)),
    "stateful": lambda: row(Scale(), LAYERS.LSTM(3, stateful=True), LAYERS.Dense(2), batch_size=3),
    "double": lambda: row(Scale(dtype="float64"), LAYERS.LSTM(3, dtype="float64"), dtype="float64"),
}  # fmt: skip
#: Weights lie in an archive by the place of each layer: in wrappers, in cells, beside fixed ones.
BY_PLACE = ("time_distributed", "cells", "frozen", "stacked_cells", "attention")
#: What others show too, at less cost: a part of `behind` is compared below.
AS_OTHERS = ("nested", "behind", "each_step_an_lstm")


def is_first(name: str, form: str) -> bool:
    """Whether the first tier has it: each model from one reader."""
    return name not in AS_OTHERS and (form == "keras") == (name in BY_PLACE)


def randomized(build: Callable[[], Any]) -> Any:
    tf_keras.backend.clear_session()
    made, rng = build(), np.random.default_rng(3)
    for weight in made.weights:
        weight.assign(rng.uniform(0.2, 0.9, weight.shape))
    return made


def written(made: Any, folder: Path, form: str = "h5") -> Path:
    """The model as an archive of Keras 3, by way of a file of tf_keras, and nothing brought."""
    source, path = folder / f"source.{form}", folder / "made.keras"
    made.save(source)
    found = READERS[form].read(source).architecture
    assert found is not None
    cpu = cpu_layers.rewritten(source, found).architecture
    write_keras.write(path, source, translate.modern(source, cpu), provenance="{}")
    return path


def compared(made: Any, path: Path, **options: Any) -> None:
    opened = keras.models.load_model(path, custom_objects=NEW, **options)
    shape = [size or 6 for size in made.input_shape[1:]]
    x = np.random.default_rng(4).normal(size=(3, *shape)).astype(made.input.dtype.name)
    expected, found = made(x), opened(x)
    several = isinstance(expected, list)
    for one, other in zip(expected if several else [expected], found if several else [found], strict=True):
        assert np.ptp(one) > 1e-3, "an answer that never changes proves nothing"
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-5, atol=1e-5)


@pytest.mark.first("cells-keras")
@pytest.mark.parametrize(
    ("name", "form"),
    [pytest.param(name, form, marks=tier(first=is_first(name, form))) for name in MODELS for form in READERS],
)
def test_keras_3_answers_as_tf_keras(tmp_path: Path, name: str, form: str) -> None:
    made = randomized(MODELS[name])
    compared(made, written(made, tmp_path, form))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, by=3.0: x * by, id="default"),
        pytest.param(lambda x: x * 2 - 1, id="none", marks=pytest.mark.every),
    ],
)
def test_lambdas_run_in_keras_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    made = randomized(lambda: row(LAYERS.Lambda(function, name="code"), LAYERS.LSTM(3)))
    code, loads = marshal.dumps(function.__code__), marshal.loads

    def watched(found: Any, **options: Any) -> Any:
        assert found != code, "code of the file was made runnable"
        return loads(found, **options)

    with monkeypatch.context() as patched:
        patched.setattr(marshal, "loads", watched)
        path = written(made, tmp_path)
    compared(made, path, safe_mode=False)


def small() -> Any:
    return row(Scale(1.5, name="a"), LAYERS.Dense(3))


def test_weights_in_another_order_are_seen(tmp_path: Path) -> None:
    """The judge judges: with both weights of a foreign layer exchanged, the answers are others."""
    made = randomized(small)
    source = tmp_path / "source.h5"
    made.save(source)
    found = keras_hdf5.read(source).architecture
    assert found is not None
    weights = {**found.weights, "a": tuple(reversed(found.weights["a"]))}
    swapped = Architecture(found.config, weights, found.keras_version, found.backend)
    write_keras.write(tmp_path / "made.keras", source, translate.modern(source, swapped), provenance="{}")
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compared(made, tmp_path / "made.keras")


def test_same_bytes_every_time(tmp_path: Path) -> None:
    made = randomized(MODELS["activation"])
    first = written(made, tmp_path).read_bytes()
    assert written(made, tmp_path).read_bytes() == first


def test_the_loader_is_told_which_class_it_lacks(tmp_path: Path) -> None:
    path = written(randomized(small), tmp_path)
    with pytest.raises(TypeError, match="Could not locate class 'Scale'"):
        keras.models.load_model(path)


def test_the_part_before_is_that_of_the_whole(tmp_path: Path) -> None:
    """Layers before and behind are of one class, so that their weights are numbered anew in the part."""
    made = randomized(MODELS["behind"])
    path = written(made, tmp_path)
    compared(made, path)
    part = build_keras3.load_until(path, ["scale", "tail"], {})
    x = np.random.default_rng(4).normal(size=(3, 6, 5)).astype(np.float32)
    _, inner, dense = made(x)
    found = dict(zip(part.output_names, part([x]), strict=True))
    assert [*found] == ["inner", "y"], "in the order of the whole"
    np.testing.assert_allclose(found["inner"], inner, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["y"], dense, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="nothing stands before"):
        build_keras3.load_until(path, ["scale", "side"], {})


def test_a_registered_class_keeps_its_package(tmp_path: Path) -> None:
    config = sequential(entry("Mine>Scale", "scale", batch_input_shape=[None, 6, 5]))
    weights = [(name, np.arange(5.0, dtype="f") + place) for place, name in enumerate(("scale:0", "shift:0"))]
    path = tmp_path / "made.keras"
    write_keras.write(path, path, translate.modern(path, model(config, {"scale": weights})), provenance="{}")
    with zipfile.ZipFile(path) as archive:
        assert (
            json.loads(archive.read("config.json"))["config"]["layers"][1]["registered_name"] == "Mine>Scale"
        )
    opened = keras.models.load_model(path, custom_objects={"Mine>Scale": NEW["Scale"]})
    np.testing.assert_array_equal(opened.get_layer("scale").scale, weights[0][1])
    np.testing.assert_array_equal(opened.get_layer("scale").shift, weights[1][1])


LSTM = entry("LSTM", "lstm", units=3, activation="tanh", recurrent_activation="sigmoid")
CELLS = entry("StackedRNNCells", "stacked", cells=[entry("Mine", "mine")])
WAYS = entry("Bidirectional", "lstm", layer=entry("Mine", "mine"))
INNER = {"class_name": "Sequential", "config": {"name": "lstm", "layers": [LSTM, entry("Scale", "end")]}}
INNER["config"]["build_input_shape"] = [None, 6, 5]


@pytest.mark.parametrize(
    ("second", "names", "told"),
    [
        (
            LSTM,
            ["a", "b"],
            r"the weights of a LSTM of Keras 3, found \[5, 12\], \[3, 12\]; write --format h5",
        ),
        (LSTM, [], r"the weights of a LSTM of Keras 3, found none; write --format h5"),
        (entry("TimeDistributed", "lstm", layer=LSTM), ["a", "b", "c"], "a fixed number of steps for"),
        (entry("TimeDistributed", "lstm", layer=entry("Mine", "mine")), [], "a fixed number of steps for"),
        (
            entry("RNN", "lstm", cell=CELLS),
            [],
            "only layers of Keras itself in a StackedRNNCells for Keras 3, found",
        ),
        (
            WAYS,
            ["forward_mine/a", "forward_mine/b"],
            "weights with the names of both directions, found one direction alone",
        ),
        (INNER, ["lstm/a", "elsewhere/b"], "weights named after its layers, found elsewhere/b; write --form"),
    ],
    ids=["shapes", "none", "open_steps", "open_steps_of_mine", "cells", "directions", "nested"],
)
def test_what_cannot_be_written(tmp_path: Path, second: Any, names: list[str], told: str) -> None:
    first = entry("Scale", "scale", batch_input_shape=[None, None, 5])
    shapes = ((5, 12), (3, 12), (12,))
    rng = np.random.default_rng(5)
    listed = [(name, rng.normal(size=shape).astype("f")) for name, shape in zip(names, shapes, strict=False)]
    described = model(sequential(first, second), {"lstm": listed})
    with pytest.raises(UnsupportedModelError, match=rf"layer (lstm|stacked): expected {told}"):
        modern = translate.Modern(described.config, (), (), described, {}, "h5")
        build_keras3.build_unconnected(tmp_path / "m.h5", modern, {})
