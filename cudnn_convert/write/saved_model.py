"""A SavedModel folder in the form of TensorFlow 1's builder, its proto written directly.

That form keeps the source's tensor names, loads in TensorFlow 1.15 and in TensorFlow 2, and has
the same bytes every time. Variables keep the kind they have in the graph (reference or resource).
Source: tensorflow v2.21.0 core/protobuf/saved_model.proto, python/saved_model/loader_impl.py,
python/training/saver.py (names of the restore subgraph).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, saver_pb2

from cudnn_convert.graph import build
from cudnn_convert.graph.index import reference, split, tensor, unique
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import SERVING, Part, Signature, Tensor
from cudnn_convert.write.variables import write_bundle

PROVENANCE: Final = "cudnn_convert.json"


def write(
    folder: Path, graph: Any, parts: Sequence[Part], variables: Mapping[str, Tensor], *, provenance: str
) -> None:
    """Writes `saved_model.pb`, `variables/` and `assets.extra/` into the existing empty `folder`.

    Each part is a signature of its own name, the only one `serving_default` too.
    `variables` holds the value of each variable op of `graph` by the name a checkpoint calls it.
    """
    meta = meta_graph_pb2.MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.meta_info_def.stripped_default_attrs = False
    signatures = [part.signature for part in parts]
    signature_ops = [split(name)[0] for s in signatures for name in [*s.inputs.values(), *s.outputs.values()]]
    meta.graph_def.CopyFrom(without_case_clashes(graph, keep=signature_ops))
    ops = variable_ops(meta.graph_def)
    if ops:
        _add_variables(meta, ops, variables)
    seen = build.imported(meta.graph_def)
    for part in parts:
        _describe(meta.signature_def[part.name], part.signature, seen)
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    if ops:
        (folder / "variables").mkdir()
        write_bundle(
            folder / "variables" / "variables",
            {checkpoint_key(node): variables[checkpoint_key(node)] for node in ops},
        )
    (folder / "assets.extra").mkdir()
    (folder / "assets.extra" / PROVENANCE).write_text(provenance, encoding="utf-8")


def without_case_clashes(graph: Any, *, keep: Iterable[str]) -> Any:
    """A copy in which no two op names differ by case alone; the ops in `keep` are the last to be renamed.

    tensorflow v2.21.0 python/framework/ops.py `Graph.unique_name` ignores case: its loader would give one of
    the two another name and then not find it.
    """
    made = build.placed(graph)
    first = set(keep)
    taken: set[str] = set()
    renamed: dict[str, str] = {}
    for node in sorted(made.node, key=lambda node: node.name not in first):
        name, count = node.name, 0
        while name.lower() in taken:
            count += 1
            name = f"{node.name}_{count}"
        taken.add(name.lower())
        if name != node.name:
            renamed[node.name] = name
    for node in made.node:
        node.name = renamed.get(node.name, node.name)
        for position, found in enumerate(node.input):
            node.input[position] = _renamed(found, renamed)
    return made


def _renamed(found: str, renamed: Mapping[str, str]) -> str:
    op, k = split(found)
    if op not in renamed:
        return found
    return f"^{renamed[op]}" if k < 0 else reference(f"{renamed[op]}:{k}")


def _add_variables(meta: Any, ops: list[Any], variables: Mapping[str, Tensor]) -> None:
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


def _describe(proto: Any, signature: Signature, seen: tf.Graph) -> None:
    proto.method_name = "tensorflow/serving/predict"
    for infos, names in ((proto.inputs, signature.inputs), (proto.outputs, signature.outputs)):
        for key, name in names.items():
            found = seen.get_tensor_by_name(name)
            infos[key].name = tensor(name)
            infos[key].dtype = found.dtype.base_dtype.as_datatype_enum
            infos[key].tensor_shape.CopyFrom(found.shape.as_proto())
