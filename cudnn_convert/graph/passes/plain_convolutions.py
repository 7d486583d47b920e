"""Replaces convolutions computed on CPUs by oneDNN alone with convolutions for every CPU.

A depthwise convolution with dilations or unequal strides becomes one in groups of one channel each.

    before:  y = DepthwiseConv2dNative(x, w[3, 2, C, m], dilations=[1, 2, 2, 1])
    after:   y = Conv2D(x, Reshape(w, [3, 2, 1, C*m]), dilations=[1, 2, 2, 1])

Dilated ones over three axes, and transposed ones, get the zeros between the places of their window.

    before:  y = Conv3D(x, w[2, 2, 2, C, O], dilations=[1, 1, 2, 2, 1])
    after:   y = Conv3D(x, w/dilated[2, 3, 3, C, O])

All are channels last, as `channels_last` leaves them.

`separate_groups`: keeps TensorFlow from fusing a convolution in groups with the bias or normalisation that
reads it. Without oneDNN the fused op refuses groups, and the plain one does not (tensorflow v2.21.0
core/kernels/conv_ops_fused_impl.h; core/grappler/optimizers/remapper.cc).

    before:  y = Conv2D(x[..., 4], w[3, 2, 2, 6]); z = BiasAdd(y, b)
    after:   y/groups = Conv2D(x, w); y = Snapshot(y/groups); z = BiasAdd(y, b)

Source: tensorflow v2.21.0 core/kernels/depthwise_conv_op.cc, conv_ops_3d.cc, conv_grad_input_ops.cc (what a
CPU refuses), core/kernels/conv_ops_impl.h (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import NodeDef, reference, tensor, unique
from cudnn_convert.graph.passes.image_layouts import TransposedTensors, element_type
from cudnn_convert.graph.passes.run import Keep

_DEPTHWISE: Final = "DepthwiseConv2dNative"
#: Those whose dilations a CPU lacks.
_DILATED: Final = frozenset({"Conv3D", "Conv2DBackpropInput", "Conv3DBackpropInputV2"})
_FILTER: Final = 1
#: What TensorFlow fuses with the convolution before it.
_FUSED: Final = frozenset({"BiasAdd", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})


def is_plain(node: NodeDef) -> bool:
    """Return True if every CPU has a kernel for a convolution, channels last."""
    dilations = [*node.attr["dilations"].list.i] if "dilations" in node.attr else []
    is_dilated = any(dilation > 1 for dilation in dilations)
    if node.op == _DEPTHWISE:
        strides = node.attr["strides"].list.i
        is_first = "data_format" in node.attr and node.attr["data_format"].s == b"NCHW"
        rows, columns = strides[2:] if is_first else strides[1:3]
        return not is_dilated and rows == columns
    return node.op not in _DILATED or not is_dilated


def replace_convolutions(graph: Graph) -> Graph:
    """Replace all but plain convolutions, where the window is known.

    Returns `graph` itself if all are plain.
    """
    layouts, changes = TransposedTensors(graph), {}
    for node in graph.node:
        shape = None if is_plain(node) else layouts.shape(tensor(node.input[_FILTER]))
        if shape is None or any(size is None for size in shape[:-2]):
            continue
        layouts.owner = node.name
        sizes = [int(size or 0) for size in shape[:-2]]
        changes[node.name] = (_group if node.op == _DEPTHWISE else _dilate)(layouts, node, sizes, shape[-2:])
    added = [node for nodes in layouts.added.values() for node in nodes]
    return replace_nodes(graph, changes, added)


def separate_groups(graph: Graph, _: Keep = ()) -> Graph:
    """Put a copy behind each grouped convolution read by a bias or a normalisation."""
    index, changes, added = graph.index, dict[str, NodeDef](), list[NodeDef]()
    fused = (node for node in graph.node if node.op in _FUSED)
    sums = {
        node.name: node for node in (index.maker(index.data_inputs(each)[0], ops.COPIES) for each in fused)
    }
    for name, node in sums.items():
        if node.op == "Conv2D" and _may_have_groups(graph, node):
            inner = node_defs.copy_node(node, name=unique(f"{name}/groups", index.nodes))
            added.append(inner)
            changes[name] = node_defs.node(name, "Snapshot", [inner.name], T=element_type(node))
    return replace_nodes(graph, changes, added)


def _may_have_groups(graph: Graph, node: NodeDef) -> bool:
    """Return True if a filter has fewer channels than the image, or may have.

    It may where a shape is not known. Channels are last.
    """
    image, window = (
        graph.first_iteration.get_tensor_by_name(name).shape for name in graph.index.data_inputs(node)[:2]
    )
    return None in (image.rank, window.rank) or window[2] != image[-1]


def _group(
    layouts: TransposedTensors, node: NodeDef, window: Sequence[int], _: Sequence[int | None]
) -> NodeDef:
    inputs = [*node.input]
    inputs[_FILTER] = _reshape(layouts, inputs[_FILTER], [*window, 1, -1], element_type(node), "filter")
    return node_defs.copy_node(node, op="Conv2D", inputs=map(reference, inputs))


def _dilate(
    layouts: TransposedTensors, node: NodeDef, window: Sequence[int], channels: Sequence[int | None]
) -> NodeDef:
    """Put zeros between the places of a window.

    Rows of one place each are padded, joined and cut.
    """
    dilations, kind = [*node.attr["dilations"].list.i][1:-1], element_type(node)
    ends = [-1 if size is None else size for size in channels]
    inputs, rank = [*node.input], len(window)
    apart = [size for places in window for size in (places, 1)]
    name = _reshape(layouts, inputs[_FILTER], [*apart, *ends], kind, "dilated/apart")
    zeros = [(0, k % 2 * (dilations[k // 2] - 1)) for k in range(2 * rank)] + [(0, 0)] * 2
    padding = layouts.constant("dilated/zeros", np.array(zeros, np.int32))
    name = layouts.add("dilated/padded", "Pad", [name, padding], T=kind, Tpaddings=tf.int32)
    joined = [places * dilation for places, dilation in zip(window, dilations, strict=True)]
    name = _reshape(layouts, name, [*joined, *ends], kind, "dilated/joined")
    spans = [(places - 1) * dilation + 1 for places, dilation in zip(window, dilations, strict=True)]
    begin = layouts.constant("dilated/begin", np.zeros(rank + 2, np.int32))
    size = layouts.constant("dilated/size", np.array([*spans, -1, -1], np.int32))
    inputs[_FILTER] = layouts.add("dilated", "Slice", [name, begin, size], T=kind, Index=tf.int32)
    plain = node_defs.copy_node(node, inputs=inputs)
    plain.attr["dilations"].list.i[:] = [1] * (rank + 2)
    return plain


def _reshape(layouts: TransposedTensors, name: str, sizes: Sequence[int], kind: tf.DType, suffix: str) -> str:
    shape = layouts.constant(f"{suffix}/shape", np.array(sizes, np.int32))
    return layouts.add(suffix, "Reshape", [name, shape], T=kind, Tshape=tf.int32)
