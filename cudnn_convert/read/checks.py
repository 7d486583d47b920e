"""Checks a graph's names, functions, constants and attributes before any use.

TensorFlow would refuse most faults only in what it imports, with messages of its own, and the walks of this
package, which follow inputs from node to node, would not terminate.

Nodes are checked against the definition of their op: inputs, outputs, attributes, the value of a constant.
Later code relies on it. Nodes of unknown ops pass; they are refused later by op name.
Source: tensorflow v2.21.0 core/framework/op_def.proto (AttrDef), node_def_util.cc (ValidateNodeDef).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from graphlib import CycleError, TopologicalSorter
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.errors import ReadError
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import callees, library
from cudnn_convert.text import list_some

#: Names that a message lists before it counts the rest.
SHOWN: Final = 3
_LONG: Final = 200
#: Bytes of an element where the type has none of its own, such as a string's.
_LARGEST: Final = 16
#: tensorflow v2.21.0 core/framework/types.proto DT_STRING.
_STRING: Final = 7
#: The largest size of a dimension.
_WIDEST: Final = 2**31 - 1
#: The number of an output in an input `op:k` or `op:output:k`, without zeros before it, and its most digits:
#: `graph.index.split` takes a longer one for a part of the op's name.
_OUTPUT: Final = re.compile(r":0*([0-9]+)\Z", re.ASCII)
_DIGITS: Final = 9


def require(path: Path, graph: Any) -> None:
    """Check that a GraphDef is well-formed and within the limits. Raises ReadError."""
    functions = {function.signature.name: function.signature for function in graph.library.function}
    _require_nodes(path, "graph", graph.node, (), functions)
    for function in graph.library.function:
        arguments = [argument.name for argument in function.signature.input_arg]
        label = f"function {_show(function.signature.name)}"
        _require_nodes(path, label, function.node_def, arguments, functions)
    _require_finite(path, graph)


def _require_nodes(
    path: Path, where: str, nodes: Any, arguments: Iterable[str], functions: Mapping[str, Any]
) -> None:
    names = [node.name for node in nodes]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ReadError(path, where, expected="nodes of different names", found=f"{_join_names(twice)} twice")
    inputs = {node.name: [_op(name) for name in node.input] for node in nodes}
    known = {*names, *arguments}
    unknown = ((name, op) for name, above in inputs.items() for op in above if op not in known)
    lost = [f"{name} without its input {_show(op)}" for name, op in unknown]
    if lost:
        raise ReadError(path, where, expected="nodes with all their inputs", found=_join_names(lost))
    back = {node.name for node in nodes if node.op in ops.NEXT_ITERATIONS}
    if circle := _circle({name: [op for op in above if op not in back] for name, above in inputs.items()}):
        raise ReadError(path, where, expected="inputs that form no circle", found=f"a circle: {circle}")
    for node in nodes:
        label = f"{where}: {_show(node.name)}"
        if fault := node_fault(node, is_template=where != "graph"):
            expected = f"a {_show(node.op)} as TensorFlow writes it"
            raise ReadError(path, label, expected=expected, found=fault)
        _require_countable(path, label, node)
        if node.op == "Const":
            _require_stored(path, label, node.attr["value"].tensor)
    _require_outputs(path, where, nodes, functions)


def _require_outputs(path: Path, where: str, nodes: Any, functions: Mapping[str, Any]) -> None:
    """Check that each input `op:k` or `op:output:k` is an output that there is. Raises ReadError."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        for name in node.input:
            number, source = _OUTPUT.search(name), by_name.get(_op(name))
            if number is None or source is None:
                continue
            count = _count_outputs(source, functions)
            if count is not None and (len(number[1]) > _DIGITS or int(number[1]) >= count):
                expected = f"an input of {_show(source.name)}, which has {count} outputs"
                raise ReadError(path, f"{where}: {_show(node.name)}", expected=expected, found=_show(name))


def _count_outputs(node: Any, functions: Mapping[str, Any]) -> int | None:
    """Return the number of a node's outputs; None if its op or its attributes leave it open."""
    from cudnn_convert.private import tf_private

    definition = functions.get(node.op) or tf_private.find_op(node.op)
    if definition is None:
        return None
    values = {each.name: each.default_value for each in definition.attr if each.HasField("default_value")}
    values |= node.attr
    count = 0
    for argument in definition.output_arg:
        name = argument.number_attr or argument.type_list_attr
        if not name:
            count += 1
        elif name not in values or values[name].WhichOneof("value") == _TOLD_LATER:
            return None
        else:
            count += values[name].i if argument.number_attr else len(values[name].list.type)
    return count


def strings(node: Any) -> list[str]:
    """Return the strings in a Const node of strings, else an empty list."""
    if node is None or node.op != "Const" or node.attr["value"].tensor.dtype != _STRING:
        return []
    import tensorflow as tf

    return [text.decode(errors="replace") for text in tf.make_ndarray(node.attr["value"].tensor).reshape(-1)]


def _op(name: str) -> str:
    """Return the node or argument of an input `op`, `op:k`, `^op` or `op:output:k`."""
    return name.removeprefix("^").partition(":")[0]


def _circle(inputs: Mapping[str, list[str]]) -> str:
    """Return some of the names on or behind a cycle, "" for an acyclic graph."""
    sorter = TopologicalSorter(inputs)
    with suppress(CycleError):  # what no cycle blocks is sorted all the same
        sorter.prepare()
    sorted_names: set[str] = set()
    while ready := sorter.get_ready():
        sorted_names.update(ready)
        sorter.done(*ready)
    return _join_names(name for name in inputs if name not in sorted_names)


def _require_countable(path: Path, where: str, node: Any) -> None:
    """Check shapes in attributes against the 32 bits of TensorFlow's shape ops."""
    for attr in node.attr.values():
        for shape in (attr.shape, *attr.list.shape):
            for dim in shape.dim:
                if dim.size > _WIDEST:
                    raise ReadError(path, where, expected=f"sizes of at most {_WIDEST}", found=str(dim.size))


def _require_stored(path: Path, where: str, tensor: Any) -> None:
    """Raise ReadError if a constant's shape is unknown or far larger than the stored bytes.

    One stored value may stand for many elements.
    """
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    if min(sizes, default=0) < 0:
        raise ReadError(path, where, expected="a shape of known sizes", found=f"{sizes}")
    claimed = prod(sizes) * _LARGEST
    if context.is_bomb(claimed, tensor.ByteSize()):
        expected = "as many bytes as the values of its shape need"
        actual = f"{claimed // _LARGEST} values in {tensor.ByteSize()} bytes"
        raise ReadError(path, where, expected=expected, found=actual, advice=context.raising(claimed))


def _require_finite(path: Path, graph: Any) -> None:
    """Raise ReadError for a recursive function, or an inlined graph over the node limit."""
    functions = library(graph)
    sizes: dict[str, int] = {}
    opened: list[str] = []
    todo = [(name, False) for name in functions]
    while todo:
        name, is_through = todo.pop()
        if is_through:
            sizes[opened.pop()] = _size(functions[name].node_def, sizes)
        elif name in opened:
            actual = " -> ".join(map(_show, [*opened[opened.index(name) :][:SHOWN], name]))
            raise ReadError(path, "functions", expected="no function that calls itself", found=actual)
        elif name not in sizes:
            opened.append(name)
            todo.append((name, True))
            called = {callee for node in functions[name].node_def for callee in callees(node)}
            todo += [(callee, False) for callee in sorted(called & functions.keys())]
    most = max([_size(graph.node, sizes), *sizes.values()])
    if most > context.current().nodes:
        expected, actual = f"at most {context.current().nodes} nodes with all functions inlined", f"{most}"
        advice = f"if that is meant, give --limit nodes={most}"
        raise ReadError(path, "graph", expected=expected, found=actual, advice=advice)


def _size(nodes: Any, sizes: Mapping[str, int]) -> int:
    return sum(1 + sum(sizes.get(callee, 0) for callee in callees(node)) for node in nodes)


def _join_names(names: Iterable[str]) -> str:
    return list_some([*map(_show, names)], SHOWN)


def _show(name: str) -> str:
    """Return a name as a single line, cut if very long."""
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= _LONG else f"{shown[:_LONG]}..."


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
_READ: Final = ops.CUDNN | ops.BLOCK_LSTMS | {"Const", "LSTMBlockCell", "VarHandleOp"}


def node_fault(node: Any, *, is_template: bool) -> str | None:
    """Return the way a node violates the op's definition, if any.

    Returns None where it conforms. Nodes of unknown ops conform. `is_template`: the node lies in a function,
    whose caller may supply attributes.
    """
    known = _definition(node.op)
    if known is None:
        return None
    least, attributes = known
    inputs = sum(not name.startswith("^") for name in node.input)
    if inputs < least:
        return f"{inputs} inputs where {least} are needed"
    for name, kind, wanted, is_needed in attributes:
        is_sound = not is_needed
        if name in node.attr:
            field = node.attr[name].WhichOneof("value")
            is_kind = field == wanted or (is_template and field == _TOLD_LATER)
            is_sound = is_kind and _is_value(field, node.attr[name], is_read=node.op in _READ)
        if not is_sound:
            return f"no {kind} for {name}"
    return _fault_of_value(node) if node.op == "Const" else None


@cache
def _definition(op: str) -> tuple[int, list[tuple[str, str, str, bool]]] | None:
    """Return an op's minimal input count, and each attribute's `(name, type, field, is_needed)`."""
    from cudnn_convert.private import tf_private

    definition = tf_private.find_op(op)
    if definition is None:
        return None
    least = sum(not (argument.number_attr or argument.type_list_attr) for argument in definition.input_arg)
    attributes = [
        (
            argument.name,
            argument.type,
            _FIELDS.get(argument.type, "list"),
            op in _READ and not argument.HasField("default_value"),
        )
        for argument in definition.attr
    ]
    return least, attributes


def _is_value(field: str, value: Any, *, is_read: bool) -> bool:
    """Return True if an attribute's type is known.

    With `is_read`, also whether floats are finite and strings UTF-8.
    """
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
    import tensorflow as tf

    try:
        tf.as_dtype(number)
    except TypeError:
        return False
    return True


def _fault_of_value(node: Any) -> str | None:
    import tensorflow as tf

    value, dtype = node.attr["value"].tensor, node.attr["dtype"].type
    sizes = [dim.size for dim in value.tensor_shape.dim]
    if not dtype or node.attr["value"].WhichOneof("value") == _TOLD_LATER or min(sizes, default=0) < 0:
        return None  # told where a function is called; graphs.py refuses a size below 0 by name
    if value.dtype != dtype:
        return f"a value of another type than {tf.as_dtype(dtype).name}"
    if value.tensor_shape.unknown_rank:
        return "a value without a shape"
    for field, values in value.ListFields():
        told_size = prod(sizes) * (2 if field.name in _PAIRS else 1)
        if field.name.endswith("_val") and len(values) > max(told_size, 1):
            return f"{len(values)} values for a shape of {told_size}"
    wanted = prod(sizes) * tf.as_dtype(dtype).size
    if value.tensor_content and len(value.tensor_content) != wanted:
        return f"{len(value.tensor_content)} bytes for a value of {wanted}"
    return None
