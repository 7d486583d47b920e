"""Variables that a checkpoint keeps under another key than the graph's own name for them.

A partitioned variable `w` is one entry `w` and the nodes `w/part_0`, `w/part_1`, ..., each a slice of it. A
saver of `{key: variable}` writes a variable under any key. Both stand in the graph: in the `variables`
collection and in the inputs of the op that saves.
Source: tensorflow v1.15.0 core/framework/variable.proto SaveSliceInfoDef, python/training/saver.py
`_AddShardedSaveOps`, core/ops/io_ops.cc (SaveV2, SaveSlices: names, slices, then the tensors).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from cudnn_convert.model import Tensor
from cudnn_convert.read.bundle import CheckpointTensor

_VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
_READS: Final = frozenset({"Identity", "ReadVariableOp"})
_SAVES: Final = frozenset({"SaveV2", "SaveSlices"})


def find(meta: Any, tensors: Mapping[str, CheckpointTensor]) -> dict[str, Tensor]:
    """The values, by op name, of the variables of a MetaGraph that are no keys of `tensors` themselves."""
    found: dict[str, Tensor] = {}
    for name, places in _saved(meta.graph_def).items():
        known = {place for place in places if place[0] in tensors}
        # Two savers that call one variable by two keys say nothing of which is meant.
        if name not in tensors and len(known) == 1:
            found |= _value(name, *known.pop(), tensors)
    for name, key, slices in _declared(meta):
        if name not in tensors and key in tensors:
            found |= _value(name, key, slices, tensors)
    return found


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


def _saved(graph: Any) -> dict[str, set[tuple[str, str]]]:
    """`(key, slice)` by the op of each variable that a save op of the graph writes."""
    nodes = {node.name: node for node in graph.node}
    found: dict[str, set[tuple[str, str]]] = {}
    for node in graph.node:
        if node.op in _SAVES:
            _, names, slices, *values = (name for name in node.input if not name.startswith("^"))
            keys, parts = _words(nodes.get(names)), _words(nodes.get(slices))
            for key, part, value in zip(keys, parts, values, strict=False):
                variable = _variable(nodes, value)
                if variable is not None:
                    found.setdefault(variable, set()).add((key, part))
    return found


def _words(node: Any) -> list[str]:
    if node is None or node.op != "Const":
        return []
    import tensorflow as tf

    return [word.decode() for word in tf.make_ndarray(node.attr["value"].tensor).ravel()]


def _variable(nodes: Mapping[str, Any], name: str) -> str | None:
    """The variable that a saved tensor is a plain read of."""
    while (node := nodes.get(name.removesuffix(":0"))) is not None and node.op in _READS:
        name = node.input[0]
    return str(node.name) if node is not None and node.op in _VARIABLES else None
