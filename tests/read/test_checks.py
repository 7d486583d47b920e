"""What a graph and its nodes claim is checked where it is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, node_def_pb2

from cudnn_convert import context
from cudnn_convert.context import Limits
from cudnn_convert.errors import ReadError
from cudnn_convert.read import checks

# What a graph says of itself is looked at before anything follows it.

PATH = Path("model.pb")


def graph(nodes: dict[str, list[str]], *, ops: dict[str, str] | None = None) -> Any:
    made = graph_pb2.GraphDef()
    for name, inputs in nodes.items():
        # An op that nobody knows: what it takes is not looked at.
        made.node.add(name=name, op=(ops or {}).get(name, "Mine"), input=inputs).attr["T"].type = 1
    return made


def function(made: Any, name: str, nodes: dict[str, list[str]], calls: dict[str, list[str]]) -> None:
    """A function of the argument `x`; `calls` are the functions that a node names."""
    added = made.library.function.add()
    added.signature.name = name
    added.signature.input_arg.add(name="x")
    for node, inputs in nodes.items():
        held = added.node_def.add(name=node, op="Call", input=inputs)
        for place, called in enumerate(calls.get(node, ())):
            held.attr[f"f{place}"].func.name = called


def refused(made: Any) -> str:
    with pytest.raises(ReadError) as caught:
        checks.require(PATH, made)
    return str(caught.value).removeprefix("model.pb: ")


def test_a_sound_graph() -> None:
    made = graph({"a": [], "b": ["a", "a:1", "^a"], "c": ["b:0", "^b"]})
    function(made, "f", {"y": ["x", "^z"], "z": ["x"], "w": ["z:output:0", "y:out:1"]}, {"w": ["g"]})
    function(made, "g", {"y": ["x"]}, {})
    checks.require(PATH, made)
    checks.require(PATH, graph_pb2.GraphDef())


def test_a_loop_comes_back_by_the_one_edge_that_may() -> None:
    nodes = {"e": [], "m": ["e", "n"], "s": ["m"], "n": ["s:1"]}
    for op in ("NextIteration", "RefNextIteration"):
        checks.require(PATH, graph(nodes, ops={"n": op}))
    told = "graph: expected inputs that form no circle, found a circle: m, s, n"
    assert refused(graph(nodes, ops={"n": "Another"})) == told


def test_a_circle_of_many() -> None:
    nodes = {f"n{k}": [f"n{(k + 1) % 6}"] for k in range(6)}
    told = "graph: expected inputs that form no circle, found a circle: n0, n1, n2 and 3 more"
    assert refused(graph(nodes)) == told
    assert refused(graph({"a": ["^a"]})).endswith("found a circle: a")


def test_names_that_stand_twice() -> None:
    made = graph({"a": [], "b": []})
    made.node.add(name="a", op="Mine")
    assert refused(made) == "graph: expected nodes of different names, found a twice"


def test_inputs_that_are_not_there() -> None:
    made = graph({"a": ["lost:1"], "b": ["^gone"]})
    told = "found a without its input lost, b without its input gone"
    assert refused(made) == f"graph: expected nodes with all their inputs, {told}"


def test_outputs_that_are_not_there() -> None:
    """A walk over the outputs below a large number would take minutes."""
    ops = {"a": "Identity", "s": "Split"}
    made = graph({"x": [], "a": ["x"], "s": ["x", "x"], "b": ["a:99999999"]}, ops=ops)
    made.node[2].attr["num_split"].i = 3
    assert refused(made) == "graph: b: expected an input of a, which has 1 outputs, found a:99999999"
    made.node[3].input[:] = ["s:3"]
    assert refused(made) == "graph: b: expected an input of s, which has 3 outputs, found s:3"
    made.node[3].input[:] = [f"a:{'9' * 5000}"]
    assert refused(made).startswith("graph: b: expected an input of a, which has 1 outputs, found a:999")
    made.node[3].input[:] = ["s:2", "a:0", "a:00", "x:7", "^a"]  # that of an op that nobody knows stays open
    checks.require(PATH, made)
    del made.node[2].attr["num_split"]
    checks.require(PATH, made)


def test_outputs_of_functions_that_are_not_there() -> None:
    made = graph({"a": [], "called": ["a"], "b": ["called:1"]}, ops={"called": "f"})
    function(made, "f", {"y": ["x"]}, {})
    made.library.function[0].signature.output_arg.add(name="y", type=1)
    assert refused(made) == "graph: b: expected an input of called, which has 1 outputs, found called:1"
    made = graph({"a": []})
    function(made, "f", {"y": ["x"], "z": ["y:output:9"]}, {})
    made.library.function[0].node_def[0].op = "Identity"
    assert refused(made) == "function f: z: expected an input of y, which has 1 outputs, found y:output:9"


def test_a_function_is_a_graph_too() -> None:
    made = graph({"a": []})
    function(made, "f", {"y": ["z:out:0"], "z": ["y:out:0"]}, {})
    assert refused(made) == "function f: expected inputs that form no circle, found a circle: y, z"
    made = graph({"a": []})
    function(made, "f", {"y": ["a"]}, {})
    assert refused(made) == "function f: expected nodes with all their inputs, found y without its input a"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_functions_that_come_back_to_themselves(depth: int) -> None:
    made = graph({"a": []})
    for k in range(depth):
        function(made, f"f{k}", {"y": ["x"]}, {"y": [f"f{(k + 1) % depth}"]})
    found = refused(made)
    assert re.fullmatch(r"functions: expected no function that calls itself, found (f\d -> ){1,3}f\d", found)
    names = found.rpartition("found ")[2].split(" -> ")
    assert len(names) == min(depth, 3) + 1
    assert depth > 3 or names[0] == names[-1]


def test_what_leads_to_a_circle_of_functions_is_no_part_of_it() -> None:
    """Whichever of them is looked at first."""
    for last in ("lead", "one", "two"):
        made = graph({"a": []})
        calls = {"lead": "one", "one": "two", "two": "one"}
        for name in sorted(calls, key=last.__eq__):
            function(made, name, {"y": ["x"]}, {"y": [calls[name]]})
        told = refused(made).removeprefix("functions: expected no function that calls itself, found ")
        assert told in ("one -> two -> one", "two -> one -> two")


def test_a_function_of_the_name_of_an_op_is_called_by_it() -> None:
    made = graph({"a": []})
    function(made, "Call", {"y": ["x"]}, {})
    assert refused(made) == "functions: expected no function that calls itself, found Call -> Call"


def nested(levels: int, *, calls: int = 2) -> Any:
    """`calls ** levels` nodes of the innermost function."""
    made = graph({"a": []}, ops={"a": "f0"})
    for k in range(levels):
        nodes = {f"y{place}": ["x"] for place in range(calls)}
        function(made, f"f{k}", nodes, {node: [f"f{k + 1}"] for node in nodes})
    function(made, f"f{levels}", {"y": ["x"]}, {})
    return made


def test_how_many_nodes_a_graph_has_when_its_functions_are_laid_flat() -> None:
    # 1 + 2 + 4 + 8 nodes that call, and 8 that do not.
    for most in (23, 24):
        with context.within(Limits(nodes=most)):
            checks.require(PATH, nested(3))
    with context.within(Limits(nodes=22)):
        told = "graph: expected at most 22 nodes with all functions inlined, found 23"
        assert refused(nested(3)) == f"{told}; if that is meant, give --limit nodes=23"
    assert "found 3221225471;" in refused(nested(30)), "and it takes no time to tell"


def test_functions_that_many_call_are_looked_at_once() -> None:
    levels = 30
    made = graph({"a": []}, ops={"a": "f0"})
    for k in range(levels):
        for name in "fg":
            function(made, f"{name}{k}", {"y": ["x"], "z": ["x"]}, {"y": [f"f{k + 1}"], "z": [f"g{k + 1}"]})
    for name in "fg":
        function(made, f"{name}{levels}", {"y": ["x"]}, {})
    assert f"found {3 * 2**levels - 1};" in refused(made), "and it takes no time to tell"


def test_functions_that_nothing_calls_count_by_themselves() -> None:
    made = nested(3)
    del made.node[:]
    with context.within(Limits(nodes=22)):
        checks.require(PATH, made)
    with context.within(Limits(nodes=21)):
        assert "found 22;" in refused(made)


def constant(*sizes: int, stored: int = 1) -> Any:
    made = graph_pb2.GraphDef()
    node = made.node.add(name="c", op="Const")
    tensor = node.attr["value"].tensor
    node.attr["dtype"].type = tensor.dtype = 1
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    tensor.float_val.extend([0.5] * stored)
    return made


def test_a_constant_of_a_few_bytes_may_be_large_but_not_any_size() -> None:
    checks.require(PATH, constant(1 << 12, 1 << 12))
    with context.within(Limits(expanded=1 << 10, expansion=10)):
        checks.require(PATH, constant(8, 8))
        checks.require(PATH, constant(8, 9, stored=72))
        told = "graph: c: expected as many bytes as the values of its shape need, found 72 values in"
        found = refused(constant(8, 9))
        assert found.startswith(told)
        assert found.endswith("bytes; if that is meant, give --limit expanded=1152")
    assert refused(constant(1 << 60)).startswith(
        f"graph: c: expected as many bytes as the values of its shape need, found {1 << 60}"
    )


def test_a_constant_within_a_function_is_looked_at_too() -> None:
    made = graph({"a": []})
    function(made, "f", {}, {})
    made.library.function[0].node_def.append(constant(1 << 60).node[0])
    assert refused(made).startswith("function f: c: expected as many bytes as the values of its shape need")


@pytest.mark.parametrize("is_list", [False, True])
def test_a_size_has_32_bits(is_list: bool) -> None:
    """In shapes that attributes give, as a placeholder's or those of an iterator."""

    def shaped(size: int) -> graph_pb2.GraphDef:
        nodes = graph({"a": [], "b": []})
        attr = nodes.node[1].attr["shapes"]
        shape = attr.list.shape.add() if is_list else attr.shape
        shape.dim.add(size=-1)
        shape.dim.add(size=size)
        return nodes

    checks.require(PATH, shaped(2147483647))
    expected = "graph: b: expected sizes of at most 2147483647, found 2147483648"
    assert refused(shaped(2147483648)) == expected


def test_a_shape_without_a_size() -> None:
    assert refused(constant(-1, 4)) == "graph: c: expected a shape of known sizes, found [-1, 4]"
    checks.require(PATH, constant(0, 1 << 60))


def test_names_are_told_in_one_line_and_not_whole() -> None:
    assert refused(graph({"a\nb": ["a\nb"]})).endswith(r"found a circle: 'a\nb'")
    assert refused(graph({"n" * 300: ["n" * 300]})).endswith(" " + "n" * 200 + "...")
    assert refused(graph({"n" * 200: ["n" * 200]})).endswith(" " + "n" * 200)


# A node of a known op has what its op's definition asks for, or the graph is refused where it is read.

CONST = 'name: "c" op: "Const"'
T = 'attr { key: "T" value { type: DT_FLOAT } }'
INPUTS = 'input: "a" ' * 9
RNN = 'name: "r" op: "CudnnRNN" input: "a" input: "a" input: "a" input: "a"'
FLOAT = 'attr { key: "dtype" value { type: DT_FLOAT } }'


def node(text: str) -> Any:
    return text_format.Parse(text, node_def_pb2.NodeDef())


def fault(text: str, *, is_template: bool = False) -> str | None:
    return checks.node_fault(node(text), is_template=is_template)


def constant_text(value: str, dtype: str = FLOAT) -> str:
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
        constant_text("tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 }"),
        constant_text(f"tensor {{ dtype: DT_FLOAT {shaped(2, 3)} float_val: 1 }}"),
        constant_text(f'tensor {{ dtype: DT_FLOAT {shaped(2)} tensor_content: "12345678" }}'),
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
        (constant_text("type: DT_FLOAT"), "no tensor for value"),
        (
            constant_text("tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 }"),
            "a value of another type than float32",
        ),
        (
            constant_text("tensor { dtype: DT_FLOAT tensor_shape {} float_val: [1, 2] }"),
            "2 values for a shape of 1",
        ),
        (
            constant_text("tensor { dtype: DT_FLOAT tensor_shape {} scomplex_val: [1, 2, 3] }"),
            "3 values for a shape of 2",
        ),
        (
            constant_text("tensor { dtype: DT_FLOAT tensor_shape { unknown_rank: true } }"),
            "a value without a shape",
        ),
        (
            constant_text(f'tensor {{ dtype: DT_FLOAT {shaped(2)} tensor_content: "1234" }}'),
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
    told = constant_text(value, 'attr { key: "dtype" value { placeholder: "T" } }')
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
    function.node_def.add().CopyFrom(node(constant_text("placeholder: 'v'")))
    checks.require(Path("a.pb"), graph)
    function.node_def.add().CopyFrom(node('name: "d" op: "Const"'))
    with pytest.raises(ReadError, match=r"a\.pb: function f: d: expected a Const"):
        checks.require(Path("a.pb"), graph)
