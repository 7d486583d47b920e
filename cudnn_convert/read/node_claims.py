"""What a node of a graph claims, by the definition of its op: inputs, attributes, the value of a constant.

Whatever comes later may rely on it. What nodes of unknown ops are is left to a refusal.
Source: tensorflow v2.21.0 core/framework/op_def.proto (AttrDef), node_def_util.cc (ValidateNodeDef).
"""

from __future__ import annotations

from functools import cache
from math import isfinite, prod
from typing import Any, Final

#: The field of an attribute's value for each type of AttrDef that is no list.
_FIELDS: Final = {
    **{"type": "type", "tensor": "tensor", "shape": "shape", "func": "func", "string": "s"},
    **{"int": "i", "float": "f", "bool": "b"},
}
#: Where a number takes two values.
_PAIRS: Final = ("scomplex_val", "dcomplex_val")
#: An attribute of a function's node that is told where the function is called.
_TOLD_LATER: Final = "placeholder"


#: Ops whose attributes are read without an import, which would refuse nodes that lack one.
_READ: Final = frozenset(
    "Const CudnnRNN CudnnRNNV2 CudnnRNNV3 BlockLSTM BlockLSTMV2 LSTMBlockCell VarHandleOp".split()
)


def fault(node: Any, *, is_template: bool) -> str | None:
    """What of a node is not as its op's definition says, None where all is, or the op is not known.

    `is_template`: the node is a function's, whose caller may tell its attributes.
    """
    known = _definition(node.op)
    if known is None:
        return None
    least, attributes = known
    inputs = sum(not name.startswith("^") for name in node.input)
    if inputs < least:
        return f"{inputs} inputs where {least} are needed"
    for name, kind, wanted, is_needed in attributes:
        if name not in node.attr:
            if is_needed:
                return f"no {kind} for {name}"
            continue
        found = node.attr[name].WhichOneof("value")
        if found != wanted and not (is_template and found == _TOLD_LATER):
            return f"no {kind} for {name}"
        if not _is_value(found, node.attr[name], is_read=node.op in _READ):
            return f"no {kind} for {name}"
    return _fault_of_value(node) if node.op == "Const" else None


@cache
def _definition(op: str) -> tuple[int, list[tuple[str, str, str, bool]]] | None:
    """An op's least number of inputs; of each attribute the name, type and field, and whether it is read."""
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(op)
    if found is None:
        return None
    least = sum(not (one.number_attr or one.type_list_attr) for one in found.input_arg)
    attributes = [
        (one.name, one.type, _FIELDS.get(one.type, "list"), op in _READ and not one.HasField("default_value"))
        for one in found.attr
    ]
    return least, attributes


def _is_value(field: str, value: Any, *, is_read: bool) -> bool:
    """Whether a type is one, and of an op that is read here a float a number, a string text."""
    if field == "type":
        return _is_type(value.type)
    if field == "s":
        return not is_read or _is_text(value.s)
    return field != "f" or not is_read or isfinite(value.f)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@cache
def _is_type(number: int) -> bool:
    from tensorflow.python.framework import dtypes

    try:
        dtypes.as_dtype(number)
    except TypeError:
        return False
    return True


def _fault_of_value(node: Any) -> str | None:
    from tensorflow.python.framework import dtypes

    held, told = node.attr["value"].tensor, node.attr["dtype"].type
    sizes = [dim.size for dim in held.tensor_shape.dim]
    if not told or node.attr["value"].WhichOneof("value") == _TOLD_LATER or min(sizes, default=0) < 0:
        return None  # told where a function is called; graphs.py refuses a size below 0 by name
    if held.dtype != told:
        return f"a value of another type than {dtypes.as_dtype(told).name}"
    if held.tensor_shape.unknown_rank:
        return "a value without a shape"
    for field, values in held.ListFields():
        told_size = prod(sizes) * (2 if field.name in _PAIRS else 1)
        if field.name.endswith("_val") and len(values) > max(told_size, 1):
            return f"{len(values)} values for a shape of {told_size}"
    wanted = prod(sizes) * dtypes.as_dtype(told).size
    if held.tensor_content and len(held.tensor_content) != wanted:
        return f"{len(held.tensor_content)} bytes for a value of {wanted}"
    return None
