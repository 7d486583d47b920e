"""SavedModels of TensorFlow 1: which MetaGraph, which signatures, which files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from support.command_line import refused
from support.samples import fixture
from tensorflow.core.protobuf import saved_model_pb2

import cudnn_convert
from cudnn_convert.errors import ReadError
from cudnn_convert.model import Mode, Signature
from cudnn_convert.read import read, saved_model

WORDS, TAGS = fixture("1.15.5-saved_model_words").prefix, fixture("1.15.5-saved_model_tags").prefix
Change = Callable[[saved_model_pb2.SavedModel], object]


def changed(folder: Path, source: Path, change: Change = lambda saved: None) -> Path:
    """A copy of a SavedModel whose proto `change` has edited."""
    made = shutil.copytree(source, folder / "source")
    path = made / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(saved)
    path.write_bytes(saved.SerializeToString())
    return made


def factor(graph: object) -> float:
    """What the fixture with two MetaGraphs multiplies its scores by."""
    [node] = [node for node in graph.node if node.name == "scores/y"]
    return float(tf.make_ndarray(node.attr["value"].tensor))


@pytest.mark.parametrize("name", [".", "saved_model.pb"])
@pytest.mark.parametrize("version", ["1.8.0", "1.12.3", "1.15.5"])
def test_a_folder_or_its_proto(name: str, version: str) -> None:
    folder = fixture(f"{version}-saved_model_words").prefix
    model = read(folder / name)
    assert (model.kind, model.path, model.notes) == ("TensorFlow SavedModel", folder, ())
    assert model.signatures == {
        "serving_default": Signature({"words": "words:0"}, {"logits": "logits:0"}),
        "summarize": Signature({"words": "words:0"}, {"summary": "summary:0"}),
    }
    [(_, path)] = model.assets.items()
    assert path == folder / "assets" / "vocabulary.txt"
    assert any(node.name in model.initializers for node in model.graph.node)
    checkpoint = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    assert sorted(model.variables) == sorted(checkpoint.get_variable_to_shape_map())
    for key, found in model.variables.items():
        np.testing.assert_array_equal(found.read(), checkpoint.get_tensor(key), strict=True)


def test_a_text_proto(tmp_path: Path) -> None:
    folder = changed(tmp_path, WORDS)
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(saved))
    (folder / "saved_model.pb").unlink()
    for path in (folder, folder / "saved_model.pbtxt"):
        assert read(path).graph == read(WORDS).graph


def retag(*tags: str, keep: int = 0) -> Change:
    """One MetaGraph of the two, with other tags."""

    def change(saved: saved_model_pb2.SavedModel) -> None:
        kept = saved.meta_graphs[keep]
        del kept.meta_info_def.tags[:]
        kept.meta_info_def.tags.extend(tags)
        del saved.meta_graphs[1 - keep]

    return change


@pytest.mark.parametrize(
    ("tag", "expected"), [(None, 1.0), ("serve", 1.0), ("serve,gpu", 2.0), ("gpu,serve", 2.0)]
)
def test_the_tags_choose_the_graph(tag: str | None, expected: float) -> None:
    model = read(TAGS, tag=tag)
    assert factor(model.graph) == expected
    assert not model.notes


def test_the_only_graph_is_taken_whatever_its_tags(tmp_path: Path) -> None:
    folder = changed(tmp_path, TAGS, retag("train", "tpu", keep=1))
    model = read(folder)
    assert factor(model.graph) == 2.0
    assert model.notes == ("no MetaGraph has the tag serve; took the only one, of train,tpu",)
    assert not read(folder, tag="tpu,train").notes


def hub(saved: saved_model_pb2.SavedModel) -> None:
    """As TensorFlow Hub's modules are: one graph without tags, another to train; keys `default`."""
    for meta, tags in zip(saved.meta_graphs, (["train"], []), strict=True):
        meta.meta_info_def.tags[:] = tags
        signature = meta.signature_def["serving_default"]
        for ends in (signature.inputs, signature.outputs):
            ((key, info),) = ends.items()
            ends["default"].CopyFrom(info)
            del ends[key]


def test_the_graph_without_tags_is_taken_where_none_is_to_serve(tmp_path: Path) -> None:
    folder = changed(tmp_path, TAGS, hub)
    model = read(folder)
    assert factor(model.graph) == 2.0
    note = "no MetaGraph has the tag serve; took the one without tags; --tag chooses another"
    assert model.notes == (note,)
    assert (factor(read(folder, tag="").graph), factor(read(folder, tag="train").graph)) == (2.0, 1.0)
    [line] = refused(tmp_path, folder, tmp_path / "out", "--tag", "gpu", code=2)
    assert line == f"{folder}: --tag: expected one of train | no tags, found gpu"
    [line] = refused(tmp_path, TAGS, tmp_path / "out", "--tag", "", code=2)
    assert line == f"{TAGS}: --tag: expected one of serve | serve,gpu, found no tags"


@pytest.mark.first("onnx-default_output")
@pytest.mark.parametrize(("form", "key"), [("onnx", "default_output"), ("savedmodel", "default")])
def test_an_output_with_the_key_of_an_input(tmp_path: Path, form: str, key: str) -> None:
    folder = changed(tmp_path, TAGS, hub)
    report = cudnn_convert.convert(folder, tmp_path / "out", format=form)
    assert ([*report.inputs], [*report.outputs]) == (["default"], [key])
    assert (f"output default is {key}: an input has its key" in report.notes) == (form == "onnx")
    assert report.verification is not None
    assert report.verification.passed
    assert cudnn_convert.verify(folder, tmp_path / "out").passed


def test_no_graph_of_such_a_tag(tmp_path: Path) -> None:
    [line] = refused(tmp_path, TAGS, tmp_path / "out", "--tag", "gpu", code=2)
    assert line == f"{TAGS}: --tag: expected one of serve | serve,gpu, found gpu"


def test_several_graphs_and_none_to_serve(tmp_path: Path) -> None:
    folder = changed(tmp_path, TAGS, lambda saved: saved.meta_graphs[0].meta_info_def.tags.append("tpu"))
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    expected = "MetaGraphs: expected one with the tags serve, found serve,tpu | serve,gpu; choose with --tag"
    assert line == f"{folder}: {expected}"


def test_several_graphs_to_serve(tmp_path: Path) -> None:
    folder = changed(tmp_path, TAGS, lambda saved: saved.meta_graphs[1].meta_info_def.tags.remove("gpu"))
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    expected = "MetaGraphs: expected one with the tags serve, found serve | serve"
    assert line == f"{folder}: {expected}; save them again with tags that differ"


def test_ops_that_stand_among_the_signatures_are_none(tmp_path: Path) -> None:
    def change(saved: saved_model_pb2.SavedModel) -> None:
        [meta] = saved.meta_graphs
        meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init_all_tables"
        meta.signature_def["__saved_model_train_op"].outputs["__saved_model_train_op"].name = "train:0"
        del meta.collection_def["saved_model_main_op"], meta.collection_def["table_initializer"]

    model = read(changed(tmp_path, WORDS, change))
    assert sorted(model.signatures) == ["serving_default", "summarize"]
    assert model.initializers == ("init_all_tables",)


def test_a_sparse_tensor_is_three(tmp_path: Path) -> None:
    def change(saved: saved_model_pb2.SavedModel) -> None:
        info = saved.meta_graphs[0].signature_def["serving_default"].outputs["decoded"]
        info.coo_sparse.indices_tensor_name = "ctc:0"
        info.coo_sparse.values_tensor_name = "ctc:1"
        info.coo_sparse.dense_shape_tensor_name = "ctc:2"

    outputs = read(changed(tmp_path, WORDS, change)).signatures["serving_default"].outputs
    sparse = {"decoded_indices": "ctc:0", "decoded_values": "ctc:1", "decoded_dense_shape": "ctc:2"}
    assert outputs == {**sparse, "logits": "logits:0"}


def test_a_ragged_tensor_is_its_parts(tmp_path: Path) -> None:
    def change(saved: saved_model_pb2.SavedModel) -> None:
        outputs = saved.meta_graphs[0].signature_def["serving_default"].outputs
        for name in ("values:0", "splits"):
            outputs["words"].composite_tensor.components.add(name=name)
        outputs["nothing"].dtype = 1

    outputs = read(changed(tmp_path, WORDS, change)).signatures["serving_default"].outputs
    assert outputs == {"logits": "logits:0", "words_component_0": "values:0", "words_component_1": "splits:0"}


def asset(saved: saved_model_pb2.SavedModel, name: str) -> None:
    made = saved.meta_graphs[0].asset_file_def.add(filename=name)
    made.tensor_info.name = "string_to_index/hash_table/asset_path:0"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../saved_model.pb", "asset: expected a file in assets/, found '../saved_model.pb'"),
        ("/etc/hostname", "asset: expected a file in assets/, found '/etc/hostname'"),
        ("", "asset: expected a file in assets/, found ''"),
        ("words.txt", "asset: expected assets/words.txt, found no such file; copy the whole folder"),
    ],
)
def test_an_asset_is_a_file_of_the_folder(tmp_path: Path, name: str, message: str) -> None:
    folder = changed(tmp_path, WORDS, lambda saved: asset(saved, name))
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    assert line == f"{folder}: {message}"


@pytest.mark.parametrize("length", [0, 100, 40000])
def test_a_damaged_proto_is_a_read_error(tmp_path: Path, length: int) -> None:
    folder = changed(tmp_path, WORDS)
    path = folder / "saved_model.pb"
    path.write_bytes(path.read_bytes()[:length])
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    found = "file: expected a SavedModel, found a damaged or incomplete one"
    told = found if length else "meta_graphs: expected at least one MetaGraph, found none"
    assert line == f"{path}: {told}; copy it again"


def test_variables_that_are_gone(tmp_path: Path) -> None:
    folder = changed(tmp_path, WORDS)
    (folder / "variables" / "variables.index").unlink()
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    expected = "checkpoint: expected variables.index, found no such file; copy all files of the checkpoint"
    assert line == f"{folder / 'variables' / 'variables'}: {expected}"


def test_objects_belong_to_one_graph(tmp_path: Path) -> None:
    module = tf.Module()
    module.call = tf.function(lambda x: x, [tf.TensorSpec([None])])
    folder = tmp_path / "source"
    tf.saved_model.save(module, str(folder), signatures=module.call.get_concrete_function())
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])
    saved.meta_graphs[1].meta_info_def.tags[:] = ["train"]
    path.write_bytes(saved.SerializeToString())
    [line] = refused(tmp_path, folder, tmp_path / "out", code=1)
    found = "found 2, one of them with objects; save the model with one"
    assert line == f"{folder}: meta_graphs: expected one in a file with objects, {found}"


def x() -> object:
    return tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")


def small(make: Callable[[], object] = x) -> bytes:
    """A SavedModel with a graph, nothing else."""
    with tf.Graph().as_default() as graph:
        make()
    saved = saved_model_pb2.SavedModel()
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(graph.as_graph_def())
    return saved.SerializeToString()


def test_a_graph_without_variables(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(small())
    for folder in (None, tmp_path / "variables"):
        if folder is not None:
            folder.mkdir()
        model = read(tmp_path)
        assert (model.variables, model.canonical, model.assets, model.saved) == ({}, (), {}, None)
        assert [node.name for node in model.graph.node] == ["x"]
    (tmp_path / "variables" / "variables.data-00000-of-00001").write_bytes(b"")
    with pytest.raises(ReadError, match=r"expected variables\.index, found no such file"):
        read(tmp_path)


def test_a_graph_without_nodes(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(small(lambda: None))
    with pytest.raises(ReadError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path}: graph_def: expected nodes, found none; copy it again"


def test_two_nodes_of_one_name_are_no_graph(tmp_path: Path) -> None:
    saved = saved_model_pb2.SavedModel.FromString(small())
    saved.meta_graphs[0].graph_def.node.add().CopyFrom(saved.meta_graphs[0].graph_def.node[0])
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(ReadError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path}: graph: expected nodes of different names, found x twice"
    )


def test_the_binary_proto_goes_before_the_text(tmp_path: Path) -> None:
    """As in TensorFlow's own loader, v1.15.0 loader_impl.py parse_saved_model."""
    (tmp_path / "saved_model.pbtxt").write_text("text that is none")
    (tmp_path / "saved_model.pb").write_bytes(small())
    assert [node.name for node in read(tmp_path / "saved_model.pbtxt").graph.node] == ["x"]


def test_no_other_file_of_the_folder_stands_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "saved_model.pb"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(small())
    (folder / "notes.txt").write_text("mine")
    assert saved_model.recognise(folder) == folder
    assert saved_model.recognise(folder / "saved_model.pb") == folder
    assert saved_model.recognise(folder / "notes.txt") is None
    assert saved_model.recognise(folder / "saved_model.pbtxt") is None
    assert saved_model.recognise(tmp_path) is None


def test_canonical_keys_among_the_variables(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(small())
    (tmp_path / "variables").mkdir()
    for path in fixture("1.15.5-gru_bi").folder.glob("model.ckpt.[di]*"):
        shutil.copy(path, tmp_path / "variables" / path.name.replace("model.ckpt", "variables"))
    [found] = read(tmp_path).canonical
    assert (found.scope, found.modes, found.directions) == ("cudnn_gru/", (Mode.GRU,), 2)


def test_tensorflow_1_keeps_its_graph_as_it_is(tmp_path: Path) -> None:
    def make() -> None:
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="w", name="v")

    (tmp_path / "saved_model.pb").write_bytes(small(make))
    model = read(tmp_path)
    assert model.saved is None
    assert model.checkpoint is not None
    assert model.checkpoint.meta.graph_def == model.graph
    assert model.checkpoint.prefix == tmp_path / "variables" / "variables"
    [node] = model.graph.node
    assert (node.name, node.attr["shared_name"].s) == ("v", b"w")


def test_a_variable_saved_under_another_key_has_it(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("a", initializer=[1.5])
        session.run(variable.initializer)
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "model"))
        builder.add_meta_graph_and_variables(
            session, ["serve"], saver=tf.compat.v1.train.Saver({"first": variable})
        )
        builder.save()
    model = read(tmp_path / "model")
    assert model.keys == {"a": "first"}
    assert model.variables["a"].read() == [1.5]


def test_tensorflow_2_names_variables_by_their_nodes(tmp_path: Path) -> None:
    module = tf.Module()
    module.scale = tf.Variable([2.0, 5.0], name="factor")
    module.call = tf.function(lambda x: x * module.scale, [tf.TensorSpec([None, 2])])
    tf.saved_model.save(module, str(tmp_path), signatures=module.call.get_concrete_function())
    model = read(tmp_path)
    assert model.saved is not None
    assert model.checkpoint is None
    [node] = [node for node in model.graph.node if node.op == "VarHandleOp"]
    assert node.attr["shared_name"].s.decode() == node.name
    assert {name: found.read().tolist() for name, found in model.variables.items()} == {node.name: [2.0, 5.0]}
    assert model.saved == saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
