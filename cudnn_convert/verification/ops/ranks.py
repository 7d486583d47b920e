"""Finds the number of axes of a tensor, behind loops too.

TensorFlow, as it imports a loop, forgets the shapes of what the loop gives, and of all that reads it
(tensorflow v2.21.0 core/common_runtime/shape_refiner.cc: a Merge has no shape until all its inputs have one).
"""

from __future__ import annotations

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import tensor
from cudnn_convert.verification.ops.graphs import TensorGraph
from cudnn_convert.verification.ops.moved_ops import POINTWISE, REDUCTIONS, read_format


def find_rank(graph: TensorGraph, name: str) -> int | None:
    """Return the number of axes of a tensor, if known."""
    rank: int | None = graph.shapes.get_tensor_by_name(tensor(name)).shape.rank
    root = graph.root(name)
    if rank is not None or graph.is_end(root):
        return rank
    node = graph.node(root)
    if (layout := read_format(node)) and node.op != "BiasAdd":  # a bias of any rank is said to be NHWC
        return len(layout)
    if node.op in POINTWISE:
        ranks = [find_rank(graph, each) for each in graph.index.data_inputs(node)]
        return None if None in ranks else max(each for each in ranks if each is not None)
    keeps = node.op in REDUCTIONS and node.attr["keep_dims"].b
    if keeps or node.op in ops.CARRIERS | {"BiasAdd"}:
        return find_rank(graph, graph.index.data_inputs(node)[0])  # of a Merge, what enters the loop
    return None
