"""A model of Keras 3 from a translated config, with the weights of a Keras 2 model in it.

Keras builds the layers, for its file holds what only built layers have, such as seeds and shapes.
Nothing but Keras's own classes and those that the user brings is built.
Source: keras v3.15 src/saving/serialization_lib.py, src/legacy/saving/legacy_h5_format.py `_legacy_weights`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cudnn_convert import layouts
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import architecture, custom, keys, layers, modern
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.model import Architecture, Array, Mode, Tensor

#: Keras 2's hard_sigmoid is clip(x / 5 + 0.5), Keras 3's clip(x / 6 + 0.5): the same of 6/5 of x.
_SHARPER: Final = 1.2

Pairs = list[tuple[Any, Mode | None]]


def built(source: Path, model: Architecture, *, custom_objects: Mapping[str, Any]) -> Any:
    """The `keras.Model` of a rewritten model. Raises UnsupportedModelError for what Keras 3 cannot build."""
    config = modern.modern(source, model, vouched=custom_objects).config
    made = deserialized(source, config, custom.by_all_names(custom_objects, model.config))
    _assign(source, made, model)
    refuse_open_steps(source, made)
    settle_seeds(made)
    return made


def scaled(model: Architecture) -> tuple[str, ...]:
    """The paths of the layers whose gates get other weights than the source's, for the same numbers."""
    return tuple(dict.fromkeys(path for path, entry in architecture.below(model.config) if _scale(entry)))


def deserialized(source: Path, config: Mapping[str, Any], custom_objects: Mapping[str, Any]) -> Any:
    """What Keras 3 makes of a config in its safe mode. Raises UnsupportedModelError."""
    import keras

    try:
        return keras.saving.deserialize_keras_object(
            copy.deepcopy(config), custom_objects=dict(custom_objects), safe_mode=True
        )
    except Exception as cause:
        # Layers raise what they like, and Keras wraps it into the config of every model around.
        innermost = str(cause).rpartition("Exception encountered: ")[2].strip()
        first = (innermost.splitlines() or [""])[0] or type(cause).__name__
        told = f"model: expected one that Keras 3 builds, found {first}; write --format h5"
        raise UnsupportedModelError(source, [told]) from cause


def refuse_open_steps(source: Path, built: Any) -> None:
    """What `modern.each_step` tells of, around a layer that cannot stand alone: UnsupportedModelError."""
    import keras

    found = [layer for layer in built._flatten_layers() if isinstance(layer, keras.layers.TimeDistributed)]
    reasons = [
        f"layer {layer.name}: expected a fixed number of steps for the TimeDistributed of Keras "
        f"{keras.__version__}, which takes the batch's size for an open one; write --format h5"
        for layer in found
        if layer.input.shape[1] is None
    ]
    if reasons:
        raise UnsupportedModelError(source, reasons)


def _assign(source: Path, built: Any, model: Architecture) -> None:
    for entry in architecture.layers(model.config):
        name = architecture.name(entry)
        if entry["class_name"] == "InputLayer":
            continue
        layer, listed = built.get_layer(name), model.weights.get(name, ())
        if not filled(layer, entry, listed):
            shapes = [tuple(variable.shape) for variable, _ in _pairs(layer, entry)]
            found = ", ".join(str(tensor.shape) for _, tensor in listed)
            told = f"layer {name}: expected weights of shapes {shapes} for Keras 3, found {found or 'none'}"
            raise UnsupportedModelError(source, [f"{told}; write --format h5"])


def filled(layer: Any, entry: Entry, listed: Sequence[tuple[str, Tensor]]) -> bool:
    """Whether a built layer's variables have the shapes of what is listed for it, which they then hold."""
    pairs = _pairs(layer, entry)
    if [tuple(variable.shape) for variable, _ in pairs] != [tensor.shape for _, tensor in listed]:
        return False
    for (variable, mode), (_, tensor) in zip(pairs, listed, strict=True):
        variable.assign(_scaled(mode, tensor))
    return True


def _pairs(layer: Any, entry: Entry) -> Pairs:
    trained, rest = _ordered(layer, entry)
    return [*trained, *rest]


def _scaled(mode: Mode | None, tensor: Tensor) -> Array:
    return tensor.read() if mode is None else layouts.scaled_keras(mode, tensor.read(), _SHARPER)


def _scale(entry: Entry) -> Mode | None:
    """The mode of a CPU layer whose gates' activation is flatter in Keras 3."""
    kind, config = str(entry["class_name"]), entry["config"]
    hard = isinstance(config, Mapping) and config.get("recurrent_activation") == "hard_sigmoid"
    return layers.MODES[kind] if hard and kind in keys.SCALABLE and layers.is_own(entry) else None


def _ordered(layer: Any, entry: Entry) -> tuple[Pairs, Pairs]:
    """The trained and the other variables of a built layer, in the order in which Keras 2 saved them.

    Inside a model that is the order of the config, which Keras 3 may have changed.
    """
    trained: Pairs = []
    rest: Pairs = []
    parts = list(_parts(layer, entry))
    if not parts:
        mode = _scale(entry)
        return [(one, mode) for one in layer.trainable_weights], [
            (one, mode) for one in layer.non_trainable_weights
        ]
    for part, below in parts:
        more, fixed = _ordered(part, below)
        trained += more
        rest += fixed
    return trained, rest


def _parts(layer: Any, entry: Entry) -> Iterator[tuple[Any, Entry]]:
    config = entry["config"]
    if architecture.is_model(entry):
        for below in architecture.layers(entry):
            if below["class_name"] != "InputLayer":
                yield layer.get_layer(architecture.name(below)), below
    elif entry["class_name"] == "Bidirectional":
        yield layer.forward_layer, config["layer"]
        yield layer.backward_layer, config.get("backward_layer") or config["layer"]
    elif entry["class_name"] == "TimeDistributed" and modern.each_step(entry) is None:
        yield layer.layer, config["layer"]


def settle_seeds(built: Any) -> None:
    """The seeds that Keras drew by chance for layers whose config has none: the same every time."""
    from keras.random import SeedGenerator

    count = 0
    for layer in built._flatten_layers():
        for value in vars(layer).values():
            if isinstance(value, SeedGenerator) and getattr(layer, "seed", None) is None:
                value.state.assign([count, 0])
                count += 1
