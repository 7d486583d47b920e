"""Frozen graphs, MetaGraphs and files of tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from support.command_line import refused
from support.samples import fixture
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.model import Signature
from cudnn_convert.read import graph_def, read

# Frozen graphs: known by what they hold, whatever they are called.

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
        assert line == f"{path}: file: expected a GraphDef, found a damaged or incomplete one; copy it again"
    path.write_text(TEXT.read_text()[:-10])
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line == f"{path}: file: expected a GraphDef, found a text that is not one; copy it again"


def test_a_graph_with_variables_is_not_frozen(tmp_path: Path) -> None:
    meta = fixture("1.15.5-gru_bi").folder / "model.ckpt.meta"
    graph = meta_graph_pb2.MetaGraphDef.FromString(meta.read_bytes()).graph_def
    path = tmp_path / "graph.pbtxt"
    path.write_text(text_format.MessageToString(graph))
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert line.startswith(
        f"{path}: graph: expected constants in the place of variables, found the variables "
    )
    assert line.endswith(f"; freeze the graph, or convert its checkpoint with --architecture {path}")


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
    assert f"found the variables {told}; freeze the graph" in str(caught.value)


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


# Signatures and initializers of a MetaGraph made by hand.

MAIN, LEGACY, TABLES = "saved_model_main_op", "legacy_init_op", "table_initializer"
INIT = "__saved_model_init_op"


@pytest.fixture
def meta() -> Iterator[meta_graph_pb2.MetaGraphDef]:
    """One without anything; what a test puts there must be there still."""
    made, before = meta_graph_pb2.MetaGraphDef(), meta_graph_pb2.MetaGraphDef()
    yield made
    before.CopyFrom(made)
    graph_def.signatures(made)
    graph_def.initializers(made)
    assert made == before, "reading has changed the proto"


def add(meta: meta_graph_pb2.MetaGraphDef, key: str, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    signature = meta.signature_def[key]
    for infos, named in ((signature.inputs, inputs), (signature.outputs, outputs)):
        for name, tensor in named.items():
            infos[name].name = tensor


def test_an_empty_one_has_nothing(meta: meta_graph_pb2.MetaGraphDef) -> None:
    assert (graph_def.signatures(meta), graph_def.initializers(meta)) == ({}, ())


def test_tensors_have_numbers_and_keys_an_order(meta: meta_graph_pb2.MetaGraphDef) -> None:
    add(meta, "serve", {"x": "x:0", "lengths": "lengths"}, {"y": "rnn:2", "a": "argmax"})
    add(meta, "again", {}, {"y": "y:1"})
    found = graph_def.signatures(meta)
    assert found == {
        "again": Signature({}, {"y": "y:1"}),
        "serve": Signature({"lengths": "lengths:0", "x": "x:0"}, {"a": "argmax:0", "y": "rnn:2"}),
    }
    assert [*found] == ["again", "serve"]
    assert [[*one] for one in (found["serve"].inputs, found["serve"].outputs)] == [
        ["lengths", "x"],
        ["a", "y"],
    ]


def test_what_gives_nothing_is_no_signature(meta: meta_graph_pb2.MetaGraphDef) -> None:
    add(meta, "train", {"x": "x:0"}, {})
    add(meta, INIT, {}, {INIT: "init"})
    add(meta, "__saved_model_train_op", {}, {"op": "train"})
    assert graph_def.signatures(meta) == {}


def test_a_tensor_may_be_several(meta: meta_graph_pb2.MetaGraphDef) -> None:
    infos = meta.signature_def["serve"].outputs
    sparse = infos["labels"].coo_sparse
    sparse.indices_tensor_name, sparse.values_tensor_name = "ctc:0", "ctc:1"
    sparse.dense_shape_tensor_name = "ctc"
    infos["words"].composite_tensor.components.add(name="values:0")
    infos["words"].composite_tensor.components.add(name="splits")
    infos["nothing"].dtype = 1
    infos["plain"].name = "y:0"
    found = graph_def.signatures(meta)["serve"].outputs
    assert [*found.items()] == [
        ("labels_indices", "ctc:0"),
        ("labels_values", "ctc:1"),
        ("labels_dense_shape", "ctc:0"),
        ("plain", "y:0"),
        ("words_component_0", "values:0"),
        ("words_component_1", "splits:0"),
    ]


@pytest.mark.parametrize("key", [MAIN, LEGACY, TABLES])
def test_each_collection_has_initializers(meta: meta_graph_pb2.MetaGraphDef, key: str) -> None:
    meta.collection_def[key].node_list.value.extend(["init", "tables:0", "init:0"])
    meta.collection_def["losses"].node_list.value.append("loss:0")
    assert graph_def.initializers(meta) == ("init", "tables")


def test_what_a_loader_runs_stands_first(meta: meta_graph_pb2.MetaGraphDef) -> None:
    """The order of tensorflow v1.15.0 loader_impl.py: a signature's op, the main op, the older one."""
    for key in (TABLES, LEGACY, MAIN):
        meta.collection_def[key].node_list.value.extend([key, "shared"])
    add(meta, INIT, {}, {INIT: "signed"})
    assert graph_def.initializers(meta) == ("signed", MAIN, "shared", LEGACY, TABLES)


# Files of tables: those that a SavedModel lists, and those that lie beside a graph.

FILL = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


def with_assets(*names: str, packed: bool = False) -> meta_graph_pb2.MetaGraphDef:
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
    found = graph_def.list_assets(with_assets("words.txt", "more/tags.txt", packed=packed), tmp_path)
    folder = tmp_path / "assets"
    assert found == {"asset:0": folder / "words.txt", "asset_1:0": folder / "more" / "tags.txt"}


def test_a_model_may_list_no_files_and_stays_as_it_is(tmp_path: Path) -> None:
    made = with_assets()
    assert graph_def.list_assets(made, tmp_path) == {}
    assert made == meta_graph_pb2.MetaGraphDef()


def test_the_list_itself_goes_before_the_collection(tmp_path: Path) -> None:
    made = with_assets("words.txt")
    made.collection_def["saved_model_assets"].CopyFrom(
        with_assets("old.txt", packed=True).collection_def["saved_model_assets"]
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
        graph_def.list_assets(with_assets(name), tmp_path)
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
