"""The commands that convert a source, planned as a conversion plans them.

The versions that a source records, and the tags of a SavedModel's graphs; no proto is parsed for it.

Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto (MetaGraphDef.meta_info_def = 1, MetaInfoDef's
tags = 4, tensorflow_version = 5), saved_model.proto (SavedModel.meta_graphs = 2).

The command that converts a source, in words, with a name for OUT that nothing has yet.

The inspection itself: one command where one way is left, every way where a choice is, else the reasons.

From what a refusal advises to the options that follow it.

A refusal says what to do in the words of the command line: `turn it off with --set rate:0=0`, `choose with
--weights canonical or --weights raw`. Here that is taken at its word; whether it helps, planning says.

The ways to convert a model: planned as a conversion plans it, and where that refuses, as it advises.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import InvalidModelError, ReadError, RefusalError, UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.inspection.result import Found, Inspection, Offered, Way
from cudnn_convert.model import KerasFile, Mode, Model
from cudnn_convert.options import READING, VOUCHED, Options
from cudnn_convert.plan import Plan, prepare
from cudnn_convert.read import hdf5, paths
from cudnn_convert.read.tensorbundle import tables

_META_GRAPHS: Final = 2
_INFO: Final = 1
_TAGS: Final = 4
_TENSORFLOW: Final = 5


def library_versions(model: Model) -> dict[str, str]:
    """By name: `tensorflow`, `graph` (the producer's number), `keras`, `backend`; none that is not there."""
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
    """The tags of each graph of a SavedModel that `--tag` can choose, with commas, as it takes them."""
    count = Counter(frozenset(listed.split(",")) for listed, _ in _infos(folder))
    return [listed for listed, _ in _infos(folder) if listed and count[frozenset(listed.split(","))] == 1]


def _infos(path: Path) -> list[tuple[str, str]]:
    """The tags and the version of TensorFlow of each MetaGraph of a checkpoint or a binary SavedModel."""
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
#: Endings of sources that OUT's name does without.
_SUFFIXES: Final = frozenset(
    ".ckpt .index .meta .pb .pbtxt .h5 .hdf5 .keras .weights .data-00000-of-00001".split()
)
#: What a file of that name has to be called by its folder for.
SUBCOMMANDS: Final = frozenset({"inspect", "map", "verify", "record", "formats"})


def command(source: Path, options: Options) -> tuple[str, ...]:
    """`cudnn-convert SOURCE OUT --format F` with the flags of `options`; OUT lies in the current folder."""
    words = (_PROGRAM, _word(str(source)), _word(str(_out(source, options.format))))
    return (*words, "--format", options.format, *flags(options))


def flags(options: Options) -> tuple[str, ...]:
    """The flags that say how the source is read, where that is not the usual way."""
    usual = {field.name: field.default for field in fields(Options)}
    words: list[str] = []
    for name in (*READING, *VOUCHED):
        flag, value = f"--{name.replace('_', '-')}", getattr(options, name)
        if value is True:
            words.append(flag)
        elif isinstance(value, tuple | list):
            words += [f"{flag}={item}" for item in value]
        elif value != usual[name]:
            words.append(f"{flag}={value:g}" if isinstance(value, float) else f"{flag}={value}")
    return (*words, *(() if options.verify else ("--no-verify",)))


def _out(source: Path, form: str) -> Path:
    whole = Path(os.path.realpath(source))  # `resolve` raises for a link that leads to itself
    whole = whole.parent if whole.name in ("saved_model.pb", "saved_model.pbtxt") else whole
    stem = whole
    while stem.suffix in _SUFFIXES and stem.stem:
        stem = stem.with_suffix("")
    # An OUT inside of the source, or of the SavedModel that it is a file of, is refused.
    folders = (path.resolve() for path in paths.of(source) if path.is_dir())
    folder = next(
        (whole_folder.parent for whole_folder in folders if Path.cwd().is_relative_to(whole_folder)),
        Path(),
    )
    suffix = FORMATS[form].suffix or "" if FORMATS[form].layers else ""
    out, count = folder / f"{stem.name}_cpu{suffix}", 1
    while out.exists() or out.is_symlink():
        count += 1
        out = folder / f"{stem.name}_cpu_{count}{suffix}"
    return out


def _word(text: str) -> str:
    """A path that is neither a flag nor a subcommand."""
    return f"./{text}" if text.startswith("-") or text in SUBCOMMANDS else text


#: What a source without a graph may leave to its user.
_CLAIMS: Final = ("mode", "layers", "units", "directions")
PORTABLE: Final = "portable already: nothing reaches a cuDNN op; --force-convert writes a copy all the same"


def build_inspection(
    source: Path,
    model: Model,
    *,
    runs_on_cpu: bool | None,
    recurrences: Iterable[Found],
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


def with_ways(inspection: Inspection, source: Path, ways: Ways, options: Options) -> Inspection:
    """The inspection with the command of the only way, or with all ways.

    A way that says something of the model, as its number of directions, is never the only one: whoever
    knows the model must say whether that is so.
    """
    found_ways = [replace(given, format=options.format) for given, _ in ways.plans]
    inspection = replace(inspection, reasons=ways.reasons)
    claims = any(getattr(given, name) != getattr(options, name) for given in found_ways for name in _CLAIMS)
    if len(found_ways) == 1 and not claims:
        return replace(inspection, command=command(source, found_ways[0]), notes=ways.plans[0][1].notes)
    listed = tuple(Way(flags(given), command(source, given)) for given in found_ways)
    return replace(inspection, candidates=listed)


def with_notes(inspection: Inspection, notes: Iterable[str]) -> Inspection:
    """The inspection with more to tell."""
    return replace(inspection, notes=(*inspection.notes, *notes))


#: What is said of canonical keys of TensorFlow before 1.4, whose other half is in the blob.
_HALF: Final = "half of a bidirectional layer"
#: Between the ways of a refusal that has several.
_BETWEEN: Final = re.compile(r";| \| | or |, else |: ")
_FLAG: Final = re.compile(r"--([a-z][a-z-]*)(?:[ =]('[^']*'|[^\s;|()]+))?")
#: A word that stands for a value that only the user knows.
_STANDS_IN: Final = re.compile(r"[A-Z]+|--.*")
_REPEATED: Final = frozenset({"inputs", "outputs", "set"})
_NUMBERS: Final = frozenset({"layers", "units", "directions"})

Change = Mapping[str, Any]


def follow_remedies(reasons: Sequence[str], model: Model, options: Options) -> list[Options]:
    """The options that the reasons of a refusal lead to: one set where each reason leaves one way, else one
    for each way of the first reason that leaves several. None that contradict what was said already.
    """
    ways = [changes for reason in reasons if (changes := _ways(reason, model, options))]
    sure: dict[str, Any] = {}
    for (change,) in (changes for changes in ways if len(changes) == 1):
        sure = _merge(sure, change)
    several: Sequence[Change] = next((changes for changes in ways if len(changes) > 1), [{}])
    advised = (_apply(options, _merge(sure, change)) for change in several)
    return [changes for changes in advised if changes != options]


def _ways(reason: str, model: Model, options: Options) -> list[Change]:
    """The ways that one reason names, each a change of options."""
    if "--units N" in reason and options.units is None:
        units = dict.fromkeys(parameters.units for parameters in model.canonical if parameters.may_be_dense)
        return [{"mode": Mode.LSTM.value, "units": count} for count in units]
    if _HALF in reason and options.directions is None and options.mode is None:
        # Half of the pseudo-layers are there, and so all layers: their blob may have any name.
        halves = (
            (mode, parameters)
            for parameters in model.canonical
            if parameters.may_be_half
            for mode in parameters.modes
        )
        whole = [
            {"mode": mode.value, "layers": parameters.layers, "units": parameters.units}
            for mode, parameters in halves
        ]
        return [{"directions": 1}, *({**sizes, "directions": 2} for sizes in whole)]
    changes: list[Change] = []
    for part in _BETWEEN.split(reason):
        change = dict(_read_flags(part))
        if change and change not in changes and all(_is_open(options, *sizes) for sizes in change.items()):
            changes.append(change)
    if not changes and "--signature" in reason and options.signature is None:
        return [{"signature": key} for key in model.signatures]
    return changes


def _read_flags(part: str) -> Iterator[tuple[str, Any]]:
    for flag, text in _FLAG.findall(part):
        name, value = flag.replace("-", "_"), text.rstrip(",").strip("'")
        if name not in READING or not value or _STANDS_IN.fullmatch(value.rpartition("=")[2]):
            continue
        if name in _REPEATED:
            yield name, (value,)
        elif name in _NUMBERS:
            if value.isdigit():
                yield name, int(value)
        else:
            yield name, float(value) if name == "forget_bias" else value


def _is_open(options: Options, name: str, value: Any) -> bool:
    """Whether nothing else was said; constants add up."""
    usual = next(field.default for field in fields(Options) if field.name == name)
    given = getattr(options, name)
    given = tuple(given) if isinstance(given, list) else given  # the command line has lists
    return name == "set" or given in (usual, value)


def _merge(change: Change, more: Change) -> dict[str, Any]:
    """Both changes; a repeated flag has the items of both."""
    merged = {**change, **more}
    for name in _REPEATED & change.keys() & more.keys():
        merged[name] = tuple(dict.fromkeys((*change[name], *more[name])))
    return merged


def _apply(options: Options, change: Change) -> Options:
    given = {"set": tuple(options.set)} if "set" in change else {}
    return replace(options, **_merge(given, change))


#: How often advice is followed, and how many ways are tried: a plan of a large graph takes seconds.
_DEPTH: Final = 4
_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class Ways:
    """The plans that are possible, each with its options; the reasons where the given options refuse."""

    plans: tuple[tuple[Options, Plan], ...]
    reasons: tuple[str, ...] = ()


def plan_alternatives(model: Model, options: Options) -> Ways:
    """Every way to plan a model's conversion by `options`, or by what a refusal of them advises.

    Raises what planning raises but for refusals: UsageError for `options`, ReadError for the file.
    """
    return _try_plan(model, options, _DEPTH)


def _try_plan(model: Model, options: Options, depth: int) -> Ways:
    try:
        return Ways(((options, prepare.make_plan(model, options)),))
    except RefusalError as error:
        reasons = error.reasons
    except InvalidModelError as error:
        reasons = (f"{model.path}: {error}",)
    plans: list[tuple[Options, Plan]] = []
    for advised in follow_remedies(reasons, model, options)[:_WIDTH] if depth else ():
        try:
            plans += _try_plan(model, advised, depth - 1).plans
        except (UsageError, ReadError):
            continue  # what one reason advises may not go with another's, or with half of the keys
    kept = {repr(tried): (tried, plan) for tried, plan in plans}
    return Ways(tuple(kept.values())[:_WIDTH], reasons)
