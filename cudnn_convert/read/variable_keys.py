"""Finds a variable's key in a checkpoint: partitions, restore ops.

Keys of a saver: a partitioned variable `w` is one entry `w` and the nodes `w/part_0`, `w/part_1`, ..., each a
slice of it. A saver of `{key: variable}` restores a variable from any key, such as that of its moving
average, while the checkpoint may also have an entry of the variable's name: the graph's restore op decides.
Source: tensorflow v1.15.0 core/framework/variable.proto SaveSliceInfoDef, core/protobuf/saver.proto,
python/training/saver.py `_AddRestoreOps`, `_AddShardedRestoreOps`, core/ops/io_ops.cc (RestoreV2: prefix,
names, slices; RestoreSlice before TensorFlow 0.12: pattern, name, slice).

The checkpoint of a TensorFlow 2 SavedModel names objects, not variables. A restore function assigns the
tensor of each key to its variable; that function is parsed, not run.
Source: tensorflow v2.21.0 python/saved_model/save.py `_AssetAndSaverGraph`,
python/checkpoint/functional_saver.py `_traced_restore`, python/training/saving/saveable_object_util.py.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import library, walk
from cudnn_convert.model import Tensor
from cudnn_convert.read import checks, tensorbundle
from cudnn_convert.text import list_some

_HANDS_ON: Final = frozenset({"Identity", "Reshape"})
_ALL: Final = re.compile(r"(.*/)?restore_all(_\d+)?")
#: Digits of an output number: no op has so many outputs.
_DIGITS: Final = 10

#: A key, and the slice of its entry as a saver spells it.
SlicedKey = tuple[str, str]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Values:
    """The values by variable.

    `keys` has the key of each variable that is stored under another name, `notes` the choices to print.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find(meta: Any, tensors: Mapping[str, tensorbundle.CheckpointTensor]) -> Values:
    """Find the variables of a MetaGraph with values from another key or a slice."""
    resolved: dict[str, Tensor] = {}
    places = _places(meta, tensors)
    for name, (key, slices) in places.items():
        resolved |= _value(name, key, slices, tensors)
    for name, key, slices in _list_declared(meta):
        if name not in tensors and name not in resolved and key in tensors:
            resolved |= _value(name, key, slices, tensors)
    keys = {name: key for name, (key, _) in places.items() if name in resolved and key != name}
    return Values(resolved, keys, tuple(_notes(keys, tensors)))


def _places(meta: Any, tensors: Mapping[str, tensorbundle.CheckpointTensor]) -> dict[str, SlicedKey]:
    """Map each variable to the key and slice restored by the graph's savers.

    The saver that wrote the MetaGraph decides. Without one, the savers whose keys are all in the checkpoint
    decide where they agree; else a variable has the entry of its own name.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    writer = meta.saver_def.restore_op_name
    chosen = _find_restored(nodes, writer)
    places = {name: origin for name, origin in chosen.items() if origin[0] in tensors}
    savers = [_find_restored(nodes, op) for op in _restore_ops(meta, nodes)]
    able = [saver for saver in savers if all(key in tensors for key, _ in saver.values())]
    several: dict[str, set[SlicedKey]] = {}
    for saver in able or savers:
        for name, origin in saver.items():
            if origin[0] in tensors:
                several.setdefault(name, set()).add(origin)
    for name, known in several.items():
        # Two savers that restore one variable from two keys do not say which one is meant.
        if len(known) == 1 and name not in places and (not chosen or name not in tensors):
            places[name] = next(iter(known))
    return places


def _notes(keys: Mapping[str, str], tensors: Mapping[str, tensorbundle.CheckpointTensor]) -> Iterator[str]:
    """Yield a note on variables with an own entry, but restored from another key."""
    both = [f"{name} from {key}" for name, key in sorted(keys.items()) if name in tensors]
    if both:
        listed = list_some(both, checks.SHOWN)
        yield f"values restored as the graph's saver does, not by the variables' own names: {listed}"


def _value(
    name: str, key: str, slices: str, tensors: Mapping[str, tensorbundle.CheckpointTensor]
) -> dict[str, Tensor]:
    try:
        return {name: tensors[key].part(slices)}
    except ValueError:  # no slice that a saver writes: the variable gets no value, and is refused for that
        return {}


def _list_declared(meta: Any) -> Iterator[tuple[str, str, str]]:
    """Yield `(op, key, slice)` of each declared variable.

    `key` is empty for unpartitioned variables.
    """
    from tensorflow.core.framework import variable_pb2

    for declaration in meta.collection_def["variables"].bytes_list.value:  # empty where there is no such list
        try:
            variable = variable_pb2.VariableDef.FromString(declaration)
        except DecodeError:
            continue
        info = variable.save_slice_info_def
        extents = ":".join(
            f"{offset},{width}" for offset, width in zip(info.var_offset, info.var_shape, strict=False)
        )
        whole = " ".join(map(str, info.full_shape))
        # The key of an unpartitioned variable is empty, and no tensor has an empty key.
        yield variable.variable_name.removesuffix(":0"), info.full_name, f"{whole} {extents}"


def _restore_ops(meta: Any, nodes: Mapping[str, Any]) -> list[str]:
    """List the savers' restore-all ops: from the MetaGraph, else from the graph."""
    from tensorflow.core.protobuf import saver_pb2

    listed = []
    for saver in meta.collection_def["savers"].bytes_list.value:
        with suppress(DecodeError):
            listed.append(saver_pb2.SaverDef.FromString(saver).restore_op_name)
    return listed or [name for name, node in nodes.items() if node.op == "NoOp" and _ALL.fullmatch(name)]


def _find_restored(nodes: Mapping[str, Any], op: str) -> dict[str, SlicedKey]:
    """Map variables to the key and slice assigned by a restore op.

    Only assignments without computation count.
    """
    restored: dict[str, SlicedKey] = {}

    def members(name: str) -> list[str]:
        is_group = name in nodes and nodes[name].op == "NoOp"
        return [member.removeprefix("^") for member in nodes[name].input] if is_group else []

    for name in walk([op.removesuffix(":0")], members):
        if name in nodes and nodes[name].op in ops.OVERWRITES:
            target, value, *_ = nodes[name].input
            variable, origin = nodes.get(_op(target)), _place(nodes, value)
            if variable is not None and variable.op in ops.VARIABLES and origin is not None:
                restored[variable.name] = origin
    return restored


def _place(nodes: Mapping[str, Any], name: str) -> SlicedKey | None:
    """Return the key and slice of a tensor read from a checkpoint.

    Returns None for any other tensor.
    """
    node, name = _follow(nodes, name, _HANDS_ON)
    if node is None or node.op not in ops.RESTORES:
        return None
    keys = checks.strings(nodes.get(_op(node.input[1])))
    slices = checks.strings(nodes.get(_op(node.input[2]))) if len(node.input) > 2 else [""] * len(keys)
    return _choose(list(zip(keys, slices, strict=False)), name.partition(":")[2] or "0")


def _choose(items: Sequence[_Item], number: str) -> _Item | None:
    """Return the item of a number in text.

    Returns None where the text is no number, or there is no such item.
    """
    is_number = number.isdecimal() and len(number) < _DIGITS
    return items[int(number)] if is_number and int(number) < len(items) else None


def _op(name: str) -> str:
    return name.partition(":")[0]


def name_handles(graph: Any, values: Collection[str]) -> None:
    """Name variables after the nodes, in place, if values have only the nodes' names.

    A graph that is imported into a scope keeps the shared names of its resource variables, and savers go by
    the nodes' names. Two nodes of one shared name are one variable, and stay so. Source: tensorflow v1.15.0
    python/framework/importer.py import_graph_def; python/training/saving/saveable_object_util.py.
    """
    handles = [node for node in graph.node if node.op == "VarHandleOp" and node.attr["shared_name"].s]
    shared = Counter(node.attr["shared_name"].s.decode() for node in handles)
    for node in handles:
        name = node.attr["shared_name"].s.decode()
        if name not in values and node.name in values and shared[name] == 1:
            node.attr["shared_name"].s = node.name.encode()


def find_restored_variables(meta: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a checkpoint's tensors by the VarHandleOp assigned in the restore function."""
    root = {node.name: node for node in meta.graph_def.node}
    functions = library(meta.graph_def)
    call = root.get(meta.saver_def.restore_op_name.removesuffix(":0"))
    function = functions.get(call.attr["f"].func.name) if call is not None else None
    if call is None or function is None:
        return {}
    arguments = zip((arg.name for arg in function.signature.input_arg), call.input, strict=False)
    handles = {name: given for name, given in arguments if given in root}
    return {
        handles[argument]: tensors[key]
        for argument, key in _list_assigned(function)
        if argument in handles and root[handles[argument]].op == "VarHandleOp" and key in tensors
    }


def _list_assigned(function: Any) -> Iterator[tuple[str, str]]:
    """Yield each assignment's variable argument and checkpoint key in a restore function."""
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        if node.op == "AssignVariableOp":
            source, name = _follow(nodes, node.input[1], {"Identity"})
            if source is not None and source.op == "RestoreV2":
                keys = checks.strings(nodes.get(_op(source.input[1])))
                key = _choose(keys, name.rpartition(":")[2])
                # Without a valid output number the variable gets no value, and is refused for that.
                if key is not None:
                    yield node.input[0], key


def _follow(nodes: Mapping[str, Any], name: str, kinds: Collection[str]) -> tuple[Any, str]:
    """Follow a tensor through nodes of some `kinds` to the producing node and output.

    The node is None for an argument of the function.
    """
    node = nodes.get(_op(name))
    while node is not None and node.op in kinds:
        name = node.input[0]
        node = nodes.get(_op(name))
    return node, name


def plain(graph: Any, assets: Collection[str]) -> Any:
    """Copy a TensorFlow 2 graph, with variables and assets named like TensorFlow 1.

    A variable's `shared_name` becomes its node's name, since two objects may share a name. A table's file
    name is read from the tensor in `assets`, not from a variable that holds it.
    """
    graph_of_step = deepcopy(graph)
    initial_values = {
        node.input[0]: _op(node.input[1])
        for node in graph_of_step.node
        if node.op == "AssignVariableOp" and f"{_op(node.input[1])}:0" in assets
    }
    reads = {node.name: node.input[0] for node in graph_of_step.node if node.op == "ReadVariableOp"}
    names = {name: initial_values[variable] for name, variable in reads.items() if variable in initial_values}
    for node in graph_of_step.node:
        if node.op == "VarHandleOp":
            node.attr["shared_name"].s = node.name.encode()
        node.input[:] = [names.get(name, name) for name in node.input]
    return graph_of_step
