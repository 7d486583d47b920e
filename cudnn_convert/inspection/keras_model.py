"""Describes a Keras model and the recurrent layers, from config and shapes of weights.

No layer is built. Also from the config: the inputs and outputs, the format that fits, and why a model needs
no conversion or cannot be verified.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import FORMATS
from cudnn_convert.inspection import End, InspectedRecurrence, Inspection, Offered, WeightTensor, alternatives
from cudnn_convert.keras import cpu_layers, cut_layers, translate
from cudnn_convert.keras.config import (
    channels_first,
    channels_last,
    classes,
    differences,
    layer_tree,
    validate,
    values,
    versions,
)
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import SERVING, Architecture, KerasFile, Model, Tensor
from cudnn_convert.options import Options
from cudnn_convert.plan.source import cut_at_layers, is_portable
from cudnn_convert.read import keras_hdf5
from cudnn_convert.read.dialects.keras import CudnnLayer

Listed = Sequence[tuple[str, Tensor]]
#: The settings in a layer's config that affect its outputs.
_SETTINGS: Final = ("go_backwards", "return_sequences", "return_state", "stateful", "time_major")


def describe_layers(model: Architecture) -> Iterator[InspectedRecurrence]:
    """Yield the LSTM and GRU layers in config order, CuDNN layers included."""
    tops = layer_tree.layer_entries(model.config) if layer_tree.is_model(model.config) else [model.config]
    for top in tops:
        listed = model.weights.get(layer_tree.layer_name(top), ())
        recurrences, left = [*_recurrent(top)], [*_triples(listed)]
        # CuDNN layers first: a CPU layer may get weights in CuDNN's format only if they are left over.
        ordered = sorted(recurrences, key=lambda pair: not classes.is_cudnn(pair[1]))
        taken = {path: _take_weights(left, entry, around) for path, entry, around in ordered}
        for path, entry, around in recurrences:
            tensors = taken[path] or _plain_tensors(path, listed)
            yield _describe_layer(path, entry, around, tensors)


def _recurrent(entry: Entry, path: str = "") -> Iterator[tuple[str, Entry, Entry | None]]:
    """Yield the LSTM and GRU layers in an entry.

    Each is a path, a layer, and its Bidirectional or None.
    """
    here = f"{path}/{layer_tree.layer_name(entry)}".strip("/")
    inside = layer_tree.inside(entry)
    if entry["class_name"] == "Bidirectional" and inside and _is_recurrent(inside[0]):
        yield here, inside[0], entry
        return
    if _is_recurrent(entry):
        yield here, entry, None
    for below in inside:
        yield from _recurrent(below, here)


def _is_recurrent(entry: Entry) -> bool:
    known = str(entry["class_name"]) in classes.MODES and classes.is_keras_class(entry)
    return known and isinstance(entry["config"], Mapping)


def _triples(listed: Listed) -> Iterator[tuple[str, CudnnLayer, tuple[WeightTensor, ...]]]:
    """Yield the CuDNN layers in a list of weights: kernel name, layer, described tensors."""
    names = {id(tensor): name for name, tensor in listed}
    for name, triple in keras_hdf5.triples(listed):
        described = (_describe_tensor(names[id(tensor)], tensor) for tensor in triple.tensors.values())
        yield name, triple, tuple(described)


def _describe_tensor(name: str, tensor: Tensor) -> WeightTensor:
    """Describe a tensor under the path in the file.

    The path may differ from its name.
    """
    return WeightTensor(str(getattr(tensor, "key", name)).strip("/"), tuple(tensor.shape), tensor.dtype.name)


def _take_weights(
    left: list[tuple[str, CudnnLayer, tuple[WeightTensor, ...]]], entry: Entry, around: Entry | None
) -> tuple[WeightTensor, ...]:
    """Remove a layer's weights from `left`, matched by sizes, preferably by name.

    Returns an empty tuple where too few fit.
    """
    mode, units = classes.MODES[str(entry["class_name"])], entry["config"].get("units")
    own = f"/{layer_tree.layer_name(entry if around is None else around)}/"
    fits = [candidate for candidate in left if (candidate[1].mode, candidate[1].units) == (mode, units)]
    fits = sorted(fits, key=lambda candidate: own not in f"/{candidate[0]}")[: 1 if around is None else 2]
    if len(fits) < (1 if around is None else 2):
        return ()
    for candidate in fits:
        left.remove(candidate)
    return tuple(tensor for _, _, tensors in fits for tensor in tensors)


def _plain_tensors(path: str, listed: Listed) -> tuple[WeightTensor, ...]:
    """Return the weights of a CPU layer, by name for a nested layer.

    A top-level layer has all.
    """
    parts = path.split("/")
    return tuple(
        _describe_tensor(name, tensor)
        for name, tensor in listed
        if len(parts) == 1 or f"/{parts[-1]}/" in f"/{name}"
    )


def _describe_layer(
    path: str, entry: Entry, around: Entry | None, tensors: tuple[WeightTensor, ...]
) -> InspectedRecurrence:
    config = entry["config"]
    settings = {key: config[key] for key in _SETTINGS if config.get(key)}
    if around is not None:
        settings["merge_mode"] = around["config"].get("merge_mode", "concat")
    time_major = bool(config.get("time_major"))
    return InspectedRecurrence(
        name=path,
        op=str(entry["class_name"]),
        needs_gpu=classes.is_cudnn(entry),
        live=True,
        mode=classes.MODES[str(entry["class_name"])].value,
        layers=1,
        directions=1 if around is None else 2,
        units=int(config.get("units", 0)),
        input_size=tensors[0].shape[0] if tensors and len(tensors[0].shape) == 2 else None,
        dtype=tensors[0].dtype if tensors else values.dtype(config.get("dtype")) or "float32",
        axes=("time", "batch", "input") if time_major else ("batch", "time", "input"),
        canonical=tensors,
        copies="canonical" if tensors else "none",
        settings=settings,
    )


def inspect_keras(source: Path, model: Model, options: Options, form: str | None) -> Inspection:
    """Inspect a Keras model by the config alone."""
    names = dict.fromkeys(options.custom_class_names)
    brought = classes.Vouched(names, names, options.trust)
    notes: list[str] = []
    if not (options.outputs or options.inputs or options.set):
        options, notes = _cut_before_losses(model, options, brought)
    model, whole = cut_at_layers(model, options)
    architecture = model.layers
    cut = whole.inputs or whole.outputs or whole.set
    usual = "savedmodel" if cut else fitting(model.path, architecture, brought)
    options = replace(options, format=form or usual)
    is_old = options.form.has_layers and not options.form.is_keras3
    if form is None and is_old and is_portable(model, options):
        options = replace(options, format="savedmodel")  # no format of layers but its own fits
    kept: Options | None = options
    if reasons := _needs_no_conversion(model, options):
        kept = None
    elif not FORMATS[options.format].has_layers:
        # Graph formats need all layers built, which these may not be.
        reasons = tuple(map(str, validate.refusals(architecture, brought)))
        kept = None if reasons else options
    elif reasons := tuple(unproven(architecture, brought)):
        kept = replace(options, verify=False)
    recurrences = tuple(describe_layers(architecture))
    is_known = validate.describe_unknown_model(architecture.config, options.custom_class_names) is None
    needing = [*dict.fromkeys(each.op for each in recurrences if each.needs_gpu)]
    is_modern = model.keras is KerasFile.ARCHIVE
    layers = channels_first.find_layers(architecture, keras3=is_modern)
    images = [f"{', '.join(layers)} channels first"] if layers else []
    inspection = alternatives.build_inspection(
        source,
        model,
        runs_on_cpu=not (needing or images) if is_known else None,
        recurrences=recurrences,
        signatures=[signature(architecture)],
        reasons=reasons,
        options=kept,
        gpu_ops=[*needing, *images],
    )
    inspection = alternatives.with_notes(inspection, notes)
    return alternatives.with_streams_of_layers(inspection, source, architecture, kept or options)


def _cut_before_losses(model: Model, options: Options, brought: classes.Vouched) -> tuple[Options, list[str]]:
    """Return the options cut before a model's foreign end layers, and a note.

    Such layers are of other code, such as a loss.
    """
    ends, are_last = cut_layers.find_ends(model.layers, brought)
    if not (ends and are_last):
        return options, []
    others = validate.refusals(model.layers, brought)
    listed = ", ".join(f"{layer.layer} ({layer.class_name})" for layer in others)
    outputs = ",".join(ends)
    return replace(options, outputs=(outputs,)), [f"cut before what is not Keras' own: {listed}"]


def _needs_no_conversion(model: Model, options: Options) -> tuple[str, ...]:
    """Return the reason against a conversion of a Keras model, if any.

    It needs none, or its config is not understood. Empty where it needs one.
    """
    if reason := validate.describe_unknown_model(model.layers.config, options.custom_class_names):
        return (reason,)
    if is_portable(model, options):
        return (alternatives.PORTABLE,)
    return ()


def signature(model: Architecture) -> Offered:
    """Return the inputs and outputs under Keras' names.

    Outputs have no dtype or shape.
    """
    config, entries = model.config["config"], layer_tree.layer_entries(model.config)
    if model.config["class_name"] == "Sequential" or not isinstance(config, Mapping):
        if not entries:
            return Offered(SERVING, True, {}, {})
        first, (shape, dtype) = entries[0], values.input_of(model.config)
        given = layer_tree.layer_name(first)
        given = given if first["class_name"] == "InputLayer" else f"{given}_input"
        ends = {given: End(given, dtype, None if shape is None else tuple(shape))}
        last = layer_tree.layer_name(entries[-1])
        return Offered(SERVING, True, ends, {last: End(last, None, None)})
    by_name = {layer_tree.layer_name(entry): entry["config"] for entry in entries}
    inputs = {name: _input(name, by_name.get(name, {})) for name in _ends(config.get("input_layers"))}
    outputs = {name: End(name, None, None) for name in _ends(config.get("output_layers"))}
    return Offered(SERVING, True, inputs, outputs)


def _input(name: str, config: Mapping[str, Any]) -> End:
    shape = values.shape(config.get("batch_input_shape", config.get("batch_shape")))
    dtype = values.dtype(config.get("dtype")) or "float32"
    return End(name, dtype, None if shape is None else tuple(shape))


def _ends(listed: Any) -> list[str]:
    """Return the layers of `input_layers` or `output_layers`, repeated names numbered as in Keras."""
    ends: list[str] = []
    seen: Counter[str] = Counter()
    for name, _, _ in layer_tree.references(listed):
        ends.append(f"{name}_{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return ends


def fitting(path: Path, model: Architecture, brought: classes.Vouched) -> str:
    """Return the default format for a Keras model.

    `keras` where Keras 3 can represent it, else `h5`; `savedmodel` for `time_major` layers and those that
    newer Keras computes otherwise, which both would read wrongly, and for images that not every CPU takes
    channels first.
    """
    if model.is_keras3:
        return "keras"
    left = {keras3: _list_channels_first(model, keras3=keras3) for keras3 in (True, False)}
    if all(left.values()):
        return "savedmodel"
    writer = versions.find_writer(model.keras_version, model.config)
    for _, entry in layer_tree.walk(model.config):
        config = layer_tree.settings(entry)
        others = differences.of_layer(writer, entry["class_name"], config)
        if config.get("time_major") or any(others):
            return "savedmodel"
    try:
        translate.modern(path, cpu_layers.rewritten(path, model).architecture, vouched=brought.keras)
    except UnsupportedModelError:
        return "h5"
    return "h5" if left[True] else "keras"


def _list_channels_first(model: Architecture, *, keras3: bool) -> list[str]:
    """List the layers on channels-first images.

    They are those that a format of layers cannot have channels last.
    """
    return channels_first.find_layers(channels_last.rewrite(model, keras3=keras3)[0], keras3=keras3)


def unproven(model: Architecture, brought: classes.Vouched) -> list[str]:
    """Return the reason for an impossible verification, if any.

    It is impossible where the first layer may not be built.
    """
    layers = validate.refusals(model, brought)
    if layers and validate.own_part(model, brought) is None:
        return [f"{layers[0]}; nothing stands before this layer that could be verified"]
    return []
