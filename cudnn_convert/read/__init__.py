"""Readers: one file per container, each with `recognise(path)` and `read`.

* checkpoint   : Reads TensorFlow 1 checkpoints: the tensors of a prefix and its MetaGraph.
* graph_def    : Reads frozen graphs, and what a MetaGraph and its assets say beside a graph.
* saved_model  : Reads SavedModels: `saved_model.pb` or `.pbtxt`, `variables/` and `assets/`.
* variable_keys: Finds under which key a checkpoint keeps a variable: partitions, restore ops.
* checks       : Checks a graph's names, functions, constants and attributes before anything follows them.
* unknown      : Says what a file or folder is that no reader takes, by its content, and what to do.
* paths        : Which files a given path stands for, and which links may be followed.
* hdf5         : Reads HDF5 files with bounds: no external links, no more memory than stored.
* keras_archive: Reads `.keras` archives and the weight groups of `.weights.h5` files.
* yaml_config  : Parses the YAML that older Keras wrote of a model's config, to the values that its JSON has.
* architecture_file: Reads a Keras model's config from its JSON or YAML, and pairs weights with its layers.
* keras_checkpoint: Reads what `save_weights` of TensorFlow 2 writes by default: a model's objects.
* keras_hdf5   : Reads Keras HDF5 files: whole models, or weights alone.
* dialects     : The dialects in which a checkpoint names weights that are no parameter blob.
* tensorbundle : Reads TensorFlow's checkpoint files of both formats without TensorFlow.

May import: text, errors, private, context, model, graph.index, graph.ops, keras.config, read.tensorbundle,
read.dialects.
Entry: `read`.
"""

import hashlib
import os
from pathlib import Path
from types import ModuleType
from typing import Final

from cudnn_convert import context
from cudnn_convert.errors import AmbiguousSourceError, ReadError, UsageError, name_access
from cudnn_convert.model import Model
from cudnn_convert.read import checkpoint, graph_def, keras_archive, keras_hdf5, paths, saved_model, unknown

READERS: Final[tuple[ModuleType, ...]] = (*(checkpoint, saved_model, graph_def), *(keras_hdf5, keras_archive))

_KINDS: Final = ", ".join(reader.KIND for reader in READERS)
_NOTHING: Final = "no such file or folder"
#: Bytes that are digested at a time.
_BLOCK: Final = 1 << 20


def read(path: Path, *, tag: str | None = None, trust: bool = False) -> Model:
    """Recognise the source at `path` by its content and read it.

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
    known = [(reader, recognised) for reader in READERS if (recognised := reader.recognise(path)) is not None]
    if len(known) > 1:
        kinds = " and ".join(f"a {reader.KIND}" for reader, _ in known)
        raise AmbiguousSourceError(path, [f"source: expected one model, found {kinds}; give a file of one"])
    for reader, recognised in known:
        if tag is not None and not reader.TAGS:
            raise UsageError(f"--tag: {path}: expected a SavedModel, found a {reader.KIND}")
        if reader is checkpoint:
            paths.refuse(path, paths.prefix_files(recognised.prefix), trust=trust)
        model: Model = reader.read(recognised, tag) if reader.TAGS else reader.read(recognised)
        paths.refuse(path, model.assets.values(), trust=trust)
        return model
    if not path.exists():
        raise _missing(path)
    what, advice = unknown.describe(path)
    raise ReadError(path, "source", expected=_KINDS, found=what, advice=advice)


def _missing(path: Path) -> ReadError:
    near = unknown.find_near(path)
    advice = f"did you mean {near}?" if near else "check the path"
    return ReadError(path, "source", expected=_KINDS, found=_NOTHING, advice=advice)


def is_model(path: Path) -> bool:
    """Whether a reader recognises what is at `path`, or the system lets none look at it.

    True also for what several readers recognise, or a damaged folder of checkpoints: `read` says more.
    """
    try:
        # The checkpoints' reader lists the whole folder of a file that it does not know.
        return any(reader.recognise(path) is not None for reader in reversed(READERS))
    except (ReadError, AmbiguousSourceError, OSError):
        return True


def takes_tag(path: Path) -> bool:
    """Whether a reader that knows tags recognises what is at `path`. Raises AccessError, ReadError."""
    with name_access(path):
        return any(reader.TAGS and reader.recognise(path) is not None for reader in READERS)


def files(path: Path) -> list[Path]:
    """The paths that belong to the model at `path`, `path` first. Raises AccessError."""
    with name_access(path):
        return paths.of(path)


def digest_files(path: Path) -> dict[str, str]:
    """The SHA-256 of each file of the model that was read at `path`, by its name in the model's folder.

    Raises AccessError.
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


def _list_digested(path: Path) -> set[Path]:
    """The files of a model: of a SavedModel's folder, or of a prefix."""
    if path.is_dir():
        named = (path / name for name in paths.MODEL_FILES)
        inner = (file for name in paths.FOLDERS for file in (path / name).rglob("*"))
        return {file for file in (*named, *inner) if file.is_file()}
    # A prefix may be the name of a file too, as of the checkpoints of the first format.
    return {*([path] if path.is_file() else []), *paths.prefix_files(path)}


def require(path: Path) -> None:
    """Check that a file of the source exists.

    Raises ReadError where there is none, AccessError where the system refuses to answer.
    """
    if not any(os.path.lexists(file) for file in files(path)):
        raise _missing(path)
