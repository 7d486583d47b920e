"""Ops of TensorFlow 1: GatherTree against the op's own answers, and variables that become resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.samples import TF1
from support.state_graphs import CASES, FEEDS, START, Judge
from support.state_graphs import drawn as drawn_state

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.passes import tf1_ops
from cudnn_convert.model import InMemory
from cudnn_convert.verification.graph_judge import beams

NAMES = ("ids", "parents", "lengths", "end")


def calls() -> list[dict[str, np.ndarray]]:
    """The recorded calls, each with the inputs and the `beams` that TensorFlow 1.15 gave."""
    with np.load(TF1 / "1.15.5" / "gather_tree" / "golden.npz") as golden:
        count = len({key.partition("/")[0] for key in golden.files})
        return [{name: golden[f"call{k}/{name}"] for name in (*NAMES, "beams")} for k in range(count)]


def drawn() -> Any:
    """A graph of one GatherTree over placeholders, as TensorFlow 1 wrote it."""
    with tf.Graph().as_default() as graph:
        for name, rank in zip(NAMES, (3, 3, 1, 0), strict=True):
            tf.compat.v1.placeholder(tf.int32, [None] * rank, name)
    made = graph.as_graph_def()
    made.node.append(node_defs.node("tree", "GatherTree", NAMES, T=tf.int32))
    return made


@pytest.mark.parametrize("call", calls(), ids=lambda call: str(call["ids"].shape))
def test_beams_are_those_of_the_op(call: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(beams(*(call[name] for name in NAMES)), call["beams"])
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(tf1_ops.replace_gather_tree(Graph(drawn())).definition, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            found = session.run("tree:0", {f"{name}:0": call[name] for name in NAMES})
    np.testing.assert_array_equal(found, call["beams"])


def test_the_recorded_beams_change_places_and_end() -> None:
    """Else neither a forgotten parent nor a forgotten end would show."""
    first = calls()[0]
    ids, end, found = first["ids"], first["end"], first["beams"]
    assert ((found != ids) & (found != end)).any()
    assert ((found == end) & (ids != end)).any()


def test_a_file_cannot_ask_the_proof_for_beams() -> None:
    graph = drawn()
    graph.node[0].attr[tf1_ops.MARK].b = True
    with pytest.raises(InvalidModelError, match="ids: expected no attribute that this tool alone sets"):
        tf1_ops.replace_gather_tree(Graph(graph))


def test_a_node_without_its_inputs() -> None:
    graph = drawn()
    del graph.node[-1].input[2:]
    with pytest.raises(InvalidModelError, match="tree: expected ids, parents, lengths and an end token"):
        tf1_ops.replace_gather_tree(Graph(graph))


def test_a_graph_without_the_op_stays() -> None:
    graph = Graph(tf.compat.v1.GraphDef())
    assert tf1_ops.replace_gather_tree(graph) is graph


def test_integers_that_are_rounded_stay() -> None:
    """TensorFlow 1.15 gives them (tests/data/op_census.tar.xz, Round/int32); 2.21 gives zeros."""
    with tf.Graph().as_default() as graph:
        whole = tf.compat.v1.placeholder(tf.int32, [None], "whole")
        tf.raw_ops.Round(x=whole, name="kept")
        tf.raw_ops.Round(x=tf.constant([0.5, 1.5]), name="rounded")
    kept = tf1_ops.keep_integers(Graph(graph.as_graph_def()))
    with tf.Graph().as_default() as again:
        tf.import_graph_def(kept.definition, name="")
    with tf.compat.v1.Session(graph=again) as session:
        found, rounded = session.run(["kept:0", "rounded:0"], {"whole:0": [-3, 0, 2**31 - 1]})
    assert found.tolist() == [-3, 0, 2**31 - 1]
    assert rounded.tolist() == [0.0, 2.0]


def test_axes_that_are_reversed_get_numbers() -> None:
    """TensorFlow 2.21 refuses a tensor without rows where each axis has a flag."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.string, [None, 2, 3], "x")
        tf.raw_ops.Reverse(tensor=x, dims=[True, False, True], name="y")
    numbered = tf1_ops.number_axes(Graph(graph.as_graph_def()))
    with tf.Graph().as_default() as again:
        tf.import_graph_def(numbered.definition, name="")
    letters = np.array([*"abcdefghijkl"], object).reshape(2, 2, 3)
    with tf.compat.v1.Session(graph=again) as session:
        found, none = (session.run("y:0", {"x:0": rows}) for rows in (letters, letters[:0]))
    np.testing.assert_array_equal(found.astype(str), letters[::-1, :, ::-1].astype(str))
    assert none.shape == (0, 2, 3)
    assert tf1_ops.number_axes(numbered) is numbered


@pytest.mark.parametrize("inputs", [["enter", "next"], ["next", "enter"]])
def test_a_reference_that_a_loop_carries_round(inputs: list[str]) -> None:
    graph = tf.compat.v1.GraphDef()
    nodes = {"v": ["VariableV2"], "enter": ["RefEnter", "v"], "merge": ["RefMerge", *inputs]}
    nodes |= {"switch": ["RefSwitch", "merge", "p"], "next": ["RefNextIteration", "switch:1"]}
    for name, (op, *read) in {**nodes, "p": ["Placeholder"], "read": ["Identity", "switch"]}.items():
        graph.node.add(name=name, op=op, input=read)
    made = tf1_ops.to_resource_variables(Graph(graph), values={"v": InMemory(START)})
    assert {node.name: node.op for node in made.node} == {
        **{"v/handle": "VarHandleOp", "v": "ReadVariableOp", "enter": "Enter", "merge": "Merge"},
        **{"switch": "Switch", "next": "NextIteration", "p": "Placeholder", "read": "Identity"},
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_reference_that_became_a_resource(case: Callable[[Any], Any]) -> None:
    graph = drawn_state(case, resource=False)
    made = tf1_ops.convert_assigned_variables(graph, values={"v": InMemory(START)})
    assert not [
        node.name for node in made.node if node.op.startswith("Ref") or node.op in ("VariableV2", "Assign")
    ]
    judge, found = Judge(graph), Judge(made, "v/handle")
    for running in (judge, found):
        running.set(START)
    for x in FEEDS:
        for one, other in zip(found.run(x), judge.run(x), strict=True):
            np.testing.assert_array_equal(one, other)
