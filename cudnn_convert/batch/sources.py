"""Finds models: paths, patterns, folders searched by content, rows of a manifest.

A path that is named is a model, whatever is there: its conversion says what is wrong with it. Of a folder or
a pattern what a reader recognises is one, and what is a damaged model by its name. The files of a model are
no models of their own: those of a SavedModel stand for its folder, those of a checkpoint for its prefix,
`graph.pbtxt` beside one for nothing.

A manifest has a model a line, in JSON Lines or CSV:

| field | content |
|---|---|
| `source` | the model; from the manifest's folder |
| `out` | its OUT below the folder of the batch; else it is named after `source` |
| `flags` | flags as on the command line, in one text or a list of words; each replaces the call's |
"""

import csv
import io
import json
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from cudnn_convert import read
from cudnn_convert.batch.results import RESULTS
from cudnn_convert.errors import AccessError, UsageError, name_access
from cudnn_convert.options import KINDS
from cudnn_convert.read import checkpoint, paths, saved_model, unknown
from cudnn_convert.storage import remote

#: What TensorFlow writes beside a checkpoint: tensorflow v2.21.0 python/training/basic_session_run_hooks.py
#: `CheckpointSaverHook`, `tf.io.write_graph(..., "graph.pbtxt")`.
_GRAPH: Final = "graph.pbtxt"
#: Suffixes of files of one model, which the name of an OUT does without.
_SUFFIXES: Final = frozenset({".pb", ".pbtxt", ".h5", ".hdf5", ".keras"})
#: Those that nothing but models and their weights have; `.pb` and `.pbtxt` may be messages of any kind.
_KERAS: Final = frozenset({".h5", ".hdf5", ".keras"})
#: Suffixes of files of arrays: models by their content alone, for others are data.
_ARRAYS: Final = frozenset({".npy", ".npz", ".safetensors", ".pt", ".pth", ".params", ".msgpack"})


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model: path, OUT and options.

    The path is as it was given or found; the OUT and the options are of a manifest's row.
    """

    path: Path
    out: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Bytes of its files where the search knows them.
    size: int | None = None


@dataclass(frozen=True, slots=True)
class FoundModels:
    """The models, sorted by path, the root folder of OUTs, and notes.

    OUTs are named from the root. The notes say what was left out.
    """

    sources: tuple[ModelEntry, ...]
    root: Path
    notes: tuple[str, ...] = ()


def find(
    words: Sequence[str], manifest: Path | None, rows: Iterable[ModelEntry], *, apart: Path
) -> FoundModels:
    """Find the models named by words, and add the rows of a manifest.

    `apart` is a folder that is not searched. The root is the lowest folder above all folders that were named,
    the manifest's among them, and all models. Raises UsageError for a word that gives no model.
    """
    by_path: dict[Path, ModelEntry] = {}
    roots = [] if manifest is None else [manifest.parent]
    notes: list[str] = []
    here = _absolute(apart)
    for word in words:
        remote.check(Path(word))
        if remote.address_of(Path(word)):
            root, models = _resolve_in_store(Path(word), here, notes)
        else:
            root, paths_of_models = _resolve(word, here, notes)
            models = [ModelEntry(path) for path in paths_of_models]
        roots.append(root)
        for model in models:
            by_path.setdefault(_absolute(model.path), model)
    several = [*by_path.values()]
    for row in rows:
        several.append(row)
        roots.append(row.path.parent)
    ordered = sorted(several, key=lambda source: (str(_absolute(source.path)), source.out or ""))
    root = Path(os.path.commonpath([*map(_absolute, roots)]) if roots else ".")
    return FoundModels(tuple(ordered), root, tuple(dict.fromkeys(notes)))


def _absolute(path: Path) -> Path:
    """Return the absolute path, with `..` resolved and links kept."""
    return Path(os.path.normpath(path.absolute()))


def _resolve(word: str, apart: Path, notes: list[str]) -> tuple[Path, list[Path]]:
    """Return the models of a word, and the folder for the relative OUTs."""
    path = Path(word)
    if has_magic(word) and not any(os.path.lexists(file) for file in read.files(path)):
        listed = glob(word, recursive=True)  # noqa: PTH207 - as a shell, without hidden files
        matches = [Path(match) for match in sorted(listed)]
        models = [model for match in matches for model in _search(match, apart, notes)]
        if not models:
            what = f"{len(matches)} files and folders without a model" if matches else "nothing"
            raise UsageError(
                f"{word}: expected a pattern that matches models, found {what}; check the pattern"
            )
        return _root_of_pattern(path), models
    if not path.is_dir() or saved_model.recognise(path):
        extra = [*_search(path, apart, notes)] if path.is_dir() else []
        return _absolute(path).parent, [_whole(path), *extra]
    models = [*_search(path, apart, notes)]
    if not models:
        raise UsageError(f"{word}: expected a model or a folder with models, found a folder without any")
    return path, models


def _resolve_in_store(word: Path, apart: Path, notes: list[str]) -> tuple[Path, list[ModelEntry]]:
    """Return the root and the models of an address, as `_resolve` does.

    Objects that are no model of a known name are left out.
    """
    if has_magic(str(word)):
        root = _root_of_pattern(word)
        matches = {paths.prefix(path) for path in remote.match(word)}
        every = _search_store(root, remote.list_below(root), apart, None)
        models = [model for model in every if _belongs(model.path, matches)]
        listed = len(matches)
    else:
        below = remote.list_below(word)
        if {"saved_model.pb", "saved_model.pbtxt", ""} & below.keys() or not below:
            return word.parent, [ModelEntry(word)]
        root, listed, models = word, len(below), [*_search_store(word, below, apart, notes)]
    if not models:
        what = f"{listed} objects without a model" if listed else "nothing"
        name = remote.name_of(word)
        raise UsageError(f"{name}: expected addresses of models, found {what}; check the address")
    return root, models


def _belongs(model: Path, matches: set[Path]) -> bool:
    """Return True if a pattern matches a model, a folder above, or a file inside."""
    return bool(matches & {model, *model.parents}) or any(path.is_relative_to(model) for path in matches)


def _search_store(
    root: Path, listed: Mapping[str, remote.Object], apart: Path, notes: list[str] | None
) -> Iterator[ModelEntry]:
    """Yield the models among the objects below an address, recognised by name.

    Older steps of checkpoints are left out with a note, unless `notes` is None.
    """
    folders: dict[str, dict[str, int]] = {}
    for name, entry in listed.items():
        above, _, own = name.rpartition("/")
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if not is_hidden and not _absolute(root / name).is_relative_to(apart):
            folders.setdefault(above, {})[own] = entry.size
    saved = {
        above for above, names in folders.items() if {"saved_model.pb", "saved_model.pbtxt"} & names.keys()
    }
    inner = tuple(f"{above}/{folder}/".lstrip("/") for above in saved for folder in paths.FOLDERS)
    for above, names in sorted(folders.items()):
        folder = root / above
        if above in saved:
            within = (sizes for other, sizes in folders.items() if f"{other}/".startswith(f"{above}/"))
            size = sum(size for sizes in within for size in sizes.values()) if above else None
            yield ModelEntry(folder, size=size)
        if inner and f"{above}/".startswith(inner):
            continue
        yield from _in_folder_of_store(folder, names, notes)


def _in_folder_of_store(
    folder: Path, names: Mapping[str, int], notes: list[str] | None
) -> Iterator[ModelEntry]:
    """Yield the models with objects directly in a folder of a store."""
    sizes: Counter[str] = Counter()
    for name, size in names.items():
        if name not in paths.MODEL_FILES:
            sizes[paths.prefix(Path(name)).name] += size
    prefixes = {name for name in sizes if f"{name}.index" in names or f"{name}.meta" in names}
    left_out = {_GRAPH} if prefixes else set()
    others = (name for name in sizes if PurePath(name).suffix.lower() in _SUFFIXES)
    candidates = [*prefixes, *(name for name in others if name not in left_out)]
    older: set[str] = set()
    if "checkpoint" in names and prefixes and notes is not None:
        with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as local:
            Path(local, "checkpoint").write_bytes(remote.read_bytes(folder / "checkpoint") or b"")
            older = _older_steps(Path(local), candidates)
            if older:
                notes.append(_note_of_older(remote.name_of(folder), older, candidates))
    for name in sorted({*candidates} - older):
        yield ModelEntry(folder / name, size=sizes[name])


def _note_of_older(folder: object, older: Collection[str], candidates: Collection[str]) -> str:
    listed = f"{len(older)} older steps of {len(candidates)} checkpoints"
    return f"{folder}: {listed} left out; name them, or give a pattern such as '{folder}/*.index'"


def _root_of_pattern(pattern: Path) -> Path:
    """Return the folders of a pattern above the first part with a wildcard."""
    parts = pattern.parts
    return Path(*parts[: next(k for k, part in enumerate(parts) if has_magic(part))])


def _search(path: Path, apart: Path, notes: list[str]) -> Iterator[Path]:
    """Yield the models at a path and below, in order.

    Links to folders are not followed.
    """
    if _absolute(path).is_relative_to(apart):
        return
    if not path.is_dir():
        if _is_wanted(whole := _whole(path)):
            yield whole
        return
    unreadable: list[Path] = []
    walk = os.walk(path, onerror=lambda error: unreadable.append(Path(error.filename)))
    for name, below, files in walk:
        folder = Path(name)
        is_saved = saved_model.recognise(folder) is not None
        inner = set(paths.FOLDERS) if is_saved else set()
        below[:] = sorted(
            other
            for other in below
            if not (other in inner or other.startswith(".") or _absolute(folder / other) == apart)
        )
        if is_saved:
            yield folder
        yield from _in_folder(folder, sorted(files), notes)
    yield from unreadable  # its conversion says why


def _in_folder(folder: Path, files: Sequence[str], notes: list[str]) -> Iterator[Path]:
    """Yield the models with files directly in a folder, except the folder's own SavedModel."""
    names = [name for name in files if name not in paths.MODEL_FILES and not name.startswith(".")]
    prefixes = {paths.prefix(Path(name)).name for name in names} - {*names}
    if prefixes:
        names = [name for name in names if name != _GRAPH]
    candidates = [*dict.fromkeys(paths.prefix(Path(name)).name for name in names)]
    older = _older_steps(folder, candidates) if "checkpoint" in files else set()
    if older:
        notes.append(_note_of_older(folder, older, candidates))
    for name in candidates:
        if name not in older and _is_wanted(folder / name):
            yield folder / name


def _is_wanted(path: Path) -> bool:
    """Return True if a path has a model or a damaged file of a model.

    Such a file is damaged, empty, or not fetched.
    """
    suffix = path.suffix.lower()
    damaged = suffix in _KERAS or (suffix in _SUFFIXES and unknown.is_placeholder(path))
    return damaged or read.is_model(path)


def _older_steps(folder: Path, prefixes: Iterable[str]) -> set[str]:
    """Return all steps but the latest of the checkpoint in a `checkpoint` file."""
    latest = PurePath(checkpoint.latest(folder / "checkpoint") or "").name
    if latest not in {*prefixes}:
        return set()
    start, dash, step = latest.rpartition("-")
    if not dash or not step.isdigit():
        return set()
    others = {prefix: prefix.rpartition("-") for prefix in prefixes if prefix != latest}
    return {prefix for prefix, (name, _, end) in others.items() if name == start and end.isdigit()}


def _whole(path: Path) -> Path:
    """Return the whole model of a file's path: a SavedModel's folder, a checkpoint's prefix."""
    return next(paths.find_saved_models(path), None) or paths.prefix(path)


@lru_cache(maxsize=4)
def _by_prefix(folder: Path, _: int) -> Mapping[str, tuple[Path, ...]]:
    """Return the files directly in a folder, by checkpoint prefix.

    They are as of the folder's last change.
    """
    listed: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            listed.setdefault(paths.prefix(path).name, []).append(path)
    return {name: tuple(files) for name, files in listed.items()}


def list_files(path: Path) -> list[Path]:
    """List the files of the model at a path, sorted. Raises OSError.

    They are the files of a prefix or of a folder. Of a folder that is no SavedModel, which stands for one of
    its checkpoints, those directly in it. None where there is no such model.
    """
    if saved_model.recognise(path) is not None:
        return sorted(file for file in path.rglob("*") if file.is_file())
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    return [*_by_prefix(path.parent, path.parent.stat().st_mtime_ns).get(path.name, ())]


def name_outputs(search: FoundModels) -> list[str]:
    """Return the OUT of each model below the batch's folder, with `/` between folders.

    It is the path from the root, without the suffix of a file where that is no other model's. A name that is
    taken, or that is a folder of others, gets a number. Raises UsageError where a manifest's `out` is taken.
    """
    given = [source.out for source in search.sources if source.out is not None]
    taken = {*map(_fold, given), RESULTS}
    if twice := [out for out, count in Counter([*map(_fold, given), RESULTS]).items() if count > 1]:
        raise UsageError(f"--manifest: expected an out of its own for each row, found {twice[0]} twice")
    whole = [
        os.path.relpath(_absolute(source.path), search.root).replace(os.sep, "/") for source in search.sources
    ]
    short = [_without_suffix(name) for name in whole]
    counts = Counter(map(_fold, short))
    names = [
        source.out or (name if counts[_fold(brief)] > 1 else brief)
        for source, name, brief in zip(search.sources, whole, short, strict=True)
    ]
    folders = {_fold(str(above)) for name in names for above in PurePath(name).parents}
    for k, source in enumerate(search.sources):
        if source.out is None:
            names[k] = _free(names[k], taken | folders)
            taken.add(_fold(names[k]))
        elif _fold(source.out) in folders:
            raise UsageError(
                f"--manifest: {source.out}: expected an out of its own, found the folder of another row's out"
            )
    return names


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while _fold(free) in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _fold(name: str) -> str:
    """Return a name as compared by case-insensitive file systems."""
    return name.casefold()


def _without_suffix(name: str) -> str:
    path = PurePath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in _SUFFIXES | _ARRAYS else name


_FIELDS: Final = ("source", "out", "flags")


def read_manifest(path: Path, read_flags: Callable[[Sequence[str]], Mapping[str, Any]]) -> list[ModelEntry]:
    """Read the rows of a manifest; `read_flags` makes options of the words of `flags`.

    Paths in it, those of flags too, are relative to its folder. Raises UsageError for a row that is not as
    above, AccessError where the file cannot be read.
    """
    try:
        text = _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise UsageError(f"--manifest: {path}: expected a text in UTF-8, found one that is not") from cause
    rows = _from_json(path, text) if text.lstrip()[:1] == "{" else _from_csv(path, text)
    sources = [_source(path, f"{path}:{line}", row, read_flags) for line, row in rows]
    if not sources:
        raise UsageError(f"--manifest: {path}: expected a model in each line, found no model")
    return sources


def _read_bytes(path: Path) -> bytes:
    """Return the content of a manifest, here or in a store. Raises AccessError."""
    if remote.address_of(path) is None:
        with name_access(path):
            return path.read_bytes()
    content = remote.read_bytes(path)
    if content is None:
        raise AccessError(remote.name_of(path), "nothing at this address")
    return content


def _beside(path: Path, name: Path) -> Path:
    """Return a path from the folder of a manifest.

    An address stays.
    """
    return name if remote.address_of(name) else path.parent / name


def _from_json(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as cause:
            raise UsageError(
                f"--manifest: {path}:{number}: expected a JSON object, found another text"
            ) from cause
        if not isinstance(row, dict):
            raise UsageError(f"--manifest: {path}:{number}: expected a JSON object, found {line[:40]}")
        yield number, row


def _from_csv(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        heads = [head.strip() for head in next(lines, [])]
        for cells in lines:
            if len(cells) > len(heads):
                most = f"{len(heads)} cell{'' if len(heads) == 1 else 's'}, as in the first line"
                what = f"expected at most {most}, found {len(cells)}; put a cell with commas in quotes"
                raise UsageError(f"--manifest: {path}:{lines.line_num}: {what}")
            if any(cells):
                yield lines.line_num, {head: cell for head, cell in zip(heads, cells, strict=False) if cell}
    except csv.Error as cause:
        raise UsageError(
            f"--manifest: {path}:{lines.line_num}: expected CSV, found an error: {cause}"
        ) from cause


def _source(
    path: Path, where: str, row: Mapping[str, Any], read_flags: Callable[[Sequence[str]], Mapping[str, Any]]
) -> ModelEntry:
    if unknown := row.keys() - {*_FIELDS}:
        actual = f"{sorted(map(str, unknown))[0]!r}"
        raise UsageError(f"--manifest: {where}: expected the fields {', '.join(_FIELDS)}, found {actual}")
    source, out = row.get("source"), row.get("out")
    if not isinstance(source, str) or not source:
        raise UsageError(f"--manifest: {where}: expected a path as source, found {source!r}")
    if out is not None and not _is_below(out):
        actual = f"{out!r}; leave it out, or name a path in that folder without .."
        raise UsageError(f"--manifest: {where}: expected an out inside the batch's folder, found {actual}")
    words = _words(where, row.get("flags", []))
    try:
        options = read_flags(words)
    except UsageError as cause:
        raise UsageError(f"--manifest: {where}: {cause}") from cause
    files = {name: _beside(path, value) for name, value in options.items() if KINDS[name] is Path}
    own = None if out is None else str(PurePosixPath(out))
    return ModelEntry(_beside(path, Path(source)), own, {**options, **files})


def _is_below(out: Any) -> bool:
    """Return True if an `out` is a relative path inside the folder."""
    parts = PurePosixPath(out).parts if isinstance(out, str) else ()
    return bool(parts) and ".." not in parts and not PurePosixPath(out).is_absolute()


def _words(where: str, flags: Any) -> list[str]:
    if isinstance(flags, str):
        try:
            return shlex.split(flags)
        except ValueError as cause:
            raise UsageError(
                f"--manifest: {where}: flags: expected words as in a shell, found an error: {cause}"
            ) from cause
    if isinstance(flags, list) and all(isinstance(word, str) for word in flags):
        return flags
    raise UsageError(f"--manifest: {where}: flags: expected a text or a list of texts, found {flags!r}")
