"""Blocks of images over rows and columns, for TensorFlow Lite.

`widen_blocks`: its kernels of SpaceToBatchND and BatchToSpaceND take images with blocks of rows and columns
alone. TensorFlow's convolution with a dilation of rows has a block of rows.
Source: tensorflow v2.21.0 lite/kernels/space_to_batch_nd.cc ResizeOutputTensor, batch_to_space_nd.cc;
python/ops/nn_ops.py with_space_to_batch.

    before:  y = SpaceToBatchND(x[N, H, W, C], [2], [[1, 2]])
    after:   y = SpaceToBatchND(x, [2, 1], [[1, 2], [0, 0]])
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, rewrite_nodes
from cudnn_convert.graph.index import NodeDef, claim, reference, split, tensor
from cudnn_convert.graph.passes.run import Keep

_OPS = frozenset({"SpaceToBatchND", "BatchToSpaceND"})
_IMAGE = 4


def widen_blocks(graph: Graph, _: Keep = ()) -> Graph:
    """Give each block of rows a single column.

    Return `graph` itself if there are none.
    """
    return rewrite_nodes(graph, partial(_widen, graph))


def _widen(graph: Graph, node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
    if node.op not in _OPS:
        return
    block = constant_folding.fold_constant(graph.index, tensor(node.input[1]))
    image, _, edges, *waits = node.input
    if block is None or len(block) != 1:
        return
    if graph.first_iteration.get_tensor_by_name(tensor(image)).shape.rank != _IMAGE:
        return
    wait, kind = [f"^{split(image)[0]}"], tf.as_dtype(node.attr["Tblock_shape"].type or tf.int32)
    key = "Tpaddings" if "Tpaddings" in node.attr else "Tcrops"
    edge_kind = tf.as_dtype(node.attr[key].type or tf.int32)
    sizes, none, axis, joined = (
        claim(f"{node.name}/{suffix}", taken) for suffix in ("block", "none", "axis", "edges")
    )
    yield node_defs.constant(sizes, np.array([*block, 1], kind.as_numpy_dtype), control=wait)
    yield node_defs.constant(none, np.zeros((1, 2), edge_kind.as_numpy_dtype), control=wait)
    yield node_defs.constant(axis, np.array(0, np.int32), control=wait)
    parts = [reference(edges), none, axis]
    yield node_defs.node(joined, "ConcatV2", parts, T=edge_kind, Tidx=tf.int32, N=2)
    yield node_defs.copy_node(node, inputs=[image, sizes, joined, *waits])
