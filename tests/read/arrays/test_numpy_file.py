"""NumPy's files as sources: their names, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.read import read

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_arrays_have_the_names_of_members_and_files(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **{"in/x": VALUES, "y": np.asfortranarray(VALUES)})
    np.save(tmp_path / "single.npy", VALUES[:, ::2])
    model = read(tmp_path / "a.npz")
    assert (model.kind, {*model.variables}) == ("file of NumPy arrays", {"in/x", "y"})
    for tensor in model.variables.values():
        assert (tensor.shape, tensor.dtype) == ((3, 4), np.float32)
        np.testing.assert_array_equal(tensor.read(), VALUES, strict=True)
    (single,) = read(tmp_path / "single.npy").variables.items()
    np.testing.assert_array_equal(single[1].read(), VALUES[:, ::2], strict=True)
    assert single[0] == "single"


@pytest.mark.parametrize("damage", ["objects", "cut", "twice", "claims"])
def test_what_is_no_plain_array_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ("a.npy" if damage in ("cut", "claims") else "a.npz")
    if damage == "objects":
        np.savez(path, x=np.array([{"a": 1}], object))
    elif damage == "twice":
        np.savez(path, x=VALUES)
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", b"")
    else:
        np.save(path, VALUES)
        whole = path.read_bytes()
        claimed = whole.replace(b"(3, 4)", b"(3,99)")
        path.write_bytes(whole[:-1] if damage == "cut" else claimed)
    with pytest.raises(ReadError, match=r"file: expected plain arrays, found .*; save arrays of numbers, "):
        read(path)


def test_another_order_of_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=VALUES.astype(">f4"))
    (tensor,) = read(tmp_path / "a.npz").variables.values()
    np.testing.assert_array_equal(tensor.read(), VALUES, strict=True)
    assert tensor.dtype == np.float32
    if np.dtype(np.longdouble).itemsize > 8:  # on some systems it is float64
        np.savez(tmp_path / "b.npz", x=VALUES.astype(np.longdouble))
        with pytest.raises(ReadError, match="elements of float128"):
            read(tmp_path / "b.npz")


def test_a_header_that_the_parser_gives_up_on(tmp_path: Path) -> None:
    header = b"-" * 9000 + b"1\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ReadError, match="expected plain arrays"):
        read(path)


def test_an_archive_is_bounded_as_a_whole(tmp_path: Path) -> None:
    """Each member alone is within the bound."""
    values = {f"x{number}": np.zeros(1 << 20, np.float32) for number in range(80)}
    np.savez_compressed(tmp_path / "a.npz", **values)
    with pytest.raises(ReadError, match=r"found no plain arrays: \d+ bytes in \d+|found \d+ bytes in \d+"):
        read(tmp_path / "a.npz")
