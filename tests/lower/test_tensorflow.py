"""The TensorFlow lowering against the float64 reference, in a Session and after `tf.saved_model.load`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import UNITS, Case, swapped

from cudnn_convert.artifacts.saved_model import open_parts as opened
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.session import session
from cudnn_convert.keras.config.classes import NOTHING
from cudnn_convert.lower.tensorflow.layer_stack import COMPILED, layer_weights, stack, uses_block
from cudnn_convert.lower.tensorflow.lower import Form, lower
from cudnn_convert.model import SERVING, Cell, InMemory, Mode, Part, Signature, Sizes
from cudnn_convert.options import LOWERINGS
from cudnn_convert.recurrences.parameter_source import find_parameters
from cudnn_convert.targets import saved_model as write_saved_model
from cudnn_convert.weights.lazy import Layers

#: (steps, batch): long and short, one of each, and a run without steps.
SHAPES = ((7, 3), (4, 5), (1, 1), (0, 2))
#: float32 accumulates over some ten products a step; double is compared near its own rounding.
BOUNDS = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}


def answers(
    case: Case, lowering: str, shapes: tuple[tuple[int, int], ...] = SHAPES, recurrence: Any = None
) -> list[Any]:
    """Pairs of what the lowered graph gives and what the reference does, for each shape and output."""
    graph, signature = case.graph()
    outputs = list(signature.outputs.values())
    made = lower(graph, [recurrence or case.recurrence()], {}, outputs=outputs, lowering=lowering)
    turn = (lambda value: value) if case.time_major else swapped
    pairs = []
    with session(made.graph, made.variables) as running:
        for steps, batch in shapes:
            feeds = case.feeds(steps, batch)
            fed = {name: turn(feeds[key]) for key, name in signature.inputs.items()}
            if case.mode is not Mode.LSTM:
                fed["c:0"] = np.zeros((), case.dtype)
            found = running.run(outputs, fed)
            pairs += zip(map(turn, found), case.expected(feeds), strict=True)
    return pairs


def agrees(case: Case, lowering: str, **given: Any) -> None:
    bound = BOUNDS[case.dtype]
    pairs = answers(case, lowering, **given)
    for found, expected in pairs:
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_direction_and_depth(mode: Mode, directions: int, layers: int, lowering: str) -> None:
    agrees(Case(mode, layers, directions), lowering)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize("mode", list(Mode))
def test_ragged_lengths_with_an_empty_row(mode: Mode, time_major: bool, lowering: str) -> None:
    agrees(Case(mode, 2, 2, "CudnnRNNV3", time_major), lowering)


@pytest.mark.parametrize("op", ["CudnnRNN", "CudnnRNNV3"])
@pytest.mark.parametrize("mode", list(Mode))
def test_xla_compiles_each_recurrence(mode: Mode, op: str) -> None:
    """For the shapes of each call; of a run without steps it can make nothing."""
    case = Case(mode, 2, 2, op, time_major=op == "CudnnRNN")
    agrees(case, COMPILED, shapes=((4, 3), (1, 2)))


def test_each_recurrence_is_one_call_that_xla_compiles() -> None:
    case = Case(Mode.RNN_TANH)
    graph, signature = case.graph()
    outputs = [*signature.outputs.values()]
    made = lower(graph, [case.recurrence()], {}, outputs=outputs, lowering=COMPILED).graph
    (call,) = (node for node in made.node if node.op == "PartitionedCall")
    assert (call.name, call.attr["_XlaMustCompile"].b) == ("rnn", True)


@pytest.mark.parametrize(("mode", "early"), [(Mode.RNN_RELU, False), (Mode.LSTM, True)])
def test_large_weights_of_a_loop_are_made_when_they_are_written(mode: Mode, early: bool) -> None:
    """A block's are never large by themselves."""
    case, asked = Case(mode), []
    right, (graph, signature) = case.recurrence(), case.graph()

    def decode(layer: int) -> tuple[Cell, ...]:
        asked.append(layer)
        return right.cells[layer]

    outputs = [*signature.outputs.values()]
    made = lower(graph, [dataclasses.replace(right, cells=Layers(1, decode))], {}, outputs=outputs)
    assert bool(asked) == early
    expected = lower(graph, [right], {}, outputs=outputs)
    assert made.graph.definition == expected.graph.definition
    assert [*made.variables] == [*expected.variables]
    for name, tensor in expected.variables.items():
        assert made.variables[name].shape == tensor.shape
        np.testing.assert_array_equal(made.variables[name].read(), tensor.read())


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", list(Mode))
def test_other_dtypes(mode: Mode, dtype: str) -> None:
    agrees(Case(mode, 1, 2, "CudnnRNNV2", dtype=dtype), "fast")


def test_a_row_without_steps_keeps_its_initial_state() -> None:
    case = Case(Mode.LSTM, 1, 2, "CudnnRNNV3")
    feeds = case.feeds(7, 3)
    assert feeds["lengths"][1] == 0
    (_, _), (h, _), (c, _) = answers(case, "fast", shapes=((7, 3),))
    np.testing.assert_array_equal(h[:, 1], feeds["h"][:, 1])
    np.testing.assert_array_equal(c[:, 1], feeds["c"][:, 1])


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_only_lstms_of_float_and_half_take_the_block(lowering: str) -> None:
    for mode in Mode:
        for dtype in BOUNDS:
            recurrence = Case(mode, dtype=dtype).recurrence()
            expected = lowering == "fast" and mode is Mode.LSTM and dtype in ("float32", "float16")
            assert uses_block(recurrence, lowering) == expected
    for dtype in BOUNDS:
        projected = Case(Mode.LSTM, op="CudnnRNNV3", dtype=dtype, projection=3).recurrence()
        assert uses_block(projected, lowering) == (lowering == "fast" and dtype == "float32")


def test_what_a_cache_does_not_hold_takes_the_loop_where_it_is_projected_or_large() -> None:
    """Of the widest layer both kernels, `[inputs + units, 4*units]`: a MiB, and more; of all 256 MiB."""
    found = Case(Mode.LSTM).recurrence()
    for sizes, dtype, expected in (
        (Sizes(Mode.LSTM, 1, 1, 384, 128), "float32", True),
        (Sizes(Mode.LSTM, 1, 1, 128, 385), "float32", True),
        (Sizes(Mode.LSTM, 1, 1, 2880, 2880), "float32", True),
        (Sizes(Mode.LSTM, 1, 1, 2912, 2912), "float32", False),
        (Sizes(Mode.LSTM, 1, 1, 2912, 2912), "float16", True),
        (Sizes(Mode.LSTM, 1, 1, 128, 384, False, 100), "float32", True),
        (Sizes(Mode.LSTM, 1, 1, 128, 385, False, 100), "float32", False),
    ):
        one = dataclasses.replace(found, sizes=sizes, dtype=np.dtype(dtype))
        assert uses_block(one, "fast") == expected


@pytest.mark.parametrize(("op", "lowering"), [("CudnnRNN", "fast"), ("CudnnRNNV3", "portable")])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_skipped_input(mode: Mode, op: str, lowering: str) -> None:
    agrees(Case(mode, 2, 2, op, input_mode="skip_input"), lowering)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("projection", [1, 3, UNITS])
@pytest.mark.parametrize(("layers", "directions", "time_major"), [(1, 1, False), (2, 2, True), (3, 1, False)])
def test_a_projection(layers: int, directions: int, time_major: bool, projection: int, lowering: str) -> None:
    case = Case(Mode.LSTM, layers, directions, "CudnnRNNV3", time_major, projection=projection)
    agrees(case, lowering)
    if projection < UNITS:  # a square one may be near to none of full rank
        assert uses_block(case.recurrence(), lowering) == (lowering == "fast")


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_projection_in_other_dtypes(dtype: str) -> None:
    agrees(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", dtype=dtype, projection=3), "fast")


@pytest.mark.parametrize("projection", [2, UNITS])
@pytest.mark.parametrize("input_mode", ["skip_input", "auto_select"])
def test_a_skipped_input_and_a_projection_together(input_mode: str, projection: int) -> None:
    agrees(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", input_mode=input_mode, projection=projection), "fast")


class Dependent(Case):
    """Two rows of the projection are all but the same: no initial state goes through its inverse in float."""

    @property
    def blob(self) -> Any:
        found = super().blob
        end = found.size - 8 * self.units  # of the one pseudo-layer's matrices, the projection last
        found[end - self.units : end] = found[end - 2 * self.units : end - self.units] * 1.0001
        return found


def test_a_projection_without_an_inverse_takes_the_loop() -> None:
    case = Dependent(Mode.LSTM, op="CudnnRNNV3", projection=3)
    agrees(case, "fast")
    assert not uses_block(case.recurrence(), "fast")


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("part", ["kernel", "recurrent_kernel", "projection"])
def test_a_matrix_turned_or_moved_shows(part: str, lowering: str) -> None:
    """All of one size, so that only their order tells them apart."""
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", input_mode="skip_input", projection=UNITS)
    recurrence = case.recurrence()
    spoiled = [
        [dataclasses.replace(cell, **{part: turned(cell, part)}) for cell in layer]
        for layer in recurrence.cells
    ]
    spoiled[0] = recurrence.cells[0] if part == "kernel" else spoiled[0]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        agrees(case, lowering, recurrence=dataclasses.replace(recurrence, cells=spoiled))


def turned(cell: Any, part: str) -> Any:
    return getattr(cell, part).swapaxes(-1, -2).reshape(getattr(cell, part).shape)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("place", ["cond", "while"])
@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_inside_control_flow_after_loading(
    tmp_path: Path, v1_control_flow: None, mode: Mode, place: str, lowering: str
) -> None:
    """A Session forgives nodes outside their frame; `tf.saved_model.load` does not."""
    case = Case(mode, 2, 2)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        times = tf.compat.v1.placeholder("int32", [], "times")
        again = lambda state: case.op_call(x, state, c).output_h  # noqa: E731
        if place == "cond":
            last = tf.compat.v1.cond(times > 0, lambda: again(h), lambda: h * 2.0, name="cond")
        else:
            loop = lambda k, state: (k + 1, again(state))  # noqa: E731
            last = tf.compat.v1.while_loop(lambda k, _: k < times, loop, [tf.constant(0), h], name="while")[1]
        tf.identity(last, name="last")
    definition, keys = graph.as_graph_def(), ("x", "h", "c", "times")
    signature = Signature({key: f"{key}:0" for key in keys}, {"last": "last:0"})
    made = lower(definition, [case.recurrence(f"{place}/rnn")], {}, outputs=["last:0"], lowering=lowering)
    part = Part(SERVING, signature)
    write_saved_model.write(tmp_path, made.graph, (part,), made.variables, provenance="{}")
    (run,) = opened(tmp_path, [part], NOTHING)
    for repeats in (0, 1, 1 if place == "cond" else 3):
        feeds = case.feeds()
        given = {**feeds, "c": feeds["c"] if mode is Mode.LSTM else np.float32(0), "times": np.int32(repeats)}
        found = run(given)["last"]
        expected = feeds["h"] * 2 if place == "cond" and not repeats else feeds["h"]
        for _ in range(repeats):
            expected = case.expected({**feeds, "h": expected})[1]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def lowered(cases: dict[str, Case], **options: Any) -> Any:
    """One graph of a node for each case, its name and its blob's by the key; `shared` names are `<key>`."""
    recurrences = []
    with tf.Graph().as_default() as graph:
        for shared, case in cases.items():
            node = shared.replace("/", "_")
            with tf.name_scope(f"around_{node}/"):
                inputs = case.placeholders()
            tf.identity(case.op_call(*inputs, name=node).output, name=f"{node}_y")
            recurrences.append(dataclasses.replace(case.recurrence(node), shared=shared))
    outputs = [f"{shared.replace('/', '_')}_y:0" for shared in cases]
    return lower(graph.as_graph_def(), recurrences, {}, outputs=outputs, **options)


def stems(made: Any) -> set[str]:
    return {name.rpartition("/")[0] for name in made.variables}


def test_variables_are_named_after_the_scope_of_their_blob() -> None:
    both = {"forward", "backward"}
    found = stems(lowered({"scope/rnn/blob": Case(Mode.GRU, 2, 2)}))
    assert found == {f"scope/rnn/layer_{layer}/{way}" for layer in (0, 1) for way in both}
    assert stems(lowered({"blob": Case(Mode.LSTM)})) == {"layer_0/forward"}
    assert stems(lowered({"blob": Case(Mode.LSTM, dtype="float64")})) == {"layer_0/forward_float64"}
    found = stems(lowered({"a/one": Case(Mode.LSTM), "a/two": Case(Mode.GRU), "b/one": Case(Mode.LSTM)}))
    assert found == {f"{scope}/layer_0/forward" for scope in ("a/one", "a/two", "b")}


def test_each_direction_s_weights_have_its_name() -> None:
    case = Case(Mode.RNN_TANH, 1, 2)
    found = lowered({"rnn/blob": case}).variables
    for way, cell in zip(("forward", "backward"), case.recurrence().cells[0], strict=True):
        np.testing.assert_array_equal(found[f"rnn/layer_0/{way}/kernel"].read(), cell.kernel[0].T)


def test_new_variables_stand_before_the_graph_and_handles_before_their_reads() -> None:
    names = [node.name for node in lowered({"blob": Case(Mode.LSTM)}).graph.node]
    fresh = [f"layer_0/forward/{name}{end}" for name in ("kernel", "bias") for end in ("", "/read")]
    assert names[:4] == fresh


@pytest.mark.parametrize("lowering", LOWERINGS)
def test_the_block_is_taken_where_it_may_be(lowering: str) -> None:
    found = {node.op for node in lowered({"blob": Case(Mode.LSTM)}, lowering=lowering).graph.node}
    assert ("BlockLSTM" in found) == (lowering == "fast")


@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_shapes_stay_known(mode: Mode, time_major: bool) -> None:
    """Of what is no LSTM the cell state is whatever it was, here a scalar."""
    case = Case(mode, 2, 2, time_major=time_major)
    made = lowered({"blob": case})
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(made.graph.definition, name="")
    depth = [4, None] if time_major else [None, 4]
    state = [*depth, UNITS]
    found = [graph.get_tensor_by_name(f"blob:{k}").shape for k in range(3)]
    assert [shape.as_list() for shape in found[:2]] == [[None, None, 2 * UNITS], state]
    assert found[2] == tf.TensorShape(state if mode is Mode.LSTM else [])


@pytest.mark.usefixtures("v1_control_flow")
@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("which", [True, False])
def test_weights_go_the_way_of_the_blob_into_a_branch_of_a_loop(
    which: bool, shared: bool, lowering: str
) -> None:
    """The blob passes an Enter and a Switch, outermost first; each node stands in a branch of its own."""
    case = Case(Mode.LSTM)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        chosen = tf.compat.v1.placeholder("bool", [], "chosen")
        blob = tf.raw_ops.VariableV2(shape=case.blob.shape, dtype=tf.float32, name="blob")

        def call(state: Any, sign: float, name: str) -> Any:
            return tf.raw_ops.CudnnRNN(
                input=x * sign, input_h=state, input_c=c, params=blob, is_training=False, name=name
            ).output_h

        def step(k: Any, state: Any) -> Any:
            branch = tf.compat.v1.cond(
                chosen, lambda: call(state, 1.0, "yes"), lambda: call(state, -1.0, "no"), name="cond"
            )
            return k + 1, branch

        last = tf.compat.v1.while_loop(lambda k, _: k < 2, step, [tf.constant(0), h], name="while")[1]
        tf.identity(last, name="last")
    definition = graph.as_graph_def()
    if shared:  # as a tool leaves it that merges equal nodes
        nodes = {node.name: node for node in definition.node}
        yes, no = nodes["while/cond/yes"], nodes["while/cond/no"]
        assert yes.input[3].endswith(":1")
        no.input[3] = yes.input[3].removesuffix(":1")
    index = Index(definition)
    recurrences = []
    for name in ("while/cond/yes", "while/cond/no"):
        origin = find_parameters(index, index.nodes[name])
        assert [index.nodes[op].op for op in origin.passage] == ["RefEnter", "RefSwitch"]
        found = dataclasses.replace(case.recurrence(name), shared="blob", passage=origin.passage)
        recurrences.append(found)
    values = {"blob": InMemory(case.blob)}
    made = lower(definition, recurrences, values, outputs=["last:0"], lowering=lowering)
    feeds = case.feeds()
    with session(made.graph, made.variables) as running:
        given = {f"{key}:0": feeds[key] for key in ("x", "h", "c")} | {"chosen:0": which}
        (found,) = running.run(["last:0"], given)
    expected = feeds["h"]
    for _ in range(2):
        x = feeds["x"] if which else -feeds["x"]
        expected = case.expected({**feeds, "x": x, "h": expected})[1]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_form_s_weights_stay_references_where_the_source_s_are() -> None:
    """TensorFlow 1's checkpoints are read back into such."""
    case = Case(Mode.GRU)
    with tf.Graph().as_default() as graph:
        y = case.op_call(*case.placeholders()).output
        tf.identity(y * tf.raw_ops.VariableV2(shape=[UNITS], dtype=tf.float32, name="w"), name="y")
    recurrence, scale = case.recurrence(), np.arange(1, UNITS + 1, dtype=np.float32)
    form = Form(
        lambda found: {
            f"mine/{key}": value for key, value in layer_weights(found.cells[0][0], block=False).items()
        },
        lambda found: stack(found, "portable"),
    )
    for given, kept in ((form, True), (None, False)):
        made = lower(
            graph.as_graph_def(), [recurrence], {"w": InMemory(scale)}, outputs=["y:0"],
            lowering="portable", form=given,
        )  # fmt: skip
        assert ("VariableV2" in {node.op for node in made.graph.node}) == kept
        assert ("mine/gates_kernel" in made.variables) == kept
        feeds = case.feeds()
        with session(made.graph, made.variables) as running:
            found = running.run("y:0", {"x:0": feeds["x"], "h:0": feeds["h"], "c:0": 0.0})
        np.testing.assert_allclose(found, case.expected(feeds)[0] * scale, rtol=1e-5, atol=1e-4)


def test_a_form_sees_steps_rows_and_inputs() -> None:
    """The shapes that are known while it is traced: time-major x and its states."""
    case, seen = Case(Mode.LSTM, 2), []
    graph, signature = case.graph()

    def compute(x: Any, h: Any, c: Any, *rest: Any) -> tuple[Any, Any, Any]:
        seen.extend(one.shape.as_list() for one in (x, h, c))
        return x, h, c

    form = Form(lambda _: {}, lambda _: compute)
    lower(graph, [case.recurrence()], {}, outputs=[*signature.outputs.values()], form=form)
    assert seen == [[None, None, case.inputs], [2, None, UNITS], [2, None, UNITS]]
