"""No artifact has a function that nothing calls, nor a path of the machine that made its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support.graphs import v1
from support.samples import GRAPH_FORMATS, Fixture, fixture
from support.tiers import combinations
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert import convert
from cudnn_convert.graph.index import callees, library, reachable_functions

#: Cases whose sources have functions: datasets, loops of TensorFlow 2, exports.
CASES: Final = ("dataset_input", "gather_tree", "iterator_input", "while_rows", "frozen_layer_norm")
FIRST: Final = (("dataset_input", "savedmodel"), ("dataset_input", "frozen"), ("dataset_input", "checkpoint"))
_PATHS: Final = re.compile(rb"(?<![\w.:-])/(?:tmp|home|root|usr|data|work|var|mnt)/[\w./-]+")


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


@combinations(lambda name, form: (name, form) in FIRST, name=CASES, form=GRAPH_FORMATS)
def test_nothing_is_left_of_what_was_cut(name: str, form: str, tmp_path: Path) -> None:
    sample: Fixture = fixture(f"1.15.5-{name}")
    if not sample.fits(form):
        pytest.skip(f"{name} does not fit {form}")
    convert(sample.prefix, tmp_path / "out", format=form, verify=False, **sample.options)
    for graph in graphs(tmp_path):
        functions = library(graph)
        called = reachable_functions(functions, (name for node in graph.node for name in callees(node)))
        assert functions.keys() == called
        assert not graph.library.gradient
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert not {*_PATHS.findall(path.read_bytes())} - {str(sample.prefix).encode()}, path


def test_a_path_is_seen() -> None:
    assert _PATHS.findall(b"\x00\x0a/home/me/train.txt\x00") == [b"/home/me/train.txt"]
    assert not _PATHS.findall(b"scope/home/me cudnn_lstm/tmp/x")
