"""The tensors of a checkpoint of either format, whole or a slice, each read when it is wanted.

V2: `<prefix>.index` and `<prefix>.data-*`. V1: the file `<prefix>` itself, a table of slices, or where the
saver was sharded `<prefix>-00000-of-00002` and so on.
Source: tensorflow v1.15.0 core/util/tensor_bundle/tensor_bundle.h, core/util/tensor_slice_reader.cc,
core/lib/io/format.h (kTableMagicNumber), core/kernels/save_restore_v2_ops.cc (RestoreV2 reads V1 too).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import AccessError, ReadError
from cudnn_convert.model import Array

#: The last eight bytes of a V1 file, and of an index of V2.
_MAGIC: Final = bytes.fromhex("57fb808b247547db")
_SHARDS: Final = "-?????-of-?????"
#: What TensorFlow raises for a damaged file: its own classes, or the Python ones that pybind maps them to.
_FAILURES: Final = (tf.errors.OpError, RuntimeError, ValueError, IndexError)


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One entry of a checkpoint; its bytes are read, and checked against their crc32c, on demand.

    `files` is what TensorFlow's readers take: the prefix, or a pattern for the files of a sharded V1.
    `slices` is empty for the whole entry, else the slice in the words of a saver: `11 4 0,6:0,4`.
    """

    path: Path
    files: str
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reader: Any
    slices: str = ""

    def read(self) -> Array:
        """The array. Raises ReadError where the bytes do not match their checksum, AccessError."""
        try:
            return np.asarray(self._part() if self.slices else self.reader.get_tensor(self.key))
        except _FAILURES as cause:
            raise _damaged(self.path, f"tensor {self.key}", cause) from cause

    def part(self, slices: str) -> CheckpointTensor:
        """The slice that a saver writes as `slices`, or itself where that is empty. Raises ValueError."""
        return replace(self, slices=slices, shape=part_shape(slices)) if slices else self

    def _part(self) -> Array:
        # A graph of its own, also while another one is being built.
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            (found,) = tf.raw_ops.RestoreV2(
                prefix=self.files,
                tensor_names=[self.key],
                shape_and_slices=[self.slices],
                dtypes=[tf.as_dtype(self.dtype)],
            )
            return np.asarray(session.run(found))


def part_shape(slices: str) -> tuple[int, ...]:
    """The shape of a slice: of `11 4 0,6:-` it is `(6, 4)`. Raises ValueError for anything else.

    tensorflow v1.15.0 python/ops/variables.py SaveSliceInfo.spec; core/framework/tensor_slice.cc.
    """
    *whole, extents = slices.split(" ")
    pairs = zip(whole, extents.split(":"), strict=True)
    return tuple(int(width if extent == "-" else extent.split(",")[1]) for width, extent in pairs)


def is_v2(prefix: Path) -> bool:
    """Whether a checkpoint of the V2 format has this prefix."""
    return Path(f"{prefix}.index").is_file()


def is_v1(prefix: Path) -> bool:
    """Whether a checkpoint of the V1 format has this prefix."""
    shards = sorted(prefix.parent.glob(escaped(prefix.name) + _SHARDS))
    return any(_is_table(path) for path in [prefix, *shards[:1]])


def _is_table(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size < len(_MAGIC):
        return False
    with path.open("rb") as stream:
        stream.seek(-len(_MAGIC), 2)
        return stream.read() == _MAGIC


def tensors(prefix: Path) -> Mapping[str, CheckpointTensor]:
    """Every entry of a checkpoint by its key. Raises ReadError, AccessError."""
    files = _files(prefix)
    try:
        # tf.train.load_checkpoint would take a folder of the prefix's name for the checkpoint.
        reader = tf.compat.v1.train.NewCheckpointReader(files)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except _FAILURES as cause:
        raise _damaged(prefix, "index", cause) from cause
    return {
        key: CheckpointTensor(
            prefix, files, key, tuple(shapes[key]), np.dtype(dtypes[key].as_numpy_dtype), reader
        )
        for key in sorted(shapes)
    }


def _files(prefix: Path) -> str:
    if is_v2(prefix):
        if not list(prefix.parent.glob(f"{escaped(prefix.name)}.data-*-of-*")):
            raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.data-*", found="no such file")
        return str(prefix)
    if is_v1(prefix):
        pattern = prefix.parent / escaped(prefix.name)
        return f"{pattern}" if prefix.is_file() else f"{pattern}{_SHARDS}"
    found = "a file of another kind" if prefix.is_file() else "no such file"
    raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.index", found=found)


def escaped(name: str) -> str:
    """A file name as a glob pattern that matches it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _damaged(path: Path, where: str, cause: Exception) -> ReadError | AccessError:
    first = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if isinstance(cause, tf.errors.PermissionDeniedError):
        return AccessError(path, first)
    return ReadError(path, where, expected="readable bytes that match their checksum", found=first)
