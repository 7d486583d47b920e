"""Places of ONNX files: initializers, constants and nodes, in branches and loops too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from corruptions import Array, Corruption, moved_number, of_constants, shifted_step
from onnx import numpy_helper

#: Ops that take and give the same, in pairs.
LIKE: Final = (
    *(("Greater", "GreaterOrEqual"), ("Less", "LessOrEqual"), ("Greater", "Less"), ("Add", "Sub")),
    *(("Add", "Mul"), ("Max", "Min"), ("Mul", "Div"), ("And", "Or"), ("Sigmoid", "Tanh"), ("Relu", "Elu")),
    *(("Floor", "Ceil"), ("ReduceMax", "ReduceMin"), ("ReduceMean", "ReduceMax"), ("ArgMax", "ArgMin")),
    *(
        ("Sqrt", "Abs"),
        ("Neg", "Abs"),
        ("Pow", "Mul"),
        ("Softmax", "LogSoftmax"),
        ("ReduceSum", "ReduceProd"),
    ),
    *(("Identity", "Neg"), ("Exp", "Abs"), ("GlobalMaxPool", "GlobalAveragePool")),
)
#: Attributes that say how a node is stored, not what it computes.
_ASIDE: Final = ("to", "dtype", "hidden_size", "activations")


@dataclass(frozen=True)
class Scope:
    """A graph: its place, its nodes, and the dtype and shape of each of its tensors."""

    place: str
    graph: Any
    types: Mapping[str, Any]


def list_corruptions(path: Path, seed: int) -> Iterator[Corruption]:
    """All corruptions of an ONNX file, or of the files of a folder."""
    constants: dict[str, Array] = {}
    for file in _files(path):
        model = onnx.load(str(file))
        scopes = [*_scopes(file.stem, _inferred(model).graph, {})]
        for scope in scopes:
            own = {_at(scope, name): value for name, value in _constants(scope.graph)}
            constants |= own
            for number, node in enumerate(scope.graph.node):
                yield from _of_node(scope, number, node, own)
    yield from of_constants(constants, store, seed)


def store(path: Path, changed: Mapping[str, Array]) -> None:
    """Write new values of initializers and constants."""

    def change(scope: Scope) -> None:
        for tensor in scope.graph.initializer:
            if (place := _at(scope, tensor.name)) in changed:
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed[place]), tensor.name))
        for node in scope.graph.node:
            if node.op_type == "Constant" and (place := _at(scope, node.output[0])) in changed:
                value = numpy_helper.from_array(np.ascontiguousarray(changed[place]))
                del node.attribute[:]
                node.attribute.append(onnx.helper.make_attribute("value", value))

    _edit(path, change)


def _of_node(scope: Scope, number: int, node: Any, constants: Mapping[str, Array]) -> Iterator[Corruption]:
    place = _at(scope, node.output[0] if node.output else str(number))
    for pair in LIKE:
        if node.op_type in pair:
            other = pair[1 - pair.index(node.op_type)]
            write = _change_node(scope, number, lambda one, other=other: setattr(one, "op_type", other))
            yield Corruption("op", f"{place}: {node.op_type} to {other}", write)
    if node.op_type == "Where":
        write = _change_node(scope, number, lambda one: _exchange(one.input, 1, 2))
        yield Corruption("op", f"{place}: branches exchanged", write)
    if node.op_type == "If":
        write = _change_node(scope, number, _exchange_branches)
        yield Corruption("op", f"{place}: branches exchanged", write)
    for attribute in node.attribute:
        for what, change in _attribute_changes(attribute):
            write = _change_node(scope, number, _on_attribute(attribute.name, change))
            yield Corruption("attribute", f"{place}: {attribute.name} {what}", write)
    for k, name in enumerate(node.input):
        for other in _like(scope, number, name):
            write = _change_node(scope, number, lambda one, k=k, other=other: _set_input(one, k, other))
            yield Corruption("wire", f"{place}: input {k} to {other}", write)
    yield from _other_steps(scope, place, node, constants)


def _set_input(node: Any, number: int, name: str) -> None:
    node.input[number] = name


def _exchange(names: Any, one: int, other: int) -> None:
    names[one], names[other] = names[other], names[one]


def _exchange_branches(node: Any) -> None:
    for attribute in node.attribute:
        attribute.name = {"then_branch": "else_branch", "else_branch": "then_branch"}[attribute.name]


def _attribute_changes(attribute: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    kinds = onnx.AttributeProto
    if attribute.name in _ASIDE:
        return
    if attribute.type == kinds.INT:
        is_flag = attribute.i in (0, 1) and attribute.name not in ("axis", "batch_axis", "time_axis")
        new = 1 - attribute.i if is_flag else attribute.i + 1
        yield f"to {new}", lambda one: setattr(one, "i", new)
    elif attribute.type == kinds.FLOAT:
        moved = moved_number(attribute.name, attribute.f)
        yield f"to {moved}", lambda one: setattr(one, "f", moved)
    elif attribute.type == kinds.INTS and len(attribute.ints):
        if attribute.name == "perm" and len(attribute.ints) > 1:
            yield "with its last two exchanged", lambda one: _exchange(one.ints, -1, -2)
            return

        def move(one: Any) -> None:
            one.ints[-1] += 1

        yield f"to {attribute.ints[-1] + 1} at its end", move
    elif attribute.type == kinds.STRING and attribute.name == "direction" and attribute.s != b"bidirectional":
        other = b"reverse" if attribute.s == b"forward" else b"forward"
        yield f"to {other.decode()}", lambda one: setattr(one, "s", other)


def _on_attribute(name: str, change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda node: change(next(one for one in node.attribute if one.name == name))


def _like(scope: Scope, number: int, name: str) -> Iterator[str]:
    """Other tensors of the dtype and shape of an input that are there before the node."""
    kind = scope.types.get(name)
    if kind is None:
        return
    late = {output for node in scope.graph.node[number:] for output in node.output}
    for other in sorted(scope.types):
        if other != name and other not in late and scope.types[other] == kind:
            yield other


def _other_steps(scope: Scope, place: str, node: Any, constants: Mapping[str, Array]) -> Iterator[Corruption]:
    """The next element of an axis of which a Gather or a Slice takes one."""
    names = [_at(scope, name) for name in node.input]
    if node.op_type == "Gather" and names[1] in constants and constants[names[1]].size == 1:
        value = constants[names[1]]
        changed = {names[1]: np.full_like(value, shifted_step(int(value.ravel()[0])))}
    elif node.op_type == "Slice" and names[1] in constants and names[2] in constants:
        starts, ends = constants[names[1]].copy(), constants[names[2]].copy()
        first = int(starts[0])
        starts[0] = shifted_step(first)
        if 0 < ends[0] - first <= 1:
            ends[0] += starts[0] - first
        changed = {names[1]: starts, names[2]: ends}
    else:
        return
    yield Corruption("step", place, lambda path: store(path, changed))


def _change_node(scope: Scope, number: int, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        def on_scope(other: Scope) -> None:
            if other.place == scope.place:
                change(other.graph.node[number])

        _edit(path, on_scope)

    return write


def _edit(path: Path, change: Callable[[Scope], None]) -> None:
    for file in _files(path):
        model = onnx.load(str(file))
        for scope in _scopes(file.stem, model.graph, {}):
            change(scope)
        onnx.save(model, str(file))


def _scopes(place: str, graph: Any, outer: Mapping[str, Any]) -> Iterator[Scope]:
    """A graph and, after it, those of its nodes' attributes."""
    types = dict(outer)
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        sizes = [one.dim_param or one.dim_value for one in kind.shape.dim]
        if kind.HasField("shape"):
            types[info.name] = (kind.elem_type, tuple(sizes))
    for tensor in graph.initializer:
        types[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    yield Scope(place, graph, types)
    for number, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _scopes(f"{place}/{number}.{attribute.name}", attribute.g, types)


def _constants(graph: Any) -> Iterator[tuple[str, Array]]:
    for tensor in graph.initializer:
        yield tensor.name, numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            yield node.output[0], numpy_helper.to_array(node.attribute[0].t)


def _inferred(model: Any) -> Any:
    return onnx.shape_inference.infer_shapes(model)


def _at(scope: Scope, name: str) -> str:
    return f"{scope.place}/{name}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("*.onnx"))
