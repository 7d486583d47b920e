"""Signatures and initializers of a MetaGraph made by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.model import Signature
from cudnn_convert.read import graph_def

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
