"""What fills the tables of a SavedModel: the files in `assets/`, the list of them, and the op to run.

TensorFlow's loaders feed each listed tensor the path of its file and run the one op of the collection
`saved_model_main_op` (tensorflow v2.21.0 python/saved_model/loader_impl.py get_asset_tensors, get_init_op;
the same in v1.15.0; TensorFlow 1 knows the collection of assets only, TensorFlow 2 reads it too).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf import any_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from cudnn_convert.graph import build
from cudnn_convert.graph.index import split, unique

_ASSETS: Final = "saved_model_assets"
_MAIN_OP: Final = "saved_model_main_op"


def add(meta: Any, folder: Path, initializers: Sequence[str], files: Mapping[str, Path]) -> None:
    """Adds to `meta` the op that runs the `initializers`, and those `files` that its graph names, copied."""
    present = {node.name for node in meta.graph_def.node}
    if initializers:
        name = unique("init_tables", {found.lower() for found in present})
        meta.graph_def.node.append(build.node(name, "NoOp", [f"^{op}" for op in initializers]))
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
