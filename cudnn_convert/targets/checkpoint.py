"""Writes TensorFlow 1 checkpoints, each with a MetaGraph.

A checkpoint is `model.ckpt.index`, `.data-*`, the MetaGraph `.meta`, and a `checkpoint` file.
`tf.train.import_meta_graph` and the saver that it returns restore it in TensorFlow 1.15 and in TensorFlow 2
(`tf.compat.v1`); a saver of another graph restores the variables of equal names.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/framework/importer.py (what an older
TensorFlow refuses), core/public/version.h (TF_GRAPH_DEF_VERSION), python/training/checkpoint_state.proto.

`--rename OLD=NEW` changes the keys of variables, in the checkpoint and in its graph.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.errors import UsageError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, drop_uncalled_functions, import_graph, strip_devices
from cudnn_convert.graph.index import AnyGraph, rename_reference
from cudnn_convert.graph.session import checkpoint_key, variable_ops
from cudnn_convert.lower.tensorflow import tf1_cells
from cudnn_convert.model import SERVING, Mode, Part, Tensor
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.targets import saved_model
from cudnn_convert.targets.bundle import add_variables, write_bundle
from cudnn_convert.text import list_some

#: The producer version of TensorFlow 1.15.
_PRODUCER: Final = 134
#: How many keys a message lists.
_LISTED: Final = 8


def prepare(plan: Plan, options: Options) -> Plan:
    """Add a note on dropped optimizer slots.

    Raises UsageError for `--cell` without an LSTM.
    """
    if options.cell != "compatible" and all(r.sizes.mode is not Mode.LSTM for r in plan.recurrences):
        raise UsageError(f"--cell {options.cell}: expected a model with an LSTM, found none; leave it out")
    slots, note = _slots(plan), ""
    if options.slots and slots.lost:
        note = f"optimizer slots dropped, for their variables are packed anew: {', '.join(slots.lost)}"
    elif len(slots) and not options.slots:
        note = f"{len(slots)} optimizer slots dropped; keep them with --slots"
    return replace(plan, notes=(*plan.notes, note)) if note else plan


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write the files of the prefix `path`.

    The caller writes the provenance beside them.
    """
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
    """Write the files of `prefix` into an existing folder.

    `variables` has the value of each variable op of `graph` by key, `others` further tensors of the
    checkpoint, `renames` the values of `--rename`. Raises UsageError where those do not fit.
    """
    keys = [checkpoint_key(node) for node in variable_ops(graph)]
    renamed = rename_keys({**dict.fromkeys(keys), **others}, renames)
    tensors = [name for part in parts for name in part.signature.tensors]
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
    strip_devices(drop_uncalled_functions(Graph.of(graph)), meta.graph_def)
    meta.graph_def.versions.producer = min(graph.versions.producer, _PRODUCER)
    add_variables(meta, variable_ops(meta.graph_def), values)
    tf_private.strip_defaults(meta)
    seen = import_graph(meta.graph_def)
    for part in parts:
        saved_model.describe(meta.signature_def[part.name], part.signature, seen)
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    return meta


#: tensorflow v1.15.0 python/framework/ops.py _VALID_OP_NAME_REGEX: a variable is an op.
_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def rename_keys(names: Iterable[str], settings: Sequence[str]) -> dict[str, str]:
    """Apply `--rename` settings in order, and return a map from old to new names.

    OLD is a name or a scope of one; NEW "" drops OLD. Raises UsageError where OLD does not occur, NEW is no
    variable name, or two names become equal.
    """
    keys = {name: name for name in names}
    for setting in settings:
        old, equals, new = setting.partition("=")
        old, new = old.strip("/"), new.strip("/")
        if not equals or not old:
            raise UsageError(f"--rename: expected OLD=NEW, found {setting!r}")
        if not any(_inside(now, old) for now in keys.values()):
            listed = list_some(sorted(keys.values()), _LISTED)
            what = f"expected OLD to be a key or a scope, found no {old} among {listed}"
            raise UsageError(f"--rename: {what}")
        keys = {name: _move(now, old, new) for name, now in keys.items()}
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


def rename_variables(graph: AnyGraph, renamed: Mapping[str, str], *, outputs: Collection[str]) -> Any:
    """Return a copy of `graph` with the variables' keys and op names from `renamed`.

    A variable that is one of the tensors `outputs` also stays fetchable under its old name. Raises UsageError
    where another op has the new name.
    """
    keys = {node.name: checkpoint_key(node) for node in variable_ops(graph)}
    ops = {op: renamed[key] for op, key in keys.items() if op == key and renamed[key] != key}
    fetched = {old for old in ops if f"{old}:0" in outputs}
    taken = {node.name for node in graph.node} - set(ops) | fetched
    for old, new in ops.items():
        if new in taken:
            raise UsageError(f"--rename: expected a free name for {old}, found {new}, an op of the graph")
    nodes = []
    for node in strip_devices(graph).node:
        old = node.name
        node.name = ops.get(old, old)
        for position, name in enumerate(node.input):
            node.input[position] = rename_reference(name, ops)
        if old in keys and node.attr["shared_name"].s:
            node.attr["shared_name"].s = renamed[keys[old]].encode()
        nodes.append(node)
        if old in fetched:
            nodes.append(node_defs.identity(old, node.name, node.attr["dtype"].type))
    return Graph(graph, nodes)
