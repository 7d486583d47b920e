"""Translates the config of a Keras 2 model to Keras 3.

Whatever modules the file names, the result has Keras's own classes, and names for a loader to look up: the
user's classes and functions. What could change numbers and has no counterpart is a reason to refuse; what
only training needs and Keras 3 does not know goes with a note.
Source: keras v3.15 src/saving/serialization_lib.py, src/models/functional.py, sequential.py, src/layers/ (the
constructors); tf_keras v2.21.0 src/layers/, `get_config`.

The calls of a functional model go from Keras 2's `[layer, call, tensor, kwargs]` to Keras 3's arguments.
Keras 2 counts the calls of a model inside a model from 1, for the model's own making is its call 0; Keras 3
counts them from 0 among arguments, and from 1 for a Functional among the outputs.
Source: keras 2.2.4 engine/network.py `get_config` (kept_nodes); tf_keras v2.21.0 src/engine/functional.py;
keras v3.15 src/models/functional.py `deserialize_node`, `functional_from_config` (get_tensor).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras.config import classes, differences, layer_tree, values, versions
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture

#: Keys that Keras 3 does not know, with their neutral values; None: any value.
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
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _NO_GROUPS),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _NO_GROUPS),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _SEPARABLE),
    **dict.fromkeys(("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"), _SPATIAL),
}
#: Layers whose gates Keras 3 computes as Keras 2 did once `layouts.scale_keras` scaled their weights.
SCALABLE: Final = frozenset({"LSTM", "GRU"})


@dataclass
class Log:
    """The log of a translation; `vouched` has the names brought by the user.

    `functions` are other names that stay: functions neither Keras's nor brought. `newer` are the names
    that the writer's Keras had not yet. `fallback` is the format to advise for what Keras 3 lacks.
    """

    vouched: Collection[str] = ()
    newer: Collection[str] = ()
    fallback: str = "h5"
    writer: versions.Writer = versions.UNKNOWN
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)


def translate_config(config: Mapping[str, Any], kind: str, path: str, log: Log) -> dict[str, Any]:
    """Translate a layer's own config to Keras 3; `log` takes reasons and notes."""
    gone = {**_GONE, **_GONE_IN.get(kind, {})}
    for key in (key for key in config if key in gone):
        neutral = gone[key]
        if neutral is not None and config[key] not in neutral:
            actual = f"found {config[key]}; Keras 3 has no such layer, write --format savedmodel"
            log.reasons.append(f"layer {path}: expected {key}={neutral[0]}, {actual}")
    changed = {key: _value(key, value, kind, path, log) for key, value in config.items() if key not in gone}
    if kind == "LeakyReLU" and "alpha" in changed:
        changed["negative_slope"] = changed.pop("alpha")
    shown = differences.of_layer(log.writer, kind, config)
    log.reasons += [difference.refusal(log.writer.version, path) for difference in shown]
    if kind == "BatchNormalization" and isinstance(changed.get("axis"), list) and len(changed["axis"]) == 1:
        (changed["axis"],) = changed["axis"]
    return {key: value for key, value in changed.items() if value is not None or key != "dtype"}


def _value(key: str, value: Any, kind: str, path: str, log: Log) -> Any:
    if layer_tree.is_entry(value) and key in ("layer", "backward_layer", "cell"):
        return translate_entry(value, f"{path}/{layer_tree.layer_name(value)}", log)
    if key == "cells" and isinstance(value, list):
        return [translate_entry(item, f"{path}/{number}", log) for number, item in enumerate(value)]
    if key.endswith(("_initializer", "_regularizer", "_constraint")):
        translated, lost = values.translate_object(key.rpartition("_")[2], value)
        if lost:
            log.notes.append(f"layer {path}: {key} {lost} left out, for training alone needs it")
        return translated
    if key == "dtype":
        return values.dtype(value)
    if key.endswith("activation"):
        return _activation(key, value, kind, path, log)
    return values.plain_value(value)


def _activation(key: str, value: Any, kind: str, path: str, log: Log) -> Any:
    """Return an activation by name.

    hard_sigmoid is refused, another function in Keras 3.
    """
    name = value.get("config", value.get("class_name")) if isinstance(value, Mapping) else value
    if name is None:
        return None
    if not isinstance(name, str):
        other = value.get("class_name") if isinstance(value, Mapping) else value
        actual = f"found {other}; write --format {log.fallback}"
        log.reasons.append(f"layer {path}: expected {key} to be a function, {actual}")
        return None
    if name == "hard_sigmoid" and not (kind in SCALABLE and key == "recurrent_activation"):
        actual = "found hard_sigmoid, clip(x / 5 + 0.5) in Keras 2 and clip(x / 6 + 0.5) in Keras 3"
        log.reasons.append(
            f"layer {path}: expected {key} to be equal in Keras 2 and 3, {actual}; "
            f"write --format {log.fallback}"
        )
    elif name not in classes.ACTIVATIONS or name in log.newer:
        if name not in log.vouched:
            log.functions.append(name)
        return values.function(name)
    return name


#: Layers that take their initial states as further inputs, which Keras 3 takes by name.
_STATEFUL_CALLS: Final = frozenset({"RNN", "SimpleRNN", "LSTM", "GRU", "Bidirectional", "ConvLSTM2D"})


class CallTensors:
    """The tensors of a functional model by layer, call and place."""

    def __init__(self, model: Entry) -> None:
        config, layers = model["config"], layer_tree.layer_entries(model)
        self._entries = {layer_tree.layer_name(layer): layer for layer in layers}
        nodes = [layer.get("inbound_nodes") for layer in layers]
        references = layer_tree.references([config["input_layers"], config["output_layers"], nodes])
        called = {(name, node) for name, node, _ in references}
        # Their calls are counted from 1.
        self._made = {
            name
            for name, layer in self._entries.items()
            if layer_tree.is_model(layer) and (name, 0) not in called
        }

    def node(self, node: Any, layer: Entry) -> dict[str, Any]:
        """Translate a call of a layer to `args` and `kwargs` of Keras 3.

        Raises ValueError where it expects a tensor and finds none.
        """
        if isinstance(node, Mapping):
            if "args" in node:
                return dict(node)
            return {"args": [{key: self._tensor(value) for key, value in node.items()}], "kwargs": {}}
        tensors = [self._tensor(reference) for reference in node]
        entry: Any = next((item[3] for item in node if len(item) > 3 and item[3]), {})
        if not isinstance(entry, Mapping):
            raise ValueError(f"{str(entry)[:60]}")
        kwargs = {key: self._argument(value) for key, value in entry.items() if value is not None}
        if len(tensors) == 1:
            return {"args": tensors, "kwargs": kwargs}
        if layer["class_name"] in _STATEFUL_CALLS:
            return {"args": tensors[:1], "kwargs": {**kwargs, "initial_state": tensors[1:]}}
        return {"args": [tensors], "kwargs": kwargs}

    def ends(self, ends: Any) -> Any:
        """Translate `input_layers` or `output_layers` to the form of Keras 3.

        One tensor is no list: `predict` gives an array.
        """
        if isinstance(ends, Mapping):
            return {key: self.ends(value) for key, value in ends.items()}
        if _is_reference(ends, self._entries):
            name, node, index = ends[:3]
            functional = self._entries[name]["class_name"] in ("Model", "Functional")
            return [name, self._index(name, node) + (1 if functional else 0), index]
        return self.ends(ends[0]) if len(ends) == 1 else [self.ends(end) for end in ends]

    def _index(self, name: str, node: int) -> int:
        return node - (name in self._made)

    def _tensor(self, reference: Any) -> dict[str, Any]:
        if not _is_reference(reference, self._entries):
            raise ValueError(f"{str(reference)[:60]}")
        name, node, index = reference[:3]
        # Keras replaces it by the real tensor of this history, whatever shape and dtype stand here.
        history = [name, self._index(name, node), index]
        config = {"shape": [None], "dtype": "float32", "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}

    def _argument(self, value: Any) -> Any:
        if _is_reference(value, self._entries):
            return self._tensor(value)
        if isinstance(value, list):
            return [self._argument(item) for item in value]
        return value


def _is_reference(value: Any, names: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and value[0] in names
        and isinstance(value[1], int)
        and isinstance(value[2], int)
    )


#: Layers that do to each step what TimeDistributed around them does.
_EACH_STEP: Final = frozenset({"Dense", "Activation", "Dropout"})
_RENAMED: Final = {"BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization"}
#: Layers of Keras 2 that Keras 3 lacks.
_LOST: Final = frozenset(
    "ThresholdedReLU LocallyConnected1D LocallyConnected2D SyncBatchNormalization ConvLSTM2DCell".split()
)

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Modern:
    """A config for Keras 3's `deserialize_keras_object`, and notes on omissions.

    `functions` are the names of activations that neither Keras has nor the user brings.
    """

    config: Mapping[str, Any]
    notes: tuple[str, ...]
    functions: tuple[str, ...]
    #: What it was made of: a rewritten model, and the user's own classes for Keras 3 by name.
    model: Architecture
    vouched: Mapping[str, Any]
    #: The format to advise for what Keras 3 cannot build.
    fallback: str


def modern(
    path: Path, model: Architecture, *, vouched: Mapping[str, Any] = _NONE, fallback: str = "h5"
) -> Modern:
    """Translate the config of a rewritten model to Keras 3.

    One of Keras 3 stays as it is. `vouched` are the classes that the user brings, by name. Their configs, and
    those of unknown classes, change only in an input's shape and the form of a dtype. `fallback` is the
    format to advise for what Keras 3 lacks. Raises UnsupportedModelError with every reason.
    """
    if model.is_keras3:
        return Modern(model.config, (), (), model, vouched, fallback)
    writer = versions.find_writer(model.keras_version, model.config)
    log = Log(vouched, versions.newer_names(model.keras_version), fallback, writer)
    config = translate_entry(model.config, "", log)
    if log.reasons:
        raise UnsupportedModelError(path, log.reasons)
    notes, functions = (tuple(dict.fromkeys(lines)) for lines in (log.notes, log.functions))
    return Modern(config, notes, functions, model, vouched, fallback)


def translate_entry(entry: Entry, path: str, log: Log) -> dict[str, Any]:
    """Translate a layer or model at `path` to Keras 3; `log` takes reasons and notes."""
    kind, config = str(entry["class_name"]), entry["config"]
    where = f"layer {path}" if path else "model"
    instead = f"write --format {log.fallback}"
    if "/" in layer_tree.layer_name(entry):
        log.reasons.append(
            f"layer {path}: expected a name without /, as Keras 3 asks, found one with it; {instead}"
        )
    if classes.class_name(entry) in log.vouched or classes.is_foreign(entry, log.vouched, log.newer):
        try:
            return classes.keep_as_is(entry, log.vouched)
        except ValueError as cause:
            log.reasons.append(f"{where}: {cause}; {instead}")
            return {}
    if kind in classes.CODE or kind in _LOST:
        bring = "" if kind in classes.CODE else f", or bring one: --custom-objects MODULE:{kind}"
        log.reasons.append(f"{where}: expected a layer of Keras 3, found {kind}; {instead}{bring}")
        return {}
    if layer_tree.is_model(entry):
        return (_sequential if kind == "Sequential" else _functional)(entry, path, log)
    bare = each_step(entry)
    if bare is not None:
        log.notes.append(f"{where}: TimeDistributed left away, for {bare['class_name']} does the same alone")
        return translate_entry(bare, path, log)
    kind = _RENAMED.get(kind, kind)
    if kind == "InputLayer":
        shape = values.shape(config.get("batch_input_shape", config.get("batch_shape")))
        changed = {"batch_shape": shape, "name": config.get("name"), "sparse": bool(config.get("sparse"))}
        changed["dtype"] = values.dtype(config.get("dtype")) or "float32"
    else:
        changed = translate_config(config, kind, path, log)
    return values.write_object("keras.layers", kind, changed)


def each_step(entry: Entry) -> Entry | None:
    """Return the inner layer of a needless TimeDistributed, under the wrapper's name.

    Returns None where the TimeDistributed is needed. keras v3.15.1 src/layers/rnn/time_distributed.py takes
    the batch's size for the number of steps where the shape leaves the steps open.
    """
    inner: Any = layer_tree.settings(entry).get("layer")
    if entry["class_name"] != "TimeDistributed" or not layer_tree.is_entry(inner):
        return None
    if inner["class_name"] not in _EACH_STEP or not classes.is_keras_class(inner):
        return None
    trainable = all(layer["config"].get("trainable") is not False for layer in (entry, inner))
    config = {**inner["config"], "name": layer_tree.layer_name(entry), "trainable": trainable}
    return {"class_name": inner["class_name"], "config": config}


def _sequential(entry: Entry, path: str, log: Log) -> dict[str, Any]:
    entries = layer_tree.layer_entries(entry)
    translated = [
        translate_entry(layer, f"{path}/{layer_tree.layer_name(layer)}".strip("/"), log) for layer in entries
    ]
    if entries and entries[0]["class_name"] != "InputLayer":
        shape, dtype = values.input_of(entry)
        if shape is None:
            # A graph needs the shape too.
            other = ", or write --format h5" if log.fallback == "h5" else ""
            cure = f"build the model and save it again{other}"
            where = f"model {path}" if path else "model"
            log.reasons.append(f"{where}: expected an input shape, found none; {cure}")
        name = f"{layer_tree.layer_name(entries[0])}_input"
        first = {"batch_shape": shape, "name": name, "sparse": False, "dtype": dtype}
        translated.insert(0, values.write_object("keras.layers", "InputLayer", first))
    name = layer_tree.layer_name(entry) or "sequential"
    return values.write_object("keras", "Sequential", {"name": name, "trainable": True, "layers": translated})


def _functional(entry: Entry, path: str, log: Log) -> dict[str, Any]:
    config = entry["config"]
    calls = CallTensors(entry)
    entries = []
    for layer in layer_tree.layer_entries(entry):
        name = layer_tree.layer_name(layer)
        here = f"{path}/{name}".strip("/")
        reasons = len(log.reasons)
        translated = translate_entry(layer, here, log)
        if len(log.reasons) > reasons:
            continue
        try:
            inbound = [calls.node(node, layer) for node in layer.get("inbound_nodes", [])]
        except (ValueError, TypeError, KeyError, IndexError) as cause:
            log.reasons.append(f"layer {here}: expected a call with tensors, found {cause}")
            continue
        entries.append({**translated, "name": name, "inbound_nodes": inbound})
    translated = {
        "name": layer_tree.layer_name(entry) or "model",
        "trainable": config.get("trainable", True) is not False,
        "layers": entries,
        "input_layers": calls.ends(config["input_layers"]),
        "output_layers": calls.ends(config["output_layers"]),
    }
    return values.write_object("keras.src.models.functional", "Functional", translated)
