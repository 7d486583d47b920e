"""Variables that a checkpoint keeps under another key than the graph's own name for them.

A partitioned variable `w` is one entry `w` and the nodes `w/part_0`, `w/part_1`, ..., each a slice of it. A
saver of `{key: variable}` restores a variable from any key, such as that of its moving average, and a
checkpoint may hold an entry of the variable's own name beside it: the graph's restore op says which is meant.
Source: tensorflow v1.15.0 core/framework/variable.proto SaveSliceInfoDef, core/protobuf/saver.proto,
python/training/saver.py `_AddRestoreOps`, `_AddShardedRestoreOps`, core/ops/io_ops.cc (RestoreV2: prefix,
names, slices; RestoreSlice before TensorFlow 0.12: pattern, name, slice).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from cudnn_convert.model import Tensor
from cudnn_convert.read import graphs
from cudnn_convert.read.bundle import CheckpointTensor

_VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
_RESTORES: Final = frozenset({"RestoreV2", "RestoreSlice", "Restore"})
_ASSIGNS: Final = frozenset({"Assign", "AssignVariableOp"})
_HANDS_ON: Final = frozenset({"Identity", "Reshape"})
_ALL: Final = re.compile(r"(.*/)?restore_all(_\d+)?")
_SHOWN: Final = 3
#: Of a number of an output: no op has so many.
_DIGITS: Final = 10

#: A key, and the slice of its entry in a saver's words.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Values:
    """The values by variable; `keys` has the keys of those that have not their own, `notes` the choices."""

    values: dict[str, Tensor] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find(meta: Any, tensors: Mapping[str, CheckpointTensor]) -> Values:
    """The variables of a MetaGraph whose values are not simply the entries of `tensors` of their names."""
    found: dict[str, Tensor] = {}
    places = _places(meta, tensors)
    for name, (key, slices) in places.items():
        found |= _value(name, key, slices, tensors)
    for name, key, slices in _declared(meta):
        if name not in tensors and name not in found and key in tensors:
            found |= _value(name, key, slices, tensors)
    keys = {name: key for name, (key, _) in places.items() if name in found and key != name}
    return Values(found, keys, tuple(_notes(keys, tensors)))


def _places(meta: Any, tensors: Mapping[str, CheckpointTensor]) -> dict[str, Place]:
    """Where the value of each variable is that a restore op of the graph sets from what is there.

    The saver that wrote the MetaGraph decides. Where it is not named, savers decide that can restore the
    checkpoint, as far as they agree; else a variable has the entry of its own name.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    writer = meta.saver_def.restore_op_name
    chosen = _restored(nodes, writer) if writer else {}
    found = {name: place for name, place in chosen.items() if place[0] in tensors}
    savers = [_restored(nodes, op) for op in _restore_ops(meta, nodes)]
    able = [saver for saver in savers if all(key in tensors for key, _ in saver.values())]
    several: dict[str, set[Place]] = {}
    for saver in able or savers:
        for name, place in saver.items():
            if place[0] in tensors:
                several.setdefault(name, set()).add(place)
    for name, known in several.items():
        # Two savers that call one variable by two keys say nothing of which is meant.
        if len(known) == 1 and name not in found and (not chosen or name not in tensors):
            found[name] = next(iter(known))
    return found


def _notes(keys: Mapping[str, str], tensors: Mapping[str, CheckpointTensor]) -> Iterator[str]:
    """Of which variables the checkpoint has an entry of their own name too."""
    both = [f"{name} from {key}" for name, key in sorted(keys.items()) if name in tensors]
    if both:
        more = f" and {len(both) - _SHOWN} more" if len(both) > _SHOWN else ""
        listed = f"{', '.join(both[:_SHOWN])}{more}"
        yield f"values restored as the graph's saver does, not by the variables' own names: {listed}"


def _value(name: str, key: str, slices: str, tensors: Mapping[str, CheckpointTensor]) -> dict[str, Tensor]:
    try:
        return {name: tensors[key].part(slices)}
    except ValueError:  # words that no saver writes: the variable has no value then, and is refused for that
        return {}


def _declared(meta: Any) -> Iterator[tuple[str, str, str]]:
    """`(op, key, slice)` of each variable, which may say what part of another it is."""
    from tensorflow.core.framework import variable_pb2

    for held in meta.collection_def["variables"].bytes_list.value:  # none where there is no such list
        try:
            variable = variable_pb2.VariableDef.FromString(held)
        except DecodeError:
            continue
        info = variable.save_slice_info_def
        extents = ":".join(
            f"{offset},{width}" for offset, width in zip(info.var_offset, info.var_shape, strict=False)
        )
        whole = " ".join(map(str, info.full_shape))
        # Of a variable that is no part, the key is empty, which no tensor has.
        yield variable.variable_name.removesuffix(":0"), info.full_name, f"{whole} {extents}"


def _restore_ops(meta: Any, nodes: Mapping[str, Any]) -> list[str]:
    """The ops by which savers restore everything: those that the MetaGraph lists, else all that are there."""
    from tensorflow.core.protobuf import saver_pb2

    listed = []
    for held in meta.collection_def["savers"].bytes_list.value:
        try:
            listed.append(saver_pb2.SaverDef.FromString(held).restore_op_name)
        except DecodeError:
            continue
    return listed or [name for name, node in nodes.items() if node.op == "NoOp" and _ALL.fullmatch(name)]


def _restored(nodes: Mapping[str, Any], op: str) -> dict[str, Place]:
    """The place of each variable that a restore op has assigned to as it is stored."""
    found: dict[str, Place] = {}
    seen: set[str] = set()
    todo = [op.removesuffix(":0")]
    while todo:
        node = nodes.get(todo.pop())
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op in _ASSIGNS:
            variable, place = _variable(nodes, node.input[0]), _place(nodes, node.input[1])
            if variable is not None and place is not None:
                found[variable] = place
        elif node.op == "NoOp":
            todo += [name.removeprefix("^") for name in node.input]
    return found


def _place(nodes: Mapping[str, Any], name: str) -> Place | None:
    """What of a checkpoint an op reads, None for what is computed."""
    node = nodes.get(_op(name))
    while node is not None and node.op in _HANDS_ON:
        name = node.input[0]
        node = nodes.get(_op(name))
    if node is None or node.op not in _RESTORES:
        return None
    keys = graphs.strings(nodes.get(_op(node.input[1])))
    slices = graphs.strings(nodes.get(_op(node.input[2]))) if len(node.input) > 2 else [""] * len(keys)
    number = name.partition(":")[2] or "0"
    pairs = list(zip(keys, slices, strict=False))
    is_number = number.isdecimal() and len(number) < _DIGITS
    return pairs[int(number)] if is_number and int(number) < len(pairs) else None


def _variable(nodes: Mapping[str, Any], name: str) -> str | None:
    """The name of the variable that an assignment writes to."""
    node = nodes.get(_op(name))
    return str(node.name) if node is not None and node.op in _VARIABLES else None


def _op(name: str) -> str:
    return name.partition(":")[0]
