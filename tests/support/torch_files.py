"""Files of PyTorch by hand: pickles out of their operations, and the zip around them."""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plain(value: Any) -> bytes:
    """The operations of a number, a text, or a tuple or list of them."""
    return pickle.dumps(value, protocol=2)[2:-1]


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def many(*items: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(items) + b"t"


def mapping(entries: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(plain(key) + value for key, value in entries.items()) + b"u"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + many(*arguments) + b"R"


def whole(content: bytes) -> bytes:
    return b"\x80\x02" + content + b"."


ORDERED = call(name("collections", "OrderedDict"))


def storage(key: str, count: int, kind: str = "FloatStorage") -> bytes:
    return many(plain("storage"), name("torch", kind), plain(key), plain("cpu"), plain(count)) + b"Q"


def tensor(
    key: str,
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    offset: int = 0,
    count: int | None = None,
    kind: str = "FloatStorage",
    metadata: Sequence[bytes] = (),
) -> bytes:
    """A call of _rebuild_tensor_v2; without strides the tensor is contiguous and the whole of its storage."""
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    count = math.prod(shape) if count is None else count
    view = (plain(offset), plain(tuple(shape)), plain(tuple(strides)))
    rebuild = name("torch._utils", "_rebuild_tensor_v2")
    return call(rebuild, storage(key, count, kind), *view, plain(False), ORDERED, *metadata)


def write(
    path: Path,
    content: bytes,
    storages: Mapping[str, bytes],
    *,
    more: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """A file with a pickle, storages and more members."""
    members = {f"data/{key}": values for key, values in storages.items()} | {"version": b"3\n"}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, data in {"data.pkl": whole(content), **members, **(more or {})}.items():
            archive.writestr(f"net/{member}", data)
    return path
