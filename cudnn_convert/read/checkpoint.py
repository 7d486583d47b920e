"""TensorFlow 1 checkpoints: the tensors of a prefix, and the MetaGraph `<prefix>.meta` beside them.

Written by `tf.train.Saver` (V1 format, TensorFlow 0.5-1.15; V2 format, 0.12-1.15), whole or sharded. The
MetaGraph is parsed as a proto and never imported or run: `import_meta_graph` fails on cuDNN layers, and its
restore subgraph has GPU-only ops. Without a `.meta` the model has no graph.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/training/checkpoint_management.py (the
`checkpoint` file, `meta_graph_filename`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, AmbiguousSourceError, ReadError
from cudnn_convert.model import Model
from cudnn_convert.read import (
    assets,
    bundle,
    canonical,
    checkpoint_state,
    extent,
    graphs,
    meta_graph,
    partitions,
)

KIND: Final = "TensorFlow 1 checkpoint"
TAGS: Final = False
_GRAPHLESS: Final = "TensorFlow checkpoint without a graph"
_SUFFIXES: Final = frozenset({".index", ".meta"})


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint's prefix, and how it was chosen where the user named something else."""

    prefix: Path
    note: str | None = None


def recognise(path: Path) -> Found | None:
    """The checkpoint that `path` names by its prefix or by one of its files, or the latest of a folder.

    Raises AmbiguousSourceError for a folder of several that says nothing of them.
    """
    prefixes = [*dict.fromkeys([path, extent.prefix(path)])]
    for prefix in prefixes:
        if any(Path(f"{prefix}{suffix}").is_file() for suffix in _SUFFIXES):
            return Found(prefix)
    for prefix in reversed(prefixes):  # one file of a sharded V1 is a table as a whole one is
        if bundle.is_v1(prefix):
            return Found(prefix)
    return _latest(path) or _only(path)


def _latest(folder: Path) -> Found | None:
    """The newest checkpoint that a folder's `checkpoint` file names: the one in it, else one below it.

    Raises ReadError where there is only one elsewhere: nobody asked for that.
    """
    stated = checkpoint_state.latest(folder / "checkpoint") if (folder / "checkpoint").is_file() else None
    if stated is None:
        return None
    named = extent.prefix(folder / stated)
    # A folder that was copied still names the place it came from.
    inside = folder / named.name
    prefix = named if _exists(named) and not _exists(inside) else inside
    holder = prefix.parent.resolve()  # the checkpoint itself may be a link
    if folder.resolve() not in (holder, *holder.parents):
        expected, advice = "the latest in its own folder", "give that path itself"
        raise ReadError(folder / "checkpoint", "file", expected=expected, found=str(named), advice=advice)
    return Found(prefix, f"{prefix.name} taken, the latest that {folder / 'checkpoint'} names")


def _only(folder: Path) -> Found | None:
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index") if path.is_file())
    if len(prefixes) > 1:
        listed = ", ".join(prefix.name for prefix in prefixes)
        reason = f"checkpoints: expected one, or a file 'checkpoint' that names the latest, found {listed}"
        raise AmbiguousSourceError(folder, [f"{reason}; give one of them"])
    if not prefixes:
        return None
    return Found(prefixes[0], f"{prefixes[0].name} taken, the only checkpoint in {folder}")


def _exists(prefix: Path) -> bool:
    return bundle.is_v2(prefix) or bundle.is_v1(prefix)


def read(found: Found) -> Model:
    """The model of a checkpoint; tensors stay in their files. Raises ReadError, AccessError."""
    prefix, notes = found.prefix, (found.note,) if found.note else ()
    meta = _meta_graph(prefix)
    tensors = bundle.tensors(prefix)
    parameters = canonical.find(prefix, tensors)
    if meta is None:
        return Model(prefix, _GRAPHLESS, None, tensors, parameters, notes=notes)
    return Model(
        path=prefix,
        kind=KIND,
        graph=meta.graph_def,
        variables={**tensors, **partitions.find(meta, tensors)},
        canonical=parameters,
        signatures=meta_graph.signatures(meta),
        notes=notes,
        assets=assets.beside(meta.graph_def, prefix.parent),
        initializers=meta_graph.initializers(meta),
    )


def _meta_graph(prefix: Path) -> Any:
    path = Path(f"{prefix}.meta")
    if not path.is_file():
        return None
    from tensorflow.core.protobuf import meta_graph_pb2

    meta = meta_graph_pb2.MetaGraphDef()
    try:
        meta.ParseFromString(path.read_bytes())
    except DecodeError as cause:
        found, advice = "a damaged or cut-off one", f"{AGAIN}, or go without it"
        raise ReadError(path, "file", expected="a MetaGraphDef", found=found, advice=advice) from cause
    if not meta.graph_def.node:
        raise ReadError(path, "graph_def", expected="nodes", found="none", advice=AGAIN)
    graphs.require(path, meta.graph_def)
    return meta
