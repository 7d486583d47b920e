"""Each private function of a library that is called: an upgrade of the library fails here first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from cudnn_convert.artifacts.tflite import pack_model, schema, unpack_model
from cudnn_convert.keras.config import differences
from cudnn_convert.private import keras_private, older_layers, tf_private


def test_calls_of_layers_of_keras_3_have_their_masks() -> None:
    steps = keras.layers.Masking()(keras.Input((3, 2)))
    add, rnn = keras.layers.Add(), keras.layers.GRU(2)
    add([steps, keras.Input((3, 2))])
    rnn(steps)
    rnn(steps, initial_state=keras.Input((2,)))
    calls = [*keras_private.list_calls(add), *keras_private.list_calls(rnn)]
    assert [[*map(keras_private.has_mask, given)] for given in calls] == [
        [True, False],
        [True],
        [True, False],
    ]


def test_ops_are_known_by_name() -> None:
    assert [argument.name for argument in tf_private.find_op("CudnnRNNV3").input_arg][:2] == [
        "input",
        "input_h",
    ]
    assert tf_private.find_op("NoSuchOp") is None


def test_kernels_say_their_device() -> None:
    assert "CPU" in {kernel.device_type for kernel in tf_private.list_kernels("MatMul")}
    assert "CPU" not in {kernel.device_type for kernel in tf_private.list_kernels("CudnnRNNV3")}


def test_attributes_with_default_values_go() -> None:
    meta = meta_graph_pb2.MetaGraphDef()
    node = meta.graph_def.node.add(name="product", op="MatMul")
    node.attr["transpose_a"].b, node.attr["transpose_b"].b = False, True
    tf_private.strip_defaults(meta)
    assert list(node.attr) == ["transpose_b"]


def test_grappler_inlines_a_function() -> None:
    twice = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([], tf.float32))
    with tf.Graph().as_default() as graph:
        tf.identity(twice(tf.compat.v1.placeholder(tf.float32, [])), "answer")
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.append("answer")
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    config.graph_options.rewrite_options.optimizers.append("function")
    with tf.Graph().as_default():
        result = tf_private.optimize_graph(config, meta)
    assert isinstance(result, graph_pb2.GraphDef)
    assert "Mul" in {node.op for node in result.node}


def test_a_registered_function_runs_in_a_graph() -> None:
    def double(x: Any) -> Any:
        return x * np.float32(2)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        token = tf_private.register_function(double)
        x = tf.constant([1.0, 3.0])
        [answer] = tf.raw_ops.PyFunc(input=[x], token=token, Tout=[tf.float32])
        assert session.run(answer).tolist() == [2.0, 6.0]


def test_eager_mode_holds_where_a_graph_stands_open() -> None:
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        with tf_private.eager_mode():
            assert float(tf.constant(1.5)) == 1.5


def test_a_tensor_shares_the_memory_of_an_array() -> None:
    array = np.arange(64, dtype=np.float32)
    tensor = tf_private.share_memory(array, tf.float32)
    assert tensor.dtype == tf.float32
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_devices_have_names_types_and_descriptions() -> None:
    first = tf_private.list_devices()[0]
    assert (first.device_type, first.name.rpartition("/")[2]) == ("CPU", "device:CPU:0")
    assert isinstance(first.physical_device_desc, str)


def test_a_fingerprint_is_written(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path))
    (tmp_path / "fingerprint.pb").unlink()
    tf_private.write_fingerprint(str(tmp_path))
    assert (tmp_path / "fingerprint.pb").stat().st_size


def test_a_slice_is_updated() -> None:
    values = tf.function(tf_private.dynamic_update_slice, jit_compile=True)(
        tf.zeros([3, 2]), tf.constant([[5.0, 7.0]]), tf.constant([1, 0])
    )
    assert values.numpy().tolist() == [[0, 0], [5, 7], [0, 0]]


def test_a_model_of_tensorflow_lite_is_packed_and_unpacked() -> None:
    model = schema.ModelT(version=3, description="a model", buffers=[schema.BufferT(data=[1, 2, 3])])
    again = unpack_model(pack_model(model))
    assert (again.version, again.description, list(again.buffers[0].data)) == (3, b"a model", [1, 2, 3])


def test_tf_keras_builds_for_inference_with_loops_of_tensorflow_1() -> None:
    from tf_keras.src import backend

    steps = backend.rnn
    with tf.Graph().as_default() as graph, keras_private.build_for_inference():
        assert backend.rnn is not steps
        layers = keras_private.tf1_layers()
        x = tf_keras.Input([5, 3])
        answer = tf_keras.Model(x, layers["LSTM"](4)(tf_keras.layers.Dropout(0.5)(x)))(x)
        assert answer.shape[-1] == 4
    assert backend.rnn is steps
    ops = {node.op for node in graph.as_graph_def().node}
    assert "Enter" in ops and not ops & {"While", "RandomUniform"}
    assert tf.compat.v1.control_flow_v2_enabled()


def test_layers_of_tf_keras_compute_as_older_ones_within_a_context() -> None:
    from tf_keras.src import backend

    rows = {difference.name for difference in differences.DIFFERENCES}
    owners = [backend, tf_keras.layers.Softmax, tf_keras.layers.ReLU, tf_keras.layers.Conv2DTranspose]
    kept = [dict(vars(owner)) for owner in owners]
    with older_layers.compute_as(rows):
        assert all(vars(owner) != before for owner, before in zip(owners, kept, strict=True))
    assert [dict(vars(owner)) for owner in owners] == kept


def test_an_op_of_a_number_and_a_tensor_is_part_of_a_model_of_tf_keras() -> None:
    """TFOpLambda, as tf_keras writes `1.0 - y` of a layer's result."""
    config = {"name": "op", "function": "math.subtract"}
    with tf.Graph().as_default(), keras_private.build_for_inference():
        tf_keras.layers.Dense(2)(tf_keras.Input([3]))  # gives layers their bases of version 1
        op = keras_private.tf1_layers()["TFOpLambda"].from_config(config)
        x = tf_keras.Input([3])
        model = tf_keras.Model(x, op(1.0, y=x))
        assert [layer.name for layer in model.layers[1:]] == ["op"]
        with tf.compat.v1.Session() as session:
            given = np.array([[1, 2, 4]], np.float32)
            answer = session.run(model.output, {model.input: given})
            again = session.run(model(tf.constant(given)))
    np.testing.assert_array_equal(answer, [[0, -1, -3]])
    np.testing.assert_array_equal(again, answer)


@pytest.mark.parametrize("allowed", [True, False])
def test_lambdas_of_tf_keras_are_built_where_that_is_allowed(allowed: bool) -> None:
    from tf_keras.src.saving import serialization_lib

    x = tf_keras.Input([3])
    config = tf_keras.Model(x, tf_keras.layers.Lambda(lambda x: x * 2.0)(x)).get_config()
    refused = contextlib.nullcontext() if allowed else pytest.raises(ValueError, match="a Lambda layer")
    with keras_private.load_code(allowed=allowed), refused:
        assert tf_keras.Model.from_config(config)(np.ones([1, 3])).numpy().tolist() == [[2, 2, 2]]
    assert serialization_lib.in_safe_mode() is None


def test_keras_traces_as_beside_a_gpu() -> None:
    layer = keras.layers.LSTM(4)
    layer.build((2, 5, 3))
    spec = tf.TensorSpec([2, 5, 3], tf.float32)
    with keras_private.trace_as_on_gpu():
        graph = tf.function(layer.call).get_concrete_function(spec).graph.as_graph_def()
    assert _ops(graph) & {"CudnnRNNV3"}
    graph = tf.function(layer.call).get_concrete_function(spec).graph.as_graph_def()
    assert not _ops(graph) & {"CudnnRNNV3"}
    with keras_private.trace_as_on_gpu(), keras_private.trace_as_on_cpu():
        graph = tf.function(layer.call).get_concrete_function(spec).graph.as_graph_def()
    assert not _ops(graph) & {"CudnnRNNV3"}


def _ops(graph: Any) -> set[str]:
    return {
        node.op for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes
    }


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_layers_of_nested_models_are_listed(package: Any) -> None:
    inner = package.Sequential([package.layers.Dense(2, name="inner")])
    model = package.Sequential([package.Input([3]), inner, package.layers.Dense(1, name="outer")])
    assert {"inner", "outer"} <= {layer.name for layer in keras_private.flatten_layers(model)}


def test_a_sequential_model_has_a_functional_one_whose_inputs_pack() -> None:
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    functional = keras_private.functional_model(model)
    assert isinstance(functional, keras.Model) and functional is not model
    assert keras_private.functional_model(functional) is functional
    inputs = {"a": keras.Input([3], name="a"), "b": keras.Input([2], name="b")}
    named = keras.Model(inputs, [keras.layers.Dense(1)(value) for value in inputs.values()])
    packed = keras_private.pack_inputs(named, [tf.zeros([1, 3]), tf.ones([1, 2])])
    assert {name: value.shape[-1] for name, value in packed.items()} == {"a": 3, "b": 2}


def test_savers_save_what_is_no_variable(tmp_path: Path) -> None:
    """A saveable object's tensors are saved under their keys, and it is asked to restore them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("variable", initializer=3.0)
        spec = tf_private.SaveSpec(2 * variable, "", "twice")

        class Half(tf_private.SaveableObject):  # type: ignore[misc, name-defined]
            def restore(self, tensors: Any, shapes: Any) -> Any:
                return variable.assign(tensors[0] / 2)

        saver = tf.compat.v1.train.Saver([Half(variable, [spec], "half")])
        session.run(variable.initializer)
        prefix = saver.save(session, str(tmp_path / "saved"))
        session.run(variable.assign(0.0))
        saver.restore(session, prefix)
        assert session.run(variable) == 3.0
    assert tf.train.list_variables(prefix) == [("twice", [])]


def test_tf_keras_has_the_layers_and_cells_of_tensorflow_1() -> None:
    cells, layers = keras_private.legacy_namespaces()
    assert issubclass(layers.Dense, keras_private.legacy_layer())
    assert issubclass(cells.BasicRNNCell, keras_private.legacy_cells().LayerRNNCell)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    keras.utils.clear_session(free_memory=False)


def test_what_a_layer_raised_is_found_in_what_keras_says() -> None:
    import keras

    config = {"module": "keras.layers", "class_name": "Dropout", "config": {"rate": 5}}
    with pytest.raises(Exception, match="Exception encountered") as caught:
        keras.saving.deserialize_keras_object(config)
    assert keras_private.innermost_line(caught.value).startswith("Invalid value received for argument `rate`")
    with pytest.raises(TypeError, match="Full object config") as caught:
        keras.saving.deserialize_keras_object({"class_name": "Nobody", "config": {"units": 7654}})
    line = keras_private.innermost_line(caught.value)
    assert line.startswith("Could not locate class 'Nobody'")
    assert "7654" not in line
    assert keras_private.innermost_line(ValueError()) == "ValueError"


def test_the_functions_of_a_loop_run_on_one_thread() -> None:
    """By an attribute of each; the loop stays an op."""
    with tf.Graph().as_default() as graph:
        done = tf.while_loop(lambda k: k < 3, lambda k: (k + 1,), (tf.constant(0),))
        tf_private.run_on_one_thread(done[0].op)
        tf_private.run_on_one_thread(tf.constant(1).op)  # no loop: nothing happens
    (loop,) = (node for node in graph.as_graph_def().node if node.op == "StatelessWhile")
    for name in ("cond", "body"):
        assert loop.attr[name].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"
    assert "_lower_using_switch_merge" not in loop.attr
    with tf.compat.v1.Session(graph=graph) as session:
        assert session.run(done[0]) == 3


def test_the_first_branch_runs_on_one_thread() -> None:
    """With the loop in it; the other branch runs as TensorFlow runs it."""
    with tf.Graph().as_default() as graph:
        rows = tf.compat.v1.placeholder(tf.int32, [])

        def count() -> Any:
            (done,) = tf.while_loop(lambda k: k < rows, lambda k: (k + 1,), (tf.constant(0),))
            tf_private.run_on_one_thread(done.op)
            return done

        counted = tf.cond(rows > 0, count, lambda: tf.constant(-1))
        tf_private.run_on_one_thread(counted.op)
    (branch,) = (node for node in graph.as_graph_def().node if node.op in {"If", "StatelessIf"})
    assert branch.attr["then_branch"].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"
    assert "_executor" not in branch.attr["else_branch"].func.attr
    assert "_lower_using_switch_merge" not in branch.attr
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        assert [int(session.run(counted, {rows: n})) for n in (3, 0)] == [3, -1]
