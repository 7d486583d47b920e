"""Which entry of a checkpoint is which variable's value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from support import graphs, tiers
from support.checkpoints import save
from support.graphs import ops
from support.keras3_samples import BROKEN, Export
from tensorflow.core.framework import function_pb2, graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, saver_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.graph import session
from cudnn_convert.keras import cpu_layers
from cudnn_convert.model import Architecture, InMemory, Mode, Model, is_float
from cudnn_convert.read import read, tensorbundle, variable_keys
from cudnn_convert.read.dialects import contrib, keras, regions
from cudnn_convert.read.variable_keys import find_restored_variables, plain

# Which value of a TensorFlow 2 checkpoint belongs to which variable of the SavedModel's graph.


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
#: Of one version: several signatures and directions, an archive, images, masks and kept states.
FIRST_SAMPLES = frozenset(
    f"keras-3.15.1-{case}"
    for case in ("archive", "bidirectional", "channels_first", "masked", "signatures", "stateful")
)


@tiers.samples(SAMPLES, lambda sample: sample.name in FIRST_SAMPLES)
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


# Which part of which entry is a variable's value: MetaGraphs written out, as savers make them.

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


@pytest.mark.parametrize("op", ["RestoreSlice", "Restore"])
def test_an_op_of_tensorflow_before_0_12(tensors: Mapping[str, Any], op: str) -> None:
    """`Restore` has no slices."""
    meta = meta_graph_pb2.MetaGraphDef()
    graph = meta.graph_def
    variables(graph, "one")
    words(graph, "save/name", ["w"])
    words(graph, "save/slice", ["4 3 0,2:-"])
    given = ["save/Const", "save/name", "save/slice"]
    graph.node.add(name="save/restore", op=op, input=given if op == "RestoreSlice" else given[:2])
    graph.node.add(name="save/Assign", op="Assign", input=["one", "save/restore"])
    graph.node.add(name="save/restore_all", op="NoOp", input=["^save/Assign"])
    expected = WHOLE[:2] if op == "RestoreSlice" else WHOLE
    assert values(variable_keys.find(meta, tensors).values) == {"one": expected.tolist()}


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


def test_what_the_writer_does_not_restore(tensors: Mapping[str, Any]) -> None:
    """The entry of its own name, else what another saver says."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "w", "own", "more")
    saver(meta.graph_def, [("own", "", "own")], name="usual")
    saver(meta.graph_def, [("v", "", "w"), ("v", "", "more")], name="other")
    meta.saver_def.restore_op_name = "usual/restore_all"
    restored = variable_keys.find(meta, tensors).values
    assert values(restored) == {"own": (WHOLE + 200).tolist(), "more": (WHOLE + 100).tolist()}


@pytest.mark.parametrize("count", [3, 5])
def test_the_note_on_other_keys_names_three(tmp_path: Path, count: int) -> None:
    names = [f"v{k}" for k in range(count)]
    stored = tensorbundle.tensors(save(tmp_path / "b", [(name, WHOLE + k) for k, name in enumerate(names)]))
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, *names)
    saver(meta.graph_def, [(key, "", name) for key, name in zip([*names[1:], names[0]], names, strict=True)])
    meta.saver_def.restore_op_name = "save/restore_all"
    (note,) = variable_keys.find(meta, stored).notes
    end = {3: "v1 from v2, v2 from v0", 5: "v1 from v2, v2 from v3 and 2 more"}
    assert note.endswith(f"names: v0 from v1, {end[count]}")


def test_only_groups_of_that_name_are_savers(tensors: Mapping[str, Any]) -> None:
    """And a list of savers may be damaged."""
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one", "restore_all")
    group = saver(meta.graph_def, [("v", "", "one")])
    group.name = "save/restore_some"
    meta.collection_def["savers"].bytes_list.value.append(b"\xff no proto")
    assert not variable_keys.find(meta, tensors).values
    group.name = "save/restore_all_1"
    assert [*variable_keys.find(meta, tensors).values] == ["one"]


@pytest.mark.parametrize("number", ["x", "1" * 5000])
def test_what_is_no_output_of_a_saver_has_no_key(tensors: Mapping[str, Any], number: str) -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    variables(meta.graph_def, "one")
    saver(meta.graph_def, [("w", "", "one")])
    for node in meta.graph_def.node:
        if node.op == "Assign":
            node.input[1] = f"save/RestoreV2:{number}"
    assert not variable_keys.find(meta, tensors).values


@pytest.mark.parametrize("op", ["Placeholder", ""])
def test_what_is_no_variable_has_no_value(tensors: Mapping[str, Any], op: str) -> None:
    """Fed, or not there at all."""
    meta = meta_graph_pb2.MetaGraphDef()
    if op:
        variables(meta.graph_def, "one", op=op)
    saver(meta.graph_def, [("w", "", "one")])
    assert not variable_keys.find(meta, tensors).values


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


# Names and types that make weights of what is none: no layer is seen in them, and nothing is counted up.

SHAPES = {"kernel": (4, 12), "recurrent_kernel": (3, 12), "bias": (24,)}
STEM = "rnn/multi_rnn_cell/cell_{}/cudnn_compatible_lstm_cell/"


def named_tensors(dtype: object, **others: object) -> dict[str, InMemory]:
    kinds = dict.fromkeys(SHAPES, dtype) | others
    return {name: InMemory(np.zeros(shape, kinds[name])) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_of_every_width_are_weights(dtype: object) -> None:
    assert is_float(np.dtype(dtype))
    found = keras.recognise_layer(named_tensors(dtype))
    assert found is not None
    assert (found.mode, found.units, found.inputs) == (Mode.LSTM, 3, 4)


@pytest.mark.parametrize("dtype", ["i4", "S4", "O", "?", "c8", "V2", [("a", "f4")]])
@pytest.mark.parametrize("name", SHAPES)
def test_nothing_else_is(dtype: object, name: str) -> None:
    assert not is_float(np.dtype(dtype))
    held = named_tensors(np.float32, **{name: dtype})
    assert keras.recognise_layer(held) is None
    entry = {"class_name": "CuDNNLSTM", "config": {"name": "lstm", "units": 3}}
    model = Architecture({"class_name": "Sequential", "config": [entry]}, {"lstm": tuple(held.items())})
    with pytest.raises(
        ReadError, match="layer lstm: expected the weights of 1 x lstm of 3 units, found the weights of other"
    ):
        cpu_layers.rewritten(Path("m.h5"), model)


def cell(number: object) -> dict[str, InMemory]:
    stem = STEM.format(number)
    return {f"{stem}kernel": InMemory(np.zeros((7, 12))), f"{stem}bias": InMemory(np.zeros(12))}


def test_a_layer_of_an_absurd_number_is_missed_not_counted_up_to() -> None:
    (found,) = contrib.find(Path("m"), cell(0) | cell(999_999_999))
    assert found.layers == 5
    with pytest.raises(ReadError, match=r"cell_1/cudnn_compatible_lstm_cell/kernel: .* found no such key"):
        found.decode(Mode.LSTM)
    (sound,) = contrib.find(Path("m"), cell(0) | cell(1))
    assert sound.layers == 2


def test_a_number_without_an_end_is_none() -> None:
    assert contrib.find(Path("m"), cell("1" * 5000)) == ()
    keys = {f"rnn/CudnnRNNParamsToCanonical:{'1' * 5000}": InMemory(np.zeros(3))}
    assert regions.find(Path("m"), keys) == ()


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        *(("r:tensors:0", ["a"]), ("r:tensors:1", ["b\ufffd"]), ("r:tensors:2", []), ("r:tensors:-1", [])),
        *(("r", []), ("r:tensors:" + "1" * 5000, []), ("n:output:0", [])),
    ],
)
def test_a_value_is_restored_by_a_key_that_is_there(given: str, keys: list[str]) -> None:
    function = function_pb2.FunctionDef()
    names = function.node_def.add(name="n", op="Const").attr["value"].tensor
    names.CopyFrom(tf.make_tensor_proto([b"a", b"b\xff"]))
    function.node_def.add(name="r", op="RestoreV2", input=["file", "n:output:0", "slices"])
    function.node_def.add(name="set", op="AssignVariableOp", input=["handle", given])
    assert [*variable_keys._list_assigned(function)] == [("handle", key) for key in keys]
    names.CopyFrom(tf.make_tensor_proto([1, 2]))
    assert [*variable_keys._list_assigned(function)] == []
    function.node_def[0].op = "Placeholder"
    assert [*variable_keys._list_assigned(function)] == []


def test_resource_variables_of_a_graph_imported_into_a_scope(tmp_path: Path) -> None:
    """Savers go by the nodes' names; `b` has two nodes, which are one variable."""
    handles = {"scope/a": "a", "scope/b": "b", "other/b": "b", "c": "kept", "d": "d"}
    with graphs.drawing() as graph:
        for name, shared in handles.items():
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=shared, name=name)
    keys = ("scope/a", "scope/b", "other/b", "kept", "d")
    values = {key: np.array([place, -place], np.float32) for place, key in enumerate(keys, 1)}
    model = read(graphs.saved(tmp_path, graph, values))
    named = {node.name: session.checkpoint_key(node) for node in model.graph.node}
    assert named == {**handles, "scope/a": "scope/a"}
    np.testing.assert_array_equal(model.variables[named["scope/a"]].read(), [1, -1])
