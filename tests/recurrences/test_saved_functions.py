"""Where a function's cuDNN node has its weights: found by where elements end up, not taken where unclear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.keras_nodes import INPUTS, UNITS, Layer, packed, recurrence
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import ops
from cudnn_convert.graph.passes import inlining
from cudnn_convert.model import Convention, Mode, Sizes
from cudnn_convert.recurrences import saved_functions
from cudnn_convert.recurrences.saved_functions import FunctionRecurrence


@dataclass(frozen=True)
class Found:
    """A node, and the names of the variables that hold its matrices."""

    node: FunctionRecurrence
    variables: list[str] | None


def found(module: tf.Module, call: Callable[..., Any], folder: Path, *specs: tf.TensorSpec) -> list[Found]:
    """The nodes that are found in `call`, saved as a function of `module`."""
    given = specs or (tf.TensorSpec([None, None, INPUTS], name="x"),)
    module.call = tf.function(call, input_signature=given, autograph=False)
    tf.saved_model.save(module, str(folder))
    meta = meta_graph(folder)
    calls = saved_functions.call_functions(meta)
    graph = inlining.inline_functions(calls, [node.name for node in calls.node], origins=True)
    return [
        Found(node, held(node, meta))
        for node in saved_functions.locate_packed_weights(folder, graph, Convention())
    ]


def meta_graph(folder: Path) -> Any:
    (meta,) = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    return meta


def held(node: FunctionRecurrence, meta: Any) -> list[str] | None:
    """The names of the variables that a node's matrices are read from."""
    if node.matrices is None:
        return None
    (function,) = (one for one in meta.graph_def.library.function if one.signature.name == node.function)
    bound = meta.object_graph_def.concrete_functions[node.function].bound_inputs
    captured = [argument.name for argument in function.signature.input_arg][-len(bound) :]
    objects = dict(zip(captured, bound, strict=True))
    nodes = {one.name: one for one in function.node_def}
    assert nodes[node.node].op in ops.CUDNN
    reads = [nodes[name.partition(":")[0]] for name in node.matrices]
    reads = [nodes[read.input[0].partition(":")[0]] if read.op == "Cast" else read for read in reads]
    return [meta.object_graph_def.nodes[objects[read.input[0]]].variable.name for read in reads]


MATRICES = ["layer/kernel", "layer/recurrent", "layer/bias"]


@pytest.mark.first("units-gru")
@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("units", [UNITS, INPUTS], ids=["units", "as_many_as_inputs"])
def test_the_three_matrices_of_keras(tmp_path: Path, mode: str, units: int) -> None:
    """Also where both kernels have one shape."""
    layer = Layer(mode, units=units)
    (one,) = found(layer, lambda x: recurrence(x, mode, layer.blob(), units), tmp_path)
    assert one.variables == MATRICES
    assert one.node.sizes == Sizes(Mode(mode), 1, 1, units, INPUTS)
    assert (one.node.time_major, one.node.lengths, one.node.dtype) == (False, False, np.float32)


@pytest.mark.first("gru")
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_however_it_is_packed(tmp_path: Path, mode: str) -> None:
    """Not what the packing is made of counts, but what comes out."""
    layer = Layer(mode)

    def otherwise(x: Any) -> Any:
        gates = 4 if mode == "lstm" else 3
        order = [0, 1, 2, 3] if mode == "lstm" else [1, 0, 2]
        parts = []
        for matrix in (layer.kernel, layer.recurrent):
            stacked = tf.transpose(tf.reshape(tf.identity(matrix), [-1, gates, UNITS]), [1, 2, 0])
            parts.append(tf.reshape(tf.gather(stacked, order), [-1]))
        bias = layer.bias
        rows = tf.stack([tf.zeros_like(bias), bias]) if mode == "lstm" else tf.identity(bias)
        parts.append(tf.reshape(tf.gather(tf.reshape(rows, [2, gates, UNITS]), order, axis=1), [-1]))
        return recurrence(x, mode, tf.concat(parts, 0))

    (one,) = found(layer, otherwise, tmp_path)
    assert one.variables == MATRICES


def test_gates_in_another_order_are_no_matrix_of_keras(tmp_path: Path) -> None:
    layer = Layer("lstm")

    def wrong(x: Any) -> Any:
        parts = tf.split(layer.kernel, 4, axis=1)
        kernel = tf.concat([parts[1], parts[0], *parts[2:]], 1)
        return recurrence(x, "lstm", packed("lstm", kernel, layer.recurrent, layer.bias))

    (one,) = found(layer, wrong, tmp_path)
    assert one.variables is None


def test_a_matrix_that_is_not_transposed_is_none_of_keras(tmp_path: Path) -> None:
    layer = Layer("gru", units=INPUTS)

    def wrong(x: Any) -> Any:
        parts = [tf.transpose(part) for part in tf.split(layer.kernel, 3, axis=1)]
        blob = packed("gru", tf.concat(parts, 1), layer.recurrent, layer.bias)
        return recurrence(x, "gru", blob, INPUTS)

    (one,) = found(layer, wrong, tmp_path)
    assert one.variables is None


@pytest.mark.parametrize("part", ["kernel", "recurrent", "bias"])
def test_arithmetic_in_the_packing(tmp_path: Path, part: str) -> None:
    """A variable then holds something else than what the recurrence computes with."""
    layer = Layer("lstm")

    def scaled(x: Any) -> Any:
        parts = {name: getattr(layer, name) for name in ("kernel", "recurrent", "bias")}
        parts[part] = parts[part] * 2.0
        return recurrence(x, "lstm", packed("lstm", **parts))

    (one,) = found(layer, scaled, tmp_path)
    assert one.variables is None


def test_a_bias_of_two_halves(tmp_path: Path) -> None:
    """Both of cuDNN's biases in use, where Keras' LSTM has one."""
    layer = Layer("lstm")

    def twice(x: Any) -> Any:
        plain = packed("lstm", layer.kernel, layer.recurrent, layer.bias)
        return recurrence(x, "lstm", tf.concat([plain[: -8 * UNITS], layer.bias, layer.bias], 0))

    (one,) = found(layer, twice, tmp_path)
    assert one.variables is None


def test_layers_of_one_shape_are_not_mixed_up(tmp_path: Path) -> None:
    module = tf.Module()
    module.layers = [Layer("lstm", units=INPUTS, name=name) for name in ("one", "two", "three")]

    def chain(x: Any) -> Any:
        one, two, three = module.layers
        x = recurrence(x, "lstm", two.blob(), INPUTS, name="of_two")
        x = recurrence(x, "lstm", one.blob(), INPUTS, name="of_one")
        mixed = packed("lstm", three.kernel, one.recurrent, two.bias)
        return recurrence(x, "lstm", mixed, INPUTS, name="of_all")

    nodes = {one.node.node: one.variables for one in found(module, chain, tmp_path)}
    assert nodes == {
        "of_one": ["one/kernel", "one/recurrent", "one/bias"],
        "of_two": ["two/kernel", "two/recurrent", "two/bias"],
        "of_all": ["three/kernel", "one/recurrent", "two/bias"],
    }


def test_one_gate_of_another_layer(tmp_path: Path) -> None:
    module = tf.Module()
    module.one, module.two = Layer("lstm", name="one"), Layer("lstm", name="two")

    def mixed(x: Any) -> Any:
        kernel = tf.concat([module.one.kernel[:, : 3 * UNITS], module.two.kernel[:, 3 * UNITS :]], 1)
        return recurrence(x, "lstm", packed("lstm", kernel, module.one.recurrent, module.one.bias))

    (one,) = found(module, mixed, tmp_path)
    assert one.variables is None


def test_a_cast_of_each_matrix(tmp_path: Path) -> None:
    """Keras' mixed precision: the cast matrix is the recurrence's, not the variable."""
    layer = Layer("lstm")

    def half(x: Any) -> Any:
        parts = (tf.cast(getattr(layer, name), tf.float16) for name in ("kernel", "recurrent", "bias"))
        return recurrence(tf.cast(x, tf.float16), "lstm", packed("lstm", *parts))

    (one,) = found(layer, half, tmp_path)
    assert one.node.dtype == np.float16
    assert one.variables == MATRICES
    assert one.node.matrices is not None
    assert all(":y:" in name for name in one.node.matrices)


def test_a_cast_behind_the_packing(tmp_path: Path) -> None:
    """What is read has another type than the recurrence: the blob stays."""
    layer = Layer("lstm")
    (one,) = found(
        layer,
        lambda x: recurrence(tf.cast(x, tf.float16), "lstm", tf.cast(layer.blob(), tf.float16)),
        tmp_path,
    )
    assert one.node.dtype == np.float16
    assert one.variables is None


def test_a_blob_in_a_variable(tmp_path: Path) -> None:
    module = tf.Module()
    module.blob = tf.Variable(tf.random.uniform([4 * UNITS * (INPUTS + UNITS + 2)]))
    (one,) = found(module, lambda x: recurrence(x, "lstm", module.blob), tmp_path)
    assert one.variables is None
    assert (one.node.sizes.units, one.node.sizes.input_size) == (UNITS, INPUTS)


def test_a_blob_in_a_constant(tmp_path: Path) -> None:
    """A constant that a function captures is an argument of it, as a variable is."""
    module = tf.Module()
    module.blob = tf.random.uniform([4 * UNITS * (INPUTS + UNITS + 2)])
    (stored,) = found(module, lambda x: recurrence(x, "lstm", module.blob), tmp_path)
    assert stored.variables is None
    assert (stored.node.sizes.units, stored.node.sizes.input_size) == (UNITS, INPUTS)
    meta = meta_graph(tmp_path)
    names = saved_functions.find_uncalled_functions(meta, {})
    graph, signatures = saved_functions.add_calls(meta, meta.graph_def, names)
    assert [*signatures] == names
    nodes = {node.name: node for node in graph.node}
    values = [nodes[nodes[f"functions/call_{k}"].input[1]].attr["value"].tensor for k in range(len(names))]
    assert values
    for value in values:
        np.testing.assert_array_equal(tf.make_ndarray(value), module.blob)


def test_a_function_that_draws_numbers_is_not_called(tmp_path: Path) -> None:
    """As a layer with dropout does in training: its answers differ from call to call."""
    layer = Layer("gru")
    found(layer, lambda x: tf.nn.dropout(recurrence(x, "gru", layer.blob()), 0.5), tmp_path)
    meta = meta_graph(tmp_path)
    names = saved_functions.find_uncalled_functions(meta, {})
    assert names
    assert saved_functions.add_calls(meta, meta.graph_def, names)[1] == {}


def test_arguments_whose_shapes_only_the_object_says(tmp_path: Path) -> None:
    """The functions of TensorFlow 1.15 say none. A dict's arguments stand in the order of its keys."""
    shapes = {"x": [None, None, INPUTS], "start": {"b": [None, 1, UNITS], "a": [None, UNITS + 1]}}
    specs = [
        {key: tf.TensorSpec(shape) for key, shape in given.items()}
        if isinstance(given, dict)
        else tf.TensorSpec(given)
        for given in shapes.values()
    ]
    layer = Layer("gru")

    def call(x: Any, start: Any) -> Any:
        return recurrence(x, "gru", layer.blob()) + start["b"], start["a"]

    found(layer, call, tmp_path, *specs)
    meta = meta_graph(tmp_path)
    for function in meta.graph_def.library.function:
        function.ClearField("arg_attr")
    given = [
        tf.TensorShape(node.attr["shape"].shape).as_list()
        for node in saved_functions.call_functions(meta).node
        if node.op == "Placeholder" and node.name.startswith("call_0/")
    ]
    assert given == [[None, None, INPUTS], [None, UNITS + 1], [None, 1, UNITS]]


def test_matrices_that_a_function_is_given(tmp_path: Path) -> None:
    """They are no variables of its own: in another call they may be others."""
    module = tf.Module()
    module.one, module.two = Layer("gru", name="one"), Layer("gru", name="two")

    @tf.function(autograph=False)
    def inner(x: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        return recurrence(x, "gru", packed("gru", kernel, recurrent, bias))

    def outer(x: Any) -> Any:
        layers = (module.one, module.two)
        return [inner(x, *(one.kernel + 0, one.recurrent + 0, one.bias + 0)) for one in layers]

    (one,) = found(module, outer, tmp_path)
    assert one.variables is None


def test_lengths(tmp_path: Path) -> None:
    """Those that Keras fills in say nothing; others do, and those of another input too."""
    layer = Layer("gru")

    def call(x: Any, lengths: Any) -> Any:
        return [
            recurrence(x, "gru", layer.blob(), name="full"),
            recurrence(x, "gru", layer.blob(), lengths=lengths, name="given"),
            recurrence(x[:, 1:], "gru", layer.blob(), lengths=tf.fill([2], tf.shape(x)[1]), name="longer"),
            recurrence(tf.reverse(x, [1]), "gru", layer.blob(), name="reversed"),
        ]

    specs = tf.TensorSpec([2, None, INPUTS]), tf.TensorSpec([2], tf.int32)
    nodes = {one.node.node: one.node.lengths for one in found(layer, call, tmp_path, *specs)}
    assert nodes == {"full": False, "given": True, "longer": True, "reversed": False}


def test_sizes_that_differ_from_call_to_call(tmp_path: Path) -> None:
    """A blob whose length its function does not know."""
    module = tf.Module()

    def call(x: Any, blob: Any) -> Any:
        return recurrence(x, "lstm", blob)

    specs = tf.TensorSpec([None, None, INPUTS]), tf.TensorSpec([None])
    told = (
        "expected static shapes of its states and parameters, found none; convert it alone with --signature"
    )
    with pytest.raises(UnsupportedModelError, match=told):
        found(module, call, tmp_path, *specs)


def test_a_blob_of_no_size(tmp_path: Path) -> None:
    module = tf.Module()
    module.blob = tf.Variable(tf.random.uniform([4 * UNITS * (INPUTS + UNITS + 2) + 1]))
    with pytest.raises(
        UnsupportedModelError, match=r"CudnnRNNV3: params: expected .* found 145; are its states"
    ):
        found(module, lambda x: recurrence(x, "lstm", module.blob), tmp_path)
