"""`.keras` archives: what counts as one, what is taken from it, and members that lie."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.keras_files import cudnn, entry, sequential

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Architecture
from cudnn_convert.read import keras_archive

RNG = np.random.default_rng(7)
LSTM = cudnn(RNG, 4, 3, 5)
CONFIG = sequential(entry("CuDNNLSTM", "fast", units=3))
NAMES = ("config.json", "metadata.json", "model.weights.h5")


def weights(*, optimizer: int | None = None) -> bytes:
    """A weights file with one layer, and with an optimizer of so many arrays."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for k, (_, array) in enumerate(LSTM):
            file[f"layers/cu_dnnlstm/vars/{k}"] = array
        if optimizer is not None:
            file.create_group("optimizer")
        for k in range(optimizer or 0):
            file[f"optimizer/vars/{k}"] = np.arange(k, k + 3)
    return content.getvalue()


def archive(path: Path, members: Mapping[str, bytes | None], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    """A sound archive, but for `members`; None leaves one out."""
    sound = {NAMES[0]: json.dumps(CONFIG).encode(), NAMES[1]: b'{"keras_version": "2.21.0"}'}
    with zipfile.ZipFile(path, "w", kind) as made:
        for name, content in ({**sound, NAMES[2]: weights()} | members).items():
            if content is not None:
                made.writestr(name, content)
    return path


def architecture(path: Path) -> Architecture:
    found = keras_archive.read(path).architecture
    assert found is not None
    return found


def listed(path: Path, name: str = NAMES[0], **fields: int) -> Path:
    """Changes what the list at an archive's end says of a member: APPNOTE.TXT 6.3.9, 4.3.12."""
    places = {"flags": (8, "<H"), "method": (10, "<H"), "stored": (20, "<L"), "size": (24, "<L")}
    content = bytearray(path.read_bytes())
    start = content.rindex(name.encode()) - 46
    assert content[start : start + 4] == b"PK\x01\x02"
    for field, value in fields.items():
        offset, form = places[field]
        struct.pack_into(form, content, start + offset, value)
    path.write_bytes(bytes(content))
    return path


def test_a_config_and_weights_make_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for left in ({}, {NAMES[1]: None}, {"assets/words": b"a"}):
        assert keras_archive.recognise(archive(path, left)) == path
    for name in (NAMES[0], NAMES[2]):
        assert keras_archive.recognise(archive(path, {name: None})) is None
    assert keras_archive.recognise(tmp_path) is None
    assert keras_archive.recognise(tmp_path / "none") is None
    path.write_bytes(b"PK\x05\x06")
    assert keras_archive.recognise(path) is None


def test_all_of_a_model_is_taken(tmp_path: Path) -> None:
    config = {"module": "keras", **CONFIG, "registered_name": None, "build_config": {}}
    adam = {"class_name": "Adam", "config": {"learning_rate": 0.1}}
    config["compile_config"] = {"loss": "mse", "optimizer": {"module": "keras.optimizers", **adam}}
    members = {NAMES[0]: json.dumps(config).encode(), NAMES[2]: weights(optimizer=2)}
    path = archive(tmp_path / "model.keras", members)
    model = keras_archive.read(path)
    found = architecture(path)
    assert (model.path, model.kind, model.graph) == (path, "Keras archive", None)
    assert found.config == {"module": "keras", **CONFIG, "registered_name": None}
    assert (found.keras_version, found.backend) == ("2.21.0", "tensorflow")
    assert found.training == {"loss": "mse", "optimizer_config": adam}  # as in HDF5 files
    assert [name for name, _ in found.weights["fast"]] == [f"fast/{k}:0" for k in range(3)]
    for (_, tensor), (_, array) in zip(found.weights["fast"], LSTM, strict=True):
        np.testing.assert_array_equal(tensor.read(), array, strict=True)
    assert [name for name, _ in found.optimizer] == ["optimizer/0:0", "optimizer/1:0"]
    np.testing.assert_array_equal(found.optimizer[1][1].read(), [1, 2, 3])


def test_a_model_may_say_little_of_itself(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.keras", {NAMES[1]: None, NAMES[2]: weights(optimizer=0)})
    found = architecture(path)
    assert (found.config, found.keras_version, found.training, found.optimizer) == (CONFIG, "", None, ())
    assert architecture(archive(path, {NAMES[1]: b"{}"})).keras_version == ""


@pytest.mark.parametrize(
    ("member", "content", "told"),
    [
        (NAMES[0], b"{", "config.json: expected JSON, found Expecting property name"),
        (NAMES[0], b"[]", "config.json: expected a JSON object, found list"),
        (
            NAMES[0],
            b'{"name": 1, "config": {}}',
            "config.json: expected class_name and config, found name, config",
        ),
        (
            NAMES[0],
            b'{"class_name": "A", "config": []}',
            "config.json: expected class_name and config, found class_",
        ),
        (NAMES[0], b'{"class_name": "A"}', "config.json: expected class_name and config, found class_name"),
        (NAMES[1], b"{", "metadata.json: expected JSON, found Expecting property name"),
        (NAMES[1], b"1", "metadata.json: expected a JSON object, found int"),
        (NAMES[2], b"no HDF5", "model.weights.h5: expected a readable HDF5 file, found "),
    ],
)
def test_a_member_that_is_none_is_named(tmp_path: Path, member: str, content: bytes, told: str) -> None:
    path = archive(tmp_path / "model.keras", {member: content})
    with pytest.raises(ReadError) as caught:
        keras_archive.read(path)
    assert str(caught.value).startswith(f"{path}: {told}")


def test_what_the_config_claims_is_looked_at_and_no_more(tmp_path: Path) -> None:
    config = {"class_name": "Sequential", "config": {"name": "model", "layers": 3}}
    path = archive(tmp_path / "model.keras", {NAMES[0]: json.dumps(config).encode()})
    assert refused(path).startswith("config.json: model")
    trained = json.dumps({**CONFIG, "compile_config": {"seed": 2**70}}).encode()
    assert architecture(archive(path, {NAMES[0]: trained})).training == {"seed": 2**70}


def refused(path: Path) -> str:
    with pytest.raises(ReadError) as caught:
        keras_archive.read(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("size", "stored"), [(2**28 + 1, 100), (2**29, 2684354), (100 * 2684355 + 1, 2684355), (2**31, 2**24)]
)
def test_a_member_that_would_fill_memory_is_not_unpacked(tmp_path: Path, size: int, stored: int) -> None:
    path = listed(archive(tmp_path / "model.keras", {}), size=size, stored=stored)
    found = f"config.json: expected a file of usual compression, found {size} bytes packed into {stored}"
    assert refused(path) == f"{found}; if that is meant, give --limit expanded={size}"


@pytest.mark.parametrize(("size", "stored"), [(2**28, None), (100 * 2684355, 2684355), (2**30, 2**24)])
def test_a_member_may_be_large_or_well_packed(tmp_path: Path, size: int, stored: int | None) -> None:
    path = archive(tmp_path / "model.keras", {})
    listed(path, size=size, **({} if stored is None else {"stored": stored}))
    try:
        assert architecture(path).config == CONFIG
    except ReadError as error:  # newer Pythons see that it would reach into the next member
        assert stored is not None
        assert "expected a readable file in the archive" in str(error)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.keras", {NAMES[0]: b"secret" * 9}, zipfile.ZIP_STORED)
    listed(path, flags=1)
    assert refused(path) == "config.json: expected a file without encryption, found an encrypted one"


def test_how_well_a_member_was_packed_is_no_encryption(tmp_path: Path) -> None:
    path = listed(archive(tmp_path / "model.keras", {}), flags=2)
    assert architecture(path).config == CONFIG


@pytest.mark.parametrize("name", NAMES)
def test_two_members_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "model.keras", {})
    with zipfile.ZipFile(path, "a") as more, pytest.warns(UserWarning, match="Duplicate name"):
        more.writestr(name, b"{}")
    assert refused(path).startswith(f"{name}: expected one file of this name in the archive, found several")


def test_a_member_packed_in_another_way_is_refused(tmp_path: Path) -> None:
    path = listed(archive(tmp_path / "model.keras", {}), method=97)
    told = (
        "config.json: expected a readable file in the archive, found That compression method is not supported"
    )
    assert refused(path) == f"{told}; copy it again"


@pytest.mark.parametrize("name", [NAMES[0], NAMES[2]])
def test_a_member_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "model.keras", {name: None})
    told = f"{name}: expected a readable file in the archive, found"
    assert refused(path).startswith(told)


def test_a_member_with_other_bytes_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.keras", {}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b'"class_name"', b'"clash_name"'))
    told = "config.json: expected a readable file in the archive, found Bad CRC-32 for file 'config.json'"
    assert refused(path) == f"{told}; copy it again"


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (EOFError(), "EOFError"),
        (RuntimeError("no key\nsecond"), "no key"),
        (OSError(22, "Invalid argument"), "[Errno 22] Invalid argument"),
    ],
)
def test_the_first_line_of_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception, told: str
) -> None:
    def failing(*_: Any) -> bytes:
        raise cause

    path = archive(tmp_path / "model.keras", {})
    monkeypatch.setattr(zipfile.ZipFile, "read", failing)
    assert (
        refused(path) == f"config.json: expected a readable file in the archive, found {told}; copy it again"
    )


def test_what_the_system_says_of_the_file_itself_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> bytes:
        raise PermissionError(13, "Permission denied", "model.keras")

    path = archive(tmp_path / "model.keras", {})
    monkeypatch.setattr(zipfile.ZipFile, "read", failing)
    with pytest.raises(PermissionError):
        keras_archive.read(path)


def test_each_part_of_a_whole_archive_is_looked_at(tmp_path: Path) -> None:
    def told() -> str:
        with pytest.raises(ReadError) as caught:
            keras_archive.require_whole(path)
        return str(caught.value)

    path = tmp_path / "model.keras"
    keras_archive.require_whole(archive(path, {}))
    for name in NAMES:
        listed(archive(path, {}), name, flags=1)
        assert told().startswith(f"{path}: {name}: expected a file without encryption")
    listed(listed(archive(path, {}), NAMES[1], flags=1), NAMES[0], flags=1)
    assert told().startswith(f"{path}: {NAMES[0]}: ")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file["layers"] = h5py.ExternalLink("other.h5", "/")
    archive(path, {NAMES[2]: content.getvalue()})
    assert told().startswith(
        f"{path}: {NAMES[2]} layers: expected an object in the file itself, found a link"
    )
