"""A Keras config in the one form that can be built: layers by class name, numbers and strings.

Both writings of tf_keras 2.21 are read, the older (src/saving/legacy/serialization.py) and the newer
(src/saving/serialization_lib.py). The newer names a module for every object, which its loader imports. That
goes, with all that inference does not need: initializers, regularizers, constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from cudnn_convert.keras import calls, objects
from cudnn_convert.keras.architecture import Entry, is_entry

#: tf_keras src/mixed_precision/policy.py; Policy is also what Keras 3 calls DTypePolicy.
_POLICIES: Final = frozenset({"Policy", "PolicyV1", "DTypePolicy"})
_INITIALIZER: Final = "_initializer"
_NEEDLESS: Final = ("_regularizer", "_constraint", "build_config", "compile_config", "shared_object_id")


def inner(layer: Entry) -> Iterator[Entry]:
    """The objects that a layer is to be built with: the layers of a model, of a wrapper, activations."""
    yield from _objects(layer["config"])
    yield from _objects(layer.get("inbound_nodes"))


def _objects(value: Any) -> Iterator[Entry]:
    if is_entry(value):
        if value["class_name"] != calls.TENSOR and not isinstance(known(value), str):
            yield value
    elif isinstance(value, Mapping):
        for key, found in value.items():
            if not str(key).endswith((*_NEEDLESS, _INITIALIZER)):
                yield from _objects(found)
    elif isinstance(value, list | tuple):
        for found in value:
            yield from _objects(found)


def known(value: Any) -> Any:
    """A function or a dtype policy is known by its name alone; anything else is as it is."""
    config = value["config"] if is_entry(value) else None
    if config is not None and value["class_name"] == "function" and isinstance(config, str):
        return config
    if isinstance(config, Mapping) and value["class_name"] in _POLICIES:
        return str(config.get("name"))
    return value


def plain(layer: Entry, *, kept: Collection[str] = ()) -> dict[str, Any]:
    """A layer or model in the older writing; one whose class is among `kept` has its config as it is."""
    class_name = layer["class_name"].rpartition(">")[2]  # a registered class has its package in front
    made = {key: layer[key] for key in ("config", "name") if key in layer} | {"class_name": class_name}
    if "inbound_nodes" in layer:
        made["inbound_nodes"] = _value(layer["inbound_nodes"], kept)
    if class_name not in kept:
        made["config"] = _value(layer["config"], kept)
    return made


def _value(value: Any, kept: Collection[str]) -> Any:
    value = known(value)
    if is_entry(value):
        return plain(value, kept=kept)
    if isinstance(value, list | tuple):
        return [_value(found, kept) for found in value]
    if not isinstance(value, Mapping):
        return value
    simple = objects.value(value)
    if not isinstance(simple, Mapping):
        return simple
    return {
        key: "zeros" if key.endswith(_INITIALIZER) and found is not None else _value(found, kept)
        for key, found in value.items()
        if not key.endswith(_NEEDLESS)
    }


def with_input_shape(model: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The ways to build a Sequential that has the shape of its first call alone: any number of steps, else
    as many as that call had. Any other model is built as it is.
    """
    config = model["config"]
    deferred = model["class_name"] == "Sequential" and isinstance(config, dict)
    shape: list[Any] = (config.get("build_input_shape") if deferred else None) or []
    first, *rest = config["layers"] if shape else [None]
    if first is None or first["class_name"] == "InputLayer" or "batch_input_shape" in first["config"]:
        yield model
        return
    for found in ([shape[0], *([None] * (len(shape) - 2)), *shape[1:][-1:]], shape):
        made = {**first, "config": {**first["config"], "batch_input_shape": list(found)}}
        left = {key: value for key, value in config.items() if key != "build_input_shape"}
        yield {**model, "config": {**left, "layers": [made, *rest]}}
