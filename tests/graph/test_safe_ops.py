"""The list of ops that may run: what is on it, and that nothing else is taken for one of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.watched_file import Watched
from tensorflow.core.framework import graph_pb2, op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels, op_def_registry

from cudnn_convert.errors import InvalidModelError, UnsupportedModelError
from cudnn_convert.graph import node_defs, ops, safe_ops
from cudnn_convert.graph.graph import import_graph
from cudnn_convert.lower.onnx import convert
from cudnn_convert.model import Signature
from cudnn_convert.targets import tflite as write_tflite

#: TensorFlow exchanges it for others before it runs a graph.
EXCHANGED = {"AccumulateNV2"}
#: Ops that are refused wherever they stand.
DANGEROUS = [
    *("ReadFile", "WriteFile", "MatchingFiles", "PyFunc", "PyFuncStateless", "EagerPyFunc", "SaveV2"),
    *("RestoreV2", "MergeV2Checkpoints", "DebugIdentity", "InitializeTableFromTextFileV2", "DecodeJpeg"),
    *("DecodePng", "DecodeImage", "DecodeProtoV2", "ImmutableConst", "GenerateVocabRemapping", "Abort"),
    *("XlaLaunch", "CollectiveReduce", "CollectiveReduceV2", "RemoteCall", "TPUExecute", "_Send", "_Recv"),
    *("TensorDataset", "TextLineDataset", "IteratorGetNext", "WholeFileReaderV2", "WriteSummary", "Save"),
    *("SymbolicGradient", "BatchFunction", "Timestamp", "SnapshotDataset", "OpOfSomebodyElse", ""),
]


def registered() -> Any:
    listed = op_def_pb2.OpList()
    listed.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return listed.op


REGISTERED = {op.name: op.is_stateful for op in registered()}


def test_each_op_is_one_that_tensorflow_has_on_a_cpu() -> None:
    assert len(ops.PURE) > 600
    assert sorted(ops.PURE - REGISTERED.keys()) == []
    found = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
    cpu = {k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type in ("CPU", "DEFAULT")}
    without = {op for op in ops.PURE - cpu if op in found or not op.startswith("Cudnn")} - EXCHANGED
    assert {op for op in without if not op.startswith("Cudnn")} == set()


def test_only_one_section_is_of_stateful_ops() -> None:
    stateful = {op for op, is_stateful in REGISTERED.items() if is_stateful}
    assert ops.PURE & stateful == ops.STATEFUL
    assert ops.PURE - stateful == ops.PURE - ops.STATEFUL
    assert sum(map(len, ops.SECTIONS.values())) == len(ops.PURE), "an op stands in two sections"
    assert len(ops.SECTIONS) == 17


def test_every_other_stateful_op_is_refused() -> None:
    others = sorted(op for op, is_stateful in REGISTERED.items() if is_stateful and op not in ops.STATEFUL)
    assert len(others) > 400
    assert [op for op in others if not refused(graph(op))] == []


@pytest.mark.parametrize("word", ["File", "Dataset", "Reader", "PyFunc", "Xla", "TPU", "Summary", "Iterator"])
def test_no_op_of_the_list_is_called_after_what_it_must_not_touch(word: str) -> None:
    known = ("ShardedFile", "XlaDynamicUpdateSlice")
    assert [op for op in ops.PURE if word in op and not op.startswith(known)] == []


def graph(op: str, **attributes: Any) -> Any:
    """A graph of one node without inputs; nothing runs it."""
    return graph_pb2.GraphDef(node=[node_defs.node("act", op, **attributes)])


def within(held: Any, name: str, *, call: str = "PartitionedCall", attr: str = "f") -> Any:
    """`held` as the body of a function `name` that a node of the op `call` names."""
    made = graph_pb2.GraphDef(library=held.library)
    function = made.library.function.add()
    function.signature.name = name
    function.node_def.extend(held.node)
    node = made.node.add(name=f"call_{name}", op=call)
    node.attr[attr].func.name = name
    return made


def refused(held: Any) -> bool:
    return [node.name for node in safe_ops.others(held)] == ["act"]


@pytest.mark.parametrize("op", DANGEROUS)
def test_dangerous_ops_are_refused_wherever_they_stand(op: str) -> None:
    held = graph(op)
    assert refused(held)
    assert refused(within(held, "f"))
    assert refused(within(held, "body", call="While", attr="body"))
    assert refused(within(held, "body", call="StatelessWhile", attr="cond"))
    assert refused(within(within(held, "inner"), "body", call="While", attr="body"))
    assert refused(within(within(held, "body", call="While", attr="body"), "outer"))
    assert refused(within(within(within(held, "a"), "b", call="If", attr="then_branch"), "c"))


def test_a_function_may_be_named_in_other_ways_too() -> None:
    held = within(graph("ReadFile"), "f")
    held.node[0].op, named = "f", held.node[0].attr.pop("f")
    assert named.func.name == "f"
    assert refused(held), "by the op of a node"
    held = within(graph("ReadFile"), "f", call="StatelessCase", attr="branches")
    del held.node[0].attr["branches"]
    held.node[0].attr["branches"].list.func.add(name="f")
    assert refused(held), "in a list"
    held = within(graph("ReadFile"), "f")
    held.node[0].attr["f"].func.name = "no_function_of_the_library"
    held.node[0].attr["f"].func.attr["body"].func.name = "f"
    assert refused(held), "as what another is made with"


def test_a_function_that_may_be_exchanged_for_the_one_that_is_called_is_looked_at() -> None:
    held = within(graph("Identity"), "f")
    held.library.function[0].attr["api_implements"].s = b"lstm"
    other = held.library.function.add()
    other.signature.name = "g"
    other.node_def.add(name="act", op="WriteFile")
    assert not refused(held)
    other.attr["api_implements"].s = b"lstm"
    assert refused(held)


def test_a_function_of_the_name_of_an_op_is_no_way_around() -> None:
    held = within(graph("Identity"), "WriteFile")
    held.node[0].op, held.node[0].name = "WriteFile", "act"
    assert refused(held)
    held = within(graph("Identity"), "of_my_own")
    held.node[0].op = "of_my_own"
    assert list(safe_ops.others(held)) == []
    held = within(graph("WriteFile"), "Identity")
    held.node[0].op = "Identity"
    assert refused(held)


def test_functions_that_nothing_calls_are_no_matter() -> None:
    held = within(graph("WriteFile"), "f")
    held.node[0].attr["f"].func.name = "g"
    assert list(safe_ops.others(held)) == []


def test_functions_that_call_each_other_come_to_an_end() -> None:
    held = within(within(graph("WriteFile"), "f"), "g")
    held.library.function[0].node_def.add(name="again", op="PartitionedCall").attr["f"].func.name = "g"
    assert refused(held)


@pytest.mark.parametrize(("stream", "is_refused"), [("stderr", False), ("file:///tmp/x", True)])
def test_what_prints_may_print_but_not_to_files(stream: str, is_refused: bool) -> None:
    assert refused(graph("PrintV2", output_stream=stream)) is is_refused


def test_the_message() -> None:
    held = graph_pb2.GraphDef(node=[node_defs.node(f"n{k}", "ReadFile") for k in range(5)])
    held.node.add(name="w", op="WriteFile")
    with pytest.raises(UnsupportedModelError) as caught:
        safe_ops.refuse("x.pb", held, cure="do this", known=lambda node, _: node.name == "n1")
    assert str(caught.value).splitlines() == [
        "x.pb: n0, n2, n3: expected arithmetic only while verifying, found ReadFile; do this",
        "x.pb: w: expected arithmetic only while verifying, found WriteFile; do this",
    ]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "numbers")
    yield made
    made.stop()


def reading(path: Path) -> Any:
    """A graph whose static shapes hang on the content of a file."""
    return graph_pb2.GraphDef(
        node=[
            node_defs.placeholder("x", tf.float32, tf.TensorShape([None, None])),
            node_defs.string_constant("name", [str(path)], scalar=True),
            node_defs.node("read", "ReadFile", ["name"]),
            node_defs.node("raw", "DecodeRaw", ["read"], out_type=tf.int32, little_endian=True),
            node_defs.node("y", "Reshape", ["x", "raw"], T=tf.float32, Tshape=tf.int32),
        ]
    )


def test_tensorflow_alone_would_read_the_file(watched: Watched) -> None:
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(reading(watched.path), name="")
    assert imported.get_tensor_by_name("y:0").shape == [2, 3]
    assert watched.opened


def test_to_import_a_graph_reads_no_file(watched: Watched) -> None:
    held = reading(watched.path)
    before = held.SerializeToString(deterministic=True)
    imported = import_graph(held)
    assert imported.get_tensor_by_name("y:0").shape.rank is None
    assert not watched.opened
    assert held.SerializeToString(deterministic=True) == before
    with tf.compat.v1.Session(graph=imported) as session:
        value = session.run("y:0", {"x:0": np.arange(6.0).reshape(6, 1)})
    assert value.shape == (2, 3), "what a user trusts runs as it would"
    assert watched.opened


def test_no_converter_reads_the_file(watched: Watched, tmp_path: Path) -> None:
    signature = Signature({"x": "x:0"}, {"y": "y:0"})
    with pytest.raises(UnsupportedModelError) as caught:
        convert.lower(reading(watched.path), signature, ())
    told = "onnx: read: expected an op that ONNX has, found ReadFile; choose --format savedmodel or frozen"
    assert str(caught.value) == told
    for built_in in (True, False):
        with pytest.raises(UnsupportedModelError) as caught:
            out = tmp_path / "model.tflite"
            write_tflite.write(reading(watched.path), signature, out, provenance="", built_in=built_in)
        expected = "expected an op that TensorFlow Lite has, found ReadFile"
        told = f"read: {expected}; choose --format savedmodel or frozen"
        assert str(caught.value) == f"tflite: {told}"
    assert not watched.opened


@pytest.mark.parametrize(
    "node",
    [
        node_defs.node("act", "ReadFile", ["text"]),
        node_defs.node("act", "MatchingFiles", ["text"]),
        node_defs.node(
            "act", "PyFuncStateless", ["text"], token="pyfunc_0", Tin=[tf.string], Tout=[tf.int32]
        ),
    ],
    ids=lambda node: node.op,
)
def test_what_tensorflow_computes_unasked(node: Any) -> None:
    text = node_defs.string_constant("text", ["a"], scalar=True)
    assert [found.name for found in safe_ops.ops_run_by_import([text, node])] == ["act"]
    fed = node_defs.placeholder("text", tf.string, tf.TensorShape([]))
    assert list(safe_ops.ops_run_by_import([fed, node])) == []
    assert list(safe_ops.ops_run_by_import([node])) == [], "an argument of a function"
    assert op_def_registry.get(node.op).input_arg
    import_graph(graph_pb2.GraphDef(node=[text, node]))


def test_a_constant_that_is_another_file_is_refused() -> None:
    node = node_defs.node("c", "ImmutableConst", dtype=tf.int32, shape=tf.TensorShape([2]))
    node.attr["memory_region_name"].s = b"/etc/hostname"
    with pytest.raises(InvalidModelError) as caught:
        import_graph(graph_pb2.GraphDef(node=[node]))
    told = "c: expected nodes that hold or take their values, found ImmutableConst, which reads them"
    assert str(caught.value) == told
