"""Readers: a file per container, each with `recognise(path)` and `read`.

* checkpoint   : Reads TensorFlow 1 checkpoints: the tensors of a prefix, and the MetaGraph.
* graph_def    : Reads frozen graphs, and a MetaGraph's signatures, initializers and assets.
* saved_model  : Reads SavedModels: `saved_model.pb` or `.pbtxt`, `variables/` and `assets/`.
* variable_keys: Finds a variable's key in a checkpoint: partitions, restore ops.
* checks       : Checks a graph's names, functions, constants and attributes before any use.
* unknown      : Describes files and folders unknown to all readers, with advice.
* paths        : The files behind a given path, and the links allowed.
* hdf5         : Reads HDF5 files with bounds: internal links only, and memory limited by stored bytes.
* keras_archive: Reads `.keras` archives and the weight groups of `.weights.h5` files.
* yaml_config  : Parses the YAML of older Keras for a model's config to JSON values.
* architecture_file: Reads a Keras model's config from JSON or YAML, and pairs weights with layers.
* keras_checkpoint: Reads a model's objects, the default of TensorFlow 2's `save_weights`.
* keras_hdf5   : Reads Keras HDF5 files: whole models, or weights alone.
* dialects     : The dialects for weights in a file, parameter blobs excepted.
* arrays       : Readers of arrays: files of weights from any framework, without a graph.
* tensorbundle : Reads TensorFlow's checkpoint files of both formats, independent of TensorFlow.

May import: text, errors, private, context, model, graph.index, graph.ops, keras.config, read.tensorbundle,
read.dialects, read.arrays.
Entry: `read`.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.errors import (
    AmbiguousSourceError,
    MissingDependencyError,
    ReadError,
    UsageError,
    name_access,
)
from cudnn_convert.model import Model
from cudnn_convert.read import (
    arrays,
    checkpoint,
    graph_def,
    keras_archive,
    keras_hdf5,
    paths,
    saved_model,
    unknown,
)
from cudnn_convert.read.arrays.containers import ArrayFiles

#: Readers of models, and behind them those of arrays, which know only what no other reader knows: a model's
#: folder may hold arrays, and an archive of a model may be one of arrays too.
READERS: Final[tuple[ModuleType, ...]] = (*(checkpoint, saved_model, graph_def), *(keras_hdf5, keras_archive))

_KINDS: Final = f"{', '.join(f'a {reader.KIND}' for reader in READERS)} or a file of arrays"
_NOTHING: Final = "no such file or folder"
#: Bytes that are digested at a time.
_BLOCK: Final = 1 << 20


def read(path: Path, *, tag: str | None = None, trust: bool = False) -> Model:
    """Recognise the source at `path` by content, and read the source.

    `tag` chooses the MetaGraph of a SavedModel. With `trust`, links may lead out of the model's folder.
    Raises ReadError where no reader recognises the source, AmbiguousSourceError where several do, AccessError
    where the system refuses, UsageError for a `tag` that does not apply.
    """
    with name_access(path):
        return _recognise(path, tag, trust)


def _recognise(path: Path, tag: str | None, trust: bool) -> Model:
    paths.refuse(path, trust=trust)
    unknown.refuse_part(path)
    unknown.refuse_pointers(paths.of(path))
    known = _ask(READERS, path) or _ask(arrays.READERS, path)
    if len(known) > 1:
        kinds = " and ".join(f"a {reader.KIND}" for reader, _ in known)
        raise AmbiguousSourceError(
            path, [f"source: expected one model, found {kinds}; give the file of one of them"]
        )
    for reader, recognised in known:
        if tag is not None and not reader.TAGS:
            raise UsageError(f"--tag: {path}: expected a SavedModel, found a {reader.KIND}")
        if reader is checkpoint:
            paths.refuse(path, paths.prefix_files(recognised.prefix), trust=trust)
        if isinstance(recognised, ArrayFiles):
            paths.refuse(path, recognised.files, trust=trust)
        model: Model = reader.read(recognised, tag) if reader.TAGS else reader.read(recognised)
        paths.refuse(path, model.assets.values(), trust=trust)
        return model
    if not path.exists():
        raise _missing(path)
    what, advice = unknown.describe(path)
    raise ReadError(path, "source", expected=_KINDS, found=what, advice=advice)


def _ask(readers: Sequence[ModuleType], path: Path) -> list[tuple[ModuleType, Any]]:
    """Return the readers that know the source, each with what it recognised."""
    asked = ((reader, reader.recognise(path)) for reader in readers)
    return [(reader, recognised) for reader, recognised in asked if recognised is not None]


def _missing(path: Path) -> ReadError:
    near = unknown.find_near(path)
    advice = f"did you mean {near}?" if near else "check the path"
    return ReadError(path, "source", expected=_KINDS, found=_NOTHING, advice=advice)


def is_model(path: Path) -> bool:
    """Return True if a reader recognises a model at `path`.

    Arrays are one where a recurrence in them has a known name, or sizes that the file states: others may be a
    model's data. True also where the system lets none look at it, for what several readers recognise, and for
    a damaged folder of checkpoints: `read` says more.
    """
    try:
        # The checkpoints' reader lists the whole folder of a file that it does not know.
        if any(reader.recognise(path) is not None for reader in reversed(READERS)):
            return True
        models = (reader.read(files) for reader, files in _ask(arrays.READERS, path))
        return any(_has_recurrence(model) for model in models)
    except (ReadError, AmbiguousSourceError, MissingDependencyError, OSError, MemoryError):
        return True


def _has_recurrence(model: Model) -> bool:
    """Return True if names or stated sizes leave no doubt about a recurrence."""
    is_named = any(not parameters.may_be_dense for parameters in model.canonical)
    return is_named or any(sizes.units is not None for sizes in model.blobs.values())


def takes_tag(path: Path) -> bool:
    """Return True if a reader of tags recognises the source. Raises AccessError, ReadError."""
    with name_access(path):
        return any(reader.TAGS and reader.recognise(path) is not None for reader in READERS)


def files(path: Path) -> list[Path]:
    """Return the paths of the model at `path`, `path` first. Raises AccessError."""
    with name_access(path):
        return [*paths.of(path), *_array_files(path)]


def digest_files(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the model read at `path`.

    Keys are names in the model's folder. Raises AccessError.
    """
    with name_access(path):
        files, root = sorted(_list_digested(path)), path if path.is_dir() else path.parent
        total = sum(file.stat().st_size for file in files)
        digests: dict[str, str] = {}
        done = 0
        for file in files:
            digest = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
                    done += len(block)
                    context.report_progress("digesting", done, total)
            digests[file.relative_to(root).as_posix()] = digest.hexdigest()
    return digests


def _array_files(path: Path) -> list[Path]:
    """List the files of a source of arrays, with those beside a file."""
    if not (path.is_dir() or path.is_file()) or _ask(READERS, path):
        return []
    return [file for _, files in _ask(arrays.READERS, path) for file in files.files]


def _list_digested(path: Path) -> set[Path]:
    """List the files of a model: of a SavedModel's folder, or of a prefix."""
    if path.is_dir():
        named = (path / name for name in paths.MODEL_FILES)
        inner = (file for name in paths.FOLDERS for file in (path / name).rglob("*"))
        return {file for file in (*named, *inner, *_array_files(path)) if file.is_file()}
    # A prefix may be the name of a file too, as of the checkpoints of the first format.
    return {*([path] if path.is_file() else []), *paths.prefix_files(path), *_array_files(path)}


def require(path: Path) -> None:
    """Check that a file of the source exists.

    Raises ReadError where there is none, AccessError where the system refuses to answer.
    """
    if not any(os.path.lexists(file) for file in files(path)):
        raise _missing(path)
