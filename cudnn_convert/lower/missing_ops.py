"""Replaces ops unknown to ONNX or TensorFlow Lite by supported ops.

`replace_sign_bits`: comparisons in place of a test of a float's sign bit, which Keras 3 makes in argmax and
argmin to order -0 before 0. Neither format has a Bitcast of floats. The reciprocal of -0 is -infinity; a NaN
counts as positive, whatever its sign bit.
Source: keras v3.15.1 src/backend/tensorflow/numpy.py signbit, argmax.

    before:  bits = Bitcast(x); sign = BitwiseAnd(bits, int32.min); negative = Less(sign, 0)
    after:   negative = LogicalOr(Less(x, 0), Less(Reciprocal(x), 0))

`replace_spectra`: products with the matrices of a discrete Fourier transform, for ONNX, which has no complex
numbers. An RFFT takes the first n values of the last axis, and gives n/2 + 1 frequencies.
Source: tensorflow v2.21.0 core/ops/spectral_ops.cc RFFT, core/kernels/fft_ops.cc.

    before:  f = RFFT(x, [n]); real = Real(f); size = ComplexAbs(f)
    after:   real = x @ cosines; size = Sqrt(Square(x @ cosines) + Square(x @ sines))

`replace_buckets`: how many boundaries a number has reached, in place of Bucketize, for ONNX. A NaN has
reached all.
Source: tensorflow v2.21.0 core/kernels/bucketize_op.cc, std::upper_bound; keras v3.15.1
src/layers/preprocessing/discretization.py.

    before:  k = Bucketize(x, boundaries=[1, 5])
    after:   k = 2 - Sum(Cast(Less(x[..., newaxis], [1, 5])), -1)

`replace_gru_cells`: plain ops in place of GRUBlockCell, a step of a GRU of tf.contrib.rnn, in loops too.
Source: tensorflow v2.21.0 core/kernels/rnn/gru_ops.cc; core/ops/rnn_ops.cc (outputs r, u, c, h).

    before:  r, u, c, h = GRUBlockCell(x, h_prev, w_ru, w_c, b_ru, b_c)
    after:   r, u = Split(Sigmoid([x, h_prev] @ w_ru + b_ru)); c = Tanh([x, r * h_prev] @ w_c + b_c)
             h = u * h_prev + (1 - u) * c

`replace_open_convolutions`: a product for each place of the window in place of a depthwise convolution of
open channels, as that of each row with itself, for ONNX: tf2onnx (v1.17.0) makes groups of channels.

    before:  y = DepthwiseConv2dNative(x[?,?,?,?], filter[1,2,?,1])
    after:   y = x[:, :, :-1] * filter[0, 0] + x[:, :, 1:] * filter[0, 1]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, control_flow, node_defs
from cudnn_convert.graph.graph import Graph, expand_nodes, replace_nodes, rewrite_nodes
from cudnn_convert.graph.index import Index, NodeDef, claim, reference, split, tensor
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.model import Array


def replace_sign_bits(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each test of a float's sign bit; the nodes before the test stay."""
    if not any(node.op == "Bitcast" for node in graph.node):
        return graph
    return rewrite_nodes(graph, partial(_compare_signs, graph.index))


def _compare_signs(index: Index, node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
    if (source := _find_float(index, node)) is not None:
        name, kind = source
        names = {part: claim(f"{node.name}/{part}", taken) for part in ("zero", "less", "inverse", "below")}
        yield node_defs.node(names["zero"], "ZerosLike", [name], T=kind)
        yield node_defs.node(names["less"], "Less", [name, names["zero"]], T=kind)
        yield node_defs.node(names["inverse"], "Reciprocal", [name], T=kind)
        yield node_defs.node(names["below"], "Less", [names["inverse"], names["zero"]], T=kind)
        yield node_defs.node(node.name, "LogicalOr", [names["less"], names["below"]])


def _find_float(index: Index, node: NodeDef) -> tuple[str, tf.DType] | None:
    """Return the tensor with the tested sign bit, and the type, or None."""
    if node.op != "Less":
        return None
    bits, zero = index.data_inputs(node)
    masked = index.nodes[split(bits)[0]]
    if masked.op != "BitwiseAnd" or constant_folding.fold_scalar(index, zero) != 0:
        return None
    cast, mask = index.data_inputs(masked)
    maker = index.nodes[split(cast)[0]]
    if maker.op != "Bitcast":
        return None
    kind, whole = tf.as_dtype(maker.attr["T"].type), tf.as_dtype(maker.attr["type"].type)
    if not kind.is_floating or whole.is_unsigned or kind.size != whole.size:
        return None
    lowest = np.iinfo(whole.as_numpy_dtype).min
    return (reference(maker.input[0]), kind) if constant_folding.fold_scalar(index, mask) == lowest else None


#: What takes apart complex numbers.
_PARTS: Final = frozenset({"Real", "Imag", "ComplexAbs"})


def replace_spectra(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each RFFT of constant length outside loops, if only parts are read.

    The parts are those of Real, Imag and ComplexAbs.
    """
    if not any(node.op == "RFFT" for node in graph.node):
        return graph
    frames = control_flow.frames(graph.index)
    taken = {node.name for node in graph.node}
    changes, added = {}, list[NodeDef]()
    for node in graph.node:
        if node.op != "RFFT" or frames.get(node.name):
            continue
        readers = list(graph.index.consumers(node.name))
        matrices = _fourier_matrices(graph, node)
        if matrices is None or any(reader.op not in _PARTS for reader in readers):
            continue
        kind, source = _real_type(node), node.input[0]
        names = [claim(f"{node.name}/{name}", taken) for name in ("cosines", "sines")]
        added += map(node_defs.constant, names, matrices)
        for reader in readers:
            if reader.op == "ComplexAbs":
                *steps, changes[reader.name] = _absolute(reader.name, source, names, kind, taken)
                added += steps
            else:
                inputs = [source, names[reader.op == "Imag"]]
                changes[reader.name] = node_defs.node(reader.name, "BatchMatMulV2", inputs, T=kind)
    return replace_nodes(graph, changes, added)


def _real_type(node: NodeDef) -> tf.DType:
    """Return the type of an RFFT's input.

    TensorFlow 1 has no attribute for it: there it is float32, the default.
    """
    return tf.as_dtype(node_defs.read_attribute(node, "Treal").type)


def _fourier_matrices(graph: Graph, node: NodeDef) -> tuple[Array, Array] | None:
    """Return the matrices `[width, n/2 + 1]` of both parts.

    None where a size is not known.
    """
    shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
    length = constant_folding.fold_scalar(graph.index, tensor(node.input[1]))
    if shape.rank is None or shape.rank < 2 or shape[-1] is None or not length or shape[-1] < length:
        return None
    turns = np.outer(np.arange(length), np.arange(length // 2 + 1)) % length * (2 * np.pi / length)
    unread = [(0, shape[-1] - length), (0, 0)]
    dtype = _real_type(node).as_numpy_dtype
    cosines, sines = (np.pad(part, unread).astype(dtype) for part in (np.cos(turns), -np.sin(turns)))
    return cosines, sines


def _absolute(
    name: str, source: str, matrices: list[str], kind: tf.DType, taken: set[str]
) -> Iterator[NodeDef]:
    squares = []
    for part, matrix in zip(("real", "imag"), matrices, strict=True):
        product, square = claim(f"{name}/{part}", taken), claim(f"{name}/{part}_square", taken)
        yield node_defs.node(product, "BatchMatMulV2", [source, matrix], T=kind)
        yield node_defs.node(square, "Square", [product], T=kind)
        squares.append(square)
    total = claim(f"{name}/sum", taken)
    yield node_defs.node(total, "AddV2", squares, T=kind)
    yield node_defs.node(name, "Sqrt", [total], T=kind)


def replace_buckets(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Bucketize outside loops."""
    has_buckets = any(node.op == "Bucketize" for node in graph.node)
    frames = control_flow.frames(graph.index) if has_buckets else {}
    return rewrite_nodes(graph, partial(_count_reached, frames))


def _count_reached(
    frames: Mapping[str, tuple[str, ...]], node: NodeDef, taken: set[str]
) -> Iterator[NodeDef]:
    if node.op != "Bucketize" or frames.get(node.name):
        return
    given = tf.as_dtype(node.attr["T"].type)
    kind = given if given.is_floating else tf.float32  # in which TensorFlow compares integers
    parts = "numbers last column boundaries below counts unreached all".split()
    names = {part: claim(f"{node.name}/{part}", taken) for part in parts}
    boundaries = np.array([*node.attr["boundaries"].list.f], kind.as_numpy_dtype)
    whole, column = tf.int32, [names["numbers"], names["last"]]
    yield node_defs.node(names["numbers"], "Cast", [node.input[0]], SrcT=given, DstT=kind)
    yield node_defs.constant(names["last"], np.array(-1, np.int32))
    yield node_defs.node(names["column"], "ExpandDims", column, T=kind)
    yield node_defs.constant(names["boundaries"], boundaries)
    yield node_defs.node(names["below"], "Less", [names["column"], names["boundaries"]], T=kind)
    yield node_defs.node(names["counts"], "Cast", [names["below"]], SrcT=tf.bool, DstT=whole)
    counts = [names["counts"], names["last"]]
    yield node_defs.node(names["unreached"], "Sum", counts, T=whole)
    yield node_defs.constant(names["all"], np.array(len(boundaries), np.int32))
    yield node_defs.node(node.name, "Sub", [names["all"], names["unreached"]], T=whole)


_GRU: Final = "GRUBlockCell"
#: The most places in the window of a convolution that become products of their own.
_MOST_PLACES: Final = 64


def replace_gru_cells(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each GRUBlockCell, with unchanged output names."""
    calls: dict[str, list[NodeDef]] = {}
    for node in graph.node:
        if node.op == _GRU:
            kind = tf.as_dtype(node.attr["T"].type) if "T" in node.attr else tf.float32
            specs = [tf.TensorSpec([None] * rank, kind) for rank in (2, 2, 2, 2, 1, 1)]
            body = inlining.trace_function(_compute_gru_step, *specs)
            calls[node.name] = inlining.call(body, node.name, graph.index.data_inputs(node))
    return expand_nodes(graph, calls)


def _compute_gru_step(x: Any, h: Any, *weights: Any) -> tuple[Any, ...]:
    w_ru, w_c, b_ru, b_c = weights
    r, u = tf.split(tf.sigmoid(tf.concat([x, h], 1) @ w_ru + b_ru), 2, 1)
    c = tf.tanh(tf.concat([x, r * h], 1) @ w_c + b_c)
    return r, u, c, u * h + (1.0 - u) * c


def replace_open_convolutions(graph: Graph, _: Keep = ()) -> Graph:
    """Replace depthwise convolutions of open channels by a product for each place.

    Only convolutions whose windows are known are replaced.
    """
    calls: dict[str, list[NodeDef]] = {}
    for node in graph.node:
        window = _find_window(graph, node) if node.op == "DepthwiseConv2dNative" else None
        if window is not None:
            kind = tf.as_dtype(node.attr["T"].type)
            specs = [tf.TensorSpec([None] * 4, kind), tf.TensorSpec([*window.size, None, None], kind)]
            body = inlining.trace_function(partial(_convolve, window), *specs)
            calls[node.name] = inlining.call(body, node.name, graph.index.data_inputs(node))
    return expand_nodes(graph, calls)


@dataclass(frozen=True, slots=True)
class _PoolWindow:
    """The size and strides of a convolution's window over height and width."""

    size: tuple[int, int]
    strides: tuple[int, int]
    is_same: bool


def _find_window(graph: Graph, node: NodeDef) -> _PoolWindow | None:
    """Return the window of a convolution with open channels, or None.

    None for a convolution that ONNX has, and for large windows.
    """
    image, kernel = (graph.shapes.get_tensor_by_name(tensor(name)).shape for name in node.input[:2])
    is_known = image.rank is not None and image[-1] is not None
    layout = node_defs.read_attribute(node, "data_format").s
    padding = node.attr["padding"].s
    if is_known or layout != b"NHWC" or padding not in (b"SAME", b"VALID") or kernel.rank is None:
        return None
    height, width = kernel[0], kernel[1]
    if height is None or width is None or height * width > _MOST_PLACES:
        return None
    strides = [*node.attr["strides"].list.i]
    # The CPU's kernel has no dilations: layers make batches of the gaps.
    return _PoolWindow((height, width), (strides[1], strides[2]), is_same=padding == b"SAME")


def _convolve(window: _PoolWindow, image: Any, kernel: Any) -> Any:
    """Convolve `[N, H, W, C]` with `[h, w, C, m]` to `[N, H', W', C*m]`.

    Source: tensorflow v2.21.0 core/ops/nn_ops.cc DepthwiseConv2dNative, core/framework/kernel_shape_util.cc.
    """
    if window.is_same:
        padding = [[0, 0]]
        for axis, (stride, wide) in enumerate(zip(window.strides, window.size, strict=True), 1):
            size = tf.shape(image)[axis]
            missing = tf.maximum((-(-size // stride) - 1) * stride + wide - size, 0)
            padding.append([missing // 2, missing - missing // 2])
        image = tf.pad(image, [*padding, [0, 0]])
    sizes = tf.shape(image)
    counts = [(sizes[axis + 1] - window.size[axis]) // window.strides[axis] + 1 for axis in (0, 1)]
    spans = [(count - 1) * stride + 1 for count, stride in zip(counts, window.strides, strict=True)]
    total: Any = 0.0
    for row in range(window.size[0]):
        for column in range(window.size[1]):
            part = image[
                :, row : row + spans[0] : window.strides[0], column : column + spans[1] : window.strides[1]
            ]
            total += part[..., None] * kernel[row, column]
    return tf.reshape(total, tf.stack([sizes[0], *counts, -1]))
