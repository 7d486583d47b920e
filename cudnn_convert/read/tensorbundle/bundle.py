"""Opens a checkpoint of either format: each tensor is read when it is used.

V2: `<prefix>.index` and `<prefix>.data-*`. V1: the file `<prefix>` itself, a table of slices, or where the
saver was sharded `<prefix>-00000-of-00002` and so on. `read/checkpoints/` reads both, without TensorFlow.
Source: tensorflow v1.15.0 core/util/tensor_bundle/tensor_bundle.h, core/util/tensor_slice_reader.cc,
core/kernels/save_restore_v2_ops.cc (RestoreV2 reads V1 too).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AGAIN, AccessError, ReadError
from cudnn_convert.model import Array
from cudnn_convert.read.tensorbundle import entries, formats
from cudnn_convert.read.tensorbundle.entries import Stored
from cudnn_convert.read.tensorbundle.tables import MAGIC

#: What to do where one of its files is missing.
WHOLE: Final = "copy all files of the checkpoint"
_SHARDS: Final = "-?????-of-?????"
_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})")


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One entry of a checkpoint; its bytes are read, and checked against their crc32c, on demand.

    `slices` is empty for the whole entry, else the slice in the words of a saver: `11 4 0,6:0,4`.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: Stored
    slices: str = ""

    def read(self) -> Array:
        """The array, not to be written to. Raises ReadError for bytes of another checksum, AccessError."""
        # A message is one line, whatever a name is.
        where = f"tensor {self.key if self.key.isprintable() else repr(self.key)}"
        whole = self.stored.shape
        shape, wanted = entries.parse_slice(self.slices) if self.slices else (whole, entries.whole(whole))
        if shape != whole:
            expected = f"the shape {shape} for its part {self.slices}"
            raise ReadError(self.path, where, expected=expected, found=f"{whole}")
        try:
            return self.stored.read(wanted)
        except (ValueError, OSError) as cause:
            raise _damaged(self.path, where, cause) from cause

    def part(self, slices: str) -> CheckpointTensor:
        """The slice that a saver writes as `slices`, or itself where that is empty. Raises ValueError."""
        return replace(self, slices=slices, shape=part_shape(slices)) if slices else self


def part_shape(slices: str) -> tuple[int, ...]:
    """The shape of a slice: of `11 4 0,6:-` it is `(6, 4)`. Raises ValueError for anything else.

    tensorflow v1.15.0 python/ops/variables.py SaveSliceInfo.spec; core/framework/tensor_slice.cc.
    """
    return entries.shape(entries.parse_slice(slices)[1])


def is_v2(prefix: Path) -> bool:
    """Whether a checkpoint of the V2 format has this prefix."""
    return Path(f"{prefix}.index").is_file()


def is_v1(prefix: Path) -> bool:
    """Whether a checkpoint of the V1 format has this prefix."""
    return _is_table(prefix) or any(map(_is_table, _shards(prefix)))


def _shards(prefix: Path) -> list[Path]:
    return sorted(prefix.parent.glob(escape(prefix.name) + _SHARDS))


def _is_table(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size < len(MAGIC):
        return False
    with path.open("rb") as stream:
        stream.seek(-len(MAGIC), 2)
        return stream.read() == MAGIC


def tensors(prefix: Path) -> Mapping[str, CheckpointTensor]:
    """Every entry of a checkpoint by its key. Raises ReadError, AccessError."""
    files = _files(prefix)
    try:
        found = formats.read_v1(files) if files else formats.read_v2(prefix)
    except (ValueError, OSError) as cause:
        raise _damaged(prefix, "index", cause) from cause
    return {
        key: CheckpointTensor(prefix, key, stored.shape, entries.of(stored.dtype), stored)
        for key, stored in sorted(found.items())
    }


def _files(prefix: Path) -> list[Path]:
    """The tables of a V1 checkpoint, none for one of V2."""
    if is_v2(prefix):
        if not list(prefix.parent.glob(f"{escape(prefix.name)}.data-*-of-*")):
            expected = f"{prefix.name}.data-*"
            raise ReadError(prefix, "checkpoint", expected=expected, found="no such file", advice=WHOLE)
        return []
    if is_v1(prefix):
        return [prefix] if prefix.is_file() else _complete(prefix, _shards(prefix))
    found = "a file of another kind" if prefix.is_file() else "no such file"
    raise ReadError(prefix, "checkpoint", expected=f"{prefix.name}.index", found=found, advice=WHOLE)


def _complete(prefix: Path, shards: list[Path]) -> list[Path]:
    """The shards of one save. Raises ReadError where one is missing, or several saves are there."""
    matches = [_SHARD.fullmatch(path.name.removeprefix(prefix.name)) for path in shards]
    found = {(int(match[1]), int(match[2])) for match in matches if match}
    counts = sorted({count for _, count in found})
    if len(counts) > 1:
        expected, several = "the files of one save", f"some of {' and of '.join(map(str, counts))}"
        advice = "copy one save to a folder of its own"
        raise ReadError(prefix, "checkpoint", expected=expected, found=several, advice=advice)
    for number in range(counts[0]):
        if (number, counts[0]) not in found:
            expected = f"{prefix.name}-{number:05d}-of-{counts[0]:05d}"
            raise ReadError(prefix, "checkpoint", expected=expected, found="no such file", advice=WHOLE)
    return shards


def _damaged(path: Path, where: str, cause: Exception) -> ReadError | AccessError:
    if isinstance(cause, OSError):
        return AccessError(cause.filename or path, cause.strerror or str(cause))
    expected = "readable bytes that match their checksum"
    return ReadError(path, where, expected=expected, found=str(cause), advice=AGAIN)
