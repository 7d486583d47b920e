"""Each private function of Keras that is called: an upgrade fails here first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from cudnn_convert.private import keras_private


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


def test_tf_keras_has_the_layers_and_cells_of_tensorflow_1() -> None:
    cells, layers = keras_private.legacy_namespaces()
    assert issubclass(layers.Dense, keras_private.legacy_layer())
    assert issubclass(cells.BasicRNNCell, keras_private.legacy_cells().LayerRNNCell)


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


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    keras.utils.clear_session(free_memory=False)
