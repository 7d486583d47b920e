"""The recorded exports hold what they are recorded for: seen in their protos alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.keras3_samples import BROKEN, EXPORTED, PORTABLE, Export
from tensorflow.core.protobuf import saved_model_pb2

CUDNN = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")


@cache
def meta_graph(export: Export) -> Any:
    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((export.path / "saved_model.pb").read_bytes())
    (found,) = proto.meta_graphs
    return found


def called(graph: Any, node: Any) -> set[str]:
    """The functions that a node names: by an attribute, or by its op."""
    library = {function.signature.name for function in graph.graph_def.library.function}
    named = {node.op}
    for value in node.attr.values():
        named |= {value.func.name, *(function.name for function in value.list.func)}
    return named & library


def reached(graph: Any, signature: str) -> Iterator[Any]:
    """The cuDNN nodes that run for a signature, each function once."""
    nodes = {node.name: node for node in graph.graph_def.node}
    library = {function.signature.name: function for function in graph.graph_def.library.function}
    names = {end.name.split(":")[0] for end in graph.signature_def[signature].outputs.values()}
    waiting, functions, seen = [nodes[name] for name in names], set(), set(names)
    while waiting:
        node = waiting.pop()
        if node.op in CUDNN:
            yield node
        for name in called(graph, node) - functions:
            functions.add(name)
            waiting.extend(library[name].node_def)
        for source in (name.lstrip("^").split(":")[0] for name in node.input):
            if source in nodes and source not in seen and nodes.get(node.name) is node:
                seen.add(source)
                waiting.append(nodes[source])


@pytest.mark.parametrize("export", BROKEN, ids=lambda export: export.name)
def test_a_broken_export_reaches_the_cudnn_nodes_that_its_case_names(export: Export) -> None:
    graph = meta_graph(export)
    for signature in export.signatures:
        modes = Counter(node.attr["rnn_mode"].s.decode() or "lstm" for node in reached(graph, signature.name))
        assert modes == Counter(node["mode"] for node in signature.nodes), signature.name
        assert bool(modes) == (not signature.runs_on_cpu), signature.name
    for alias, name in export.aliases.items():
        count = sum(1 for _ in reached(graph, name))
        assert sum(1 for _ in reached(graph, alias)) == count, alias


@pytest.mark.parametrize("export", PORTABLE, ids=lambda export: export.name)
def test_a_portable_export_has_cudnn_nodes_that_no_signature_reaches(export: Export) -> None:
    graph = meta_graph(export)
    assert any(
        node.op in CUDNN for function in graph.graph_def.library.function for node in function.node_def
    )
    for name in {signature.name for signature in export.signatures} | set(export.aliases):
        assert not list(reached(graph, name)), name


@pytest.mark.parametrize("export", EXPORTED, ids=lambda export: export.name)
def test_every_signature_has_its_ends_and_answers(export: Export) -> None:
    found = meta_graph(export).signature_def
    listed = {signature.name for signature in export.signatures} | set(export.aliases)
    assert set(found) - {"__saved_model_init_op"} == listed
    for signature in export.signatures:
        for call in signature.calls():
            assert set(call.feeds) == set(found[signature.name].inputs)
            assert set(call.answers) == set(found[signature.name].outputs)
            for name in signature.per_step:
                assert call.valid(call.answers[name]).any(axis=1).all()
            assert all(np.isfinite(value).all() for value in call.answers.values())
