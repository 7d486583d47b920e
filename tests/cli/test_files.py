"""Files that flags name are looked at before the source is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.command_line import command, copied, refused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the smallest sample."""
    return copied(tmp_path)


@pytest.mark.parametrize(
    ("flag", "name", "found"),
    [
        ("--data", "none.npz", "a file, or a pattern that matches files, found nothing"),
        ("--data", "[a-c]*.npz", "a file, or a pattern that matches files, found nothing"),
        ("--data", "folder", "a file, or a pattern that matches files, found nothing"),
        ("--data", "text.npz", "an .npz file of plain arrays, found a file that is not one"),
        ("--golden", "none.npz", "a file, found none"),
        ("--golden", "folder", "a file, found a folder"),
        ("--golden", "text.npz", "an .npz file of plain arrays, found a file that is not one"),
        ("--architecture", "none.json", "a file, found none"),
        ("--architecture", "folder", "a file, found a folder"),
    ],
)
def test_files_that_flags_name_are_looked_at_before_the_source(
    tmp_path: Path, flag: str, name: str, found: str
) -> None:
    """So the source need not even be there."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    words = ["verify", "nowhere", "nowhere.onnx"] if flag == "--golden" else ["nowhere", tmp_path / "out"]
    [line] = refused(tmp_path, *words, flag, tmp_path / name, code=2)
    assert line == f"{flag} {tmp_path / name}: expected {found}"


def test_data_of_nan_alone_is_refused(source: Path, tmp_path: Path) -> None:
    """Everything agrees on it, so it would prove nothing."""
    feeds = {"x": np.full((2, 3, 3), np.nan, np.float32), "h0": np.ones((1, 3, 4), np.float32)}
    np.savez(tmp_path / "feeds.npz", **feeds)
    [line] = refused(tmp_path, source, tmp_path / "out", "--data", tmp_path / "feeds.npz", code=2)
    assert line.endswith("feeds.npz: x: expected numbers, found NaN alone")


def test_a_permission_that_a_source_does_not_need_is_no_mistake(source: Path, tmp_path: Path) -> None:
    """A batch of several kinds of models is given `--trust` for some of them."""
    assert command(source, tmp_path / "out.pb", "--trust", "--no-verify").code == 0


def test_data_of_other_keys_is_refused(source: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.ones((2, 3, 3), np.float32))
    [line] = refused(tmp_path, source, tmp_path / "out", "--data", tmp_path / "feeds.npz", code=2)
    assert "feeds.npz: expected the keys ['h0', 'x'], found ['x']" in line
