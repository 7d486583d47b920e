"""Replaces ops with TensorFlow Lite kernels wrong for some values.

`replace_inexact`, for graphs that become float32:

* Sqrt    : of numbers from 2**126 on twice the root, with XNNPACK. Those are halved twice before it.
* Rsqrt   : likewise, and of 0 NaN.
* FloorDiv: of floats it stops at a divisor of 0.
* Atan2   : its kernel compares sizes, and does not broadcast. What is broadcast here is alike.
* L2Loss  : the converter makes a reduction of it, which gives what memory holds where there are no values.
* OnesLike: the converter makes a Fill of it, which ends the process where there are no values.
* ZerosLike: of booleans its kernel ends the process.
* SqrtGrad: the converter makes a quotient of it, which is NaN for nothing by a root of 0.
* Pow     : of a half or less a half it is a root. Of integers the largest one,
  where TensorFlow's wrap around: a constant power is a product.
* TopKV2  : of a number that is 0 its kernel ends the process. One is taken, and cut off.
* OneHot  : the converter cuts off half of an index of 64 bits.
* Unpack  : its kernel takes no tensor without values. Slices do.
* MatMul, BatchMatMul, Einsum: of two matrices, of which the second is no constant, the converter loses the
  Relu behind. It makes a fully connected layer of both, and a product without an activation of that.
  BatchMatMulV3 stays what it is.

    before:  y = Sqrt(x)
    after:   large = Less(2**126, x)
             y = Sqrt(SelectV2(large, x * 0.25, x)) * SelectV2(large, 2, 1)

`notes`: of Sin and Cos, whose arguments XNNPACK reduces in float32: off by 1e-5 at 1e7, by all from 1e9 on.
Seen in TensorFlow 2.21.0.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import constant_folding
from cudnn_convert.graph.graph import Graph, expand_nodes
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, all_nodes, tensor
from cudnn_convert.graph.node_defs import read_attribute
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.run import Keep
from cudnn_convert.text import list_some

#: From here on the root is wrong.
_LARGE: Final = np.float32(2.0**126)
_SMALLEST: Final = np.finfo(np.float32).tiny
_SHOWN: Final = 3
#: The largest power of integers that becomes a product.
_MOST: Final = 64
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum")
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6", "Maximum", "Minimum"})
#: Ops that the converter moves an activation before.
_VIEWS: Final = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "ExpandDims"})
_ELSE: Final = "choose --format savedmodel or frozen"


def replace_inexact(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each op with an inexact kernel.

    Return `graph` itself if there are none. Raises UnsupportedModelError for powers of integers that no
    product is.
    """
    calls: dict[str, list[NodeDef]] = {}
    reasons = list[str]()
    for node in graph.node:
        if node.op not in _BODIES:
            continue
        given = graph.index.data_inputs(node)
        if all(constant_folding.fold_constant(graph.index, name) is not None for name in given):
            continue  # the converter computes it, by TensorFlow's own kernel
        if node.op == "TopKV2" and constant_folding.fold_scalar(graph.index, given[1]):
            continue
        values = [graph.shapes.get_tensor_by_name(tensor(name)) for name in given]
        if _is_right(graph.index, node, [value.shape for value in values]):
            continue
        body: Callable[..., Any] | None = partial(_BODIES[node.op], node)
        if node.op == "Pow":
            try:
                body = _power_body(graph, node)
            except ValueError as reason:
                reasons.append(str(reason))
                continue
        if body is None:
            continue
        specs = [tf.TensorSpec(value.shape, value.dtype) for value in values]
        calls[node.name] = inlining.call(inlining.trace_function(body, *specs), node.name, given)
    if reasons:
        raise UnsupportedModelError("tflite", reasons)
    return expand_nodes(graph, calls)


def _is_right(index: Index, node: NodeDef, shapes: list[tf.TensorShape]) -> bool:
    """Return True if the kernel is right, by shapes, types and readers of a product."""
    if node.op in _PRODUCTS:
        is_product = all(shape.rank in (2, None) for shape in shapes) and _multiplies_matrices(node)
        is_constant = is_product and index.maker(node.input[1], {"Identity"}).op == "Const"
        return not is_product or is_constant or not _is_activated(index, node)
    if node.op == "Atan2":
        return bool(shapes[0].is_fully_defined() and shapes[0] == shapes[1])
    if node.op == "Unpack":
        return shapes[0].rank is None or (shapes[0].num_elements() or 0) > 0
    wrong = {"OneHot": ("TI", tf.int64), "ZerosLike": ("T", tf.bool)}.get(node.op)
    if wrong is not None:
        return bool(read_attribute(node, wrong[0]).type != wrong[1].as_datatype_enum)
    if node.op == "FloorDiv":
        return bool(tf.as_dtype(node.attr["T"].type).is_integer)
    # A half is never that large.
    return node.op in ("Sqrt", "Rsqrt") and node.attr["T"].type == tf.half.as_datatype_enum


def _multiplies_matrices(node: NodeDef) -> bool:
    """Return True if an op is the product of two matrices, each perhaps transposed.

    An Einsum may be another product.
    """
    if node.op != "Einsum":
        return True
    parts = _read_equation(node)
    are_matrices = len(parts) == 3 and all(len(part) == len({*part}) == 2 for part in parts)
    return are_matrices and {*parts[0]} ^ {*parts[1]} == {*parts[2]}


def _read_equation(node: NodeDef) -> list[str]:
    """Return the letters of each input of an Einsum, and of the result."""
    return re.split(",|->", node.attr["equation"].s.decode().replace(" ", ""))


def _is_activated(index: Index, node: NodeDef) -> bool:
    """Return True if an activation reads a product, or a view of a product.

    The converter joins such an activation with the product.
    """
    readers = [*index.consumers(node.name)]
    return any(
        reader.op in _ACTIVATIONS or (reader.op in _VIEWS and _is_activated(index, reader))
        for reader in readers
    )


def _power_body(graph: Graph, node: NodeDef) -> Callable[..., Any] | None:
    """Return the function for a Pow, or None where the kernel is right.

    Raises ValueError for powers of integers that no product computes.
    """
    power = constant_folding.fold_scalar(graph.index, graph.index.data_inputs(node)[1])
    if not tf.as_dtype(node.attr["T"].type).is_integer:
        root = {0.5: _root, -0.5: _inverse_root}.get(float(power)) if power is not None else None
        return None if root is None else lambda x, _: root(node, x)
    if power is None or not 0 <= power <= _MOST:
        expected = f"a constant exponent from 0 to {_MOST} for integers"
        raise ValueError(f"{node.name}: expected {expected}, found another; {_ELSE}")
    return partial(_power, int(power))


def _root(_: NodeDef, x: Any) -> Any:
    halved, is_large = _halve_twice(x)
    return tf.sqrt(halved) * tf.where(is_large, tf.constant(2, x.dtype), tf.constant(1, x.dtype))


def _inverse_root(_: NodeDef, x: Any) -> Any:
    halved, is_large = _halve_twice(x)
    inverse = tf.math.rsqrt(halved) * tf.where(is_large, tf.constant(0.5, x.dtype), tf.constant(1, x.dtype))
    return tf.where(tf.abs(x) < _SMALLEST, 1.0 / x, inverse)


def _halve_twice(x: Any) -> tuple[Any, Any]:
    """Return `x` with large numbers divided by 4, and the mask of large numbers.

    A half is never large.
    """
    is_large = x > (_LARGE if x.dtype != tf.half else x.dtype.max)
    return tf.where(is_large, x * 0.25, x), is_large


def _divide_down(_: NodeDef, x: Any, y: Any) -> Any:
    return tf.floor(x / y)


def _angle(_: NodeDef, y: Any, x: Any) -> Any:
    shape = tf.broadcast_dynamic_shape(tf.shape(y), tf.shape(x))
    return tf.atan2(tf.broadcast_to(y, shape), tf.broadcast_to(x, shape))


def _half_of_squares(_: NodeDef, x: Any) -> Any:
    return tf.reduce_sum(tf.square(tf.reshape(x, [-1])), 0) * 0.5


def _ones(_: NodeDef, x: Any) -> Any:
    return (
        tf.equal(x, x)
        if x.dtype == tf.bool
        else tf.raw_ops.AddV2(x=tf.raw_ops.ZerosLike(x=x), y=tf.ones([], x.dtype))
    )


def _largest(node: NodeDef, x: Any, count: Any) -> tuple[Any, Any]:
    largest = tf.math.top_k(x, tf.maximum(count, 1), sorted=read_attribute(node, "sorted").b)
    return largest.values[..., :count], largest.indices[..., :count]


def _one_hot(node: NodeDef, indices: Any, depth: Any, on: Any, off: Any) -> Any:
    last = np.iinfo(np.int32).max  # no class, as no depth is larger
    within = tf.maximum(tf.minimum(indices, np.int64(last)), np.int64(-1))
    axis = read_attribute(node, "axis").i
    return tf.raw_ops.OneHot(indices=within, depth=depth, on_value=on, off_value=off, axis=axis)


def _power(power: int, x: Any, _: Any) -> Any:
    square, result = x, tf.ones_like(x)
    while power:
        result = result * square if power % 2 else result
        square, power = square * square, power // 2
    return result


def _zeros(_: NodeDef, x: Any) -> Any:
    return tf.not_equal(x, x)


def _halve_by_root(_: NodeDef, y: Any, dy: Any) -> Any:
    return tf.where(tf.equal(dy, 0.0), tf.zeros([], y.dtype), dy * 0.5 / y)


def _slices(node: NodeDef, x: Any) -> list[Any]:
    axis = node.attr["axis"].i % x.shape.rank
    return [_slice(x, axis, k) for k in range(node.attr["num"].i)]


def _slice(x: Any, axis: int, k: int) -> Any:
    index = (*[slice(None)] * axis, k)
    return x[index]


def _matrix_product(node: NodeDef, x: Any, y: Any) -> Any:
    """Multiply two matrices by BatchMatMulV3.

    The converter makes no fully connected layer of this op.
    """
    if node.op == "Einsum":
        left, right, result = _read_equation(node)
        (summed,) = {*left} & {*right} - {*result}
        adjoint = {"adj_x": left[0] == summed, "adj_y": right[1] == summed}
        product = tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, **adjoint)
        return product if result[0] in left else tf.transpose(product)
    flags = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
    adj_x, adj_y = (node.attr[flag].b for flag in flags)
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_x=adj_x, adj_y=adj_y)


_BODIES: Final[MappingProxyType[str, Callable[..., Any]]] = MappingProxyType(
    {
        "Sqrt": _root,
        "FloorDiv": _divide_down,
        "Atan2": _angle,
        "L2Loss": _half_of_squares,
        "OnesLike": _ones,
        "Rsqrt": _inverse_root,
        "SqrtGrad": _halve_by_root,
        "ZerosLike": _zeros,
        "OneHot": _one_hot,
        "Pow": _power,
        "TopKV2": _largest,
        "Unpack": _slices,
        **dict.fromkeys(_PRODUCTS, _matrix_product),
    }
)


def notes(graph: AnyGraph) -> Iterator[str]:
    """Yield a note on the graph's ops lacking an exact form."""
    names = [node.name for node in all_nodes(graph) if node.op in ("Sin", "Cos")]
    if names:
        actual = "TensorFlow Lite's sines and cosines are off beyond 1e6, and wrong beyond 1e9"
        yield f"{list_some(names, _SHOWN)}: {actual}"
