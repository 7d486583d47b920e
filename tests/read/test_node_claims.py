"""A node of a known op has what its op's definition asks for, or the graph is refused where it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, node_def_pb2

from cudnn_convert.errors import ReadError
from cudnn_convert.read import checks

CONST = 'name: "c" op: "Const"'
T = 'attr { key: "T" value { type: DT_FLOAT } }'
INPUTS = 'input: "a" ' * 9
RNN = 'name: "r" op: "CudnnRNN" input: "a" input: "a" input: "a" input: "a"'
FLOAT = 'attr { key: "dtype" value { type: DT_FLOAT } }'


def node(text: str) -> Any:
    return text_format.Parse(text, node_def_pb2.NodeDef())


def fault(text: str, *, is_template: bool = False) -> str | None:
    return checks.node_fault(node(text), is_template=is_template)


def constant(value: str, dtype: str = FLOAT) -> str:
    return f'{CONST} {dtype} attr {{ key: "value" value {{ {value} }} }}'


def shaped(*sizes: int) -> str:
    return "tensor_shape { " + " ".join(f"dim {{ size: {size} }}" for size in sizes) + " }"


@pytest.mark.parametrize(
    "text",
    [
        'name: "u" op: "Unknown"',
        'name: "p" op: "Placeholder"',  # TensorFlow refuses it, should it be imported
        'name: "i" op: "Identity" input: "x" attr { key: "T" value { type: DT_FLOAT } }',
        'name: "n" op: "NoOp" input: "^x"',
        'name: "a" op: "AddN" attr { key: "N" value { i: 2 } }',
        'name: "p" op: "Pack" attr { key: "N" value { i: 0 } } attr { key: "axis" value { i: 1 } }',
        'name: "g" op: "IdentityN" attr { key: "T" value { list { type: DT_FLOAT } } }',
        'name: "c" op: "PartitionedCall" attr { key: "config_proto" value { s: "\\377" } }',
        'name: "e" op: "Elu" input: "x" attr { key: "T" value { type: DT_FLOAT } }',
        'name: "l" op: "LeakyRelu" input: "x" attr { key: "alpha" value { f: nan } }',
        f'{RNN} {T} attr {{ key: "dropout" value {{ f: 0.5 }} }}',
        f'{RNN} {T} attr {{ key: "rnn_mode" value {{ s: "gru" }} }}',
        constant("tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }"),
        constant(f"tensor {{ dtype: DT_FLOAT {shaped(2, 3)} float_val: 1 }}"),
        constant(f'tensor {{ dtype: DT_FLOAT {shaped(2)} tensor_content: "12345678" }}'),
    ],
)
def test_sound_nodes_have_no_fault(text: str) -> None:
    assert fault(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('name: "i" op: "Identity" input: "^x"', "0 inputs where 1 are needed"),
        ('name: "r" op: "CudnnRNN" input: "a" input: "b" input: "c"', "3 inputs where 4 are needed"),
        ('name: "i" op: "Identity" input: "x" attr { key: "T" value { i: 1 } }', "no type for T"),
        ('name: "i" op: "Identity" input: "x" attr { key: "T" value { type: 999 } }', "no type for T"),
        ('name: "g" op: "IdentityN" attr { key: "T" value { type: DT_FLOAT } }', "no list(type) for T"),
        ('name: "p" op: "Placeholder" attr { key: "shape" value { i: 1 } }', "no shape for shape"),
        (
            'name: "v" op: "VarHandleOp" attr { key: "shared_name" value { i: 1 } }',
            "no string for shared_name",
        ),
        ('name: "c" op: "PartitionedCall" attr { key: "f" value { s: "f" } }', "no func for f"),
        ('name: "p" op: "Pack" attr { key: "N" value { f: 1 } }', "no int for N"),
        (RNN.replace("CudnnRNN", "CudnnRNNV2"), "no type for T"),
        (RNN.replace("CudnnRNN", "CudnnRNNV3") + ' input: "a"', "no type for T"),
        ('name: "v" op: "VarHandleOp"', "no type for dtype"),
        (f'name: "b" op: "BlockLSTM" {INPUTS}', "no type for T"),
        (f'name: "b" op: "BlockLSTMV2" {INPUTS}', "no type for T"),
        (f'name: "b" op: "LSTMBlockCell" {INPUTS}', "no type for T"),
        (f'{RNN} {T} attr {{ key: "dropout" value {{ i: 1 }} }}', "no float for dropout"),
        (f'{RNN} {T} attr {{ key: "is_training" value {{ i: 1 }} }}', "no bool for is_training"),
        (RNN, "no type for T"),
        (f'{RNN} {T} attr {{ key: "dropout" value {{ f: nan }} }}', "no float for dropout"),
        (f'{RNN} {T} attr {{ key: "dropout" value {{ f: -inf }} }}', "no float for dropout"),
        (f'{RNN} {T} attr {{ key: "rnn_mode" value {{ s: "\\377" }} }}', "no string for rnn_mode"),
        (CONST, "no tensor for value"),
        (f'{CONST} attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT }} }} }}', "no type for dtype"),
        (constant("type: DT_FLOAT"), "no tensor for value"),
        (
            constant("tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 }"),
            "a value of another type than float32",
        ),
        (
            constant("tensor { dtype: DT_FLOAT tensor_shape {} float_val: [1, 2] }"),
            "2 values for a shape of 1",
        ),
        (
            constant("tensor { dtype: DT_FLOAT tensor_shape {} scomplex_val: [1, 2, 3] }"),
            "3 values for a shape of 2",
        ),
        (
            constant("tensor { dtype: DT_FLOAT tensor_shape { unknown_rank: true } }"),
            "a value without a shape",
        ),
        (
            constant(f'tensor {{ dtype: DT_FLOAT {shaped(2)} tensor_content: "1234" }}'),
            "4 bytes for a value of 8",
        ),
    ],
)
def test_what_is_wrong_is_told(text: str, found: str) -> None:
    assert fault(text) == found


def test_only_a_function_has_attributes_that_its_caller_tells() -> None:
    open_type = 'name: "i" op: "Identity" input: "x" attr { key: "T" value { placeholder: "T" } }'
    assert fault(open_type, is_template=True) is None
    assert fault(open_type) == "no type for T"
    value = "tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }"
    told = constant(value, 'attr { key: "dtype" value { placeholder: "T" } }')
    assert fault(told, is_template=True) is None


def test_the_place_is_told() -> None:
    graph = graph_pb2.GraphDef(node=[node(CONST)])
    with pytest.raises(
        ReadError, match=r"a\.pb: graph: c: expected a Const as TensorFlow writes it, found no"
    ):
        checks.require(Path("a.pb"), graph)
    graph = graph_pb2.GraphDef()
    function = graph.library.function.add()
    function.signature.name = "f"
    function.node_def.add().CopyFrom(node(constant("placeholder: 'v'")))
    checks.require(Path("a.pb"), graph)
    function.node_def.add().CopyFrom(node('name: "d" op: "Const"'))
    with pytest.raises(ReadError, match=r"a\.pb: function f: d: expected a Const"):
        checks.require(Path("a.pb"), graph)
