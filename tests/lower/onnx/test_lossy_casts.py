"""Casts between a source's ops that lose numbers, in graphs as tf2onnx holds them before its optimizer."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto
from tf2onnx.graph import Graph

from cudnn_convert.lower.onnx.lossy_casts import OWN, find_lossy

FLOAT, DOUBLE, INT32, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64


def chain(given: int, to: int, *, source: str = "x", cast: str = "added", op: str = "Exp") -> Any:
    """An op of the source behind a cast of `x`, of its shape or of its negation."""
    graph = Graph([], output_shapes={}, dtypes={}, target=None, opset=17)
    graph.make_node("Placeholder", [], outputs=["x"], name="x", dtypes=[given], shapes=[[3]])
    graph.make_node("Shape", ["x"], outputs=["shape"], name="shape", dtypes=[INT64], shapes=[[1]])
    graph.make_node("Cast", [source], outputs=["cast"], name=cast, attr={"to": to}, dtypes=[to], shapes=[[3]])
    graph.make_node(op, ["cast"], outputs=["y:0"], name="op__5", dtypes=[to], shapes=[[3]])
    return graph


@pytest.mark.parametrize(
    ("given", "to", "words"),
    [
        (DOUBLE, FLOAT, "as float, which lacks numbers of double"),
        (INT32, FLOAT, "as float, which lacks numbers of int32"),
        (INT64, DOUBLE, "as double, which lacks numbers of int64"),
        (INT32, DOUBLE, None),
        (FLOAT, DOUBLE, None),
    ],
)
def test_a_cast_is_lossy_by_its_types(given: int, to: int, words: str | None) -> None:
    assert find_lossy(chain(given, to), {"y": "Exp"}) == ({} if words is None else {"y": words})


def test_casts_of_the_source_our_own_and_of_sizes_stay() -> None:
    assert find_lossy(chain(DOUBLE, FLOAT, cast="theirs"), {"theirs": "Cast", "y": "Exp"}) == {}
    assert find_lossy(chain(DOUBLE, FLOAT, cast=f"{OWN}Cast"), {"y": "Exp"}) == {}
    assert find_lossy(chain(INT64, FLOAT, source="shape"), {"y": "Exp"}) == {}
    assert find_lossy(chain(INT64, FLOAT), {"y": "SegmentMean"}) == {}
