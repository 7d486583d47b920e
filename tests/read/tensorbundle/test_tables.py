"""Tables of a checkpoint, block by block: protocol buffer fields and checksums."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import numpy as np
import pytest
from google_crc32c import python
from support.checkpoints import MAGIC, block, entry, signed, table, varint

from cudnn_convert.read.tensorbundle import tables
from cudnn_convert.read.tensorbundle.tables import Table

# What TensorFlow writes is read in `test_tensorbundle`; here is what it does not write, block by block.

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


def test_a_large_block_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1 MiB or less it is; others are read again for each key, and hide nothing of the next block."""
    small = block({b"a": b"1", b"b": bytes((1 << 20) - len(block({b"a": b"1", b"b": b""})) - 2)})
    large = block({b"c": b"3", b"d": bytes((1 << 20) - len(block({b"c": b"3", b"d": b""})) - 1)})
    assert (len(small), len(large)) == (1 << 20, (1 << 20) + 1)
    found = made(tmp_path, table([(b"b", small), (b"d", large), (b"e", block({b"e": b"5"}))]))
    read, inner = [], Table._block
    monkeypatch.setattr(Table, "_block", lambda self, *given: read.append(given[1][0]) or inner(self, *given))
    assert bytes(found.find(b"a")) == b"1"
    assert bytes(found.find(b"b")).count(0) > 1_000_000
    assert len(read) == 1
    assert bytes(found.find(b"c")) == b"3"
    assert bytes(found.find(b"d")).count(0) > 1_000_000
    assert len(read) == 3
    assert bytes(found.find(b"e")) == b"5"
    assert bytes(found.find(b"a")) == b"1"
    assert len(read) == len(set(read)) + 2 == 5


@pytest.mark.parametrize("last", HELD)
def test_any_block_may_be_looked_into_first(tmp_path: Path, last: bytes) -> None:
    found = made(tmp_path, table(BLOCKS))
    assert bytes(found.find(last)) == HELD[last]


def test_the_bytes_of_the_block_of_a_key(tmp_path: Path) -> None:
    found = made(tmp_path, table(BLOCKS))
    keys = (b"", b"apple", b"apples", b"cherry", b"d", b"zoo")
    small, large = len(FIRST), len(SECOND)
    assert [found.block_size(key) for key in keys] == [small, small, large, large, large, 0]


@pytest.mark.parametrize("nothing", [block({}), bytes(4)], ids=["one restart", "none"])
def test_blocks_may_hold_nothing(tmp_path: Path, nothing: bytes) -> None:
    """A meta index is such a block; no restart at all is no fault either (block.cc Block::NewIterator)."""
    assert list(made(tmp_path, table([])).entries()) == []
    found = made(tmp_path, table([(b"a", nothing), *BLOCKS[1:]]))
    assert [bytes(value) for _, value in found.entries()] == [b"22", b"", b"333", b"4"]


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
    "a footer alone": (footer(b"", offset=0, size=0)[-48:], "a block of 0 bytes at 0 in a file of 48 bytes"),
    "an index that ends within the footer": (
        footer(block({}), offset=0, size=len(block({})) + 1),
        "a block of 9 bytes at 0 in a file of 61 bytes",
    ),
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
    "Snappy of more than its copies can make": (
        table([(b"a", varint(22 * 42 + 1) + b"\0" * 40)], kind=1),
        "925 bytes in 42",
    ),
    "Snappy of nothing": (table([(b"a", b"")], kind=1), "snappy: corrupt input"),
    "an empty block": (table([(b"a", b"")]), "a block of 0 bytes that ends before it begins"),
    "less than a number of restarts": (
        table([(b"a", b"\0\0\0")]),
        "a block of 3 bytes that ends before it begins",
    ),
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
    "an index of one key twice": (table([]), "an index out of order"),
    "keys that grow and grow": (table([(b"b", WIDE)]), "bytes of keys in a block of"),
}
INDEX = block({b"b": varint(0) + varint(1)})[:-8] + block({b"a": varint(0) + varint(1)})
TWICE = block({b"b": varint(0) + varint(1)})[:-8] + block({b"b": varint(0) + varint(1)})
for name, index in (("an index that falls", INDEX), ("an index of one key twice", TWICE)):
    BAD[name] = (footer(index, offset=0, size=len(index)), "an index out of order")


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


@pytest.mark.parametrize("short", [0, 1])
def test_keys_of_a_block_spell_64_times_its_size_and_no_more(tmp_path: Path, short: int) -> None:
    """250 keys of 1024 bytes, which differ in their last one, in 4000 bytes or 3999."""
    keys = entry(0, b"k" * 1023 + b"\0", b"") + b"".join(
        entry(1023, bytes([last]), b"") for last in range(1, 249)
    )
    room = 4000 - short - len(keys) - len(entry(1023, b"z", b"")) - 8
    held = keys + entry(1023, b"\xff", bytes(room - 1)) + b"\0\0\0\0\1\0\0\0"
    assert len(held) == 4000 - short
    found = made(tmp_path, table([(b"z", held)]))
    if short:
        with pytest.raises(ValueError, match="256000 bytes of keys in a block of 3999"):
            list(found.entries())
    else:
        assert [len(key) for key, _ in found.entries()] == [1024] * 250


def test_a_key_that_grows_spells_no_more_than_the_limit(tmp_path: Path) -> None:
    held = b"".join(entry(place, b"a", b"") for place in range(100)) + b"\0\0\0\0\1\0\0\0"
    assert [len(key) for key, _ in made(tmp_path, table([(b"b", held)])).entries()] == list(range(1, 101))


# Protocol buffers as they lie in a file, byte by byte.

NUMBERS = [0, 1, 127, 128, 300, 2**32, 2**63 - 1, -1, -300, -(2**63)]


def test_numbers_of_a_packed_field() -> None:
    packed = b"".join(varint(number % 2**64) for number in NUMBERS)
    np.testing.assert_array_equal(tables.varints(memoryview(packed)).astype(np.int64), NUMBERS)
    assert tables.varints(memoryview(b"")).size == 0
    for damaged in (b"\x80", b"\1\x80", b"\xff" * 10 + b"\1"):
        with pytest.raises(ValueError, match="a number without an end"):
            tables.varints(memoryview(damaged))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_alone(number: int) -> None:
    found = tables.fields(memoryview(b"\x08" + varint(number % 2**64) + b"\x10\7"))
    assert (tables.integer(found, 1), tables.integer(found, 2), tables.integer(found, 3)) == (number, 7, 0)


def test_a_repeated_field_may_be_packed_or_not() -> None:
    numbers = tables.fields(memoryview(b"\x08\1\x0a\2\2\3\x08\4"))
    assert tables.numbers(numbers, 1, 0).tolist() == [1, 2, 3, 4]
    assert tables.numbers(tables.fields(memoryview(b"\x0a\2\2\3\x0a\1\4")), 1, 0).tolist() == [2, 3, 4]
    floats = tables.fields(memoryview(b"\x0d\0\0\x80\x3f" + b"\x0a\4\0\0\0\x40"))
    assert tables.numbers(floats, 1, 4).view(np.float32).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("width", [0, 4, 8])
def test_a_repeated_field_that_is_not_there_is_empty(width: int) -> None:
    assert tables.numbers({}, 1, width).size == 0


def test_fixed_numbers_are_little_endian_and_take_their_own_bytes_alone() -> None:
    """Numbers of eight bytes, of four, and a varint behind them."""
    found = tables.fields(memoryview(b"\x09\1\2\3\4\5\6\7\x08" + b"\x15\1\2\3\4" + b"\x18\5"))
    assert (tables.integer(found, 1), tables.integer(found, 2)) == (0x0807060504030201, 0x04030201)
    assert tables.integer(found, 3) == 5


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
        tables.fields(memoryview(held))


def test_a_field_of_another_kind() -> None:
    found = tables.fields(memoryview(b"\x08\1\x12\1a\x12\1b"))
    with pytest.raises(ValueError, match="bytes for the number in field 2"):
        tables.integer(found, 2)
    with pytest.raises(ValueError, match="a number for the bytes in field 1"):
        tables.content(found, 1)
    with pytest.raises(ValueError, match="2 of field 2"):
        tables.content(found, 2)


# CRC-32C: published values, and what a file may do while it is read.

#: RFC 3720, B.4, and the check value of the polynomial.
PUBLISHED = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    b"123456789": 0xE3069283,
}


class Trickling(FileIO):
    """A file that gives no more than three bytes at once, and does not say twice that it is at its end."""

    ended = False

    def readinto(self, given: Any) -> int:
        assert not self.ended
        count = super().readinto(given[:3])
        self.ended = not count
        return count


def as_array(held: bytes) -> Any:
    return np.frombuffer(held, np.uint8)


@pytest.mark.parametrize(("held", "expected"), PUBLISHED.items(), ids=lambda one: str(one)[:12])
def test_published_values_at_once_and_in_parts(held: bytes, expected: int) -> None:
    assert tables.extend_crc(0, as_array(held)) == expected
    assert tables.extend_crc(tables.extend_crc(0, as_array(held[:5])), as_array(held[5:])) == expected


@pytest.mark.parametrize("stream", [FileIO, Trickling])
def test_what_is_read_is_what_the_checksum_covers(tmp_path: Path, stream: type[FileIO]) -> None:
    (tmp_path / "held").write_bytes(b"ab123456789c")
    array = np.zeros(9, np.uint8)
    with stream(str(tmp_path / "held")) as opened:
        opened.seek(2)
        assert tables.fill(opened, array) == PUBLISHED[b"123456789"]
        assert opened.tell() == 11
    assert array.tobytes() == b"123456789"


def test_an_array_of_many_chunks(tmp_path: Path) -> None:
    held = np.random.default_rng(4).integers(0, 256, 1_000_003, np.uint8)
    held.tofile(tmp_path / "held")
    array = np.zeros_like(held)
    with FileIO(str(tmp_path / "held")) as opened:
        assert tables.fill(opened, array) == google_crc32c.value(held.tobytes())
    np.testing.assert_array_equal(array, held)


def test_a_file_that_ends_early_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "held").write_bytes(b"1234567")
    with (
        Trickling(str(tmp_path / "held")) as opened,
        pytest.raises(ValueError, match="the end of held after 7 of 9 bytes"),
    ):
        tables.fill(opened, np.zeros(9, np.uint8))


def test_the_checksums_of_a_platform_without_compiled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_crc32c, "extend", python.extend)
    for held, expected in PUBLISHED.items():
        assert tables.extend_crc(0, as_array(held)) == expected
