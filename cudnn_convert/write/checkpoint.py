"""A TensorFlow 1 checkpoint: `model.ckpt.index`, `.data-*`, its MetaGraph `.meta`, and a `checkpoint` file.

`tf.train.import_meta_graph` and the saver it gives restore it in TensorFlow 1.15 and in TensorFlow 2
(`tf.compat.v1`); a saver of any other graph whose variables have the same names restores what it needs.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/framework/importer.py (what an older
TensorFlow refuses), core/public/version.h (TF_GRAPH_DEF_VERSION), python/training/checkpoint_state.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import meta_graph

from cudnn_convert.graph import build
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import SERVING, Part, Tensor
from cudnn_convert.write import rename, saver
from cudnn_convert.write.saved_model import describe
from cudnn_convert.write.variables import write_bundle

#: The producer version of TensorFlow 1.15.
_PRODUCER: Final = 134


def write(
    prefix: Path,
    graph: Any,
    parts: Sequence[Part],
    variables: Mapping[str, Tensor],
    *,
    others: Mapping[str, Tensor] = MappingProxyType({}),
    renames: Sequence[str] = (),
) -> None:
    """Writes the files of `prefix` beside each other; the folder exists.

    `variables` holds the value of each variable op of `graph` by its key, `others` what only lies in the
    checkpoint, `renames` the values of `--rename`. Raises UsageError where those do not fit.
    """
    keys = [checkpoint_key(node) for node in variable_ops(graph)]
    renamed = rename.keys({**dict.fromkeys(keys), **others}, renames)
    tensors = [
        name
        for part in parts
        for names in (part.signature.inputs, part.signature.outputs)
        for name in names.values()
    ]
    graph = rename.variables(graph, renamed, outputs=tensors)
    values = {renamed[key]: variables[key] for key in keys}
    Path(f"{prefix}.meta").write_bytes(
        _meta_graph(graph, parts, values).SerializeToString(deterministic=True)
    )
    write_bundle(prefix, values | {renamed[key]: tensor for key, tensor in others.items()})
    lines = [
        f'{field}: "{prefix.name}"\n' for field in ("model_checkpoint_path", "all_model_checkpoint_paths")
    ]
    (prefix.parent / "checkpoint").write_text("".join(lines), encoding="utf-8")


def _meta_graph(graph: Any, parts: Sequence[Part], values: Mapping[str, Tensor]) -> Any:
    meta = meta_graph_pb2.MetaGraphDef()
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.meta_info_def.stripped_default_attrs = True
    meta.graph_def.CopyFrom(_with_library(graph))
    meta.graph_def.versions.producer = min(graph.versions.producer, _PRODUCER)
    saver.add_variables(meta, variable_ops(meta.graph_def), values)
    meta_graph.strip_graph_default_valued_attrs(meta)
    seen = build.imported(meta.graph_def)
    for part in parts:
        describe(meta.signature_def[part.name], part.signature, seen)
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    return meta


def _with_library(graph: Any) -> Any:
    """A copy whose library has the functions that its nodes call; others may hold ops unknown elsewhere."""
    functions = {function.signature.name: function for function in graph.library.function}
    wanted: set[str] = set()
    todo = list(_called(graph.node))
    while todo:
        name = todo.pop()
        if name in functions and name not in wanted:
            wanted.add(name)
            todo += _called(functions[name].node_def)
    made = build.placed(graph)
    del made.library.function[:], made.library.gradient[:]
    made.library.function.extend(functions[name] for name in sorted(wanted))
    return made


def _called(nodes: Iterable[Any]) -> Iterable[str]:
    for node in nodes:
        yield node.op
        for attr in node.attr.values():
            yield from [attr.func.name] if attr.func.name else [found.name for found in attr.list.func]
