"""The storages of a PyTorch file: views of them are read as PyTorch reads them, and stay in their bytes."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.torch_files import mapping, tensor, write

from cudnn_convert import context
from cudnn_convert.errors import ReadError
from cudnn_convert.read.arrays.torch_archive import Archive, list_roots
from cudnn_convert.read.arrays.torch_pickle import Claim, Storage

VALUES = np.random.default_rng(11).normal(size=60).astype(np.float32)


def make(path: Path, **given: Any) -> Archive:
    return Archive(write(path / "net.pt", mapping({}), {"0": VALUES.tobytes()}, **given))


def claim(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *,
    offset: int = 0,
    dtype: str = "float32",
    count: int = 60,
) -> Claim:
    return Claim(Storage(dtype, "0", count), dtype, offset, shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "expected"),
    [
        ((60,), (1,), 0, VALUES),
        ((5, 12), (12, 1), 0, VALUES.reshape(5, 12)),
        ((12, 5), (1, 12), 0, VALUES.reshape(5, 12).T),
        ((4, 5), (12, 2), 13, VALUES.reshape(5, 12)[1:, 1:11:2]),
        (
            (3, 2, 2),
            (20, 10, 1),
            7,
            np.stack([VALUES[k : k + 12].take([[0, 1], [10, 11]]) for k in (7, 27, 47)]),
        ),
        ((3, 4), (0, 1), 5, np.broadcast_to(VALUES[5:9], (3, 4))),
        ((), (), 59, VALUES[59]),
        ((0, 7), (7, 1), 60, np.zeros((0, 7), np.float32)),
        ((1, 3), (10**9, 1), 57, VALUES[None, 57:]),
    ],
)
def test_a_view_has_its_offset_and_strides(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, expected: np.ndarray
) -> None:
    view = make(tmp_path).view("w", claim(shape, strides, offset=offset))
    assert (view.shape, view.dtype) == (shape, np.float32)
    np.testing.assert_array_equal(view.read(), expected, strict=True)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((61,), (1,), 0),
        ((60,), (1,), 1),
        ((5, 12), (13, 1), 0),
        ((2, 2), (59, 2), 0),
        ((1,), (1,), 60),
        ((), (), 60),
        ((2**62, 2**62), (1, 1), 0),
        ((2,), (2**62,), 0),
    ],
)
def test_a_view_that_leaves_its_storage_is_refused(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    with pytest.raises(
        ReadError, match=r"w: expected a storage of \d+ bytes or more, found 240 in net/data/0; "
    ):
        make(tmp_path).view("w", claim(shape, strides, offset=offset))


def test_a_storage_that_claims_more_than_its_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="w: expected a storage of 244 bytes or more, found 240"):
        make(tmp_path).view("w", claim((2,), (1,), count=61))
    with pytest.raises(ReadError, match="net/data/7: expected a member, found none"):
        make(tmp_path).view("w", Claim(Storage("float32", "7", 2), "float32", 0, (2,), (1,)))


def test_a_repeated_value_is_no_way_to_ask_for_memory(tmp_path: Path) -> None:
    wide = claim((10**6, 10**6), (0, 0))
    with pytest.raises(
        ReadError, match="w: expected a tensor of its storage's 240 bytes, found one of 40000"
    ):
        make(tmp_path).view("w", wide)
    with (
        context.within(context.Limits(expanded=100)),
        pytest.raises(ReadError, match="--limit expanded=24004"),
    ):
        make(tmp_path).view("w", claim((6001,), (0,)))


DTYPES = {
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int64": np.int64,
    "int16": np.int16,
    "uint8": np.uint8,
    "uint32": np.uint32,
    "bool": np.bool_,
    "complex64": np.complex64,
}


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_in_each_order_of_bytes(tmp_path: Path, dtype: str, order: str) -> None:
    values = np.array([0, 1, 3, 2], np.int8).astype(DTYPES[dtype])
    if dtype == "complex64":
        values = values + 5j * values[::-1]
    stored = values
    if order == "big":
        width = values.real.dtype.itemsize
        stored = values.view(f"u{width}").byteswap()
    path = write(tmp_path / "x.pt", mapping({}), {"0": stored.tobytes()}, more={"byteorder": order.encode()})
    view = Archive(path).view("w", claim((2,), (2,), offset=1, dtype=dtype, count=4))
    np.testing.assert_array_equal(view.read(), values[1::2], strict=True)


def test_another_order_of_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="net/byteorder: expected little or big, found b'middle'"):
        make(tmp_path, more={"byteorder": b"middle"})


def test_compressed_encrypted_and_repeated_members_are_refused(tmp_path: Path) -> None:
    packed = make(tmp_path, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ReadError, match=r"net/data/0: expected a stored member, .*, found a compressed one"):
        packed.view("w", claim((2,), (1,)))
    path = tmp_path / "locked.pt"
    make(tmp_path)
    whole = bytearray((tmp_path / "net.pt").read_bytes())
    for place in range(len(whole)):
        if whole.startswith(b"PK\1\2", place):
            whole[place + 8] |= 1
    path.write_bytes(whole)
    with pytest.raises(ReadError, match=r"net/data/0: expected a stored member, .*, found an encrypted one"):
        Archive(path).view("w", claim((2,), (1,)))
    with zipfile.ZipFile(tmp_path / "net.pt", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("net/data/0", b"other")
    with pytest.raises(ReadError, match="net/data/0: expected one member of this name, found two"):
        Archive(tmp_path / "net.pt")


def test_two_files_in_one_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with zipfile.ZipFile(tmp_path / "net.pt", "a") as archive:
        archive.writestr("other/data.pkl", b"")
    with pytest.raises(ReadError, match=r"file: expected one data\.pkl, found 2"):
        Archive(tmp_path / "net.pt")
    assert list_roots(tmp_path / "net.pt") == ["net", "other"]


def test_damage_is_seen(tmp_path: Path) -> None:
    path, part = tmp_path / "net.pt", claim((2,), (1,))
    archive = make(tmp_path)
    whole = path.read_bytes()
    place = whole.index(VALUES.tobytes())
    header = whole.rindex(b"PK\3\4", 0, place)
    path.write_bytes(whole[:header] + b"PX" + whole[header + 2 :])
    with pytest.raises(ReadError, match="net/data/0: expected its bytes in the file, found none where they"):
        archive.view("w", part)
    path.write_bytes(whole[: place + 200] + bytes([whole[place + 200] ^ 1]) + whole[place + 201 :])
    told = "net/data/0: expected the checksum [0-9a-f]{8}, found [0-9a-f]{8}; copy it again"
    with pytest.raises(ReadError, match=told):
        Archive(path).view("w", part).read()
    checksum = zlib.crc32(VALUES.tobytes()).to_bytes(4, "little")
    assert whole.count(checksum) == 2
    path.write_bytes(whole.replace(checksum, bytes(4)))  # as PyTorch writes where it computes none
    np.testing.assert_array_equal(Archive(path).view("w", part).read(), VALUES[:2])
    path.write_bytes(whole)
    view = archive.view("w", part)
    np.testing.assert_array_equal(view.read(), VALUES[:2])
    path.write_bytes(whole[: place + 7])
    with pytest.raises(ReadError, match="net/data/0: expected its bytes, found fewer; copy it again"):
        view.read()


def test_the_pickle_is_within_the_limit(tmp_path: Path) -> None:
    archive = Archive(write(tmp_path / "net.pt", mapping({"w": tensor("0", (60,))}), {}))
    size = len(archive.read_pickle())
    told = rf"expected a pickle of at most {size - 1} bytes, found {size}; "
    with context.within(context.Limits(expanded=size - 1)), pytest.raises(ReadError, match=told):
        archive.read_pickle()
    with context.within(context.Limits(expanded=size)):
        archive.read_pickle()


def test_the_order_of_members_is_of_no_importance(tmp_path: Path) -> None:
    make(tmp_path)
    with zipfile.ZipFile(tmp_path / "net.pt") as archive, zipfile.ZipFile(tmp_path / "b.pt", "w") as other:
        for name in reversed(archive.namelist()):
            other.writestr(name, archive.read(name))
    shutil.move(tmp_path / "b.pt", tmp_path / "net.pt")
    np.testing.assert_array_equal(Archive(tmp_path / "net.pt").view("w", claim((60,), (1,))).read(), VALUES)
