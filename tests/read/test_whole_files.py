"""HDF5 files and archives as another program would follow them: nothing elsewhere, no more than is stored."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from samples import ROOT

from cudnn_convert.context import Limits, within
from cudnn_convert.errors import ReadError
from cudnn_convert.read import checkpoint, hdf5, keras_archive
from cudnn_convert.read.hdf5 import Store

BROKEN = ROOT / "tests" / "data" / "broken"
OUTSIDE = {
    "an external link": lambda group: group.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/x")),
    "a soft link": lambda group: group.__setitem__("x", h5py.SoftLink("/x")),
    "external storage": lambda group: group.create_dataset(
        "x", (4,), np.float32, external=[("/etc/passwd", 0, 16)]
    ),
    "nothing stored": lambda group: group.create_dataset("x", (1 << 40,), np.float32, chunks=(64,)),
}


@pytest.mark.parametrize("path", ["/", "/a/b"])
@pytest.mark.parametrize("put", OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_elsewhere_is_found_at_any_depth(tmp_path: Path, put: Any, path: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["first"] = np.arange(3)
        put(file.require_group(path))
    with pytest.raises(ReadError, match=r"x\.h5: HDF5 x: expected"):
        hdf5.require_whole(Store(tmp_path / "x.h5"))


def test_a_whole_file_may_hold_itself(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b/values"] = np.arange(3)
        file["a/empty"] = h5py.Empty("f")
        file["a/type"] = np.dtype("f4")
        file["a/again"] = file["/"]
        file["a/b/above"] = file["a"]
    hdf5.require_whole(Store(tmp_path / "x.h5"))


def test_an_archive_is_whole_in_each_of_its_members() -> None:
    keras_archive.require_whole(BROKEN / "climbing.keras")
    for name, member in (("member_twice", "config.json"), ("member_link", "model.weights.h5")):
        with pytest.raises(ReadError, match=f"{name}.keras: {member}: expected"):
            keras_archive.require_whole(BROKEN / f"{name}.keras")


@pytest.mark.parametrize("name", ["config.json", "metadata.json", "model.weights.h5"])
def test_a_member_that_stands_twice(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.keras"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for held in (b"{}", b"[]"):
            archive.writestr(name, held)
    with pytest.raises(ReadError) as caught:
        keras_archive.member(path, name)
    told = "expected one member of the name, found several; copy it again"
    assert str(caught.value) == f"{path}: {name}: {told}"


def test_the_latest_checkpoint_is_in_the_folder_that_names_it(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir(exist_ok=True)
    for suffix in (".index", ".data-00000-of-00001"):
        (tmp_path / f"there/model.ckpt{suffix}").write_bytes(b"x")
    state = tmp_path / "here" / "checkpoint"
    state.write_text(f'model_checkpoint_path: "{tmp_path}/there/model.ckpt"')
    with pytest.raises(ReadError) as caught:
        checkpoint.recognise(tmp_path / "here")
    told = f"expected the latest in its own folder, found {tmp_path}/there/model.ckpt; give that path itself"
    assert str(caught.value) == f"{state}: file: {told}"
    (tmp_path / "here/model.ckpt.index").write_bytes(b"x")
    found = checkpoint.recognise(tmp_path / "here")
    assert found is not None
    assert found.prefix == tmp_path / "here" / "model.ckpt"


def test_what_a_file_becomes_counts_in_sum(tmp_path: Path) -> None:
    """Each of its arrays may be of 256 MiB; 18 of them in some KB are nothing that was trained."""
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for number in range(18):
            shape = (1 << 20, 64)
            file.create_dataset(f"{number}/kernel", shape, "f4", chunks=shape, compression="gzip")
    assert path.stat().st_size < 1 << 17
    said = f"{18 << 28} bytes of values in sum, found a file of .* --limit expanded={18 << 28}$"
    with pytest.raises(ReadError, match=said):
        hdf5.require_whole(Store(path))
    with within(Limits(expanded=18 << 28)):
        hdf5.require_whole(Store(path))
    archive = tmp_path / "many.keras"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("config.json", "{}")
        members.writestr("metadata.json", "{}")
        members.writestr("model.weights.h5", path.read_bytes())
    with pytest.raises(ReadError, match=said):
        keras_archive.require_whole(archive)
