"""A heap that the HDF5 library would never leave is found before it is asked to read it."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.read import hdf5, keras_hdf5
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
    return hdf5.fault(io.BytesIO(content))


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


def made(*parts: bytes) -> bytes:
    """A superblock of 16 bytes, and what follows it."""
    return b"".join([b"\x89HDF\r\n\x1a\n\2\x08\x08".ljust(16, b"\0"), *parts])


def heap(*objects: bytes, size: int | None = None) -> bytes:
    content = b"".join(objects)
    return SIGNATURE + (16 + len(content) if size is None else size).to_bytes(8, "little") + content


def held(size: int, *, number: int = 1, content: bytes = b"") -> bytes:
    """An object of a heap, a free one where its number is 0."""
    return number.to_bytes(8, "little") + size.to_bytes(8, "little") + content


ENDLESS = held(0, number=0)


@pytest.mark.parametrize("place", [0, 64])
def test_a_heap_counts_wherever_it_lies(place: int) -> None:
    content = bytes(place) + heap(ENDLESS)
    assert fault(content.ljust(512, b"\1") + made()) == f"a heap without an end at byte {place}"


@pytest.mark.parametrize("size", range(9))
def test_what_an_object_holds_ends_at_a_word(size: int) -> None:
    used = held(size, content=b"\1" * (8 if size else 0))
    assert fault(made(heap(used, ENDLESS))) == "a heap without an end at byte 16"
    assert fault(made(heap(used, ENDLESS[:-1]), b"\0" * 16)) is None, "too little room for one more object"


def test_a_free_object_says_how_far_the_next_one_is() -> None:
    for size in (16, 24, 40):
        free = held(size, number=0, content=b"\1" * (size - 16))
        assert fault(made(heap(free, ENDLESS, b"\1" * 32))) == "a heap without an end at byte 16"
        assert fault(made(heap(free, held(8), ENDLESS))) is None, "what is held is no object"
        assert fault(made(heap(free))) is None


def test_a_heap_ends_before_what_follows_it() -> None:
    assert fault(made(heap(held(0)), bytes(32))) is None
    assert fault(made(heap(), bytes(32))) is None
    assert fault(made(heap(held(0), size=40), bytes(32))) is None


def test_a_heap_that_is_cut_off_has_an_end() -> None:
    content = made(heap(held(0), held(0, number=0), size=4096))
    assert fault(content) == "a heap without an end at byte 16"
    for size in range(16, len(content)):
        assert fault(content[:size]) is None


@pytest.mark.parametrize("size", [2**64 - 23, 2**64 - 17, 2**64 - 16])
def test_a_size_that_comes_to_nothing_with_its_header_is_a_fault(size: int) -> None:
    assert fault(made(heap(held(size)))) == "a heap without an end at byte 16"
    assert fault(made(heap(held(size, number=0)))) is None


def test_sizes_that_go_round_go_on_where_the_library_does() -> None:
    told = "a heap without an end at byte 16"
    assert fault(made(heap(held(2**64 - 1), ENDLESS))) == told
    # 8 bytes on, its size and the word after it are read as an object that holds one word more.
    content = bytes([8]).ljust(8, b"\0") + b"\1" * 8
    assert fault(made(heap(held(2**64 - 8, content=content), ENDLESS))) == told
    assert fault(made(heap(held(2**64 - 24), ENDLESS))) is None


@pytest.mark.parametrize("size", [2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("number", [0, 1])
def test_no_place_beyond_the_file_is_sought(size: int, number: int) -> None:
    for far in (2**62, 2**63 - 64, 2**63 + 8, 2**64 - 64):
        assert fault(made(heap(held(far, number=number), ENDLESS, size=size))) is None


def test_a_heap_within_another_counts_too() -> None:
    """A reference may lead to it, and what lies around it may be there to hide it."""
    inner = heap(ENDLESS)
    assert fault(made(heap(held(len(inner), content=inner)))) == "a heap without an end at byte 48"
    assert fault(made(heap(held(1 << 40), size=1 << 41), inner)) == "a heap without an end at byte 48"
    inner = heap(held(0))
    assert fault(made(heap(held(len(inner), content=inner)))) is None


@pytest.mark.parametrize("chunk", [1 << 24, 55, 56, 57, 16])
def test_heaps_that_lie_over_each_other_have_as_many_objects_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """So that looking takes no longer than the file is long."""
    monkeypatch.setattr(hdf5, "_CHUNK", chunk)

    def over(count: int) -> bytes:
        shared = held(0) * count
        # From the first heap's free object, over the second heap's header, to what both share.
        return made(heap(held(32, number=0), heap(shared), size=48 + len(shared)))

    assert fault(over(3)) is None, "1 + 3 and 3 objects in 7 times 16 bytes"
    assert fault(over(3) + bytes(16)) is None
    assert fault(over(4)) == "heaps with more objects than there is room for"
    assert fault(over(4) + bytes(15)) == "heaps with more objects than there is room for"
    assert fault(over(4) + bytes(16)) is None


def test_a_heap_is_found_where_it_lies_over_an_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    content = sound()
    begin = content.index(SIGNATURE)
    content[entry(content, 0) : entry(content, 0) + 16] = bytes(16)
    for size in (begin + 1, begin + 7, begin + 8, begin, 64, 3):
        monkeypatch.setattr(hdf5, "_CHUNK", size)
        assert fault(content) == f"a heap without an end at byte {begin}"


@pytest.mark.parametrize("place", [1, 256, 514, 1536])
def test_a_superblock_stands_at_no_other_place(place: int) -> None:
    assert fault(bytes(place) + made(bytes(4096))) == "offsets and lengths that are not of 8 bytes"
    assert fault(bytes(1024) + made(bytes(4096))) is None


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
        Store(tmp_path / "a.h5", "inner", bytes(content)).check()
    store = Store(tmp_path / "a.h5", "inner", bytes(sound()))
    assert store.check() is store
