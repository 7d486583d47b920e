"""The layers of a model's config, the calls between layers, and parts of models.

An *entry* is a layer as a config has it: `{"class_name": ..., "config": {...}}`, in a functional model with
`name` and `inbound_nodes` beside. Models hold entries in `layers`, wrappers in `layer` and `backward_layer`,
RNN layers in `cell`. A call is one item of `inbound_nodes`. References to its results are
`[layer, call, tensor]` in the older form, a `__keras_tensor__` with that as its history in Keras 3's.
Source: keras 2.2.4 engine/network.py `get_config`, layers/wrappers.py; tf_keras v2.21.0, the same files, and
src/engine/functional.py get_network_config; keras v3.15 src/models/functional.py.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

MODELS: Final = frozenset({"Model", "Functional", "Sequential"})
#: One op of TensorFlow, whose NodeDef is in the config. The layer's name has a prefix that its config lacks.
#: Source: tf_keras v2.21.0 src/engine/base_layer.py TensorFlowOpLayer; tensorflow v1.15.0 likewise.
OP_LAYER: Final = "TensorFlowOpLayer"
_OP_PREFIX: Final = "tf_op_layer_"
#: Where the config of a layer holds other layers.
_HELD: Final = ("layer", "backward_layer", "cell", "cells")

Entry = Mapping[str, Any]


def is_entry(value: Any) -> bool:
    """Return True if a config's value has a class and a config, like a layer."""
    return isinstance(value, Mapping) and isinstance(value.get("class_name"), str) and "config" in value


def is_model(entry: Entry) -> bool:
    """Return True if an entry is a model of layers."""
    return entry["class_name"] in MODELS


def layer_name(entry: Entry) -> str:
    """Return the name of a layer, "" where a config lacks a name."""
    name = settings(entry).get("name")
    if name and entry["class_name"] == OP_LAYER:
        return f"{_OP_PREFIX}{name}"
    return str(name or entry.get("name") or "")


def layer_entries(entry: Entry) -> list[Entry]:
    """Return the entries of a model's layers.

    Before Keras 2.2.3 a Sequential's config was the list itself.
    """
    config = entry["config"]
    entries = config if isinstance(config, list) else config.get("layers", [])
    return [layer for layer in entries if is_entry(layer)]


def with_layers(model: Entry, layers: Sequence[Entry]) -> dict[str, Any]:
    """Return a model with new layers, the form of the config kept."""
    config = model["config"]
    return {**model, "config": layers if isinstance(config, list) else {**config, "layers": layers}}


def name_models(model: Entry, names: Sequence[str]) -> Entry:
    """Name a model's inner Sequential models after `names`, the top-level layers in order.

    Before Keras 2.2.3 a Sequential wrote a list of layers without a name for itself. In a functional model
    the entry has the name. Deeper models get a name of their own. Source: keras v2.1.6 models.py
    Sequential.get_config, engine/topology.py Container.get_config.
    """
    entries = layer_entries(model)
    known = names if len(names) == len(entries) else [""] * len(entries)
    named = [_name_model(*pair) for pair in zip(entries, known, strict=True)]
    return with_layers(model, named) if named != entries else model


def _name_model(entry: Entry, name: str) -> Entry:
    name = layer_name(entry) or name
    if not is_model(entry) or not name:
        return entry
    below = [_name_model(inner, f"{name}_{number}") for number, inner in enumerate(layer_entries(entry), 1)]
    is_list = isinstance(entry["config"], list)
    return {**entry, "config": {"name": name, "layers": below}} if is_list else with_layers(entry, below)


def settings(entry: Entry) -> Mapping[str, Any]:
    """Return the config of a layer, empty for a list of layers."""
    config = entry["config"]
    return config if isinstance(config, Mapping) else {}


def names(model: Entry) -> list[str]:
    """Return the names of a model's layers, in order."""
    return [layer_name(entry) for entry in layer_entries(model)]


def inside(entry: Entry) -> list[Entry]:
    """Return the entries of a layer's inner layers, in the order of the weights.

    A Bidirectional's other direction is listed twice where it is a copy of the first.
    """
    if is_model(entry):
        return layer_entries(entry)
    config = settings(entry)
    values: list[Any] = [config.get(key) for key in _HELD]
    listed = [item for value in values for item in (value if isinstance(value, list) else [value])]
    entries = [item for item in listed if is_entry(item)]
    if entry["class_name"] == "Bidirectional" and len(entries) == 1:
        return entries * 2
    return entries


def walk(entry: Entry, path: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield an entry and all entries below, with paths of names: `inner/bi/gru`."""
    here = f"{path}/{layer_name(entry)}".strip("/")
    yield here, entry
    for below in inside(entry):
        yield from walk(below, here)


def below(model: Entry) -> Iterator[tuple[str, Entry]]:
    """Yield all layers of a model at any depth, with paths below the model."""
    for entry in inside(model):
        yield from walk(entry)


def map_entries(value: Any, change: Callable[[Entry], Entry]) -> Any:
    """Apply `change` to every entry of a config, inner entries first.

    Entries of unknown classes are included.
    """
    return map_objects(value, lambda item: change(item) if is_entry(item) else item)


def map_objects(value: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Apply `change` to every object in a JSON value, inner objects first."""
    if isinstance(value, list):
        return [map_objects(item, change) for item in value]
    if isinstance(value, Mapping):
        return change({key: map_objects(item, change) for key, item in value.items()})
    return value


def _find_batch_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the shapes of a layer's inputs, batch included, by key."""
    for key in ("batch_input_shape", "batch_shape"):
        if isinstance(config.get(key), list):
            yield key, config[key]


def without_states(model: Entry) -> Any:
    """Return a model with stateless layers.

    Its batch is open where a stateful layer alone asked for a fixed one.
    """
    if not any(settings(entry).get("stateful") for _, entry in walk(model)):
        return model

    def change(entry: Entry) -> Entry:
        config = entry["config"]
        if not isinstance(config, Mapping):
            return entry
        opened = {key: [None, *shape[1:]] for key, shape in _find_batch_shapes(config)}
        stateless = {"stateful": False} if "stateful" in config else {}
        return {**entry, "config": {**config, **opened, **stateless}}

    return map_entries(model, change)


def with_open_steps(model: Entry) -> Any:
    """Return a model with an open number of steps in the inputs.

    It is the model itself where they leave it open. Steps are the second axis of `[batch, steps, ...]`, and
    of ids `[batch, steps]` that an Embedding takes.
    """
    embedded = [json.dumps(entry.get("inbound_nodes", ())) for _, entry in walk(model) if _embeds(entry)]

    def change(entry: Entry) -> Entry:
        config = settings(entry)
        name = json.dumps(layer_name(entry))
        is_ids = _embeds(entry) or any(name in nodes for nodes in embedded)
        least = _IDS if is_ids else _STEPS
        opened: dict[str, Any] = {
            key: [shape[0], None, *shape[2:]]
            for key, shape in _find_batch_shapes(config)
            if len(shape) >= least and shape[1] is not None
        }
        if _embeds(entry) and config.get("input_length") is not None:
            opened["input_length"] = None
        return {**entry, "config": {**config, **opened}} if opened else entry

    changed = map_entries(model, change)
    return changed if changed != model else model


#: Axes of ids with steps, and of features with steps.
_IDS, _STEPS = 2, 3


def _embeds(entry: Entry) -> bool:
    return bool(entry["class_name"] == "Embedding")


def children(value: Any) -> Collection[Any]:
    """Return the direct values of a JSON list or object.

    Other values have none.
    """
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


Reference = tuple[str, int, int]
Call = tuple[str, int]
#: How Keras 3 writes a layer's result among the arguments of a call.
TENSOR: Final = "__keras_tensor__"
#: tf_keras src/engine/node.py: in a layer's name's place, the argument is a plain value.
_CONSTANT: Final = "_CONSTANT_VALUE"


def unreachable_layers(model: Entry) -> list[str]:
    """List the layers, at any depth, with unreachable calls.

    Such a call takes results of no layer. Loaders wait for such a call forever.
    """
    unreached = []
    for path, entry in walk(model):
        if is_model(entry) and not _is_row(entry):
            reached, ends = _reachable_calls(entry, ()), references(entry["config"].get("output_layers"))
            calls = [*_calls(entry), *((layer, number) for layer, number, _ in ends)]
            lost = [layer for layer, number in calls if (layer, number) not in reached]
            unreached += [f"{path}/{layer}".strip("/") for layer in lost]
    return list(dict.fromkeys(unreached))


def ends(model: Entry, layers: Collection[str]) -> list[Reference]:
    """List the outputs independent of the top-level `layers`, then the arguments of `layers`.

    Inputs are left out.
    """
    entries = layer_entries(model)
    if _is_row(model):
        kept = entries[: min(names(model).index(layer) for layer in layers)]
        computes = any(entry["class_name"] != "InputLayer" for entry in kept)
        return [(layer_name(kept[-1]), 0, 0)] if computes else []
    reached = _reachable_calls(model, layers)
    ends_ = [*references(model["config"]["output_layers"])]
    for call, value in _calls(model).items():
        ends_ += references(value) if call not in reached else []
    inputs = {layer_name(entry) for entry in entries if not entry.get("inbound_nodes")}
    return [end for end in dict.fromkeys(ends_) if end[:2] in reached and end[0] not in inputs]


def model_until(model: Entry, layers: Collection[str]) -> Entry | None:
    """Return the model up to the top-level `layers`, with `ends` as outputs.

    Returns None where `ends` has none.
    """
    ends_ = ends(model, layers)
    return model_of(model, ends_) if ends_ else None


def model_of(model: Entry, outputs: list[Reference]) -> Entry:
    """Return the model with layer results as outputs, and with the needed layers.

    A Sequential model ends with the first of the outputs.
    """
    if not _is_row(model):
        return _down_to(model, outputs)
    return with_layers(model, layer_entries(model)[: names(model).index(outputs[0][0]) + 1])


def list_calls(model: Entry, layer: str) -> list[int]:
    """List the numbers of a top-level layer's calls, in order.

    The list is empty in a row of layers.
    """
    return [] if _is_row(model) else sorted(number for name, number in _calls(model) if name == layer)


def _is_row(model: Entry) -> bool:
    """Return True if a model is a simple row of layers."""
    return str(model["class_name"]) == "Sequential"


def _calls(model: Entry) -> dict[Call, Any]:
    """Map the calls of a functional model to nodes, empty for an input."""
    entries = layer_entries(model)
    named = {reference[:2] for entry in entries for reference in references(entry.get("inbound_nodes"))}
    named |= {reference[:2] for reference in references(model["config"].get("output_layers"))}
    calls: dict[Call, Any] = {}
    for entry in entries:
        layer, nodes = layer_name(entry), entry.get("inbound_nodes") or [[]]
        # The call that made an inner model comes first, and is not in the config.
        first = 1 if is_model(entry) and (layer, 0) not in named else 0
        calls |= {(layer, first + number): call for number, call in enumerate(nodes)}
    return calls


def _reachable_calls(model: Entry, without: Collection[str]) -> set[Call]:
    """Return the runnable calls after leaving some layers out.

    `without` names the layers left out.
    """
    left = {call: value for call, value in _calls(model).items() if call[0] not in without}
    reached: set[Call] = set()
    while ready := [
        call
        for call, value in left.items()
        if call not in reached and all(reference[:2] in reached for reference in references(value))
    ]:
        reached.update(ready)
    return reached


def _down_to(model: Entry, ends: list[Reference]) -> Entry:
    """Return a functional model with only the calls needed by `ends`, numbered anew."""
    calls, needed, todo = _calls(model), set[Call](), [end[:2] for end in ends]
    while todo:
        call = todo.pop()
        if call not in needed:
            needed.add(call)
            todo += [reference[:2] for reference in references(calls[call])]
    numbers: dict[Call, int] = {}
    kept: list[tuple[Entry, list[Call]]] = []
    for entry in layer_entries(model):
        layer = layer_name(entry)
        own = [call for call in calls if call[0] == layer]
        left = [call for call in own if call in needed]
        numbers |= {call: own[0][1] + position for position, call in enumerate(left)}
        kept += [(entry, left)] if left else []

    def count(reference: Reference) -> Reference:
        return reference[0], numbers[reference[:2]], reference[2]

    entries = []
    for entry, left in kept:
        nodes = [change_references(calls[call], count) for call in left]
        entries.append({**entry, "inbound_nodes": nodes if entry.get("inbound_nodes") else []})
    starts = [list(start) for start in references(model["config"]["input_layers"]) if start[:2] in needed]
    config = {
        **model["config"],
        "layers": entries,
        "input_layers": starts,
        "output_layers": [list(count(end)) for end in ends],
    }
    return {**model, "config": config}


def count_outputs(model: Entry, more: int) -> Entry:
    """Add `more` to the call numbers of a functional model's outputs.

    For inner models Keras 3 counts calls among outputs from one more than among arguments: -1 makes both
    alike, 1 restores Keras 3's form.
    """
    config = model["config"]
    if "output_layers" not in config:
        return model
    inner = {layer_name(entry) for entry in layer_entries(model) if entry["class_name"] == "Functional"}

    def count(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: count(item) for key, item in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], str):
            return [value[0], value[1] + (more if value[0] in inner else 0), value[2]]
        return [count(item) for item in value]

    return {**model, "config": {**config, "output_layers": count(config["output_layers"])}}


def references(value: Any) -> Iterator[Reference]:
    """Yield the layer results in a config's value, in order."""
    listed: list[Reference] = []

    def collect(reference: Reference) -> Reference:
        listed.append(reference)
        return reference

    change_references(value, collect)
    yield from listed


def call_with(node: Any, reference: Reference) -> Any:
    """Return a call of `reference` alone, in the form of `node`.

    `reference` is one of the results that the call `node` has among its arguments.
    """
    if isinstance(node, Mapping):
        return {"args": [_find_tensor(node, reference)], "kwargs": {}}
    return [[*reference, {}]]


def _find_tensor(value: Any, reference: Reference) -> Any:
    """Return the object standing for a layer's result among a call's arguments."""
    if isinstance(value, Mapping) and value.get("class_name") == TENSOR:
        return value if tuple(value["config"]["keras_history"]) == reference else None
    return next((each for item in children(value) if (each := _find_tensor(item, reference))), None)


def change_references(value: Any, change: Callable[[Reference], Reference]) -> Any:
    """Return a call's arguments with each reference changed."""
    if isinstance(value, Mapping):
        if value.get("class_name") == TENSOR:
            config = value["config"]
            return {
                **value,
                "config": {**config, "keras_history": list(change(tuple(config["keras_history"])))},
            }
        return {key: change_references(item, change) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) in (3, 4) and isinstance(value[0], str) and all(type(item) is int for item in value[1:3]):
        start = value[:3] if value[0] == _CONSTANT else change((value[0], value[1], value[2]))
        return [*start, *(change_references(item, change) for item in value[3:])]
    return [change_references(item, change) for item in value]
