"""HDF5 files: what one must have, damage, endless heaps, what lies elsewhere."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from support.keras_files import entry, sequential
from support.samples import ROOT

from cudnn_convert import context
from cudnn_convert.context import Limits, within
from cudnn_convert.errors import ReadError
from cudnn_convert.read import checkpoint, hdf5, keras_archive, keras_hdf5, read
from cudnn_convert.read.hdf5 import Store

# What an HDF5 file of Keras must have, and how its damage is told.

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
            "HDF5 /model_weights: expected layer_names, as Keras writes them, "
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


# A heap that the HDF5 library would never leave is found before it is asked to read it.

HEAP = b"GCOL\1\0\0\0"


def sound_heap(block: int = 0) -> bytearray:
    """A file with two strings in its heap."""
    held = io.BytesIO()
    with h5py.File(held, "w", userblock_size=block) as file:
        file.attrs["one"], file.attrs["two"] = "a string", "another, longer than a word"
    return bytearray(held.getvalue())


def object_at(content: bytes, number: int) -> int:
    """Where an object of the heap begins."""
    place = content.index(HEAP) + 16
    for _ in range(number):
        size = int.from_bytes(content[place + 8 : place + 16], "little")
        place += 16 + (size + 7) // 8 * 8
    return place


def fault(content: bytes) -> str | None:
    return hdf5.fault(io.BytesIO(content))


@pytest.mark.parametrize("block", [0, 512, 2048])
def test_a_sound_file_has_no_fault(block: int) -> None:
    assert fault(sound_heap(block)) is None


@pytest.mark.parametrize("number", [0, 1])
def test_a_free_object_of_no_size_is_a_fault(number: int) -> None:
    content = sound_heap()
    place = object_at(content, number)
    content[place : place + 16] = bytes(16)
    assert fault(content) == f"a heap without an end at byte {content.index(HEAP)}"
    content[place + 8] = 16  # it says how far the next one is
    content[place + 16 : place + 32] = bytes([0, 0] + [0] * 6 + [16] + [0] * 7)
    assert fault(content[: place + 32]) is None


def test_a_used_object_of_no_size_is_none() -> None:
    content = sound_heap()
    place = object_at(content, 1)
    content[place + 8 : place + 16] = bytes(8)
    content[place + 16 :] = b"\1" * (len(content) - place - 16)
    assert fault(content) is None


def after_superblock(*parts: bytes) -> bytes:
    """A superblock of 16 bytes, and what follows it."""
    return b"".join([b"\x89HDF\r\n\x1a\n\2\x08\x08".ljust(16, b"\0"), *parts])


def heap(*objects: bytes, size: int | None = None) -> bytes:
    content = b"".join(objects)
    return HEAP + (16 + len(content) if size is None else size).to_bytes(8, "little") + content


def held(size: int, *, number: int = 1, content: bytes = b"") -> bytes:
    """An object of a heap, a free one where its number is 0."""
    return number.to_bytes(8, "little") + size.to_bytes(8, "little") + content


ENDLESS = held(0, number=0)


@pytest.mark.parametrize("place", [0, 64])
def test_a_heap_counts_wherever_it_lies(place: int) -> None:
    content = bytes(place) + heap(ENDLESS)
    assert fault(content.ljust(512, b"\1") + after_superblock()) == f"a heap without an end at byte {place}"


@pytest.mark.parametrize("size", range(9))
def test_what_an_object_holds_ends_at_a_word(size: int) -> None:
    used = held(size, content=b"\1" * (8 if size else 0))
    assert fault(after_superblock(heap(used, ENDLESS))) == "a heap without an end at byte 16"
    assert fault(after_superblock(heap(used, ENDLESS[:-1]), b"\0" * 16)) is None, (
        "too little room for one more object"
    )


def test_a_free_object_says_how_far_the_next_one_is() -> None:
    for size in (16, 24, 40):
        free = held(size, number=0, content=b"\1" * (size - 16))
        assert fault(after_superblock(heap(free, ENDLESS, b"\1" * 32))) == "a heap without an end at byte 16"
        assert fault(after_superblock(heap(free, held(8), ENDLESS))) is None, "what is held is no object"
        assert fault(after_superblock(heap(free))) is None


def test_a_heap_ends_before_what_follows_it() -> None:
    assert fault(after_superblock(heap(held(0)), bytes(32))) is None
    assert fault(after_superblock(heap(), bytes(32))) is None
    assert fault(after_superblock(heap(held(0), size=40), bytes(32))) is None


def test_a_heap_that_is_cut_off_has_an_end() -> None:
    content = after_superblock(heap(held(0), held(0, number=0), size=4096))
    assert fault(content) == "a heap without an end at byte 16"
    for size in range(16, len(content)):
        assert fault(content[:size]) is None


@pytest.mark.parametrize("size", [2**64 - 23, 2**64 - 17, 2**64 - 16])
def test_a_size_that_comes_to_nothing_with_its_header_is_a_fault(size: int) -> None:
    assert fault(after_superblock(heap(held(size)))) == "a heap without an end at byte 16"
    assert fault(after_superblock(heap(held(size, number=0)))) is None


def test_sizes_that_go_round_go_on_where_the_library_does() -> None:
    told = "a heap without an end at byte 16"
    assert fault(after_superblock(heap(held(2**64 - 1), ENDLESS))) == told
    # 8 bytes on, its size and the word after it are read as an object that holds one word more.
    content = bytes([8]).ljust(8, b"\0") + b"\1" * 8
    assert fault(after_superblock(heap(held(2**64 - 8, content=content), ENDLESS))) == told
    assert fault(after_superblock(heap(held(2**64 - 24), ENDLESS))) is None


@pytest.mark.parametrize("size", [2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("number", [0, 1])
def test_no_place_beyond_the_file_is_sought(size: int, number: int) -> None:
    for far in (2**62, 2**63 - 64, 2**63 + 8, 2**64 - 64):
        assert fault(after_superblock(heap(held(far, number=number), ENDLESS, size=size))) is None


def test_a_heap_within_another_counts_too() -> None:
    """A reference may lead to it, and what lies around it may be there to hide it."""
    inner = heap(ENDLESS)
    assert (
        fault(after_superblock(heap(held(len(inner), content=inner)))) == "a heap without an end at byte 48"
    )
    assert (
        fault(after_superblock(heap(held(1 << 40), size=1 << 41), inner))
        == "a heap without an end at byte 48"
    )
    inner = heap(held(0))
    assert fault(after_superblock(heap(held(len(inner), content=inner)))) is None


@pytest.mark.parametrize("chunk", [1 << 24, 55, 56, 57, 16])
def test_heaps_that_lie_over_each_other_have_as_many_objects_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """So that looking takes no longer than the file is long."""
    monkeypatch.setattr(hdf5, "_CHUNK", chunk)

    def over(count: int) -> bytes:
        shared = held(0) * count
        # From the first heap's free object, over the second heap's header, to what both share.
        return after_superblock(heap(held(32, number=0), heap(shared), size=48 + len(shared)))

    assert fault(over(3)) is None, "1 + 3 and 3 objects in 7 times 16 bytes"
    assert fault(over(3) + bytes(16)) is None
    assert fault(over(4)) == "heaps with more objects than there is room for"
    assert fault(over(4) + bytes(15)) == "heaps with more objects than there is room for"
    assert fault(over(4) + bytes(16)) is None


def test_a_heap_is_found_where_it_lies_over_an_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    content = sound_heap()
    begin = content.index(HEAP)
    content[object_at(content, 0) : object_at(content, 0) + 16] = bytes(16)
    for size in (begin + 1, begin + 7, begin + 8, begin, 64, 3):
        monkeypatch.setattr(hdf5, "_CHUNK", size)
        assert fault(content) == f"a heap without an end at byte {begin}"


@pytest.mark.parametrize("place", [1, 256, 514, 1536])
def test_a_superblock_stands_at_no_other_place(place: int) -> None:
    assert (
        fault(bytes(place) + after_superblock(bytes(4096))) == "offsets and lengths that are not of 8 bytes"
    )
    assert fault(bytes(1024) + after_superblock(bytes(4096))) is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_widths_of_other_files_are_refused(version: int) -> None:
    place = 13 if version < 2 else 9
    head = bytearray(b"\x89HDF\r\n\x1a\n" + bytes([version]) + bytes(20))
    head[place : place + 2] = b"\x08\x08"
    assert fault(bytes(head)) is None
    for at in (place, place + 1):
        other = head.copy()
        other[at] = 4
        assert fault(bytes(other)) == "offsets and lengths that are not of 8 bytes"


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\x09" * 20])
def test_an_unknown_superblock_is_refused(content: bytes) -> None:
    assert fault(content) == "offsets and lengths that are not of 8 bytes"


def test_readers_look_first(tmp_path: Path) -> None:
    content = sound_heap()
    content[object_at(content, 0) : object_at(content, 0) + 16] = bytes(16)
    (tmp_path / "a.h5").write_bytes(content)
    reason = "expected a readable HDF5 file, found a heap without an end at byte [0-9]+; copy it again"
    with pytest.raises(ReadError, match=f"a.h5: HDF5: {reason}"):
        keras_hdf5.read(tmp_path / "a.h5")
    with pytest.raises(ReadError, match=f"a.h5: inner: {reason}"):
        Store(tmp_path / "a.h5", "inner", bytes(content)).check()
    store = Store(tmp_path / "a.h5", "inner", bytes(sound_heap()))
    assert store.check() is store


# HDF5 files and archives as another program would follow them: nothing elsewhere, no more than is stored.

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
    told = "expected one file of this name in the archive, found several; copy it again"
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
    # A member counts as large as it is, however small the archive.
    content = made(tmp_path, sound).path.read_bytes()
    hdf5.require_whole(Store(tmp_path / "gone.keras", "model.weights.h5", content))
