"""Exact ONNX forms of reductions, searches and ranges, for every integer and double.

tf2onnx computes many of them in float32, which holds integers up to 2**24 alone. Here they are computed in
their own type, or in a wider one. Where an axis may be empty, a mean is a sum divided by a count: NaN of
nothing, as in TensorFlow. What tf2onnx's own handlers do (tf2onnx v1.17.0 tf2onnx/onnx_opset/):

* TopKV2                    : sorted as float32 (tensor.py).
* Sum, Prod, Mean, Max, Min : ONNX Runtime adds integers as doubles, and saturates; TensorFlow's wrap around.
* Unique, UniqueWithCounts  : doubles are compared as float32 (tensor.py).
* Log                       : a double's is that of a float32 (math.py).
* Maximum, Minimum          : integers are compared as float32 (math.py).
* Range                     : ONNX counts floats in double, and multiplies; TensorFlow counts in their own
  type, and adds.
* FakeQuant...              : QuantizeLinear rounds ties to even; TensorFlow rounds them up (quantize.py).
* LeftShift, RightShift     : a sign bit moves as any other (math.py); ONNX shifts unsigned integers alone.
* AddN                      : ONNX' Sum takes floats alone.
* InvertPermutation         : through TopK of floats (math.py).

Source: tensorflow v1.15.0 core/kernels/sequence_ops.cc RangeOp, fake_quant_ops_functor.h, reduction_ops.h;
onnxruntime 1.32.0, whose ReduceSum of int64 is inexact beyond 2**53.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper

from cudnn_convert.lower.onnx.exact_ops import FLOATS, WIDER, Handler, Replacement, divide_down
from cudnn_convert.lower.onnx.lossy_casts import holds_data

_INT32, _INT64, _UINT64 = TensorProto.INT32, TensorProto.INT64, TensorProto.UINT64
_COUNTS: Final = frozenset({_INT32, _INT64})
#: The reductions' names in ONNX.
_REDUCTIONS: Final = MappingProxyType(
    {"Sum": "ReduceSum", "Prod": "ReduceProd", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin"}
)
#: From this opset on, axes of a sum are an input.
_AXES_OF_SUM: Final = 13
#: Bits of an int64.
_BITS: Final = 64
#: From this opset on, Max and Min take integers.
_BOUNDS_OF_INTEGERS: Final = 12


def take_largest(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write TopK in the input's type, or in a wider type."""
    ops = Replacement(graph, node)
    x, count = ops.widen()
    if ops.dtypes[0] == TensorProto.FLOAT16:
        x = ops.cast(x, TensorProto.FLOAT)
    count = ops.unsqueeze(ops.cast(count, _INT64), [0])
    largest, places = ops.several("TopK", [x, count], 2)
    ops.finish(largest, places)


def reduce(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Reduce over constant axes, in a type holding every value; sums over fed axes too."""
    axes, kept = _constant(graph, node.input[1]), node.get_attr_value("keep_dims", 0)
    shape = graph.get_shape(node.input[0])
    op, ops = node.type, Replacement(graph, node)
    x = ops.inputs[0]
    if axes is None:
        if op != "Sum" or graph.opset < _AXES_OF_SUM:
            raise ValueError("axes that are no constants")
        given: Any = ops("Reshape", [ops.cast(ops.inputs[1], _INT64), ops.constant([-1])])
    else:
        # ONNX Runtime before 1.32 keeps a negative axis of no values
        given = [int(axis) if shape is None else int(axis) % len(shape) for axis in axes.flat]
    if not isinstance(given, str) and not given:
        ops.finish(x)
        return
    if op in ("Max", "Min"):
        x = ops.cast(x, WIDER.get(ops.dtype, ops.dtype))
    elif ops.dtype not in FLOATS:
        if op == "Mean" and ops.dtype not in _COUNTS:
            raise ValueError("a mean of narrow integers, which versions of TensorFlow compute otherwise")
        x = ops.cast(x, _INT64)
    if op == "Mean" and (ops.dtype not in FLOATS or _may_be_empty(shape, given)):
        total = _add_up(ops, x, given, kept)
        if ops.dtype not in FLOATS and ops.dtype != _INT64:  # the sum wraps around before it is divided
            total = ops("Cast", [ops.cast(total, ops.dtype)], to=_INT64)
        count = _count(ops, x, given)
        if ops.dtype not in FLOATS:  # of nothing the mean is 0
            count = _larger(ops, count, ops.constant(1))
        ops.finish(ops("Div", [total, count]))
    elif op == "Sum":
        ops.finish(_add_up(ops, x, given, kept))
    else:
        ops.finish(_within(ops, op, _reduce(ops, _REDUCTIONS[op], x, given, kept)))


def multiply(graph: Any, node: Any, name: str, arguments: list[str]) -> None:
    """Multiply over axes as `reduce` does; of integers, sizes alone.

    ONNX Runtime multiplies integers as doubles.
    """
    if graph.get_dtype(node.input[0]) not in FLOATS and holds_data(node.inputs[0]):
        raise ValueError("a product of integers, which ONNX Runtime multiplies as doubles")
    reduce(graph, node, name, arguments)


def _within(ops: Replacement, op: str, result: str) -> str:
    """Clip a bound of narrow integers, even of an empty axis, to the integers' type."""
    wide = ops.graph.get_dtype(result)
    if op not in ("Max", "Min") or wide == ops.dtype:
        return result
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(ops.dtype))
    end = ops.value(limits.min if op == "Max" else limits.max, wide)
    is_outside = ops("Less", [result, end] if op == "Max" else [end, result])
    return ops("Where", [is_outside, end, result])


def _add_up(ops: Replacement, x: str, axes: Any, kept: int) -> str:
    """Sum over axes, int64 in two halves.

    ONNX Runtime adds integers as doubles, which hold 53 bits.
    """
    if ops.dtypes[0] != _INT64:  # 53 bits hold the sum of a million narrower ones
        return _reduce(ops, "ReduceSum", x, axes, kept)
    half = ops.constant(2**32)
    upper = ops("Div", [x, half])
    lower = ops("Sub", [x, ops("Mul", [upper, half])])
    high, low = (_reduce(ops, "ReduceSum", part, axes, kept) for part in (upper, lower))
    return ops("Add", [ops("Mul", [high, half]), low])


def _reduce(ops: Replacement, op: str, x: str, axes: Any, kept: int) -> str:
    if isinstance(axes, str):
        return ops(op, [x, axes], keepdims=kept, noop_with_empty_axes=1)
    return ops.over_axes(op, x, axes, keepdims=kept)


def _count(ops: Replacement, x: str, axes: Any) -> str:
    """Return the number of values in each sum, in the type of `x`."""
    given = axes if isinstance(axes, str) else ops.constant(axes)
    sizes = ops("Gather", [ops("Shape", [x]), given])
    count = ops("ReduceProd", [sizes], keepdims=0)
    dtype = ops.graph.get_dtype(x)
    return count if dtype == _INT64 else ops("Cast", [count], to=dtype)


def _may_be_empty(shape: Any, axes: Any) -> bool:
    """Return True if a reduced axis may be empty by the shape; `axes` are constants."""
    return shape is None or any(shape[axis] in (-1, 0) for axis in axes)


def _constant(graph: Any, name: str) -> Any:
    node = graph.get_node_by_output(name)
    return node.get_tensor_value(as_list=False) if node is not None and node.is_const() else None


def take_unique(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write unique values in order of appearance, the place of each value, and counts."""
    ops = Replacement(graph, node)
    kind = ops.dtypes[0]
    if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.STRING):
        kind = TensorProto.FLOAT if kind == TensorProto.FLOAT16 else _INT64
    values, _, places, counts = ops.several("Unique", [ops.cast(ops.inputs[0], kind)], 4, sorted=0)
    ops.finish(values, places, counts)


def logarithm(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the logarithm in the input's type."""
    ops = Replacement(graph, node)
    half = ops.dtype == TensorProto.FLOAT16
    x = ops.cast(ops.inputs[0], TensorProto.FLOAT) if half else ops.inputs[0]
    ops.finish(ops("Log", [x]))


def bound(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the larger or the smaller of two values."""
    op, ops = node.type, Replacement(graph, node)
    pair = ops.widen()
    if graph.opset >= _BOUNDS_OF_INTEGERS or ops.dtype in FLOATS:
        ops.finish(ops("Max" if op == "Maximum" else "Min", pair))
    else:
        ops.finish((_larger if op == "Maximum" else _smaller)(ops, *pair))


def _larger(ops: Replacement, x: str, y: str) -> str:
    """Return the larger of two integers."""
    return ops("Where", [ops("Greater", [x, y]), x, y])


def _smaller(ops: Replacement, x: str, y: str) -> str:
    """Return the smaller of two integers."""
    return ops("Where", [ops("Less", [x, y]), x, y])


def count_up(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write a range: of integers by Range, of floats by a running sum.

    The number of floats is counted in their own type.
    """
    ops = Replacement(graph, node)
    start, limit, step = ops.inputs
    if ops.dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        ops.finish(ops("Range", ops.widen()))
        return
    span = ops("Div", [ops("Sub", [limit, start]), step])
    count = ops.unsqueeze(ops("Cast", [ops("Ceil", [ops("Abs", [span])])], to=_INT64), [0])
    steps = ops("Expand", [step, count])
    first = ops.unsqueeze(start, [0])
    items = ops("Concat", [first, steps], axis=0)
    items = ops("Slice", [items, ops.constant([0]), count])
    ops.finish(ops("CumSum", [items, ops.constant(0)]))


def shift(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Shift signed integers by products and floored quotients, unsigned integers by BitShift.

    The product or quotient is with a power of 2.
    """
    op, ops = node.type, Replacement(graph, node)
    dtype = helper.tensor_dtype_to_np_dtype(ops.dtype)
    x, y = ops.inputs
    y = _smaller(ops, ops.cast(y, _INT64), ops.constant(8 * dtype.itemsize - 1))
    if dtype.kind == "u":
        pair = [ops.cast(x, _UINT64), ops("Cast", [y], to=_UINT64)]
        ops.finish(ops("BitShift", pair, direction="LEFT" if op == "LeftShift" else "RIGHT"))
        return
    x = ops.cast(x, _INT64)
    if op == "LeftShift":
        ops.finish(ops("Mul", [x, _power(ops, y)]))
        return
    first = _smaller(ops, y, ops.constant(_BITS - 2))  # 2**63 is no int64
    ops.finish(divide_down(ops, divide_down(ops, x, _power(ops, first)), _power(ops, ops("Sub", [y, first]))))


def _power(ops: Replacement, exponent: str) -> str:
    """Return the power of 2 in 64 bits."""
    unit = ops.constant(1, np.uint64)
    power = ops("BitShift", [unit, ops("Cast", [exponent], to=_UINT64)], direction="LEFT")
    return ops("Cast", [power], to=_INT64)


def fake_quantize(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Round to the levels between two bounds; ties are rounded up.

    The bounds are moved so that 0 is a level.
    """
    ends = [_constant(graph, name) for name in node.input[1:]]
    if not ends:
        ends = [np.float32(node.get_attr_value(name, sign * 6.0)) for name, sign in (("min", -1), ("max", 1))]
    if any(end is None for end in ends):
        raise ValueError("bounds that are no constants")
    levels = 2 ** node.get_attr_value("num_bits", 8) - 1
    start = node.get_attr_value("narrow_range", 0)
    low, high, scale = _move_bounds(ends[0], ends[1], float(start), float(levels))
    ops = Replacement(graph, node)
    least, most, size = (ops.value(end, TensorProto.FLOAT) for end in (low, high, scale))
    inverse = ops.value(np.float32(1) / scale, TensorProto.FLOAT)
    inside = ops("Max", [ops("Min", [ops.inputs[0], most]), least])
    level = ops("Mul", [ops("Sub", [inside, least]), inverse])
    level = ops("Floor", [ops("Add", [level, ops.value(0.5, TensorProto.FLOAT)])])
    ops.finish(ops("Add", [ops("Mul", [level, size]), least]))


def _move_bounds(low: Any, high: Any, first: float, last: float) -> tuple[Any, Any, Any]:
    """Return the bounds and the distance of levels, in float32.

    The levels are numbered from `first` to `last`.
    """
    start, end = np.float32(first), np.float32(last)
    scale = ((high - low) / (end - start)).astype(np.float32)
    zero = start - low / scale
    level = np.clip(np.floor(zero + np.float32(0.5)), start, end).astype(np.float32)
    return (start - level) * scale, (end - level) * scale, scale


def add_all(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Add all inputs in turn."""
    ops = Replacement(graph, node)
    total, *others = ops.inputs
    for other in others:
        total = ops("Add", [total, other])
    ops.finish(total)


def invert_permutation(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write each number's place at the index given by the number."""
    ops = Replacement(graph, node)
    places = ops.cast(ops.inputs[0], _INT64)
    count = ops.squeeze(ops("Shape", [places]), 0)
    numbers = ops("Range", [ops.constant(0), count, ops.constant(1)])
    ops.finish(ops("ScatterElements", [places, places, numbers], axis=0))


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "TopKV2": take_largest,
        **dict.fromkeys(_REDUCTIONS, reduce),
        "Prod": multiply,
        **dict.fromkeys(("Unique", "UniqueWithCounts"), take_unique),
        "Log": logarithm,
        **dict.fromkeys(("Maximum", "Minimum"), bound),
        "Range": count_up,
        **dict.fromkeys(("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars"), fake_quantize),
        "FakeQuantWithMinMaxVarsPerChannel": fake_quantize,
        **dict.fromkeys(("LeftShift", "RightShift"), shift),
        "AddN": add_all,
        "InvertPermutation": invert_permutation,
    }
)
