"""Checkpoints whose checksums are right and whose claims are not: one line, no memory for a mere claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import fixture
from tables import (
    block,
    bundle,
    by_tensorflow,
    claimed,
    header,
    masked,
    save,
    save_v1,
    table,
    v1_made,
    varint,
)

from cudnn_convert.errors import AccessError, CudnnConvertError, ReadError
from cudnn_convert.read.tensorbundle import is_v2, tensors
from cudnn_convert.read.tensorbundle.entries import slice_key
from cudnn_convert.read.tensorbundle.tables import Table

SOUND = claimed(2, size=8, crc32c=masked(b"12345678"))
HALVES = [[(0, 2)], [(2, 2)]]
#: Keys of slices that `test_slices_that_begin_anywhere_have_keys` holds against TensorFlow's.
FRONT, BACK = b"\0x\0\1\1\1\x80\x82", b"\0x\0\1\1\1\x82\x82"

#: What the index of a checkpoint says, and what is said of that when it is opened.
OPENED: dict[str, tuple[dict[bytes, bytes], str]] = {
    "no header": ({b"x": SOUND}, "no header"),
    "big-endian": ({b"": header(endianness=1)}, "big-endian numbers"),
    "for later readers": ({b"": header(reader=2)}, "a format for other readers than those of version 1"),
    "no message": ({b"": header(), b"x": b"\x0b"}, "a field of kind 3"),
    "a name of no text": ({b"": header(), b"\xff\xfe": SOUND}, "b'\\xff\\xfe' for a name"),
    "a negative size": (
        {b"": header(), b"x": claimed(2, -1, size=8)},
        "a tensor of 2 axes, or of sizes unknown",
    ),
    "255 axes": (
        {b"": header(), b"x": claimed(*[1] * 255, size=4)},
        "a tensor of 255 axes, or of sizes unknown",
    ),
    "a slice that is not there": (
        {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND},
        "no entry for the slice [(2, 2)] of the shape (4,)",
    ),
    "a slice of another shape": (
        {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND, BACK: claimed(3, size=12)},
        "no entry for the slice [(2, 2)] of the shape (4,)",
    ),
    "a slice outside": (
        {b"": header(), b"x": claimed(3, slices=HALVES), FRONT: SOUND, BACK: SOUND},
        "a slice ((2, 2),) of the shape (3,)",
    ),
    "a slice of more axes": (
        {b"": header(), b"x": claimed(2, 2, slices=HALVES), FRONT: SOUND, BACK: SOUND},
        "no entry for the slice",
    ),
    "a slice twice": (
        {b"": header(), b"x": claimed(4, slices=[*HALVES, [(2, 2)]]), FRONT: SOUND, BACK: SOUND},
        "slices that overlap",
    ),
}
OPENED["a slice of more axes"] = (OPENED["a slice of more axes"][0], "a slice ((0, 2),) of the shape (2, 2)")


@pytest.mark.parametrize(("entries", "found"), OPENED.values(), ids=OPENED)
def test_an_index_that_claims_too_much_is_refused(
    tmp_path: Path, entries: dict[bytes, bytes], found: str
) -> None:
    prefix = bundle(tmp_path, entries, b"12345678")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value) == f"{prefix}: index: {expected}, found {found}; copy it again"


def test_slices_have_the_keys_that_are_made_up_here(tmp_path: Path) -> None:
    entries = {b"": header(), b"x": claimed(4, slices=HALVES), FRONT: SOUND, BACK: SOUND}
    prefix = bundle(tmp_path, entries, b"12345678")
    expected = np.frombuffer(b"12345678" * 2, np.float32)
    np.testing.assert_array_equal(tensors(prefix)["x"].read(), expected)
    np.testing.assert_array_equal(by_tensorflow(prefix).get_tensor("x"), expected)


HUGE = 1 << 62
WHERE = "made.data-00000-of-00001 of 8 bytes where"
#: What an entry says of its tensor, and what is said when that is read.
READ: dict[str, tuple[bytes, str]] = {
    "beyond the file": (claimed(2, size=8, offset=1), f"{WHERE} 9 are needed"),
    "far beyond the file": (claimed(2, size=8, offset=HUGE), f"{WHERE} {HUGE + 8} are needed"),
    "before the file": (claimed(2, size=8, offset=-1), f"{WHERE} 7 are needed"),
    "larger than the file": (claimed(HUGE // 4, size=HUGE), f"{WHERE} {HUGE} are needed"),
    "more than its bytes": (claimed(3, size=8), "8 bytes for a tensor of 12"),
    "too much for 64 bits": (claimed(HUGE, HUGE, HUGE, size=8), f"8 bytes for a tensor of {4 * HUGE**3}"),
    "nothing, but long": (claimed(0, HUGE, HUGE), "array is too big"),
    "another checksum": (claimed(2, size=8, crc32c=1), "bytes of another checksum"),
    "a file that there is not": (claimed(2, size=8, shard_id=1), "a tensor in file 1 of 1"),
    "a file before all": (claimed(2, size=8, shard_id=-1), "a tensor in file -1 of 1"),
    "resources": (claimed(2, size=8, dtype=20), "elements of type 20, which are no numbers"),
    "variants": (claimed(2, size=8, dtype=21), "elements of type 21, which are no numbers"),
    "a type of tomorrow": (claimed(2, size=8, dtype=77), "elements of type 77, which are no numbers"),
    "strings without an end": (claimed(9, size=8, dtype=7), "8 bytes for 9 strings"),
    "strings of another checksum": (claimed(2, size=8, dtype=7), "lengths of another checksum"),
    "negative strings": (claimed(2, size=-8, dtype=7), f"{WHERE} -8 are needed"),
}


@pytest.mark.parametrize(("entry", "found"), READ.values(), ids=READ)
def test_an_entry_that_claims_too_much_is_refused_when_it_is_read(
    tmp_path: Path, entry: bytes, found: str
) -> None:
    prefix = bundle(tmp_path, {b"": header(), b"good": SOUND, b"x": entry}, b"12345678")
    held = tensors(prefix)
    assert held["good"].read().tobytes() == b"12345678"
    with pytest.raises(ReadError) as caught:
        held["x"].read()
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value).startswith(f"{prefix}: tensor x: {expected}, found {found}")
    assert str(caught.value).endswith("; copy it again")


def words(lengths: Sequence[int], held: bytes) -> bytes:
    checksum = masked(b"".join(length.to_bytes(4, "little") for length in lengths)).to_bytes(4, "little")
    return b"".join(map(varint, lengths)) + checksum + held


def test_strings_longer_than_the_file_are_refused(tmp_path: Path) -> None:
    data = words([3, 1 << 30], b"abcdefgh")
    entry = claimed(2, size=len(data), dtype=7)
    with pytest.raises(ReadError, match="found 1073741827 bytes of strings in 8"):
        tensors(bundle(tmp_path, {b"": header(), b"x": entry}, data))["x"].read()


def test_a_name_of_two_lines_is_told_in_one(tmp_path: Path) -> None:
    prefix = bundle(tmp_path, {b"": header(), b"two\nlines": claimed(2, size=8, crc32c=1)}, b"12345678")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)["two\nlines"].read()
    assert str(caught.value).startswith(f"{prefix}: tensor 'two\\nlines': expected")


def test_slices_that_leave_a_gap_are_refused(tmp_path: Path) -> None:
    entries = {b"": header(), b"x": claimed(4, slices=HALVES[:1]), FRONT: SOUND}
    found = tensors(bundle(tmp_path, entries, b"12345678"))["x"]
    assert found.part("4 0,2").read().tobytes() == b"12345678"
    with pytest.raises(ReadError, match=re.escape("found slices that hold less or more than [(0, 4)]")):
        found.read()


def test_a_huge_tensor_of_one_small_slice_takes_no_memory(tmp_path: Path) -> None:
    whole = (((0, HUGE // 4 - 1),), ((HUGE // 4 - 1, 1),))
    first, second = (slice_key("x", extents) for extents in whole)
    entries = {
        b"": header(),
        b"x": claimed(HUGE // 4, slices=whole),
        first: claimed(HUGE // 4 - 1, size=HUGE - 4),
        second: claimed(1, size=4),
    }
    prefix = bundle(tmp_path, entries, b"12345678")
    with pytest.raises(ReadError, match=f"{WHERE} {HUGE - 4} are needed"):
        tensors(prefix)["x"].read()


FLOATS = b"\x2a\x08" + np.float32([1.5, -2.5]).tobytes()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    "tensor", [FLOATS, b"\x2d" + FLOATS[2:6] + b"\x2d" + FLOATS[6:]], ids=["packed", "apart"]
)
def test_floats_of_v1_packed_or_not(tmp_path: Path, tensor: bytes, kind: int) -> None:
    path = v1_made(tmp_path, 1, tensor, [2], kind=kind)
    np.testing.assert_array_equal(tensors(path)["x"].read(), np.float32([1.5, -2.5]))
    np.testing.assert_array_equal(by_tensorflow(path).get_tensor("x"), np.float32([1.5, -2.5]))


@pytest.mark.parametrize(
    ("dtype", "tensor", "shape", "found"),
    [
        (1, FLOATS, [3], "2 elements for the shape (3,)"),
        (1, FLOATS[:-1] + b"", [2], "a message that ends within a field"),
        (1, b"\x2a\7" + FLOATS[2:9], [2], "7 bytes for elements of 4"),
        (1, FLOATS, [HUGE], f"a block too small for {HUGE} elements"),
        (3, b"\x3a\2\1\x80", [2], "a number without an end"),
        (7, b"\x42\1a", [2], "1 elements for the shape (2,)"),
        (21, b"", [1], "elements of type 21, which the format does not have"),
    ],
)
def test_a_v1_tensor_that_claims_too_much(
    tmp_path: Path, dtype: int, tensor: bytes, shape: list[int], found: str
) -> None:
    path = v1_made(tmp_path, dtype, tensor, shape)
    with pytest.raises(ReadError) as caught:
        tensors(path)["x"].read()
    expected = "expected readable bytes that match their checksum"
    assert str(caught.value) == f"{path}: tensor x: {expected}, found {found}; copy it again"


def test_v1_files_of_one_save_are_all_needed(tmp_path: Path) -> None:
    prefix = tmp_path / "a"
    for number, name in enumerate("xyz"):
        save_v1(tmp_path / f"a-{number:05d}-of-00003", [(name, np.float32([number]))])
    assert {key: tensor.read().tolist() for key, tensor in tensors(prefix).items()} == {
        "x": [0],
        "y": [1],
        "z": [2],
    }
    kept = (tmp_path / "a-00001-of-00003").rename(tmp_path / "elsewhere")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    found = "checkpoint: expected a-00001-of-00003, found no such file; copy all files of the checkpoint"
    assert str(caught.value) == f"{prefix}: {found}"
    kept.rename(tmp_path / "a-00001-of-00002")
    with pytest.raises(ReadError) as caught:
        tensors(prefix)
    found = "checkpoint: expected the files of one save, found some of 2 and of 3"
    assert str(caught.value) == f"{prefix}: {found}; copy one save to a folder of its own"


def test_v1_files_that_hold_the_same_slice_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        save_v1(tmp_path / f"a-{number:05d}-of-00002", [("x", np.float32([number]))])
    with pytest.raises(ReadError, match=r"index: .* found slices that overlap"):
        tensors(tmp_path / "a")
    save_v1(tmp_path / "a-00001-of-00002", [("x", np.float64([1]))])
    with pytest.raises(ReadError, match=r"index: .* found tensor x of two kinds"):
        tensors(tmp_path / "a")


def test_a_data_file_that_may_not_be_read_is_the_systems_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> FileIO:
        raise PermissionError(13, "Permission denied", path)

    prefix = save(tmp_path / "a", [("x", np.float32([1, 2]))])
    found = tensors(prefix)["x"]
    monkeypatch.setattr(f"{tensors.__module__}.FileIO", denied)
    with pytest.raises(AccessError) as caught:
        found.read()
    assert str(caught.value) == f"{prefix}.data-00000-of-00001: cannot read: Permission denied"


def everything(prefix: Path) -> dict[str, Any]:
    """What a checkpoint holds; an entry that cannot be read is its message."""
    found = {}
    for key, tensor in tensors(prefix).items():
        try:
            found[key] = tensor.read().tobytes()
        except CudnnConvertError as error:
            assert "\n" not in str(error)
            found[key] = str(error)
    return found


MUTATION = st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["set", "drop", "insert"]))


def mutated(held: bytes, changes: Sequence[tuple[int, int, str]]) -> bytes:
    data = bytearray(held)
    for place, value, how in changes:
        at = place % max(1, len(data))
        data[at : at + (how != "insert")] = b"" if how == "drop" else bytes([value])
    return bytes(data)


@pytest.mark.parametrize("deep", [True, False], ids=["a value", "a block"])
@pytest.mark.parametrize("name", ["1.15.5-partitioned", "1.15.5-checkpoint_v1"])
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(which=st.integers(0, 1000), changes=st.lists(MUTATION, min_size=1, max_size=3))
def test_no_change_under_a_right_checksum_ends_in_anything_but_a_refusal(
    tmp_path: Path, name: str, deep: bool, which: int, changes: list[tuple[int, int, str]]
) -> None:
    source = fixture(name).prefix
    index = Path(f"{source}.index") if is_v2(source) else source
    entries = {key: bytes(value) for key, value in Table(index).entries()}
    last = max(entries)
    if deep:
        key = sorted(entries)[which % len(entries)]
        entries[key] = mutated(entries[key], changes)
    made = block(entries) if deep else mutated(block(entries), changes)
    prefix = tmp_path / "model.ckpt"
    Path(f"{prefix}.index" if is_v2(source) else prefix).write_bytes(table([(last, made)]))
    for path in source.parent.glob(f"{source.name}.data-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    try:
        assert isinstance(everything(prefix), dict)
    except CudnnConvertError as error:
        assert "\n" not in str(error)
