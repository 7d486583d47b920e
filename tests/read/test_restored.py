"""Which value of a TensorFlow 2 checkpoint belongs to which variable of the SavedModel's graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from graphs import ops
from keras3_samples import BROKEN, Export
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.model import InMemory, Model
from cudnn_convert.read import read
from cudnn_convert.read.variable_keys import find_restored_variables, plain


def proto(folder: Path) -> Any:
    (meta,) = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    return meta


def saved(module: tf.Module, folder: Path, names: list[str]) -> Model:
    """`module` with a signature that gives its variables `names`, weighted by their place, saved and read."""

    def call(x: Any) -> dict[str, Any]:
        return {"y": tf.add_n([x * 10**place * getattr(module, name) for place, name in enumerate(names)])}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([], name="x")])
    tf.saved_model.save(module, str(folder), signatures=module.call.get_concrete_function())
    return read(folder)


def by_object(model: Model) -> dict[str, np.ndarray]:
    """The value of each variable, by the attribute of the saved object that holds it.

    A signature's function is called with what it captured, in the order of its `bound_inputs`.
    """
    (meta,) = saved_model_pb2.SavedModel.FromString((model.path / "saved_model.pb").read_bytes()).meta_graphs
    nodes = {node.name: node for node in model.graph.node}
    call = nodes[meta.signature_def["serving_default"].outputs["y"].name.partition(":")[0]]
    bound = meta.object_graph_def.concrete_functions[call.attr["f"].func.name].bound_inputs
    attributes = {child.node_id: child.local_name for child in meta.object_graph_def.nodes[0].children}
    handles = list(call.input)[-len(bound) :]
    return {attributes[held]: model.variables[name].read() for held, name in zip(bound, handles, strict=True)}


def test_each_value_is_its_variable_s(tmp_path: Path) -> None:
    """Variables of one shape, created in another order than they are called and used in."""
    module = tf.Module()
    values = {"c": [1.5, -2.0], "a": [0.25, 4.0], "b": [-8.0, 16.5]}
    for name, value in values.items():
        setattr(module, name, tf.Variable(value, name=f"of_{name}"))
    found = by_object(saved(module, tmp_path, ["b", "c", "a"]))
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], np.array(value, np.float32), strict=True)


def test_two_variables_of_one_shared_name(tmp_path: Path) -> None:
    module = tf.Module()
    module.one, module.two = tf.Variable([1.0, 2.0], name="w"), tf.Variable([3.0, 5.0], name="w")
    saved(module, tmp_path, ["one", "two"])
    file = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    for node in file.meta_graphs[0].graph_def.node:
        if node.op == "VarHandleOp":
            node.attr["shared_name"].s = b"w"
    (tmp_path / "saved_model.pb").write_bytes(file.SerializeToString())
    model = read(tmp_path)
    handles = [node for node in model.graph.node if node.op == "VarHandleOp"]
    assert {node.attr["shared_name"].s.decode() for node in handles} == {node.name for node in handles}
    assert len({node.name for node in handles}) == 2
    found = by_object(model)
    np.testing.assert_array_equal(found["one"], [1, 2])
    np.testing.assert_array_equal(found["two"], [3, 5])


def test_types_and_shapes_of_all_kinds(tmp_path: Path) -> None:
    module = tf.Module()
    values = {
        "count": np.int64(7),
        "half": np.array([[0.5, -1.25]], np.float16),
        "wide": np.linspace(-1, 1, 6).reshape(2, 3),
        "words": np.array([b"a", b"longer"]),
        "flag": np.array([True, False]),
    }
    for name, value in values.items():
        setattr(module, name, tf.Variable(value, name="v"))
    module.scale = tf.Variable(3.0)
    model = saved(module, tmp_path, ["scale"])
    found = {variable.read().dtype.str: variable.read() for variable in model.variables.values()}
    for value in (values["count"], values["half"], values["wide"], values["flag"]):
        np.testing.assert_array_equal(found[value.dtype.str], value, strict=True)
    (words,) = (one.read() for one in model.variables.values() if one.read().dtype.kind in "SO")
    assert words.tolist() == [b"a", b"longer"]


def test_what_the_checkpoint_lacks_has_no_value(tmp_path: Path) -> None:
    """A table's resource and a captured constant are no variables."""
    module = tf.Module()
    module.scale = tf.Variable(2.5)
    keys = tf.constant(["a", "b"])
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.constant([3, 4])), default_value=0
    )
    given = tf.TensorSpec([None], tf.string, name="x")
    module.call = tf.function(
        lambda x: {"y": tf.cast(module.table.lookup(x), tf.float32) * module.scale}, input_signature=[given]
    )
    tf.saved_model.save(module, str(tmp_path), signatures=module.call.get_concrete_function())
    model = read(tmp_path)
    ((name, value),) = model.variables.items()
    assert ops(model.graph)[name] == "VarHandleOp"
    assert value.read() == np.float32(2.5)


def test_a_model_without_variables(tmp_path: Path) -> None:
    module = tf.Module()
    module.call = tf.function(lambda x: {"y": x * 2}, input_signature=[tf.TensorSpec([], name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures=module.call.get_concrete_function())
    assert read(tmp_path).variables == {}


SAMPLES = [one for one in BROKEN if one.name.startswith("keras-3.15.1") or one.folder.name == "signatures"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_the_exports_of_keras(sample: Export) -> None:
    """What each call of a function captures holds what TensorFlow's own loader restores for that object."""
    loaded, model, meta = tf.saved_model.load(str(sample.path)), read(sample.path), proto(sample.path)
    nodes = {node.name: node for node in model.graph.node}
    values = restored(loaded, meta)
    for name in sample.case["signatures"]:
        output = next(iter(meta.signature_def[name].outputs.values()))
        call = nodes[output.name.partition(":")[0]]
        bound = meta.object_graph_def.concrete_functions[call.attr["f"].func.name].bound_inputs
        handles = dict(zip(list(call.input)[-len(bound) :], bound, strict=True))
        captured = {name: held for name, held in handles.items() if held in values}
        assert captured
        for handle, held in captured.items():
            np.testing.assert_array_equal(model.variables[handle].read(), values[held], strict=True)
        filled = [values[held].tobytes() for held in captured.values() if values[held].any()]
        assert len(set(filled)) == len(filled)  # or a swap would not show


def restored(loaded: Any, meta: Any) -> dict[int, np.ndarray]:
    """The values of the variables in a loaded SavedModel, by the numbers of their objects."""
    nodes, found, seen = meta.object_graph_def.nodes, {}, set()
    todo = [(0, loaded)]
    while todo:
        number, one = todo.pop()
        if nodes[number].WhichOneof("kind") == "variable":
            found[number] = one.numpy()
        if number in seen or nodes[number].WhichOneof("kind") != "user_object":
            continue
        seen.add(number)
        for child in nodes[number].children:
            if nodes[child.node_id].WhichOneof("kind") in ("user_object", "variable"):
                name = child.local_name
                todo.append((child.node_id, one[int(name)] if name.isdigit() else getattr(one, name)))
    return found


def call(name: str = "StatefulPartitionedCall", function: str = "restore", *given: str) -> Any:
    """A MetaGraph whose saver restores by a call of `function` on the variables `given`."""
    meta = meta_graph_pb2.MetaGraphDef()
    meta.saver_def.restore_op_name = "StatefulPartitionedCall:0"
    node = meta.graph_def.node.add(name=name, op="StatefulPartitionedCall", input=["saver_filename", *given])
    node.attr["f"].func.name = function
    for handle in given:
        meta.graph_def.node.add(name=handle, op="VarHandleOp")
    return meta


def restoring(meta: Any, keys: list[str], assigned: list[tuple[str, str]]) -> Any:
    """The function `restore` of `a0`, `a1` ..., which assigns each `(argument, tensor)`."""
    function = meta.graph_def.library.function.add()
    function.signature.name = "restore"
    arguments = ["file", *(f"a{number}" for number in range(len(assigned)))]
    for name in arguments:
        function.signature.input_arg.add(name=name)
    names = function.node_def.add(name="names", op="Const")
    names.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([key.encode() for key in keys]))
    function.node_def.add(name="read", op="RestoreV2", input=["file", "names:output:0", "slices:output:0"])
    function.node_def.add(name="one", op="Identity", input=["read:tensors:1"])
    function.node_def.add(name="two", op="Identity", input=["one:output:0"])
    function.node_def.add(name="made", op="Fill", input=["names:output:0", "read:tensors:0"])
    for number, (argument, tensor) in enumerate(assigned):
        function.node_def.add(name=f"assign_{number}", op="AssignVariableOp", input=[argument, tensor])
    return meta


KEYS = ["x", "y", "z", "lost"]
STORED = {key: InMemory(np.float32([number])) for number, key in enumerate(KEYS[:3])}


def test_a_value_goes_where_the_restoring_function_assigns_it() -> None:
    meta = call("StatefulPartitionedCall", "restore", "u", "v", "w")
    assigned = [("a0", "two:output:0"), ("a1", "read:tensors:2"), ("a2", "read:tensors:0")]
    found = find_restored_variables(restoring(meta, KEYS, assigned), STORED)
    assert found == {"u": STORED["y"], "v": STORED["z"], "w": STORED["x"]}


def test_what_is_no_entry_or_no_variable_has_no_value() -> None:
    """A computed value, an argument, an entry that is not there, a handle of another kind or of nobody."""
    meta = call("StatefulPartitionedCall", "restore", "u", "v", "w", "table", "own")
    next(node for node in meta.graph_def.node if node.name == "table").op = "HashTableV2"
    assigned = [("a0", "made:output:0"), ("a1", "file"), ("a2", "read:tensors:3")]
    assigned += [("a3", "read:tensors:0"), ("a4", "read:tensors:1"), ("nobody", "read:tensors:2")]
    assert find_restored_variables(restoring(meta, KEYS, assigned), STORED) == {"own": STORED["y"]}


@pytest.mark.parametrize(
    "meta", [call("elsewhere"), call(function="another")], ids=["no call", "no function"]
)
def test_a_saver_of_another_kind_restores_nothing(meta: Any) -> None:
    assert find_restored_variables(restoring(meta, KEYS, []), STORED) == {}


def test_a_graph_in_the_way_of_tensorflow_1() -> None:
    """Variables are called as their nodes are; what reads a file's name from one gets it at once."""
    graph = graph_pb2.GraphDef()
    for name, op, given in (
        ("path", "Const", []),
        ("number", "Const", []),
        ("held", "VarHandleOp", []),
        ("count", "VarHandleOp", []),
        ("assign", "AssignVariableOp", ["held", "path"]),
        ("assign_1", "AssignVariableOp", ["count", "number"]),
        ("read", "ReadVariableOp", ["held"]),
        ("read_1", "ReadVariableOp", ["count"]),
        ("table", "InitializeTableFromTextFileV2", ["handle", "read"]),
        ("add", "AddV2", ["read_1", "x"]),
    ):
        graph.node.add(name=name, op=op, input=given)
    for name in (2, 3):
        graph.node[name].attr["shared_name"].s = b"w"
    before = graph.SerializeToString(deterministic=True)
    made = {node.name: node for node in plain(graph, {"path:0"}).node}
    assert graph.SerializeToString(deterministic=True) == before
    assert {name: list(node.input) for name, node in made.items() if node.input} == {
        "assign": ["held", "path"],
        "assign_1": ["count", "number"],
        "read": ["held"],
        "read_1": ["count"],
        "table": ["handle", "path"],
        "add": ["read_1", "x"],
    }
    named = {name: node.attr["shared_name"].s for name, node in made.items() if "shared_name" in node.attr}
    assert named == {"held": b"held", "count": b"count"}
