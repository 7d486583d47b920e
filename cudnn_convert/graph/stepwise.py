"""Finds the ops taking each step of a sequence separately, by the axes of operands.

`judge_op` describes what an op does to the steps, or gives "" where each is taken by itself. An op of plain
arithmetic does so; others do by a rule of their own, which asks where the steps lie in its operands. What has
no rule counts as mixing them.
Source: tensorflow v2.21.0 core/ops (`*_ops.cc`) for the positions and attributes of operands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import ops
from cudnn_convert.graph.index import NodeDef

_ELEMENTWISE: Final = (
    ops.COPIES
    | ops.SELECTS
    | ops.SUMS
    | frozenset(
        "PreventGradient Cast Sub Mul Div RealDiv DivNoNan FloorDiv FloorMod Mod TruncateDiv Neg Abs Sign "
        "Square Sqrt Rsqrt Reciprocal Inv Pow Exp Expm1 Log Log1p Tanh Sigmoid Softplus Softsign Relu Relu6 "
        "Elu Selu LeakyRelu Erf Sin Cos Maximum Minimum ClipByValue SquaredDifference AddN BiasAdd BiasAddV1 "
        "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Floor Ceil Round "
        "Rint IsNan IsInf IsFinite ZerosLike OnesLike EnsureShape CheckNumerics PlaceholderWithDefault Xlogy "
        "Xdivy StringLower AsString Print Assert NoOp Transpose IdentityN".split()
    )
)
#: Give for each element what it alone decides, in another form: lookups in partitioned tables.
LOOKUPS: Final = ops.LOOKUPS | frozenset(
    "DynamicPartition DynamicStitch ParallelDynamicStitch Unique OneHot ResourceGather".split()
)
_REDUCTIONS: Final = {
    "Sum": "a sum", "Mean": "a mean", "Max": "a maximum", "Min": "a minimum", "Prod": "a product",
    "All": "a reduction", "Any": "a reduction", "ArgMax": "an argmax", "ArgMin": "an argmin",
    "EuclideanNorm": "a norm",
}  # fmt: skip
_LAST_AXIS: Final = {
    "Softmax": "a softmax", "LogSoftmax": "a softmax", "TopK": "a choice", "TopKV2": "a choice",
    "LRN": "a normalisation",
}  # fmt: skip
_WINDOWS: Final = {
    "Conv2D": "a convolution", "Conv3D": "a convolution", "DepthwiseConv2dNative": "a convolution",
    "MaxPool": "a pooling", "AvgPool": "a pooling", "MaxPool3D": "a pooling", "AvgPool3D": "a pooling",
}  # fmt: skip
#: Give sizes of their operands, which are no data.
SHAPES: Final = frozenset("Shape ShapeN Size Rank".split())
REVERSED: Final = "its steps in reverse"
_BY_POSITION: Final = "steps chosen by their position"


@dataclass(frozen=True, slots=True)
class StepAxes:
    """The axes with steps, of a size divisible by the prime `count`."""

    count: int

    def axes(self, value: Any) -> list[int]:
        """Return the axes of a tensor with steps."""
        sizes = value.shape.as_list() if value.shape.rank is not None else []
        return [axis for axis, size in enumerate(sizes) if size and size % self.count == 0]

    def size(self, value: Any) -> int | None:
        """Return the size of the first axis with steps."""
        axes = self.axes(value)
        return value.shape[axes[0]] if axes else None

    def is_last(self, index: Any) -> bool:
        """Return True if an index points to the last step."""
        known = tf.get_static_value(index)
        return known is not None and {*known.ravel().tolist()} <= {-1, self.count - 1}

    def are_paired(self, value: Any) -> bool:
        """Return True if a tensor has an element for two steps at a time."""
        axes = self.axes(value)
        return len(axes) > 1 or any(value.shape[axis] % self.count**2 == 0 for axis in axes)


Rule = Callable[[StepAxes, Any], str]


def judge_op(steps: StepAxes, op: Any) -> str:
    """Describe the effect of an op on the steps of an operand.

    Empty where it takes each by itself.
    """
    rule = _RULES.get(op.type)
    if rule is not None:
        return rule(steps, op)
    if op.type in ops.BLOCK_LSTMS | ops.BLOCK_CELLS:
        return f"{op.type}, a recurrence whose states cannot be given"
    return f"{op.type}, which is not known to take each step by itself"


def takes_first_step(steps: StepAxes, op: Any) -> bool:
    """Return True if an op takes only the first step of the operand.

    It is a slice, or a lookup at 0.
    """
    x = op.inputs[0] if op.inputs else None
    if x is None or x.shape.rank is None or len(axes := steps.axes(x)) != 1:
        return False
    if op.type in ("Gather", "GatherV2"):
        axis = tf.get_static_value(op.inputs[2]) if op.type == "GatherV2" else 0
        index = tf.get_static_value(op.inputs[1])
        return (
            axis is not None and int(axis) % x.shape.rank == axes[0] and index is not None and not index.any()
        )
    if op.type in _BOUNDS:
        begin, end, step = _BOUNDS[op.type](op, axes[0])
        return begin in (None, 0) and end == 1 and step == 1
    return False


def _judge_elementwise(steps: StepAxes, op: Any) -> str:
    return ""


def _judge_reduction(steps: StepAxes, op: Any) -> str:
    axes, x = tf.get_static_value(op.inputs[1]), op.inputs[0]
    if axes is None or x.shape.rank is None:
        return f"{_REDUCTIONS[op.type]} over axes that are not known"
    reduced = {int(axis) % x.shape.rank for axis in axes.ravel()}
    return f"{_REDUCTIONS[op.type]} over time" if reduced & {*steps.axes(x)} else ""


def _judge_last_axis(steps: StepAxes, op: Any) -> str:
    x = op.inputs[0]
    is_mixed = x.shape.rank is None or x.shape.rank - 1 in steps.axes(x)
    return f"{_LAST_AXIS[op.type]} over time" if is_mixed else ""


def _judge_window(steps: StepAxes, op: Any) -> str:
    """Judge a convolution or pooling: a window of several steps mixes steps."""
    layout, attributes = op.get_attr("data_format").decode(), op.node_def.attr
    axes = [layout.index(letter) for letter in "DHW" if letter in layout]
    if "ksize" in attributes:
        window = dict(enumerate(op.get_attr("ksize")))
    else:
        kernel = op.inputs[1].shape
        window = dict(zip(axes, kernel.as_list() if kernel.rank else [None] * len(axes), strict=False))
    strides = op.get_attr("strides")
    for axis in steps.axes(op.inputs[0]):
        if axis == layout.index("C"):
            return f"{_WINDOWS[op.type]} with time in its channels"
        size = window.get(axis, 1)
        if size != 1 or strides[axis] != 1:
            return f"{_WINDOWS[op.type]} over {size or 'several'} steps"
    return ""


def _judge_product(steps: StepAxes, op: Any) -> str:
    """Judge a product: a sum over an axis of steps mixes steps."""
    before = sum(len(steps.axes(value)) for value in op.inputs)
    after = sum(len(steps.axes(value)) for value in op.outputs)
    return "" if before == after == 1 else "a product over time (attention)"


def _judge_normalisation(steps: StepAxes, op: Any) -> str:
    is_channel = op.get_attr("data_format").decode().index("C") in steps.axes(op.inputs[0])
    return "a normalisation over time" if is_channel or op.get_attr("is_training") else ""


def _judge_reshape(steps: StepAxes, op: Any) -> str:
    """Judge a reshape: the steps must stay in a single axis.

    The elements are the same in another form.
    """
    return "" if all(len(steps.axes(value)) == 1 for value in op.outputs) else "steps folded together"


def _judge_join(steps: StepAxes, op: Any) -> str:
    """Judge a join, padding or broadcast: time must keep the same length."""
    wanted = {size for value in op.inputs if (size := steps.size(value))}
    return "" if {*map(steps.size, op.outputs)} <= wanted else "what is joined or cut along time"


def _judge_tile(steps: StepAxes, op: Any) -> str:
    times = tf.get_static_value(op.inputs[1])
    is_same = times is not None and all(times[axis] == 1 for axis in steps.axes(op.inputs[0]))
    return "" if is_same or (times is None and steps.axes(op.outputs[0])) else "repeated steps"


def _judge_gather(steps: StepAxes, op: Any) -> str:
    """Judge a gather: lookups take each step's own row; choices of steps mix steps."""
    table = op.inputs[0]
    axis = tf.get_static_value(op.inputs[2]) if op.type == "GatherV2" else 0
    if not steps.axes(table) or steps.is_last(op.inputs[1]):
        return ""
    is_other = axis is not None and table.shape.rank and int(axis) % table.shape.rank not in steps.axes(table)
    return "" if is_other else _BY_POSITION


def _judge_reverse(steps: StepAxes, op: Any) -> str:
    is_sequence = op.type == "ReverseSequence"
    given = [op.get_attr("seq_dim")] if is_sequence else tf.get_static_value(op.inputs[1])
    rank = op.inputs[0].shape.rank
    if given is None or rank is None:
        return REVERSED
    return REVERSED if {int(axis) % rank for axis in given} & {*steps.axes(op.inputs[0])} else ""


def _judge_slice(steps: StepAxes, op: Any) -> str:
    """Judge a slice: accepted for all steps, or for the last alone."""
    x, axes = op.inputs[0], steps.axes(op.inputs[0])
    if not axes or x.shape.rank is None:
        return _BY_POSITION
    begin, end, step = _BOUNDS[op.type](op, axes[0])
    size = x.shape[axes[0]]
    if step == -1 and begin in (None, -1, size - 1):
        return REVERSED
    is_whole = begin in (None, 0) and end in (None, size)
    is_last = begin in (-1, size - 1) and end in (None, 0, size)
    return "" if step in (None, 1) and (is_whole or is_last) else _BY_POSITION


_Range = tuple[int | None, int | None, int | None]
#: Of a slice that is not known.
_SOME: Final[_Range] = (1, 1, 1)


def _bounds_of_strided_slice(op: Any, axis: int) -> _Range:
    """Return begin, end and step of a StridedSlice along an axis of the input.

    None stands for all.
    """
    begins, ends, strides = (tf.get_static_value(value) for value in op.inputs[1:4])
    if begins is None or ends is None or strides is None:
        return _SOME
    k = find_range(op.node_def, axis, op.inputs[0].shape.rank, len(begins))
    if k is None:
        return None, None, None
    bit = 1 << k
    is_one = bool(op.get_attr("shrink_axis_mask") & bit)
    end = None if op.get_attr("end_mask") & bit or (is_one and begins[k] == -1) else int(ends[k])
    return None if op.get_attr("begin_mask") & bit else int(begins[k]), end, int(strides[k])


def find_range(node: NodeDef, axis: int, rank: int, count: int) -> int | None:
    """Return the number of the range of a StridedSlice for an axis of the input.

    There are `count` ranges. Returns None where all of the axis is taken.
    """
    ellipsis, new = node.attr["ellipsis_mask"].i, node.attr["new_axis_mask"].i
    named = count - bin(new | ellipsis).count("1")
    position = 0
    for k in range(count):
        bit = 1 << k
        if ellipsis & bit:
            position += rank - named
        elif not new & bit:
            if position == axis:
                return k
            position += 1
        if position > axis:
            break
    return None


def _bounds_of_slice(op: Any, axis: int) -> _Range:
    begins, sizes = (tf.get_static_value(value) for value in op.inputs[1:3])
    if begins is None or sizes is None:
        return _SOME
    begin, size = int(begins[axis]), int(sizes[axis])
    return begin, None if size == -1 else begin + size, 1


_BOUNDS: Final[Mapping[str, Callable[[Any, int], _Range]]] = {
    "StridedSlice": _bounds_of_strided_slice,
    "Slice": _bounds_of_slice,
}


def _judge_split(steps: StepAxes, op: Any) -> str:
    """Judge a split: the pieces must lie along another axis than time."""
    return "" if {len(steps.axes(value)) for value in op.outputs} == {1} else "steps taken apart"


_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_ELEMENTWISE | LOOKUPS, _judge_elementwise),
    **dict.fromkeys(_REDUCTIONS, _judge_reduction),
    **dict.fromkeys(_LAST_AXIS, _judge_last_axis),
    **dict.fromkeys(_WINDOWS, _judge_window),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"), _judge_product),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _judge_normalisation),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze"), _judge_reshape),
    **dict.fromkeys(("ConcatV2", "Concat", "Pack", "Pad", "PadV2", "MirrorPad", "BroadcastTo"), _judge_join),
    **dict.fromkeys(("Tile",), _judge_tile),
    **dict.fromkeys(("Gather", "GatherV2"), _judge_gather),
    **dict.fromkeys(("ReverseV2", "ReverseSequence"), _judge_reverse),
    **dict.fromkeys(("StridedSlice", "Slice"), _judge_slice),
    **dict.fromkeys(("Split", "SplitV", "Unpack"), _judge_split),
}
