"""The keys of a Keras 2 layer's config, one by one, in the words of Keras 3.

Source: keras v3.15 src/layers/, the constructors; tf_keras v2.21.0 src/layers/, `get_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cudnn_convert.keras import architecture, layers, objects
from cudnn_convert.keras.architecture import Entry

#: Keys that Keras 3 does not know, with the values that say nothing; None: any value.
_GONE: Final[Mapping[str, tuple[Any, ...] | None]] = {
    "batch_input_shape": None,
    "batch_shape": None,
    "input_length": None,
    "implementation": None,
    "fused": None,
    "renorm_clipping": None,
    "renorm_momentum": None,
    "renorm": (False,),
    "virtual_batch_size": (None,),
    "adjustment": (None,),
    "time_major": (False,),
    "causal": (False,),
    "dynamic": (False,),
    "num_constants": (None, 0),
    "ragged": (False,),
    "zero_output_for_mask": (False,),
    "input_spec": None,
    "query_shape": None,
    "key_shape": None,
    "value_shape": None,
    "softmax_robust_masking": (False,),
}
_NO_GROUPS: Final[Mapping[str, tuple[Any, ...] | None]] = {"groups": (1,)}
_SEPARABLE: Final = {
    **_NO_GROUPS,
    **dict.fromkeys(("kernel_initializer", "kernel_regularizer", "kernel_constraint")),
}
_SPATIAL: Final[Mapping[str, tuple[Any, ...] | None]] = {"trainable": None, "noise_shape": (None,)}
#: The same for some layers alone.
_GONE_IN: Final = {
    "Conv1DTranspose": _NO_GROUPS,
    "Conv2DTranspose": _NO_GROUPS,
    "Conv3DTranspose": _NO_GROUPS,
    "DepthwiseConv1D": _NO_GROUPS,
    "DepthwiseConv2D": _NO_GROUPS,
    "SeparableConv1D": _SEPARABLE,
    "SeparableConv2D": _SEPARABLE,
    "SpatialDropout1D": _SPATIAL,
    "SpatialDropout2D": _SPATIAL,
    "SpatialDropout3D": _SPATIAL,
}
#: Layers whose gates Keras 3 computes as Keras 2 did once `layouts.scaled_keras` scaled their weights.
SCALABLE: Final = frozenset({"LSTM", "GRU"})


@dataclass
class Told:
    """What a translation finds on its way; `vouched` are the names of what the user brings.

    `functions` are the names of the others that stay: functions neither Keras's nor brought.
    """

    vouched: Collection[str] = ()
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """A layer of class `kind` at `path`; `entry` translates the layers in it."""

    kind: str
    path: str
    told: Told
    entry: Callable[[Entry, str, Told], dict[str, Any]]


def translated(config: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """A layer's own config for Keras 3; what it cannot say goes into `place.told`."""
    kind, told, path = place.kind, place.told, place.path
    gone = {**_GONE, **_GONE_IN.get(kind, {})}
    for key in (key for key in config if key in gone):
        neutral = gone[key]
        if neutral is not None and config[key] not in neutral:
            found = f"found {config[key]}; Keras 3 has no such layer, write --format h5"
            told.reasons.append(f"layer {path}: expected {key}={neutral[0]}, {found}")
    made = {key: _value(key, value, place) for key, value in config.items() if key not in gone}
    if kind == "LeakyReLU" and "alpha" in made:
        made["negative_slope"] = made.pop("alpha")
    if kind == "BatchNormalization" and isinstance(made.get("axis"), list) and len(made["axis"]) == 1:
        (made["axis"],) = made["axis"]
    return {key: value for key, value in made.items() if value is not None or key != "dtype"}


def _value(key: str, value: Any, place: Place) -> Any:
    path, told = place.path, place.told
    if architecture.is_entry(value) and key in ("layer", "backward_layer", "cell"):
        return place.entry(value, f"{path}/{architecture.name(value)}", told)
    if key == "cells" and isinstance(value, list):
        return [place.entry(one, f"{path}/{number}", told) for number, one in enumerate(value)]
    if key.endswith(("_initializer", "_regularizer", "_constraint")):
        made, lost = objects.translated(key.rpartition("_")[2], value)
        if lost:
            told.notes.append(f"layer {path}: {key} {lost} left out, for training alone needs it")
        return made
    if key == "dtype":
        return objects.dtype(value)
    return _activation(key, value, place) if key.endswith("activation") else objects.value(value)


def _activation(key: str, value: Any, place: Place) -> Any:
    """An activation by its name. Keras 3's hard_sigmoid is another function than Keras 2's of that name."""
    name = value.get("config", value.get("class_name")) if isinstance(value, Mapping) else value
    if name is None:
        return None
    if not isinstance(name, str):
        other = value.get("class_name") if isinstance(value, Mapping) else value
        found = f"found {other}; write --format h5"
        place.told.reasons.append(f"layer {place.path}: expected {key} to be a function, {found}")
        return None
    if name == "hard_sigmoid" and not (place.kind in SCALABLE and key == "recurrent_activation"):
        found = "found hard_sigmoid, clip(x / 5 + 0.5) in Keras 2 and clip(x / 6 + 0.5) in Keras 3"
        place.told.reasons.append(
            f"layer {place.path}: expected {key} to be a function of both, {found}; write --format h5"
        )
    elif name not in layers.ACTIVATIONS:
        if name not in place.told.vouched:
            place.told.functions.append(name)
        return objects.function(name)
    return name
