"""Writes SavedModels: new models, repaired models, and assets.

New ones (`write`) have the form of TensorFlow 1's builder, written as a proto. That form keeps the source's
tensor names, loads in TensorFlow 1.15 and in TensorFlow 2, and has deterministic bytes. Variables keep their
kind (reference or resource).
Source: tensorflow v2.21.0 core/protobuf/saved_model.proto, python/saved_model/loader_impl.py,
python/training/saver.py (names of the restore subgraph).

Repaired ones (`write_repaired`), of TensorFlow 2, have some functions replaced; the other files are copied.

Assets are the files in `assets/`, their list, and the op that fills tables from them. TensorFlow's loaders
feed each listed tensor the path of its file and run the one op of the collection `saved_model_main_op`
(tensorflow v2.21.0 python/saved_model/loader_impl.py get_asset_tensors, get_init_op; the same in v1.15.0;
TensorFlow 1 knows the collection of assets only, TensorFlow 2 reads it too).
"""

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf
from google.protobuf import any_pb2
from tensorflow.core.protobuf import fingerprint_pb2, meta_graph_pb2, saved_model_pb2

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import PROVENANCE
from cudnn_convert.graph import node_defs, session
from cudnn_convert.graph.graph import Graph, drop_uncalled_functions, import_graph, strip_devices
from cudnn_convert.graph.index import AnyGraph, GraphDef, rename_reference, split, tensor, unique
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.lower.tensorflow.lower import Lowered, WeightForm, lower, lower_functions
from cudnn_convert.model import SERVING, Part, Signature, Tensor
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.source import convention_of
from cudnn_convert.private import tf_private
from cudnn_convert.targets import bundle
from cudnn_convert.values import Axis


def prepare(plan: Plan, options: Options) -> Plan:
    """Return the plan: a SavedModel holds all parts."""
    return plan


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a SavedModel into the folder `path`; a TensorFlow 2 source is repaired."""
    source = plan.model
    if source.has_functions:
        saved = lower_functions(source.path, source.saved, convention_of(options), lowering=lowering(options))
        write_repaired(path, source.path, saved, provenance=provenance, trust=options.trust)
        return ()
    lowered = lower_plan(plan, options)
    graph, parts = lowered.graph, [*(plan.serving.parts if plan.serving else ()), *plan.all_parts]
    axes: dict[str, Mapping[str, Sequence[Axis]]] = {part.name: plan.axes for part in parts}
    if decoder := plan.decoder:
        from cudnn_convert.lower import search

        graph = search.add_search(graph, decoder, plan.signature)
        parts.append(decoder.part)
        # Keys of its own, such as `lengths`, may be those of other tensors of the model.
        shared = {*decoder.beside, *(state.key for state in decoder.states)}
        axes[decoder.part.name] = {key: plan.axes[key] for key in shared & {*plan.axes}}
    write(
        path,
        graph,
        parts,
        lowered.variables,
        provenance=provenance,
        initializers=plan.initializers,
        files=source.assets,
        axes=axes,
    )
    return ()


def lower_plan(plan: Plan, options: Options, form: WeightForm | None = None) -> Lowered:
    """Return the CPU graph of a plan, including unread inputs of the signature."""
    signatures = [plan.signature, *([plan.serving.signature] if plan.serving else [])]
    signatures += [part.signature for part in plan.all_parts]
    ends = [*dict.fromkeys(name for signature in signatures for name in signature.tensors)]
    return lower(
        plan.graph,
        plan.recurrences,
        plan.model.variables,
        outputs=[*ends, *plan.initializers],
        lowering=lowering(options),
        form=form,
    )


def lowering(options: Options) -> str:
    """Return the lowering chosen by the options."""
    return layer_stack.COMPILED if options.jit else options.lowering


def write(
    folder: Path,
    graph: AnyGraph,
    parts: Sequence[Part],
    variables: Mapping[str, Tensor],
    *,
    provenance: str,
    initializers: Sequence[str] = (),
    files: Mapping[str, Path] = MappingProxyType({}),
    axes: Mapping[str, Mapping[str, Sequence[Axis]]] = MappingProxyType({}),
) -> None:
    """Write `saved_model.pb`, `variables/`, `assets/`, `assets.extra/` into the empty `folder`.

    Each part becomes a signature of its name; a single part is also `serving_default`.
    `variables` has the value of each variable op of `graph` by checkpoint name. `initializers` are the ops of
    `graph` that fill its tables, `files` the assets by the tensors that hold their names, `axes` those of
    inputs and outputs by part and key.
    """
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tf.__version__
    meta.meta_info_def.stripped_default_attrs = False
    signature_ops = [split(name)[0] for part in parts for name in part.signature.tensors]
    called = drop_uncalled_functions(Graph.of(graph))
    renamed = _rename_case_clashes(strip_devices(called, meta.graph_def), [*signature_ops, *initializers])
    initializers = [renamed.get(name, name) for name in initializers]
    ops = session.variable_ops(meta.graph_def)
    if ops:
        bundle.add_variables(meta, ops, variables)
    seen = import_graph(meta.graph_def)
    for part in parts:
        signature = _with_names(part.signature, renamed)
        describe(meta.signature_def[part.name], signature, seen, axes.get(part.name, {}))
    if len(parts) == 1:
        meta.signature_def[SERVING].CopyFrom(meta.signature_def[parts[0].name])
    add(meta, folder, initializers, files)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    if ops:
        (folder / "variables").mkdir()
        bundle.write_bundle(
            folder / "variables" / "variables",
            {session.checkpoint_key(node): variables[session.checkpoint_key(node)] for node in ops},
        )
    (folder / "assets.extra").mkdir()
    (folder / "assets.extra" / PROVENANCE).write_text(provenance, encoding="utf-8")


def _rename_case_clashes(graph: GraphDef, keep: Iterable[str]) -> dict[str, str]:
    """Rename ops with names equal but for case, ops in `keep` last.

    Returns the new names.

    tensorflow v2.21.0 python/framework/ops.py `Graph.unique_name` ignores case: its loader would give one of
    the two another name and then not find it.
    """
    first = set(keep)
    taken: set[str] = set()
    renamed: dict[str, str] = {}
    for node in sorted(graph.node, key=lambda node: node.name not in first):
        name, count = node.name, 0
        while name.lower() in taken:
            count += 1
            name = f"{node.name}_{count}"
        taken.add(name.lower())
        if name != node.name:
            renamed[node.name] = name
    for node in graph.node if renamed else ():
        node.name = renamed.get(node.name, node.name)
        for position, source in enumerate(node.input):
            node.input[position] = rename_reference(source, renamed)
    return renamed


def _with_names(signature: Signature, renamed: Mapping[str, str]) -> Signature:
    """Return a signature with the tensors of renamed ops."""
    inputs, outputs = (
        {key: tensor(rename_reference(name, renamed)) for key, name in tensors.items()}
        for tensors in (signature.inputs, signature.outputs)
    )
    return Signature(inputs, outputs)


def describe(
    proto: Any,
    signature: Signature,
    seen: tf.Graph,
    axes: Mapping[str, Sequence[Axis]] = MappingProxyType({}),
) -> None:
    """Fill a SignatureDef with dtypes and shapes of the imported graph `seen`, and axis names."""
    proto.method_name = "tensorflow/serving/predict"
    for infos, names in ((proto.inputs, signature.inputs), (proto.outputs, signature.outputs)):
        for key, name in names.items():
            tensor_info = seen.get_tensor_by_name(name)
            infos[key].name = tensor(name)
            infos[key].dtype = tensor_info.dtype.base_dtype.as_datatype_enum
            infos[key].tensor_shape.CopyFrom(tensor_info.shape.as_proto())
            if key in axes:
                _name_axes(infos[key].tensor_shape, axes[key])


def _name_axes(shape: Any, axes: Sequence[Axis]) -> None:
    """Name the dimensions of a TensorShapeProto in place; fill in an unknown rank."""
    if shape.unknown_rank:
        shape.unknown_rank = False
        shape.dim.extend(tf.TensorShape([None] * len(axes)).as_proto().dim)
    for dimension, axis in zip(shape.dim, axes, strict=True):
        if isinstance(axis, str):
            dimension.name = axis
        elif axis is not None:
            dimension.size = axis


_PROTOS: Final = ("saved_model.pb", "saved_model.pbtxt")
#: A checksum of the proto and the variables (tensorflow v2.21.0 core/protobuf/fingerprint.proto).
_FINGERPRINT: Final = "fingerprint.pb"
_ID_LENGTH: Final = 32


def write_repaired(folder: Path, source: Path, saved: Any, *, provenance: str, trust: bool) -> None:
    """Write the proto `saved`, the files of `source` and the provenance into `folder`.

    Raises OSError, and UnsupportedModelError where one of the files is a pipe, socket or device, or without
    `trust` a link out of the source.
    """
    _refuse_links(source, trust=trust)

    def list_rewritten(inner: str, names: list[str]) -> list[str]:
        """List the top-level files to be written anew."""
        return [name for name in names if Path(inner) == source and name in (*_PROTOS, _FINGERPRINT)]

    shutil.copytree(source, folder, ignore=list_rewritten, dirs_exist_ok=True)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    if (source / _FINGERPRINT).is_file():
        _write_fingerprint(folder)
    (folder / "assets.extra").mkdir(exist_ok=True)
    (folder / "assets.extra" / PROVENANCE).write_text(provenance, encoding="utf-8")


def _write_fingerprint(folder: Path) -> None:
    """Write TensorFlow's fingerprint with a deterministic id in place of the random id."""
    tf_private.write_fingerprint(str(folder))
    path = folder / _FINGERPRINT
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    if "uuid" not in fingerprint.DESCRIPTOR.fields_by_name:  # in an older TensorFlow
        return
    fingerprint.uuid = ""
    fingerprint.uuid = hashlib.sha256(fingerprint.SerializeToString(deterministic=True)).hexdigest()[
        :_ID_LENGTH
    ]
    path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def _refuse_links(source: Path, *, trust: bool) -> None:
    """Refuse pipes, sockets and devices, and, if `trust` is false, links out of the source.

    What a link points to outside the model was not given with it, so it must not be copied.
    Raises UnsupportedModelError.
    """
    links = (link for link in sorted(source.rglob("*")) if link.is_symlink())
    expected, cure = "expected a file of the model itself", "put the file there"
    reasons = [
        f"{link.relative_to(source)}: {expected}, found a link to {link.readlink()}; {cure}"
        for link in links
        if not trust and source.resolve() not in link.resolve().parents
    ]
    reasons += [
        f"{link.relative_to(source)}: {expected}, found a pipe, a socket or a device; {cure}"
        for link in sorted(source.rglob("*"))
        if link.exists() and not (link.is_file() or link.is_dir())
    ]
    if reasons:
        raise UnsupportedModelError(source, reasons)


_ASSETS: Final = "saved_model_assets"
_MAIN_OP: Final = "saved_model_main_op"


def add(meta: Any, folder: Path, initializers: Sequence[str], files: Mapping[str, Path]) -> None:
    """Add the op for running the `initializers`, and the assets of the graph.

    The files are copied to `assets/` of `folder`.
    """
    present = {node.name for node in meta.graph_def.node}
    if initializers:
        name = unique("init_tables", {name_present.lower() for name_present in present})
        meta.graph_def.node.append(node_defs.node(name, "NoOp", [f"^{op}" for op in initializers]))
        meta.collection_def[_MAIN_OP].node_list.value.append(name)
    names: dict[Path, str] = {}
    for asset, path in sorted(files.items()):
        if split(asset)[0] not in present:
            continue
        if path not in names:
            names[path] = unique(path.name, names.values())
            (folder / "assets").mkdir(exist_ok=True)
            shutil.copyfile(path, folder / "assets" / names[path])
        proto = meta_graph_pb2.AssetFileDef(filename=names[path])
        proto.tensor_info.name = asset
        meta.asset_file_def.append(proto)
        packed = any_pb2.Any()
        packed.Pack(proto)
        meta.collection_def[_ASSETS].any_list.value.append(packed)
