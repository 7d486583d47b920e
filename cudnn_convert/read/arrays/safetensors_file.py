"""Reads safetensors, a file or a folder of shards.

A file is the length of its header in 8 bytes, the header in JSON, and the values. The header has a type, a
shape and two offsets for each name, and texts under `__metadata__`. The library checks that the offsets fit
the file. Source: safetensors v0.6 README, Format, and safetensors/src/tensor.rs `Metadata::validate`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import InMemory, Model, Tensor
from cudnn_convert.read.arrays import containers
from cudnn_convert.read.arrays.containers import ArrayFiles, StoredTensor
from cudnn_convert.weights.npz_archive import RECORD

KIND: Final = "safetensors file"
TAGS: Final = False
_SUFFIX: Final = ".safetensors"
_METADATA: Final = "__metadata__"
_LENGTH: Final = 8
_TYPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **{"BOOL": np.bool_, "F64": np.float64, "F32": np.float32, "F16": np.float16},
        **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
        **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
        **{"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2},
    }
)


def recognise(path: Path) -> ArrayFiles | None:
    """Return the safetensors file at `path`, or those of a folder."""
    if not path.is_file():
        return containers.list_folder(path, _SUFFIX, alone=False)
    head = containers.read_head(path, _LENGTH + 1)
    size = int.from_bytes(head[:_LENGTH], "little")
    return ArrayFiles(path, (path,)) if head[_LENGTH:] == b"{" and size < path.stat().st_size else None


def read(source: ArrayFiles) -> Model:
    """Read the arrays; values stay in the files. Raises ReadError, OSError."""
    _check_index(source)
    containers.require_whole(source)
    return containers.make_model(source.path, KIND, containers.join(source.path, map(_tensors, source.files)))


def _check_index(source: ArrayFiles) -> None:
    """Raise ReadError where an index beside the files lists different files."""
    folder = source.path if source.path.is_dir() else source.path.parent
    names = {file.name for file in source.files}
    for index in sorted(folder.glob(f"*{_SUFFIX}.index.json")):
        try:
            listed = {*map(str, json.loads(index.read_bytes())["weight_map"].values())}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
            expected = "a weight_map of files"
            raise ReadError(index, "file", expected=expected, found="none", advice=AGAIN) from cause
        if source.path not in source.files and (others := listed ^ names):
            actual = f"{min(others)} {'missing' if min(others) in listed else 'beside them'}"
            expected = f"the files that {index.name} lists"
            advice = "put the files of one model into a folder"
            raise ReadError(folder, "shards", expected=expected, found=actual, advice=advice)
        if names < listed:
            expected, advice = f"all files that {index.name} lists", f"give the folder {folder}"
            raise ReadError(source.path, "shards", expected=expected, found="one of them", advice=advice)


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):
            pass  # the library checks all offsets
    except SafetensorError as cause:
        expected = "a whole safetensors file"
        raise ReadError(path, "header", expected=expected, found="a damaged one", advice=AGAIN) from cause
    with path.open("rb") as file:
        size = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(size))
    texts = header.pop(_METADATA, None) or {}
    tensors: dict[str, Tensor] = {
        name: _tensor(path, name, entry, _LENGTH + size) for name, entry in header.items()
    }
    if RECORD in texts:
        tensors[RECORD] = InMemory(np.frombuffer(texts[RECORD].encode(), np.uint8))
    return tensors


def _tensor(path: Path, name: str, entry: Mapping[str, Any], begin: int) -> StoredTensor:
    if entry["dtype"] not in _TYPES:
        advice = "save the weights as F32, F16 or BF16"
        raise ReadError(path, name, expected="numbers of a known type", found=entry["dtype"], advice=advice)
    dtype = np.dtype(_TYPES[entry["dtype"]])
    return StoredTensor(path, begin + entry["data_offsets"][0], tuple(entry["shape"]), dtype)
