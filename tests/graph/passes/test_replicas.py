"""What replicas of a model send each other, computed in one graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError

raw, v1 = tf.raw_ops, tf.compat.v1
X = np.array([[1.5, -2.0, 4.0]], np.float32)
SHIFTED = (X, 2 * X + 1)


def collective(x: Any, merge: str, final: str, *, size: int = 2, instance: int = 1) -> Any:
    options = {"group_size": size, "group_key": 7, "instance_key": instance, "subdiv_offsets": [0]}
    return raw.CollectiveReduce(input=x, merge_op=merge, final_op=final, **options)


def nccl(x: Any, reduction: str, *, size: int = 2, name: str = "c") -> Any:
    return raw.NcclAllReduce(input=x, reduction=reduction, num_devices=size, shared_name=name)


def broadcast(x: Any) -> Any:
    """The first replica's tensor, as the second receives it."""
    options = {"group_size": 2, "group_key": 7, "instance_key": 3, "shape": [1, 3]}
    raw.CollectiveBcastSend(input=x, **options)
    return raw.CollectiveBcastRecv(T=tf.float32, **options)


#: What the first replica gets of `x`, when a second one has `2 x + 1`, and what that is.
WHOLE = {
    "sum": (lambda x, y: [nccl(x, "sum"), nccl(y, "sum")][0], sum(SHIFTED)),
    "product": (lambda x, y: [nccl(x, "prod"), nccl(y, "prod")][0], np.prod(SHIFTED, axis=0)),
    "maximum": (lambda x, y: [nccl(x, "max"), nccl(y, "max")][0], np.maximum(*SHIFTED)),
    "reduce": (lambda x, y: raw.NcclReduce(input=[x, y], reduction="min"), np.minimum(*SHIFTED)),
    "apart": (lambda x, y: [nccl(x, "sum", size=1), nccl(y, "sum", size=1, name="d")][0], X),
    "mean": (
        lambda x, y: [collective(x, "Add", "Div"), collective(y, "Add", "Div")][0],
        np.mean(SHIFTED, axis=0),
    ),
    "keys": (
        lambda x, y: [collective(x, "Add", "Id", size=1), collective(y, "Add", "Id", size=1, instance=2)][0],
        X,
    ),
    "nccl_broadcast": (lambda x, _: raw.NcclBroadcast(input=x, shape=[1, 3]), X),
    "broadcast": (lambda _, y: broadcast(y), SHIFTED[1]),
}


def drawn(folder: Path, draw: Any) -> Path:
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [1, 3], "x")
        tf.identity(draw(x, 2 * x + 1), "y")
    source = folder / "model.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    return source


@pytest.mark.parametrize("name", WHOLE)
def test_replicas_of_one_graph_meet_in_it(name: str, tmp_path: Path) -> None:
    draw, expected = WHOLE[name]
    out = tmp_path / "out"
    report = cudnn_convert.convert(drawn(tmp_path, draw), out, outputs="y:0", force_convert=True)
    assert [note for note in report.notes if note.startswith("computed in the graph itself")]
    answer = cudnn_convert.run(out, data={"x": X}).outputs[0]
    np.testing.assert_allclose(answer["y"], expected, rtol=1e-6)


def test_a_mean_of_replicas_elsewhere_is_that_of_those_here(tmp_path: Path) -> None:
    source, out = drawn(tmp_path, lambda x, _: collective(x, "Add", "Div")), tmp_path / "out"
    report = cudnn_convert.convert(source, out, outputs="y:0", force_convert=True)
    assert "CollectiveReduce is of 2 replicas, and taken of the 1 that the graph has" in report.notes
    answer = cudnn_convert.run(out, data={"x": X}).outputs[0]
    np.testing.assert_array_equal(answer["y"], X)


@pytest.mark.parametrize(
    "draw", [lambda x, _: collective(x, "Add", "Id"), lambda x, _: nccl(x, "sum")], ids=["collective", "nccl"]
)
def test_a_sum_of_replicas_elsewhere_is_refused(draw: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = drawn(tmp_path, draw)
    with pytest.raises(UnsupportedModelError, match=r"found (CollectiveReduce, which waits|NcclAllReduce)"):
        cudnn_convert.convert(source, out, outputs="y:0", force_convert=True, verify=False)
    assert not out.exists()
