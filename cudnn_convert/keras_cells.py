"""Turns recurrent layers of Keras 3 models into `RNN`s of cells, and back.

So a model is decoded or trained step by step.

    model = keras.models.load_model("converted.keras")
    stepwise = keras_cells.with_cells(model)   # LSTM(8) -> RNN(LSTMCell(8))
    model = keras_cells.with_layers(stepwise)  # and back, with what was trained meanwhile

A layer of Keras is an `RNN` of its cell: both have the same weights in the same order. The rest of its config
is split by name: settings of the loop over steps belong to the `RNN`, all others to the cell.
Source: keras v3.15.0 src/layers/rnn/lstm.py, gru.py, simple_rnn.py (`__init__`, `get_config`), rnn.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

__all__ = ["with_cells", "with_layers"]

#: What a layer's config has beside its cell's.
_OF_STEPS: Final = frozenset(
    "name trainable dtype activity_regularizer return_sequences return_state go_backwards stateful unroll "
    "zero_output_for_mask".split()
)
#: What a layer hands on to its cell too.
_OF_BOTH: Final = frozenset({"trainable", "dtype"})

Change = Callable[[Any], Any]


def with_cells(model: Any) -> Any:
    """Copy a model with each LSTM, GRU and SimpleRNN as an `RNN` of a cell.

    The model is functional or Sequential. Weights, names, masks and states of stateful layers are the
    model's; `get_layer(name).cell` is one step. Layers inside models, `Bidirectional` and `TimeDistributed`
    are changed too. The copy is not compiled. Raises ValueError for a model that is a class of its user's,
    which Keras cannot copy.
    """
    return _copy(model, _to_cell)


def with_layers(model: Any) -> Any:
    """Copy a model with each `RNN` of an LSTMCell, GRUCell or SimpleRNNCell as a layer.

    The other way of `with_cells`. An `RNN` of several cells, or of a class of its user's, stays as it is.
    """
    return _copy(model, _to_layer)


def _copy(model: Any, change: Change) -> Any:
    import keras

    rebuild = partial(_rebuild, change=change)
    copy = keras.models.clone_model(model, clone_function=rebuild, recursive=True)
    copy.set_weights(model.get_weights())
    for old, new in zip(_list_states(model), _list_states(copy), strict=True):
        new.assign(old)
    return copy


def _rebuild(layer: Any, change: Change) -> Any:
    """Rebuild a layer of the same config, changed, or with changed layers inside."""
    import keras

    layers = keras.layers
    if isinstance(layer, keras.Model):
        return _copy(layer, change)
    if type(layer) is layers.TimeDistributed:
        return layers.TimeDistributed(_rebuild(layer.layer, change), **_own(layer))
    if type(layer) is layers.Bidirectional:
        forward, backward = _rebuild(layer.forward_layer, change), _rebuild(layer.backward_layer, change)
        return layers.Bidirectional(forward, layer.merge_mode, backward_layer=backward, **_own(layer))
    return change(layer) or type(layer).from_config(layer.get_config())


def _own(wrapper: Any) -> dict[str, Any]:
    return {"name": wrapper.name, "trainable": wrapper.trainable, "dtype": wrapper.dtype_policy}


def _kinds() -> dict[type[Any], type[Any]]:
    """Return the class of a layer's cell by the class of the layer."""
    from keras import layers

    return {layers.LSTM: layers.LSTMCell, layers.GRU: layers.GRUCell, layers.SimpleRNN: layers.SimpleRNNCell}


def _to_cell(layer: Any) -> Any:
    """Return the `RNN` for a recurrent layer.

    None for another layer.
    """
    import keras

    kind = _kinds().get(type(layer))
    if kind is None:
        return None
    config = layer.get_config()
    of_cell = {key: value for key, value in config.items() if key not in _OF_STEPS or key in _OF_BOTH}
    cell = kind.from_config(of_cell)
    return keras.layers.RNN(cell, **{key: value for key, value in config.items() if key in _OF_STEPS})


def _to_layer(layer: Any) -> Any:
    """Return the layer for an `RNN` of a Keras cell.

    None for another layer.
    """
    import keras

    kinds = {cell: kind for kind, cell in _kinds().items()}
    kind = kinds.get(type(layer.cell)) if type(layer) is keras.layers.RNN else None
    if kind is None:
        return None
    of_steps = {key: value for key, value in layer.get_config().items() if key in _OF_STEPS}
    of_cell = {key: value for key, value in layer.cell.get_config().items() if key not in _OF_STEPS}
    return kind.from_config(of_steps | of_cell)


def _list_states(model: Any) -> list[Any]:
    """Return the states of the stateful recurrences of a model, in the order of layers."""
    import keras

    from cudnn_convert.private import keras_private  # which loads TensorFlow

    layers = (layer for layer in keras_private.flatten_layers(model) if getattr(layer, "stateful", False))
    return [state for layer in layers for state in keras.tree.flatten(getattr(layer, "states", None) or [])]
