"""Convolutions with windows leaving out places, for TensorFlow Lite.

`replace_padding`: padded as SAME, they see nothing but padding with XNNPACK, the default of its interpreter,
and answer with their bias. It is so where the padding of an axis would be negative, since
`(windows - 1) * stride + window < size`. They get their padding from a Pad, and take none themselves.
Source: seen in TensorFlow 2.21.0 for CONV_2D and DEPTHWISE_CONV_2D; its pools and TRANSPOSE_CONV are right.
tensorflow v2.21.0 core/framework/kernel_shape_util.cc GetWindowedOutputSize (what SAME pads).

    before:  y = Conv2D(x[N, 6, 5, C], w[1, 2, C, O], strides=[1, 2, 2, 1], padding="SAME")
    after:   y = Conv2D(Pad(x, [[0, 0], [0, 0], [0, 1], [0, 0]]), w, strides=[1, 2, 2, 1], padding="VALID")
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, expand_nodes
from cudnn_convert.graph.index import NodeDef, claim, tensor
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep

_CONVOLUTIONS: Final = frozenset({"Conv2D", "DepthwiseConv2dNative"})


def replace_padding(graph: Graph, _: Keep = ()) -> Graph:
    """Replace the padding of each channels-last convolution leaving out places.

    Return `graph` itself if there are none. The padding of an open size is computed when the
    model runs.
    """
    changes: dict[str, list[NodeDef]] = {}
    taken = {node.name for node in graph.node}
    for node in graph.node:
        if may_leave_out(node):
            image, windows = _shape(graph, node.input[0]), _windows(graph, node)
            if windows and any(map(_AxisWindow.leaves_out, windows, image[1:3])):
                changes[node.name] = [*_pad(node, image, windows, taken)]
    return expand_nodes(graph, changes)


def may_leave_out(node: NodeDef) -> bool:
    """Return True if a node is a SAME-padded convolution possibly leaving out places."""
    return (
        node.op in _CONVOLUTIONS
        and node.attr["padding"].s == b"SAME"
        and any(stride > 1 for stride in node.attr["strides"].list.i)
    )


@dataclass(frozen=True, slots=True)
class _AxisWindow:
    """The places spanned by a window on an axis, and the stride between windows."""

    span: int
    stride: int

    def leaves_out(self, size: int | None) -> bool:
        """Return True if the last window ends before the axis does.

        For an open size: if it ever does.
        """
        return self.span < ((size or 0) % self.stride or self.stride)

    def padding(self, size: Any, larger: Callable[[Any, Any], Any] = max) -> tuple[Any, Any]:
        """Return the places before and behind an axis."""
        windows = -(-size // self.stride)
        whole = larger((windows - 1) * self.stride + self.span - size, 0)
        return whole // 2, whole - whole // 2

    def needs_padding(self, size: int | None) -> bool:
        """Return True if an axis needs padding.

        For an open size: if it ever does.
        """
        return self.span > 1 if size is None else any(self.padding(size))


def _shape(graph: Graph, name: str) -> list[int | None]:
    shape = graph.shapes.get_tensor_by_name(tensor(name)).shape
    return [None] * 4 if shape.rank is None else list(shape)


def _windows(graph: Graph, node: NodeDef) -> list[_AxisWindow]:
    """Return the windows over rows and over columns.

    Empty where they are not known.
    """
    sizes = _shape(graph, node.input[1])[:2]
    strides = [*node.attr["strides"].list.i][1:3]
    dilations = [*node_defs.read_attribute(node, "dilations").list.i][1:3]
    if None in sizes:
        return []
    return [
        _AxisWindow((int(size or 0) - 1) * dilation + 1, stride)
        for size, dilation, stride in zip(sizes, dilations, strides, strict=True)
    ]


def _pad(
    node: NodeDef, image: Sequence[int | None], windows: Sequence[_AxisWindow], taken: set[str]
) -> list[NodeDef]:
    plain = node_defs.copy_node(node)
    plain.attr["padding"].s = b"VALID"
    if not any(map(_AxisWindow.needs_padding, windows, image[1:3])):
        return [plain]
    kind = tf.as_dtype(node.attr["T"].type)
    body = inlining.trace_function(partial(_pad_image, windows), tf.TensorSpec(image, kind))
    # An Identity: a constant cannot wait for one output of a Switch.
    source = node_defs.identity(claim(f"{node.name}/input", taken), node.input[0], node.attr["T"].type)
    padded = inlining.call(body, claim(f"{node.name}/padded", taken), [source.name])
    plain.input[0] = padded[-1].name
    return [source, *padded, plain]


def _pad_image(windows: Sequence[_AxisWindow], x: Any) -> Any:
    """Pad the rows and columns of `x [N, H, W, C]` as SAME does."""
    rows: list[tuple[Any, Any]] = [(0, 0)]
    for axis, window in enumerate(windows, 1):
        size = x.shape[axis]
        if not window.needs_padding(size):
            rows.append((0, 0))
        elif size is None:
            rows.append(window.padding(tf.shape(x)[axis], tf.maximum))
        else:
            rows.append(window.padding(size))
    padded = tf.pad(x, [*rows, (0, 0)])
    if x.shape[-1] is None or all(isinstance(each, int) for row in rows for each in row):
        return padded
    # Of a padding that is computed the converter knows no size; a convolution needs that of its channels.
    return tf.slice(padded, [0] * len(x.shape), [-1, -1, -1, x.shape[-1]])
