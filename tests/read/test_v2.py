"""Data files of the V2 format, byte by byte: what TensorFlow writes is read in `test_bundle`."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from tables import bundle, claimed, header, masked, save, varint

from cudnn_convert.errors import ReadError
from cudnn_convert.read.tensorbundle import tensors


def test_a_file_that_is_too_short_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, opened = save(tmp_path / "a", [("x", np.arange(9, dtype=np.float32))]), list[FileIO]()
    data = Path(f"{prefix}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:-1])
    monkeypatch.setattr(
        f"{tensors.__module__}.FileIO", lambda path: opened.append(FileIO(path)) or opened[-1]
    )
    with pytest.raises(ReadError, match="of 35 bytes where 36 are needed"):
        tensors(prefix)["x"].read()
    assert [stream.closed for stream in opened] == [True]


@pytest.mark.parametrize("length", [1 << 32, (1 << 32) + 7, (1 << 32) - 1])
def test_the_lengths_of_long_strings_are_covered_as_words_of_64_bits(tmp_path: Path, length: int) -> None:
    """ReadStringTensor: what needs no more than 32 bits is a word of these. The string is not there."""
    words = (2).to_bytes(4, "little") + length.to_bytes(8 if length >= 1 << 32 else 4, "little")
    data = varint(2) + varint(length) + masked(words).to_bytes(4, "little") + b"ab"
    entry = claimed(2, size=len(data), dtype=7)
    with pytest.raises(ReadError, match=f"found {length + 2} bytes of strings in 2"):
        tensors(bundle(tmp_path, {b"": header(), b"x": entry}, data))["x"].read()
