"""Feeds from records, tables and arrays: what is read is what NumPy says, and what is wrong has its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.examples import IDS, IMAGES, ROWS, read, refused, written
from support.record_files import example


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


def test_files_that_are_no_data(tmp_path: Path) -> None:
    assert "expected a file, or a pattern that matches files, found nothing" in refused(tmp_path / "*.npz")
    assert refused(Path("https://b/x.npz")).startswith("https://b/x.npz: expected a path or s3://, gs://")
    written(tmp_path)
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    assert "expected files of one kind, found npz, records" in refused(tmp_path / "a.*", "ids=int64[4]")
    assert "--features: expected records or tables" in refused(tmp_path / "a.npz", "x=int64[]")
    np.savez(tmp_path / "b.npz", x=np.zeros(2), y=np.zeros(3))
    assert "expected arrays whose first axis lists the same examples" in refused(tmp_path / "b.npz", batch=2)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    assert "expected an .npy file of a plain array, found a file that is not one" in refused(
        tmp_path / "o.npy"
    )
    (tmp_path / "e.tfrecord").write_bytes(b"")
    assert "expected at least one example, found none" in refused(tmp_path / "e.tfrecord", "x=int64[]")
