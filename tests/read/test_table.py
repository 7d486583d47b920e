"""Tables, block by block: what TensorFlow writes is read in `test_bundle`; here is what it does not write."""

from __future__ import annotations

from pathlib import Path

import cramjam
import numpy as np
import pytest
from tables import MAGIC, block, entry, signed, table, varint

from cudnn_convert.read.checkpoints import wire
from cudnn_convert.read.checkpoints.table import Table

#: Two blocks, the second with keys that share what stands before them, and a restart in the middle.
FIRST = block({b"": b"header", b"apple": b"1"})
SHARED = (
    entry(0, b"banana", b"22") + entry(3, b"d", b"") + entry(4, b"it", b"333") + entry(0, b"cherry", b"4")
)
SECOND = SHARED + b"\0\0\0\0\x1f\0\0\0\2\0\0\0"
BLOCKS = [(b"apple", FIRST), (b"d", SECOND)]
HELD = {b"": b"header", b"apple": b"1", b"banana": b"22", b"band": b"", b"bandit": b"333", b"cherry": b"4"}


def made(folder: Path, held: bytes) -> Table:
    (folder / "table").write_bytes(held)
    return Table(folder / "table")


@pytest.mark.parametrize("compressed", [False, True])
def test_every_key_has_its_value(tmp_path: Path, compressed: bool) -> None:
    blocks = [
        (last, bytes(cramjam.snappy.compress_raw(held)) if compressed else held) for last, held in BLOCKS
    ]
    found = made(tmp_path, table(blocks, kind=int(compressed)))
    assert [(key, bytes(value)) for key, value in found.entries()] == list(HELD.items())
    for key, value in HELD.items():
        assert bytes(found.find(key)) == value
    for key in (b"a", b"apples", b"bandi", b"zoo"):
        with pytest.raises(ValueError, match="no such key"):
            found.find(key)


def test_a_block_is_read_once_for_all_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = made(tmp_path, table(BLOCKS)), []
    inner = Table._block
    monkeypatch.setattr(Table, "_block", lambda self, *given: read.append(given[1]) or inner(self, *given))
    for key in HELD:
        found.find(key)
    assert len(read) == 2


def footer(index: bytes, *, offset: int, size: int) -> bytes:
    handles = varint(0) + varint(0) + varint(offset) + varint(size)
    return signed(index, 0) + handles.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


WIDE = (
    entry(0, b"a", b"") + b"".join(entry(place + 1, b"a", b"") for place in range(1000)) + b"\0\0\0\0\1\0\0\0"
)
LARGE = varint(1 << 30) + b"\0" * 40
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "a file of 0 bytes"),
    "short": (table(BLOCKS)[-47:], "a file of 47 bytes"),
    "no table": (b"words " * 20, "a file that does not end as a table"),
    "index beyond the file": (
        footer(block({}), offset=1 << 62, size=1 << 63),
        "a block of 9223372036854775808 bytes at 4611686018427387904 in a file of 61 bytes",
    ),
    "a handle without an end": (signed(b"", 0) + b"\xff" * 40 + table([])[-8:], "a number without an end"),
    "a block beyond the file": (
        footer(
            block({b"a": varint(0) + varint(60)}), offset=0, size=len(block({b"a": varint(0) + varint(60)}))
        ),
        "a block of 60 bytes at 0 in a file of 67 bytes",
    ),
    "another checksum": (
        b"\0" + table(BLOCKS)[1:].replace(b"header", b"hearer"),
        "a block at 0 of another checksum",
    ),
    "a kind nobody knows": (table(BLOCKS, kind=2), "a block at 0 of kind 2"),
    "no Snappy": (table(BLOCKS, kind=1), "snappy: corrupt input"),
    "Snappy of a gigabyte": (table([(b"a", LARGE)], kind=1), "1073741824 bytes in 45"),
    "Snappy of nothing": (table([(b"a", b"")], kind=1), "snappy: corrupt input"),
    "an empty block": (table([(b"a", b"")]), "a block of 0 bytes that ends before it begins"),
    "many restarts": (
        table([(b"a", b"\0" * 8 + b"\xff" * 4)]),
        "a block of 12 bytes that ends before it begins",
    ),
    "shares more than there is": (
        table([(b"b", entry(0, b"a", b"") + entry(2, b"b", b"") + b"\0\0\0\0\1\0\0\0")]),
        "a block that ends within an entry",
    ),
    "a value beyond the block": (
        table([(b"a", b"\0\1\x7fa\0\0\0\0\1\0\0\0")]),
        "a block that ends within an entry",
    ),
    "a key of two": (table([(b"b", block({b"b": b""})), (b"c", block({b"b": b""}))]), "keys out of order"),
    "a key behind the index": (table([(b"a", block({b"b": b""}))]), "keys out of order"),
    "keys that fall": (table([(b"b", block({b"b": b"", b"a": b""}))]), "keys out of order"),
    "an index that falls": (table([]), "an index out of order"),
    "keys that grow and grow": (table([(b"b", WIDE)]), "bytes of keys in a block of"),
}
INDEX = block({b"b": varint(0) + varint(1)})[:-8] + block({b"a": varint(0) + varint(1)})
BAD["an index that falls"] = (footer(INDEX, offset=0, size=len(INDEX)), "an index out of order")


@pytest.mark.parametrize(("held", "message"), BAD.values(), ids=BAD)
def test_what_no_saver_writes_is_refused(tmp_path: Path, held: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        list(made(tmp_path, held).entries())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "keys", [[b"a", b"a"], [b"b", b"a"], [b"a", b"c"]], ids=["twice", "falling", "beyond"]
)
def test_keys_out_of_order_are_refused_in_a_search_too(tmp_path: Path, keys: list[bytes]) -> None:
    held = b"".join(entry(0, key, b"") for key in keys) + b"\0\0\0\0\1\0\0\0"
    with pytest.raises(ValueError, match="keys out of order"):
        made(tmp_path, table([(b"b", held)])).find(b"a")


def test_a_key_that_grows_spells_no_more_than_the_limit(tmp_path: Path) -> None:
    held = b"".join(entry(place, b"a", b"") for place in range(100)) + b"\0\0\0\0\1\0\0\0"
    assert [len(key) for key, _ in made(tmp_path, table([(b"b", held)])).entries()] == list(range(1, 101))


NUMBERS = [0, 1, 127, 128, 300, 2**32, 2**63 - 1, -1, -300, -(2**63)]


def test_numbers_of_a_packed_field() -> None:
    packed = b"".join(varint(number % 2**64) for number in NUMBERS)
    np.testing.assert_array_equal(wire.varints(memoryview(packed)).astype(np.int64), NUMBERS)
    assert wire.varints(memoryview(b"")).size == 0
    for damaged in (b"\x80", b"\1\x80", b"\xff" * 10 + b"\1"):
        with pytest.raises(ValueError, match="a number without an end"):
            wire.varints(memoryview(damaged))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_alone(number: int) -> None:
    found = wire.fields(memoryview(b"\x08" + varint(number % 2**64) + b"\x10\7"))
    assert (wire.integer(found, 1), wire.integer(found, 2), wire.integer(found, 3)) == (number, 7, 0)


def test_a_repeated_field_may_be_packed_or_not() -> None:
    numbers = wire.fields(memoryview(b"\x08\1\x0a\2\2\3\x08\4"))
    assert wire.numbers(numbers, 1, 0).tolist() == [1, 2, 3, 4]
    floats = wire.fields(memoryview(b"\x0d\0\0\x80\x3f" + b"\x0a\4\0\0\0\x40"))
    assert wire.numbers(floats, 1, 4).view(np.float32).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (b"\x0a\5abc", "a message that ends within a field"),
        (b"\x0d\0\0", "a message that ends within a field"),
        (b"\x0b", "a field of kind 3"),
        (b"\x08", "a number without an end"),
        (b"\x08" + b"\x80" * 10 + b"\1", "a number without an end"),
    ],
)
def test_a_message_that_is_none(held: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wire.fields(memoryview(held))


def test_a_field_of_another_kind() -> None:
    found = wire.fields(memoryview(b"\x08\1\x12\1a\x12\1b"))
    with pytest.raises(ValueError, match="bytes for the number in field 2"):
        wire.integer(found, 2)
    with pytest.raises(ValueError, match="a number for the bytes in field 1"):
        wire.content(found, 1)
    with pytest.raises(ValueError, match="2 of field 2"):
        wire.content(found, 2)
