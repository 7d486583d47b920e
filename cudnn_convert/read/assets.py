"""The files that tables of a graph are filled from, by the tensors that hold their names.

A SavedModel lists them and keeps them in `assets/`. A checkpoint or a frozen graph only has the path on the
machine that trained it: what lies beside the source under that name is taken, and nothing from elsewhere.
Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto AssetFileDef, python/saved_model/constants.py,
core/ops/lookup_ops.cc (InitializeTableFromTextFileV2: table, then the file's name).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from cudnn_convert.errors import ReadError
from cudnn_convert.read import graphs

_COLLECTION: Final = "saved_model_assets"
_WHOLE: Final = "copy the whole folder"
_FROM_FILE: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})


def listed(meta: Any, folder: Path) -> dict[str, Path]:
    """The files in the `assets/` of a SavedModel. Raises ReadError where one lies elsewhere or nowhere.

    Where links lead is for `read.links` to say.
    """
    root, found = Path(os.path.normpath(folder / "assets")), {}
    for proto in _protos(meta):
        path = root / proto.filename
        if root not in Path(os.path.normpath(path)).parents:
            raise ReadError(folder, "asset", expected="a file in assets/", found=repr(proto.filename))
        if not path.is_file():
            expected = f"assets/{proto.filename}"
            raise ReadError(folder, "asset", expected=expected, found="no such file", advice=_WHOLE)
        found[_tensor(proto.tensor_info.name)] = path
    return found


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
    """The files of a graph's tables that lie in `folder` under the last part of the graph's own path."""
    nodes = {node.name: node for node in graph.node}
    found = {}
    for node in graph.node:
        if node.op in _FROM_FILE:
            name = _tensor(node.input[1])
            held = nodes.get(name.removesuffix(":0"))
            names = graphs.strings(held)
            text = names[0] if len(names) == 1 else ""
            path = folder / PureWindowsPath(PurePosixPath(text).name).name
            if text and path.is_file():
                found[name] = path
    return found


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"
