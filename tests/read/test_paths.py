"""Links in a folder that was given: followed where they stay in it, or where the user trusts the source."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import DATA, command, copied, refused
from support.samples import ROOT
from support.watched_file import Watched

import cudnn_convert
from cudnn_convert.errors import ReadError
from cudnn_convert.read import read

WORDS = ROOT / "tests" / "data" / "tf1" / "1.15.5" / "saved_model_words" / "model"
CURE = "put the file there, or vouch for the source with --trust"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """To open a pipe never ends; the first test loads libraries too."""
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def moved(path: Path, folder: Path) -> Path:
    """The file is elsewhere, and a link stands in its place."""
    folder.mkdir(exist_ok=True)
    target = folder / f"of_{path.name}"
    path.rename(target)
    path.symlink_to(target)
    return target


def saved(folder: Path) -> Path:
    return Path(shutil.copytree(WORDS, folder / "source"))


@pytest.mark.parametrize("suffix", [".index", ".meta", DATA])
@pytest.mark.parametrize("given", ["model.ckpt", "model.ckpt.meta", "."])
def test_a_checkpoint_lies_in_its_folder(tmp_path: Path, suffix: str, given: str) -> None:
    prefix = copied(tmp_path)
    target = moved(Path(f"{prefix}{suffix}"), tmp_path / "elsewhere")
    path = prefix.parent / given
    if path == Path(f"{prefix}{suffix}"):  # what the user names is followed
        assert read(path).variables
        return
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}: {prefix.name}{suffix}: expected a file in {prefix.parent}, found a link to {target}; {CURE}"
    )
    model = read(path, trust=True)
    assert all(one.read().size for one in model.variables.values())


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "variables/variables.index", "variables", "assets/vocabulary.txt", "assets"]
)
def test_a_saved_model_lies_in_its_folder(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path)
    target = moved(folder / name, tmp_path / "elsewhere")
    with pytest.raises(ReadError) as caught:
        read(folder)
    assert str(caught.value).startswith(
        f"{folder}: {name}: expected a file in {folder}, found a link to {target}"
    )
    assert read(folder, trust=True).assets


@pytest.mark.parametrize("name", ["saved_model.pb", "model.ckpt.index"])
def test_a_link_is_refused_before_its_file_is_read(tmp_path: Path, name: str) -> None:
    """Else what is said of a damaged file tells of one that the sender may not read."""
    source = saved(tmp_path) if name == "saved_model.pb" else copied(tmp_path)
    folder = source if source.is_dir() else source.parent
    target = moved(folder / name, tmp_path / "elsewhere")
    target.write_bytes(b"\xff" * 100)
    with pytest.raises(ReadError, match="found a link to"):
        read(source)


def test_words_beside_a_graph_lie_there_too(tmp_path: Path) -> None:
    """A checkpoint names the file of a table by a path of the machine that trained it."""
    import tensorflow as tf
    from support.graphs import BLOB, drawing, saved, v1

    with drawing() as graph:
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
        tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=table, filename=tf.constant("/home/them/words.txt"), key_index=-2, value_index=-1
        )
        v1.placeholder(tf.float32, [None], "x")
    prefix = saved(tmp_path / "source", graph, {"blob": BLOB})
    (tmp_path / "words.txt").write_text("secret")
    (tmp_path / "source" / "words.txt").symlink_to(tmp_path / "words.txt")
    with pytest.raises(ReadError, match=r"words\.txt: expected a file in .*, found a link to"):
        read(prefix)
    assert [*read(prefix, trust=True).assets.values()] == [tmp_path / "source" / "words.txt"]


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    for suffix in (".index", ".meta", DATA):
        Path(f"{prefix}{suffix}").rename(prefix.parent / f"blob{suffix}")
        Path(f"{prefix}{suffix}").symlink_to(f"blob{suffix}")
    assert read(prefix).variables
    (tmp_path / "link").symlink_to("source")
    assert read(tmp_path / "link" / "model.ckpt").variables


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", [DATA, ".meta", ".index"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str, trust: bool) -> None:
    prefix = copied(tmp_path)
    Path(f"{prefix}{name}").unlink()
    os.mkfifo(f"{prefix}{name}")
    with pytest.raises(ReadError) as caught:
        read(prefix, trust=trust)
    told = "expected a file, found a pipe, a socket or a device; put the file there"
    assert str(caught.value) == f"{prefix}: {prefix.name}{name}: {told}"


@pytest.mark.parametrize("name", [DATA, ".meta", ".index"])
def test_a_link_to_nothing_is_no_file(tmp_path: Path, name: str) -> None:
    prefix = copied(tmp_path)
    Path(f"{prefix}{name}").unlink()
    Path(f"{prefix}{name}").symlink_to("gone")
    with pytest.raises(ReadError) as caught:
        read(prefix)
    expected = "expected a file, found a link to nothing; put the file there"
    assert str(caught.value) == f"{prefix}: {prefix.name}{name}: {expected}"


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(4, np.float32))
    (tmp_path / "b.npy").symlink_to("b.npy")
    with pytest.raises(ReadError, match=r"b\.npy: expected a file, found a link to nothing"):
        read(tmp_path)


def test_no_command_follows_a_link_unless_it_is_told_to(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    moved(Path(f"{prefix}{DATA}"), tmp_path / "elsewhere")
    out = tmp_path / "out.npz"
    convert: tuple[Any, ...] = (prefix, out, "--format", "npz", "--no-verify")
    for words in (("inspect", prefix), ("map", prefix), convert):
        ended = command(*words)
        assert (ended.code, ended.stdout) == (1, "")
        (line,) = ended.stderr.splitlines()
        assert line.endswith(CURE)
    assert command(*convert, "--trust", "--quiet").code == 0
    assert command("inspect", prefix, "--trust").code == 0
    [line] = refused(tmp_path, "verify", prefix, out, code=1)
    assert line.endswith(CURE)
    with pytest.raises(ReadError):
        cudnn_convert.load(prefix)
    assert cudnn_convert.load(prefix, trust=True).recurrences


def test_an_artifact_lies_in_its_folder_too(tmp_path: Path) -> None:
    prefix, out = copied(tmp_path), tmp_path / "out"
    assert command(prefix, out, "--no-verify", "--quiet").code == 0
    data = next((out / "variables").glob("variables.data*"))
    canary = Watched(tmp_path / "canary")
    data.unlink()
    data.symlink_to(canary.path)
    ended = command("verify", prefix, out, "--quiet")
    told = f"expected a file in {out}, found a link to {canary.path}; {CURE}"
    assert (ended.code, ended.stderr) == (1, f"cudnn-convert: {out}: variables/{data.name}: {told}\n")
    assert not canary.opened
    canary.stop()
