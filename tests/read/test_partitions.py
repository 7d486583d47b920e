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
from tensorflow.core.protobuf import meta_graph_pb2, saver_pb2

from cudnn_convert.read import tensorbundle, variable_keys

WHOLE = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def tensors(tmp_path: Path) -> Mapping[str, Any]:
    return tensorbundle.tensors(
        save(tmp_path / "a", [("w", WHOLE), ("v", WHOLE + 100), ("own", WHOLE + 200)])
    )


def words(graph: Any, name: str, held: Iterable[str]) -> None:
    node = graph.node.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([word.encode() for word in held]))


def saver(
    graph: Any, places: Iterable[tuple[str, str, str]], name: str = "save", assign: str = "Assign"
) -> Any:
    """The ops that restore `(key, slice, variable)`, behind the one that does all; gives that."""
    keys, slices, targets = zip(*places, strict=True)
    words(graph, f"{name}/names", keys)
    words(graph, f"{name}/slices", slices)
    restore = f"{name}/RestoreV2"
    graph.node.add(name=restore, op="RestoreV2", input=["save/Const", f"{name}/names", f"{name}/slices"])
    for number, target in enumerate(targets):
        value = f"{restore}:{number}" if number else restore
        graph.node.add(name=f"{name}/Identity_{number}", op="Identity", input=[value])
        given = f"{name}/Identity_{number}" if assign == "AssignVariableOp" else value
        graph.node.add(name=f"{name}/Assign_{number}", op=assign, input=[target, given])
    assigned = [f"^{name}/Assign_{number}" for number in range(len(targets))]
    shard = graph.node.add(name=f"{name}/restore_shard", op="NoOp", input=assigned)
    return graph.node.add(name=f"{name}/restore_all", op="NoOp", input=[f"^{shard.name}"])


def variables(graph: Any, *names: str, op: str = "VariableV2") -> None:
    for name in names:
        graph.node.add(name=name, op=op)


def values(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.read().tolist() for name, tensor in found.items()}


@pytest.mark.parametrize("assign", ["Assign", "AssignVariableOp"])
@pytest.mark.parametrize("kind", ["VariableV2", "Variable", "VarHandleOp"])
def test_the_parts_that_a_saver_restores(tensors: Mapping[str, Any], assign: str, kind: str) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "w/part_0", "w/part_1", "renamed", "own", op=kind)
    places = [("w", "4 3 0,1:0,3", "w/part_0"), ("w", "4 3 1,3:-", "w/part_1")]
    saver(meta.graph_def, [*places, ("v", "", "renamed"), ("own", "", "own")], assign=assign)
    found = variable_keys.find(meta, tensors)
    expected = {"w/part_0": WHOLE[:1], "w/part_1": WHOLE[1:], "renamed": WHOLE + 100, "own": WHOLE + 200}
    assert values(found.values) == {name: value.tolist() for name, value in expected.items()}
    assert {name: tensor.shape for name, tensor in found.values.items()} == {
        name: value.shape for name, value in expected.items()
    }
    assert found.keys == {"w/part_0": "w", "w/part_1": "w", "renamed": "v"}
    assert found.notes == ()


def test_an_op_of_tensorflow_before_0_12(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    graph = meta.graph_def
    variables(graph, "one")
    words(graph, "save/name", ["w"])
    words(graph, "save/slice", ["4 3 0,2:-"])
    graph.node.add(name="save/restore", op="RestoreSlice", input=["save/Const", "save/name", "save/slice"])
    graph.node.add(name="save/Assign", op="Assign", input=["one", "save/restore"])
    graph.node.add(name="save/restore_all", op="NoOp", input=["^save/Assign"])
    assert values(variable_keys.find(meta, tensors).values) == {"one": WHOLE[:2].tolist()}


def averaged(tensors: Mapping[str, Any]) -> Any:
    """A graph of variables whose own entries are there, one saver for these and one for others."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "w", "own")
    saver(meta.graph_def, [("w", "", "w"), ("own", "", "own")], name="usual")
    saver(meta.graph_def, [("v", "", "w"), ("own", "", "own")], name="other")
    return meta


def test_the_saver_that_wrote_the_graph_overrules_a_variables_own_name(tensors: Mapping[str, Any]) -> None:
    meta = averaged(tensors)
    meta.saver_def.restore_op_name = "other/restore_all"
    found = variable_keys.find(meta, tensors)
    assert values(found.values) == {"w": (WHOLE + 100).tolist(), "own": (WHOLE + 200).tolist()}
    assert found.keys == {"w": "v"}
    assert found.notes == (
        "values restored as the graph's saver does, not by the variables' own names: w from v",
    )
    meta.saver_def.restore_op_name = "usual/restore_all"
    assert variable_keys.find(meta, tensors).keys == {}


def test_savers_that_the_graph_only_lists_say_it_where_they_agree(tensors: Mapping[str, Any]) -> None:
    meta = averaged(tensors)
    assert variable_keys.find(meta, tensors).keys == {}  # one says w, the other v: its own entry is there
    listed = saver_pb2.SaverDef(restore_op_name="other/restore_all").SerializeToString()
    meta.collection_def["savers"].bytes_list.value.append(listed)
    assert variable_keys.find(meta, tensors).keys == {"w": "v"}


def test_a_saver_of_another_checkpoint_says_nothing(tensors: Mapping[str, Any]) -> None:
    meta = averaged(tensors)
    variables(meta.graph_def, "more")
    saver(meta.graph_def, [("w", "", "own"), ("lost", "", "more")], name="pretrained")
    assert variable_keys.find(meta, tensors).values["own"].read().tolist() == (WHOLE + 200).tolist()


def test_two_savers_that_disagree_say_nothing(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one", "two", "own")
    saver(meta.graph_def, [("w", "", "one"), ("w", "4 3 0,2:-", "two"), ("v", "", "own")])
    saver(meta.graph_def, [("w", "", "one"), ("w", "4 3 2,2:-", "two"), ("own", "", "own")], name="other")
    assert values(variable_keys.find(meta, tensors).values) == {"one": WHOLE.tolist()}


def test_a_key_that_is_not_there_is_no_value(tensors: Mapping[str, Any]) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one", "two")
    saver(meta.graph_def, [("lost", "", "one"), ("w", "4 3 words", "two")])
    assert not variable_keys.find(meta, tensors).values


def test_what_is_computed_has_no_key(tensors: Mapping[str, Any]) -> None:
    """As the blob that a saver packs of canonical tensors."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    saver(meta.graph_def, [("w", "", "one")])
    for node in meta.graph_def.node:
        if node.op == "Assign":
            node.input[1] = "twice"
    meta.graph_def.node.add(name="twice", op="Mul", input=["save/RestoreV2", "save/RestoreV2"])
    assert not variable_keys.find(meta, tensors).values


@pytest.mark.parametrize("lost", ["save/names", "save/slices", "save/RestoreV2", "save/restore_shard"])
@pytest.mark.parametrize("op", ["Placeholder", ""])
def test_what_the_graph_does_not_hold(tensors: Mapping[str, Any], lost: str, op: str) -> None:
    """Fed, or not there at all."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    saver(meta.graph_def, [("w", "", "one")])
    kept = [node for node in meta.graph_def.node if node.name != lost]
    del meta.graph_def.node[:]
    meta.graph_def.node.extend(kept)
    if op:
        meta.graph_def.node.add(name=lost, op=op)
    assert not variable_keys.find(meta, tensors).values


@pytest.mark.parametrize("lost", ["save/names", "save/slices"])
def test_names_that_are_numbers(tensors: Mapping[str, Any], lost: str) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    saver(meta.graph_def, [("w", "", "one")])
    (node,) = (node for node in meta.graph_def.node if node.name == lost)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([7]))
    assert not variable_keys.find(meta, tensors).values


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
    assert values(variable_keys.find(meta, tensors).values) == {"w/part_1": WHOLE[1:3].tolist()}


def test_neither_savers_nor_variables(tensors: Mapping[str, Any]) -> None:
    assert variable_keys.find(meta_graph_pb2.MetaGraphDef(), tensors) == variable_keys.Values()
