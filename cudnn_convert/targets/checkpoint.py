"""Writes variable bundles, and TensorFlow 1 checkpoints with their MetaGraph.

TensorFlow's ops write `<prefix>.index` and `<prefix>.data-00000-of-00001`. A large bundle has several data
files, written in turn, so that the content of at most three is in memory.
Source: tensorflow v2.21.0 core/kernels/save_restore_v2_ops.cc (MergeV2Checkpoints moves the data files and
deletes the folder that they were in), core/util/tensor_bundle/tensor_bundle.cc MergeBundles.

`add_variables` adds the nodes that save and restore variables, and the protos that describe them to a loader.
Source: tensorflow v2.21.0 python/training/saver.py (names of the restore subgraph),
core/protobuf/saver.proto, core/framework/variable.proto.

A checkpoint is `model.ckpt.index`, `.data-*`, the MetaGraph `.meta`, and a `checkpoint` file.
`tf.train.import_meta_graph` and the saver that it returns restore it in TensorFlow 1.15 and in TensorFlow 2
(`tf.compat.v1`); a saver of another graph restores the variables of equal names.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/framework/importer.py (what an older
TensorFlow refuses), core/public/version.h (TF_GRAPH_DEF_VERSION), python/training/checkpoint_state.proto.

`--rename OLD=NEW` changes the keys of variables, in the checkpoint and in its graph.
"""

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saver_pb2

from cudnn_convert import context
from cudnn_convert.errors import UsageError
from cudnn_convert.graph import index, node_defs, session
from cudnn_convert.graph.index import AnyGraph, rename_reference
from cudnn_convert.graph.session import checkpoint_key, variable_ops
from cudnn_convert.lower.tensorflow import tf1_cells
from cudnn_convert.model import SERVING, Array, Mode, Part, Tensor
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.targets import saved_model
from cudnn_convert.weights.lazy import prefetch, size

#: Bytes from which a data file gets no further tensor.
_SHARD: Final = 1 << 28
#: Data files prefetched while one is written: a pseudo-layer's two matrices are made together.
_AHEAD: Final = 2


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> None:
    """Write each tensor under its key; at least one, since a bundle cannot be empty.

    Each is read once, in the order of the keys. Raises OSError, and what reading them raises.
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
    """The sorted keys, grouped by data file."""
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
    with tf.device("/CPU:0"):
        arguments = {
            "tensor_names": tf.constant(names, tf.string),
            "shape_and_slices": tf.constant([""] * len(names), tf.string),
            "tensors": tensors,
        }
        with _as_os_error():
            tf.raw_ops.SaveV2(prefix=str(prefix), **arguments)


def _tensor(array: Array) -> Any:
    """A tensor that shares the array's memory where possible."""
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
    """Add the save and restore nodes of variables to `meta`, and their protos."""
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
    """A VariableDef whose initial value is restored from the checkpoint."""
    stem = f"{scope}/{node.name}"
    return variable_pb2.VariableDef(
        variable_name=f"{node.name}:0",
        initializer_name=f"{stem}/Assign",
        initial_value_name=f"{stem}/RestoreV2:0",
        snapshot_name=f"{stem}/read:0",
        is_resource=node.op == "VarHandleOp",
        trainable=True,
    )


#: The producer version of TensorFlow 1.15.
_PRODUCER: Final = 134


def target_notes(plan: Plan, options: Options) -> tuple[str, ...]:
    """Notes on dropped optimizer slots. Raises UsageError for `--cell` without an LSTM."""
    if options.cell != "compatible" and all(r.sizes.mode is not Mode.LSTM for r in plan.recurrences):
        raise UsageError(f"--cell {options.cell}: expected a model with an LSTM, found none; leave it out")
    slots = _slots(plan)
    if options.slots:
        lost = ", ".join(slots.lost)
        return (f"optimizer slots dropped, for their variables are packed anew: {lost}",) if lost else ()
    return (f"{len(slots)} optimizer slots dropped; keep them with --slots",) if len(slots) else ()


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write the files of the prefix `path`; the caller writes the provenance beside them."""
    del provenance
    cells = tf1_cells.cells(
        plan.model, plan.graph, plan.recurrences, cell=options.cell, lowering=options.lowering
    )
    others = tf1_cells.keep_slots(_slots(plan), plan.recurrences, cells) if options.slots else {}
    lowered = saved_model.lower_plan(plan, options, cells.form)
    write(path, lowered.graph, plan.parts, lowered.variables, others=others, renames=options.rename)
    return ()


def _slots(plan: Plan) -> tf1_cells.Slots:
    return tf1_cells.find(plan.model, plan.graph, plan.recurrences, [*plan.signature.outputs.values()])


def write(
    prefix: Path,
    graph: AnyGraph,
    parts: Sequence[Part],
    variables: Mapping[str, Tensor],
    *,
    others: Mapping[str, Tensor] = MappingProxyType({}),
    renames: Sequence[str] = (),
) -> None:
    """Write the files of `prefix` into its folder, which exists.

    `variables` has the value of each variable op of `graph` by key, `others` further tensors of the
    checkpoint, `renames` the values of `--rename`. Raises UsageError where those do not fit.
    """
    keys = [checkpoint_key(node) for node in variable_ops(graph)]
    renamed = rename_keys({**dict.fromkeys(keys), **others}, renames)
    tensors = [
        name
        for part in parts
        for names in (part.signature.inputs, part.signature.outputs)
        for name in names.values()
    ]
    graph = rename_variables(graph, renamed, outputs=tensors)
    values = {renamed[key]: variables[key] for key in keys}
    Path(f"{prefix}.meta").write_bytes(
        _meta_graph(graph, parts, values).SerializeToString(deterministic=True)
    )
    write_bundle(prefix, values | {renamed[key]: tensor for key, tensor in others.items()})
    lines = [
        f'{field}: "{prefix.name}"\n' for field in ("model_checkpoint_path", "all_model_checkpoint_paths")
    ]
    (prefix.parent / "checkpoint").write_text("".join(lines), encoding="utf-8")


def _meta_graph(graph: AnyGraph, parts: Sequence[Part], values: Mapping[str, Tensor]) -> Any:
    meta = meta_graph_pb2.MetaGraphDef()
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.meta_info_def.stripped_default_attrs = True
    # Functions that nothing calls may have unknown ops.
    node_defs.strip_devices(node_defs.drop_uncalled_functions(node_defs.Graph.of(graph)), meta.graph_def)
    meta.graph_def.versions.producer = min(graph.versions.producer, _PRODUCER)
    add_variables(meta, variable_ops(meta.graph_def), values)
    tf_private.strip_defaults(meta)
    seen = node_defs.import_graph(meta.graph_def)
    for part in parts:
        saved_model.describe(meta.signature_def[part.name], part.signature, seen)
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    return meta


#: tensorflow v1.15.0 python/framework/ops.py _VALID_OP_NAME_REGEX: a variable is an op.
_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def rename_keys(names: Iterable[str], settings: Sequence[str]) -> dict[str, str]:
    """Apply `--rename` settings in order: a map of each name to its new one.

    OLD is a name or a scope of one; NEW "" drops OLD. Raises UsageError where OLD does not occur, NEW is no
    variable name, or two names become equal.
    """
    keys = {name: name for name in names}
    for setting in settings:
        old, equals, new = setting.partition("=")
        old, new = old.strip("/"), new.strip("/")
        if not equals or not old:
            raise UsageError(f"--rename: expected OLD=NEW, found {setting!r}")
        moved = {name: _move(now, old, new) for name, now in keys.items()}
        if not any(_inside(now, old) for now in keys.values()):
            what = f"expected OLD to be a key or a scope, found no {old} among {_some(keys)}"
            raise UsageError(f"--rename: {what}")
        keys = moved
    by_new: dict[str, str] = {}
    for name, now in keys.items():
        if not _NAME.fullmatch(now):
            raise UsageError(f"--rename: expected the name of a variable for {name}, found {now!r}")
        if now in by_new:
            raise UsageError(f"--rename: expected keys that differ, found {now} for {by_new[now]} and {name}")
        by_new[now] = name
    return keys


def _inside(name: str, old: str) -> bool:
    return name == old or name.startswith(f"{old}/")


def _move(name: str, old: str, new: str) -> str:
    return f"{new}{name.removeprefix(old)}".strip("/") if _inside(name, old) else name


def _some(renamed: Mapping[str, str]) -> str:
    names = sorted(renamed.values())
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def rename_variables(graph: AnyGraph, renamed: Mapping[str, str], *, outputs: Collection[str]) -> Any:
    """A copy of `graph` whose variables have the keys and op names in `renamed`.

    A variable that is one of the tensors `outputs` also stays fetchable under its old name. Raises UsageError
    where another op has the new name.
    """
    names_by_op = {node.name: renamed[checkpoint_key(node)] for node in variable_ops(graph)}
    ops = {
        node.name: names_by_op[node.name] for node in variable_ops(graph) if node.name == checkpoint_key(node)
    }
    ops = {old: new for old, new in ops.items() if old != new}
    fetched = {old for old in ops if f"{old}:0" in outputs}
    taken = {node.name for node in graph.node} - set(ops) | fetched
    for old, new in ops.items():
        if new in taken:
            raise UsageError(f"--rename: expected a free name for {old}, found {new}, an op of the graph")
    nodes = []
    for node in node_defs.strip_devices(graph).node:
        old = node.name
        node.name = ops.get(old, old)
        for position, name in enumerate(node.input):
            node.input[position] = rename_reference(name, ops)
        if old in names_by_op and node.attr["shared_name"].s:
            node.attr["shared_name"].s = names_by_op[old].encode()
        nodes.append(node)
        if old in fetched:
            nodes.append(node_defs.identity(old, node.name, node.attr["dtype"].type))
    return node_defs.Graph(graph, nodes)
