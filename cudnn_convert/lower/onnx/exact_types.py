"""ONNX forms of ops with types, values or sizes unsupported by tf2onnx' own forms.

What its own do (tf2onnx v1.17.0 tf2onnx/onnx_opset/), and what ONNX Runtime 1.32.0 lacks:

* MaxPool of integers             : as float32, which lacks some. A double has every int32.
* MaxPool of windows that lie apart: as float32, whose padding may be below 0.
* Sinh, Cosh, Tan, Elu, Selu, Softplus, Softsign of doubles, Relu of integers: no kernel.
* Gather of rows of text          : the first word of each row alone. GatherND takes them all.
* Cumsum of narrow integers       : no kernel.
* SparseToDense of int32 indices  : a shape of the wrong type.
* SplitV                          : a size of -1 is taken as it is.
* Cumprod                         : no axis below 0; one step of none if it is exclusive.
* ClipByValue                     : of bounds that cross the other one wins.
* Pow of integers                 : as doubles. A constant power is a product.
* Atan2                           : -0 counts as 0.
* Conv2DBackpropInput, Conv3D...  : where sizes are open, padding is on the other side.

Source: tensorflow v1.15.0 core/kernels/conv_grad_input_ops.cc, core/framework/common_shape_fns.cc.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto
from tf2onnx import constants
from tf2onnx.handler import tf_op

from cudnn_convert.lower.onnx.exact_ops import FLOATS, WIDER, Handler, Replacement

_FLOAT, _DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
_INT32, _INT64 = TensorProto.INT32, TensorProto.INT64
#: From these opsets on, sizes of a Split are an input; Max and Min take integers.
_OPEN_SPLITS, _BOUNDS_OF_INTEGERS = 13, 12
_END: Final = np.iinfo(np.int64).max


def convert_as_theirs(graph: Any, node: Any) -> None:
    """Convert a node by tf2onnx' own handler."""
    tables = tf_op.get_opsets()[constants.ONNX_DOMAIN]
    op = node.type
    function, known = next(table[op] for table in reversed(tables[: graph.opset + 1]) if op in table)
    node.type = known.get("onnx_op", op)
    function(graph, node, **{**known, "tf_op": op})


def pool(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Pool integers, and windows lying apart, as doubles.

    A double has every int32. A kernel of floats refuses the padding of windows that lie apart.
    """
    if graph.get_dtype(node.input[0]) != _INT32 and not _lie_apart(node):
        convert_as_theirs(graph, node)
        return
    _convert_cast(graph, node, {0: _DOUBLE}, {0: _DOUBLE})


def _lie_apart(node: Any) -> bool:
    """Return True if a SAME pool moves by more than the window."""
    sizes, strides = (node.get_attr_value(key) for key in ("ksize", "strides"))
    if sizes is None:
        values = [other.get_tensor_value(as_list=False) for other in node.inputs[1:] if other.is_const()]
        if len(values) < len(("ksize", "strides")):
            return False
        sizes, strides = values
    is_same = node.get_attr_value("padding") == b"SAME"
    return is_same and any(stride > size for size, stride in zip(sizes, strides, strict=True))


def _convert_cast(graph: Any, node: Any, given: Mapping[int, int], gives: Mapping[int, int]) -> None:
    """Convert by tf2onnx' own handler, with given inputs and outputs cast.

    `given` and `gives` have types by the number of an input and output.
    """
    op, attributes = node.type, dict(node.attr)
    ops = Replacement(graph, node)
    inputs = [
        ops.cast(name, given.get(k, dtype))
        for k, (name, dtype) in enumerate(zip(ops.inputs, ops.dtypes, strict=True))
    ]
    dtypes = [gives.get(k, dtype) for k, dtype in enumerate(ops.output_dtypes)]
    inner = graph.make_node(op, inputs, shapes=ops.shapes, dtypes=dtypes, output_count=len(dtypes))
    inner.attr.update(attributes)
    ops.finish(*inner.output)
    convert_as_theirs(graph, inner)


def add_up(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write running sums of narrow integers in wider integers."""
    wide = WIDER.get(graph.get_dtype(node.input[0]))
    if wide is None:
        convert_as_theirs(graph, node)
        return
    _convert_cast(graph, node, {0: wide}, {0: wide})


def pick(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Pick rows of text by GatherND, single words as tf2onnx does."""
    axis = node.inputs[2].get_tensor_value(as_list=False) if len(node.input) > len("xi") else np.array(0)
    rank = graph.get_rank(node.input[0])
    is_text = graph.get_dtype(node.input[0]) == TensorProto.STRING
    if not is_text or axis % (rank or 1) == (rank or 0) - 1 or node.get_attr_value("batch_dims", 0):
        convert_as_theirs(graph, node)
        return
    if axis != 0:
        raise ValueError("text that is no row")
    ops = Replacement(graph, node)
    ops.finish(ops("GatherND", [ops.inputs[0], ops.unsqueeze(ops.cast(ops.inputs[1], _INT64), [-1])]))


def write_sparse(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write values at indices of 64 bits."""
    _convert_cast(graph, node, {0: _INT64, 1: _INT64}, {})


def _of_doubles(body: Callable[[Replacement, str], str]) -> Handler:
    """Return a handler computing doubles by `body`, the rest as tf2onnx does."""

    def handle(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
        if graph.get_dtype(node.input[0]) != _DOUBLE:
            convert_as_theirs(graph, node)
            return
        ops = Replacement(graph, node)
        ops.finish(body(ops, ops.inputs[0]))

    return handle


def _double(ops: Replacement, value: float) -> str:
    return ops.value(value, _DOUBLE)


def _sinh(ops: Replacement, x: str) -> str:
    less = ops("Sub", [ops("Exp", [x]), ops("Exp", [ops("Neg", [x])])])
    series = ops("Add", [x, ops("Div", [ops("Mul", [ops("Mul", [x, x]), x]), _double(ops, 6)])])
    near = ops("Less", [ops("Abs", [x]), _double(ops, 1e-4)])  # where the difference has few digits
    return ops("Where", [near, series, ops("Mul", [less, _double(ops, 0.5)])])


def _cosh(ops: Replacement, x: str) -> str:
    total = ops("Add", [ops("Exp", [x]), ops("Exp", [ops("Neg", [x])])])
    return ops("Mul", [total, _double(ops, 0.5)])


def _tan(ops: Replacement, x: str) -> str:
    return ops("Div", [ops("Sin", [x]), ops("Cos", [x])])


def _elu(ops: Replacement, x: str, alpha: float = 1.0, scale: float = 1.0) -> str:
    below = ops("Sub", [ops("Exp", [ops("Min", [x, _double(ops, 0)])]), _double(ops, 1)])
    is_below = ops("Less", [x, _double(ops, 0)])
    positive = ops("Mul", [x, _double(ops, scale)])
    return ops("Where", [is_below, ops("Mul", [below, _double(ops, alpha * scale)]), positive])


def _selu(ops: Replacement, x: str) -> str:
    return _elu(ops, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _softplus(ops: Replacement, x: str) -> str:
    small = ops("Exp", [ops("Neg", [ops("Abs", [x])])])
    return ops("Add", [ops("Max", [x, _double(ops, 0)]), ops("Log", [ops("Add", [small, _double(ops, 1)])])])


def _softsign(ops: Replacement, x: str) -> str:
    return ops("Div", [x, ops("Add", [ops("Abs", [x]), _double(ops, 1)])])


def rectify(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the positive part, of unsigned integers the number."""
    if graph.get_dtype(node.input[0]) in FLOATS:
        convert_as_theirs(graph, node)
        return
    ops = Replacement(graph, node)
    (x,) = ops.widen()
    zero = ops.value(0, ops.graph.get_dtype(x))
    ops.finish(ops("Where", [ops("Less", [x, zero]), zero, x]))


def split_sizes(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Split by sizes, with -1 for the rest."""
    sizes, axis = node.inputs[1:]
    if sizes.is_const() and (sizes.get_tensor_value(as_list=False) >= 0).all():
        convert_as_theirs(graph, node)
        return
    if not axis.is_const() or graph.opset < _OPEN_SPLITS:
        raise ValueError("sizes that may be the rest")
    at = int(axis.get_tensor_value(as_list=False))
    ops = Replacement(graph, node)
    x, given = ops.inputs[0], ops.cast(ops.inputs[1], _INT64)
    none = ops.constant(0)
    total = ops("ReduceSum", [ops("Max", [given, none])], keepdims=1)
    rest = ops("Sub", [ops("Gather", [ops("Shape", [x]), ops.constant([at])]), total])
    given = ops("Where", [ops("Less", [given, none]), rest, given])
    ops.finish(*ops.several("Split", [x, given], len(ops.outputs), axis=at))


def multiply_up(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write running products over an axis counted from the first.

    There are as many products as steps.
    """
    rank, axis = graph.get_rank(node.input[0]), node.inputs[1]
    if rank is None or not axis.is_const():
        raise ValueError("an axis that is not known")
    op, attributes, ops = node.type, dict(node.attr), Replacement(graph, node)
    at = int(axis.get_tensor_value(as_list=False)) % rank
    x = ops.inputs[0]
    inner = graph.make_node(op, [x, ops.constant(at, np.int32)], shapes=ops.shapes, dtypes=ops.output_dtypes)
    inner.attr.update(attributes)
    count = ops("Gather", [ops("Shape", [x]), ops.constant([at])])
    steps = ops("Slice", [inner.output[0], ops.constant([0]), count, ops.constant([at])])
    ops.finish(steps)
    convert_as_theirs(graph, inner)


def clip(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the larger of the lower bound and the value cut at the upper bound."""
    if graph.opset < _BOUNDS_OF_INTEGERS and graph.get_dtype(node.input[0]) not in FLOATS:
        convert_as_theirs(graph, node)
        return
    ops = Replacement(graph, node)
    x, low, high = ops.widen()
    ops.finish(ops("Max", [ops("Min", [x, high]), low]))


def raise_power(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write a constant power of integers as a product; overflow wraps around."""
    if graph.get_dtype(node.input[0]) in FLOATS:
        convert_as_theirs(graph, node)
        return
    power = node.inputs[1].get_tensor_value(as_list=False) if node.inputs[1].is_const() else None
    if power is None or power.size != 1 or not 0 <= int(power.flat[0]) <= 64:
        raise ValueError("integers, which ONNX Runtime raises as doubles")
    ops = Replacement(graph, node)
    square, rest = ops.inputs[0], int(power.flat[0])
    result = ops("Sub", [ops("Add", [square, ops.value(1, ops.dtype)]), square])  # ones
    while rest:
        result = ops("Mul", [result, square]) if rest % 2 else result
        square, rest = ops("Mul", [square, square]), rest // 2
    ops.finish(result)


def angle(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write the angle of the sizes, in the quadrant of the signs, for zeros too."""
    ops = Replacement(graph, node)
    y, x = (ops.cast(name, _FLOAT) for name in ops.inputs)
    zero, pi = (ops.value(value, _FLOAT) for value in (0, np.pi))
    tall, wide = ops("Abs", [y]), ops("Abs", [x])
    alike = ops("Equal", [tall, wide])
    are_none = ops("And", [alike, ops("Equal", [wide, zero])])
    diagonal = ops("Where", [are_none, zero, ops.value(1, _FLOAT)])  # of infinities too
    # Not one `Where`: equal sizes of other numbers divide to 1.
    slope = ops("Where", [alike, diagonal, ops("Div", [tall, wide])])
    within = ops("Atan", [slope])
    within = ops("Where", [_is_negative(ops, x), ops("Sub", [pi, within]), within])
    ops.finish(ops("Where", [_is_negative(ops, y), ops("Neg", [within]), within]))


def _is_negative(ops: Replacement, x: str) -> str:
    """Test the sign of a number, -0 included."""
    zero = ops.value(0, _FLOAT)
    inverse = ops("Reciprocal", [x])
    return ops("Or", [ops("Less", [x, zero]), ops("Less", [inverse, zero])])


def convolve_back(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
    """Write an unpadded ConvTranspose, cut off the padding, and add zeros."""
    if graph.opset < _BOUNDS_OF_INTEGERS:
        if -1 in (graph.get_shape(node.input[2]) or [-1])[1:]:
            raise ValueError("open sizes, for which opset 12 is the first")
        convert_as_theirs(graph, node)
        return
    attributes = node.attr
    is_last = attributes["data_format"].s in (b"NHWC", b"NDHWC") if "data_format" in attributes else True
    padding = attributes["padding"].s
    spatial = 3 if node.type == "Conv3DBackpropInputV2" else 2
    places = slice(1, 1 + spatial) if is_last else slice(2, 2 + spatial)
    explicit = [*attributes["explicit_paddings"].ints] if "explicit_paddings" in attributes else []
    moves = {key: [*attributes[key].ints][places] for key in ("strides", "dilations") if key in attributes}
    ops = Replacement(graph, node)
    sizes, kernel, x = ops.inputs
    last = [0, spatial + 1, *range(1, spatial + 1)]
    dtype = ops.dtype
    x, kernel = (ops.cast(name, _FLOAT) for name in (x, kernel))
    if is_last:
        x = ops("Transpose", [x], perm=last)
    kernel = ops("Transpose", [kernel], perm=[spatial + 1, spatial, *range(spatial)])
    whole = ops("ConvTranspose", [x, kernel], **moves)
    wanted = ops.part(ops.cast(sizes, _INT64), places.start, places.stop)
    actual = ops.part(ops("Shape", [whole]), 2, 2 + spatial)
    if padding == b"SAME":
        more = ops("Max", [ops("Sub", [actual, wanted]), ops.constant(0)])
        start = ops("Div", [more, ops.constant(2)])
    else:
        pairs = np.reshape(explicit, (-1, 2))[places, 0] if padding == b"EXPLICIT" else np.zeros(spatial)
        start = ops.constant(pairs)
    end = ops("Add", [start, wanted])
    missing = ops("Max", [ops("Sub", [end, actual]), ops.constant(0)])
    none = ops.constant([0, 0])
    begins = ops.constant([0] * spatial)
    pads = ops("Concat", [none, begins, none, missing], axis=0)
    padded = ops("Pad", [whole, pads])
    axes = ops.constant([*range(2, 2 + spatial)])
    image = ops("Slice", [padded, start, end, axes])
    if is_last:
        image = ops("Transpose", [image], perm=[0, *range(2, spatial + 2), 1])
    ops.finish(ops.cast(image, dtype))


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        **dict.fromkeys(("MaxPool", "MaxPoolV2", "MaxPoolWithArgmax"), pool),
        "Cumsum": add_up,
        **dict.fromkeys(("Gather", "GatherV2"), pick),
        "SparseToDense": write_sparse,
        "Sinh": _of_doubles(_sinh),
        "Cosh": _of_doubles(_cosh),
        "Tan": _of_doubles(_tan),
        "Elu": _of_doubles(_elu),
        "Selu": _of_doubles(_selu),
        "Softplus": _of_doubles(_softplus),
        "Softsign": _of_doubles(_softsign),
        "Relu": rectify,
        "SplitV": split_sizes,
        "Cumprod": multiply_up,
        "ClipByValue": clip,
        "Pow": raise_power,
        "Atan2": angle,
        **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), convolve_back),
    }
)
