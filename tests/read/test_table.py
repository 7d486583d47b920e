"""Tables, block by block: what TensorFlow writes is read in `test_bundle`; here is what it does not write."""

from __future__ import annotations

from pathlib import Path

import cramjam
import pytest
from tables import MAGIC, block, entry, signed, table, varint

from cudnn_convert.read.tensorbundle.tables import Table

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
