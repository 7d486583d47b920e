"""Frozen graphs: known by what they hold, whatever they are called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from samples import fixture
from sources import refused
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.read import graph_def, read

BINARY, TEXT = fixture("1.15.5-frozen_binary").prefix, fixture("1.15.5-frozen_text").prefix


@pytest.mark.parametrize("source", [BINARY, TEXT], ids=["binary", "text"])
@pytest.mark.parametrize("name", ["model.pb", "model.pbtxt", "model", "model.ckpt.index", "saved_model.bin"])
def test_the_name_says_nothing(tmp_path: Path, source: Path, name: str) -> None:
    shutil.copy(source, tmp_path / name)
    if name.endswith(".index"):
        assert graph_def.recognise(tmp_path / name) == tmp_path / name
        return
    model = read(tmp_path / name)
    assert model.kind == "frozen graph"
    assert model.path == tmp_path / name
    assert not model.variables
    assert {node.op for node in model.graph.node} >= {"CudnnRNN", "Const", "Placeholder"}


def test_text_may_begin_with_a_comment_and_with_versions(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("# by hand\n\nversions {\n  producer: 134\n}\n" + TEXT.read_text())
    assert len(read(path).graph.node) == len(read(TEXT).graph.node)


def test_other_protos_are_no_graphs(tmp_path: Path) -> None:
    meta = fixture("1.15.5-gru_bi").folder / "model.ckpt.meta"
    saved = fixture("1.15.5-saved_model_tags").prefix / "saved_model.pb"
    parsed = saved_model_pb2.SavedModel.FromString(saved.read_bytes())
    versioned = meta_graph_pb2.MetaGraphDef.FromString(meta.read_bytes())
    versioned.meta_info_def.meta_graph_version = "v1"
    contents = {
        "meta": meta.read_bytes(),
        "meta with a version": versioned.SerializeToString(),
        "meta without ops": _without_ops(versioned).SerializeToString(),
        "meta as text": text_format.MessageToBytes(versioned),
        "saved model": saved.read_bytes(),
        "saved model as text": text_format.MessageToBytes(parsed),
        "library alone": versioned.graph_def.library.SerializeToString(),
        "node alone": versioned.graph_def.node[0].SerializeToString(),
        "empty": b"",
        "newline": b"\n",
        "cut in the first length": BINARY.read_bytes()[:1],
        "an endless length": b"\n" + b"\xff" * 20,
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert graph_def.recognise(path) is None, name
    assert graph_def.recognise(tmp_path) is None


def _without_ops(meta: meta_graph_pb2.MetaGraphDef) -> meta_graph_pb2.MetaGraphDef:
    made = meta_graph_pb2.MetaGraphDef()
    made.CopyFrom(meta)
    made.meta_info_def.ClearField("stripped_op_list")
    return made


def test_a_file_cut_off_is_a_read_error(tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    whole = BINARY.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 100):
        path.write_bytes(whole[:length])
        [line] = refused(tmp_path, path, tmp_path / "out", code=1)
        assert line == f"{path}: file: expected a GraphDef, found a damaged or cut-off one; copy it again"
    path.write_text(TEXT.read_text()[:-10])
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line == f"{path}: file: expected a GraphDef, found text that is none; copy it again"


def test_a_graph_with_variables_is_not_frozen(tmp_path: Path) -> None:
    meta = fixture("1.15.5-gru_bi").folder / "model.ckpt.meta"
    graph = meta_graph_pb2.MetaGraphDef.FromString(meta.read_bytes()).graph_def
    path = tmp_path / "graph.pbtxt"
    path.write_text(text_format.MessageToString(graph))
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line.startswith(
        f"{path}: graph: expected constants in the place of variables, found the variables "
    )
    assert line.endswith("; freeze it, or give the checkpoint that it belongs to")


def test_a_graph_without_nodes(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text("versions { producer: 134 }")
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line == f"{path}: graph: expected nodes, found none; copy it again"


def test_a_tag_is_for_saved_models(tmp_path: Path) -> None:
    [line] = refused(tmp_path, BINARY, tmp_path / "out", "--tag", "serve", code=2)
    assert line == f"--tag: {BINARY}: expected a SavedModel, found a frozen graph"


def test_a_text_graph_is_the_same_as_its_binary(tmp_path: Path) -> None:
    graph = graph_pb2.GraphDef.FromString(BINARY.read_bytes())
    path = tmp_path / "model.pbtxt"
    path.write_text(text_format.MessageToString(graph))
    assert read(path).graph == read(BINARY).graph


@pytest.mark.parametrize(
    ("count", "told"), [(3, "v0, v1, v2"), (4, "v0, v1, v2 and 1 more"), (6, "v0, v1, v2 and 3 more")]
)
def test_a_few_of_the_variables_are_named(tmp_path: Path, count: int, told: str) -> None:
    with tf.Graph().as_default() as graph:
        for number in range(count):
            tf.raw_ops.VariableV2(shape=[2], dtype=tf.float32, name=f"v{number}")
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(UnsupportedModelError) as caught:
        read(tmp_path / "model.pb")
    assert f"found the variables {told}; freeze it" in str(caught.value)


def field(tag: int, content: bytes) -> bytes:
    """A field with bytes in it, as protobuf encodes it: the length seven bits a byte, the lowest first."""
    length, rest = b"", len(content)
    while rest >= 128:
        length, rest = length + bytes([rest % 128 + 128]), rest // 128
    return bytes([tag]) + length + bytes([rest]) + content


def node(name: bytes, op: bytes = b"Const", tags: tuple[int, int, int] = (0x0A, 0x0A, 0x12)) -> bytes:
    return field(tags[0], field(tags[1], name) + field(tags[2], op))


@pytest.mark.parametrize("length", [1, 110, 127, 128, 129, 200, 256, 300, 16384, 60000])
def test_names_may_be_long(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.pb"
    content = node(b"n" * length, b"Custom>Op_2.x")
    path.write_bytes(content)
    assert graph_def.recognise(path) == path
    assert [one.name for one in graph_pb2.GraphDef.FromString(content).node] == ["n" * length]


@pytest.mark.parametrize(
    "content",
    [
        node(b""),
        node(b"a", b""),
        node(b"a", b"2"),
        node(b"a", b"Add "),
        node(b"a", tags=(0x12, 0x0A, 0x12)),
        node(b"a", tags=(0x0A, 0x12, 0x12)),
        node(b"a", tags=(0x0A, 0x0A, 0x0A)),
        b"\n\x8a\x80\x80\x80\x80\x00" + node(b"a")[2:],
        node(b"a")[:4],
    ],
    ids=["name", "op", "number", "space", *("first", "second", "third"), "length", "cut"],
)
def test_what_does_not_begin_with_a_node_is_no_graph(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(content)
    assert graph_def.recognise(path) is None


@pytest.mark.parametrize(("comment", "known"), [(1000, True), (2**16 - 6, True), (2**16, False)])
def test_a_text_graph_begins_in_the_first_64_kib(tmp_path: Path, comment: int, known: bool) -> None:
    path = tmp_path / "model.pbtxt"
    path.write_bytes(b"#" + b"x" * (comment - 2) + b"\n" + b'node { name: "a" op: "Const" }')
    assert graph_def.recognise(path) == (path if known else None)


def test_two_nodes_of_one_name_are_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "model.pbtxt"
    path.write_text('node { name: "a" op: "NoOp" } node { name: "a" op: "NoOp" }')
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: graph: expected nodes of different names, found a twice")


def test_files_of_tables_lie_beside_the_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        words = tf.lookup.TextFileInitializer("/home/them/words.txt", tf.string, -2, tf.int64, -1)
        tf.lookup.StaticHashTable(words, default_value=0)
    [fill] = [node for node in graph.as_graph_def().node if node.op == "InitializeTableFromTextFileV2"]
    (tmp_path / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    (tmp_path / "words.txt").write_text("a")
    assert read(tmp_path / "model.pb").assets == {f"{fill.input[1]}:0": tmp_path / "words.txt"}
