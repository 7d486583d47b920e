"""The TensorFlow lowering against the float64 reference, in graphs and functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import UNITS, Case, swapped
from support.keras_nodes import INPUTS, Layer
from support.keras_nodes import UNITS as KERAS_UNITS
from support.tiers import combinations
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert import reference
from cudnn_convert.artifacts.saved_model import open_parts as opened
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.session import session
from cudnn_convert.keras.config.classes import NOTHING
from cudnn_convert.lower.tensorflow import lower as lower_module
from cudnn_convert.lower.tensorflow.layer_stack import COMPILED, layer_weights, stack, uses_block
from cudnn_convert.lower.tensorflow.lower import WeightForm, lower
from cudnn_convert.model import SERVING, Array, Cell, Convention, InMemory, Mode, Part, Signature, Sizes
from cudnn_convert.options import LOWERINGS
from cudnn_convert.recurrences.parameter_source import find_parameters
from cudnn_convert.targets import saved_model as write_saved_model
from cudnn_convert.weights.lazy import LazyLayers

# The TensorFlow lowering against the float64 reference, in a Session and after `tf.saved_model.load`.

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


#: A mode, directions, layers: the block and the loop with several of each, and the other cells.
NETWORKS_OF_MODES = {
    (Mode.LSTM, 2, 2, "fast"),
    (Mode.LSTM, 1, 2, "portable"),
    (Mode.GRU, 2, 1, "portable"),
    (Mode.RNN_TANH, 2, 1, "fast"),
    (Mode.RNN_RELU, 1, 2, "portable"),
}


@combinations(
    lambda *case: case in NETWORKS_OF_MODES, mode=Mode, directions=[1, 2], layers=[1, 2], lowering=LOWERINGS
)
def test_every_mode_direction_and_depth(mode: Mode, directions: int, layers: int, lowering: str) -> None:
    agrees(Case(mode, layers, directions), lowering)


#: The block and cells of the loop, in either layout and with steps taken together and one by one.
RAGGED = {
    (Mode.LSTM, True, "fast"),
    (Mode.LSTM, False, "portable"),
    (Mode.GRU, False, "portable"),
    (Mode.RNN_TANH, True, "fast"),
}


@pytest.mark.first("Mode.GRU-batch_major-portable", "Mode.LSTM-time_major-fast")
@combinations(
    lambda *case: case in RAGGED,
    ids=lambda value: {True: "time_major", False: "batch_major"}[value] if isinstance(value, bool) else None,
    mode=Mode,
    time_major=[True, False],
    lowering=LOWERINGS,
)
def test_ragged_lengths_with_an_empty_row(mode: Mode, time_major: bool, lowering: str) -> None:
    agrees(Case(mode, 2, 2, "CudnnRNNV3", time_major), lowering)


@combinations(lambda *case: case == (Mode.RNN_RELU, "CudnnRNN"), mode=Mode, op=["CudnnRNN", "CudnnRNNV3"])
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
    made = lower(graph, [dataclasses.replace(right, cells=LazyLayers(1, decode))], {}, outputs=outputs)
    assert bool(asked) == early
    expected = lower(graph, [right], {}, outputs=outputs)
    assert made.graph.definition == expected.graph.definition
    assert [*made.variables] == [*expected.variables]
    for name, tensor in expected.variables.items():
        assert made.variables[name].shape == tensor.shape
        np.testing.assert_array_equal(made.variables[name].read(), tensor.read())


@combinations(
    lambda *case: case in {(Mode.LSTM, "float16"), (Mode.LSTM, "bfloat16"), (Mode.RNN_TANH, "float64")},
    mode=Mode,
    dtype=["float64", "float16", "bfloat16"],
)
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


@combinations(
    lambda mode, op: (mode, op) in {(Mode.LSTM, "CudnnRNN"), (Mode.GRU, "CudnnRNNV3")},
    mode=Mode,
    op=["CudnnRNN", "CudnnRNNV3"],
)
def test_a_skipped_input(mode: Mode, op: str) -> None:
    lowering = "fast" if op == "CudnnRNN" else "portable"
    agrees(Case(mode, 2, 2, op, input_mode="skip_input"), lowering)


#: Layers, directions, and whether the layout is time-major.
NETWORKS = [(1, 1, False), (2, 2, True), (3, 1, False)]


@combinations(
    lambda network, projection, _: (network, projection) in {(NETWORKS[1], 3), (NETWORKS[2], UNITS)},
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
    network=NETWORKS,
    projection=[1, 3, UNITS],
    lowering=LOWERINGS,
)
def test_a_projection(network: tuple[int, int, bool], projection: int, lowering: str) -> None:
    layers, directions, time_major = network
    case = Case(Mode.LSTM, layers, directions, "CudnnRNNV3", time_major, projection=projection)
    agrees(case, lowering)
    if projection < UNITS:  # a square one may be near to none of full rank
        assert uses_block(case.recurrence(), lowering) == (lowering == "fast")


@pytest.mark.slow("cudnn_convert/lower/tensorflow/")
@combinations(lambda dtype: dtype == "float16", dtype=["float64", "float16", "bfloat16"])
def test_a_projection_in_other_dtypes(dtype: str) -> None:
    agrees(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", dtype=dtype, projection=3), "fast")


@combinations(
    lambda input_mode, projection: (projection == 2) == (input_mode == "skip_input"),
    input_mode=["skip_input", "auto_select"],
    projection=[2, UNITS],
)
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


@combinations(
    lambda part, lowering: lowering == "fast" or part == "projection",
    part=["kernel", "recurrent_kernel", "projection"],
    lowering=LOWERINGS,
)
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


@pytest.mark.first("Mode.LSTM-while-fast")
@combinations(
    lambda *case: case in {(Mode.LSTM, "while", "fast"), (Mode.GRU, "cond", "portable")},
    mode=[Mode.LSTM, Mode.GRU],
    place=["cond", "while"],
    lowering=LOWERINGS,
)
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


@combinations(
    lambda mode, time_major: time_major == (mode is Mode.LSTM),
    ids=lambda value: {True: "time_major", False: "batch_major"}[value] if isinstance(value, bool) else None,
    mode=[Mode.LSTM, Mode.GRU],
    time_major=[True, False],
)
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
    form = WeightForm(
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

    form = WeightForm(lambda _: {}, lambda _: compute)
    lower(graph, [case.recurrence()], {}, outputs=[*signature.outputs.values()], form=form)
    assert seen == [[None, None, case.inputs], [2, None, UNITS], [2, None, UNITS]]


# cuDNN nodes in functions of a SavedModel, repaired, loaded and called, against the float64 reference.

FUNCTION_BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-9}
#: Each cell and version of the op, a layout, a projection, a skipped input and doubles. Two directions have
#: the mutants of repaired nodes.
BLOBS = [
    Case(Mode.LSTM, op="CudnnRNNV2"),
    Case(Mode.LSTM, op="CudnnRNNV3", projection=3),
    Case(Mode.RNN_RELU, layers=2, input_mode="skip_input"),
    Case(Mode.GRU, op="CudnnRNNV3", time_major=False, dtype="float64"),
]
MORE_BLOBS = [
    *(Case(mode, layers=2, directions=2, op="CudnnRNNV3", time_major=False) for mode in Mode),
    *(Case(mode, layers=2, directions=2) for mode in Mode),
    *(Case(mode, layers=2, input_mode="skip_input") for mode in Mode),
    Case(Mode.GRU, directions=2, op="CudnnRNNV3"),
    Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3),
    Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", dtype="float64"),
    Case(Mode.LSTM, op="CudnnRNNV3", time_major=False, dtype="float16"),
]


def label(case: Case) -> str:
    ways = f"{case.mode.value}-{case.layers}x{case.directions}-{case.op}-{case.dtype}"
    extra = ["batch_major"] * (not case.time_major) + [f"projection_{case.projection}"] * bool(
        case.projection
    )
    return "-".join([ways, *extra, *["skip_input"] * (case.input_mode == "skip_input")])


def repaired(
    module: tf.Module, call: Callable[..., Any], specs: Sequence[Any], folder: Path, *, lowering: str = "fast"
) -> Any:
    """`call` as a function of a SavedModel that was repaired and loaded again."""
    module.call = tf.function(call, input_signature=specs, autograph=False)
    tf.saved_model.save(module, str(folder))
    path = folder / "saved_model.pb"
    before = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    kept = before.SerializeToString(deterministic=True)
    made = lower_module.lower_functions(folder, before, Convention(), lowering=lowering)
    assert before.SerializeToString(deterministic=True) == kept
    path.write_bytes(made.SerializeToString())
    return tf.saved_model.load(str(folder))


def specs_of(case: Case) -> list[Any]:
    with tf.Graph().as_default():
        return [tf.TensorSpec(one.shape, one.dtype, one.op.name) for one in case.placeholders()]


def of_case(case: Case, folder: Path, **options: Any) -> Callable[[dict[str, Array]], list[Array]]:
    """The repaired node of a case, from and to time-major arrays."""
    count = 3 if case.mode is Mode.LSTM else 2
    loaded = repaired(
        tf.Module(), lambda *given: list(case.op_call(*given)[:count]), specs_of(case), folder, **options
    )

    def answer(feeds: dict[str, Array]) -> list[Array]:
        given = dict(feeds)
        if case.mode is not Mode.LSTM:
            given["c"] = np.zeros([], case.dtype)
        turned = given if case.time_major else {key: swapped(value) for key, value in given.items()}
        found = [value.numpy() for value in loaded.call(*(tf.constant(value) for value in turned.values()))]
        return found if case.time_major else [swapped(value) for value in found]

    return answer


def close(found: Sequence[Array], expected: Sequence[Array], dtype: str) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, atol=FUNCTION_BOUNDS[dtype], rtol=FUNCTION_BOUNDS[dtype])


@pytest.mark.first(
    "lstm-1x1-CudnnRNNV2-float32",
    "gru-1x1-CudnnRNNV3-float64-batch_major",
    "lstm-1x1-CudnnRNNV3-float32-projection_3",
)
@combinations(lambda case: case in BLOBS, ids=label, case=dict.fromkeys([*BLOBS, *MORE_BLOBS]))
def test_a_blob(tmp_path: Path, case: Case) -> None:
    """It stays a blob and is taken apart in every call; rows of length 0 and runs of no step among them."""
    answer = of_case(case, tmp_path)
    for steps, batch in ((7, 3), (1, 2), (0, 2)):
        feeds = case.feeds(steps, batch)
        close(answer(feeds), case.expected(feeds), case.dtype)


@combinations(lambda mode: mode is Mode.LSTM, mode=[Mode.LSTM, Mode.GRU])
def test_a_blob_in_plain_ops(tmp_path: Path, mode: Mode) -> None:
    case = Case(mode, layers=2, directions=2, op="CudnnRNNV3", time_major=False)
    answer = of_case(case, tmp_path, lowering="portable")
    close(answer(case.feeds()), case.expected(case.feeds()), "float32")
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    library = saved.meta_graphs[0].graph_def.library.function
    assert not any("Block" in node.op for function in library for node in function.node_def)


@pytest.mark.parametrize("lowering", ["fast", COMPILED])
def test_a_function_that_xla_compiles(tmp_path: Path, lowering: str) -> None:
    of_case(Case(Mode.GRU), tmp_path, lowering=lowering)
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    library = saved.meta_graphs[0].graph_def.library.function
    calls = [node for function in library for node in function.node_def if node.name == "rnn"]
    assert [node.attr["_XlaMustCompile"].b for node in calls] == [lowering == COMPILED]


def test_a_blob_that_the_program_changes(tmp_path: Path) -> None:
    case = Case(Mode.LSTM, layers=2)
    module = tf.Module()
    module.blob = tf.Variable(case.blob)

    def call(x: Any, h: Any, c: Any) -> Any:
        return tf.raw_ops.CudnnRNN(input=x, input_h=h, input_c=c, params=module.blob)[:3]

    loaded = repaired(module, call, specs_of(case), tmp_path)
    feeds = case.feeds()
    given = [tf.constant(value) for value in feeds.values()]
    close([value.numpy() for value in loaded.call(*given)], case.expected(feeds), "float32")
    other = case.blob[::-1].copy()
    loaded.blob.assign(other)
    steps = reference.steps_from_blob(
        other, "lstm", layers=2, directions=1, units=case.units, input_size=case.inputs
    )
    expected = reference.run(steps, *(feeds[key].astype(np.float64) for key in "xhc"), directions=1)
    close([value.numpy() for value in loaded.call(*given)], list(expected), "float32")


#: The switch between block and loop, and each cell in the loop; rows that are full, and that are not.
MATRICES = {
    ("fast", "lstm", "float32", True),
    ("fast", "gru", "float64", True),
    ("portable", "lstm", "float32", False),
}


@combinations(
    lambda *case: case in MATRICES,
    ids=lambda value: {True: "ragged", False: "full"}[value] if isinstance(value, bool) else None,
    lowering=["fast", "portable"],
    mode=["lstm", "gru"],
    dtype=["float32", "float64", "float16"],
    ragged=[False, True],
)
def test_matrices(tmp_path: Path, mode: str, dtype: str, ragged: bool, lowering: str) -> None:
    """Few steps and many go different ways, which must not be seen."""
    layer = Layer(mode, dtype)
    is_lstm = mode == "lstm"

    def call(x: Any, h: Any, c: Any, lengths: Any) -> Any:
        """`x [B, T, INPUTS]`; states `[B, 1, UNITS]`."""
        full = tf.fill([tf.shape(x)[0]], tf.shape(x)[1])
        found = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=h, input_c=c if is_lstm else tf.zeros([], dtype), params=layer.blob(),
            sequence_lengths=lengths if ragged else full, rnn_mode=mode, time_major=False,
        )  # fmt: skip
        return found[: 3 if is_lstm else 2]

    shapes = [None, None, INPUTS], *[[None, 1, KERAS_UNITS]] * 2
    specs = [*(tf.TensorSpec(shape, dtype) for shape in shapes), tf.TensorSpec([None], tf.int32)]
    loaded = repaired(layer, call, specs, tmp_path, lowering=lowering)
    matrices = reference.steps_from_blob(
        layer.blob().numpy(), mode, layers=1, directions=1, units=KERAS_UNITS, input_size=INPUTS
    )
    random = np.random.default_rng(3)
    for steps, rows in ((7, [7, 0, 3]), (4, [1, 4]), (3, [2, 3, 1]), (1, [1, 0]), (0, [0, 0])):
        x = random.normal(size=(len(rows), steps, INPUTS)).astype(dtype)
        h, c = (random.uniform(-1, 1, (len(rows), 1, KERAS_UNITS)).astype(dtype) for _ in "hc")
        lengths = np.array(rows, np.int32)
        found = loaded.call(*(tf.constant(value) for value in (x, h, c, lengths)))
        given = (swapped(value.astype(np.float64)) for value in (x, h, c))
        expected = reference.run(matrices, *given, directions=1, lengths=lengths if ragged else None)
        close([value.numpy() for value in found], [swapped(one) for one in expected[: len(found)]], dtype)


def test_what_only_gradients_read_is_empty(tmp_path: Path) -> None:
    """Outputs 3 and 4, inside a function and as its results."""
    case = Case(Mode.LSTM, op="CudnnRNNV3")

    def call(*given: Any) -> Any:
        found = case.op_call(*given)
        return [found[0], found[3], tf.size(found[3]) + 2, found[4]]

    loaded = repaired(tf.Module(), call, specs_of(case), tmp_path)
    feeds = case.feeds()
    y, reserved, size, host = (value.numpy() for value in loaded.call(*map(tf.constant, feeds.values())))
    close([y], case.expected(feeds)[:1], "float32")
    assert (reserved.shape, reserved.dtype, size) == ((0,), np.float32, 2)
    assert (host.shape, host.dtype) == ((0,), np.int8)


def test_the_shape_of_what_only_an_lstm_has(tmp_path: Path) -> None:
    """`output_c` of others is a scalar, whatever came in (tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc)."""

    def call(x: Any, h: Any, blob: Any) -> Any:
        return tf.raw_ops.CudnnRNN(input=x, input_h=h, input_c=[], params=blob, rnn_mode="rnn_tanh")[:3]

    case = Case(Mode.RNN_TANH)
    loaded = repaired(
        tf.Module(), lambda x, h: call(x, h, tf.constant(case.blob)), specs_of(case)[:2], tmp_path
    )
    feeds = case.feeds()
    *found, c = (value.numpy() for value in loaded.call(tf.constant(feeds["x"]), tf.constant(feeds["h"])))
    close(found, case.expected(feeds), "float32")
    assert c.shape == ()


def test_control_inputs_stay(tmp_path: Path) -> None:
    """What a node waited for, its call waits for."""
    case = Case(Mode.GRU)
    module = tf.Module()
    module.count = tf.Variable(0)

    def call(x: Any, h: Any, c: Any) -> Any:
        blob = tf.constant(case.blob)
        with tf.control_dependencies([module.count.assign_add(1)]):
            return tf.raw_ops.CudnnRNN(
                input=x, input_h=h, input_c=c, params=blob, rnn_mode="gru", name="rnn"
            )[0]

    loaded = repaired(module, call, specs_of(case), tmp_path)
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    nodes = [node for one in saved.meta_graphs[0].graph_def.library.function for node in one.node_def]
    (node,) = (node for node in nodes if node.name == "rnn")
    assert node.op == "PartitionedCall"
    assert any(name.startswith("^AssignAdd") for name in node.input), node.input
    feeds = case.feeds()
    given = [*map(tf.constant, (feeds["x"], feeds["h"])), tf.zeros([])]
    close([loaded.call(*given).numpy()], case.expected(feeds)[:1], "float32")
    assert loaded.count.numpy() == 1


def test_nothing_is_bound_to_a_gpu(tmp_path: Path) -> None:
    case = Case(Mode.GRU)

    def call(*given: Any) -> Any:
        with tf.device("/device:GPU:0"):
            return case.op_call(*given)[0] * 2

    repaired(tf.Module(), call, specs_of(case), tmp_path)
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    assert not [node.name for node in nodes if "GPU" in node.device.upper()]


def stored(case: Case, folder: Path) -> tuple[Any, Any]:
    """A SavedModel proto whose one function calls the node of a case, and the node in it."""
    module = tf.Module()
    module.call = tf.function(lambda *given: case.op_call(*given)[0], input_signature=specs_of(case))
    tf.saved_model.save(module, str(folder))
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    library = saved.meta_graphs[0].graph_def.library.function
    (node,) = (one for function in library for one in function.node_def if one.op == case.op)
    return saved, node


def called(saved: Any, name: str, folder: Path) -> Any:
    """What a node has become."""
    made = lower_module.lower_functions(folder, saved, Convention(), lowering="fast")
    library = made.meta_graphs[0].graph_def.library.function
    (node,) = (one for function in library for one in function.node_def if one.name == name)
    return node


@pytest.mark.parametrize("known", [False, True])
def test_shapes_that_are_written_down_are_those_of_the_call(tmp_path: Path, known: bool) -> None:
    saved, node = stored(Case(Mode.LSTM, op="CudnnRNNV3"), tmp_path)
    node.attr.pop("_output_shapes", None)
    shapes = [[None, None, KERAS_UNITS], [1, None, KERAS_UNITS], [1, None, KERAS_UNITS + 1], [7], [8]]
    if known:
        for shape in shapes:
            node.attr["_output_shapes"].list.shape.append(tf.TensorShape(shape).as_proto())
    call = called(saved, node.name, tmp_path)
    assert {*call.attr} == {"f", "Tin", "Tout"} | ({"_output_shapes"} if known else set())
    found = [tf.TensorShape(shape).as_list() for shape in call.attr["_output_shapes"].list.shape]
    assert found == ([*shapes[:3], [0], [0]] if known else [])


@pytest.mark.first("gru")
@pytest.mark.parametrize(
    ("case", "states"),
    [
        (Case(Mode.LSTM, directions=2, op="CudnnRNNV3", projection=3), [[2, None, 3], [2, None, 5]]),
        (Case(Mode.GRU, layers=2, op="CudnnRNNV3", time_major=False), [[None, 2, 5], None]),
    ],
    ids=["lstm", "gru"],
)
def test_the_function_says_what_shapes_it_takes(tmp_path: Path, case: Case, states: list[Any]) -> None:
    """A cell state is the LSTM's alone: other nodes are given anything."""
    saved, node = stored(case, tmp_path)
    made = lower_module.lower_functions(tmp_path, saved, Convention(), lowering="fast")
    library = {one.signature.name: one for one in made.meta_graphs[0].graph_def.library.function}
    (call,) = (one for function in library.values() for one in function.node_def if one.name == node.name)
    arguments = library[call.attr["f"].func.name].arg_attr
    given = [arguments[k].attr["_output_shapes"].list.shape[0] for k in range(len(arguments))]
    found = [None if shape.unknown_rank else tf.TensorShape(shape).as_list() for shape in given]
    assert found == [[None, None, case.inputs], *states, [None], [None]]


def test_devices_stay_but_for_gpus(tmp_path: Path) -> None:
    saved, node = stored(Case(Mode.GRU), tmp_path)
    graph = saved.meta_graphs[0].graph_def
    places = {"a": "/job:worker/device:GPU:1", "b": "/gpu:0", "c": "/device:CPU:0"}
    for name, device in places.items():
        graph.node.add(name=name, op="NoOp", device=device)
    node.device = "/device:GPU:0"
    made = (
        lower_module.lower_functions(tmp_path, saved, Convention(), lowering="fast").meta_graphs[0].graph_def
    )
    assert {one.name: one.device for one in made.node if one.name in places} == {
        "a": "",
        "b": "",
        "c": "/device:CPU:0",
    }
    assert called(saved, node.name, tmp_path).device == ""


def test_functions_without_a_node_stay_as_they_are(tmp_path: Path) -> None:
    module = tf.Module()
    module.call = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(module, str(tmp_path))
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    assert lower_module.lower_functions(tmp_path, saved, Convention(), lowering="fast") == saved


# A parameter blob taken apart in TensorFlow ops: every element where the reference has it.

TF = Convention()


def taken_apart(case: Case, convention: Convention = TF) -> list[Array]:
    return [part.numpy() for part in lower_module.slice_blob(tf.constant(case.blob), case.sizes, convention)]


def by_hand(case: Case, order: list[int], source: list[int] | None = None) -> list[Array]:
    """The blob cut in NumPy: matrices of every pseudo-layer in turn, its projection last, then biases.

    Columns are gates in the `order` of cuDNN's; `source` says what lies where TensorFlow has each gate.
    """
    sizes, gates, width, blob = case.sizes, len(case.mode.gates), case.sizes.width, case.blob
    picked = [(source or [*range(gates)])[gate] for gate in order]
    matrices, at = [], 0

    def block(count: int, rows: int, columns: int) -> Array:
        nonlocal at
        found = blob[at : at + count * rows * columns].reshape(count, rows, columns)
        at += found.size
        return found

    for p in range(case.depth):
        layer = p // sizes.directions
        inputs = case.inputs if layer == 0 else sizes.directions * width
        skipped = sizes.skip_input and layer == 0
        kernel = np.stack([np.eye(sizes.units)] * gates) if skipped else block(gates, sizes.units, inputs)
        recurrent = block(gates, sizes.units, width)
        pair = [part[picked].reshape(-1, part.shape[-1]).T for part in (kernel, recurrent)]
        matrices.append((*pair, [block(1, width, sizes.units)[0].T] if case.projection else []))
    found: list[Array] = []
    for *pair, projection in matrices:
        ours, theirs = (block(1, gates, sizes.units)[0][picked].reshape(-1) for _ in range(2))
        found += pair
        found += [ours, theirs] if case.mode is Mode.GRU else [ours + theirs]
        found += projection
    assert at == blob.size
    return found


@pytest.mark.parametrize(
    ("case", "order"),
    [
        (Case(Mode.LSTM, 2, 2), [0, 1, 3, 2]),
        (Case(Mode.LSTM, 2, 2, projection=3), [0, 1, 3, 2]),
        (Case(Mode.GRU, 2, 2), [0, 1, 2]),
        (Case(Mode.GRU, 2, 1, input_mode="skip_input", dtype="float64"), [0, 1, 2]),
        (Case(Mode.RNN_TANH, 1, 2, dtype="float16"), [0]),
        (Case(Mode.RNN_RELU, 3, 1), [0]),
        (Case(Mode.LSTM, 1, 2, input_mode="skip_input", projection=5), [0, 1, 3, 2]),
    ],
)
def test_every_tensor_of_every_pseudo_layer(case: Case, order: list[int]) -> None:
    same(taken_apart(case), by_hand(case, order), case)
    assert len(taken_apart(case)) == case.depth * lower_module.count(case.sizes)


def test_what_miopen_keeps_elsewhere() -> None:
    """i, f, o, c and z, r where cuDNN has i, f, c, o and r, z (tf_keras v2.21.0 src/layers/rnn/gru.py)."""
    convention = Convention(gate_order="miopen")
    lstm, gru = Case(Mode.LSTM, 1, 2), Case(Mode.GRU, 2, 1)
    same(taken_apart(lstm, convention), by_hand(lstm, [0, 1, 3, 2], [0, 1, 3, 2]), lstm)
    same(taken_apart(gru, convention), by_hand(gru, [0, 1, 2], [1, 0, 2]), gru)


def test_canonical_tensors_conventions_do_not_reach_a_blob() -> None:
    case = Case(Mode.LSTM)
    same(taken_apart(case, Convention("lingvo", 1.0)), by_hand(case, [0, 1, 3, 2]), case)


def same(found: list[Array], expected: list[Array], case: Case) -> None:
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == case.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-3 if case.dtype == "float16" else 1e-6)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(Mode.LSTM, 1, 1, 2, 3), 3),
        (Sizes(Mode.LSTM, 1, 1, 2, 3, projection=1), 4),
        (Sizes(Mode.GRU, 1, 1, 2, 3), 4),
        (Sizes(Mode.RNN_TANH, 1, 1, 2, 3), 3),
    ],
)
def test_how_many_tensors_a_pseudo_layer_has(sizes: Any, expected: int) -> None:
    assert lower_module.count(sizes) == expected
