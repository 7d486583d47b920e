"""What no reader takes is told by its content, with what to give in its place."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from support.samples import fixture

from cudnn_convert import ReadError
from cudnn_convert.read import read, require, unknown

SAVED = fixture("1.15.5-saved_model_words").folder / "model"
PREFIX = fixture("1.15.5-bilstm_tagger").prefix
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
RUNS = f"; {unknown._ON_CPU}"


def zipped(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")


def tarred(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.add(SAVED, "model")


def as_onnx(path: Path) -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pointer": (
        lambda path: path.write_text(POINTER),
        "a Git LFS pointer in the place of the file; get the file with git lfs pull",
    ),
    "zip": (
        lambda path: zipped(path, "m/saved_model.pb", "m/variables/variables.index"),
        "a zip archive with m/saved_model.pb; unpack it and give what is in it",
    ),
    "pickle": (
        lambda path: path.write_bytes(pickle.dumps({"w": 1}, protocol=2)),
        "a pickle, which may run anything; save its arrays as .npz or safetensors",
    ),
    "damaged zip": (
        lambda path: path.write_bytes(b"PK\x03\x04" + bytes(50)),
        "a damaged zip archive; copy it again",
    ),
    "tar": (tarred, "a tar archive; unpack it and give what is in it"),
    "gzip": (
        lambda path: path.write_bytes(gzip.compress(b"x")),
        "a gzip file; unpack it and give what is in it",
    ),
    "onnx": (as_onnx, f"an ONNX model{RUNS}"),
    "tflite": (
        lambda path: path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(40)),
        f"a TensorFlow Lite model{RUNS}",
    ),
    "keras json": (
        lambda path: path.write_text(json.dumps({"class_name": "Sequential", "config": []})),
        "the JSON of a Keras model, without weights; give the weights, and this with --architecture",
    ),
    "text": (lambda path: path.write_text("Liebe Grüße\n"), "a text file"),
    "empty": (lambda path: path.write_bytes(b""), "an empty file; copy it again"),
    "bytes": (lambda path: path.write_bytes(bytes(range(7, 250))), "a file that is none of these"),
    "empty folder": (lambda path: path.mkdir(), "an empty folder"),
    "folder": (
        lambda path: (path.mkdir(), (path / "thesis.txt").write_text("years of work")),
        "a folder without a model, whose first entry is thesis.txt",
    ),
}


def told(path: Path) -> str:
    """What reading a path is refused with, after what was expected."""
    with pytest.raises(ReadError) as caught:
        read(path)
    return str(caught.value).partition(", found ")[2]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_told_with_its_cure(tmp_path: Path, kind: str) -> None:
    make, expected = KINDS[kind]
    make(tmp_path / "thing")
    assert told(tmp_path / "thing") == expected


def test_a_part_of_a_model_names_the_whole(tmp_path: Path) -> None:
    shutil.copytree(SAVED, tmp_path / "models" / "words")
    whole = tmp_path / "models" / "words"
    for part in ("variables", "assets"):
        assert told(whole / part) == f"its folder {part} alone; give {whole}"
    assert told(tmp_path / "models") == f"a folder that holds models; give {whole}"


def test_the_list_of_checkpoints_names_its_folder(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    cure = f"give its folder {tmp_path}, or a prefix that it names"
    assert told(tmp_path / "checkpoint") == f"TensorFlow's list of checkpoints; {cure}"


@pytest.mark.parametrize("suffix", [".index", ".meta", ".data-00000-of-00001"])
def test_a_file_of_a_checkpoint_that_was_not_fetched(tmp_path: Path, suffix: str) -> None:
    shutil.copytree(PREFIX.parent, tmp_path / "m")
    pointer = tmp_path / "m" / f"{PREFIX.name}{suffix}"
    pointer.write_text(POINTER)
    with pytest.raises(ReadError) as caught:
        read(tmp_path / "m" / PREFIX.name)
    expected = "expected a file of the model, found a Git LFS pointer in the place of the file"
    assert str(caught.value) == f"{pointer}: file: {expected}; get the file with git lfs pull"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("modle.ckpt", "model.ckpt"), ("taggr.h5", "tagger.h5"), ("Model.ckpt", "model.ckpt")],
)
def test_a_path_that_is_not_there_gets_the_nearest_of_its_folder(
    tmp_path: Path, given: str, meant: str
) -> None:
    for name in ("model.ckpt.index", "model.ckpt.meta", "tagger.h5", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    for look in (read, require):
        with pytest.raises(ReadError) as caught:
            look(tmp_path / given)
        end = f"found no such file or folder; did you mean {tmp_path / meant}?"
        assert str(caught.value).endswith(end)
