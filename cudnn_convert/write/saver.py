"""The nodes that save and restore a graph's variables, and the protos that tell a loader of them.

Source: tensorflow v2.21.0 python/training/saver.py (names of the restore subgraph),
core/protobuf/saver.proto, core/framework/variable.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import saver_pb2

from cudnn_convert.graph import build
from cudnn_convert.graph.index import unique
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import Tensor


def add_variables(meta: Any, ops: list[Any], variables: Mapping[str, Tensor]) -> None:
    """The nodes that save and restore, and the protos that tell a loader of them."""
    scope = unique("save", {node.name.partition("/")[0] for node in meta.graph_def.node})
    dtypes = [tf.as_dtype(variables[checkpoint_key(node)].dtype) for node in ops]
    prefix = build.string_constant(f"{scope}/Const", ["model"], scalar=True)
    added = [prefix, *_restore(ops, dtypes, scope), *_save(ops, dtypes, scope)]
    meta.graph_def.node.extend(added)
    meta.saver_def.CopyFrom(_saver(scope))
    definitions = [_definition(node, scope).SerializeToString(deterministic=True) for node in ops]
    for collection in ("variables", "trainable_variables"):
        meta.collection_def[collection].bytes_list.value.extend(definitions)


def _restore(ops: list[Any], dtypes: list[tf.DType], scope: str) -> Iterator[Any]:
    restored = []
    for node, dtype in zip(ops, dtypes, strict=True):
        stem = f"{scope}/{node.name}"
        names = build.string_constant(f"{stem}/tensor_names", [checkpoint_key(node)])
        slices = build.string_constant(f"{stem}/shape_and_slices", [""])
        inputs = [f"{scope}/Const", names.name, slices.name]
        read = build.node(f"{stem}/RestoreV2", "RestoreV2", inputs, dtypes=[dtype])
        if node.op == "VarHandleOp":
            assign = build.node(f"{stem}/Assign", "AssignVariableOp", [node.name, read.name], dtype=dtype)
        else:
            assign = build.node(
                f"{stem}/Assign", "Assign", [node.name, read.name], T=dtype, validate_shape=False
            )
        restored.append(f"^{assign.name}")
        yield from (names, slices, read, assign)
    yield build.node(f"{scope}/restore_all", "NoOp", restored)


def _save(ops: list[Any], dtypes: list[tf.DType], scope: str) -> Iterator[Any]:
    names = build.string_constant(f"{scope}/tensor_names", [checkpoint_key(node) for node in ops])
    slices = build.string_constant(f"{scope}/shape_and_slices", ["" for _ in ops])
    reads = [
        build.node(f"{scope}/{node.name}/read", "ReadVariableOp", [node.name], dtype=dtype)
        if node.op == "VarHandleOp"
        else build.identity(f"{scope}/{node.name}/read", node.name, dtype.as_datatype_enum)
        for node, dtype in zip(ops, dtypes, strict=True)
    ]
    prefix = f"{scope}/Const"
    inputs = [prefix, names.name, slices.name, *(read.name for read in reads)]
    save = build.node(f"{scope}/SaveV2", "SaveV2", inputs, dtypes=dtypes)
    yield from (names, slices, *reads, save)
    string = tf.string.as_datatype_enum
    yield build.identity(f"{scope}/control_dependency", prefix, string, control=[f"^{save.name}"])


def _saver(scope: str) -> Any:
    return saver_pb2.SaverDef(
        filename_tensor_name=f"{scope}/Const:0",
        save_tensor_name=f"{scope}/control_dependency:0",
        restore_op_name=f"{scope}/restore_all",
        max_to_keep=5,
        sharded=False,
        version=saver_pb2.SaverDef.V2,
    )


def _definition(node: Any, scope: str) -> Any:
    """A VariableDef; the variable's initial value is what the checkpoint beside it holds."""
    stem = f"{scope}/{node.name}"
    return variable_pb2.VariableDef(
        variable_name=f"{node.name}:0",
        initializer_name=f"{stem}/Assign",
        initial_value_name=f"{stem}/RestoreV2:0",
        snapshot_name=f"{stem}/read:0",
        is_resource=node.op == "VarHandleOp",
        trainable=True,
    )
