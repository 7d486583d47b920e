"""ONNX forms of ops converted wrongly by tf2onnx for unexpected values.

They are handlers for tf2onnx, which take precedence over its own. What its own do to other values
(tf2onnx v1.17.0 tf2onnx/onnx_opset/):

* Select, SelectV2    : `c * x + (1 - c) * y` makes NaN of infinities (controlflow.py).
* OneHot              : an index below 0 counts from the end; only floats in other ranks than 1 (tensor.py).
* ScatterNd           : of repeated indices one value wins, where TensorFlow adds them up (tensor.py).
* FloorDiv, FloorMod  : integers are rounded towards 0; a remainder of floats is what a rounded quotient
  leaves (math.py).
* Less, Greater, ...  : integers are compared as floats, which may be equal from 2**24 on (logical.py).
* MatrixBandPart      : a product with a mask makes NaN of infinities; a bound below 0 that is no constant is
  taken for a number of diagonals (nn.py).
* Slice               : a size of -1 that is no constant is added to its begin and overflows (tensor.py).
* Segment...          : a row of an index below 0 counts for the last segment, and segments without rows are
  infinite or NaN (reduction.py).

Mod and TruncateMod, which tf2onnx lacks, are here too. A handler removes its node; the last node that it adds
has that node's output.
Source: tensorflow v2.21.0 core/kernels/one_hot_op.h, core/kernels/scatter_nd_op.cc ScatterNdOp,
core/kernels/cwise_ops.h google_floor_div, google_floor_fmod, core/kernels/segment_reduction_ops_impl.h.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper
from tf2onnx.onnx_opset.controlflow import Select
from tf2onnx.onnx_opset.reduction import SegmentSum

from cudnn_convert.lower.onnx.tf2onnx_ops import Ops

#: Replaces a node of a tf2onnx graph; takes that graph, the node, its name and the handler's arguments.
Handler = Callable[[Any, Any, str, list[str]], None]

_BOOL, _INT32, _INT64 = TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64
FLOATS: Final = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})
#: The integers that ONNX Runtime (1.31.1) has few ops for, and others that hold their values.
WIDER: Final = {
    **dict.fromkeys((TensorProto.INT8, TensorProto.INT16, TensorProto.UINT8, TensorProto.UINT16), _INT32),
    TensorProto.UINT32: _INT64,
}
#: The types that a loop may count in.
_COUNTS: Final = frozenset({_INT32, _INT64})
#: The largest index, which stands for the end of an axis.
_END: Final = np.iinfo(np.int64).max


class Replacement(Ops):
    """Nodes in place of a removed tf2onnx node; `finish` makes the outputs."""

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph)
        self.inputs = list(node.input)
        self.dtypes = [graph.get_dtype(name) for name in node.input]
        self.outputs = list(node.output)
        self.shapes, self.output_dtypes = node.output_shapes, node.output_dtypes
        graph.remove_node(node.name)

    @property
    def dtype(self) -> int:
        """The type of the output."""
        return int(self.output_dtypes[0])

    def cast(self, name: str, dtype: int) -> str:
        """Cast `name` to `dtype`, or return `name` itself if already of `dtype`."""
        return name if self.graph.get_dtype(name) == dtype else self("Cast", [name], to=dtype)

    def widen(self) -> list[str]:
        """Return the inputs in types supported by all ONNX Runtime ops."""
        pairs = zip(self.inputs, self.dtypes, strict=True)
        return [self.cast(name, WIDER.get(dtype, dtype)) for name, dtype in pairs]

    def value(self, value: Any, dtype: int) -> str:
        """Return a constant of an ONNX type."""
        return self.constant(value, helper.tensor_dtype_to_np_dtype(dtype))

    def order(self, op: str, pair: Sequence[str]) -> str:
        """Compare a pair; `op` is TensorFlow's."""
        if op in ("Less", "Greater"):
            return self(op, pair)
        if self.opset >= 12:
            return self(f"{op.removesuffix('Equal')}OrEqual", pair)
        return self("Or", [self(op.removesuffix("Equal"), pair), self("Equal", pair)])

    def finish(self, *results: str) -> None:
        """Give each result the name, type and shape of an output.

        The node may have fewer outputs.
        """
        for result, name, shape, dtype in zip(
            results, self.outputs, self.shapes, self.output_dtypes, strict=False
        ):
            cast = self.cast(result, dtype)
            self.graph.make_node("Identity", [cast], outputs=[name], shapes=[shape], dtypes=[dtype])


def select(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write a choice between floats as ONNX' Where.

    tf2onnx does so where it sees an infinity beside it.
    """
    if graph.get_dtype(node.output[0]) in FLOATS:
        node.set_attr("handles_nan", 1)
    Select.version_9(graph, node)


def one_hot(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Compare the indices with each number below the depth, on a new axis."""
    axis, rank = node.get_attr_value("axis", -1), graph.get_rank(node.input[0])
    if axis >= 0 and (rank is None or axis > rank):  # tf2onnx may take an unknown rank for 0
        raise ValueError("an axis counted from the first of an unknown rank")
    ops = Replacement(graph, node)
    indices, depth, on, off = ops.inputs
    numbers = ops("Range", [ops.constant(0), ops.cast(depth, _INT64), ops.constant(1)])
    if 0 <= axis < (rank or 0):
        numbers = ops.unsqueeze(numbers, list(range(1, rank - axis + 1)))
    column = ops.unsqueeze(ops.cast(indices, _INT64), [axis])
    ops.finish(_choose(ops, ops("Equal", [column, numbers]), on, off))


def _choose(ops: Replacement, where: str, x: str, y: str) -> str:
    """Choose from a pair of any type by `Where`."""
    dtype = ops.graph.get_dtype(x)
    values = [ops.graph.get_node_by_output(name) for name in (x, y)]
    if dtype != TensorProto.STRING and all(node is not None and node.is_const() for node in values):
        pair = [node.get_tensor_value(as_list=False) for node in values]
        if [value.tolist() for value in pair] == [1, 0]:
            return ops.cast(where, dtype)
    if dtype == _BOOL:
        chosen = ops("Where", [where, ops.cast(x, TensorProto.UINT8), ops.cast(y, TensorProto.UINT8)])
        return ops("Cast", [chosen], to=_BOOL)
    wide = WIDER.get(dtype, dtype)
    return ops("Where", [where, ops.cast(x, wide), ops.cast(y, wide)])


def scatter(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Add values into zeros."""
    if graph.opset < _ADDS_UP:
        raise ValueError("ONNX adds up repeated indices from opset 16 on")
    ops = Replacement(graph, node)
    indices, updates, shape = ops.inputs
    wide = TensorProto.FLOAT if ops.dtype == TensorProto.FLOAT16 else WIDER.get(ops.dtype, ops.dtype)
    if wide == _BOOL:
        wide = _INT32
    zeros = ops("Expand", [ops.value(0, wide), ops.cast(shape, _INT64)])
    inputs = [zeros, ops.cast(indices, _INT64), ops.cast(updates, wide)]
    ops.finish(ops("ScatterND", inputs, reduction="add"))


def floor_divide(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Divide and round down.

    That is one less than ONNX' quotient of integers where the remainders differ.
    """
    ops = Replacement(graph, node)
    pair = ops.widen()
    is_float = ops.dtype in FLOATS
    ops.finish(ops("Floor", [ops("Div", pair)]) if is_float else divide_down(ops, *pair))


def divide_down(ops: Replacement, x: str, y: str) -> str:
    """Return the quotient of integers, rounded down."""
    quotient = ops("Div", [x, y])
    rest = ops("Sub", [x, ops("Mul", [quotient, y])])
    is_even = ops("Equal", [rest, ops("Mod", [x, y])])
    return ops("Sub", [quotient, ops.cast(ops("Not", [is_even]), ops.graph.get_dtype(x))])


def floor_modulo(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the remainder with the sign of the divisor, exact for floats too."""
    ops = Replacement(graph, node)
    if ops.dtype not in FLOATS:
        ops.finish(ops("Mod", ops.widen()))
        return
    rest, zero = ops("Mod", ops.inputs, fmod=1), ops.value(0, ops.dtype)
    divisor = ops.inputs[1]
    differ = ops("Xor", [ops("Less", [rest, zero]), ops("Less", [divisor, zero])])
    is_other = ops("And", [differ, ops("Not", [ops("Equal", [rest, zero])])])
    ops.finish(ops("Where", [is_other, ops("Add", [rest, divisor]), rest]))


def modulo(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the remainder with the sign of the dividend."""
    ops = Replacement(graph, node)
    ops.finish(ops("Mod", ops.widen(), fmod=1))


def compare(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Compare numbers in the input's type, integers in a type holding both.

    In loops tf2onnx has counters of 64 bits where the graph says 32 (tf2onnx v1.17.0
    tf2onnx/onnx_opset/controlflow.py While).
    """
    op, ops = node.type, Replacement(graph, node)
    pair = ops.widen()
    if ops.dtypes[0] in _COUNTS:
        pair = [ops("Cast", [name], to=_INT64) for name in pair]
    ops.finish(ops.order(op, pair))


def keep_band(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Keep the band of a matrix around the diagonal, with zeros outside.

    A bound below 0 keeps all items on its side.
    """
    ops = Replacement(graph, node)
    x, *bounds = ops.inputs
    sizes, numbers = ops("Shape", [x]), []
    for axis in (-2, -1):
        size = ops.squeeze(ops.part(sizes, axis, axis + 1 or _END), 0)
        numbers.append(ops("Range", [ops.constant(0), size, ops.constant(1)]))
    rows, columns = ops.unsqueeze(numbers[0], [1]), numbers[1]
    near = []
    for bound, further in zip(bounds, ([rows, columns], [columns, rows]), strict=True):
        number = ops.cast(bound, _INT64)
        is_near = ops("Not", [ops("Greater", [ops("Sub", further), number])])
        near.append(ops("Or", [is_near, ops("Less", [number, ops.constant(0)])]))
    mask = ops("And", near)
    if ops.dtype == _BOOL:
        ops.finish(ops("And", [x, mask]))
    else:
        wide = WIDER.get(ops.dtype, ops.dtype)
        ops.finish(ops("Where", [mask, ops.cast(x, wide), ops.value(0, wide)]))


def cut(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Slice, up to the end of an axis for a size of -1."""
    known = [each.get_tensor_value(as_list=False) for each in node.inputs[1:] if each.is_const()]
    ops = Replacement(graph, node)
    x, begin, size = ops.inputs
    starts, sizes = ops.cast(begin, _INT64), ops.cast(size, _INT64)
    if len(known) < 2:
        is_rest = ops("Less", [sizes, ops.constant(0)])
        ends = ops("Where", [is_rest, ops.constant(_END), ops("Add", [starts, sizes])])
    else:
        first, count = (value.astype(np.int64) for value in known)
        starts, ends = ops.constant(first), ops.constant(np.where(count < 0, _END, first + count))
    ops.finish(ops("Slice", [x, starts, ends]))


def reduce_segments(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Reduce segments as tf2onnx does, with an extra segment for uncounted rows.

    Then set the segments without rows. Sums and products are written into zeros and ones, in their own type.
    """
    op, dtype, rank = node.type, graph.get_dtype(node.input[0]), graph.get_rank(node.input[0])
    if op in _ZERO_OF_NOTHING and rank is None:
        raise ValueError("segments of an unknown rank")
    ops = Replacement(graph, node)
    is_counted, count = op.startswith("Unsorted"), ""
    if is_counted:
        data, ids, count = ops.inputs
        ids, count = ops.cast(ids, _INT64), ops.cast(count, _INT64)
        none = ops("Less", [ids, ops.constant(0)])
        further = ops("Add", [count, ops.constant(1)])
        inputs = [data, ops("Where", [none, count, ids]), further]
    else:
        inputs = [*ops.inputs[:-1], ops.cast(ops.inputs[-1], _INT64)]
    inner, start = None, _WRITTEN.get(op.removeprefix("Unsorted"))
    if start is not None and graph.opset >= _ADDS_UP:
        result = _write_segments(ops, inputs, *start)
    elif dtype not in FLOATS and op.endswith(("Max", "Min")):
        result = _bound_segments(ops, inputs, op, rank or 1)
    elif dtype not in FLOATS and op == "SegmentMean" and graph.opset >= _ADDS_UP:
        result = _average_segments(ops, inputs, rank or 1)
    else:
        inner = graph.make_node(op, inputs, shapes=[None], dtypes=[dtype])
        result = inner.output[0]
    if is_counted:
        result = ops("Slice", [result, ops.constant([0]), ops.unsqueeze(count, [0]), ops.constant([0])])
        if op in _BOUNDS and dtype in FLOATS:
            take, bound = _BOUNDS[op]
            limits = np.finfo(helper.tensor_dtype_to_np_dtype(dtype))
            result = ops(take, [result, ops.value(getattr(limits, bound), dtype)])
    elif op in _ZERO_OF_NOTHING:
        result = _zero_the_absent(ops, result, inputs[-1], rank)
    ops.finish(result)
    if inner is not None:
        SegmentSum.any_version(graph.opset, graph, inner)


def _write_segments(ops: Replacement, inputs: list[str], start: int, reduction: str) -> str:
    """Sum or multiply rows; `inputs` are rows, ids, and perhaps the number of segments."""
    data, ids, *counts = inputs
    wide = TensorProto.FLOAT if ops.dtype == TensorProto.FLOAT16 else WIDER.get(ops.dtype, ops.dtype)
    count = counts[0] if counts else ops("Add", [ops("ReduceMax", [ids], keepdims=0), ops.constant(1)])
    sizes = ops("Concat", [ops.unsqueeze(count, [0]), ops.part(ops("Shape", [data]), 1, _END)], axis=0)
    whole = ops("Expand", [ops.value(start, wide), sizes])
    places = ops.unsqueeze(ids, [1])
    return ops("ScatterND", [whole, places, ops.cast(data, wide)], reduction=reduction)


def _bound_segments(ops: Replacement, inputs: list[str], op: str, rank: int) -> str:
    """Return the largest or smallest rows of integers in each segment.

    Each is taken over all rows, where rows of other segments count for none.
    """
    data, ids, *counts = inputs
    wide = WIDER.get(ops.dtype, ops.dtype)
    count = counts[0] if counts else ops("Add", [ops("ReduceMax", [ids], keepdims=0), ops.constant(1)])
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(ops.dtype))
    bound = ops.value(limits.min if op.endswith("Max") else limits.max, wide)
    numbers = ops("Range", [ops.constant(0), count, ops.constant(1)])
    is_own = ops("Equal", [ops.unsqueeze(numbers, [1]), ids])
    if rank > 1:
        is_own = ops.unsqueeze(is_own, [*range(2, rank + 1)])
    rows = ops("Where", [is_own, ops.unsqueeze(ops.cast(data, wide), [0]), bound])
    widths = ops.part(ops("Shape", [rows]), 2, _END)
    none = ops("Concat", [ops.unsqueeze(count, [0]), ops.constant([1]), widths], axis=0)
    rows = ops("Concat", [rows, ops("Expand", [bound, none])], axis=1)  # of no rows there is one
    return ops.over_axes("ReduceMax" if op.endswith("Max") else "ReduceMin", rows, [1], keepdims=0)


def _average_segments(ops: Replacement, inputs: list[str], rank: int) -> str:
    """Return sums of integers, each divided by the number of rows."""
    total = _write_segments(ops, inputs, *_WRITTEN["SegmentSum"])
    ones = ops("Expand", [ops.value(1, ops.dtype), ops("Shape", [inputs[1]])])
    count = _write_segments(ops, [ones, inputs[1]], *_WRITTEN["SegmentSum"])
    count = ops("Max", [count, ops.value(1, ops.graph.get_dtype(count))])
    return ops("Div", [total, ops.unsqueeze(count, [*range(1, rank)]) if rank > 1 else count])


#: What sums and products of segments start from, and how a row is written.
_WRITTEN: Final = {"SegmentSum": (0, "add"), "SegmentProd": (1, "mul")}
#: From this opset on ONNX adds up and multiplies what is written to one place.
_ADDS_UP: Final = 16
#: What TensorFlow starts a reduction from, where tf2onnx starts from an infinity.
_BOUNDS: Final = {"UnsortedSegmentMax": ("Max", "min"), "UnsortedSegmentMin": ("Min", "max")}
#: The ops whose segments without rows are 0.
_ZERO_OF_NOTHING: Final = (
    "SegmentMax",
    "SegmentMin",
    "SegmentMean",
    "SparseSegmentMean",
    "SparseSegmentSqrtN",
)


def _zero_the_absent(ops: Replacement, result: str, ids: str, rank: int) -> str:
    """Set segments to zero if absent from `ids`."""
    none = ops("Expand", [ops.constant(0, np.int32), ops.part(ops("Shape", [result]), 0, 1)])
    ones = ops("Expand", [ops.constant(1, np.int32), ops("Shape", [ids])])
    is_there = ops("Cast", [ops("ScatterElements", [none, ids, ones])], to=_BOOL)
    if rank > 1:
        is_there = ops.unsqueeze(is_there, list(range(1, rank)))
    return ops("Where", [is_there, result, ops.value(0, ops.dtype)])


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        **dict.fromkeys(("Select", "SelectV2"), select),
        "OneHot": one_hot,
        "ScatterNd": scatter,
        "FloorDiv": floor_divide,
        "FloorMod": floor_modulo,
        **dict.fromkeys(("Mod", "TruncateMod"), modulo),
        **dict.fromkeys(("Less", "Greater", "LessEqual", "GreaterEqual"), compare),
        "MatrixBandPart": keep_band,
        "Slice": cut,
        **dict.fromkeys(
            (*_ZERO_OF_NOTHING, *_BOUNDS, *_WRITTEN, *(f"Unsorted{op}" for op in _WRITTEN)), reduce_segments
        ),
    }
)
