"""A SavedModel folder in the form of TensorFlow 1's builder, its proto written directly.

That form keeps the source's tensor names, loads in TensorFlow 1.15 and in TensorFlow 2, and has
the same bytes every time. Variables keep the kind they have in the graph (reference or resource).
Source: tensorflow v2.21.0 core/protobuf/saved_model.proto, python/saved_model/loader_impl.py,
python/training/saver.py (names of the restore subgraph).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.formats import PROVENANCE
from cudnn_convert.graph import build
from cudnn_convert.graph.index import reference, split, tensor
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import SERVING, Part, Signature, Tensor
from cudnn_convert.write import assets, saver
from cudnn_convert.write.variables import write_bundle


def write(
    folder: Path,
    graph: Any,
    parts: Sequence[Part],
    variables: Mapping[str, Tensor],
    *,
    provenance: str,
    initializers: Sequence[str] = (),
    files: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Writes `saved_model.pb`, `variables/`, `assets/` and `assets.extra/` into the existing empty `folder`.

    Each part is a signature of its own name, the only one `serving_default` too.
    `variables` holds the value of each variable op of `graph` by the name a checkpoint calls it.
    `initializers` are the ops of `graph` that fill its tables, `files` the assets by the tensors that hold
    their names.
    """
    meta = meta_graph_pb2.MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.meta_info_def.stripped_default_attrs = False
    signatures = [part.signature for part in parts]
    signature_ops = [split(name)[0] for s in signatures for name in [*s.inputs.values(), *s.outputs.values()]]
    meta.graph_def.CopyFrom(without_case_clashes(graph, keep=[*signature_ops, *initializers]))
    ops = variable_ops(meta.graph_def)
    if ops:
        saver.add_variables(meta, ops, variables)
    seen = build.imported(meta.graph_def)
    for part in parts:
        describe(meta.signature_def[part.name], part.signature, seen)
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    assets.add(meta, folder, initializers, files)
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


def describe(proto: Any, signature: Signature, seen: tf.Graph) -> None:
    """Fills a SignatureDef; dtypes and shapes are those of the graph as TensorFlow sees it."""
    proto.method_name = "tensorflow/serving/predict"
    for infos, names in ((proto.inputs, signature.inputs), (proto.outputs, signature.outputs)):
        for key, name in names.items():
            found = seen.get_tensor_by_name(name)
            infos[key].name = tensor(name)
            infos[key].dtype = found.dtype.base_dtype.as_datatype_enum
            infos[key].tensor_shape.CopyFrom(found.shape.as_proto())
