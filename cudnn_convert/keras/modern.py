"""A Keras 2 model's config in the words of Keras 3: a pure translation.

Whatever modules the file names, out come Keras's own classes, and names for a loader to look up: the user's
classes and functions. What could change numbers and has no counterpart is a reason to refuse; what only
training needs and Keras 3 does not know goes with a note.
Source: keras v3.15 src/saving/serialization_lib.py, src/models/functional.py, sequential.py, src/layers/.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import architecture, foreign, keys, layers, nodes, objects
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.keras.keys import Place, Told
from cudnn_convert.model import Architecture

#: Layers that do to each step what TimeDistributed around them does.
_EACH_STEP: Final = frozenset({"Dense", "Activation", "Dropout"})
_RENAMED: Final = {"BatchNormalizationV1": "BatchNormalization", "BatchNormalizationV2": "BatchNormalization"}
#: Keras 2's own that Keras 3 has no more.
_LOST: Final = frozenset(
    "ThresholdedReLU LocallyConnected1D LocallyConnected2D SyncBatchNormalization ConvLSTM2DCell".split()
)


@dataclass(frozen=True, slots=True)
class Modern:
    """A config that `keras.saving.deserialize_keras_object` of Keras 3 takes, and what was left out of it.

    `functions` are the names of activations that neither Keras has nor the user brings.
    """

    config: Mapping[str, Any]
    notes: tuple[str, ...]
    functions: tuple[str, ...]


def modern(path: Path, model: Architecture, *, vouched: Collection[str] = ()) -> Modern:
    """The config of a rewritten model for Keras 3. Raises UnsupportedModelError with every reason.

    `vouched` are the names of the classes that the user brings. Their configs, and those of classes that
    nobody brings, stay as they are but for an input's shape and the writing of a dtype.
    """
    if model.keras_version.partition(".")[0] == "3":
        reason = f"model: expected one of Keras 2, found Keras {model.keras_version}; it loads as it is"
        raise UnsupportedModelError(path, [reason])
    told = Told(vouched)
    config = translated(model.config, "", told)
    if told.reasons:
        raise UnsupportedModelError(path, told.reasons)
    return Modern(config, *(tuple(dict.fromkeys(found)) for found in (told.notes, told.functions)))


def translated(entry: Entry, path: str, told: Told) -> dict[str, Any]:
    """A layer or model at `path` for Keras 3; what it cannot say goes into `told`."""
    kind, config = str(entry["class_name"]), entry["config"]
    where = f"layer {path}" if path else "model"
    if "/" in architecture.name(entry):
        told.reasons.append(f"layer {path}: expected a name without /, as Keras 3 asks; write --format h5")
    if layers.bare(entry) in told.vouched or foreign.is_foreign(entry, told.vouched):
        try:
            return foreign.untouched(entry, told.vouched)
        except ValueError as cause:
            told.reasons.append(f"{where}: {cause}; write --format h5")
            return {}
    if kind in layers.CODE or kind in _LOST:
        bring = "" if kind in layers.CODE else f", or bring one: --custom-objects MODULE:{kind}"
        told.reasons.append(f"{where}: expected a layer of Keras 3, found {kind}; write --format h5{bring}")
        return {}
    if architecture.is_model(entry):
        return (_sequential if kind == "Sequential" else _functional)(entry, path, told)
    bare = each_step(entry)
    if bare is not None:
        told.notes.append(f"{where}: TimeDistributed left away, for {bare['class_name']} does the same alone")
        return translated(bare, path, told)
    kind = _RENAMED.get(kind, kind)
    if kind == "InputLayer":
        shape = objects.shape(config.get("batch_input_shape", config.get("batch_shape")))
        made = {"batch_shape": shape, "name": config.get("name"), "sparse": bool(config.get("sparse"))}
        made["dtype"] = objects.dtype(config.get("dtype")) or "float32"
    else:
        made = keys.translated(config, Place(kind, path, told, translated))
    return objects.written("keras.layers", kind, made)


def each_step(entry: Entry) -> Entry | None:
    """The layer that a TimeDistributed can be left away around, with the wrapper's name.

    keras v3.15.1 src/layers/rnn/time_distributed.py takes the batch's size for the number of steps where the
    shape leaves the steps open.
    """
    held: Any = entry["config"].get("layer") if isinstance(entry["config"], Mapping) else None
    if entry["class_name"] != "TimeDistributed" or not architecture.is_entry(held):
        return None
    if held["class_name"] not in _EACH_STEP or not layers.is_own(held):
        return None
    trainable = all(one["config"].get("trainable") is not False for one in (entry, held))
    config = {**held["config"], "name": architecture.name(entry), "trainable": trainable}
    return {"class_name": held["class_name"], "config": config}


def _sequential(entry: Entry, path: str, told: Told) -> dict[str, Any]:
    held = architecture.layers(entry)
    made = [translated(layer, f"{path}/{architecture.name(layer)}".strip("/"), told) for layer in held]
    if held and held[0]["class_name"] != "InputLayer":
        shape, dtype = objects.input_of(entry)
        if shape is None:
            cure = "build the model, save it again, or write --format h5"
            told.reasons.append(
                f"{f'model {path}' if path else 'model'}: expected an input shape, found none; {cure}"
            )
        name = f"{architecture.name(held[0])}_input"
        first = {"batch_shape": shape, "name": name, "sparse": False, "dtype": dtype}
        made.insert(0, objects.written("keras.layers", "InputLayer", first))
    name = architecture.name(entry) or "sequential"
    return objects.written("keras", "Sequential", {"name": name, "trainable": True, "layers": made})


def _functional(entry: Entry, path: str, told: Told) -> dict[str, Any]:
    config = entry["config"]
    calls = nodes.Calls(entry)
    held = []
    for layer in architecture.layers(entry):
        name = str(layer.get("name") or architecture.name(layer))
        here = f"{path}/{name}".strip("/")
        made = translated(layer, here, told)
        try:
            inbound = [calls.node(node, layer) for node in layer.get("inbound_nodes", [])]
        except (ValueError, TypeError, KeyError, IndexError) as cause:
            told.reasons.append(f"layer {here}: expected a call with tensors, found {cause}")
            continue
        held.append({**made, "name": name, "inbound_nodes": inbound})
    made = {
        "name": architecture.name(entry) or "model",
        "trainable": config.get("trainable", True) is not False,
        "layers": held,
        "input_layers": calls.ends(config["input_layers"]),
        "output_layers": calls.ends(config["output_layers"]),
    }
    return objects.written("keras.src.models.functional", "Functional", made)
