"""Names and types that make weights of what is none: no layer is seen in them, and nothing is counted up."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.keras import cpu_layers
from cudnn_convert.model import Architecture, InMemory, Mode, is_float
from cudnn_convert.read import variable_keys
from cudnn_convert.read.dialects import contrib, keras, regions

SHAPES = {"kernel": (4, 12), "recurrent_kernel": (3, 12), "bias": (24,)}
STEM = "rnn/multi_rnn_cell/cell_{}/cudnn_compatible_lstm_cell/"


def tensors(dtype: object, **others: object) -> dict[str, InMemory]:
    kinds = dict.fromkeys(SHAPES, dtype) | others
    return {name: InMemory(np.zeros(shape, kinds[name])) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_of_every_width_are_weights(dtype: object) -> None:
    assert is_float(np.dtype(dtype))
    found = keras.recognise_layer(tensors(dtype))
    assert found is not None
    assert (found.mode, found.units, found.inputs) == (Mode.LSTM, 3, 4)


@pytest.mark.parametrize("dtype", ["i4", "S4", "O", "?", "c8", "V2", [("a", "f4")]])
@pytest.mark.parametrize("name", SHAPES)
def test_nothing_else_is(dtype: object, name: str) -> None:
    assert not is_float(np.dtype(dtype))
    held = tensors(np.float32, **{name: dtype})
    assert keras.recognise_layer(held) is None
    entry = {"class_name": "CuDNNLSTM", "config": {"name": "lstm", "units": 3}}
    model = Architecture({"class_name": "Sequential", "config": [entry]}, {"lstm": tuple(held.items())})
    with pytest.raises(
        ReadError, match="layer lstm: expected the weights of 1 x lstm of 3 units, found weights of no"
    ):
        cpu_layers.rewritten(Path("m.h5"), model)


def cell(number: object) -> dict[str, InMemory]:
    stem = STEM.format(number)
    return {f"{stem}kernel": InMemory(np.zeros((7, 12))), f"{stem}bias": InMemory(np.zeros(12))}


def test_a_layer_of_an_absurd_number_is_missed_not_counted_up_to() -> None:
    (found,) = contrib.find(Path("m"), cell(0) | cell(999_999_999))
    assert found.layers == 5
    with pytest.raises(ReadError, match=r"cell_1/cudnn_compatible_lstm_cell/kernel: .* found no such key"):
        found.decode(Mode.LSTM)
    (sound,) = contrib.find(Path("m"), cell(0) | cell(1))
    assert sound.layers == 2


def test_a_number_without_an_end_is_none() -> None:
    assert contrib.find(Path("m"), cell("1" * 5000)) == ()
    keys = {f"rnn/CudnnRNNParamsToCanonical:{'1' * 5000}": InMemory(np.zeros(3))}
    assert regions.find(Path("m"), keys) == ()


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        *(("r:tensors:0", ["a"]), ("r:tensors:1", ["b\ufffd"]), ("r:tensors:2", []), ("r:tensors:-1", [])),
        *(("r", []), ("r:tensors:" + "1" * 5000, []), ("n:output:0", [])),
    ],
)
def test_a_value_is_restored_by_a_key_that_is_there(given: str, keys: list[str]) -> None:
    function = function_pb2.FunctionDef()
    names = function.node_def.add(name="n", op="Const").attr["value"].tensor
    names.CopyFrom(tf.make_tensor_proto([b"a", b"b\xff"]))
    function.node_def.add(name="r", op="RestoreV2", input=["file", "n:output:0", "slices"])
    function.node_def.add(name="set", op="AssignVariableOp", input=["handle", given])
    assert [*variable_keys._list_assigned(function)] == [("handle", key) for key in keys]
    names.CopyFrom(tf.make_tensor_proto([1, 2]))
    assert [*variable_keys._list_assigned(function)] == []
    function.node_def[0].op = "Placeholder"
    assert [*variable_keys._list_assigned(function)] == []
