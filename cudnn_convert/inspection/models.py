"""A Keras model as a whole, by its config: what it takes and gives, which format fits, what bars it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudnn_convert import planning
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import FORMATS
from cudnn_convert.inspection import answer, layers
from cudnn_convert.inspection.value import End, Inspection, Offered
from cudnn_convert.keras import architecture, calls, modern, objects, rewrite, vetting
from cudnn_convert.keras.custom import Vouched
from cudnn_convert.model import SERVING, Architecture, Model
from cudnn_convert.options import Options
from cudnn_convert.read import keras_archive


def inspected(source: Path, model: Model, options: Options, form: str | None) -> Inspection:
    """A Keras model, by its config alone."""
    found = model.architecture
    assert found is not None
    names = dict.fromkeys(options.brought)
    brought = Vouched(names, names)
    cut = options.inputs or options.outputs or options.set
    usual = "savedmodel" if cut else fitting(model.path, found, brought)
    options = replace(options, format=form or usual)
    kept: Options | None = options
    if reasons := _plain(model, options):
        kept = None
    elif not FORMATS[options.format].layers:
        reasons = tuple(refused(found, brought))
        kept = None if reasons else options
    elif reasons := tuple(unproven(found, brought)):
        kept = replace(options, verify=False)
    recurrences = tuple(layers.recurrences(found))
    is_known = vetting.unlisted(found.config, options.brought) is None
    return answer.told(
        source,
        model,
        runs_on_cpu=not any(one.needs_gpu for one in recurrences) if is_known else None,
        recurrences=recurrences,
        signatures=[signature(found)],
        reasons=reasons,
        options=kept,
    )


def _plain(model: Model, options: Options) -> tuple[str, ...]:
    """Why a Keras model needs no conversion, where it has no cuDNN layer, or why nothing is known of it."""
    assert model.architecture is not None
    if reason := vetting.unlisted(model.architecture.config, options.brought):
        return (reason,)
    if planning.is_portable(model, options):
        return (answer.PORTABLE,)
    try:
        if model.kind != keras_archive.KIND and not options.allow_plain:
            rewrite.require_cudnn(model.path, model.architecture)
    except UnsupportedModelError as error:
        return error.reasons
    return ()


def signature(model: Architecture) -> Offered:
    """The inputs and outputs by the names that Keras gives them; a layer's output has no shape before it is
    built.
    """
    config, entries = model.config["config"], architecture.layers(model.config)
    if model.config["class_name"] == "Sequential" or not isinstance(config, Mapping):
        if not entries:
            return Offered(SERVING, True, {}, {})
        first, (shape, dtype) = entries[0], objects.input_of(model.config)
        given = architecture.name(first)
        given = given if first["class_name"] == "InputLayer" else f"{given}_input"
        ends = {given: End(given, dtype, None if shape is None else tuple(shape))}
        last = architecture.name(entries[-1])
        return Offered(SERVING, True, ends, {last: End(last, None, None)})
    by_name = {architecture.name(entry): entry["config"] for entry in entries}
    inputs = {name: _input(name, by_name.get(name, {})) for name in _ends(config.get("input_layers"))}
    outputs = {name: End(name, None, None) for name in _ends(config.get("output_layers"))}
    return Offered(SERVING, True, inputs, outputs)


def _input(name: str, config: Mapping[str, Any]) -> End:
    shape = objects.shape(config.get("batch_input_shape", config.get("batch_shape")))
    dtype = objects.dtype(config.get("dtype")) or "float32"
    return End(name, dtype, None if shape is None else tuple(shape))


def _ends(listed: Any) -> list[str]:
    """The layers of `input_layers` or `output_layers`; a name that comes again is numbered, as Keras does."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    for name, _, _ in calls.references(listed):
        found.append(f"{name}_{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def fitting(path: Path, model: Architecture, brought: Vouched) -> str:
    """The format in which a user finds the layers again: `keras`, for today's Keras opens it; `h5` where
    Keras 3 cannot say what the model does; `savedmodel` where both read a layer's axes otherwise.
    """
    found = [entry for _, entry in architecture.walk(model.config)]
    if any(isinstance(one["config"], Mapping) and one["config"].get("time_major") for one in found):
        return "savedmodel"
    try:
        modern.modern(path, rewrite.rewritten(path, model).architecture, vouched=brought.keras)
    except UnsupportedModelError:
        return "h5"
    return "keras"


def refused(model: Architecture, brought: Vouched) -> list[str]:
    """The layers that may not be built, which every format of graphs needs."""
    return [str(found) for found in vetting.refused(model.config, brought)]


def unproven(model: Architecture, brought: Vouched) -> list[str]:
    """Why nothing of the model can be verified, where its first layer is one that may not be built."""
    found = [*vetting.refused(model.config, brought)]
    if found and vetting.own_part(model, brought) is None:
        return [f"{found[0]}; nothing stands before this layer that could be verified"]
    return []
