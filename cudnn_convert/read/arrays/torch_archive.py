"""Reads tensors from the zip of a PyTorch file, as views of stored members.

The file is a zip of stored members below one folder: a pickle `data.pkl`, a member of `data/` for each
storage, and mostly `version` and `byteorder`. PyTorch stores each member as it is, so a view is read from its
place in the file. The order of members is of no importance.

Sources: pytorch v2.8.0 torch/serialization.py `_save`, `_load`, caffe2/serialize/inline_container.cc
`PyTorchStreamReader::init`; PKWARE APPNOTE 6.3 sections 4.3.7 (local header) and 4.4.4 (flags).
"""

from __future__ import annotations

import math
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Array
from cudnn_convert.read.arrays import containers
from cudnn_convert.read.arrays.torch_pickle import Claim

PICKLE: Final = "data.pkl"
#: A local header: the mark, 22 bytes, the lengths of a name and of extra fields.
_HEADER: Final = struct.Struct("<4s22xHH")
_LOCAL: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 1
#: What torch.save writes after `torch.serialization.set_crc32_options(False)`, as torch 2.14.1 does. PyTorch
#: itself checks none (pytorch v2.8.0 CMakeLists.txt, MINIZ_DISABLE_ZIP_READER_CRC32_CHECKS).
_UNCHECKED: Final = 0
_CHUNK: Final = 1 << 20
_STORED: Final = "a stored member, as torch.save writes it"
_PACK: Final = "save it with torch.save, and leave the file as it is"
#: Dtypes of PyTorch that NumPy has.
TYPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **{f"float{bits}": f"float{bits}" for bits in (16, 32, 64)},
        **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        **{"bool": np.bool_, "complex64": np.complex64, "complex128": np.complex128},
        **{"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn},
        **{"float8_e5m2": ml_dtypes.float8_e5m2, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz},
        "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    }
)


@dataclass(slots=True)
class _Member:
    """The bytes of a storage in the file.

    The checksum is computed once, before the first bytes are used.
    """

    path: Path
    name: str
    begin: int
    size: int
    checksum: int
    swapped: bool
    checked: bool = field(default=False, compare=False)

    def read(self, begin: int, size: int) -> bytes:
        """Read bytes of the storage.

        Raises ReadError where they are not those that were written.
        """
        with self.path.open("rb") as file:
            if self.checksum != _UNCHECKED and not self.checked:
                self._check(file)
            file.seek(self.begin + begin)
            content = file.read(size)
        if len(content) != size:
            raise ReadError(self.path, self.name, expected="its bytes", found="fewer", advice=AGAIN)
        return content

    def _check(self, file: Any) -> None:
        file.seek(self.begin)
        checksum, left = 0, self.size
        while left and (chunk := file.read(min(left, _CHUNK))):
            checksum, left = zlib.crc32(chunk, checksum), left - len(chunk)
        if left or checksum != self.checksum:
            expected, actual = f"the checksum {self.checksum:08x}", f"{checksum:08x}"
            raise ReadError(self.path, self.name, expected=expected, found=actual, advice=AGAIN)
        self.checked = True


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of a storage, with offset and strides in elements."""

    member: _Member
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> Array:
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype)
        width, count = self.dtype.itemsize, _span(self.shape, self.strides)
        content = self.member.read(self.offset * width, count * width)
        if self.member.swapped:
            part = width // 2 if self.dtype.kind == "c" else width
            content = np.frombuffer(content, f"u{part}").byteswap().tobytes()
        # The stride of an axis with one place means nothing, and may be any number.
        axes = zip(self.shape, self.strides, strict=True)
        strides = [stride * width if size > 1 else width for size, stride in axes]
        view: Array = np.ndarray(self.shape, self.dtype, content, strides=strides)
        return np.ascontiguousarray(view).reshape(self.shape)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first of a view to the last.

    All sizes are positive.
    """
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def list_roots(path: Path) -> list[str]:
    """List the folders of a zip with a pickle of PyTorch.

    Another file has none.
    """
    names = (name.rpartition("/") for name in containers.list_members(path))
    return [root for root, _, last in names if last == PICKLE and root and "/" not in root]


class Archive:
    """The members of a PyTorch file by name.

    Raises ReadError for a file with two of one name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        roots = list_roots(path)
        if len(roots) != 1:
            raise self._refuse("file", f"one {PICKLE}", f"{len(roots)}")
        self._root = roots[0]
        self._size = path.stat().st_size
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._members: dict[str, _Member] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename in self._infos:
                    raise self._refuse(info.filename, "one member of this name", "two", _PACK)
                self._infos[info.filename] = info
        self._swapped = False
        self._swapped = self._is_swapped()

    def _refuse(self, where: str, expected: str, actual: str, advice: str = AGAIN) -> ReadError:
        return ReadError(self.path, where, expected=expected, found=actual, advice=advice)

    @property
    def names(self) -> list[str]:
        """The members' names in the folder of the file."""
        root = f"{self._root}/"
        return [name.removeprefix(root) for name in self._infos if name.startswith(root)]

    def read_pickle(self) -> bytes:
        """Read the pickle.

        Raises ReadError where it is damaged, or larger than the limits allow.
        """
        member, most = self._member(PICKLE), context.current().expanded
        if member.size > most:
            advice = context.raising(member.size)
            raise self._refuse(member.name, f"a pickle of at most {most} bytes", f"{member.size}", advice)
        return member.read(0, member.size)

    def view(self, key: str, claim: Claim) -> View:
        """Return the tensor of a claim under `key`.

        Raises ReadError where it leaves its storage.
        """
        member, dtype = self._member(f"data/{claim.storage.key}"), np.dtype(TYPES[claim.dtype])
        has, element = member.size, np.dtype(TYPES.get(claim.storage.dtype, "u1")).itemsize
        needs = claim.storage.count * element
        if needs <= has and 0 not in claim.shape:
            needs = (claim.offset + _span(claim.shape, claim.strides)) * dtype.itemsize
        if needs > has:
            raise self._refuse(key, f"a storage of {needs} bytes or more", f"{has} in {member.name}")
        size = math.prod(claim.shape) * dtype.itemsize
        if context.is_bomb(size, has):
            expected = f"a tensor of its storage's {has} bytes"
            raise self._refuse(key, expected, f"one of {size}", context.raising(size))
        return View(member, claim.offset, claim.shape, claim.strides, dtype)

    def _is_swapped(self) -> bool:
        """Return True if numbers are byte-swapped.

        A file before PyTorch 2.0 does not say it.
        """
        if f"{self._root}/byteorder" not in self._infos:
            return sys.byteorder != "little"
        member = self._member("byteorder")
        order = member.read(0, min(member.size, _HEADER.size))
        if order not in (b"little", b"big"):
            raise self._refuse(member.name, "little or big", repr(order))
        return order.decode() != sys.byteorder

    def _member(self, name: str) -> _Member:
        """Return the member `name` of the file's folder.

        Raises ReadError where its bytes do not lie in the file.
        """
        full = f"{self._root}/{name}"
        if full not in self._members:
            self._members[full] = self._find(full)
        return self._members[full]

    def _find(self, name: str) -> _Member:
        info = self._infos.get(name)
        if info is None:
            raise self._refuse(name, "a member", "none")
        if info.flag_bits & _ENCRYPTED or info.compress_type != zipfile.ZIP_STORED:
            actual = "an encrypted one" if info.flag_bits & _ENCRYPTED else "a compressed one"
            raise self._refuse(name, _STORED, actual, _PACK)
        with self.path.open("rb") as file:
            file.seek(max(0, info.header_offset))
            head = file.read(_HEADER.size).ljust(_HEADER.size, b"\0")
        mark, named, extra = _HEADER.unpack(head)
        begin = info.header_offset + _HEADER.size + named + extra
        if mark != _LOCAL or info.header_offset < 0 or begin + info.file_size > self._size:
            raise self._refuse(name, "its bytes in the file", "none where they should be")
        return _Member(self.path, name, begin, info.file_size, info.CRC, self._swapped)
