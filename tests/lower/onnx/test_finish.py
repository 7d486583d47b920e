"""The end of every way to ONNX: refusals, one sequence of bytes, what nothing reads."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.cases import Case, swapped

from cudnn_convert.errors import UsageError
from cudnn_convert.lower.onnx import finish
from cudnn_convert.lower.onnx.finish import canonical, lower, trim_unread
from cudnn_convert.lower.onnx.walk import all_nodes, subgraphs
from cudnn_convert.model import Array, Cell, Mode
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.version import __version__
from cudnn_convert.weights.lazy import LazyLayers

# The end of every way to ONNX: what is refused there, and what comes out.

HEAD = '<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 2, "mine" : 1]>'


def parsed(nodes: str) -> Any:
    return onnx.parser.parse_model(f"{HEAD} main (float[n, 3] x) => (float[n, 3] y) {{ {nodes} }}")


def test_the_lowest_ir_version_that_knows_the_opset() -> None:
    made = finish.finish_model(parsed("y = Neg (x)"), []).model
    assert (made.ir_version, [entry.domain for entry in made.opset_import]) == (8, [""])


@pytest.mark.parametrize("opset", [10, 19])
def test_opsets_that_are_not_known(opset: int) -> None:
    with pytest.raises(UsageError, match=f"^--opset: expected 11 to 18, found {opset}$"):
        finish.require(opset)


@pytest.mark.parametrize("opset", [11, 18])
def test_the_first_and_the_last_opset_that_are(opset: int) -> None:
    finish.require(opset)


# A recurrence that is a whole model, in every form that its signature can take, in ONNX Runtime.

MODES = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def single(case: Case, *, batch_major: bool = False, states: bool = False) -> Single:
    return Single("encoder", case.recurrence("encoder/CudnnRNN"), batch_major, states)


def fed(one: Single, feeds: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """`(what the model takes, what the reference takes)`; states are zeros where none are taken."""
    zeros = {} if one.states else {key: np.zeros_like(feeds[key]) for key in ("h", "c")}
    feeds = {**feeds, **zeros}
    named = {"initial_h": "h", "initial_c": "c", "sequence_lengths": "lengths"}
    given = {key: feeds[named[key]] for key in one.inputs if key in named}
    return {"inputs": swapped(feeds["x"]) if one.batch_major else feeds["x"]} | given, feeds


def agrees(case: Case, one: Single, *, opset: int = 17) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = lower(one, opset=opset).whole().SerializeToString()
    run = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    assert [entry.name for entry in run.get_inputs()] == [*one.inputs]
    assert [entry.name for entry in run.get_outputs()] == [*one.outputs]
    bound = max(1e-5, float(np.finfo(case.dtype).eps))
    for steps, batch in ((7, 3), (1, 2), (4, 5)):
        given, feeds = fed(one, case.feeds(steps, batch))
        y, *rest = run.run(None, given)
        found = [swapped(y) if one.batch_major else y, *rest]
        for got, want in zip(found, case.expected(feeds), strict=True):
            assert got.dtype == case.dtype
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


@MODES
@pytest.mark.parametrize("directions", [1, 2])
def test_every_signature_of_every_mode(mode: Mode, directions: int) -> None:
    for op, batch_major, states in product(("CudnnRNN", "CudnnRNNV3"), (False, True), (False, True)):
        case = Case(mode, 2, directions, op)
        agrees(case, single(case, batch_major=batch_major, states=states))


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_taken_and_given(dtype: str) -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", dtype=dtype)
    agrees(case, single(case, batch_major=True, states=True))


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
@MODES
def test_other_opsets(mode: Mode, opset: int) -> None:
    """The axes of Squeeze and Unsqueeze became an input with opset 13."""
    case = Case(mode, 1, 1, "CudnnRNNV3")
    agrees(case, single(case, states=True), opset=opset)


def test_another_opset_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--opset: expected 11 to 18, found 19$"):
        lower(single(Case(Mode.LSTM)), opset=19)


@MODES
def test_a_row_of_length_0_gives_the_initial_state(mode: Mode) -> None:
    """ONNX Runtime alone would give zeros."""
    case = Case(mode, 1, 1, "CudnnRNNV3")
    one = single(case, states=True)
    run = onnxruntime.InferenceSession(
        lower(one).whole().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given, feeds = fed(one, case.feeds())
    given["sequence_lengths"] = np.zeros_like(given["sequence_lengths"])
    y, h, *_ = run.run(None, given)
    assert not y.any()
    np.testing.assert_array_equal(h, feeds["h"])


def test_a_run_of_no_steps_gives_the_initial_states() -> None:
    """ONNX Runtime alone would give zeros."""
    case = Case(Mode.LSTM, 2, 2)
    one = single(case, states=True)
    run = onnxruntime.InferenceSession(
        lower(one).whole().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given, feeds = fed(one, case.feeds(0, 2))
    y, h, c = run.run(None, given)
    assert y.shape == (0, 2, 2 * case.units)
    np.testing.assert_array_equal(h, feeds["h"])
    np.testing.assert_array_equal(c, feeds["c"])


def test_nothing_is_in_the_graph_that_does_nothing() -> None:
    case = Case(Mode.LSTM, 2, 1)
    plain, full = (lower(single(case, states=states)).whole().graph for states in (False, True))
    guard = {"Shape": 1, "Equal": 1, "Where": 2}  # against a run of no steps
    assert Counter(node.op_type for node in plain.node) == {"LSTM": 2, "Squeeze": 2, "Concat": 2, **guard}
    assert "Transpose" not in {node.op_type for node in full.node}
    widths = [
        [size.dim_param or size.dim_value for size in one.type.tensor_type.shape.dim] for one in full.input
    ]
    assert widths == [["time", "batch", case.inputs], *[[2, "batch", case.units]] * 2]


@MODES
def test_large_weights_are_read_when_they_are_written_and_not_before(mode: Mode) -> None:
    case, asked = Case(mode, 2, 2), []
    cells = case.recurrence().cells

    def decode(layer: int) -> tuple[Cell, ...]:
        asked.append(layer)
        return cells[layer]

    one = single(case)
    made = lower(replace(one, recurrence=replace(one.recurrence, cells=LazyLayers(2, decode))))
    assert asked == []
    assert made.whole() == lower(one).whole()
    assert {*asked} == {0, 1}


def test_the_same_bytes_every_time() -> None:
    one: Any = single(Case(Mode.GRU, 2, 2), batch_major=True, states=True)
    assert lower(one).whole() == lower(one).whole()


# One model, one sequence of bytes.

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


def dimensions(value: Any) -> list[int | str] | None:
    """Sizes and names of a value's dimensions, 0 where nothing is known; None without a shape."""
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_dimensions_of_size_0_are_unknown_ones() -> None:
    """tf2onnx gives them to the rows that a loop collects."""
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", [f"x{k}"], [f"y{k}"]) for k in range(2)],
            "graph",
            [
                onnx.helper.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, [f"unk__{k}", 3])
                for k in range(2)
            ],
            [
                onnx.helper.make_tensor_value_info(f"y{k}", onnx.TensorProto.FLOAT, [0, 0, 2])
                for k in range(2)
            ],
        )
    )
    outputs = canonical(model).graph.output
    names = [name for value in outputs for name in dimensions(value) or () if isinstance(name, str)]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"dim_\d", name) for name in names)


def test_axes_are_named_where_the_rank_fits() -> None:
    shapes = {"a": None, "b": [None, 4], "c": [None, 4, 5], "d": [7, "rows"], "e": [], "f": None}
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", values[:2], values[2:]))
    axes = {"a": ("batch", None, 3), "b": ("batch", None), "c": ("batch", 6), "e": (), "f": ()}
    finish.name_axes(model, axes)
    named = {value.name: dimensions(value) for value in (*model.graph.input, *model.graph.output)}
    assert named.pop("e") == named.pop("f") == []
    assert named == {"a": ["batch", 0, 3], "b": ["batch", 4], "c": [0, 4, 5], "d": [7, "rows"]}


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


# What an ONNX graph is not asked for any more, beside what ONNX Runtime makes of the graph as it was.


def leaned(text: str, opset: int = 15) -> tuple[Any, Any]:
    """A model of the graph that `text` is, and what becomes of it."""
    models = []
    for change in (False, True):
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
        if change:
            trim_unread(model.graph, opset)
        onnx.checker.check_model(model, full_check=True)
        models.append(model)
    return models[0], models[1]


def alike(before: Any, after: Any, feeds: dict[str, Any]) -> None:
    found, expected = (
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        for model in (after, before)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def ops(graph: Any) -> list[str]:
    return [node.op_type for node in graph.node]


def part(constants: str, *, inputs: str, shape: str = "Shape(x)") -> str:
    return f"""
    agraph (float[A, B, C] x) => (int64[n] y) <{constants}>
    {{
        shape = {shape}
        y = Slice(shape, {inputs})
    }}
    """


ENDS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("zero, one", [2]),
        ("one, two, zero", [3]),
        ("one, far, zero", [3, 4]),
        ("zero, two, zero, one", [2, 3]),
    ],
)
def test_a_part_of_a_shape_is_asked_for_at_once(inputs: str, expected: list[int]) -> None:
    before, after = leaned(part(ENDS, inputs=inputs))
    assert ops(before.graph) == ["Shape", "Slice"]
    assert ops(after.graph) == ["Shape", "Shape"]
    assert after.graph.node[1].input == ["x"]
    feeds = {"x": np.zeros((2, 3, 4), np.float32)}
    alike(before, after, feeds)
    run = onnxruntime.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    assert run.run(None, feeds)[0].tolist() == expected


def test_a_part_of_a_shape_in_a_branch_is_asked_for_at_once() -> None:
    before, after = leaned(f"""
        agraph (float[A, B] x, bool flag) => (int64[n] y)
        {{
            y = If (flag) <
                then_branch = t () => (int64[n] t) <{ENDS}> {{ s = Shape(x) t = Slice(s, zero, one) }},
                else_branch = e () => (int64[m] e) {{ e = Shape(x) }}
            >
        }}
        """)
    for flag in (True, False):
        alike(before, after, {"x": np.zeros((2, 3), np.float32), "flag": np.array(flag)})
    branches = {found.name: ops(found.g) for found in after.graph.node[0].attribute}
    assert branches == {"then_branch": ["Shape", "Shape"], "else_branch": ["Shape"]}


@pytest.mark.parametrize(
    ("constants", "inputs", "shape", "opset"),
    [
        (ENDS, "zero, one", "Shape(x)", 14),
        ("int64[1] a = {-1}, int64[1] b = {3}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {-1}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {1}, int64[1] b = {1}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {2}", "a, b, a, c", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {-1}", "a, b, c", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {1}", "a, b", "Shape <start = 1> (x)", 15),
        ("int64[1] a = {1}", "a, shape", "Shape <start = 2> (x)", 15),
    ],
)
def test_what_is_no_plain_part_of_a_shape_stays(constants: str, inputs: str, shape: str, opset: int) -> None:
    before, after = leaned(part(constants, inputs=inputs, shape=shape), opset)
    assert after == before


def test_a_part_whose_ends_are_computed_stays() -> None:
    before, after = leaned(
        "agraph (float[A, B] x, int64[1] a, int64[1] b) => (int64[n] y) { s = Shape(x) y = Slice(s, a, b) }"
    )
    assert after == before


def test_a_part_of_what_is_no_shape_stays() -> None:
    before, after = leaned(
        f"agraph (int64[A] x) => (int64[n] y) <{ENDS}> {{ s = Identity(x) y = Slice(s, zero, one) }}"
    )
    assert after == before


def recurrence(reads: str) -> str:
    """An LSTM of 3 inputs and 2 units, whose outputs are y, h and c."""
    return f"""
    agraph (float[T, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (float[a, b, c, d] out)
    {{
        y, h, c = LSTM <hidden_size = 2> (x, w, r)
        {reads}
    }}
    """


NESTED = """
    flag = Constant <value = bool {1}> ()
    one = If (flag) <
        then_branch = t () => (float[p, q, s] t) { t = Tanh(h) },
        else_branch = e () => (float[p, q, s] e) { e = Sigmoid(h) }
    >
    axes = Constant <value = int64[1] {0}> ()
    out = Unsqueeze(one, axes)
"""


@pytest.mark.parametrize(
    ("reads", "left"),
    [
        ("out = Identity(y)", ["y"]),
        ("unread = Tanh(c) out = Identity(y)", ["y"]),
        ("axes = Constant <value = int64[1] {0}> () out = Unsqueeze(h, axes)", ["y", "h"]),
        ("axes = Constant <value = int64[1] {0}> () out = Unsqueeze(c, axes)", ["y", "h", "c"]),
        (NESTED, ["y", "h"]),
    ],
)
def test_states_that_nobody_reads_are_not_given(reads: str, left: list[str]) -> None:
    before = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]>\n{recurrence(reads)}')
    after = onnx.ModelProto()
    after.CopyFrom(before)
    trim_unread(after.graph, 15)
    assert next(node.output for node in after.graph.node if node.op_type == "LSTM") == left
    if "unread" in reads:
        return  # what it stood on is gone, and it goes itself where nodes are put in order
    random = np.random.default_rng(1)
    shapes = {"x": (4, 2, 3), "w": (1, 8, 3), "r": (1, 8, 2)}
    alike(before, after, {key: random.normal(size=shape).astype("f") for key, shape in shapes.items()})


def test_a_node_of_another_domain_keeps_its_outputs() -> None:
    text = recurrence("out = Identity(y)").replace("LSTM", "other.LSTM")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15, "other" : 1]>\n{text}')
    trim_unread(model.graph, 15)
    assert next(node.output for node in model.graph.node if node.op_type == "LSTM") == ["y", "h", "c"]
