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
