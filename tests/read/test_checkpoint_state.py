"""The file `checkpoint`: TensorFlow, which writes and reads it, is the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from cudnn_convert.read.checkpoint import latest

NAMES = [
    "model.ckpt-7",
    "/made/elsewhere/model.ckpt",
    "kept/grün",
    'a "quoted" \\ name',
    "two\nlines",
    "tab\t\x7f",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_latest_is_the_one_that_tensorflow_names(tmp_path: Path, name: str) -> None:
    older = [str(tmp_path / "older"), str(tmp_path / name)]
    tf.compat.v1.train.update_checkpoint_state(
        str(tmp_path), str(tmp_path / name), older, all_model_checkpoint_timestamps=[1.5, 2.5]
    )
    named = latest(tmp_path / "checkpoint")
    assert named is not None
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert str(tmp_path / named) == state.model_checkpoint_path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("held", "name"),
    [
        (b'# by hand\nlater: 3 model_checkpoint_path: "a" "b"', "ab"),
        (rb"model_checkpoint_path: 'a\x41\102'", "aAB"),
        (b"", None),
        (b'all_model_checkpoint_paths: "a"', None),
        (b'model_checkpoint_path: ""', None),
        (b"model_checkpoint_path: 7", None),
        (b'model_checkpoint_path: "a', None),
        (rb'model_checkpoint_path: "\xff"', None),
        (b"\xff\xfe", None),
        (b"<html>", None),
        (b"{" * 10_000, None),
    ],
)
def test_a_file_by_anybody_else(tmp_path: Path, held: bytes, name: str | None) -> None:
    (tmp_path / "checkpoint").write_bytes(held)
    assert latest(tmp_path / "checkpoint") == name
