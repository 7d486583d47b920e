"""cuDNN nodes in functions of a SavedModel, repaired, loaded and called, against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cases import Case, swapped
from keras_nodes import INPUTS, UNITS, Layer
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert import reference
from cudnn_convert.lower.tensorflow import lower
from cudnn_convert.lower.tensorflow.layer_stack import COMPILED
from cudnn_convert.model import Array, Convention, Mode

BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-9}
BLOBS = [
    *(Case(mode, layers=2, directions=2, op="CudnnRNNV3", time_major=False) for mode in Mode),
    *(Case(mode, layers=2, directions=2) for mode in Mode),
    Case(Mode.LSTM, op="CudnnRNNV2"),
    Case(Mode.GRU, directions=2, op="CudnnRNNV3"),
    Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3),
    *(Case(mode, layers=2, input_mode="skip_input") for mode in Mode),
    Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", dtype="float64"),
    Case(Mode.GRU, op="CudnnRNNV3", time_major=False, dtype="float64"),
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
    made = lower.lower_functions(folder, before, Convention(), lowering=lowering)
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
        np.testing.assert_allclose(one, other, atol=BOUNDS[dtype], rtol=BOUNDS[dtype])


@pytest.mark.parametrize("case", BLOBS, ids=label)
def test_a_blob(tmp_path: Path, case: Case) -> None:
    """It stays a blob and is taken apart in every call; rows of length 0 and runs of no step among them."""
    answer = of_case(case, tmp_path)
    for steps, batch in ((7, 3), (1, 2), (0, 2)):
        feeds = case.feeds(steps, batch)
        close(answer(feeds), case.expected(feeds), case.dtype)


@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
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


@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("lowering", ["fast", "portable"])
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

    shapes = [None, None, INPUTS], *[[None, 1, UNITS]] * 2
    specs = [*(tf.TensorSpec(shape, dtype) for shape in shapes), tf.TensorSpec([None], tf.int32)]
    loaded = repaired(layer, call, specs, tmp_path, lowering=lowering)
    matrices = reference.steps_from_blob(
        layer.blob().numpy(), mode, layers=1, directions=1, units=UNITS, input_size=INPUTS
    )
    random = np.random.default_rng(3)
    for steps, rows in ((7, [7, 0, 3]), (4, [1, 4]), (3, [2, 3, 1]), (1, [1, 0]), (0, [0, 0])):
        x = random.normal(size=(len(rows), steps, INPUTS)).astype(dtype)
        h, c = (random.uniform(-1, 1, (len(rows), 1, UNITS)).astype(dtype) for _ in "hc")
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
    made = lower.lower_functions(folder, saved, Convention(), lowering="fast")
    library = made.meta_graphs[0].graph_def.library.function
    (node,) = (one for function in library for one in function.node_def if one.name == name)
    return node


@pytest.mark.parametrize("known", [False, True])
def test_shapes_that_are_written_down_are_those_of_the_call(tmp_path: Path, known: bool) -> None:
    saved, node = stored(Case(Mode.LSTM, op="CudnnRNNV3"), tmp_path)
    node.attr.pop("_output_shapes", None)
    shapes = [[None, None, UNITS], [1, None, UNITS], [1, None, UNITS + 1], [7], [8]]
    if known:
        for shape in shapes:
            node.attr["_output_shapes"].list.shape.append(tf.TensorShape(shape).as_proto())
    call = called(saved, node.name, tmp_path)
    assert {*call.attr} == {"f", "Tin", "Tout"} | ({"_output_shapes"} if known else set())
    found = [tf.TensorShape(shape).as_list() for shape in call.attr["_output_shapes"].list.shape]
    assert found == ([*shapes[:3], [0], [0]] if known else [])


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
    made = lower.lower_functions(tmp_path, saved, Convention(), lowering="fast")
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
    made = lower.lower_functions(tmp_path, saved, Convention(), lowering="fast").meta_graphs[0].graph_def
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
    assert lower.lower_functions(tmp_path, saved, Convention(), lowering="fast") == saved
