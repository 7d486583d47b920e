"""Records and tables: bounded, and what is wrong in one has its place."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from support.examples import FRAMES, IDS, IMAGES, ROWS, STEPS, examples, padded, read, refused, written
from support.record_files import example, masked, record

from cudnn_convert import context
from cudnn_convert.context import Limits
from cudnn_convert.errors import MissingDependencyError


@pytest.mark.every
def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {
        "ids": IDS.tolist(),
        "frames": [frames.tolist() for frames in FRAMES],
        "image": [image.tobytes() for image in IMAGES],
        "one": np.arange(ROWS).tolist(),
    }
    parquet.write_table(arrow.table(table), tmp_path / "a.parquet")
    specs = "ids=int64[4],frames=float32[?,3],image=bytes:uint8[2,3],one=int32[],n=lengths:frames"
    (feed,) = read(tmp_path / "a.parquet", specs).feeds
    for key, expected in (
        ("ids", IDS), ("frames", padded(FRAMES)), ("image", IMAGES), ("one", np.arange(ROWS)),
        ("n", STEPS),
    ):  # fmt: skip
        np.testing.assert_array_equal(feed[key], expected)
    assert "expected the columns no, found ids, frames, image, one" in refused(
        tmp_path / "a.parquet", "no=int64[]"
    )
    assert "row 0: one: expected one=string[]" in refused(tmp_path / "a.parquet", "one=string[]")
    with context.within(Limits(expanded=10, expansion=1)):
        zeros = arrow.table({"z": [[0] * 100] * 1000})
        parquet.write_table(zeros, tmp_path / "z.parquet", compression="zstd")
        assert "; if that is meant, give --limit expanded=" in refused(tmp_path / "z.parquet", "z=int64[100]")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    assert "expected a Parquet file, found " in refused(tmp_path / "b.parquet", "one=int32[]")


def test_a_missing_extra_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with mock.patch.dict(sys.modules, {"pyarrow": None}), pytest.raises(MissingDependencyError) as caught:
        read(tmp_path / "a.parquet", "x=int64[]")
    assert str(caught.value).endswith(
        "found that it is not installed; install it: pip install 'cudnn-convert[parquet]'"
    )
    assert caught.value.exit_code == 4


def damaged(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :]


def test_a_broken_record_names_its_file_and_offset(tmp_path: Path) -> None:
    parts = [*map(record, examples())]
    second, whole = len(parts[0]), b"".join(parts)
    path = tmp_path / "b.tfrecord"
    for content, told in (
        (damaged(whole, second + 30), "found damaged ones"),
        (damaged(whole, second + 3), "expected the head of a record, found a length that is damaged"),
        (whole[: second + 20], "bytes, found 8 to the end of the file"),
        (whole[: second + 5], "expected the head of a record, found the end of the file"),
        (parts[0] + record(b"\xff\xfe"), "expected a tf.train.Example, found bytes that are not one"),
        (parts[0] + record(example({"id": [1]})), "expected the feature ids, found id int64[1]"),
        (
            parts[0] + record(example({"ids": [1, 2, 3], "x": [1.0]})),
            "expected 4 values for ids=int64[4], found 3; the record has ids int64[3], x float[1]",
        ),
        (
            parts[0] + record(example({"ids": [1.0]})),
            "feature ids: expected int64 for ids=int64[4], found float[1]; the record has ids float[1]",
        ),
    ):
        path.write_bytes(content)
        line = refused(path, "ids=int64[4]")
        assert line.startswith(f"--data b.tfrecord: record at byte {second}: "), line
        assert told in line


def test_compressed_records_are_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, [example({"x": [bytes(3000)]})] * 40, "z.tfrecord.gz")
    limits = Limits(expanded=20_000, expansion=3)
    with context.within(limits):
        line = refused(path, "x=bytes:uint8[3000]", limit=40)
        advised = int(line.partition("--limit expanded=")[2])
    assert advised == 40 * len(record(example({"x": [bytes(3000)]})))
    with context.within(Limits(expanded=advised, expansion=3)):
        assert len(read(path, "x=bytes:uint8[3000]", limit=40).feeds) == 2
    cut = tmp_path / "cut.tfrecord.gz"
    cut.write_bytes(path.read_bytes()[:-9])
    assert "expected a complete gzip file, found a damaged one" in refused(cut, "x=bytes:uint8[3000]")
    head = struct.pack("<Q", 1 << 40)
    for name in ("liar.tfrecord", "liar.tfrecord.gz"):
        liar = tmp_path / name
        content = head + masked(head) + b"xy"
        liar.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert "record at byte 0: expected 1099511627780 bytes" in refused(liar, "x=bytes:uint8[3000]")


def test_a_csv_of_excel_begins_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfids,n\r\n1 2,7\r\n3 4,8\r\n")
    (feed,) = read(tmp_path / "a.csv", "ids=int32[2],n=int64[]").feeds
    assert {key: value.tolist() for key, value in feed.items()} == {"ids": [[1, 2], [3, 4]], "n": [7, 8]}


def test_two_columns_of_one_name_are_refused_where_one_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ids,ids,n\n1,2,7\n")
    assert refused(path, "ids=int32[1]") == "--data a.csv: expected one column ids, found 2"
    (feed,) = read(path, "n=int64[]").feeds
    assert feed["n"].tolist() == [7]


def test_a_csv_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1 2,3\n4 five,6\n")
    assert "a.csv: line 3: x: expected numbers for x=int64[2], found 'five'" in refused(path, "x=int64[2]")
    assert "expected the columns z, found x, y" in refused(path, "z=int64[2]")
    path.write_text("x\n" + "0.25 " * 1000 + "0.2.5\n")
    message = refused(path, "x=float32[?,7]")
    assert message.endswith("found '0.2.5'"), "the word, not the cell"
    path.write_text("x\n" + "9" * 30 + "\n")
    assert refused(path, "x=int64[1]").startswith("--data a.csv: line 2: x: expected x=int64[1], found ")
    path.write_text("x,y\n1 2,3\n4 five,6\n")
    assert "expected a column for each input, found none chosen" in refused(path)
    path.write_text("x\n1 2\n4 5 6\n")
    assert "line 3: feature x: expected 2 values for x=int64[2], found 3" in refused(path, "x=int64[2]")


def test_tables_have_lengths(tmp_path: Path) -> None:
    lines = [" ".join(map(str, frames.ravel())) for frames in FRAMES]
    (tmp_path / "a.csv").write_text("\n".join(["frames", *lines]) + "\n")
    (feed,) = read(tmp_path / "a.csv", "frames=float32[?,3],n=lengths:frames").feeds
    np.testing.assert_array_equal(feed["frames"], padded(FRAMES))
    np.testing.assert_array_equal(feed["n"], STEPS)
