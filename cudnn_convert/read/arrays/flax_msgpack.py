"""Reads files of Flax: msgpack of nested maps and arrays.

Keys of nested maps are joined with "/". Extension 1 is msgpack of the shape, the name of the type and the
bytes of an array, extension 3 the same of a number. A map with `__msgpack_chunked_array__` is an array in
pieces. Other values, such as texts, are no weights. The library msgpack makes all values at once: memory is
that of the file, and a few times that of its largest array.
Source: flax v0.12.0 flax/serialization.py `_ndarray_to_bytes`, `_msgpack_ext_pack`, `_chunk`, `to_bytes`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from cudnn_convert.errors import AGAIN, MissingDependencyError, ReadError
from cudnn_convert.model import Model, Tensor
from cudnn_convert.read.arrays import containers
from cudnn_convert.read.arrays.containers import ArrayFiles, PackedTensor
from cudnn_convert.text import first_line

KIND: Final = "Flax file"
TAGS: Final = False
#: The begin of a map whose first key is a text, and that of an array: [shape, name of the type, bytes].
_MAP: Final = re.compile(
    rb"(?:[\x81-\x8f]|\xde..|\xdf....)(?:[\xa1-\xbf]|\xd9.)[^\x00-\x1f\x7f\xf8-\xff]", re.DOTALL
)
_ARRAY: Final = re.compile(
    rb"\x01\x93[\x90-\x9f][\x00-\xff]{0,75}?[\xa4-\xbf](?:b?float|u?int|bool|complex)[0-9a-z_]*[\xc4-\xc6]"
)
#: An array of the file begins within these bytes.
_HEAD: Final = 1 << 16
_NDARRAY, _SCALAR = 1, 3
_CHUNKED: Final = "__msgpack_chunked_array__"
#: Characters of joined keys beyond those that the file may need.
_NAMES: Final = 1 << 24
#: Lists are made whole before their values are read; Flax writes maps for them.
_LONGEST_LIST: Final = 1 << 14
_NUMPY_TYPES: Final = frozenset(
    (
        *("bool", "float16", "float32", "float64", "complex64", "complex128"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
#: The limits of NumPy: bytes in 63 bits, axes before version 2.
_MOST_VALUES: Final = 2**58
_MOST_AXES: Final = 32
#: Bytes that are read at a time.
_BLOCK: Final = 1 << 20
_EXPECTED: Final = "what Flax's to_bytes writes"


@dataclass(frozen=True, slots=True)
class _Packed:
    """The shape, type name and bytes of an array in the file."""

    shape: tuple[int, ...]
    dtype: str
    content: bytes


def recognise(path: Path) -> ArrayFiles | None:
    """Return the file at `path` if a map with an array begins there."""
    head = containers.read_head(path, _HEAD)
    return ArrayFiles(path, (path,)) if _MAP.match(head) and _ARRAY.search(head) else None


def read(source: ArrayFiles) -> Model:
    """Read the arrays. Raises ReadError, OSError, or MissingDependencyError if msgpack is missing."""
    tensors: dict[str, Tensor] = {}
    for key, value in _flatten(source.path, _unpack(source.path)):
        if key in tensors:
            expected, advice = "one array of this name", "save the maps without / in their keys"
            raise ReadError(source.path, key, expected=expected, found="two", advice=advice)
        tensors[key] = value
    return containers.make_model(source.path, KIND, tensors)


def _flatten(path: Path, content: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the arrays by joined keys, in the order of the file. Raises ReadError."""
    left = 2 * path.stat().st_size + _NAMES
    nodes: list[tuple[str, str, Any]] = [("", "", content)]
    while nodes:
        around, name, value = nodes.pop()
        if not isinstance(value, Mapping | list | _Packed):
            continue
        key = f"{around}/{name}" if around else name
        left -= len(key)
        if left < 0:
            expected, actual = "names shorter than the weights", "names of more bytes than the file"
            raise ReadError(path, "file", expected=expected, found=actual, advice=AGAIN)
        if isinstance(value, _Packed):
            yield key, _tensor(path, key, value)
        elif isinstance(value, Mapping) and _CHUNKED in value:
            yield key, _join(path, key, value)
        else:
            pairs = [*value.items()] if isinstance(value, Mapping) else [*enumerate(value)]
            nodes += [(key, str(inner), item) for inner, item in reversed(pairs)]


def _unpack(path: Path) -> Any:
    """Return the values of a file. Raises ReadError, MissingDependencyError."""
    try:
        import msgpack
    except ImportError as cause:
        expected = "expected msgpack, which reads Flax's files, found that it is not installed"
        raise MissingDependencyError(
            f"{path}: {expected}; install it: pip install 'cudnn-convert[flax]'"
        ) from cause

    def unpack_extension(code: int, data: bytes) -> Any:
        if code not in (_NDARRAY, _SCALAR):
            return None  # a complex number, or a value of someone else
        inner = msgpack.unpackb(data, raw=True, max_array_len=_LONGEST_LIST)
        return _check_array(inner)

    size = path.stat().st_size
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(
            file,
            ext_hook=unpack_extension,
            object_pairs_hook=_make_map,
            read_size=_BLOCK,
            max_buffer_size=max(size, _BLOCK),
            max_array_len=_LONGEST_LIST,
            max_map_len=size,
        )
        try:
            content = unpacker.unpack()
            end = unpacker.tell()
        except (msgpack.UnpackException, ValueError, RecursionError) as cause:
            actual = first_line(cause) or type(cause).__name__
            raise ReadError(path, "file", expected=_EXPECTED, found=actual, advice=AGAIN) from cause
    if end != size:
        actual = f"{size - end} bytes behind it"
        raise ReadError(path, "file", expected=_EXPECTED, found=actual, advice=AGAIN)
    return content


def _make_map(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return a map. Raises ValueError for other keys than texts, and for a repeated key."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ValueError("a key that is no text")
        if key in content:
            raise ValueError("a key twice in one map")
        content[key] = value
    return content


def _check_array(inner: Any) -> _Packed:
    """Return the array of an extension. Raises ValueError for another value."""
    match inner:
        case [[*shape], bytes(dtype), bytes(content)] if _is_shape(shape):
            return _Packed(tuple(shape), dtype.decode("utf-8", "replace"), content)
    raise ValueError("an array without shape, type and bytes")


def _is_shape(shape: Sequence[Any]) -> bool:
    """Return True for sizes within the limits of NumPy, also of an empty array."""
    is_whole = all(type(size) is int and size >= 0 for size in shape)
    return is_whole and math.prod(size or 1 for size in shape) < _MOST_VALUES and len(shape) <= _MOST_AXES


def _tensor(path: Path, key: str, packed: _Packed) -> PackedTensor:
    dtype = _type(path, key, packed.dtype)
    count = math.prod(packed.shape)
    if count * dtype.itemsize != len(packed.content):
        expected = f"{count * dtype.itemsize} bytes for shape {packed.shape} of {dtype}"
        actual = f"{len(packed.content)} bytes"
        raise ReadError(path, key, expected=expected, found=actual, advice=AGAIN)
    return PackedTensor((packed.content,), dtype, packed.shape, dtype)


def _type(path: Path, key: str, name: str) -> np.dtype[Any]:
    """Return the type of a name, as in JAX. Raises ReadError, such as for objects."""
    if name in _NUMPY_TYPES:
        little: np.dtype[Any] = np.dtype(name).newbyteorder("<")
        return little
    if re.fullmatch(r"(?:b?float|u?int)\d+\w*", name) and hasattr(ml_dtypes, name):
        own: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return own
    advice = "save the weights by themselves, as float32, float16 or bfloat16"
    raise ReadError(path, key, expected="numbers of a known type", found=name, advice=advice)


def _join(path: Path, key: str, value: Mapping[str, Any]) -> PackedTensor:
    """Return the array of a map with a shape and pieces. Raises ReadError."""
    shape, chunks = (_list(value.get(name)) for name in ("shape", "chunks"))
    pieces = [_tensor(path, key, chunk) for chunk in chunks if isinstance(chunk, _Packed)]
    counts = [math.prod(piece.shape) for piece in pieces]
    if (
        not _is_shape(shape)
        or not pieces
        or len(pieces) < len(chunks)
        or len({piece.dtype for piece in pieces}) > 1
        or sum(counts) != math.prod(shape)
    ):
        expected = "a shape, and arrays of one type that fill it"
        actual = f"shape {shape}, arrays of {', '.join(map(str, counts)) or 'no'} values"
        raise ReadError(path, key, expected=expected, found=actual, advice=AGAIN)
    dtype = pieces[0].dtype
    return PackedTensor(tuple(each.pieces[0] for each in pieces), dtype, tuple(shape), dtype)


def _list(value: Any) -> list[Any]:
    """Return the values of a map with keys 0, 1, ..., else an empty list."""
    if not isinstance(value, Mapping) or value.keys() != {str(number) for number in range(len(value))}:
        return []
    return [value[str(number)] for number in range(len(value))]
