"""Replaces pools and normalisations missing or inexact in TensorFlow Lite by supported ops.

`replace_pools`: a pool over three axes becomes one over rows and columns, then one over time. The mean of
SAME windows counts what lies inside alone, axis by axis too. A MaxPoolV2, whose sizes are inputs, gets them
as attributes. A FusedBatchNormV2 becomes a FusedBatchNormV3, which computes the same.
An LRN becomes a product with a band of ones: its kernel adds what enters a window and subtracts what leaves
it, which loses the digits of what is small beside something large.
Source: tensorflow v2.21.0 core/ops/nn_ops.cc, core/kernels/pooling_ops_3d.cc, lrn_op.cc;
lite/kernels/internal/reference/reference_ops.h LocalResponseNormalization.

    before:  y = MaxPool3D(x[N, D, H, W, C], ksize=[1, d, h, w, 1])
    after:   rows = MaxPool(Reshape(x, [N*D, H, W, C]), ksize=[1, h, w, 1])
             y = MaxPool(Reshape(rows, [N, D, H'*W', C]), ksize=[1, d, 1, 1]) as [N, D', H', W', C]
"""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, expand_nodes
from cudnn_convert.graph.index import NodeDef, tensor
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep

_POOLS: Final[MappingProxyType[str, Callable[..., Any]]] = MappingProxyType(
    {"MaxPool3D": tf.nn.max_pool2d, "AvgPool3D": tf.nn.avg_pool2d}
)


def replace_pools(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each missing or inexact pool and normalisation.

    Return `graph` itself if there are none.
    """
    changes: dict[str, list[NodeDef]] = {}
    for node in graph.node:
        if node.op in _POOLS and node.attr["data_format"].s in (b"", b"NDHWC"):
            shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
            spec = tf.TensorSpec(shape if shape.rank else [None] * 5, _kind(node))
            body = inlining.trace_function(partial(_pool, node), spec)
            changes[node.name] = inlining.call(body, node.name, graph.index.data_inputs(node))
        elif node.op == "LRN":
            shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
            if shape.rank and shape[-1] is not None:
                body = inlining.trace_function(partial(_normalize, node), tf.TensorSpec(shape, _kind(node)))
                changes[node.name] = inlining.call(body, node.name, graph.index.data_inputs(node))
        elif node.op == "MaxPoolV2":
            changes[node.name] = [_with_sizes(graph, node)]
        elif node.op == "FusedBatchNormV2":
            changes[node.name] = [node_defs.copy_node(node, op="FusedBatchNormV3")]
    return expand_nodes(graph, changes)


def _kind(node: NodeDef) -> tf.DType:
    return tf.as_dtype(node.attr["T"].type)


def _normalize(node: NodeDef, x: Any) -> Any:
    """Divide `x [N, H, W, C]` by a power of summed squares of neighbouring channels."""
    radius = node_defs.read_attribute(node, "depth_radius").i
    bias, alpha, beta = (node_defs.read_attribute(node, key).f for key in ("bias", "alpha", "beta"))
    places = np.arange(x.shape[-1])
    band = np.abs(places[:, None] - places) <= radius
    sums = tf.nn.conv2d(tf.square(x), tf.constant(band[None, None], x.dtype), 1, "VALID")
    return x * tf.pow(bias + alpha * sums, -beta)


def _pool(node: NodeDef, x: Any) -> Any:
    """Pool `[N, D, H, W, C]` to `[N, D', H', W', C]`."""
    size, strides = ([*node.attr[key].list.i][1:-1] for key in ("ksize", "strides"))
    pool, padding = _POOLS[node.op], node.attr["padding"].s.decode()
    n, d, h, w, c = _sizes(x)
    rows = pool(tf.reshape(x, _pack(-1, h, w, c)), size[1:], strides[1:], padding)
    _, h, w, _ = _sizes(rows)
    times = pool(tf.reshape(rows, _pack(n, d, h * w, c)), [size[0], 1], [strides[0], 1], padding)
    return tf.reshape(times, _pack(n, _sizes(times)[1], h, w, c))


def _sizes(x: Any) -> list[Any]:
    """Return the sizes of a tensor, numbers where known."""
    known = tf.shape(x)
    return [known[axis] if size is None else size for axis, size in enumerate(x.shape)]


def _pack(*sizes: Any) -> Any:
    return tf.stack(sizes) if any(tf.is_tensor(size) for size in sizes) else [*sizes]


def _with_sizes(graph: Graph, node: NodeDef) -> NodeDef:
    image, *others = graph.index.data_inputs(node)
    values = [constant_folding.fold_constant(graph.index, name) for name in others]
    plain = node_defs.copy_node(node, op="MaxPool", inputs=[image])
    for key, value in zip(("ksize", "strides"), values, strict=True):
        if value is None:
            return node
        plain.attr[key].list.i[:] = value.tolist()
    return plain
