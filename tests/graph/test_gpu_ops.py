"""The table of what a CPU has no kernel for is the installed TensorFlow's; each row is dealt with."""

from __future__ import annotations

import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing
from support.samples import ROOT
from support.versions import needs

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import gpu_ops, node_defs, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.passes import half_precision, replicas
from cudnn_convert.plan import obstacles
from cudnn_convert.private import tf_private

v1 = tf.compat.v1
ROWS = gpu_ops.read_table()
IDS = [f"{row.op} {row.type}".strip() for row in ROWS]


@needs("tensorflow", 2, 21, why="TensorFlow has kernels for other ops; the table is that of 2.21")
def test_the_table_is_that_of_the_installed_tensorflow() -> None:
    """`python scripts/list_gpu_ops.py` writes it anew; a new row needs a decision."""
    listing = runpy.run_path(str(ROOT / "scripts" / "list_gpu_ops.py"))
    assert [(row.op, row.type) for row in ROWS] == listing["list_missing"]()


def test_every_row_says_what_is_done_and_how() -> None:
    assert {row.done for row in ROWS} == {"lowered", "dropped", "refused"}
    assert all(row.how for row in ROWS)


def node_of(row: gpu_ops.GpuOp) -> Any:
    """A graph of one node that the row is about, its inputs fed."""
    definition = tf_private.find_op(row.op)
    node = node_defs.node("asked", row.op)
    attribute, _, kind = row.type.partition("=")
    for each in definition.attr:
        if each.type == "type":
            first = each.allowed_values.list.type[0] if each.allowed_values.list.type else tf.float32
            node.attr[each.name].type = tf.as_dtype(first).as_datatype_enum
        if each.name == "num_devices":
            node.attr[each.name].i = 1
    if attribute:
        node.attr[attribute].type = tf.as_dtype(kind).as_datatype_enum
    graph = v1.GraphDef()
    for number, argument in enumerate(definition.input_arg):
        dtype = argument.type or node.attr[argument.type_attr].type or tf.float32
        graph.node.append(node_defs.placeholder(f"x{number}", tf.as_dtype(dtype), tf.TensorShape(None)))
        node.input.append(f"x{number}")
    graph.node.append(node)
    return graph


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_each_row_is_lowered_or_refused_in_a_line(row: gpu_ops.GpuOp) -> None:
    """What is dropped as a part of training is refused where an output needs it all the same."""
    graph = Graph(node_of(row))
    found = gpu_ops.find_row(graph.node[-1])
    assert found is not None
    assert found.op == row.op
    if row.type.endswith("=float16") and row.done == "lowered":
        after = half_precision.compute_in_float32(graph)
        assert not [node.name for node in after.node if gpu_ops.find_row(node)]
        return
    if row.op.startswith("Nccl"):
        after = replicas.reduce_replicas(graph)
        assert not [node.name for node in after.node if gpu_ops.find_row(node)]
        return
    if row.op in ops.CUDNN:
        return  # what this package is for
    with pytest.raises(UnsupportedModelError) as caught:
        obstacles.check_runs_on_cpu(Path("model.pb"), graph, outputs={"y": "asked:0"})
    kind = row.type.partition("=")[2]
    what = f"without a CPU kernel for {kind}" if kind else "without a CPU kernel"
    (line,) = caught.value.reasons
    assert (
        str(line) == f"asked: expected ops that run on a CPU, found {row.op}, {what}; choose other --outputs"
    )


@pytest.mark.parametrize("platforms", [["CUDA"], ["CPU", "CUDA"], []])
def test_a_program_of_xla_for_a_gpu_alone_is_refused(platforms: list[str]) -> None:
    graph = v1.GraphDef(node=[node_defs.placeholder("x", tf.float32, tf.TensorShape([2]))])
    node = graph.node.add(name="asked", op="XlaCallModule", input=["x"])
    node.attr["Tin"].list.type.append(tf.float32.as_datatype_enum)
    node.attr["Tout"].list.type.append(tf.float32.as_datatype_enum)
    node.attr["Sout"].list.shape.add()
    node.attr["module"].s = b""
    node.attr["version"].i = 9
    node.attr["platforms"].list.s.extend(each.encode() for each in platforms)
    is_refused = platforms == ["CUDA"]
    with (
        pytest.raises(UnsupportedModelError, match="compiled for CUDA alone") if is_refused else nullcontext()
    ):
        obstacles.check_runs_on_cpu(Path("model.pb"), Graph(graph), outputs={"y": "asked:0"})


def test_half_that_no_cpu_computes_goes_through_float32(tmp_path: Path) -> None:
    """Pools of films channels first, a product and a rounding: all values are those of float32, rounded."""
    rng = np.random.default_rng(6)
    weight = rng.normal(size=(3, 5)).astype(np.float16)
    with drawing() as graph:
        x = v1.placeholder(tf.float16, [None, 3, 4, 5, 6], "x")
        window = {
            "ksize": [1, 1, 2, 3, 2],
            "strides": [1, 1, 2, 1, 3],
            "padding": "SAME",
            "data_format": "NCDHW",
        }
        y = tf.raw_ops.MaxPool3D(input=x, **window)
        tf.raw_ops.Rint(x=tf.raw_ops.AvgPool3D(input=y, **window) * 8.0, name="y")
        m = v1.placeholder(tf.float16, [None, 4, 3], "m")
        tf.raw_ops.BatchMatMulV3(x=m, y=tf.constant(weight), Tout=tf.float16, name="product")
    source, out = tmp_path / "model.pb", tmp_path / "out"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    report = cudnn_convert.convert(source, out, outputs="y:0,product:0")
    said = "computed in float32, for no CPU does in half: AvgPool3D, BatchMatMulV3, MaxPool3D, Rint"
    assert said in report.notes
    feed = {"x": rng.normal(size=(2, 3, 4, 5, 6)).astype(np.float16)}
    feed["m"] = rng.normal(size=(2, 4, 3)).astype(np.float16)
    answer = cudnn_convert.run(out, data=feed).outputs[0]
    film = tf.transpose(tf.cast(feed["x"], tf.float32), [0, 2, 3, 4, 1])
    size, strides = [1, 2, 3, 2, 1], [1, 2, 1, 3, 1]
    means = tf.nn.avg_pool3d(tf.nn.max_pool3d(film, size, strides, "SAME"), size, strides, "SAME")
    pooled = tf.cast(tf.cast(means, tf.float16) * 8.0, tf.float32)
    expected = tf.transpose(tf.math.rint(pooled), [0, 4, 1, 2, 3]).numpy()
    np.testing.assert_allclose(answer["y"].astype(np.float32), expected, atol=1.0)
    assert np.mean(answer["y"] == expected) > 0.9
    product = (feed["m"].astype(np.float32) @ weight.astype(np.float32)).astype(np.float16)
    np.testing.assert_allclose(answer["product"], product, rtol=2e-3, atol=2e-3)
