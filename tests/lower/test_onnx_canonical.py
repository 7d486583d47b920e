"""One model, one sequence of bytes."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from cudnn_convert.lower.onnx.finish import canonical
from cudnn_convert.lower.onnx.walk import all_nodes, subgraphs
from cudnn_convert.version import __version__

#: A loop in a branch; both read names from around them, and `early` feeds both branches.
TEXT = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2], producer_name: "someone", doc_string: "old">
main (float[unk__7, 3] x, bool which, int64 LSTM_0)
    => (float[unk__9, 3] y, float[rows, 3] z, float[rows, 3] again)
<float[3] weight = {1.5, 2.5, 3.5}, float unused = {0.0}, bool yes = {1}>
{
    dead = Neg (x)
    early = Add (x, weight)
    mid = Identity (early)
    twice, y = If <then_branch = loud () => (float[unk__20, 3] more, float[unk__11, 3] out)
            <float two = {2.0}>
            { scaled = Mul (mid, two)
              more = Mul (scaled, two)
              out, last = Loop <body = again_and_again (
                      int64 k, bool go, float[unk__12, 3] held, float[unk__15, 3] older
                  ) => (bool still, float[unk__13, 3] next, float[unk__16, 3] old)
                  { still = Identity (go)
                    next = Add (held, older)
                    old = Add (held, early) }> (LSTM_0, yes, scaled, early) },
            else_branch = quiet () => (float[unk__21, 3] less, float[unk__14, 3] out)
            { out = Identity (mid)
              less = Neg (mid) }> (which)
    square = Gemm <alpha: float = 0.5, transB: int = 0, beta: float = 1.0> (early, table, weight)
    z = Add (square, twice)
    again = Identity (z)
    table = Constant <value = float[3, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9}> ()
}
"""


@pytest.fixture
def model() -> Any:
    found = onnx.parser.parse_model(TEXT)
    # The text form wants order; the pass does not.
    nodes = sorted(found.graph.node, key=lambda node: node.op_type != "Constant")
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    for node in found.graph.node:
        node.doc_string = "made by hand"
    return found


def turn_round(node: Any) -> None:
    """Reverse what a node with graphs in it hands on: all outputs of an If, the carried ones of a Loop."""
    first = 1 if node.op_type == "Loop" else 0
    values = [(nested.output, first) for nested in subgraphs(node)] + [(node.output, 0)]
    if node.op_type == "Loop":
        values += [(next(subgraphs(node)).input, 2), (node.input, 2)]
    for found, start in values:
        moved = list(found)[start:][::-1]
        del found[start:]
        found.extend(moved)


def disguised(model: Any, seed: int) -> Any:
    """The same model with other internal names and in another order."""
    chance = random.Random(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    ends = {value.name for value in (*made.graph.input, *made.graph.output)}
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        return name if name in ends or not name else names.setdefault(name, f"n__{chance.randrange(10**9)}")

    def turn(graph: Any, *, ends_too: bool) -> None:
        for node in graph.node:
            node.name = f"node__{chance.randrange(10**9)}"
            node.input[:] = [rename(name) for name in node.input]
            node.output[:] = [rename(name) for name in node.output]
            node.attribute.sort(key=lambda _: chance.random())
            if node.op_type in ("If", "Loop"):
                turn_round(node)
            for nested in subgraphs(node):
                turn(nested, ends_too=True)
        for value in (*graph.initializer, *((*graph.input, *graph.output) if ends_too else ())):
            value.name = rename(value.name)
        graph.initializer.sort(key=lambda _: chance.random())
        graph.node.sort(key=lambda _: chance.random())

    turn(made.graph, ends_too=False)
    return made


def bytes_of(model: Any) -> bytes:
    return bytes(canonical(model).SerializeToString(deterministic=True))


def test_order_and_names_do_not_matter(model: Any) -> None:
    before = model.SerializeToString(deterministic=True)
    assert {bytes_of(disguised(model, seed)) for seed in range(8)} == {bytes_of(model)}
    assert model.SerializeToString(deterministic=True) == before
    assert bytes_of(canonical(model)) == bytes_of(model)


def test_the_model_stays_valid_and_computes_the_same(model: Any) -> None:
    made = canonical(model)
    onnx.checker.check_model(made, full_check=True)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for which in (True, False):
        feeds = {"x": x, "which": np.array(which), "LSTM_0": np.array(3, np.int64)}
        both = [
            onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"]).run(
                None, feeds
            )
            for found in (model, made)
        ]
        for old, new in zip(*both, strict=True):
            np.testing.assert_array_equal(old, new)


def test_names_are_unique_in_all_graphs(model: Any) -> None:
    made = canonical(model)
    nodes = [node.name for node in all_nodes(made.graph)]
    tensors = [name for node in all_nodes(made.graph) for name in node.output]
    tensors += [value.name for value in (*made.graph.input, *made.graph.initializer)]
    assert len(set(nodes)) == len(nodes)
    assert len(set(tensors)) == len(tensors)
    assert [value.name for value in made.graph.input] == ["x", "which", "LSTM_0"]
    assert [value.name for value in made.graph.output] == ["y", "z", "again"]


def test_what_does_not_count_goes(model: Any) -> None:
    made = canonical(model)
    ops = [node.op_type for node in all_nodes(made.graph)]
    # A branch and a body hand on what is not theirs, an output is another; `mid` is no one's.
    assert ops.count("Identity") == 3
    assert ops.count("Neg") == 1
    assert [tensor.name for tensor in made.graph.initializer] == ["constant_0", "constant_1"]
    assert not made.graph.value_info
    assert not made.doc_string + "".join(node.doc_string for node in all_nodes(made.graph))
    assert (made.producer_name, made.producer_version) == ("cudnn-convert", __version__)
    assert [(opset.domain, opset.version) for opset in made.opset_import] == [("", 17)]


def test_unknown_dimensions_are_numbered_and_known_names_kept(model: Any) -> None:
    made = canonical(model)
    found = [
        value.type.tensor_type.shape.dim[0].dim_param for value in (made.graph.input[0], *made.graph.output)
    ]
    assert found[0] == "dim_0"
    assert found[1].startswith("dim_")
    assert found[2:] == ["rows", "rows"]


def test_ends_are_renamed(model: Any) -> None:
    made = canonical(model, names={"x": "constant_0", "LSTM_0": "times", "again": "x"})
    onnx.checker.check_model(made, full_check=True)
    assert [value.name for value in made.graph.input] == ["constant_0", "which", "times"]
    assert [value.name for value in made.graph.output] == ["y", "z", "x"]
    assert "constant_0_" in [tensor.name for tensor in made.graph.initializer]


SCAN = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[2] c, float[2] h, float[time, 2] x, float[time, 2] w)
    => (float[2] c_n, float[2] h_n, float[time, 2] y)
{
    CARRIED_OUT, STACKED = Scan <num_scan_inputs = 2, body = step (CARRIED_IN, READ) => (CARRIED_NEXT, MADE)
        { next_c = Add (old_c, x_t)
          next_h = Mul (next_c, w_t)
          y_t = Sub (next_h, old_h)
          z_t = Add (next_h, old_h) }> (CARRIED, SCANNED)
    y = Mul (ys, zs)
}
"""
#: What a Scan hands on: words that are turned round together, the carried, the scanned and the stacked.
PAIRS = (
    {
        "CARRIED_OUT": ["c_n", "h_n"],
        "CARRIED_IN": ["float[2] old_c", "float[2] old_h"],
        "CARRIED_NEXT": ["float[2] next_c", "float[2] next_h"],
        "CARRIED": ["c", "h"],
    },
    {"READ": ["float[2] x_t", "float[2] w_t"], "SCANNED": ["x", "w"]},
    {"STACKED": ["ys", "zs"], "MADE": ["float[2] y_t", "float[2] z_t"]},
)


def test_the_order_of_what_a_scan_hands_on_does_not_matter() -> None:
    found = set()
    for turns in product((1, -1), repeat=len(PAIRS)):
        text = SCAN
        for words, turn in zip(PAIRS, turns, strict=True):
            for word, pair in words.items():
                text = re.sub(rf"\b{word}\b", ", ".join(pair[::turn]), text)
        found.add(bytes_of(onnx.parser.parse_model(text)))
    assert len(found) == 1
    run = onnxruntime.InferenceSession(found.pop(), providers=["CPUExecutionProvider"])
    c, h = np.array([0.5, -1], np.float32), np.array([2, 0.25], np.float32)
    x, w = np.array([[1, 2], [3, 4]], np.float32), np.array([[0.5, 3], [-2, 1]], np.float32)
    c_n, h_n, y = run.run(["c_n", "h_n", "y"], {"c": c, "h": h, "x": x, "w": w})
    rows = []
    for t in range(2):
        c, old = c + x[t], h
        h = c * w[t]
        rows.append((h - old) * (h + old))
    np.testing.assert_allclose(np.stack([c_n, h_n, *y]), np.stack([c, h, *rows]), rtol=1e-6)


COUNTERS = """
<ir_version: 8, opset_import: ["" : 17]>
main (int64 rounds, int64 start) => (int64 y)
<bool yes = {1}>
{
    one_n, other_n, sum_n = Loop <body = step (int64 k, bool go, int64 one, int64 other, int64 sum)
        => (bool still, int64 next_one, int64 next_other, int64 next_sum)
        <int64 unit = {1}>
        { still = Identity (go)
          next_one = Add (one, unit)
          next_other = Add (other, unit)
          next_sum = Add (sum, READ) }> (rounds, yes, start, start, start)
    y = Sub (sum_n, READ_n)
}
"""


@pytest.mark.parametrize("inner", ["one", "other"])
def test_which_of_two_equal_counters_is_read_does_not_matter(inner: str) -> None:
    found = {
        bytes_of(onnx.parser.parse_model(COUNTERS.replace("READ_n", f"{outer}_n").replace("READ", inner)))
        for outer in ("one", "other")
    }
    (only,) = found | {bytes_of(onnx.parser.parse_model(COUNTERS.replace("READ", "one")))}
    run = onnxruntime.InferenceSession(only, providers=["CPUExecutionProvider"])
    # From 5: 5 + 5 + 6 + 7 less the 8 that the counter then stands at.
    (y,) = run.run(None, {"rounds": np.array(3), "start": np.array(5)})
    assert y == 15


def test_no_remark_is_left_anywhere(model: Any) -> None:
    graph = model.graph
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    for told in (*graph.input, *graph.output, *graph.initializer, *attributes):
        told.doc_string = "a remark"
    assert b"a remark" not in bytes_of(model)


def test_properties_of_the_model_stay_in_order(model: Any) -> None:
    onnx.helper.set_model_props(model, {"b": "2", "a": "3", "c": "1"})
    found = [(entry.key, entry.value) for entry in canonical(model).metadata_props]
    assert found == [("a", "3"), ("b", "2"), ("c", "1")]


DOMAINS = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2, "unread" : 3]>
main (float[n, 3] x) => (float[n, 3] y) { y = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x) }
"""


def test_the_domains_that_are_used_stay_and_the_first_always() -> None:
    made = canonical(onnx.parser.parse_model(DOMAINS))
    assert [(opset.domain, opset.version) for opset in made.opset_import] == [("", 17), ("ai.onnx.ml", 2)]
    assert [(node.domain, node.op_type) for node in made.graph.node] == [("ai.onnx.ml", "Scaler")]


def test_outputs_that_nobody_wants_keep_their_place() -> None:
    """The second of an LSTM's, and an optional input before one that is there."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[1, 1, 1] x, float[1, 4, 1] w, float[1, 4, 1] r, float[1, 1, 1] c) => (float[1, 1, 1] c_n)
    { , , c_n = LSTM <hidden_size = 1> (x, w, r, , , , c) }
    """
    (node,) = canonical(onnx.parser.parse_model(text)).graph.node
    assert [*node.output] == ["", "", "c_n"]
    assert [*node.input] == ["x", "w", "r", "", "", "", "c"]
