"""What the glue of an artifact is compared with in the graph of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import build
from cudnn_convert.graph.frames import certain
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, Index, split
from cudnn_convert.model import Array, InMemory
from cudnn_convert.plan import Plan

#: The attributes that have the type of what an op gives.
_TYPES: Final = ("T", "dtype", "Tparams", "DstT")
_FLOATS: Final = frozenset(one.as_datatype_enum for one in build.FLOATS)
#: The products of matrices in a graph.
PRODUCTS: Final = frozenset(
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative Einsum".split()
)


def rounded(plan: Plan, dtype: np.dtype[Any]) -> Plan:
    """A plan whose matrices are those of another, rounded to a type and back."""

    def round_off(value: Array) -> Array:
        if value.dtype.kind != "f" or value.ndim < 2:
            return value
        with np.errstate(over="ignore"):
            return value.astype(dtype).astype(value.dtype)

    graph = type(plan.whole)()
    graph.CopyFrom(plan.whole)
    for node in graph.node:
        if node.op == "Const" and node.attr["dtype"].type in _FLOATS:
            value = round_off(tf.make_ndarray(node.attr["value"].tensor))
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    held = {name: InMemory(round_off(one.read())) for name, one in plan.model.variables.items()}
    return replace(plan, whole=graph, model=replace(plan.model, variables=held))


def products(plan: Plan, feed: Mapping[str, Array]) -> tuple[dict[str, bool], bool]:
    """By tensor that a product of the artifact may be, whether a product gives it; whether others repeat.

    Of what stands in a loop or a branch the source has no one value.
    """
    index = Index(plan.whole)
    nodes = {one.node for one in plan.recurrences}
    needed = index.ancestors(
        (split(name)[0] for name in plan.signature.outputs.values()), control=False, stop=nodes
    )
    for node in nodes & needed:  # but for what their parameters are packed from, which the judge leaves out
        read = index.data_inputs(index.nodes[node])
        ends = [split(read[place])[0] for place in (INPUT, INPUT_H, INPUT_C)]
        needed |= index.ancestors(ends, control=False, stop=nodes)
    fed = {split(name)[0] for name in feed}
    others = (node.name for node in plan.whole.node if node.op == "Placeholder" and node.name not in fed)
    known = certain(index)
    once = (needed & known & index.descendants(fed | nodes)) - index.descendants(others) - nodes
    floats = (name for name in sorted(once) if _is_of_floats(index.nodes[name]))
    found = {f"{name}:0": index.nodes[name].op in PRODUCTS for name in floats}
    return found, any(index.nodes[name].op in PRODUCTS for name in needed - known)


def _is_of_floats(node: Any) -> bool:
    return any(node.attr[key].type in _FLOATS for key in _TYPES if key in node.attr)
