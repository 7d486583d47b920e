"""Plans the commands for converting a source, as a conversion does.

Where planning refuses, the remedies of its reasons are applied to the options and planned in turn. An
inspection has one command where one alternative is left, all of them where the user must choose, else the
reasons.

`with_streams` and its like say which recurrences go on from chunk to chunk of the steps. A source with a
graph is planned once more, with `--states`. A Keras model is described by its config alone: a command is
printed where every layer is known to take each step by itself; the conversion decides.

Versions and tags are read without parsing a proto. Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto
(MetaGraphDef.meta_info_def = 1, MetaInfoDef's tags = 4, tensorflow_version = 5), saved_model.proto
(SavedModel.meta_graphs = 2).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import InvalidModelError, ReadError, Reason, RefusalError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.inspection import Alternative, InspectedRecurrence, Inspection, Offered
from cudnn_convert.keras.config import classes, layer_tree, values
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, KerasFile, Model
from cudnn_convert.options import READING, VOUCHED, Options, list_flags
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.read import hdf5, paths
from cudnn_convert.read.tensorbundle import tables

_META_GRAPHS: Final = 2
_INFO: Final = 1
_TAGS: Final = 4
_TENSORFLOW: Final = 5


def library_versions(model: Model) -> dict[str, str]:
    """Read the versions by name: `tensorflow`, `graph` (the producer's number), `keras`, `backend`."""
    versions: dict[str, str] = {}
    if model.has_layers:
        versions = {"keras": model.layers.keras_version, "backend": model.layers.backend}
    elif model.keras is KerasFile.HDF5:
        versions = _keras(model.path)
    elif not model.is_graphless:
        infos = [info for _, info in _infos(model.path)]
        versions = {"tensorflow": ", ".join(dict.fromkeys(info for info in infos if info))}
        versions["graph"] = str(model.graph.versions.producer or "")
    return {name: version for name, version in versions.items() if version}


def tags(folder: Path) -> list[str]:
    """List the choosable `--tag` values of a SavedModel's graphs, comma-separated."""
    return _choosable([listed for listed, _ in _infos(folder)])


def _choosable(listed: Sequence[str]) -> list[str]:
    count = Counter(frozenset(each.split(",")) for each in listed)
    return [each for each in listed if each and count[frozenset(each.split(","))] == 1]


def other_tags(folder: Path) -> list[tuple[str, str]]:
    """Return the graph read by default, in words, with the tags of each further graph.

    The default is the graph that is read without `--tag`.
    """
    listed = [each for each, _ in _infos(folder)]
    choices = _choosable(listed)
    if "serve" in choices:
        return [("that of serve", other) for other in choices if other != "serve"]
    return [("the one without tags", other) for other in choices] if "" in listed else []


def _infos(path: Path) -> list[tuple[str, str]]:
    """Read tags and TensorFlow version of each MetaGraph of a checkpoint or SavedModel.

    Empty for text and for a graph alone.
    """
    saved, meta = path / "saved_model.pb", Path(f"{path}.meta")
    try:
        data = np.memmap(saved if saved.is_file() else meta, np.uint8, "r").data
        graphs = tables.contents(tables.fields(data), _META_GRAPHS) if saved.is_file() else [data]
        infos = [tables.fields(tables.content(tables.fields(graph), _INFO)) for graph in graphs]
        return [
            (",".join(map(_text, tables.contents(info, _TAGS))), _text(tables.content(info, _TENSORFLOW)))
            for info in infos
        ]
    except (OSError, ValueError):
        return []  # text, or a graph on its own: it records no version of TensorFlow


def _text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")


def _keras(path: Path) -> dict[str, str]:
    with hdf5.Store(path).open() as file:
        kept = {"keras": "keras_version", "backend": "backend"}
        return {name: hdf5.text(file.attrs[key]) for name, key in kept.items() if key in file.attrs}


_PROGRAM: Final = "cudnn-convert"
#: Suffixes of sources that are left out of OUT's name.
_SUFFIXES: Final = frozenset(
    ".ckpt .index .meta .pb .pbtxt .h5 .hdf5 .keras .weights .data-00000-of-00001 "
    ".npy .npz .safetensors .pt .pth .params .msgpack .model".split()
)
#: A source with one of these names needs its folder in front.
SUBCOMMANDS: Final = frozenset(
    "convert batch benchmark inspect map verify run record formats demo completion help".split()
)


_USUAL: Final = {field.name: field.default for field in fields(Options)}


def command(source: Path, options: Options) -> tuple[str, ...]:
    """Return the words `cudnn-convert SOURCE OUT --format F` with the flags of `options`.

    OUT is a new path in the current folder, or above a source that contains that.
    """
    words = (_PROGRAM, _word(str(source)), _word(str(_out(source, options.format))))
    return (*words, "--format", options.format, *flags(options))


def flags(options: Options) -> tuple[str, ...]:
    """Return the flags on the source with changed values, and `--no-verify`."""
    return list_flags(options, (*READING, *VOUCHED))


def _out(source: Path, form: str) -> Path:
    whole = Path(os.path.realpath(source))  # `resolve` raises for a link that leads to itself
    whole = whole.parent if whole.name in ("saved_model.pb", "saved_model.pbtxt") else whole
    stem = whole
    while stem.suffix in _SUFFIXES and stem.stem:
        stem = stem.with_suffix("")
    # An OUT inside of the source, or of the SavedModel that it is a file of, is refused.
    folders = (path.resolve() for path in paths.of(source) if path.is_dir())
    folder = next((path.parent for path in folders if Path.cwd().is_relative_to(path)), Path())
    suffix = FORMATS[form].suffix if FORMATS[form].has_layers else ""
    out, count = folder / f"{stem.name}_cpu{suffix}", 1
    while out.exists() or out.is_symlink():
        count += 1
        out = folder / f"{stem.name}_cpu_{count}{suffix}"
    return out


def _word(text: str) -> str:
    """Return a path as a word, unlike any flag or subcommand."""
    return f"./{text}" if text.startswith("-") or text in SUBCOMMANDS else text


#: Options that a source without a graph may leave to its user.
_CLAIMS: Final = ("mode", "layers", "units", "directions")
PORTABLE: Final = "portable already: nothing reaches a cuDNN op; --force-convert writes a copy all the same"


def build_inspection(
    source: Path,
    model: Model,
    *,
    runs_on_cpu: bool | None,
    recurrences: Iterable[InspectedRecurrence],
    signatures: Iterable[Offered],
    reasons: Sequence[str] = (),
    options: Options | None = None,
    gpu_ops: Sequence[str] = (),
) -> Inspection:
    """Return an inspection, with the command of `options` if any."""
    return Inspection(
        source=str(source),
        kind=model.kind,
        versions=library_versions(model),
        runs_on_cpu=runs_on_cpu,
        recurrences=tuple(recurrences),
        signatures=tuple(signatures),
        command=None if options is None else command(source, options),
        candidates=(),
        reasons=tuple(reasons),
        notes=model.notes,
        gpu_ops=tuple(gpu_ops),
    )


def with_alternatives(
    inspection: Inspection, source: Path, alternatives: Alternatives, options: Options
) -> Inspection:
    """Return the inspection with the command of the only alternative, or with all alternatives.

    One that claims something of the model, as its number of directions, is listed even if it is the only one:
    the user must say whether the claim is true.
    """
    choices = [replace(chosen, format=options.format) for chosen, _ in alternatives.plans]
    inspection = replace(inspection, reasons=alternatives.reasons)
    claims = any(getattr(chosen, name) != getattr(options, name) for chosen in choices for name in _CLAIMS)
    if len(choices) == 1 and not claims:
        return replace(inspection, command=command(source, choices[0]), notes=alternatives.plans[0][1].notes)
    listed = tuple(Alternative(flags(chosen), command(source, chosen)) for chosen in choices)
    return replace(inspection, candidates=listed)


def with_notes(inspection: Inspection, notes: Iterable[str]) -> Inspection:
    """Add notes to an inspection."""
    return replace(inspection, notes=(*inspection.notes, *notes))


Change = Mapping[str, Any]
_REPEATED: Final = frozenset({"inputs", "outputs", "set"})


def follow_remedies(reasons: Iterable[Reason], options: Options) -> list[Options]:
    """Apply the remedies of a refusal, except remedies in conflict with given options.

    Gives one set of options where each reason leaves one remedy, else one for each remedy of the first reason
    that leaves several.
    """
    choices = [_choices(reason, options) for reason in reasons]
    sure: dict[str, Any] = {}
    for (change,) in (changes for changes in choices if len(changes) == 1):
        sure = _merge(sure, change)
    several: Sequence[Change] = next((changes for changes in choices if len(changes) > 1), [{}])
    advised = (_apply(options, _merge(sure, change)) for change in several)
    return [changes for changes in advised if changes != options]


def _choices(reason: Reason, options: Options) -> list[Change]:
    """List the changes of options advised by a reason and left open by the options."""
    changes = (remedy.options for remedy in reason.remedies)
    open_changes = [change for change in changes if all(_is_open(options, *item) for item in change.items())]
    return [change for k, change in enumerate(open_changes) if change not in open_changes[:k]]


def _is_open(options: Options, name: str, value: Any) -> bool:
    """Return True if an option has the default or the given value.

    `set` is always open.
    """
    given = getattr(options, name)
    given = tuple(given) if isinstance(given, list) else given  # the command line has lists
    return name == "set" or given in (_USUAL[name], value)


def _merge(change: Change, more: Change) -> dict[str, Any]:
    """Return both changes, with the items of both for a repeated flag."""
    merged = {**change, **more}
    for name in _REPEATED & change.keys() & more.keys():
        merged[name] = tuple(dict.fromkeys((*change[name], *more[name])))
    return merged


def _apply(options: Options, change: Change) -> Options:
    given = {"set": tuple(options.set)} if "set" in change else {}
    return replace(options, **_merge(given, change))


#: How often remedies are applied, and how many are tried: a plan of a large graph takes seconds.
_DEPTH: Final = 4
_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The possible plans, each with the plan's options.

    `reasons`: why the given options are refused, if they are.
    """

    plans: tuple[tuple[Options, Plan], ...]
    reasons: tuple[Reason, ...] = ()


def plan_alternatives(model: Model, options: Options) -> Alternatives:
    """Plan a conversion by `options`, or by each change advised by a refusal.

    Raises UsageError for `options` and ReadError for the file, but no refusals.
    """
    return _try_plan(model, options, _DEPTH)


def _try_plan(model: Model, options: Options, depth: int) -> Alternatives:
    try:
        return Alternatives(((options, make_plan(model, options)),))
    except RefusalError as error:
        reasons = error.reasons
    except InvalidModelError as error:
        reasons = (Reason(f"{model.path}: {error}"),)
    plans: list[tuple[Options, Plan]] = []
    for advised in follow_remedies(reasons, options)[:_WIDTH] if depth else ():
        try:
            plans += _try_plan(model, advised, depth - 1).plans
        except (UsageError, ReadError):
            continue  # what one reason advises may not go with another's, or with half of the keys
    kept = {repr(tried): (tried, plan) for tried, plan in plans}
    return Alternatives(tuple(kept.values())[:_WIDTH], reasons)


#: The tokens at most of a search whose command is printed.
_STEPS: Final = 128


def _with_each(inspection: Inspection, streams: Callable[[InspectedRecurrence], bool | None]) -> Inspection:
    """Mark the streaming recurrences of an inspection."""
    recurrences = (replace(each, streams=streams(each)) for each in inspection.recurrences)
    return replace(inspection, recurrences=tuple(recurrences))


def with_streams(
    inspection: Inspection, source: Path, model: Model, tried: Alternatives, options: Options
) -> Inspection:
    """Return the inspection of a source with a graph, with the streaming parts.

    It is as it was where a choice is left.
    """
    if len(tried.plans) != 1 or not tried.plans[0][1].recurrences:
        return inspection
    from cudnn_convert.plan import decoding, streaming

    chosen, plan = tried.plans[0]
    chosen = replace(chosen, format=_format(options.format), states=True)
    obstacles = streaming.find_obstacles(plan, plan.recurrences)
    nodes = {recurrence.node: recurrence.node not in obstacles for recurrence in plan.recurrences}
    inspection = _with_each(inspection, lambda recurrence: nodes.get(recurrence.name))
    try:
        streamed = make_plan(model, chosen)
    except (RefusalError, UsageError, InvalidModelError) as error:
        reasons = getattr(error, "reasons", (str(error),))
        return replace(inspection, stream_reasons=tuple(map(str, reasons)))
    inspection = replace(inspection, stream_command=command(source, chosen))
    searching = replace(chosen, states=False, decode="beam", steps=_STEPS, format=_searchable(chosen.format))
    try:
        decoding.plan_decoder(streamed, searching)
    except (RefusalError, UsageError):
        return inspection  # which is no language model
    return replace(inspection, decode_command=command(source, searching))


def with_streams_of_weights(inspection: Inspection, source: Path, options: Options) -> Inspection:
    """Return the inspection of bare weights, with the streaming recurrences.

    The weights are those without a graph, each recurrence of which is a signature.
    """
    inspection = _with_each(
        inspection, lambda each: None if each.directions is None else each.directions == 1
    )
    if inspection.command is None or not all(each.streams for each in inspection.recurrences):
        return inspection
    words = inspection.command
    return replace(inspection, stream_command=words if options.states else (*words, "--states"))


def with_streams_of_layers(
    inspection: Inspection, source: Path, model: Architecture, options: Options
) -> Inspection:
    """Return the inspection of a Keras model, with the streaming layers."""
    entries = [entry for _, entry in layer_tree.walk(model.config)]
    around = {layer_tree.layer_name(entry): entry for entry in entries}

    def goes_on(recurrence: InspectedRecurrence) -> bool:
        return (
            recurrence.op in classes.CUDNN
            and recurrence.directions == 1
            and not recurrence.settings.get("go_backwards")
            and not any(_is_wrapped(part, around) for part in recurrence.name.split("/")[:-1])
        )

    inspection = _with_each(inspection, goes_on)
    streams = [recurrence.streams for recurrence in inspection.recurrences]
    is_ready = inspection.command is not None and options.verify
    if not is_ready or not streams or not all(streams):
        return inspection
    opened = [entry for _, entry in layer_tree.walk(layer_tree.with_open_steps(model.config))]
    if not all(map(_takes_each_step, entries)) or not _has_open_steps(opened):
        return inspection
    chosen = replace(options, format=_format(options.format), states=True)
    return replace(inspection, stream_command=command(source, chosen))


def _has_open_steps(entries: Sequence[Entry]) -> bool:
    """Return True if an input has an open or unknown number of steps.

    The number is unknown where no input says it.
    """
    configs = map(layer_tree.settings, entries)
    shapes = [values.shape(config.get("batch_input_shape", config.get("batch_shape"))) for config in configs]
    stated = [shape for shape in shapes if shape is not None and len(shape) > 1]
    return not stated or any(shape[1] is None for shape in stated)


def _format(form: str) -> str:
    """Return the format if fit for states as inputs and outputs, else the default."""
    return form if Keeps.STATES in FORMATS[form].keeps else "savedmodel"


def _searchable(form: str) -> str:
    """Return the format if fit for a search, else the default."""
    return form if "decode" in FORMATS[form].flags else "savedmodel"


def _is_wrapped(name: str, entries: Mapping[str, Entry]) -> bool:
    """Return True if `name` is of a TimeDistributed layer.

    Such a layer calls another for each step.
    """
    return name in entries and entries[name]["class_name"] == "TimeDistributed"


#: Layers that take each step of `[batch, time, features]` by itself, whatever their settings.
_STEPWISE: Final = frozenset(classes.CUDNN) | frozenset(
    "Sequential Functional Model InputLayer Dense Activation ReLU LeakyReLU PReLU ELU ThresholdedReLU "
    "Dropout SpatialDropout1D GaussianNoise GaussianDropout AlphaDropout TimeDistributed Add Multiply "
    "Subtract Average Maximum Minimum".split()
)
#: Others do with these settings, which are their usual ones.
_SETTINGS: Final[Mapping[str, tuple[str, tuple[Any, ...]]]] = {
    "Embedding": ("mask_zero", (None, False)),
    "BatchNormalization": ("axis", (None, -1, 2, [-1], [2])),
    "LayerNormalization": ("axis", (None, -1, 2, [-1], [2])),
    "Concatenate": ("axis", (None, -1, 2)),
    "Softmax": ("axis", (None, -1, 2)),
}


def _takes_each_step(entry: Entry) -> bool:
    name, config = str(entry["class_name"]), entry["config"]
    if name in _SETTINGS and isinstance(config, Mapping):
        key, usual = _SETTINGS[name]
        return config.get(key) in usual
    return name in _STEPWISE
