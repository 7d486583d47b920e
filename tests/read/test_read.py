"""Which reader a path belongs to, and what is said where there is none, or more than one."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import h5py
import pytest

from cudnn_convert.errors import AccessError, AmbiguousSourceError, ReadError, UsageError
from cudnn_convert.read import read, require

KINDS = "TensorFlow 1 checkpoint, TensorFlow SavedModel, frozen graph, Keras HDF5 file, Keras archive"


def test_nothing_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    told = f"source: expected {KINDS}, found no such file or folder; check the path"
    for look in (read, require):
        with pytest.raises(ReadError) as caught:
            look(path)
        assert str(caught.value) == f"{path}: {told}"


@pytest.mark.parametrize("folder", [False, True])
def test_something_else_is_told(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "model.ckpt"
    if folder:
        path.mkdir()
    else:
        path.write_text("a letter")
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: source: expected {KINDS}, found a file or folder of another kind"


def test_a_file_of_two_kinds_is_told(tmp_path: Path) -> None:
    path = tmp_path / "both"
    with h5py.File(path, "w"):
        pass
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", json.dumps({}))
        archive.writestr("model.weights.h5", b"")
    with pytest.raises(AmbiguousSourceError) as caught:
        read(path)
    found = "found a Keras HDF5 file and a Keras archive; give a file of one"
    assert str(caught.value) == f"{path}: source: expected one model, {found}"


def test_a_tag_is_for_formats_that_have_tags(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w"):
        pass
    with pytest.raises(UsageError) as caught:
        read(path, tag="serve")
    assert str(caught.value) == f"--tag: {path}: expected a SavedModel, found a Keras HDF5 file"


def test_what_the_system_refuses_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "model.pb"
    path.write_bytes(b"x")
    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(AccessError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: cannot read: Permission denied"
