"""The fused nodes of a recurrence, in a graph made by hand, in ONNX Runtime."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from support.cases import BATCH, INPUTS, STEPS, UNITS, Case

from cudnn_convert.lower.onnx import fused_nodes
from cudnn_convert.model import Array, Mode

FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
EVERY_MODE = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
#: ONNX Runtime 1.23.2, the last for Python 3.10, ends the process on a plain RNN of 0 steps; 1.31.1 does not.
OLD_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)


class Made(fused_nodes.NodeBuilder):
    """Nodes in lists, x having the number of steps that it is told."""

    opset = 17

    def __init__(self, known: int = -1) -> None:
        self.known, self.nodes, self.constants = known, list[Any](), list[Any]()

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        names = [f"{op}_{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def steps(self, x: str) -> int:
        assert x == "x"
        return self.known


def graph(case: Case, *, states: bool = True, known: int = -1, before: Sequence[Case] = ()) -> Any:
    """Of x, h, c and lengths, as far as the case has them, weights redeemed; `before` come other cases."""
    made, lstm = Made(known), case.mode is Mode.LSTM
    recurrences = [one.recurrence() for one in (*before, case)]
    kept = [*"hc"][: 2 if lstm else 1] if states else []
    lengths = "lengths" if case.op == "CudnnRNNV3" else ""
    found = fused_nodes.stack(made, recurrences[-1], "x", kept, lengths, owner=len(before))
    keys = [*"yhc"][: 3 if lstm else 2]
    made.nodes += [
        helper.make_node("Identity", [name], [f"{key}_n"]) for key, name in zip(keys, found, strict=True)
    ]
    shapes = {"x": [None, None, case.inputs], "h": [None] * 3, "c": [None] * 3}
    inputs = [helper.make_tensor_value_info(key, FLOAT, shapes[key]) for key in ("x", *kept)]
    inputs += [helper.make_tensor_value_info(lengths, INT32, [None])] if lengths else []
    outputs = [helper.make_tensor_value_info(f"{key}_n", FLOAT, [None] * 3) for key in keys]
    result = helper.make_graph(made.nodes, "main", inputs, outputs, made.constants)
    weights = fused_nodes.attach_weights(result, recurrences)
    for tensor in result.initializer:
        if tensor.name in weights:
            fused_nodes.fill(tensor, weights[tensor.name])
    return result


def run(made: Any, feeds: dict[str, Array]) -> list[Array]:
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    running = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {entry.name: feeds[entry.name] for entry in running.get_inputs()}
    return list(running.run(None, given))


def judged(case: Case, made: Any, shapes: Sequence[tuple[int, int]], *, states: bool = True) -> None:
    for steps, batch in shapes:
        feeds = case.feeds(steps, batch)
        for key in ("h", "c"):
            feeds[key] = feeds[key] * np.float32(states)
        for got, expected in zip(run(made, feeds), case.expected(feeds), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def counts(made: Any) -> dict[str, int]:
    return dict(collections.Counter(node.op_type for node in made.node if node.op_type != "Identity"))


def fused(made: Any) -> list[Any]:
    return [node for node in made.node if node.op_type in {"LSTM", "GRU", "RNN"}]


@pytest.mark.parametrize("op", ["CudnnRNN", "CudnnRNNV3"])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (1, 2), (3, 1), (2, 2)])
@EVERY_MODE
def test_every_mode_and_depth(mode: Mode, layers: int, directions: int, op: str) -> None:
    case = Case(mode, layers, directions, op)
    spared = OLD_RUNTIME and mode in {Mode.RNN_TANH, Mode.RNN_RELU}
    shapes = [(STEPS, BATCH), (1, 1), *([] if spared else [(0, 2)])]
    judged(case, graph(case), shapes)
    judged(case, graph(case, states=False), shapes, states=False)


@pytest.mark.parametrize("projection", [1, 3])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
def test_a_projection(layers: int, directions: int, projection: int) -> None:
    case = Case(Mode.LSTM, layers, directions, "CudnnRNNV3", projection=projection)
    judged(case, graph(case), [(STEPS, BATCH), (0, 2)])
    judged(case, graph(case, states=False), [(STEPS, BATCH)], states=False)


@pytest.mark.parametrize("known", [1, STEPS])
def test_nothing_stands_beside_the_node_of_one_layer(known: int) -> None:
    """One layer's states are all there are, and a known number of steps needs no care for none."""
    for mode, op in ((Mode.LSTM, "LSTM"), (Mode.GRU, "GRU"), (Mode.RNN_RELU, "RNN")):
        made = graph(Case(mode), known=known)
        assert counts(made) == {op: 1, "Squeeze": 1}
        judged(Case(mode), made, [(known, BATCH)])


@pytest.mark.parametrize("known", [0, -1])
def test_a_run_that_may_have_no_steps_keeps_its_states(known: int) -> None:
    assert counts(graph(Case(Mode.LSTM), known=known)) == {
        "LSTM": 1, "Squeeze": 1, "Shape": 1, "Slice": 1, "Equal": 1, "Where": 2,
    }  # fmt: skip
    judged(Case(Mode.LSTM), graph(Case(Mode.LSTM), known=known), [(0, 2)])


@pytest.mark.parametrize("directions", [1, 2])
def test_a_run_without_steps_or_states_gives_zeros(directions: int) -> None:
    """ONNX Runtime alone gives what lies in memory, mostly zeros in a fresh process."""
    case = Case(Mode.LSTM, 2, directions)
    made = graph(case, states=False)
    for batch in (1, 2, 5, 40):
        y, h, c = run(made, case.feeds(0, batch))
        assert y.shape == (0, batch, directions * UNITS)
        assert h.shape == c.shape == (2 * directions, batch, UNITS)
        assert not h.any()
        assert not c.any()
    assert counts(made)["Where"] == 2


def test_what_a_fused_node_says() -> None:
    """onnx v1.18 docs/Operators.md: no input after the last that is given, all attributes in their words."""
    gru, relu = (fused(graph(Case(mode, 1, 2), known=1))[0] for mode in (Mode.GRU, Mode.RNN_RELU))
    attributes = [
        {found.name: helper.get_attribute_value(found) for found in node.attribute} for node in (gru, relu)
    ]
    assert attributes == [
        {"direction": b"bidirectional", "hidden_size": UNITS, "linear_before_reset": 1},
        {"direction": b"bidirectional", "hidden_size": UNITS, "activations": [b"Relu", b"Relu"]},
    ]
    for mode in (Mode.LSTM, Mode.GRU):
        (node,) = fused(graph(Case(mode), states=False, known=1))
        assert len(node.input) == 4
        (node,) = fused(graph(Case(mode, op="CudnnRNNV3"), states=False, known=1))
        assert [*node.input][4:] == ["lengths"]
        (node,) = fused(graph(Case(mode), known=1))
        assert [*node.input][4:] == ["", *(["h", "c"] if mode is Mode.LSTM else ["h"])]


@EVERY_MODE
def test_a_node_with_lengths_of_the_model_clips_what_no_float_passes(mode: Mode) -> None:
    """OpenVINO ignores lengths of others; the lengths that a GRU of unknown steps gets are all its steps."""
    largest = float(np.finfo(np.float32).max)
    for case, clips in ((Case(mode, 2, 2, "CudnnRNNV3"), [largest, largest]), (Case(mode, 2, 2), [])):
        attributes = [each for node in fused(graph(case)) for each in node.attribute]
        assert [helper.get_attribute_value(each) for each in attributes if each.name == "clip"] == clips


def test_a_ticket_says_whose_weights_it_stands_for() -> None:
    case = Case(Mode.GRU, 2, 2)
    judged(case, graph(case, before=[Case(Mode.LSTM), Case(Mode.GRU, 2, 1)]), [(STEPS, BATCH)])


def ticket(name: str, slot: int) -> Any:
    return numpy_helper.from_array(np.array([0, 0, slot, fused_nodes.MARK], np.float32), name)


def lstm(names: Sequence[str] = ("x", "w", "r", "b")) -> Any:
    return helper.make_node("LSTM", names, ["y", "h"], hidden_size=UNITS, direction="forward")


def test_redeemed_tickets_have_shapes_and_no_values() -> None:
    """Two nodes may read one; what is a weight already stays, and so do lengths, were there three rows."""
    case = Case(Mode.LSTM)
    tickets = [ticket(name, slot) for slot, name in enumerate(("w", "r", "b"))]
    own = numpy_helper.from_array(np.ones((1, 4 * UNITS, INPUTS), np.float32), "own")
    rows = numpy_helper.from_array(np.array([2, 1, 0], np.int32), "rows")
    nodes = [lstm(), lstm(), lstm(["x", "own", "fed", "b", "rows"])]
    made = helper.make_graph(nodes, "main", [], [], [*tickets, own, rows])
    found = fused_nodes.attach_weights(made, [case.recurrence()])
    assert found.keys() == {"w", "r", "b"}
    shapes = {"w": [1, 4 * UNITS, INPUTS], "r": [1, 4 * UNITS, UNITS], "b": [1, 8 * UNITS]}
    for tensor in made.initializer:
        if tensor.name in shapes:
            assert [*tensor.dims] == shapes[tensor.name]
            assert not tensor.raw_data
            fused_nodes.fill(tensor, found[tensor.name])
            assert numpy_helper.to_array(tensor).shape == tuple(shapes[tensor.name])
    np.testing.assert_array_equal(numpy_helper.to_array(made.initializer[3]), np.ones((1, 4 * UNITS, INPUTS)))
    np.testing.assert_array_equal(numpy_helper.to_array(made.initializer[4]), [2, 1, 0])


def test_tickets_of_nested_graphs_are_filled_at_once() -> None:
    case = Case(Mode.LSTM)
    cell = case.recurrence().cells[0][0]
    inner = helper.make_graph([lstm()], "inner", [], [], [ticket("w", 0), ticket("r", 1), ticket("b", 2)])
    choice = helper.make_node("If", ["which"], ["y"], then_branch=inner, else_branch=inner)
    made = helper.make_graph([choice], "main", [], [], [ticket("w", 0)])
    assert fused_nodes.attach_weights(made, [case.recurrence()]) == {}
    order = [0, 3, 1, 2]  # i, o, f, c where cuDNN has i, f, c, o
    for attribute in made.node[0].attribute:
        w, r, b = map(numpy_helper.to_array, attribute.g.initializer)
        np.testing.assert_array_equal(w, cell.kernel[order].reshape(1, 4 * UNITS, INPUTS))
        np.testing.assert_array_equal(r, cell.recurrent_kernel[order].reshape(1, 4 * UNITS, UNITS))
        pair = [part[order].reshape(-1) for part in (cell.bias, cell.recurrent_bias)]
        np.testing.assert_array_equal(b, np.concatenate(pair)[None])
    np.testing.assert_array_equal(numpy_helper.to_array(made.initializer[0])[:3], [0, 0, 0])


def test_each_fused_node_has_its_layer() -> None:
    """Also in nested graphs, which may read constants of the graph around them; other constants are none."""
    recurrences = [Case(Mode.LSTM, 2).recurrence("one"), Case(Mode.LSTM, 3).recurrence("two")]

    def marked(name: str, owner: int, layer: int, mark: float = fused_nodes.MARK) -> Any:
        return numpy_helper.from_array(np.array([owner, layer, 0, mark], np.float32), name)

    def named(name: str, weights: str) -> Any:
        return helper.make_node("LSTM", ["x", weights, weights, weights], ["y"], name)

    inner = helper.make_graph([named("c", "w2"), named("d", "outer")], "inner", [], [], [marked("w2", 1, 2)])
    nodes = [
        named("a", "w0"),
        named("b", "w1"),
        helper.make_node("If", ["which"], ["y"], "if", then_branch=inner),
        helper.make_node("Add", ["x", "w0"], ["z"], "sum"),
        named("e", "other"),
        named("f", "fed"),
    ]
    constants = [marked("w0", 0, 1), marked("w1", 1, 0), marked("outer", 0, 0), marked("other", 0, 0, 1.0)]
    layers = fused_nodes.map_layers(helper.make_graph(nodes, "main", [], [], constants), recurrences)
    assert layers == [
        {"piece": piece, "node": node, "layer": layer}
        for piece, node, layer in (("a", "one", 1), ("b", "two", 0), ("c", "two", 2), ("d", "one", 0))
    ]
