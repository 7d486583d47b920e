"""Layers of Keras as cells and back: Keras' own layers are the judge, by `predict` on the same values."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from support.samples import ROOT

import cudnn_convert
from cudnn_convert import keras_cells

KINDS = (layers.LSTM, layers.GRU, layers.SimpleRNN)
#: Padding behind, before and instead of steps, which Masking finds.
X = np.random.default_rng(3).normal(size=(4, 6, 5)).astype(np.float32)
X[1, 3:] = X[2, :2] = X[3] = 0


def filled(model: Any) -> Any:
    """The model with random weights, biases among them, none of which repeats."""
    rng = np.random.default_rng(4)
    model.set_weights([rng.normal(size=value.shape) / 3 for value in model.get_weights()])
    return model


def one_way(kind: Any) -> Any:
    """A masked layer in reverse, both ways, and one that gives its last step."""
    masked = [keras.Input([None, 5]), layers.Masking(), kind(3, return_sequences=True, go_backwards=True)]
    both = layers.Bidirectional(kind(4, return_sequences=True, recurrent_dropout=0.3), merge_mode="mul")
    return keras.Sequential([*masked, both, kind(2, zero_output_for_mask=True)], name=kind.__name__)


def other_gates() -> Any:
    """The GRU of Keras 1, without the second bias, and one without any."""
    old = layers.GRU(3, reset_after=False, recurrent_activation="hard_sigmoid", return_sequences=True)
    return keras.Sequential([keras.Input([None, 5]), old, layers.GRU(3, use_bias=False)])


def decoder() -> Any:
    """An encoder whose masked last states a second recurrence begins with, and one of both ways after it."""
    source, target = keras.Input([None, 5]), keras.Input([None, 5])
    _, *states = layers.LSTM(3, return_state=True)(layers.Masking()(source))
    steps = layers.LSTM(3, return_sequences=True)(target, initial_state=states)
    ends = layers.Bidirectional(layers.GRU(2, return_state=True), name="both")(steps)
    return keras.Model([source, target], [*ends, *states])


def nested() -> Any:
    """A model at each of several pieces, a layer at each, and a model with a recurrence called twice."""
    inner = keras.Sequential([keras.Input([None, 5]), layers.LSTM(3, return_sequences=True)])
    pieces, shared = keras.Input([2, 6, 5]), keras.Sequential([keras.Input([None, 3]), layers.GRU(3)])
    steps = layers.TimeDistributed(inner)(pieces)
    each = layers.TimeDistributed(layers.GRU(3), name="each")(steps)
    return keras.Model(pieces, layers.add([shared(each), shared(each[:, ::-1])]))


@pytest.mark.first("nested")
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        *((lambda kind=kind: one_way(kind), [X]) for kind in KINDS),
        (other_gates, [X]),
        (decoder, [X, X[::-1]]),
        (nested, [np.stack([X, X[:, ::-1]], 1)]),
    ],
    ids=["lstm", "gru", "rnn", "other_gates", "decoder", "nested"],
)
def test_cells_answer_as_layers_and_so_do_their_layers(model: Any, inputs: Any) -> None:
    made, inputs = filled(model()), inputs if len(inputs) > 1 else inputs[0]
    expected = keras.tree.flatten(made.predict_on_batch(inputs))
    cells = keras_cells.with_cells(made)
    back = keras_cells.with_layers(cells)
    assert len(kinds := {type(layer) for layer in flat(made)} & {*KINDS}) >= 1
    assert not {type(layer) for layer in flat(cells)} & {*KINDS}
    assert {type(layer) for layer in flat(back)} & {*KINDS, layers.RNN} == kinds
    for copy in (cells, back):
        for have, want in zip(keras.tree.flatten(copy.predict_on_batch(inputs)), expected, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-6)
    assert [drops(layer) for layer in flat(back)] == [drops(layer) for layer in flat(made)]


def flat(model: Any) -> list[Any]:
    return [*model._flatten_layers()]


def drops(layer: Any) -> float:
    return getattr(layer, "recurrent_dropout", 0.0)


@pytest.mark.slow("cudnn_convert/keras_cells.py", "cudnn_convert/private")
def test_what_cells_learned_is_the_layers(tmp_path: Any) -> None:
    """By what moves the weights that are trained, through a file; frozen layers stay frozen."""
    made = filled(one_way(layers.LSTM))
    made.layers[1].trainable = False
    cells = keras_cells.with_cells(made)
    for variable in cells.trainable_variables:
        variable.assign(variable.value * 1.5)
    cells.save(tmp_path / "cells.keras")
    opened = keras.models.load_model(tmp_path / "cells.keras")
    back = keras_cells.with_layers(opened)
    moved = [
        not np.array_equal(old, new) for old, new in zip(made.get_weights(), back.get_weights(), strict=True)
    ]
    assert moved == [False] * 3 + [True] * 9
    assert [layer.trainable for layer in back.layers] == [layer.trainable for layer in made.layers]
    np.testing.assert_allclose(back.predict_on_batch(X), cells.predict_on_batch(X), atol=1e-6)


def test_stateful_layers_go_on() -> None:
    """From where the model stands: a copy that began anew would differ."""
    stateful = {"stateful": True, "return_sequences": True}
    both = layers.Bidirectional(layers.GRU(2, **stateful))
    made = filled(keras.Sequential([keras.Input([6, 5], batch_size=4), layers.LSTM(3, **stateful), both]))
    first = made.predict_on_batch(X)
    cells = keras_cells.with_cells(made)
    back = keras_cells.with_layers(cells)
    second = made.predict_on_batch(X)
    assert np.abs(second - first).max() > 1e-3
    for copy in (cells, back):
        np.testing.assert_allclose(copy.predict_on_batch(X), second, atol=1e-6)


def test_other_cells_stay() -> None:
    cells = layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
    made = filled(keras.Sequential([keras.Input([None, 5]), layers.RNN(cells)]))
    back = keras_cells.with_layers(made)
    assert type(back.layers[0].cell) is layers.StackedRNNCells
    np.testing.assert_array_equal(back.predict_on_batch(X), made.predict_on_batch(X))


def test_a_class_of_the_users_is_refused() -> None:
    class Mine(keras.Model):
        pass

    with pytest.raises(ValueError, match="only supported for Sequential models or Functional models"):
        keras_cells.with_cells(Mine())


@pytest.mark.first("False")
@pytest.mark.parametrize("states", [False, True])
def test_loaded_weights_become_cells(states: bool) -> None:
    """Doubles, so that a cell of another type is seen; the proof compares with the float64 reference."""
    loaded = cudnn_convert.load(ROOT / "tests/data/tf1/1.15.5/gru_bi_2l_float64/model.ckpt")
    model = loaded.to_keras(states=states, cells=True)
    ways = [model.get_layer(f"layer_{k}") for k in range(2)]
    assert [type(way.backward_layer.cell) for way in ways] == [layers.GRUCell] * 2
    x = np.random.default_rng(5).normal(size=(2, 3, 4))
    begun = [np.zeros([2, 4, loaded.recurrences[0].units]), np.ones([2, 3], bool)] if states else []
    y, h = model.predict_on_batch([x, *begun] if states else x)
    forward = ways[0].forward_layer.cell
    step, _ = forward(x[:, 0], forward.get_initial_state(2))
    assert h.shape[1] == 4 and y.dtype == np.float64
    layer = loaded.to_keras(verify=False).get_layer("layer_0")
    np.testing.assert_allclose(np.asarray(step), layer(x[:, :1])[0][:, 0, : step.shape[1]], atol=1e-12)
