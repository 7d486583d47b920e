"""Reads frozen graphs, and a MetaGraph's signatures, initializers and assets.

A frozen graph is one GraphDef whose variables became constants, binary or text, in a file of any name,
written by `tf.graph_util.convert_variables_to_constants` or TensorFlow's `freeze_graph` (0.10-1.15). It is
recognised by the first bytes of a serialised GraphDef: a node, with its name and op. A GraphDef that still
has variables, as `tf.train.write_graph` writes it, is refused: their values are in another file.
Source: tensorflow v1.15.0 core/framework/graph.proto, node_def.proto; protobuf 3 encoding of fields 1 and 2.

`signatures` and `initializers` read a MetaGraph: its signatures, and the ops that fill tables.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/saved_model/constants.py,
python/saved_model/loader_impl.py get_init_op, python/framework/ops.py GraphKeys.TABLE_INITIALIZERS.

`list_assets` and `beside` find the files that tables are filled from, keyed by the tensors that hold their
names. A SavedModel lists them and keeps them in `assets/`. A checkpoint or a frozen graph has only the path
on the machine that trained it: a file of that name beside the source is taken, and no other.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto AssetFileDef, python/saved_model/constants.py,
core/ops/lookup_ops.cc (InitializeTableFromTextFileV2: table, then the file's name).
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, ReadError, UnsupportedModelError
from cudnn_convert.graph import ops
from cudnn_convert.model import Model, Signature
from cudnn_convert.read import checks
from cudnn_convert.read.arrays.containers import read_head
from cudnn_convert.read.tensorbundle.tables import varint
from cudnn_convert.text import list_some

KIND: Final = "frozen graph"
TAGS: Final = False
_HEAD: Final = 2**16
_TEXT: Final = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?:node|versions|library)\s*:?\s*[{<]")
_OP: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_.>]*")
#: The tags of fields 1 and 2 of a message: a graph's first node, a node's name and op.
_FIRST, _SECOND = 0x0A, 0x12
#: The most bytes of a length.
_LONGEST: Final = 5


def recognise(path: Path) -> Path | None:
    """Return the file itself if the content begins like a GraphDef.

    Returns None otherwise.
    """
    head = read_head(path, _HEAD)
    return path if _TEXT.match(head) or _is_binary(memoryview(head)) else None


def _is_binary(head: memoryview) -> bool:
    """Return True if the bytes begin like a binary GraphDef.

    That is field 1 that contains a name and an op name.
    """
    try:
        _, offset = _length(head, 0, _FIRST)
        name, offset = _length(head, offset, _FIRST)
        op, start = _length(head, offset + name, _SECOND)
    except (IndexError, ValueError):
        return False
    return name > 0 and bool(_OP.fullmatch(head[start : start + op]))


def _length(data: memoryview, offset: int, tag: int) -> tuple[int, int]:
    """Return the content length and offset of the field `tag` at `offset`. Raises ValueError."""
    if data[offset] != tag:
        raise ValueError(f"no field {tag}")
    return varint(data[: offset + 1 + _LONGEST], offset + 1)


def read(path: Path) -> Model:
    """Read a frozen graph. Raises ReadError, UnsupportedModelError where it has variables."""
    graph = _parse(path)
    left = [node.name for node in graph.node if node.op in ops.VARIABLES]
    if left:
        cure = f"freeze the graph, or convert its checkpoint with --architecture {path}"
        listed = list_some(left, checks.SHOWN)
        reason = f"graph: expected constants in the place of variables, found the variables {listed}; {cure}"
        raise UnsupportedModelError(path, [reason])
    return Model(path, KIND, graph, {}, assets=beside(graph, path.parent))


def as_meta_graph(path: Path) -> Any:
    """Read a GraphDef, variables allowed, as a bare MetaGraphDef. Raises ReadError."""
    from tensorflow.core.protobuf import meta_graph_pb2

    return meta_graph_pb2.MetaGraphDef(graph_def=_parse(path))


def _parse(path: Path) -> Any:
    from tensorflow.core.framework import graph_pb2

    graph, data = graph_pb2.GraphDef(), path.read_bytes()
    actual = "a damaged or incomplete one"
    try:
        if _TEXT.match(data):
            actual = "a text that is not one"
            text_format.Parse(data, graph)
        else:
            graph.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, text_format.ParseError) as cause:
        raise ReadError(path, "file", expected="a GraphDef", found=actual, advice=AGAIN) from cause
    if not graph.node:
        raise ReadError(path, "graph", expected="nodes", found="none", advice=AGAIN)
    checks.require(path, graph)
    return graph


#: Signatures whose names begin so are ops to run, not models.
_RESERVED: Final = "__saved_model_"
_INIT_OP: Final = "__saved_model_init_op"
_COLLECTIONS: Final = ("saved_model_main_op", "legacy_init_op", "table_initializer")


def signatures(meta: Any) -> dict[str, Signature]:
    """Return the signatures by key, tensors as `op:k`, outputless signatures left out.

    A sparse tensor becomes three keys, `<key>_indices`, `<key>_values` and `<key>_dense_shape`, named as
    TensorFlow 2's loader does (tensorflow v2.21.0 python/saved_model/load_v1_in_v2.py).
    """
    result = {}
    for key in sorted(meta.signature_def):
        proto = meta.signature_def[key]
        signature = Signature(dict(_tensors(proto.inputs)), dict(_tensors(proto.outputs)))
        if signature.outputs and not key.startswith(_RESERVED):
            result[key] = signature
    return result


def _tensors(infos: Any) -> Iterator[tuple[str, str]]:
    for key in sorted(infos):
        info = infos[key]
        if info.name:
            yield key, _tensor(info.name)
        elif info.HasField("coo_sparse"):
            sparse = info.coo_sparse
            yield f"{key}_indices", _tensor(sparse.indices_tensor_name)
            yield f"{key}_values", _tensor(sparse.values_tensor_name)
            yield f"{key}_dense_shape", _tensor(sparse.dense_shape_tensor_name)
        for number, part in enumerate(info.composite_tensor.components):
            yield f"{key}_component_{number}", _tensor(part.name)


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def initializers(meta: Any) -> tuple[str, ...]:
    """Return the ops for a loader to run after restoring the variables, each once."""
    named = [meta.signature_def[_INIT_OP]] if _INIT_OP in meta.signature_def else []
    names = [info.name for proto in named for info in proto.outputs.values()]
    for key in _COLLECTIONS:
        if key in meta.collection_def:
            names += meta.collection_def[key].node_list.value
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names))


_COLLECTION: Final = "saved_model_assets"
_WHOLE: Final = "copy the whole folder"


def list_assets(meta: Any, folder: Path) -> dict[str, Path]:
    """Return the files in a SavedModel's `assets/`, by the tensor holding the name.

    Raises ReadError where a file lies outside `assets/` or is missing. Links are checked by `read.paths`.
    """
    root, assets = Path(os.path.normpath(folder / "assets")), {}
    for proto in _protos(meta):
        path = root / proto.filename
        if root not in Path(os.path.normpath(path)).parents:
            raise ReadError(folder, "asset", expected="a file in assets/", found=repr(proto.filename))
        if not path.is_file():
            expected = f"assets/{proto.filename}"
            raise ReadError(folder, "asset", expected=expected, found="no such file", advice=_WHOLE)
        assets[_tensor(proto.tensor_info.name)] = path
    return assets


def _protos(meta: Any) -> Iterator[Any]:
    if meta.asset_file_def:
        yield from meta.asset_file_def
    elif _COLLECTION in meta.collection_def:
        from tensorflow.core.protobuf import meta_graph_pb2

        for packed in meta.collection_def[_COLLECTION].any_list.value:
            proto = meta_graph_pb2.AssetFileDef()
            packed.Unpack(proto)
            yield proto


def beside(graph: Any, folder: Path) -> Mapping[str, Path]:
    """Return the files of a graph's tables found in `folder` by file name."""
    nodes = {node.name: node for node in graph.node}
    assets = {}
    for node in graph.node:
        if node.op in ops.FILLS_FROM_FILE:
            name = _tensor(node.input[1])
            origin = nodes.get(name.removesuffix(":0"))
            names = checks.strings(origin)
            text = names[0] if len(names) == 1 else ""
            path = folder / PureWindowsPath(PurePosixPath(text).name).name
            if text and path.is_file():
                assets[name] = path
    return assets
