"""What an HDF5 file of Keras must have, and how its damage is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from keras_files import entry, sequential

from cudnn_convert import context
from cudnn_convert.context import Limits
from cudnn_convert.errors import ReadError
from cudnn_convert.read import hdf5, read
from cudnn_convert.read.hdf5 import Store

SIGNATURE = b"\x89HDF\r\n\x1a\n"


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (ValueError("bad heap\nmore of it"), "bad heap"),
        (KeyError("weights"), "weights"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_the_first_line_of_a_failure_is_told(tmp_path: Path, cause: Exception, told: str) -> None:
    with h5py.File(tmp_path / "model.h5", "w"):
        pass
    with pytest.raises(ReadError) as caught, Store(tmp_path / "model.h5").open():
        raise cause
    assert str(caught.value) == (
        f"{tmp_path / 'model.h5'}: HDF5: expected a readable HDF5 file, found {told}; copy it again"
    )


def no_class(file: Any) -> None:
    file.attrs["model_config"] = json.dumps({"name": "m", "config": {}})


def no_names(file: Any) -> None:
    for number in range(7):
        file.create_group(f"model_weights/layer{number}")
    file.attrs["model_config"] = json.dumps(sequential(entry("Dense", "dense", units=3)))


def no_weight_names(file: Any) -> None:
    file.create_group("dense").create_dataset("kernel", data=np.zeros((2, 3), np.float32))
    file.attrs["layer_names"] = [b"dense"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (no_class, "model_config: expected class_name and config, found name, config"),
        (
            no_names,
            "HDF5 /model_weights: expected layer_names, as Keras writes, "
            "found layer0, layer1, layer2, layer3, layer4",
        ),
        (no_weight_names, "HDF5 /dense: expected a group with weight_names, found none"),
    ],
)
def test_what_keras_always_writes(tmp_path: Path, make: Callable[[Any], None], told: str) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        make(file)
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value).partition(";")[0] == f"{path}: {told}"


@pytest.mark.parametrize(
    ("content", "known"),
    [
        (SIGNATURE, True),
        (bytes(512) + SIGNATURE, True),
        (bytes(2048) + SIGNATURE, True),
        (bytes(512) + SIGNATURE[:-1], False),
        (b"x" + SIGNATURE + bytes(2000), False),
        (bytes(256) + SIGNATURE + bytes(2000), False),
        (bytes(1536) + SIGNATURE + bytes(2000), False),
        (bytes(2000), False),
        (b"", False),
    ],
)
def test_the_signature_stands_at_powers_of_two(tmp_path: Path, content: bytes, known: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert hdf5.is_hdf5(path) is known
    assert not hdf5.is_hdf5(tmp_path)


@pytest.mark.parametrize("member", [False, True])
def test_a_file_that_the_library_would_not_end_with_is_refused(tmp_path: Path, member: bool) -> None:
    """One with offsets of 2 bytes, which no writer of today makes."""
    path, content = tmp_path / "model.h5", SIGNATURE + bytes([0, 0, 0, 0, 0, 2, 2]) + bytes(100)
    path.write_bytes(b"a zip" if member else content)
    store = Store(path, "weights.h5", content) if member else Store(path)
    with pytest.raises(ReadError) as caught:
        store.check()
    found = "expected a readable HDF5 file, found offsets and lengths that are not of 8 bytes; copy it again"
    assert str(caught.value) == f"{path}: {'weights.h5' if member else 'HDF5'}: {found}"
    sound = made(tmp_path, lambda file: None)
    assert sound.check() is sound


def test_a_permission_is_no_damage(tmp_path: Path) -> None:
    store = made(tmp_path, lambda file: None)
    with pytest.raises(PermissionError), store.open():
        raise PermissionError(13, "Permission denied")


def made(folder: Path, make: Callable[[Any], Any]) -> Store:
    with h5py.File(folder / "file.h5", "w") as file:
        make(file)
    return Store(folder / "file.h5")


def tensor(store: Store, path: str) -> hdf5.Hdf5Tensor:
    with store.open() as file:
        return hdf5.tensor(store, file, path)


@pytest.mark.parametrize(("said", "known"), [("bfloat16", True), (None, False), ("complex32", False)])
def test_bfloat16_stands_as_two_bytes_with_a_name(tmp_path: Path, said: str | None, known: bool) -> None:
    """As Keras 3 writes it, where ml_dtypes' numbers become two bytes without a meaning."""
    array = np.array([[1.5, -2.0, 3.0], [0.1, np.inf, -0.0]], ml_dtypes.bfloat16)

    def make(file: Any) -> None:
        held = file.create_dataset("a", data=array)
        assert held.dtype.kind == "V"
        if said is not None:
            held.attrs["dtype"] = said

    found = tensor(made(tmp_path, make), "a")
    assert (found.shape, found.read().tobytes()) == ((2, 3), array.tobytes())
    assert found.dtype == found.read().dtype == (ml_dtypes.bfloat16 if known else np.dtype("V2"))


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "<i8", "S3"])
def test_other_numbers_stay_what_they_are(tmp_path: Path, dtype: str) -> None:
    array = np.array([1, -2, 30], dtype)

    def make(file: Any) -> None:
        file.create_dataset("a", data=array).attrs["dtype"] = "bfloat16"

    found = tensor(made(tmp_path, make), "a")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.read(), array, strict=True)


#: Bytes of one row of the arrays below: a hundred rows are more than is always read.
ROW = 4 * 700_000


@pytest.mark.parametrize(("rows", "stored"), [(101, 1), (202, 2), (400, 2)])
def test_an_array_that_would_fill_memory_is_not_read(tmp_path: Path, rows: int, stored: int) -> None:
    store = made(tmp_path, lambda file: sparse(file, rows, stored))
    with pytest.raises(ReadError) as caught:
        tensor(store, "a")
    told = f"HDF5 a: expected {rows * ROW} bytes of values, found {stored * ROW} bytes stored"
    advice = f"if that is meant, give --limit expanded={rows * ROW}"
    assert str(caught.value) == f"{store.path}: {told}; {advice}"
    with context.within(Limits(expanded=rows * ROW)):
        assert tensor(store, "a").shape[0] == rows


@pytest.mark.parametrize(("rows", "stored"), [(100, 1), (95, 0), (200, 2)])
def test_an_array_may_be_large_or_well_packed(tmp_path: Path, rows: int, stored: int) -> None:
    assert tensor(made(tmp_path, lambda file: sparse(file, rows, stored)), "a").shape == (rows, ROW // 4)


def sparse(file: Any, rows: int, stored: int) -> None:
    held = file.create_dataset("a", (rows, ROW // 4), "f4", chunks=(1, ROW // 4))
    for row in range(stored):
        held[row] = row


@pytest.mark.parametrize(("elements", "large"), [(2**26, False), (2**26 + 1, True)])
def test_what_is_not_stored_may_be_so_large(tmp_path: Path, elements: int, large: bool) -> None:
    store = made(tmp_path, lambda file: file.create_dataset("a", (elements,), "f4", chunks=(2**20,)))
    if not large:
        assert tensor(store, "a").shape == (elements,)
        return
    with pytest.raises(ReadError, match="expected 268435460 bytes of values, found 0 bytes stored"):
        tensor(store, "a")


def test_an_array_in_one_piece_is_stored_whole(tmp_path: Path) -> None:
    def make(file: Any) -> None:
        file.create_dataset("cut", (4, 5), "f4")
        file.create_dataset("rows", (4, 5), "f4", chunks=(2, 5), fillvalue=7)[:2] = 3
        file["none"] = np.zeros((0, 5), np.float32)

    store = made(tmp_path, make)
    with pytest.raises(
        ReadError, match="HDF5 cut: expected 80 bytes of values, found 0 bytes stored; copy it again"
    ):
        tensor(store, "cut")
    assert tensor(store, "none").read().shape == (0, 5)
    np.testing.assert_array_equal(tensor(store, "rows").read(), np.repeat([3, 7], 10).reshape(4, 5))


def test_nothing_stands_below_an_array(tmp_path: Path) -> None:
    store = made(tmp_path, lambda file: file.create_dataset("a/b", data=np.arange(3)))
    with pytest.raises(ReadError) as caught:
        tensor(store, "a/b/c")
    told = "HDF5 a/b/c: expected an object in the file itself, found nothing; save the model as one file"
    assert str(caught.value) == f"{store.path}: {told}"
    assert tensor(store, "/a/b").key == "/a/b"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"names": ["b", "a"]}, ("b", "a")),
        ({"names": "alone"}, ("alone",)),
        ({"names": np.array([], "S1"), "names0": ["a"]}, ()),
        ({"names": ["a"], "names0": ["b"]}, ("a",)),
        (
            {f"names{k}": [f"{k}a", f"{k}b"] for k in range(11)},
            tuple(f"{k}{w}" for k in range(11) for w in "ab"),
        ),
        ({"names0": [b"a"], "names1": [b"b"], "names3": [b"c"], "other": 1}, ("a", "b")),
        ({"names1": ["a"], "other": 1}, None),
        ({"name": ["a"]}, None),
        ({}, None),
    ],
)
def test_a_list_of_names_may_be_divided(
    tmp_path: Path, attributes: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    with made(tmp_path, lambda file: file.attrs.update(attributes)).open() as file:
        assert hdf5.names(file, "names") == expected


def test_children_are_those_in_the_file_itself(tmp_path: Path) -> None:
    def make(file: Any) -> None:
        file["kept"] = np.arange(3)
        file["here"] = h5py.SoftLink("/kept")
        file["nowhere"] = h5py.SoftLink("/none")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/")

    with made(tmp_path, make).open() as file:
        assert [name for name, _ in hdf5.children(file)] == ["kept"]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("{", "a: expected JSON, found "),
        (b"{", "a: expected JSON, found "),
        (r'{"b": "\ud800"}', "a: expected JSON, found "),
        (b"\xff", "a: expected JSON, found "),
        ("[" * 60000, "a: expected JSON, found "),
        ("[]", "a: expected a JSON object, found list"),
    ],
)
def test_an_attribute_that_is_no_json_object(tmp_path: Path, stored: Any, told: str) -> None:
    with pytest.raises(ReadError) as caught:
        hdf5.parse_json(tmp_path, "a", stored)
    assert str(caught.value).startswith(f"{tmp_path}: {told}")


def test_json_may_have_any_letters(tmp_path: Path) -> None:
    for stored in ('{"b": "ä\u4e00"}', r'{"b": "\u00e4\u4e00"}', '{"b": "ä\u4e00"}'.encode()):
        assert hdf5.parse_json(tmp_path, "a", stored) == {"b": "ä\u4e00"}


def sound(file: Any) -> None:
    """Groups in groups, a circle of links, an entry without values, and two arrays."""
    file["a/b/c"] = np.arange(3)
    file["d"] = np.arange(4.0)
    file["a/empty"] = h5py.Empty("f4")
    file["a/b/back"] = file["a"]
    file["a/top"] = file["/"]


def test_a_whole_file_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, look = list[str](), hdf5.dataset

    def looking(store: Store, group: Any, path: str) -> Any:
        seen.append(path)
        assert len(seen) < 100
        return look(store, group, path)

    monkeypatch.setattr(hdf5, "dataset", looking)
    hdf5.require_whole(made(tmp_path, sound))
    assert sorted(seen) == ["c", "d"]


def _soft(group: Any) -> None:
    group["x"] = h5py.SoftLink("/d")


def _external(group: Any) -> None:
    group["x"] = h5py.ExternalLink("other.h5", "/")


def _elsewhere(group: Any) -> None:
    group.create_dataset("x", (4,), "f4", external=[("other", 0, h5py.h5f.UNLIMITED)])


@pytest.mark.parametrize("place", ["/", "a", "a/b"])
@pytest.mark.parametrize("fault", [_soft, _external, _elsewhere])
def test_a_file_that_is_not_whole_is_refused(
    tmp_path: Path, place: str, fault: Callable[[Any], None]
) -> None:
    store = made(tmp_path, lambda file: file.create_group("a/b"))
    with h5py.File(store.path, "a") as file:
        fault(file[place])
    with pytest.raises(ReadError) as caught:
        hdf5.require_whole(store)
    assert str(caught.value).startswith(f"{store.path}: HDF5 x: expected ")
