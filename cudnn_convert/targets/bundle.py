"""Writes variable bundles, and the ops for restoring variables.

TensorFlow's ops write `<prefix>.index` and `<prefix>.data-00000-of-00001`. A large bundle has several data
files, written in turn, so that the content of at most three is in memory.
Source: tensorflow v2.21.0 core/kernels/save_restore_v2_ops.cc (MergeV2Checkpoints moves the data files and
deletes the folder that they were in), core/util/tensor_bundle/tensor_bundle.cc MergeBundles.

`add_variables` adds the nodes that save and restore variables, and the protos that describe them to a loader.
Source: tensorflow v2.21.0 python/training/saver.py (names of the restore subgraph),
core/protobuf/saver.proto, core/framework/variable.proto.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import saver_pb2

from cudnn_convert import context
from cudnn_convert.graph import index, node_defs, session
from cudnn_convert.model import Array, Tensor
from cudnn_convert.private import tf_private
from cudnn_convert.weights.buffers import prefetch
from cudnn_convert.weights.lazy import size

#: Bytes from which a data file gets no further tensor.
_SHARD: Final = 1 << 28
#: Data files prefetched while one is written: a pseudo-layer's two matrices are made together.
_AHEAD: Final = 2


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> None:
    """Write each tensor under the tensor's key.

    At least one, since a bundle cannot be empty. Each is read once, in the order of the keys. Raises OSError,
    and what reading them raises.
    """
    shards = [*_shards(variables)]
    written, total = 0, sum(map(size, variables.values()))
    context.report_progress("writing", written, total)
    if len(shards) == 1:
        _save_tensors(prefix, shards[0], _read(shards[0], variables))
        return
    # A separate folder, as Saver uses: merging deletes it.
    parts = [f"{prefix}_temp/part-{number:05d}-of-{len(shards):05d}" for number in range(len(shards))]
    Path(f"{prefix}_temp").mkdir()
    read = prefetch((_read(names, variables) for names in shards), _AHEAD)
    for part, names, tensors in zip(parts, shards, read, strict=True):
        _save_tensors(Path(part), names, tensors)
        written += sum(size(variables[name]) for name in names)
        context.report_progress("writing", written, total)
    with _as_os_error():
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))


def _shards(variables: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """Yield the sorted keys, grouped by data file."""
    names: list[str] = []
    bytes_taken = 0
    for name in sorted(variables):
        if bytes_taken >= _SHARD:
            yield names
            names, bytes_taken = [], 0
        names.append(name)
        bytes_taken += size(variables[name])
    yield names


def _read(names: Sequence[str], variables: Mapping[str, Tensor]) -> list[Any]:
    with tf.device("/CPU:0"):
        return [_tensor(variables[name].read()) for name in names]


def _save_tensors(prefix: Path, names: Sequence[str], tensors: list[Any]) -> None:
    whole = [""] * len(names)
    with tf.device("/CPU:0"), _as_os_error():
        tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=whole, tensors=tensors)


def _tensor(array: Array) -> Any:
    """Return a tensor with the array's memory, shared where possible."""
    if array.dtype.kind == "O":
        return tf.convert_to_tensor(array)
    return tf_private.share_memory(array, tf.as_dtype(array.dtype))


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as cause:  # TensorFlow's form of the system's error
        reason = cause.message.partition(" [Op:")[0].rpartition("; ")[2]
        raise OSError(errno.EIO, reason) from cause


def add_variables(meta: Any, ops: list[Any], variables: Mapping[str, Tensor]) -> None:
    """Add the save and restore nodes of variables, and the protos, to `meta`."""
    scope = index.unique("save", {node.name.partition("/")[0] for node in meta.graph_def.node})
    dtypes = [tf.as_dtype(variables[session.checkpoint_key(node)].dtype) for node in ops]
    prefix = node_defs.string_constant(f"{scope}/Const", ["model"], scalar=True)
    added = [prefix, *_restore(ops, dtypes, scope), *_save_nodes(ops, dtypes, scope)]
    meta.graph_def.node.extend(added)
    meta.saver_def.CopyFrom(_saver(scope))
    definitions = [_definition(node, scope).SerializeToString(deterministic=True) for node in ops]
    for collection in ("variables", "trainable_variables"):
        meta.collection_def[collection].bytes_list.value.extend(definitions)


def _restore(ops: list[Any], dtypes: list[tf.DType], scope: str) -> Iterator[Any]:
    restored = []
    for node, dtype in zip(ops, dtypes, strict=True):
        stem = f"{scope}/{node.name}"
        names = node_defs.string_constant(f"{stem}/tensor_names", [session.checkpoint_key(node)])
        slices = node_defs.string_constant(f"{stem}/shape_and_slices", [""])
        inputs = [f"{scope}/Const", names.name, slices.name]
        read = node_defs.node(f"{stem}/RestoreV2", "RestoreV2", inputs, dtypes=[dtype])
        if node.op == "VarHandleOp":
            assign = node_defs.node(f"{stem}/Assign", "AssignVariableOp", [node.name, read.name], dtype=dtype)
        else:
            assign = node_defs.node(
                f"{stem}/Assign", "Assign", [node.name, read.name], T=dtype, validate_shape=False
            )
        restored.append(f"^{assign.name}")
        yield from (names, slices, read, assign)
    yield node_defs.node(f"{scope}/restore_all", "NoOp", restored)


def _save_nodes(ops: list[Any], dtypes: list[tf.DType], scope: str) -> Iterator[Any]:
    names = node_defs.string_constant(f"{scope}/tensor_names", [session.checkpoint_key(node) for node in ops])
    slices = node_defs.string_constant(f"{scope}/shape_and_slices", ["" for _ in ops])
    reads = [
        node_defs.node(f"{scope}/{node.name}/read", "ReadVariableOp", [node.name], dtype=dtype)
        if node.op == "VarHandleOp"
        else node_defs.identity(f"{scope}/{node.name}/read", node.name, dtype.as_datatype_enum)
        for node, dtype in zip(ops, dtypes, strict=True)
    ]
    prefix = f"{scope}/Const"
    inputs = [prefix, names.name, slices.name, *(read.name for read in reads)]
    save = node_defs.node(f"{scope}/SaveV2", "SaveV2", inputs, dtypes=dtypes)
    yield from (names, slices, *reads, save)
    string = tf.string.as_datatype_enum
    yield node_defs.identity(f"{scope}/control_dependency", prefix, string, control=[f"^{save.name}"])


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
    """Return a VariableDef with an initial value restored from the checkpoint."""
    stem = f"{scope}/{node.name}"
    return variable_pb2.VariableDef(
        variable_name=f"{node.name}:0",
        initializer_name=f"{stem}/Assign",
        initial_value_name=f"{stem}/RestoreV2:0",
        snapshot_name=f"{stem}/read:0",
        is_resource=node.op == "VarHandleOp",
        trainable=True,
    )
