"""Files of tables: those that a SavedModel lists, and those that lie beside a graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.read import graph_def

FILL = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


def meta(*names: str, packed: bool = False) -> meta_graph_pb2.MetaGraphDef:
    """One that lists files; `packed` as TensorFlow before 1.14 did, in a collection alone."""
    made = meta_graph_pb2.MetaGraphDef()
    for k, name in enumerate(names):
        proto = meta_graph_pb2.AssetFileDef(filename=name)
        proto.tensor_info.name = f"asset_{k}:0" if k else "asset"
        if packed:
            made.collection_def["saved_model_assets"].any_list.value.add().Pack(proto)
        else:
            made.asset_file_def.add().CopyFrom(proto)
    return made


def put(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_listed_files_are_known_by_their_tensors(tmp_path: Path, packed: bool) -> None:
    put(tmp_path, "assets/words.txt", "assets/more/tags.txt")
    found = graph_def.list_assets(meta("words.txt", "more/tags.txt", packed=packed), tmp_path)
    folder = tmp_path / "assets"
    assert found == {"asset:0": folder / "words.txt", "asset_1:0": folder / "more" / "tags.txt"}


def test_a_model_may_list_no_files_and_stays_as_it_is(tmp_path: Path) -> None:
    made = meta()
    assert graph_def.list_assets(made, tmp_path) == {}
    assert made == meta_graph_pb2.MetaGraphDef()


def test_the_list_itself_goes_before_the_collection(tmp_path: Path) -> None:
    made = meta("words.txt")
    made.collection_def["saved_model_assets"].CopyFrom(
        meta("old.txt", packed=True).collection_def["saved_model_assets"]
    )
    assert graph_def.list_assets(made, put(tmp_path, "assets/words.txt")) == {
        "asset:0": tmp_path / "assets" / "words.txt"
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("words.txt", "expected assets/words.txt, found no such file; copy the whole folder"),
        ("folder", "expected assets/folder, found no such file; copy the whole folder"),
        ("../secret.txt", "expected a file in assets/, found '../secret.txt'"),
        ("../assets_too/a.txt", "expected a file in assets/, found '../assets_too/a.txt'"),
        ("", "expected a file in assets/, found ''"),
    ],
)
def test_a_file_must_lie_among_the_assets(tmp_path: Path, name: str, told: str) -> None:
    put(tmp_path, "secret.txt", "assets_too/a.txt", "assets/folder/a.txt")
    with pytest.raises(ReadError) as caught:
        graph_def.list_assets(meta(name), tmp_path)
    assert str(caught.value) == f"{tmp_path}: asset: {told}"


def graph(
    content: object, op: str = FILL[1], holder: str = "Const", source: str = "name:0"
) -> graph_pb2.GraphDef:
    """A table that is filled from the file that `content` names."""
    made = graph_pb2.GraphDef()
    node = made.node.add(name="name", op=holder)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(content))
    made.node.add(name="fill", op=op, input=["table", source])
    return made


@pytest.mark.parametrize("op", FILL)
@pytest.mark.parametrize("source", ["name", "name:0"])
@pytest.mark.parametrize(
    "content",
    ["words.txt", "/home/them/data/words.txt", "C:\\data\\words.txt", "a/b\\words.txt", ["words.txt"]],
)
def test_a_file_beside_the_graph_is_taken(tmp_path: Path, op: str, source: str, content: object) -> None:
    put(tmp_path, "words.txt", "other.txt")
    made = graph(content, op, source=source)
    assert graph_def.beside(made, tmp_path) == {"name:0": tmp_path / "words.txt"}


@pytest.mark.parametrize(
    "content",
    ["/home/them/none.txt", "", "..", "folder", ["words.txt", "other.txt"], [b"words\xff.txt"], b"\xff", []],
    ids=["none", "empty", "above", "folder", "two", "no utf-8 in a list", "no utf-8", "nothing"],
)
def test_no_other_file_is_taken(tmp_path: Path, content: object) -> None:
    put(tmp_path, "words.txt", "other.txt", "folder/a.txt")
    content = tf.constant([], tf.string) if content == [] else content
    assert graph_def.beside(graph(content), tmp_path) == {}


@pytest.mark.parametrize(
    ("op", "holder", "source"),
    [
        ("LookupTableImport", "Const", "name"),
        (FILL[1], "Placeholder", "name"),
        (FILL[1], "Const", "elsewhere:0"),
        (FILL[1], "Const", "name:1"),
    ],
)
def test_only_a_constant_names_a_file(tmp_path: Path, op: str, holder: str, source: str) -> None:
    made = graph("words.txt", op, holder, source)
    if holder == "Placeholder":
        made.node[0].ClearField("attr")
    assert graph_def.beside(made, put(tmp_path, "words.txt")) == {}
