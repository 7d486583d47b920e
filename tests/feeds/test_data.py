"""Feeds from records, tables and arrays: what is read is what NumPy says, and what is wrong has its place."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from support.record_files import example, masked, record

from cudnn_convert import context
from cudnn_convert.context import Limits
from cudnn_convert.errors import MissingDependencyError, UsageError
from cudnn_convert.feeds.data import Calls, Data, read_calls

ROWS = 11
RNG = np.random.default_rng(5)
#: Steps of each example, all of which a batch pads to its longest.
STEPS = np.array([3, 1, 5, 2, 4, 4, 1, 6, 2, 3, 5])
FRAMES = [RNG.normal(size=(steps, 3)).astype(np.float32) for steps in STEPS]
IDS = RNG.integers(-5, 90, (ROWS, 4))
BITS = RNG.integers(0, 2, (ROWS, 13)).astype(np.uint8)
IMAGES = RNG.integers(0, 256, (ROWS, 2, 3)).astype(np.uint8)
SOUNDS = [RNG.integers(-3000, 3000, (steps, 2)).astype(np.int16) for steps in STEPS]
WORDS = [[b"a" * (k + 1), b"\xffz\0"] for k in range(ROWS)]


def examples() -> list[bytes]:
    return [
        example(
            {
                "frames": FRAMES[k].ravel(),
                "ids": IDS[k],
                "bits": [np.packbits(BITS[k]).tobytes()],
                "image": [IMAGES[k].tobytes()],
                "sound": [SOUNDS[k].astype("<i2").tobytes()],
                "words": WORDS[k],
            }
        )
        for k in range(ROWS)
    ]


def written(folder: Path, content: Sequence[bytes] | None = None, name: str = "a.tfrecord") -> Path:
    path = folder / name
    whole = b"".join(map(record, examples() if content is None else content))
    path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    return path


def read(path: Path, *features: str, **more: Any) -> Calls:
    return read_calls(Data(path, features, **more))


def padded(values: Sequence[np.ndarray], pad: float = 0) -> np.ndarray:
    longest = max(len(value) for value in values)
    rows = [np.pad(value, [(0, longest - len(value)), (0, 0)], constant_values=pad) for value in values]
    return np.stack(rows)


def refused(path: Path, *features: str, **more: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, *features, **more)
    (line,) = str(caught.value).splitlines()
    return line.replace(f"{path.parent}/", "")


CASES = {
    "frames=float32[?,3]": padded(FRAMES),
    "ids=int64[4]": IDS,
    "ids=int32[2,2]": IDS.reshape(-1, 2, 2).astype(np.int32),
    "ids=int16[?]/10": (IDS / 10).astype(np.float32),
    "bits=bits[13]": BITS,
    "bits=bits[13]/2": (BITS / 2).astype(np.float32),
    "image=bytes:uint8[2,3]/255": (IMAGES / 255).astype(np.float32),
    "sound=bytes:int16[?,2]": padded(SOUNDS),
    "words=string[2]": np.array(WORDS, object),
    "frames=float32[?,batch,3]": padded(FRAMES).transpose(1, 0, 2),
}


@pytest.mark.parametrize("spec", CASES)
def test_every_kind_of_feature(tmp_path: Path, spec: str) -> None:
    (feed,) = read(written(tmp_path), spec).feeds
    ((key, value),) = feed.items()
    assert key == spec.partition("=")[0] and value.dtype == CASES[spec].dtype
    np.testing.assert_array_equal(value, CASES[spec])


def test_json_names_padding_and_lengths(tmp_path: Path) -> None:
    specs = {
        "x": {"type": "float32", "shape": [None, 3], "feature": "frames", "pad": -1.5},
        "n": "lengths:x",
        "s": {"type": "bytes:int16", "shape": ["?", "batch", 2], "feature": "sound", "pad": 7},
    }
    file = tmp_path / "features.json"
    file.write_text(json.dumps(specs))
    for given in (json.dumps(specs), str(file)):
        (feed,) = read(written(tmp_path), given).feeds
        np.testing.assert_array_equal(feed["x"], padded(FRAMES, -1.5))
        np.testing.assert_array_equal(feed["n"], STEPS)
        np.testing.assert_array_equal(feed["s"], padded(SOUNDS, 7).transpose(1, 0, 2))
        assert feed["n"].dtype == np.int32


def test_packed_bits_of_varying_length(tmp_path: Path) -> None:
    steps = [RNG.integers(0, 2, (k + 1, 8)) for k in range(4)]
    path = written(tmp_path, [example({"b": [np.packbits(each).tobytes()]}) for each in steps])
    (feed,) = read(path, "b=bits[?,8],n=lengths:b").feeds
    np.testing.assert_array_equal(feed["b"], padded(steps))
    np.testing.assert_array_equal(feed["n"], [1, 2, 3, 4])


def test_all_sources_of_the_same_numbers_are_the_same_feeds(tmp_path: Path) -> None:
    arrays = {"ids": IDS, "image": IMAGES.reshape(ROWS, 6).astype(np.int64)}
    names = ("t", "u")
    halves = [slice(0, 6), slice(6, ROWS)]
    for name, half in zip(names, halves, strict=True):
        rows = [example({key: value[k] for key, value in arrays.items()}) for k in range(ROWS)][half]
        written(tmp_path, rows, f"{name}.tfrecord.gz" if name == "u" else f"{name}.tfrecord")
    np.savez(tmp_path / "a.npz", **arrays)
    (tmp_path / "each").mkdir()
    for key, value in arrays.items():
        np.save(tmp_path / "each" / f"{key}.npy", value)
    lines = [",".join(" ".join(map(str, value[k])) for value in arrays.values()) for k in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(arrays), *lines]) + "\n")
    features = "ids=int64[4],image=int64[6]"
    found = {
        "records": lambda **more: read(tmp_path / "*.tfrecord*", features, **more),
        "npz": lambda **more: read(tmp_path / "a.npz", **more),
        "npy": lambda **more: read(tmp_path / "each" / "*.npy", **more),
        "csv": lambda **more: read(tmp_path / "a.csv", features, **more),
    }
    for more in ({}, {"batch": 4, "limit": 10, "seed": 3}):
        calls = {name: open_calls(**more).feeds for name, open_calls in found.items()}
        assert [len(feeds) for feeds in calls.values()] == [3 if more else 1] * len(calls)
        for feeds in calls.values():
            for feed, expected in zip(feeds, calls["npz"], strict=True):
                assert feed.keys() == arrays.keys()
                for key, value in feed.items():
                    np.testing.assert_array_equal(value, expected[key])
    drawn = np.concatenate([feed["ids"] for feed in calls["npz"]])
    kept = {tuple(row) for row in IDS}
    assert len(drawn) == 10 and {tuple(row) for row in drawn} <= kept
    assert not np.array_equal(drawn, IDS[:10]), "more than one call is shuffled"
    other = found["npz"](batch=4, limit=10, seed=4)
    assert not np.array_equal(other.feeds[0]["ids"], calls["npz"][0]["ids"]), "by the seed"
    assert other.summary.endswith(
        "a.npz: 10 of 11 examples, in 3 calls of at most 4 (--limit-examples, --batch)"
    )


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
    assert "expected Parquet, found " in refused(tmp_path / "b.parquet", "one=int32[]")


def test_a_missing_extra_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with mock.patch.dict(sys.modules, {"pyarrow": None}), pytest.raises(MissingDependencyError) as caught:
        read(tmp_path / "a.parquet", "x=int64[]")
    assert str(caught.value).endswith("found none; install it: pip install 'cudnn-convert[parquet]'")
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
        (parts[0] + record(b"\xff\xfe"), "expected a tf.train.Example, found other bytes"),
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


def test_what_does_not_fit_has_what_the_file_has(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert "expected a multiple of 2 values for frames=float32[?,2], found 9" in refused(
        path, "frames=float32[?,2]"
    )
    assert "expected 5 bytes for image=bytes:uint8[5], found 6" in refused(path, "image=bytes:uint8[5]")
    ids = np.array([[7, 255], [0, 9], [256, 3], [-1, 1]])
    wide = written(tmp_path, [example({"ids": row}) for row in ids], "w.tfrecord")
    third = sum(len(record(example({"ids": row}))) for row in ids[:2])
    assert (
        f"record at byte {third}: ids: expected uint8 as ids=uint8[2] says, found values from 3 to 256"
        in refused(wide, "ids=uint8[2]")
    )
    assert "record at byte 0: ids: expected bool as ids=bool[2] says, found" in refused(wide, "ids=bool[2]")
    other = written(tmp_path, [*examples(), b"\xff\xfe"], "d.tfrecord")
    assert "expected a tf.train.Example, found other bytes" in refused(other)
    without = written(tmp_path, [*examples(), example({"ids": [1]})], "c.tfrecord")
    assert "expected the feature frames, found ids int64[1]" in refused(without, "frames=float32[?,3]")
    told = refused(path)
    assert "the first has bits bytes[1] of 2 bytes, frames float[9], ids int64[4]" in told
    assert (
        "; give --features 'bits=bytes:uint8[2],frames=float32[?],ids=int64[4],image=bytes:uint8[6],sound"
        in told
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("ids", "expected KEY=TYPE[SHAPE], found 'ids'"),
        ("ids=int64", "ids: expected TYPE[SHAPE] or lengths:KEY, found 'int64'"),
        ("ids=complex64[]", "ids: type: expected one of float16, "),
        ("ids=int64[4,?]", "ids: shape: expected sizes, ? for the first where lengths vary"),
        ("ids=int64[99999,99999]", "ids: shape: expected fewer elements than 2^31"),
        ("ids=int64[]/0", "ids: divisor: expected a number other than 0, found 0"),
        ("ids=int64[],ids=int8[]", "ids: expected once, found twice"),
        ("n=lengths:i,i=int64[4]", "n: expected the lengths of another input of a shape [?,...], found 'i'"),
        ("b=bits[?,3]", "b: shape: expected steps of whole bytes where lengths vary, found 3 bits"),
        (
            '{"a": {"type": "int8", "shape": ["?"], "feature": "ids"}, "ids": "int64[4]"}',
            "ids: expected the feature ids with as many values as in a=int8[?], found ids=int64[4]",
        ),
        ("{", "expected a JSON object, found text that is none"),
        ('{"a": {"type": "int8"}}', "a: expected type, shape and perhaps divisor, feature, pad, found"),
        ("no.json", "expected a file of JSON, found none that can be read"),
    ],
)  # fmt: skip
def test_features_that_say_nothing(tmp_path: Path, spec: str, told: str) -> None:
    assert told in refused(written(tmp_path), spec)


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
    assert "expected a whole file of gzip, found a damaged one" in refused(cut, "x=bytes:uint8[3000]")
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
    assert "expected the columns of a table by input, found none" in refused(path)
    path.write_text("x\n1 2\n4 5 6\n")
    assert "line 3: feature x: expected 2 values for x=int64[2], found 3" in refused(path, "x=int64[2]")


def test_tables_have_lengths(tmp_path: Path) -> None:
    lines = [" ".join(map(str, frames.ravel())) for frames in FRAMES]
    (tmp_path / "a.csv").write_text("\n".join(["frames", *lines]) + "\n")
    (feed,) = read(tmp_path / "a.csv", "frames=float32[?,3],n=lengths:frames").feeds
    np.testing.assert_array_equal(feed["frames"], padded(FRAMES))
    np.testing.assert_array_equal(feed["n"], STEPS)


def test_files_that_are_no_data(tmp_path: Path) -> None:
    assert "expected a file, or a pattern of files, found none" in refused(tmp_path / "*.npz")
    assert refused(Path("https://b/x.npz")).startswith("https://b/x.npz: expected a path or s3://, gs://")
    written(tmp_path)
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    assert "expected files of one kind, found npz, records" in refused(tmp_path / "a.*", "ids=int64[4]")
    assert "--features: expected records or tables" in refused(tmp_path / "a.npz", "x=int64[]")
    np.savez(tmp_path / "b.npz", x=np.zeros(2), y=np.zeros(3))
    assert "expected arrays whose first axis lists the same examples" in refused(tmp_path / "b.npz", batch=2)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    assert "expected a plain array as .npy, found none" in refused(tmp_path / "o.npy")
    (tmp_path / "e.tfrecord").write_bytes(b"")
    assert "expected at least one example, found none" in refused(tmp_path / "e.tfrecord", "x=int64[]")


def test_more_records_than_are_drawn_from(tmp_path: Path) -> None:
    """The first of an order of the files' own, as many as fit the memory."""
    for name, start in (("p", 0), ("q", 100), ("r", 200)):
        written(tmp_path, [example({"x": [start + k]}) for k in range(20)], f"{name}.tfrecord")
    size = len(example({"x": [1]}))
    with context.within(Limits(expanded=size * 30)):
        calls = read(tmp_path / "*.tfrecord", "x=int64[]", batch=5, limit=10, seed=1)
        others = read(tmp_path / "*.tfrecord", "x=int64[]", batch=5, limit=10, seed=2)
    drawn, other = (np.concatenate([feed["x"] for feed in each.feeds]) for each in (calls, others))
    assert len({*drawn}) == 10 and "10 of more than " in calls.summary
    files = [{*(numbers // 100)} for numbers in (drawn, other)]
    assert files[0] != files[1], "the first files do not stand for all"
