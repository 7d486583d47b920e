"""Batches of examples: drawn from large files, and refused by the one that does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.examples import examples, read, refused, written
from support.record_files import example, record

from cudnn_convert import context
from cudnn_convert.context import Limits


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
    assert "expected a tf.train.Example, found bytes that are not one" in refused(other)
    without = written(tmp_path, [*examples(), example({"ids": [1]})], "c.tfrecord")
    assert "expected the feature frames, found ids int64[1]" in refused(without, "frames=float32[?,3]")
    told = refused(path)
    assert "the first record has bits bytes[1] of 2 bytes, frames float[9], ids int64[4]" in told
    assert (
        "; give --features 'bits=bytes:uint8[2],frames=float32[?],ids=int64[4],image=bytes:uint8[6],sound"
        in told
    )


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
