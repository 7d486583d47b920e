"""A heap that the HDF5 library would never leave is found before it is asked to read it."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.read import heaps, keras_hdf5
from cudnn_convert.read.hdf5 import Store

SIGNATURE = b"GCOL\1\0\0\0"


def sound(block: int = 0) -> bytearray:
    """A file with two strings in its heap."""
    held = io.BytesIO()
    with h5py.File(held, "w", userblock_size=block) as file:
        file.attrs["one"], file.attrs["two"] = "a string", "another, longer than a word"
    return bytearray(held.getvalue())


def entry(content: bytes, number: int) -> int:
    """Where an object of the heap begins."""
    place = content.index(SIGNATURE) + 16
    for _ in range(number):
        size = int.from_bytes(content[place + 8 : place + 16], "little")
        place += 16 + (size + 7) // 8 * 8
    return place


def fault(content: bytes) -> str | None:
    return heaps.fault(io.BytesIO(content))


@pytest.mark.parametrize("block", [0, 512, 2048])
def test_a_sound_file_has_no_fault(block: int) -> None:
    assert fault(sound(block)) is None


@pytest.mark.parametrize("number", [0, 1])
def test_a_free_object_of_no_size_is_a_fault(number: int) -> None:
    content = sound()
    place = entry(content, number)
    content[place : place + 16] = bytes(16)
    assert fault(content) == f"a heap without an end at byte {content.index(SIGNATURE)}"
    content[place + 8] = 16  # it says how far the next one is
    content[place + 16 : place + 32] = bytes([0, 0] + [0] * 6 + [16] + [0] * 7)
    assert fault(content[: place + 32]) is None


def test_a_used_object_of_no_size_is_none() -> None:
    content = sound()
    place = entry(content, 1)
    content[place + 8 : place + 16] = bytes(8)
    content[place + 16 :] = b"\1" * (len(content) - place - 16)
    assert fault(content) is None


def test_only_a_heap_of_its_own_counts() -> None:
    """What looks like a heap in the content of another one is none."""
    content = sound()
    place = entry(content, 1) + 16
    content[place : place + 24] = SIGNATURE + (64).to_bytes(8, "little") + bytes(8)
    assert fault(content) is None


def test_a_heap_is_found_where_it_lies_over_an_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    content = sound()
    begin = content.index(SIGNATURE)
    content[entry(content, 0) : entry(content, 0) + 16] = bytes(16)
    for size in (begin + 1, begin + 7, begin + 8, begin, 64):
        monkeypatch.setattr(heaps, "_CHUNK", size)
        assert fault(content) == f"a heap without an end at byte {begin}"


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
    content = sound()
    content[entry(content, 0) : entry(content, 0) + 16] = bytes(16)
    (tmp_path / "a.h5").write_bytes(content)
    reason = "expected a readable HDF5 file, found a heap without an end at byte [0-9]+; copy it again"
    with pytest.raises(ReadError, match=f"a.h5: HDF5: {reason}"):
        keras_hdf5.read(tmp_path / "a.h5")
    with pytest.raises(ReadError, match=f"a.h5: inner: {reason}"):
        Store(tmp_path / "a.h5", "inner", bytes(content)).checked()
    store = Store(tmp_path / "a.h5", "inner", bytes(sound()))
    assert store.checked() is store
