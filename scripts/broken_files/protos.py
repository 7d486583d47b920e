"""Functions, SavedModels and MetaGraphs: what is called, and what is kept beside the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from broken_files.graphs import (
    CANARY,
    OUTPUT,
    constant,
    frozen,
    graph,
    node,
    recurrence,
    scores,
    text,
    writing,
)

SERVING = "serving_default"


def function(name: str, nodes: Any, *, result: str = "x") -> Any:
    """`float -> float`, of the argument itself or of a node's output; waits for nothing."""
    made = function_pb2.FunctionDef(node_def=nodes, ret={"y": result})
    made.signature.name = name
    made.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
    made.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
    return made


def call(name: str, of: str, source: str = "rnn") -> Any:
    kinds = [tf.float32]
    made = node(name, "StatefulPartitionedCall", [source], Tin=kinds, Tout=kinds)
    made.attr["f"].func.name = of
    return made


def calling(*functions: Any) -> Any:
    """A recurrence, then a call of the first function."""
    made = graph(*recurrence(), call("call", functions[0].signature.name), scores(source="call"))
    made.library.function.extend(functions)
    return made


def each_other(path: Path) -> None:
    """Two functions that call each other for ever."""
    found = [function(one, [call("c", two, "x")], result="c:output:0") for one, two in ("fg", "gf")]
    frozen(path, calling(*found))


def nested(path: Path) -> None:
    """Thirty functions, each with two calls of the next: 2^30 nodes when laid flat."""
    found = []
    for level in range(30):
        calls = [call("a", f"f{level + 1}", "x"), call("b", f"f{level + 1}", "a:output:0")]
        found.append(function(f"f{level}", calls, result="b:output:0"))
    last = function("f30", [node("i", "Identity", ["x"], T=tf.float32)], result="i:output:0")
    frozen(path, calling(*found, last))


def endless_loop(path: Path) -> None:
    """A loop whose body is the loop itself."""
    loop = node("loop", "While", ["x"], T=[tf.float32])
    loop.attr["cond"].func.name = loop.attr["body"].func.name = "body"
    frozen(path, calling(function("body", [loop], result="loop:output:0")))


def nested_proto(path: Path) -> None:
    """Attributes in attributes, a thousand deep."""
    held = b"\n\1f"  # NameAttrList.name
    for _ in range(1000):
        value = b"\x52" + _sized(held)  # AttrValue.func
        entry = b"\n\1a" + b"\x12" + _sized(value)
        held = b"\n\1f" + b"\x12" + _sized(entry)
    attr = b"\n\1a" + b"\x12" + _sized(b"\x52" + _sized(held))
    made = b"\n\1n" + b"\x12\4NoOp" + b"\x2a" + _sized(attr)
    path.write_bytes(
        b"\n" + _sized(made) + graph(*recurrence(), scores()).SerializeToString(deterministic=True)
    )


def _sized(held: bytes) -> bytes:
    length, found = len(held), b""
    while length > 127:
        found += bytes([length & 127 | 128])
        length >>= 7
    return found + bytes([length]) + held


def meta(made: Any) -> Any:
    found = meta_graph_pb2.MetaGraphDef(graph_def=made)
    found.meta_info_def.tags.append("serve")
    signature = found.signature_def[SERVING]
    signature.method_name = "tensorflow/serving/predict"
    for infos, name in ((signature.inputs, "x"), (signature.outputs, OUTPUT)):
        infos[name].name, infos[name].dtype = f"{name}:0", tf.float32.as_datatype_enum
    return found


def saved(folder: Path, found: Any) -> None:
    folder.mkdir()
    made = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[found])
    (folder / "saved_model.pb").write_bytes(made.SerializeToString(deterministic=True))


def function_writes(folder: Path) -> None:
    """A SavedModel whose function writes a file."""
    inside = [*writing()[:2], node("write", "WriteFile", ["name:output:0", "what:output:0"])]
    result = node("i", "Identity", ["x", "^write"], T=tf.float32)
    saved(folder, meta(calling(function("f", [*inside, result], result="i:output:0"))))


def meta_graph_writes(folder: Path) -> None:
    """A checkpoint whose MetaGraph writes a file."""
    folder.mkdir()
    from broken_files.checkpoints import bundle

    bundle(folder / "model.ckpt", {"w": np.float32([1, 2])})
    found = meta(graph(*recurrence(), *writing(), scores("write")))
    (folder / "model.ckpt.meta").write_bytes(found.SerializeToString(deterministic=True))


def table(filename: str) -> Any:
    """A MetaGraph whose scores wait for a lookup in a table of the words of a file."""
    held = meta(
        graph(
            *recurrence(),
            text("asset", "words.txt"),
            node("table", "HashTableV2", key_dtype=tf.string, value_dtype=tf.int64),
            filling("fill", "asset", "table"),
            text("word", "a"),
            constant("default", np.int64(-1)),
            node("found", "LookupTableFindV2", ["table", "word", "default"], Tin=tf.string, Tout=tf.int64),
            scores("found"),
        )
    )
    held.collection_def["saved_model_main_op"].node_list.value.append("fill")
    proto = held.asset_file_def.add(filename=filename)
    proto.tensor_info.name = "asset:0"
    return held


def asset_outside(folder: Path) -> None:
    """A SavedModel whose table is filled from a file two folders up."""
    saved(folder, table("../../etc/passwd"))


def asset_absolute(folder: Path) -> None:
    """A SavedModel whose table is filled from /etc/passwd."""
    saved(folder, table("/etc/passwd"))


def asset_link(folder: Path) -> None:
    """A SavedModel whose table is filled from a symbolic link to /etc/passwd."""
    saved(folder, table("words.txt"))
    (folder / "assets").mkdir()
    (folder / "assets" / "words.txt").symlink_to("/etc/passwd")


def filling(name: str, file: str, held: str) -> Any:
    """The op that fills the table `held` from `file`."""
    attributes = {"key_index": -2, "value_index": -1, "vocab_size": -1, "delimiter": "\t"}
    return node(name, "InitializeTableFromTextFileV2", [held, file], **attributes)


def words(folder: Path) -> None:
    """The asset of a table."""
    (folder / "assets").mkdir()
    (folder / "assets" / "words.txt").write_text("a\nb\n")


def function_fills(folder: Path) -> None:
    """A loop fills a table from any file, by an op called as the one that fills a table from an asset."""
    kinds = [tf.int32, tf.float32]
    less = node("less", "Less", ["k", "one:output:0"], T=tf.int32)
    cond = function_pb2.FunctionDef(node_def=[constant("one", np.int32(1)), less], ret={"go": "less:z:0"})
    inside = [
        text("name", CANARY),
        node("other", "HashTableV2", key_dtype=tf.string, value_dtype=tf.int64),
        filling("fill", "name:output:0", "other:table_handle:0"),
        constant("one", np.int32(1)),
        node("next", "AddV2", ["k", "one:output:0", "^fill"], T=tf.int32),
    ]
    body = function_pb2.FunctionDef(node_def=inside, ret={"k_next": "next:z:0", "y_next": "y"})
    results = {"cond": {"go": tf.bool}, "body": {"k_next": tf.int32, "y_next": tf.float32}}
    for name, made in {"cond": cond, "body": body}.items():
        made.signature.name, made.signature.is_stateful = name, name == "body"
        for argument, kind in zip("ky", kinds, strict=True):
            made.signature.input_arg.add(name=argument, type=kind.as_datatype_enum)
        for result, kind in results[name].items():
            made.signature.output_arg.add(name=result, type=kind.as_datatype_enum)
    loop = node("loop", "While", ["zero", "rnn"], T=kinds)
    loop.attr["cond"].func.name, loop.attr["body"].func.name = "cond", "body"
    held = table("words.txt")
    held.graph_def.node.extend([constant("zero", np.int32(0)), loop])
    found = next(one for one in held.graph_def.node if one.name == OUTPUT)
    found.input[0] = "loop:1"
    held.graph_def.library.function.extend([cond, body])
    saved(folder, held)
    words(folder)


def asset_unfed(folder: Path) -> None:
    """The scores fill a table too, from the path in the graph, which a loader exchanges where it fills."""
    held = table("words.txt")
    by_name = {one.name: one for one in held.graph_def.node}
    by_name["asset"].CopyFrom(text("asset", CANARY))
    by_name[OUTPUT].input.append("^fill")
    saved(folder, held)
    words(folder)


def external(path: Path, location: str) -> None:
    """An ONNX model `scores = x * w`, `w` in another file."""
    kind = onnx.TensorProto.FLOAT
    weight = onnx.TensorProto(name="w", data_type=kind, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": "4"}.items():
        weight.external_data.add(key=key, value=value)
    value = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["x", "w"], [OUTPUT])],
        "model",
        [value("x", kind, [None, 2, 3])],
        [value(OUTPUT, kind, [None, 2, 3])],
        [weight],
    )
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString(deterministic=True))


def external_up(path: Path) -> None:
    """An ONNX artifact whose weights are in ../../../../../../etc/passwd."""
    external(path, "../../../../../../etc/passwd")


def external_absolute(path: Path) -> None:
    """An ONNX artifact whose weights are in /etc/passwd."""
    external(path, "/etc/passwd")


MAKERS: dict[str, Callable[[Path], None]] = {
    "functions_each_other.pb": each_other,
    "functions_nested.pb": nested,
    "endless_loop.pb": endless_loop,
    "nested_proto.pb": nested_proto,
    "function_writes": function_writes,
    "meta_graph_writes": meta_graph_writes,
    "asset_outside": asset_outside,
    "asset_absolute": asset_absolute,
    "asset_link": asset_link,
    "asset_unfed": asset_unfed,
    "function_fills": function_fills,
    "external_up.onnx": external_up,
    "external_absolute.onnx": external_absolute,
}
