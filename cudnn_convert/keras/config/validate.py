"""Validates a config: the claims, and the layers allowed to be built.

A config is JSON that anybody may have written. It is checked once where it is read, and later code relies on
it: models hold layers, layers have names, calls refer to existing layers, sizes are numbers. What only a
layer's own class understands is left to that class.

Layers of tf_keras itself may be built, none that brings code along: tf_keras (2.21, src/saving) runs what a
config says while it builds from it, be it the byte code of a Lambda (layers/core/lambda_layer.py), any
function of TensorFlow by its name (layers/core/tf_op_layer.py), any op (engine/base_layer.py), or any module
(saving/serialization_lib.py). Functions and ops that only compute may be called.
Source: keras 2.2.4 engine/network.py, engine/sequential.py; tf_keras v2.21.0 src/engine/functional.py; keras
v3.15 src/models/functional.py, src/saving/serialization_lib.py.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import ReadError
from cudnn_convert.graph import ops
from cudnn_convert.keras.config import classes, layer_tree, public_layers, values, versions
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture

#: Levels of lists and objects in each other: a model in a model takes four, and each a few of Python's own.
_DEEPEST: Final = 100
_LARGEST: Final = 1 << 63
_WRAPPERS: Final = frozenset({"Bidirectional", "TimeDistributed"})
_ENDS: Final = ("input_layers", "output_layers")
#: What a recurrence's outputs depend on beside its weights.
_FLAGS: Final = ("go_backwards", "return_sequences", "return_state", "stateful", "time_major")
#: Objects that have a config of their own where they have any.
_HELD: Final = ("_initializer", "_regularizer", "_constraint", "dtype")

#: Where it is, what was expected, what was found.
Fault = tuple[str, str, str]


def require(path: Path, where: str, config: Mapping[str, Any]) -> None:
    """Raise ReadError for an invalid model config, from `where` in the file at `path`."""
    faults = chain(_values(config), _model(config, "model"))
    if fault := next(faults, None):
        layer_path, expected, actual = fault
        raise ReadError(path, f"{where}: {layer_path}", expected=expected, found=actual)


def _show(value: object) -> str:
    return "none" if value is None else repr(value)


def _values(config: Any) -> Iterator[Fault]:
    """Yield faults of values anywhere in a config, before any recursive function runs."""
    todo = [(config, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > _DEEPEST:
            yield "JSON", f"at most {_DEEPEST} nested levels", "more"
            return
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            yield "JSON", "whole numbers from -2^63 to 2^63 - 1", f"one of {value.bit_length()} bits"
        if isinstance(value, Mapping):
            todo += [(key, depth) for key in value]
            yield from _object(value)
        todo += [(item, depth + 1) for item in layer_tree.children(value)]


def _object(value: Mapping[str, Any]) -> Iterator[Fault]:
    config = value.get("config")
    if value.get("class_name") == layer_tree.TENSOR and not _is_reference(_of(config, "keras_history")):
        yield layer_tree.TENSOR, "a keras_history of a layer's name and two numbers", _show(config)
    for key, item in value.items():
        is_odd = isinstance(item, Mapping) and not isinstance(item.get("config", {}), Mapping)
        if is_odd and key.endswith(_HELD):
            yield key, "an object with a config", _show(item)


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _model(entry: Any, where: str) -> Iterator[Fault]:
    """Yield faults of a layer or model, and of everything inside."""
    if not layer_tree.is_entry(entry) or not isinstance(entry["config"], Mapping | list):
        yield where, "class_name and config", _show(entry)
        return
    name, config = _of(entry["config"], "name") or entry.get("name"), entry["config"]
    if not isinstance(name, str | None) or entry.get("name") not in (None, layer_tree.layer_name(entry)):
        yield where, "one name", _show(entry.get("name", name))
        return
    where = f"{where} {name}" if name else where
    if layer_tree.is_model(entry):
        yield from _layers(entry, where)
    elif not isinstance(config, Mapping):
        yield where, "a config with names", _show(config)
    else:
        yield from _layer(entry["class_name"], config, where)


def _layers(entry: Mapping[str, Any], where: str) -> Iterator[Fault]:
    config = entry["config"]
    listed = config if isinstance(config, list) else config.get("layers")
    if not isinstance(listed, list):
        yield where, "a list of layers", _show(listed)
        return
    for layer in listed:
        yield from (faults := list(_model(layer, "layer")))
        if faults:
            return
    built = entry.get("build_config")
    if not isinstance(built, Mapping | None):
        yield where, "a build_config with names", _show(built)
    if entry["class_name"] == "Sequential":
        return
    if not isinstance(config, Mapping):
        yield where, "a config with names", _show(config)
        return
    names = {layer_tree.layer_name(layer) for layer in listed}
    for key in _ENDS:
        if not _are_ends(config.get(key), names):
            yield f"{where}: {key}", "references to its layers", _show(config.get(key))
    for layer in listed:
        nodes = layer.get("inbound_nodes", [])
        if not isinstance(nodes, list):
            yield f"layer {layer_tree.layer_name(layer)}", "a list of inbound_nodes", _show(nodes)


def _are_ends(value: Any, names: set[str]) -> bool:
    """Return True if a value is references to layers, nested in lists or dicts."""
    if _is_reference(value):
        return value[0] in names
    below = [*value.values()] if isinstance(value, Mapping) else value
    return isinstance(below, list) and bool(below) and all(_are_ends(item, names) for item in below)


def _is_reference(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    return isinstance(value[0], str) and all(type(number) is int and number >= 0 for number in value[1:3])


def _layer(kind: str, config: Mapping[str, Any], where: str) -> Iterator[Fault]:
    if kind in _WRAPPERS and config.get("layer") is None:
        yield f"{where}: layer", "the layer that it wraps", _show(None)
    for key in ("layer", "backward_layer"):
        if kind in _WRAPPERS and config.get(key) is not None:
            yield from _model(config[key], "layer")
    cells = config.get("cells") if kind in classes.BUILT_IN else None
    if kind in classes.BUILT_IN and layer_tree.is_entry(config.get("cell")):
        yield from _model(config["cell"], "layer")
    for cell in cells if isinstance(cells, list) else ():
        yield from _model(cell, "layer")
    units = config.get("units", config.get("output_dim"))  # the name of Keras 1
    if kind in classes.MODES and not _is_size(units):
        yield f"{where}: units", "a number of at least 1", _show(units)
    for key in _FLAGS if kind in classes.MODES else ():
        if config.get(key) not in (None, False, True):
            yield f"{where}: {key}", "true or false", _show(config[key])
    if not isinstance(config.get("merge_mode"), str | None):
        yield f"{where}: merge_mode", "the name of a mode", _show(config["merge_mode"])
    for key in ("batch_input_shape", "batch_shape"):
        shape = values.shape(config.get(key)) if kind in classes.BUILT_IN else None
        if shape is not None and not all(size is None or _is_size(size) for size in shape):
            yield f"{where}: {key}", "sizes", _show(config[key])


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


_OPS: Final = frozenset({"TFOpLambda", "SlicingOpLambda"})
#: Functions of TensorFlow that only compute.
_ARITHMETIC: Final = re.compile(
    r"(compat\.v1\.)?((math|nn|linalg|signal|__operators__)\.\w+|argsort|boolean_mask|broadcast_to|cast|"
    r"clip_by_norm|clip_by_value|concat|cumsum|expand_dims|eye|fill|gather|gather_nd|identity|meshgrid|"
    r"norm|one_hot|ones|ones_like|pad|range|rank|repeat|reshape|reverse|reverse_sequence|roll|"
    r"sequence_mask|shape|size|slice|sort|split|squeeze|stack|stop_gradient|strided_slice|tensordot|tile|"
    r"transpose|unstack|where|zeros|zeros_like)"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A layer refused for building.

    `runs`: in `library` it would run the file's code.
    """

    layer: str
    class_name: str
    runs: bool
    library: str = "tf_keras"

    def __str__(self) -> str:
        start = f"layer {self.layer}: expected a layer of Keras itself, found {self.class_name}"
        if self.runs:
            return f"{start}, which runs code that the file names; vouch for the file with --trust"
        own = self.class_name.rpartition(">")[2]
        advice = public_layers.describe(own, self.library)
        return f"{start}{advice}; bring it for {self.library} with --custom-objects MODULE:{own}"


def refusals(model: Architecture, vouched: Vouched = NOTHING) -> list[Refused]:
    """List a model's layers refused for tf_keras, including the model itself.

    No code that the config names is imported or run.
    """
    return [*layers_not_allowed(model.config, vouched, model.keras_version)]


def layers_not_allowed(
    layer: Entry, vouched: Vouched = NOTHING, keras_version: str = ""
) -> Iterator[Refused]:
    """Yield the layers of `refusals`, for a file of a version of Keras."""
    if layer["class_name"].rpartition(">")[2] in vouched.tf_keras:
        return
    if vouched.trust and layer["class_name"] in classes.CODE:
        return  # the object that holds its function is not a layer
    refusal = _refuse(layer, vouched, keras_version)
    if refusal is not None:
        yield refusal
        return
    for entry in values.inner(layer):
        yield from layers_not_allowed(entry, vouched, keras_version)


def _refuse(layer: Entry, vouched: Vouched, keras_version: str) -> Refused | None:
    newer = versions.newer_names(keras_version)
    class_name, label = str(layer["class_name"]), layer_tree.layer_name(layer) or str(layer["class_name"])
    config = layer_tree.settings(layer)
    if class_name in classes.CODE:
        if vouched.trust or _only_computes(class_name, config):
            return None
        node = config.get("node_def")
        called = config.get("function") if class_name in _OPS else _of(node, "op")
        return Refused(label, class_name if called is None else f"{class_name} of {called}", runs=True)
    if not classes.is_keras_class(layer, newer):
        return Refused(label, classes.registration_name(layer), runs=False)
    known = versions.activations(keras_version)
    for key, value in config.items():
        name = values.name_of(value) if str(key).endswith("activation") else None
        if not isinstance(name, str) or name in vouched.tf_keras:
            continue
        if name not in known or classes.is_registered(value):
            return Refused(label, name, runs=False)
    return None


def _only_computes(class_name: str, config: Mapping[str, Any]) -> bool:
    """Return True if a layer calls a TensorFlow function or op free of effects."""
    if class_name in _OPS:
        return _ARITHMETIC.fullmatch(str(config.get("function"))) is not None
    node, constants = config.get("node_def"), layer_tree.children(config.get("constants"))
    is_pure = class_name == layer_tree.OP_LAYER and str(_of(node, "op")) in ops.PURE - ops.STATEFUL
    # An op may call functions, and tf_keras builds an object of a constant that is one.
    return is_pure and not _has_key(node, "func") and not any(isinstance(c, Mapping) for c in constants)


def _has_key(value: Any, key: str) -> bool:
    below = any(_has_key(item, key) for item in layer_tree.children(value))
    return below or (isinstance(value, Mapping) and key in value)


def describe_unknown_model(model: Entry, brought: Collection[str] = ()) -> str | None:
    """Return a reason to refuse a model with layers in the class's code alone.

    None where its layers are listed, or where its class is among those that are `brought`.
    """
    class_name = classes.registration_name(model)
    if layer_tree.is_model(model) or class_name.rpartition(">")[2] in brought:
        return None
    actual = f"found {class_name}, whose layers its code alone knows"
    cure = "save it as a SavedModel where it loads, and convert that"
    return f"model: expected a Sequential or functional model, {actual}; {cure}"


def foreign(model: Entry, vouched: Vouched, keras_version: str) -> list[str]:
    """List a model's top-level layers refused for tf_keras."""
    entries = layer_tree.layer_entries(model) if layer_tree.is_model(model) else []
    others = [entry for entry in entries if [*layers_not_allowed(entry, vouched, keras_version)]]
    return [layer_tree.layer_name(entry) for entry in others]


def own_part(model: Architecture, vouched: Vouched = NOTHING) -> Architecture | None:
    """Return a model up to the first foreign layer.

    Returns None where only inputs come before it, or where there is no such layer.
    """
    others = foreign(model.config, vouched, model.keras_version)
    config = layer_tree.model_until(model.config, others) if others else None
    if config is None:
        return None
    kept = layer_tree.names(config)
    weights = {name: listed for name, listed in model.weights.items() if name in kept}
    return replace(model, config=config, weights=weights)


def notes(model: Architecture, vouched: Vouched = NOTHING) -> Iterator[str]:
    """Yield notes on the needs of loading foreign layers, and the reach of verification."""
    others, left = refusals(model), refusals(model, vouched)
    custom = dict.fromkeys(layer.class_name for layer in others if not layer.runs)
    if others:
        listed = ", ".join(f"{layer.layer} ({layer.class_name})" for layer in others)
        yield f"layers that Keras does not bring stay as they are: {listed}"
    if custom:
        yield f"loading needs custom_objects with {', '.join(custom)}"
    if left:
        first = ", ".join(layer.layer for layer in left)
        yield f"only what stands before the first of these is verified: {first}"


def is_plain(value: Any) -> bool:
    """Return True if a config names modules of Keras alone.

    tf_keras imports named modules.
    """
    return not modules(value)


def modules(value: Any) -> list[str]:
    """List the classes and functions in a config from modules outside Keras."""
    inner = [name for item in layer_tree.children(value) for name in modules(item)]
    if not isinstance(value, Mapping):
        return inner
    module = str(value.get("module") or "keras").partition(".")[0]
    own = "class_name" not in value or module in ("keras", "tf_keras", "builtins")
    named = value.get("config") if value.get("class_name") == "function" else value.get("class_name")
    return [*dict.fromkeys([*([] if own else [str(named).rpartition(">")[2]]), *inner])]
