"""Ops converted by tf2onnx, but computed differently or refused by ONNX Runtime.

They are refused before anything is written, proven or not. What is wrong with them (tf2onnx v1.17.0,
onnxruntime 1.32.0):

* AsString             : floats and booleans have another text; width and precision are not looked at.
* DynamicStitch        : an index that comes twice makes the result longer.
* ResizeArea           : other weights; so has ResizeBicubic.
* AdjustSaturation, NonMaxSuppressionV5, CropAndResize by the nearest, SparseFillEmptyRows: other values.
* QuantizeAndDequantize: ties, and bounds that are found, are rounded otherwise.
* MaxPool over channels: the channels become rows.
* AvgPool              : of windows that lie apart, a padding below 0.
* Equal of text        : ONNX compares it from opset 19 on. StringLower has a locale of the system.
* Numbers that are complex, doubles of some ops: there is no kernel.
"""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import constant_folding
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, split
from cudnn_convert.graph.node_defs import read_attribute

_COMPLEX: Final = frozenset({tf.complex64.as_datatype_enum, tf.complex128.as_datatype_enum})
_DOUBLE, _TEXT = tf.float64.as_datatype_enum, tf.string.as_datatype_enum
#: Ops on complex numbers that tf2onnx takes where they stand together.
_SPECTRA: Final = frozenset("RFFT RFFT2D FFT Real Imag ComplexAbs Identity".split())
#: Ops that are never right, and why.
_NEVER: Final = MappingProxyType(
    {
        "ResizeArea": "by areas",
        "ResizeBicubic": "with other weights",
        "AdjustSaturation": "with other saturations",
        "NonMaxSuppressionV5": "with other scores",
        "SparseFillEmptyRows": "with other rows",
        "StringLower": "in a locale of the system",
        "StringUpper": "in a locale of the system",
    }
)
#: Ops without a kernel for doubles.
_NO_DOUBLE: Final = frozenset(
    "Conv2D Conv3D DepthwiseConv2dNative Conv2DBackpropInput Conv3DBackpropInputV2 AvgPool AvgPool3D Asin "
    "Acos Atan Atan2 Asinh Acosh Atanh Erf QuantizeAndDequantizeV2 "
    "QuantizeAndDequantizeV3".split()
)
_STITCHES: Final = frozenset({"DynamicStitch", "ParallelDynamicStitch"})


def find_wrong(graph: AnyGraph) -> dict[str, str]:
    """Return the reason for refusing each wrong op of a graph, by the op's name."""
    return {node.name: why for node in graph.node for why in _reasons(graph, node)}


def _reasons(graph: AnyGraph, node: NodeDef) -> Iterator[str]:
    kind = node.attr["T"].type if "T" in node.attr else 0
    if node.op in _NEVER:
        yield _NEVER[node.op]
    elif kind in _COMPLEX and node.op not in _SPECTRA:
        yield "complex numbers"
    elif kind == _DOUBLE and node.op in _NO_DOUBLE:
        yield "doubles, for which ONNX Runtime has no kernel"
    elif kind == _TEXT and node.op in ("Equal", "NotEqual"):
        yield "text"
    elif node.op == "AsString" and not _is_plain(node):
        yield "another text"
    elif node.op in _STITCHES and not _are_apart(Index(graph), node):
        yield "indices that may come twice"
    elif node.op == "CropAndResize" and node.attr["method"].s == b"nearest":
        yield "of the nearest pixels"
    elif node.op == "QuantizeAndDequantizeV2" and not _rounds_evenly(node):
        yield "with other ties or bounds"
    elif node.op == "AvgPool" and _lie_apart(node):
        yield "windows that lie apart"
    elif node.op == "MaxPool" and node.attr["ksize"].list.i[_channels(node)] > 1:
        yield "over channels"


def _lie_apart(node: NodeDef) -> bool:
    pairs = zip(node.attr["ksize"].list.i, node.attr["strides"].list.i, strict=True)
    return node.attr["padding"].s == b"SAME" and any(stride > size for size, stride in pairs)


def _channels(node: NodeDef) -> int:
    """Return the axis of the channels of an image."""
    layout: bytes = read_attribute(node, "data_format").s
    return layout.index(b"C")


def _is_plain(node: NodeDef) -> bool:
    """Return True if an AsString takes integers, with default formatting."""
    sizes = (read_attribute(node, key).i for key in ("precision", "width"))
    flags = (read_attribute(node, key).b for key in ("scientific", "shortest"))
    has_format = any(flags) or any(size not in (-1, 0) for size in sizes)
    return tf.as_dtype(node.attr["T"].type).is_integer and not has_format


def _rounds_evenly(node: NodeDef) -> bool:
    mode = read_attribute(node, "round_mode").s
    return bool(node.attr["range_given"].b) and mode in (b"", b"HALF_TO_EVEN")


def _are_apart(index: Index, node: NodeDef) -> bool:
    """Return True if a stitch's indices are distinct constants, or partition a range."""
    names = index.data_inputs(node)[: node.attr["N"].i]
    values = [constant_folding.fold_constant(index, name) for name in names]
    if all(value is not None for value in values):
        flat = [int(each) for value in values for each in value.flat]  # type: ignore[union-attr]
        return len({*flat}) == len(flat)
    makers = {split(name)[0] for name in names}
    maker = index.nodes[makers.pop()]
    if makers or maker.op != "DynamicPartition":
        return False
    return index.nodes[split(maker.input[0])[0]].op == "Range"
