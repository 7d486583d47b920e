"""Reads TensorFlow 1 checkpoints: the tensors of a prefix, and the MetaGraph.

Written by `tf.train.Saver` (V1 format, TensorFlow 0.5-1.15; V2 format, 0.12-1.15), whole or sharded. The
MetaGraph `<prefix>.meta` is parsed as a proto and never imported or run: `import_meta_graph` fails on cuDNN
layers, and its restore subgraph has GPU-only ops. Without a `.meta` the model has no graph.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/training/checkpoint_management.py (the
`checkpoint` file, `meta_graph_filename`).

The text file `checkpoint` in a saver's folder names the latest checkpoint.
Source: tensorflow v1.15.0 python/training/checkpoint_state.proto, checkpoint_management.py
`get_checkpoint_state`.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, AmbiguousSourceError, ReadError, name_access
from cudnn_convert.model import CanonicalParameters, Checkpoint, Graphless, Model
from cudnn_convert.read import checks, dialects, graph_def, paths, tensorbundle, variable_keys
from cudnn_convert.read.dialects import keras

_PATH: Final = "model_checkpoint_path"


def latest(path: Path) -> str | None:
    """Return the prefix in a `checkpoint` file, unresolved.

    Returns None where it names none. Also None for a file of another kind. Raises OSError.
    """
    # A separate pool: TensorFlow registers its own CheckpointState in the default one.
    file = descriptor_pb2.FileDescriptorProto(name="checkpoint_state.proto", package="cudnn_convert")
    field = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="CheckpointState").field.add(
        name=_PATH, number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    state = message_factory.GetMessageClass(pool.FindMessageTypeByName("cudnn_convert.CheckpointState"))()
    try:
        text_format.Parse(path.read_text(encoding="utf-8"), state, allow_unknown_field=True)
    except (UnicodeDecodeError, RecursionError, text_format.ParseError):
        return None
    return str(getattr(state, _PATH)) or None


KIND: Final = "TensorFlow 1 checkpoint"
TAGS: Final = False
_GRAPHLESS: Final = "TensorFlow checkpoint without a graph"
_GRAPH: Final = "graph.pbtxt"
_CURE: Final = "put that file beside the checkpoint, or give the graph with --architecture"
_SUFFIXES: Final = frozenset({".index", ".meta"})
#: The prefix that Saver.save(..., global_step=...) writes.
_STEP: Final = re.compile(r"(?P<name>.+)-(?P<step>\d{1,18})")


@dataclass(frozen=True, slots=True)
class ChosenPrefix:
    """A checkpoint's prefix; `note` explains the choice where the user named a folder."""

    prefix: Path
    note: str | None = None


def recognise(path: Path) -> ChosenPrefix | None:
    """Find the checkpoint at `path`: a prefix, a file of a checkpoint, or a folder.

    A folder stands for its latest checkpoint. Raises AmbiguousSourceError for a folder of several without a
    `checkpoint` file.
    """
    prefixes = [*dict.fromkeys([path, paths.prefix(path)])]
    for prefix in prefixes:
        if any(Path(f"{prefix}{suffix}").is_file() for suffix in _SUFFIXES):
            return ChosenPrefix(prefix)
    for prefix in reversed(prefixes):  # a shard of V1 is a table too
        if tensorbundle.is_v1(prefix):
            return ChosenPrefix(prefix)
    return _latest(path) or _only(path)


def _latest(folder: Path) -> ChosenPrefix | None:
    """Find the latest checkpoint by a folder's `checkpoint` file, in or below the folder.

    Raises ReadError where it lies only elsewhere.
    """
    stated = latest(folder / "checkpoint") if (folder / "checkpoint").is_file() else None
    if stated is None:
        return None
    named = paths.prefix(folder / stated)
    # The file in a copied folder still names the original folder, by an absolute path.
    inside = folder / named.name
    is_own = _exists(named) and not (Path(stated).is_absolute() and _exists(inside))
    prefix = named if is_own else inside
    holder = prefix.parent.resolve()  # the checkpoint itself may be a link
    if folder.resolve() not in (holder, *holder.parents):
        expected, advice = "the latest in its own folder", "give that path itself"
        raise ReadError(folder / "checkpoint", "file", expected=expected, found=str(named), advice=advice)
    return ChosenPrefix(prefix, f"{prefix.name} taken, the latest that {folder / 'checkpoint'} names")


def _only(folder: Path) -> ChosenPrefix | None:
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index") if path.is_file())
    if len(prefixes) > 1:
        listed = ", ".join(prefix.name for prefix in prefixes)
        reason = f"checkpoints: expected one, or a file 'checkpoint' that names the latest, found {listed}"
        raise AmbiguousSourceError(folder, [f"{reason}; give one of them"])
    if not prefixes:
        return None
    return ChosenPrefix(prefixes[0], f"{prefixes[0].name} taken, the only checkpoint in {folder}")


def _exists(prefix: Path) -> bool:
    return tensorbundle.is_v2(prefix) or tensorbundle.is_v1(prefix)


def read(chosen: ChosenPrefix) -> Model:
    """Read a checkpoint; tensors stay in the files. Raises ReadError, AccessError."""
    prefix, notes = chosen.prefix, (chosen.note,) if chosen.note else ()
    path = Path(f"{prefix}.meta")
    meta = _meta_graph(path) if path.is_file() else None
    tensors = tensorbundle.tensors(prefix)
    parameters = dialects.find(prefix, tensors)
    if meta is None:
        plain = keras.describe_layers(tensors, parameters)
        hints = (*_of_other_steps(prefix), *_of_a_graph(prefix))
        return Model(
            prefix,
            _GRAPHLESS,
            None,
            tensors,
            parameters,
            notes=(*notes, *hints),
            plain=plain,
            graphless=Graphless(f"{prefix.name}.meta is missing", _CURE),
        )
    model = _with_meta_graph(prefix, meta, tensors, parameters)
    return replace(model, notes=(*notes, *model.notes))


def with_graph(model: Model, path: Path) -> Model:
    """Add the graph of a file to a graphless checkpoint.

    The file is a GraphDef, or the `.meta` of another checkpoint. `tf.train.write_graph` writes a GraphDef,
    which has the variables and names no checkpoint.
    Source: tensorflow v1.15.0 python/tools/freeze_graph.py, --input_graph and --input_checkpoint. Raises
    ReadError where the file is malformed, AccessError.
    """
    with name_access(path):
        meta = _meta_graph(path) if path.suffix == ".meta" else graph_def.as_meta_graph(path)
    return _with_meta_graph(model.path, meta, tensorbundle.tensors(model.path), model.canonical)


def _with_meta_graph(
    prefix: Path,
    meta: Any,
    tensors: Mapping[str, tensorbundle.CheckpointTensor],
    parameters: tuple[CanonicalParameters, ...],
) -> Model:
    restored = variable_keys.find(meta, tensors)
    values = {**tensors, **restored.values}
    variable_keys.name_handles(meta.graph_def, values)
    return Model(
        path=prefix,
        kind=KIND,
        graph=meta.graph_def,
        variables=values,
        keys=restored.keys,
        canonical=parameters,
        signatures=graph_def.signatures(meta),
        notes=restored.notes,
        assets=graph_def.beside(meta.graph_def, prefix.parent),
        initializers=graph_def.initializers(meta),
        checkpoint=Checkpoint(meta, prefix),
    )


def _of_a_graph(prefix: Path) -> tuple[str, ...]:
    """Return a note on a graph file beside the checkpoint.

    Estimators and sessions that save leave their graph in such a file.
    """
    path = prefix.parent / _GRAPH
    if not path.is_file():
        return ()
    reason = f"{prefix.name} has no .meta, {_GRAPH} lies beside it"
    return (f"{reason}: for the whole model, --architecture {path}",)


def _of_other_steps(prefix: Path) -> tuple[str, ...]:
    """Return a note on another training step's `.meta` where the checkpoint lacks a `.meta`."""
    step = _STEP.fullmatch(prefix.name)
    if step is None:
        return ()
    pattern = f"{escape(step['name'])}-*.meta"
    matches = ((_STEP.fullmatch(path.stem), path) for path in prefix.parent.glob(pattern))
    steps = {int(match["step"]): path for match, path in matches if match}
    if not steps:
        return ()
    # The nearest step before it, else the first after it, is the likeliest to be of the same graph.
    before = [number for number in steps if number < int(step["step"])]
    nearest = steps[max(before) if before else min(steps)]
    copy = shlex.join(["cp", str(nearest), f"{prefix}.meta"])
    return (f"{prefix.name} has no .meta, {nearest.name} lies beside it: for the whole model, {copy}",)


def _meta_graph(path: Path) -> Any:
    from tensorflow.core.protobuf import meta_graph_pb2

    meta = meta_graph_pb2.MetaGraphDef()
    try:
        meta.ParseFromString(path.read_bytes())
    except DecodeError as cause:
        actual, advice = "a damaged or incomplete one", f"{AGAIN}, or move it away to take the weights alone"
        raise ReadError(path, "file", expected="a MetaGraphDef", found=actual, advice=advice) from cause
    if not meta.graph_def.node:
        raise ReadError(path, "graph_def", expected="nodes", found="none", advice=AGAIN)
    checks.require(path, meta.graph_def)
    return meta
