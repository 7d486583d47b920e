"""Finds what no artifact should have: functions that nothing calls, paths of the machine of its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.graph.index import callees, library, reachable_functions
from support.graphs import v1

PATHS: Final = re.compile(rb"(?<![\w.:-])/(?:tmp|home|root|usr|data|work|var|mnt)/[\w./-]+")


def graphs(out: Path) -> Iterator[Any]:
    """The graphs of an artifact, as TensorFlow reads them."""
    for path in out.rglob("*"):
        if path.name == "saved_model.pb":
            saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
            yield from (meta.graph_def for meta in saved.meta_graphs)
        elif path.suffix == ".meta":
            yield v1.MetaGraphDef.FromString(path.read_bytes()).graph_def
        elif path.suffix == ".pb":
            yield graph_pb2.GraphDef.FromString(path.read_bytes())


def assert_nothing_left(folder: Path, source: Path) -> None:
    """All files of a folder are clean; the path of `source` itself may stand in them."""
    for graph in graphs(folder):
        functions = library(graph)
        called = reachable_functions(functions, (name for node in graph.node for name in callees(node)))
        assert functions.keys() == called
        assert not graph.library.gradient
    own = re.compile(re.escape(str(source).encode()) + rb"(?![\w./-])")
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert not PATHS.search(own.sub(b"", path.read_bytes())), path
