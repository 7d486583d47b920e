"""TensorFlow 1 checkpoints: `<prefix>.index`, `<prefix>.data-*`, and the MetaGraph `<prefix>.meta`.

Written by `tf.train.Saver` (V2 format, TensorFlow 0.12-1.15). The MetaGraph is parsed as a proto and never
imported or run: `import_meta_graph` fails on cuDNN layers, and its restore subgraph has GPU-only ops.
Refused here: a checkpoint without its `.meta`, the V1 format.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, core/util/tensor_bundle/tensor_bundle.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.errors import AccessError, ReadError, UnsupportedModelError
from cudnn_convert.model import Array, Model, Signature, Tensor
from cudnn_convert.read import contrib_names

KIND = "TensorFlow 1 checkpoint"
TAGS = False
_SUFFIXES: Final = (".index", ".meta")
#: What TensorFlow raises for a damaged file: its own classes, or the Python ones that pybind maps them to.
_FAILURES: Final = (tf.errors.OpError, RuntimeError, ValueError, IndexError)


def recognise(path: Path) -> Path | None:
    """The checkpoint's prefix where `path` names one: the prefix, its .index or .meta, or a folder."""
    prefixes = [path, path.with_suffix("")] if path.suffix in _SUFFIXES else [path]
    for prefix in prefixes:
        if any(Path(f"{prefix}{suffix}").is_file() for suffix in _SUFFIXES):
            return prefix
    return _latest(path) if path.is_dir() else None


def _latest(folder: Path) -> Path | None:
    """The newest checkpoint that a folder's `checkpoint` file names: the one in it, else where it points."""
    state = tf.train.get_checkpoint_state(str(folder)) if (folder / "checkpoint").is_file() else None
    if state is None:
        return None
    named = Path(state.model_checkpoint_path)
    # A folder that was copied still names the place it came from.
    inside = folder / named.name
    return named if Path(f"{named}.index").is_file() and not Path(f"{inside}.index").is_file() else inside


def read(prefix: Path) -> Model:
    """The model at `prefix`; tensors stay in their files. Raises ReadError, UnsupportedModelError."""
    meta = _meta_graph(prefix)
    tensors = _tensors(prefix)
    return Model(
        path=prefix,
        kind=KIND,
        graph=meta.graph_def,
        variables=tensors,
        canonical=contrib_names.find(prefix, tensors),
        signatures={key: _signature(value) for key, value in meta.signature_def.items()},
    )


def _meta_graph(prefix: Path) -> Any:
    path = Path(f"{prefix}.meta")
    if not path.is_file():
        raise UnsupportedModelError(
            prefix, [f"expected its graph beside it, found no {path.name}; put it there"]
        )
    meta = meta_graph_pb2.MetaGraphDef()
    try:
        meta.ParseFromString(path.read_bytes())
    except DecodeError as cause:
        raise ReadError(path, "file", expected="a MetaGraphDef", found="a damaged or cut-off one") from cause
    if not meta.graph_def.node:
        raise ReadError(path, "graph_def", expected="nodes", found="none")
    return meta


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One entry of a checkpoint; its bytes are read, and checked against their crc32c, on demand."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reader: Any

    def read(self) -> Array:
        try:
            return np.asarray(self.reader.get_tensor(self.key))
        except _FAILURES as cause:
            raise _damaged(self.path, f"tensor {self.key}", cause) from cause


def _tensors(prefix: Path) -> Mapping[str, Tensor]:
    if not Path(f"{prefix}.index").is_file():
        found = "a checkpoint of the V1 format" if prefix.is_file() else "no such file"
        raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.index", found=found)
    if not list(prefix.parent.glob(f"{_escaped(prefix.name)}.data-*-of-*")):
        raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.data-*", found="no such file")
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except _FAILURES as cause:
        raise _damaged(prefix, "index", cause) from cause
    return {
        key: CheckpointTensor(prefix, key, tuple(shapes[key]), np.dtype(dtypes[key].as_numpy_dtype), reader)
        for key in sorted(shapes)
    }


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _damaged(path: Path, where: str, cause: Exception) -> ReadError | AccessError:
    first = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if isinstance(cause, tf.errors.PermissionDeniedError):
        return AccessError(path, first)
    return ReadError(path, where, expected="readable bytes that match their checksum", found=first)


def _signature(proto: Any) -> Signature:
    def names(infos: Any) -> dict[str, str]:
        return {key: infos[key].name for key in sorted(infos)}

    return Signature(names(proto.inputs), names(proto.outputs))
