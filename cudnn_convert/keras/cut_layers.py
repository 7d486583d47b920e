"""Cuts a Keras model at layers: the layers' results become the model's outputs.

What no output needs goes. `LAYER` is the result of a top-level layer. `LAYER:k` is that of its k-th call
where it is called several times, else its k-th tensor, as a layer with `return_state` has several.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from cudnn_convert.errors import Reason, Remedy, UsageError
from cudnn_convert.keras.config import classes, layer_tree, validate
from cudnn_convert.keras.config.layer_tree import Entry, Reference
from cudnn_convert.model import Architecture, Model


def names_layers(model: Model, outputs: Sequence[str]) -> bool:
    """Return True if outputs are layers of a model rather than tensors of a graph."""
    if not model.has_layers or not layer_tree.is_model(model.layers.config):
        return False
    names = layer_tree.names(model.layers.config)
    return any(_split(item, names)[0] in names for item in _list_items(outputs))


def cut_at_layers(model: Model, outputs: Sequence[str]) -> Model:
    """Cut a model at the layers found by `names_layers` in `outputs`.

    Raises UsageError for a layer that is not there.
    """
    architecture = model.layers
    items = _list_items(outputs)
    references = [_find(model.path, architecture.config, item) for item in items]
    if architecture.config["class_name"] == "Sequential" and len(items) > 1:
        raise UsageError(f"--outputs: expected one layer of a Sequential model, found {', '.join(items)}")
    config = _cut(architecture, list(dict.fromkeys(references)))
    kept = {*layer_tree.names(config)}
    weights = {name: listed for name, listed in architecture.weights.items() if name in kept}
    training = None if kept != {*layer_tree.names(architecture.config)} else architecture.training
    cut = replace(architecture, config=config, weights=weights, training=training, optimizer=())
    return replace(model, architecture=cut)


def _cut(model: Architecture, outputs: list[Reference]) -> Entry:
    if not model.is_keras3:
        return layer_tree.model_of(model.config, outputs)
    cut = layer_tree.count_outputs(layer_tree.model_of(_count_alike(model), outputs), 1)
    ends = cut["config"].get("output_layers", [])
    # Of a list of one Keras 3 makes a list of arrays.
    return {**cut, "config": {**cut["config"], "output_layers": ends[0]}} if len(ends) == 1 else cut


def _count_alike(model: Architecture) -> Entry:
    """Return a config with inner models' calls counted alike in outputs and arguments."""
    return layer_tree.count_outputs(model.config, -1) if model.is_keras3 else model.config


def offer_cut(model: Architecture, vouched: classes.Vouched, refused: Sequence[str]) -> list[str]:
    """Return the reasons to refuse layers, the first with the cut before the layers.

    It has the cut only where other layers come before them.
    """
    ends, _ = find_ends(model, vouched)
    if not ends:
        return [*refused]
    remedy = Remedy({"outputs": (",".join(ends),)}, "or convert what comes before it with")
    return [Reason(f"{refused[0]}, {remedy}", remedy), *refused[1:]]


def find_ends(model: Architecture, vouched: classes.Vouched) -> tuple[list[str], bool]:
    """Return the results before the refused layers, in the form of `--outputs`.

    None where only inputs come before them, or where there are no such layers. Also whether no other layers
    stand behind.
    """
    if not layer_tree.is_model(model.config):
        return [], False
    others = validate.foreign(model.config, vouched, model.keras_version)
    config = _count_alike(model)
    references = layer_tree.ends(config, others) if others else []
    if not references:
        return [], False
    kept = layer_tree.names(_cut(model, references))
    left = [entry for entry in layer_tree.layer_entries(config) if layer_tree.layer_name(entry) not in kept]
    are_last = all(
        layer_tree.layer_name(entry) in others or entry["class_name"] == "InputLayer" for entry in left
    )
    return [_describe(config, reference) for reference in references], are_last


def _list_items(outputs: Sequence[str]) -> list[str]:
    return [item.strip() for text in outputs for item in text.split(",") if item.strip()]


def _split(item: str, names: Collection[str]) -> tuple[str, int]:
    """Return the layer and the number of an item, 0 by default."""
    numbered = re.fullmatch(r"(.+):(\d+)", item)
    return (item, 0) if item in names or not numbered else (numbered[1], int(numbered[2]))


def _find(path: Path, model: Entry, item: str) -> Reference:
    names = layer_tree.names(model)
    layer, number = _split(item, names)
    if layer not in names:
        more = ", ..." if len(names) > _LISTED else ""
        listed = f"{', '.join(names[-_LISTED:])}{more}"
        raise UsageError(f"--outputs: expected layers of {path}, such as {listed}, found {item}")
    calls = layer_tree.list_calls(model, layer)
    if len(calls) < 2:
        return layer, calls[0] if calls else 0, number
    if number >= len(calls):
        raise UsageError(f"--outputs: expected at most {layer}:{len(calls) - 1}, its last call, found {item}")
    return layer, calls[number], 0


#: How many layers a message lists.
_LISTED = 8


def _describe(model: Entry, reference: Reference) -> str:
    layer, call, tensor = reference
    calls = layer_tree.list_calls(model, layer)
    number = calls.index(call) if len(calls) > 1 else tensor
    return f"{layer}:{number}" if number else layer
