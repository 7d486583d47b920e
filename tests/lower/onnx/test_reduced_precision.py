"""ONNX weights stored as half, and LSTMs in int8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import reduced_precision
from cudnn_convert.lower.onnx.finish import Finished
from cudnn_convert.lower.onnx.reduced_precision import Quantized
from cudnn_convert.model import Array

# Matrices stored as half: which, what reads them, and what half cannot hold.

RNG = np.random.default_rng(5)
W, R = RNG.normal(size=(2, 72, 6)).astype("f4"), RNG.normal(size=(2, 72, 18)).astype("f4")
B = RNG.normal(size=(2, 144)).astype("f4") * 100
TABLE, SMALL = RNG.normal(size=(43, 6)).astype("f4"), RNG.normal(size=(17, 15)).astype("f4")
LARGE = RNG.normal(size=(16, 16)).astype("f4")
VECTOR, IDS = RNG.normal(size=300).astype("f4"), np.arange(300).reshape(20, 15)


def made() -> Finished:
    """An LSTM over the rows of a table, beside constants of other kinds; W and half of R come in parts."""
    table = {
        "table": TABLE,
        "W": W,
        "R": R,
        "B": B,
        "small": SMALL,
        "large": LARGE,
        "vector": VECTOR,
        "ids": IDS,
    }
    constants = [numpy_helper.from_array(value, name) for name, value in table.items()]
    for constant in constants:
        if constant.name in ("W", "R"):
            constant.ClearField("raw_data")
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"]),
        helper.make_node("LSTM", ["rows", "W", "R", "B"], ["y"], hidden_size=18, direction="bidirectional"),
        *(
            helper.make_node("ReduceSum", [name], [f"sum_{name}"], keepdims=0)
            for name in ("small", "large", "vector", "ids")
        ),
        helper.make_node("Neg", ["vector"], ["large_half"]),
        helper.make_node("Sum", ["large"] * 4, ["fourfold"]),
        helper.make_node("LSTM", ["rows", "W", "R"], ["plain"], hidden_size=18, direction="bidirectional"),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, ["t", 2, "b", 18])]
    outputs += [helper.make_tensor_value_info(f"sum_{name}", 1, []) for name in ("small", "large", "vector")]
    outputs += [helper.make_tensor_value_info("sum_ids", 7, [])]
    outputs += [helper.make_tensor_value_info("large_half", 1, [300])]
    outputs += [helper.make_tensor_value_info("fourfold", 1, [16, 16])]
    outputs += [helper.make_tensor_value_info("plain", 1, ["t", 2, "b", 18])]
    x = helper.make_tensor_value_info("x", 7, ["t", "b"])
    graph = helper.make_graph(nodes, "main", [x], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Finished(model, {"W": lambda: iter([W[:1], W[1:]]), "R": lambda: iter([R[0], R[1]])})


def test_matrices_alone_are_stored_as_half() -> None:
    model = reduced_precision.to_float16(made()).whole()
    stored = {one.name: (one.data_type, [*one.dims]) for one in model.graph.initializer}
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    assert stored == {
        "table_half": (half, [43, 6]),
        "W_half": (half, [2, 72, 6]),
        "R_half": (half, [2, 72, 18]),
        "B": (single, [2, 144]),
        "small": (single, [17, 15]),
        "large_half_": (half, [16, 16]),
        "vector": (single, [300]),
        "ids": (onnx.TensorProto.INT64, [20, 15]),
    }
    onnx.checker.check_model(model, full_check=True)


def test_what_is_computed_is_single_of_rounded_weights() -> None:
    x = RNG.integers(0, 43, (5, 3))
    exact = made()
    rounded = {name: (lambda value=value: iter([rounding(value)])) for name, value in (("W", W), ("R", R))}
    expected = Finished(exact.model, rounded).whole()
    for constant in expected.graph.initializer:
        if constant.name in ("table", "large"):
            values = rounding(numpy_helper.to_array(constant))
            constant.CopyFrom(numpy_helper.from_array(values, constant.name))
    for one, other in zip(run(reduced_precision.to_float16(exact).whole(), x), run(expected, x), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(run(exact.whole(), x)[0], run(expected, x)[0])


def rounding(values: Array) -> Array:
    return values.astype("f2").astype("f4")


def run(model: Any, x: Array) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def test_the_model_that_is_given_stays_as_it_is() -> None:
    given = made()
    before = given.model.SerializeToString(deterministic=True), set(given.weights)
    reduced_precision.to_float16(given)
    assert (given.model.SerializeToString(deterministic=True), set(given.weights)) == before


@pytest.mark.parametrize(
    ("value", "fits"), [(65504.0, True), (-65504.0, True), (65520.0, False), (-1e9, False)]
)
@pytest.mark.filterwarnings("error")
def test_what_half_cannot_hold_is_refused(value: float, fits: bool) -> None:
    given = made()

    def parts() -> Iterator[Array]:
        yield np.where(W[1, 2, 3] == W, np.float32(value), W)

    weights = reduced_precision.to_float16(Finished(given.model, {**given.weights, "W": parts}))
    if fits:
        assert np.isfinite(numpy_helper.to_array(weights.whole().graph.initializer[1])).all()
        return
    with pytest.raises(UnsupportedModelError) as caught:
        weights.whole()
    what = f"expected numbers up to 65504, as half holds them, found {value:g}; leave out --weights-dtype"
    assert str(caught.value) == f"onnx: W: {what}"


def test_infinities_of_the_source_stay() -> None:
    given = made()
    odd = np.where(W[1, 2, 3] == W, np.float32(np.inf), np.where(W[0, 1, 1] == W, np.float32(np.nan), W))
    model = reduced_precision.to_float16(
        Finished(given.model, {**given.weights, "W": lambda: iter([odd])})
    ).whole()
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[1]), odd.astype("f2"))


# LSTMs in int8: near a NumPy LSTM of the exact weights, far from it with a wrong one; what stays float.

INPUTS, UNITS, STEPS, BATCH = 5, 7, 9, 3
LENGTHS = np.array([4, 9, 1], np.int32)
#: Of numbers near 1; every mistake below makes at least ten times that.
BOUND = 0.02


def drawing() -> Callable[..., Array]:
    """The same numbers for each test, whichever run before it."""
    chance = np.random.default_rng(11)
    return lambda *shape: chance.normal(scale=0.4, size=shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(x: Array, weights: list[Array], h: Array, c: Array) -> list[Array]:
    """One direction of one row of the batch in float64: ONNX has the gates i, o, f, c; `[y, h, c]`."""
    w, r, b, p = weights
    y = np.zeros((len(x), UNITS))
    for step in range(len(x)):
        i, o, f, g = (w @ x[step] + r @ h + b[: 4 * UNITS] + b[4 * UNITS :]).reshape(4, UNITS)
        i, f = sigmoid(i + p[:UNITS] * c), sigmoid(f + p[2 * UNITS :] * c)
        c = f * c + i * np.tanh(g)
        h = sigmoid(o + p[UNITS : 2 * UNITS] * c) * np.tanh(c)
        y[step] = h
    return [y, h, c]


class Layer:
    """A layer with all that an LSTM node can have: lengths, states that are not zero, peepholes."""

    def __init__(self, directions: int) -> None:
        gates, drawn = 4 * UNITS, drawing()
        self.w, self.r = drawn(directions, gates, INPUTS), drawn(directions, gates, UNITS)
        self.r[0, 3] *= 40  # a row that makes every other one coarse where all have one scale
        self.b, self.p = drawn(directions, 2 * gates), 3 * drawn(directions, 3 * UNITS)
        self.h, self.c = drawn(directions, BATCH, UNITS), drawn(directions, BATCH, UNITS)
        self.x = drawn(STEPS, BATCH, INPUTS)

    def expected(self) -> list[Array]:
        directions = len(self.w)
        y = np.zeros((STEPS, directions, BATCH, UNITS))
        h, c = np.zeros((directions, BATCH, UNITS)), np.zeros((directions, BATCH, UNITS))
        for k, row in np.ndindex(directions, BATCH):
            count = LENGTHS[row]
            backwards = slice(None, None, -1 if k else 1)
            weights = [value[k].astype(np.float64) for value in (self.w, self.r, self.b, self.p)]
            steps, states = self.x[:count, row][backwards], (self.h[k, row], self.c[k, row])
            found, h[k, row], c[k, row] = lstm(steps, weights, *states)
            y[:count, k, row] = found[backwards]
        return [y, h, c]

    def model(self) -> Finished:
        directions = len(self.w)
        names = ["x", "W", "R", "B", "lengths", "h0", "c0", "P"]
        way = "bidirectional" if directions == 2 else "forward"
        node = helper.make_node("LSTM", names, ["y", "h", "c"], hidden_size=UNITS, direction=way)
        states = [directions, BATCH, UNITS]
        shapes = {"x": [STEPS, BATCH, INPUTS], "h0": states, "c0": states}
        inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
        inputs.append(helper.make_tensor_value_info("lengths", 6, [BATCH]))
        outputs = [helper.make_tensor_value_info(name, 1, None) for name in "yhc"]
        values = {"W": self.w, "R": self.r, "B": self.b, "P": self.p}
        constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
        parts = {"W": [*self.w.reshape(-1, UNITS, INPUTS)], "R": [*self.r], "B": [self.b]}
        for constant in constants[:3]:
            constant.ClearField("raw_data")
        graph = helper.make_graph([node], "main", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
        return Finished(model, {name: (lambda found=found: iter(found)) for name, found in parts.items()})

    def error(self, model: Any) -> float:
        feeds = {"x": self.x, "lengths": LENGTHS, "h0": self.h, "c0": self.c}
        return max(
            np.abs(one - two).max()
            for one, two in zip(run_quantized(model, feeds), self.expected(), strict=True)
        )


def run_quantized(model: Any, feeds: dict[str, Array]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def values(model: Any) -> dict[str, Array]:
    return {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


@pytest.fixture(params=[1, 2], ids=["one direction", "two directions"])
def layer(request: pytest.FixtureRequest) -> Layer:
    return Layer(request.param)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are long enough here for scales of their own."""
    monkeypatch.setattr(reduced_precision, "_FEW_UNITS", UNITS - 1)


@pytest.mark.usefixtures("few")
def test_short_rows_share_a_scale(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduced_precision, "_FEW_UNITS", UNITS)
    layer.w[0, 2] = 0  # a row without a scale of its own changes nothing for the others
    layer.r[0, 3] /= 40
    model = reduced_precision.to_int8(layer.model()).model.whole()
    assert 1e-5 < layer.error(model) < 2 * BOUND
    found = values(model)
    for name, exact in (("W", layer.w), ("R", layer.r)):
        scale = found[f"{name}_scale"]
        assert scale.shape == found[f"{name}_zero"].shape == (len(exact),)
        np.testing.assert_allclose(scale * 64, np.abs(exact).max(axis=(1, 2)), rtol=1e-6)
        gap = np.abs(found[f"{name}_int8"].swapaxes(1, 2) * scale[:, None, None].astype(np.float64) - exact)
        assert (gap <= 0.501 * scale[:, None, None]).all()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("units", "short"), [(64, True), (65, False)])
def test_up_to_64_units_rows_are_short(units: int, short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale for each row would take a good part of so short a step."""
    monkeypatch.undo()  # what is few is the module's own
    weights = onnx.TensorProto(name="W", data_type=1, dims=[2, 4 * units, 3])
    weights.raw_data = np.ones((2, 4 * units, 3), "<f4").tobytes()
    inputs = [helper.make_tensor_value_info("x", 1, [1, 1, 3])]
    node = helper.make_node("LSTM", ["x", "W", "W"], ["y"], hidden_size=units, direction="bidirectional")
    graph = helper.make_graph(
        [node], "main", inputs, [helper.make_tensor_value_info("y", 1, None)], [weights]
    )
    found = values(reduced_precision.to_int8(Finished(helper.make_model(graph), {})).model.whole())
    assert found["W_scale"].shape == ((2,) if short else (2, 4 * units))


@pytest.mark.usefixtures("few")
def test_answers_are_near_those_of_exact_weights(layer: Layer) -> None:
    found = reduced_precision.to_int8(layer.model())
    model = found.model.whole()
    assert layer.error(layer.model().whole()) < 1e-5
    assert 1e-5 < layer.error(model) < BOUND
    assert (found.nodes, found.left) == (1, {})
    (node,) = model.graph.node
    assert (node.op_type, node.domain) == ("DynamicQuantizeLSTM", "com.microsoft")
    assert {one.domain: one.version for one in model.opset_import} == {"": 11, "com.microsoft": 1}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("W_int8", lambda w: np.roll(w, UNITS, axis=2)),
        ("W_int8", lambda w: w[:, ::-1]),
        ("R_int8", lambda r: np.roll(r, UNITS, axis=2)),
        ("R_int8", lambda r: r.reshape(-1, UNITS, 4, UNITS).swapaxes(1, 3).reshape(r.shape)),
        ("B", lambda b: b * np.repeat([1, 0], 4 * UNITS)),
        ("B", lambda b: b * np.repeat([0, 1], 4 * UNITS)),
        ("P", lambda p: p * 0),
        ("P", lambda p: np.roll(p, UNITS, axis=1)),
        ("W_scale", lambda scale: np.roll(scale, UNITS, axis=1)),
        ("R_scale", lambda scale: scale.max(axis=1, keepdims=True).repeat(4 * UNITS, axis=1)),
        ("W_int8", lambda w: w[::-1]),
        ("R_int8", lambda r: r[::-1]),
        ("B", lambda b: b[::-1]),
    ],
)
def test_a_wrong_weight_is_seen(name: str, wrong: Callable[[Array], Array]) -> None:
    layer = Layer(2)
    model = reduced_precision.to_int8(layer.model()).model.whole()
    (tensor,) = (one for one in model.graph.initializer if one.name == name)
    changed = wrong(numpy_helper.to_array(tensor)).astype(numpy_helper.to_array(tensor).dtype)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), name))
    assert layer.error(model) > 10 * BOUND


@pytest.mark.usefixtures("few")
def test_each_row_has_a_scale_of_its_own_and_seven_bits(layer: Layer) -> None:
    """More bits would saturate where a processor adds two products in 16."""
    layer.w[0, 2] = 0
    found = values(reduced_precision.to_int8(layer.model()).model.whole())
    for name, exact in (("W", layer.w), ("R", layer.r)):
        stored, scale = found[f"{name}_int8"], found[f"{name}_scale"]
        assert stored.shape == (len(exact), exact.shape[2], 4 * UNITS)
        assert scale.shape == found[f"{name}_zero"].shape == (len(exact), 4 * UNITS)
        assert (stored.dtype, scale.dtype, found[f"{name}_zero"].dtype) == (np.int8, np.float32, np.int8)
        assert not found[f"{name}_zero"].any()
        rows = stored.swapaxes(1, 2)
        largest = np.abs(rows.astype(int)).max(axis=2)
        assert set(largest.ravel()) == ({0, 64} if name == "W" else {64})
        gap = np.abs(rows * scale[..., None].astype(np.float64) - exact)
        assert (gap <= 0.501 * scale[..., None]).all()
    assert found["W_scale"][0, 2] == 1


@pytest.mark.usefixtures("few")
def test_values_come_when_they_are_written(layer: Layer) -> None:
    """The scales need them once; what is stored is made of them again, direction by direction."""
    given, asked = layer.model(), []

    def parts() -> Iterator[Array]:
        asked.append("W")
        yield layer.w

    found = reduced_precision.to_int8(Finished(given.model, {**given.weights, "W": parts})).model
    assert asked == ["W"]
    assert set(found.weights) == {"W_int8", "R_int8", "B"}
    stored = [*found.weights["W_int8"]()]
    assert asked == ["W"] * 2
    assert [one.shape for one in stored] == [(INPUTS, 4 * UNITS)] * len(layer.w)
    assert all(one.flags.c_contiguous and one.dtype == np.int8 for one in stored)
    assert {one.name: one.HasField("raw_data") for one in found.model.graph.initializer} == {
        "B": False,
        "P": True,
        **{"W_int8": False, "W_scale": True, "W_zero": True},
        **{"R_int8": False, "R_scale": True, "R_zero": True},
    }


@pytest.mark.usefixtures("few")
def test_the_model_that_becomes_int8_stays_as_it_is(layer: Layer) -> None:
    given = layer.model()
    before = given.model.SerializeToString(deterministic=True), set(given.weights)
    reduced_precision.to_int8(given)
    assert (given.model.SerializeToString(deterministic=True), set(given.weights)) == before


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_no_finite_number_is_refused(value: float) -> None:
    layer = Layer(2)
    layer.r[1, 6, 2] = value
    with pytest.raises(UnsupportedModelError) as caught:
        reduced_precision.to_int8(layer.model())
    found = f"{abs(value):g}"
    what = f"expected finite numbers to store as int8, found {found}; leave out --quantize and --max-error"
    assert str(caught.value) == f"onnx: R: {what}"


@pytest.mark.usefixtures("few")
def test_the_smallest_numbers_are_stored() -> None:
    """A scale that float32 rounds to zero would divide by it."""
    layer = Layer(1)
    layer.w[0, 2] = np.float32(1e-45)
    found = values(reduced_precision.to_int8(layer.model()).model.whole())
    assert not found["W_int8"][0, :, 2].any()
    assert found["W_scale"][0, 2] == 1


def network() -> Any:
    """LSTMs that share weights, in branches too; one of computed weights, one of doubles; a GRU, RNNs."""
    drawn = drawing()
    w, r = drawn(1, 4 * UNITS, INPUTS), drawn(1, 4 * UNITS, UNITS)
    value, inner = helper.make_tensor_value_info, {"hidden_size": UNITS}
    constants = {"W": w, "R": r, "R2": r[:, ::-1].copy(), "DW": w.astype("f8"), "DR": r.astype("f8")}
    constants |= {"GW": w[:, : 3 * UNITS], "GR": r[:, : 3 * UNITS], "NW": w[:, :UNITS], "NR": r[:, :UNITS]}
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("LSTM", ["x", "W", "R3"], ["z"], **inner)],
            "then",
            [],
            [value("z", 1, None)],
            [numpy_helper.from_array(-r, "R3")],
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("LSTM", ["x", "W4", "R"], ["u"], **inner)],
            "else",
            [],
            [value("u", 1, None)],
            [numpy_helper.from_array(-w, "W4")],
        ),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R"], ["y"], **inner),
        helper.make_node("LSTM", ["x", "W", "R2"], ["y2"], **inner),
        helper.make_node("Neg", ["R2"], ["R2_int8"]),
        helper.make_node("LSTM", ["x", "W", "R2_int8"], ["computed"], **inner),
        helper.make_node("LSTM", ["xd", "DW", "DR"], ["double"], **inner),
        helper.make_node("GRU", ["x", "GW", "GR"], ["gru"], **inner),
        helper.make_node("RNN", ["x", "NW", "NR"], ["rnn"], **inner),
        helper.make_node("RNN", ["x", "NW", "NR"], ["rnn2"], **inner),
        helper.make_node("If", ["which"], ["branch"], **branches),
    ]
    shape = [STEPS, BATCH, INPUTS]
    inputs = [value("x", 1, shape), value("xd", 11, shape), value("which", 9, []), value("W_scale", 1, [])]
    outputs = [value(name, 1, None) for name in ("y", "y2", "computed", "branch", "gru")]
    named = [numpy_helper.from_array(np.ascontiguousarray(found), name) for name, found in constants.items()]
    graph = helper.make_graph(nodes, "main", inputs, outputs, named)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.usefixtures("few")
def test_nodes_that_share_weights_share_what_is_stored() -> None:
    model = network()
    given = values(model)
    found = reduced_precision.to_int8(Finished(model, {"R": lambda: iter([given["R"]])}))
    graph = found.model.model.graph
    first, second, *_, whole = graph.node
    assert [*first.input] == ["x", "W_int8", "R_int8", *[""] * 5, "W_scale_", "W_zero", "R_scale", "R_zero"]
    assert [*second.input][1:3] == ["W_int8", "R2_int8_"]
    then, other = (attribute.g for attribute in whole.attribute)
    if then.name == "else":
        then, other = other, then
    assert [*then.node[0].input][1:3] == ["W_int8", "R3_int8"]
    assert [*other.node[0].input][1:3] == ["W4_int8", "R_int8"]
    assert [one.name for one in then.initializer] == ["R3_int8", "R3_scale", "R3_zero"]
    assert [one.name for one in other.initializer] == ["W4_int8", "W4_scale", "W4_zero"]
    kept = {"W", "R2", "DW", "DR", "GW", "GR", "NW", "NR"}  # a node that stays float reads W
    stored = {one.name for one in graph.initializer}
    assert len(stored) == len(graph.initializer)  # each is stored once
    assert {name for name in stored if "_" not in name} == kept
    assert [*found.model.weights] == ["R_int8"]
    assert (found.nodes, found.left) == (4, {"LSTM": 2, "GRU": 1, "RNN": 2})


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("which", [True, False])
def test_shared_weights_and_branches_compute_as_before(which: bool) -> None:
    model = network()
    del model.graph.node[4]  # ONNX Runtime has no LSTM of doubles
    found = reduced_precision.to_int8(Finished(model, {})).model.whole()
    x = drawing()(STEPS, BATCH, INPUTS)
    feeds = {"x": x, "xd": x.astype("f8"), "which": np.array(which), "W_scale": np.array(3, np.float32)}
    for one, other in zip(run_quantized(found, feeds), run_quantized(model, feeds), strict=True):
        np.testing.assert_allclose(one, other, atol=BOUND, rtol=0)
        assert np.abs(other).max() > 10 * BOUND


@pytest.mark.usefixtures("few")
def test_a_constant_that_is_an_output_stays() -> None:
    given = Layer(1).model()
    given.model.graph.output.append(helper.make_tensor_value_info("W", 1, None))
    found = reduced_precision.to_int8(given).model
    assert {"W", "W_int8"} <= set(values(found.whole()))
    assert {"W", "W_int8"} <= set(found.weights)


@pytest.mark.usefixtures("few")
def test_a_model_without_an_lstm_stays_as_it_is() -> None:
    model = network()
    nodes = [node for node in model.graph.node if node.op_type in ("GRU", "RNN")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    found = reduced_precision.to_int8(Finished(model, {}))
    assert found.model.model == model
    assert (found.nodes, found.left) == (0, {"GRU": 1, "RNN": 2})


@pytest.mark.usefixtures("few")
def test_notes_tell_what_is_int8_and_what_is_not() -> None:
    model = Finished(onnx.ModelProto(), {})
    ours = "LSTM nodes in int8, an op of ONNX Runtime's own (com.microsoft DynamicQuantizeLSTM): 3"
    left = "still float32, for only LSTMs with constant weights can be int8: 2 GRU, 1 LSTM"
    assert [*reduced_precision.notes(Quantized(model, 3, {}))] == [ours]
    assert [*reduced_precision.notes(Quantized(model, 0, {"LSTM": 1, "GRU": 2}))] == [left]
    assert [*reduced_precision.notes(Quantized(model, 3, {"LSTM": 1, "GRU": 2}))] == [ours, left]
