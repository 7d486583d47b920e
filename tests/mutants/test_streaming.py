"""Mistakes in how states go in and come out: the proof must see each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mutants.conversions import exit_code
from support import asking_graphs
from support.samples import fixture
from support.tiers import tier

from cudnn_convert.graph import node_defs, stepwise
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes import stream_states

#: Three layers of an LSTM, none of whose states are inputs.
SOURCE = fixture("1.15.5-lstm_uni_3l").prefix
#: The format of two signatures, and that of the cheapest proof.
BOTH, CHEAPEST = "savedmodel", "onnx"
Change = Callable[[pytest.MonkeyPatch], None]


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[Graph, Any], Graph]) -> None:
    """From now on what the pass makes is changed."""
    make = stream_states.stream_states

    def make_wrong(graph: Any, states: Any, *, defaults: bool) -> Graph:
        return change(make(graph, states, defaults=defaults), states)

    monkeypatch.setattr(stream_states, "stream_states", make_wrong)


def rewired(graph: Graph, inputs: dict[str, list[str]], added: Any = ()) -> Graph:
    nodes = {name: node_defs.copy_node(graph.index.nodes[name], inputs=read) for name, read in inputs.items()}
    return replace_nodes(graph, nodes, added)


def not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next state is the one that went in."""
    changed(monkeypatch, lambda graph, states: rewired(graph, {f"{s.key}_next": [s.key] for s in states}))


def h_and_c_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In and out: what comes out fits what goes in, under the other's name."""
    monkeypatch.setattr(
        stream_states, "PLACES", {"h": stream_states.PLACES["c"], "c": stream_states.PLACES["h"]}
    )


def next_states_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(graph: Graph, states: Any) -> Graph:
        h, c = (f"{state.key}_next" for state in states)
        read = {name: [*graph.index.nodes[name].input] for name in (h, c)}
        return rewired(graph, {h: read[c], c: read[h]})

    changed(monkeypatch, change)


def layers_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going in, the state of the first layer is that of the last."""

    def change(graph: Graph, states: Any) -> Graph:
        axis = node_defs.constant("axis", np.array([0], np.int32))
        turned = [
            node_defs.node(f"{s.key}/turned", "ReverseV2", [s.key, "axis"], T=tf.float32, Tidx=tf.int32)
            for s in states
        ]
        names = {s.key: f"{s.key}/turned" for s in states}
        node = graph.index.nodes[states[0].node]
        return rewired(graph, {node.name: [names.get(name, name) for name in node.input]}, [axis, *turned])

    changed(monkeypatch, change)


def not_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature without states begins with what no source begins with."""

    def change(graph: Graph, states: Any) -> Graph:
        index: Index = graph.index
        rest = {s.key: f"{index.nodes[s.key].input[0]}" for s in states if index.nodes[s.key].input}
        ones = [
            node_defs.node(f"{key}/ones", "OnesLike", [source], T=tf.float32) for key, source in rest.items()
        ]
        return rewired(graph, {key: [f"{key}/ones"] for key in rest}, ones)

    changed(monkeypatch, change)


CHANGES = (not_carried, h_and_c_swapped, next_states_swapped, layers_swapped, not_reset)


def mistakes() -> Iterator[Any]:
    """Each in the cheapest format that can show it; in others in the second tier."""
    for change in CHANGES:
        for form in (BOTH,) if change is not_reset else (BOTH, "frozen", CHEAPEST, "tflite"):
            first = tier(first=form == (BOTH if change is not_reset else CHEAPEST))
            marks = (pytest.mark.mutant(f"streaming: {change.__name__}"), *first)
            yield pytest.param(change, form, marks=marks)


@pytest.mark.parametrize(("change", "form"), mistakes())
def test_a_mistake_in_the_states(
    out: Path, monkeypatch: pytest.MonkeyPatch, change: Change, form: str
) -> None:
    change(monkeypatch)
    assert exit_code(SOURCE, out, "--format", form, "--states") == 3


def test_without_a_mistake_it_is_converted(out: Path) -> None:
    assert exit_code(SOURCE, out, "--format", "onnx", "--states") == 0


@pytest.mark.mutant("streaming: softmax over time")
def test_what_the_rules_let_pass_the_numbers_refuse(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A softmax over time counts as an op that takes each step by itself."""
    rules = {**stepwise._RULES, "Softmax": lambda steps, op: ""}
    monkeypatch.setattr(stepwise, "_RULES", rules)

    def over_time(y: Any) -> Any:
        return tf.transpose(tf.nn.softmax(tf.transpose(y, [1, 2, 0])), [2, 0, 1], name="scores")

    source = asking_graphs.behind(tmp_path, over_time)
    assert exit_code(source, out, "--format", "onnx", "--states") == 3
    [line] = [line for line in capsys.readouterr().err.splitlines() if "streaming: " in line]
    assert "output scores of a sequence in chunks of 1: at [" in line
