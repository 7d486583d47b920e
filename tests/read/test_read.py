"""Which reader a path belongs to, and what is said where there is none, or more than one."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import h5py
import pytest

from cudnn_convert import context
from cudnn_convert.errors import AccessError, AmbiguousSourceError, ReadError, UsageError
from cudnn_convert.read import digest_files, is_model, paths, read, require

KINDS = (
    "a TensorFlow 1 checkpoint, a TensorFlow SavedModel, a frozen graph, a Keras HDF5 file, a Keras archive "
    "or a file of arrays"
)


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
    assert (
        str(caught.value)
        == f"{path}: source: expected {KINDS}, found {'an empty folder' if folder else 'a text file'}"
    )


def test_a_file_of_two_kinds_is_told(tmp_path: Path) -> None:
    path = tmp_path / "both"
    with h5py.File(path, "w"):
        pass
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", json.dumps({}))
        archive.writestr("model.weights.h5", b"")
    with pytest.raises(AmbiguousSourceError) as caught:
        read(path)
    found = "found a Keras HDF5 file and a Keras archive; give the file of one of them"
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


def put_files(folder: Path, *names: str) -> dict[str, str]:
    """Write files of different contents, some of more than one block; returns their digests by name."""
    digests = {}
    for number, name in enumerate(names):
        content = bytes([number]) * (number * 1_500_000 + 1)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def test_each_file_of_a_model_has_its_digest(tmp_path: Path) -> None:
    model = tmp_path / "model"
    names = ("saved_model.pb", "fingerprint.pb", "variables/variables.index", "assets/deep/words.txt")
    digests = put_files(model, *names)
    put_files(model, "notes.txt", "other/words.txt")
    progress = list[tuple[str, int, int]]()
    with context.listen(lambda *step: progress.append(step)):
        assert digest_files(model) == digests
    sizes = [1, 1_500_001, 3_000_001, 4_500_001]
    assert {(step, total) for step, _, total in progress} == {("digesting", sum(sizes))}
    done = [amount for _, amount, _ in progress]
    assert done == sorted(done)
    assert done[-1] == sum(sizes)
    assert len(done) > len(sizes)


def test_a_prefix_may_be_a_file_of_its_checkpoint(tmp_path: Path) -> None:
    """As of checkpoints of the first format, which may be in one file."""
    digests = put_files(tmp_path, "model", "model.meta", "model-00000-of-00001")
    put_files(tmp_path, "other.meta", "models.meta")
    assert digest_files(tmp_path / "model") == digests
    (tmp_path / "model").unlink()
    assert digest_files(tmp_path / "model").keys() == digests.keys() - {"model"}


def test_what_readers_know_is_a_model(tmp_path: Path) -> None:
    """As is what they cannot look at."""
    put_files(tmp_path, "letter", "model/saved_model.pb")
    assert is_model(tmp_path / "model")
    assert not is_model(tmp_path / "letter")
    assert not is_model(tmp_path / "nothing")
    put_files(tmp_path, "two/a.index", "two/b.index")
    assert is_model(tmp_path / "two")


def test_the_paths_of_a_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    put_files(model, "saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001")
    index, data = (model / "variables" / f"variables.{end}" for end in ("index", "data-00000-of-00001"))
    assert paths.of(index) == [index, model, data]
    assert paths.of(model) == [model]
    assert paths.of(model / "saved_model.pb") == [model / "saved_model.pb", model]
    # Another checkpoint in the folder, and a model among the assets.
    put_files(model, "logs/model.ckpt.index", "assets/inner/saved_model.pb")
    assert paths.of(model / "logs" / "model.ckpt") == [
        model / "logs" / "model.ckpt",
        model / "logs" / "model.ckpt.index",
    ]
    inner = model / "assets" / "inner"
    assert paths.of(inner) == [inner, model]


@pytest.mark.parametrize("path", [Path("/"), Path()])
def test_a_path_without_a_name_is_no_prefix(path: Path) -> None:
    assert paths.prefix_files(path) == []
