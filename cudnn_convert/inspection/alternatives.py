"""The commands that convert a source, planned as a conversion plans them.

Where planning refuses, the remedies of its reasons are applied to the options and planned in turn. An
inspection has one command where one alternative is left, all of them where the user must choose, else the
reasons.

Versions and tags are read without parsing a proto. Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto
(MetaGraphDef.meta_info_def = 1, MetaInfoDef's tags = 4, tensorflow_version = 5), saved_model.proto
(SavedModel.meta_graphs = 2).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import InvalidModelError, ReadError, Reason, RefusalError, UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.inspection.result import Alternative, InspectedRecurrence, Inspection, Offered
from cudnn_convert.model import KerasFile, Model
from cudnn_convert.options import READING, VOUCHED, Options, list_flags
from cudnn_convert.plan import Plan, prepare
from cudnn_convert.read import hdf5, paths
from cudnn_convert.read.tensorbundle import tables

_META_GRAPHS: Final = 2
_INFO: Final = 1
_TAGS: Final = 4
_TENSORFLOW: Final = 5


def library_versions(model: Model) -> dict[str, str]:
    """Read the versions by name: `tensorflow`, `graph` (the producer's number), `keras`, `backend`."""
    versions: dict[str, str] = {}
    if model.architecture is not None:
        versions = {"keras": model.architecture.keras_version, "backend": model.architecture.backend}
    elif model.keras is KerasFile.HDF5:
        versions = _keras(model.path)
    elif model.graph is not None:
        infos = [info for _, info in _infos(model.path)]
        versions = {"tensorflow": ", ".join(dict.fromkeys(info for info in infos if info))}
        versions["graph"] = str(model.graph.versions.producer or "")
    return {name: version for name, version in versions.items() if version}


def tags(folder: Path) -> list[str]:
    """List the tags of a SavedModel's graphs that `--tag` can choose, comma-separated."""
    count = Counter(frozenset(listed.split(",")) for listed, _ in _infos(folder))
    return [listed for listed, _ in _infos(folder) if listed and count[frozenset(listed.split(","))] == 1]


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
    ".ckpt .index .meta .pb .pbtxt .h5 .hdf5 .keras .weights .data-00000-of-00001".split()
)
#: A source with one of these names needs its folder in front.
SUBCOMMANDS: Final = frozenset("batch benchmark inspect map verify run record formats completion".split())


_USUAL: Final = {field.name: field.default for field in fields(Options)}


def command(source: Path, options: Options) -> tuple[str, ...]:
    """Return the words `cudnn-convert SOURCE OUT --format F` with the flags of `options`.

    OUT is a new path in the current folder, or above a source that contains that.
    """
    words = (_PROGRAM, _word(str(source)), _word(str(_out(source, options.format))))
    return (*words, "--format", options.format, *flags(options))


def flags(options: Options) -> tuple[str, ...]:
    """Return the flags on the source that differ from the defaults, and `--no-verify`."""
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
    suffix = FORMATS[form].suffix or "" if FORMATS[form].layers else ""
    out, count = folder / f"{stem.name}_cpu{suffix}", 1
    while out.exists() or out.is_symlink():
        count += 1
        out = folder / f"{stem.name}_cpu_{count}{suffix}"
    return out


def _word(text: str) -> str:
    """A path that is neither a flag nor a subcommand."""
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
) -> Inspection:
    """An inspection, with the command of `options` where there are any."""
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
    )


def with_alternatives(
    inspection: Inspection, source: Path, alternatives: Alternatives, options: Options
) -> Inspection:
    """The inspection with the command of the only alternative, or with all alternatives.

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
    """Apply the remedies of a refusal, except those that contradict given options.

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
    """List the changes of options that a reason advises, and the options leave open."""
    changes = (remedy.options for remedy in reason.remedies)
    open_changes = [change for change in changes if all(_is_open(options, *item) for item in change.items())]
    return [change for k, change in enumerate(open_changes) if change not in open_changes[:k]]


def _is_open(options: Options, name: str, value: Any) -> bool:
    """Whether an option is at its default or has this value; `set` is always open."""
    given = getattr(options, name)
    given = tuple(given) if isinstance(given, list) else given  # the command line has lists
    return name == "set" or given in (_USUAL[name], value)


def _merge(change: Change, more: Change) -> dict[str, Any]:
    """Both changes; a repeated flag has the items of both."""
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
    """The possible plans, each with its options.

    `reasons`: why the given options are refused, if they are.
    """

    plans: tuple[tuple[Options, Plan], ...]
    reasons: tuple[Reason, ...] = ()


def plan_alternatives(model: Model, options: Options) -> Alternatives:
    """Plan a conversion by `options`, or by each of the changes that a refusal advises.

    Raises UsageError for `options` and ReadError for the file, but no refusals.
    """
    return _try_plan(model, options, _DEPTH)


def _try_plan(model: Model, options: Options, depth: int) -> Alternatives:
    try:
        return Alternatives(((options, prepare.make_plan(model, options)),))
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
