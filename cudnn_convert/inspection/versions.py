"""The versions that a source records, and the tags of a SavedModel's graphs; no proto is parsed for it.

Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto (MetaGraphDef.meta_info_def = 1, MetaInfoDef's
tags = 4, tensorflow_version = 5), saved_model.proto (SavedModel.meta_graphs = 2).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.model import Model
from cudnn_convert.read import hdf5, keras_hdf5
from cudnn_convert.read.checkpoints import wire

_META_GRAPHS: Final = 2
_INFO: Final = 1
_TAGS: Final = 4
_TENSORFLOW: Final = 5


def recorded(model: Model) -> dict[str, str]:
    """By name: `tensorflow`, `graph` (the producer's number), `keras`, `backend`; none that is not there."""
    found: dict[str, str] = {}
    if model.architecture is not None:
        found = {"keras": model.architecture.keras_version, "backend": model.architecture.backend}
    elif model.kind == keras_hdf5.KIND:
        found = _keras(model.path)
    elif model.graph is not None:
        infos = [info for _, info in _infos(model.path)]
        found = {"tensorflow": ", ".join(dict.fromkeys(info for info in infos if info))}
        found["graph"] = str(model.graph.versions.producer or "")
    return {name: version for name, version in found.items() if version}


def tags(folder: Path) -> list[str]:
    """The tags of each graph of a SavedModel that `--tag` can choose, with commas, as it takes them."""
    count = Counter(frozenset(listed.split(",")) for listed, _ in _infos(folder))
    return [listed for listed, _ in _infos(folder) if listed and count[frozenset(listed.split(","))] == 1]


def _infos(path: Path) -> list[tuple[str, str]]:
    """The tags and the version of TensorFlow of each MetaGraph of a checkpoint or a binary SavedModel."""
    saved, meta = path / "saved_model.pb", Path(f"{path}.meta")
    try:
        data = np.memmap(saved if saved.is_file() else meta, np.uint8, "r").data
        graphs = wire.contents(wire.fields(data), _META_GRAPHS) if saved.is_file() else [data]
        infos = [wire.fields(wire.content(wire.fields(graph), _INFO)) for graph in graphs]
        return [
            (",".join(map(_text, wire.contents(info, _TAGS))), _text(wire.content(info, _TENSORFLOW)))
            for info in infos
        ]
    except (OSError, ValueError):
        return []  # text, or a graph on its own: it records no version of TensorFlow


def _text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")


def _keras(path: Path) -> dict[str, str]:
    with hdf5.Store(path).open() as file:
        kept = {"keras": "keras_version", "backend": "backend"}
        return {name: hdf5.text(file.attrs[key]) for name, key in kept.items() if key in file.attrs}
