"""ONNX forms of ops for resizing images.

tf2onnx says by which factor an image grows, and a runtime rounds the product down: 6 rows times 5/6 may be 4.
It knows images of float32 alone, and of a nearest pixel it leaves the rounding to the runtime (tf2onnx
v1.17.0 tf2onnx/onnx_opset/nn.py Resize). Here sizes are said as TensorFlow has them, and the nearest pixels
are picked by numbers that are computed as TensorFlow computes them.
Source: tensorflow v2.21.0 core/kernels/image/resize_bilinear_op.cc, resize_nearest_neighbor_op.cc,
core/util/image_resizer_state.h CalculateResizeScale, HalfPixelScalerForNN.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from cudnn_convert.lower.onnx.exact_ops import Handler, Replacement
from cudnn_convert.model import Array

_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64
_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def _read_alignment(node: Any) -> tuple[bool, bool]:
    """Return True for pixels aligned by corners, and for pixels aligned by centers.

    Other pixels are aligned by upper left corners.
    """
    return bool(node.get_attr_value("align_corners")), bool(node.get_attr_value("half_pixel_centers"))


def resize_linearly(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Interpolate in float32, whatever the type of the image, as TensorFlow does."""
    corners, halves = _read_alignment(node)
    ops = Replacement(graph, node)
    mode = "align_corners" if corners else "half_pixel" if halves else "asymmetric"
    image = ops.cast(ops.inputs[0], _FLOAT)
    ops.finish(_resize(ops, image, ops.inputs[1], mode="linear", coordinate_transformation_mode=mode))


def resize_to_nearest(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Repeat pixels for growth by whole factors, else pick pixels by number."""
    corners, halves = _read_alignment(node)
    before = (graph.get_shape(node.input[0]) or [-1] * 4)[1:3]
    after = node.inputs[1].get_tensor_value() if node.inputs[1].is_const() else None
    ops = Replacement(graph, node)
    image, size = ops.inputs
    sizes = [] if -1 in before or after is None else [*zip(before, after, strict=True)]
    if sizes and not corners and all(new % old == 0 for old, new in sizes):
        attributes = {
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        }
        ops.finish(_resize(ops, image, size, **attributes))
        return
    for axis in (1, 2):
        if sizes:
            rows = ops.constant(pick_nearest(*sizes[axis - 1], corners=corners, halves=halves))
        else:
            rows = _count_rows(ops, image, size, axis, corners=corners, halves=halves)
        image = ops("Gather", [image, rows], axis=axis)
    ops.finish(image)


def pick_nearest(old: int, new: int, *, corners: bool, halves: bool) -> Array:
    """Return the old row for each new row, by TensorFlow's arithmetic in float32."""
    half, less = np.float32(0.5), int(corners and new > 1)
    scale = np.float32(old - less) / np.float32(new - less)
    rows = np.arange(new, dtype=np.float32)
    at = (rows + half) * scale if halves else rows * scale
    below = np.floor(at)
    rows = below + (at - below >= half) if corners else below  # a half is rounded up
    picked: Array = np.minimum(rows, old - 1).astype(np.int64)
    return picked


def _count_rows(ops: Replacement, image: str, size: str, axis: int, *, corners: bool, halves: bool) -> str:
    """Compute `pick_nearest` for sizes known at run time."""
    unit = ops.constant(1)
    old = ops.part(ops("Shape", [image]), axis, axis + 1)
    new = ops.cast(ops.part(size, axis - 1, axis), _INT64)
    scale = _divide(ops, old, new)
    if corners:
        between = _divide(ops, ops("Sub", [old, unit]), ops("Sub", [new, unit]))
        scale = ops("Where", [ops("Greater", [new, unit]), between, scale])
    rows = ops.cast(ops("Range", [ops.constant(0), ops.squeeze(new, 0), unit]), _FLOAT)
    half = ops.constant(0.5, np.float32)
    at = ops("Mul", [ops("Add", [rows, half]) if halves else rows, scale])
    below = ops("Floor", [at])
    chosen = ops.cast(below, _INT64)
    if corners:
        is_below = ops("Less", [ops("Sub", [at, below]), half])
        chosen = ops("Where", [is_below, chosen, ops("Add", [chosen, unit])])
    last = ops("Sub", [old, unit])
    return ops("Where", [ops("Less", [chosen, last]), chosen, last])


def _divide(ops: Replacement, old: str, new: str) -> str:
    return ops("Div", [ops.cast(old, _FLOAT), ops.cast(new, _FLOAT)])


def _resize(ops: Replacement, image: str, size: str, **attributes: Any) -> str:
    """Resize a channels-last image by ONNX's channels-first Resize."""
    first = ops("Transpose", [image], perm=_TO_FIRST)
    whole = ops("Concat", [ops.part(ops("Shape", [first]), 0, 2), ops.cast(size, _INT64)], axis=0)
    none = ops.constant([], np.float32)
    return ops("Transpose", [ops("Resize", [first, none, none, whole], **attributes)], perm=_TO_LAST)


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {"ResizeBilinear": resize_linearly, "ResizeNearestNeighbor": resize_to_nearest}
)
