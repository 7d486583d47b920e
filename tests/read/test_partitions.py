"""Which part of which entry is a variable's value: MetaGraphs written out, as savers make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tables import save
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.read import bundle, partitions

WHOLE = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def tensors(tmp_path: Path) -> Mapping[str, Any]:
    return bundle.tensors(save(tmp_path / "a", [("w", WHOLE), ("v", WHOLE + 100), ("own", WHOLE + 200)]))


def words(graph: Any, name: str, held: Iterable[str]) -> None:
    node = graph.node.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([word.encode() for word in held]))


def saver(graph: Any, values: Iterable[tuple[str, str, str]], op: str = "SaveV2", name: str = "save") -> Any:
    """A save op of `(key, slice, tensor)`, beside what else such an op has."""
    keys, slices, given = zip(*values, strict=True)
    words(graph, f"{name}/names", keys)
    words(graph, f"{name}/slices", slices)
    inputs = ["save/Const", f"{name}/names", f"{name}/slices", *given, "^save/first"]
    return graph.node.add(name=name, op=op, input=inputs)


def variables(graph: Any, *names: str, op: str = "VariableV2") -> None:
    for name in names:
        graph.node.add(name=name, op=op)


def values(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.read().tolist() for name, tensor in found.items()}


@pytest.mark.parametrize("op", ["SaveV2", "SaveSlices"])
@pytest.mark.parametrize("kind", ["VariableV2", "Variable", "VarHandleOp"])
def test_the_parts_that_a_saver_writes(tensors: Mapping[str, Any], op: str, kind: str) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "w/part_0", "w/part_1", "renamed", "own", op=kind)
    meta.graph_def.node.add(name="w/part_1/read", op="ReadVariableOp", input=["w/part_1"])
    meta.graph_def.node.add(name="behind", op="Identity", input=["w/part_1/read"])
    saved = [("w", "4 3 0,1:0,3", "w/part_0"), ("w", "4 3 1,3:-", "behind:0")]
    saver(meta.graph_def, [*saved, ("v", "", "renamed:0"), ("own", "", "own")], op)
    found = partitions.find(meta, tensors)
    expected = {"w/part_0": WHOLE[:1], "w/part_1": WHOLE[1:], "renamed": WHOLE + 100}
    assert values(found) == {name: value.tolist() for name, value in expected.items()}
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: value.shape for name, value in expected.items()
    }


def test_two_savers_that_disagree_say_nothing(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one", "two", "own")
    saver(meta.graph_def, [("w", "", "one"), ("w", "4 3 0,2:-", "two"), ("v", "", "own")])
    saver(meta.graph_def, [("w", "", "one"), ("w", "4 3 2,2:-", "two")], name="other")
    saver(meta.graph_def, [("lost", "", "one"), ("one", "", "one")], name="a third")
    assert values(partitions.find(meta, tensors)) == {"one": WHOLE.tolist()}


def test_a_key_that_is_not_there_is_no_value(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one", "two")
    saver(meta.graph_def, [("lost", "", "one"), ("w", "4 3 words", "two")])
    assert not partitions.find(meta, tensors)


@pytest.mark.parametrize("given", ["twice", "nowhere"])
def test_what_is_computed_is_no_variable(tensors: Mapping[str, Any], given: str) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    meta.graph_def.node.add(name="twice", op="Mul", input=["one", "one"])
    saver(meta.graph_def, [("w", "", given)])
    assert not partitions.find(meta, tensors)


@pytest.mark.parametrize("lost", ["save/names", "save/slices"])
@pytest.mark.parametrize("op", ["Placeholder", ""])
def test_words_that_the_graph_does_not_hold(tensors: Mapping[str, Any], lost: str, op: str) -> None:
    """Fed, or not there at all."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    saver(meta.graph_def, [("w", "", "one")])
    kept = [node for node in meta.graph_def.node if node.name != lost]
    del meta.graph_def.node[:]
    meta.graph_def.node.extend(kept)
    if op:
        meta.graph_def.node.add(name=lost, op=op)
    assert not partitions.find(meta, tensors)


def declared(meta: Any, name: str, key: str = "", **info: Any) -> None:
    proto = variable_pb2.VariableDef(variable_name=name)
    if key:
        proto.save_slice_info_def.CopyFrom(variable_pb2.SaveSliceInfoDef(full_name=key, **info))
    meta.collection_def["variables"].bytes_list.value.append(proto.SerializeToString())


PART = {"full_shape": [4, 3], "var_offset": [1, 0], "var_shape": [2, 3]}


def test_the_parts_that_variables_say_they_are(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    meta.collection_def["variables"].bytes_list.value.append(b"\xff no proto")
    declared(meta, "plain:0")
    declared(meta, "w/part_1:0", "w", **PART)
    declared(meta, "own:0", "w", **PART)
    declared(meta, "part of nothing:0", "lost", **PART)
    assert values(partitions.find(meta, tensors)) == {"w/part_1": WHOLE[1:3].tolist()}


def test_neither_savers_nor_variables(tensors: Mapping[str, Any]) -> None:
    assert not partitions.find(meta_graph_pb2.MetaGraphDef(), tensors)
