"""Makes a model of named arrays, and finds the files behind a path.

Such a file has names, shapes and values, and no graph. The dialects find recurrences by names and shapes.
Where every array is a vector, each is taken for a parameter blob.
"""

import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Array, Graphless, Model, PartialSizes, Tensor, is_float
from cudnn_convert.read import dialects
from cudnn_convert.read.dialects import keras
from cudnn_convert.weights.npz_archive import RECORD, Stamp

#: Entries of a folder that are looked at.
_MOST: Final = 10_000
#: The parameters of an RNN of one unit and one input.
_FEWEST: Final = 4
_EXPECTED: Final = "weights under names that a framework gives them, or a parameter blob"


@dataclass(frozen=True, slots=True)
class ArrayFiles:
    """The files of a source of arrays; `path` is the file itself or their folder."""

    path: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """An array in a file, row-major from byte `offset` on."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stamp: Stamp = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stamp", Stamp.of(self.path))

    def read(self) -> Array:
        self.stamp.require(self.path)
        count = math.prod(self.shape)
        with self.path.open("rb") as file:
            file.seek(self.offset)
            values = np.frombuffer(file.read(count * self.dtype.itemsize), self.dtype)
        return values.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """An array in memory, row-major in pieces of bytes, of the type `stored`."""

    pieces: Sequence[bytes]
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> Array:
        values = np.frombuffer(b"".join(self.pieces), self.stored)  # a single piece is not copied
        return values.astype(self.dtype, copy=False).reshape(self.shape)


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, at most `size`. Raises OSError.

    They are empty for a path that is no file.
    """
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def list_members(path: Path) -> list[str]:
    """List the names in a zip; another file has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, RuntimeError, ValueError, NotImplementedError, OverflowError):
        return []


def list_folder(path: Path, suffix: str, *, alone: bool) -> ArrayFiles | None:
    """Find the files of a suffix in the folder `path`, or return None.

    With `alone`, no other file may be there, hidden ones excepted. Raises ReadError for a folder of more
    files than are looked at.
    """
    if not path.is_dir():
        return None
    entries = sorted(entry for entry, _ in zip(path.iterdir(), range(_MOST + 1), strict=False))
    seen = [entry for entry in entries if not entry.name.startswith(".")]
    files = tuple(entry for entry in seen if entry.suffix.lower() == suffix and not entry.is_dir())
    if files and len(entries) > _MOST:
        expected, advice = f"at most {_MOST} files", "put the arrays into one .npz or safetensors file"
        raise ReadError(path, "folder", expected=expected, found="more", advice=advice)
    return ArrayFiles(path, files) if files and not (alone and len(files) < len(seen)) else None


#: A file of several that hold one model: huggingface_hub v0.34 serialization/_torch.py
#: `split_torch_state_dict_into_shards`.
_SHARD: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.\w+", re.ASCII)


def require_whole(source: ArrayFiles) -> None:
    """Raise ReadError for a part of the files of one model, by their names."""
    matches = (_SHARD.fullmatch(file.name) for file in source.files)
    shards = Counter((match["stem"], int(match["count"])) for match in matches if match)
    for (stem, count), seen in shards.items():
        if seen != count:
            is_folder = source.path not in source.files
            cure = AGAIN if is_folder else f"give the folder {source.path.parent}, or save one file of all"
            expected = f"{count} files {stem}-....-of-{count:05}"
            raise ReadError(source.path, "shards", expected=expected, found=str(seen), advice=cure)


def join(path: Path, sets: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join the arrays of several files. Raises ReadError for a name in two of them."""
    tensors: dict[str, Tensor] = {}
    for own in sets:
        if both := tensors.keys() & own.keys():
            raise ReadError(path, min(both), expected="one array of this name", found="two, in two files")
        tensors |= own
    return tensors


def _may_be_blob(tensor: Tensor) -> bool:
    """Return True for a vector with room for the smallest recurrence."""
    return len(tensor.shape) == 1 and tensor.shape[0] >= _FEWEST


def make_model(
    path: Path,
    kind: str,
    tensors: Mapping[str, Tensor],
    *,
    blobs: Mapping[str, PartialSizes] | None = None,
    notes: tuple[str, ...] = (),
) -> Model:
    """Return the model of named arrays. Raises ReadError.

    `blobs` are known to be parameter blobs.
    """
    parameters = dialects.find(path, tensors)
    floats = {key: tensor for key, tensor in tensors.items() if is_float(tensor.dtype)}
    if not (parameters or blobs) and all(_may_be_blob(tensor) for tensor in floats.values()):
        blobs = dict.fromkeys(floats, PartialSizes())
    return Model(
        path,
        kind,
        None,
        {key: tensor for key, tensor in tensors.items() if key != RECORD},
        parameters,
        notes=notes,
        plain=keras.describe_layers(tensors, parameters),
        graphless=Graphless(f"{path.name} has weights alone", expected=_EXPECTED, needs_gpu=False),
        blobs=blobs or {},
    )
