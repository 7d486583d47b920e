"""CRC-32C: published values, and what a file may do while it is read."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from google_crc32c import python

from cudnn_convert.read.tensorbundle import tables

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
