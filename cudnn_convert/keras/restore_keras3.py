"""Restores a model of Keras 3 from the config and weights of a file.

The config is vetted first, and built in safe mode. HDF5 files leave out the modules of classes, which Keras 3
itself then fails to find for the operations of a functional model, such as the mask of an Embedding.
Source: keras v3.15.0 src/saving/serialization_lib.py, src/legacy/saving/legacy_h5_format.py.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import cut_layers
from cudnn_convert.keras.config import classes, layer_tree, validate, values
from cudnn_convert.model import Architecture
from cudnn_convert.private import keras_private

#: What to do with a model that cannot be built here.
_EXPORT: Final = "export it where it loads, and convert that"
#: Where Keras 3 has the classes of its models.
#: Source: keras v3.15.0 src/saving/serialization_lib.py _retrieve_class_or_fn.
_MODULES: Final = {"Functional": "keras.src.models.functional", "Sequential": "keras"}


def restore_model(path: Path, described: Architecture, vouched: classes.Vouched) -> Any:
    """Build the `keras.Model` of a config of Keras 3, with the weights of the file.

    Raises UnsupportedModelError where it may not or cannot be built, or where weights do not fit.
    """
    built = _build_model(path, described, vouched)
    _assign_weights(path, described, built)
    return built


def _build_model(path: Path, described: Architecture, vouched: classes.Vouched) -> Any:
    import keras

    brought = replace(vouched, tf_keras=vouched.keras)
    refused = validate.refusals(described, brought)
    reasons = [str(replace(refusal, library="Keras 3")) for refusal in refused]
    reasons = cut_layers.offer_cut(described, brought, reasons) if reasons else []
    config = classes.by_name(vouched.keras, described.config)
    if not reasons and (names := validate.modules(config)):
        message = f"config: expected Keras' own classes, found {', '.join(names)} of another module"
        reasons = [f"{message}; bring it with --custom-objects MODULE:{names[0]}"]
    if reasons:
        raise UnsupportedModelError(path, reasons)
    known = layer_tree.map_objects(_with_module(config), _for_installed_keras)
    try:
        built = keras.saving.deserialize_keras_object(
            known, custom_objects=dict(vouched.keras), safe_mode=not vouched.trust
        )
    except Exception as cause:
        reason = f"config: expected a model that Keras {keras.__version__} can build, found one it refuses"
        raise UnsupportedModelError(
            path, [f"{reason}: {keras_private.innermost_line(cause)}; {_EXPORT}"]
        ) from cause
    if not built.built or not built.inputs:
        reason = "config: expected a model whose inputs have shapes, found inputs without"
        raise UnsupportedModelError(path, [f"{reason}; build it, and save it again"])
    return built


def _with_module(config: dict[str, Any]) -> dict[str, Any]:
    """Add the class's module, left out by Keras 3 in HDF5 files, to a config."""
    return {"module": _MODULES.get(config["class_name"]), "registered_name": None, **config}


def _for_installed_keras(value: dict[str, Any]) -> dict[str, Any]:
    """Drop arguments of a later Keras from a layer or initializer: unset, or with a known default.

    What an initializer draws is not kept: the weights of the file are assigned.
    """
    import keras

    rooms = {"keras.initializers": keras.initializers, "keras.layers": keras.layers}
    kind = getattr(rooms.get(str(value.get("module"))), str(value.get("class_name")), None)
    if not isinstance(kind, type) or not isinstance(value.get("config"), Mapping):
        return value
    makers = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    taken = {name for maker in makers for name in inspect.signature(maker).parameters}
    known = values.without_new_arguments(value)
    config = {name: item for name, item in known["config"].items() if item is not None or name in taken}
    return {**known, "config": config}


def _assign_weights(path: Path, described: Architecture, built: Any) -> None:
    """Assign the values of the file to the layers' weights, paired by order."""
    reasons = []
    for layer in built.layers:
        wanted = [*layer.trainable_weights, *layer.non_trainable_weights]
        given = described.weights.get(layer.name, ())
        if [tuple(weight.shape) for weight in wanted] != [value.shape for _, value in given]:
            shapes = [list(value.shape) for _, value in given]
            expected = [list(weight.shape) for weight in wanted]
            actual = f"{shapes}; are config and weights of one model?"
            reasons.append(f"layer {layer.name}: expected weights of shapes {expected}, found {actual}")
            continue
        for weight, (_, value) in zip(wanted, given, strict=True):
            weight.assign(value.read())
    if reasons:
        raise UnsupportedModelError(path, reasons)
    for layer in keras_private.flatten_layers(built):
        if hasattr(layer, "finalize_state"):  # of preprocessing: it computes with a copy of its weights
            layer.finalize_state()
