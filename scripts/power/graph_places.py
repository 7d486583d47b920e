"""Places of graphs: nodes, functions and variables of a frozen graph, a SavedModel or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from corruptions import Array, Corruption, moved_number, of_constants, shifted_step
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import function_def_to_graph

v1 = tf.compat.v1
#: Ops that take and give the same, in pairs.
LIKE: Final = (
    *(("Greater", "GreaterEqual"), ("Less", "LessEqual"), ("Equal", "NotEqual"), ("Greater", "Less")),
    *(("AddV2", "Sub"), ("Add", "Sub"), ("AddV2", "Mul"), ("Maximum", "Minimum"), ("Mul", "RealDiv")),
    *(("Any", "All"), ("Max", "Min"), ("Sum", "Mean"), ("ArgMax", "ArgMin"), ("Sum", "Max")),
    *(("LogicalAnd", "LogicalOr"), ("Sigmoid", "Tanh"), ("Relu", "Relu6"), ("Relu", "Elu")),
    *(("Floor", "Ceil"), ("Sqrt", "Rsqrt"), ("FloorDiv", "FloorMod"), ("ZerosLike", "OnesLike")),
    *(("Square", "Abs"), ("SquaredDifference", "Mul"), ("Pow", "Mul")),
)
#: Attributes that say how a node is stored or placed, not what it computes.
_ASIDE: Final = ("T", "N", "num", "dtype", "out_type", "output_type", "shape", "parallel_iterations", "index")
_PREFIX: Final = "variable "


@dataclass(frozen=True)
class Body:
    """The nodes of a graph or a function, and the dtype and shape of each input by its words."""

    name: str
    nodes: Sequence[Any]
    types: Mapping[str, tuple[Any, Any]]

    def place(self, node: Any) -> str:
        return f"{self.name}/{node.name}" if self.name else str(node.name)

    @cached_property
    def readers(self) -> Mapping[str, Sequence[str]]:
        """The names of the nodes that read each node."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            for word in node.input:
                found.setdefault(_node_of(word), []).append(node.name)
        return found

    @cached_property
    def alike(self) -> Mapping[tuple[Any, Any], Sequence[str]]:
        """The inputs of each dtype and shape, but handles and strings."""
        found: dict[tuple[Any, Any], list[str]] = {}
        for word, (dtype, shape) in sorted(self.types.items(), key=lambda item: item[0]):
            if dtype not in (tf.resource, tf.variant, tf.string):
                found.setdefault((dtype, shape), []).append(word)
        return found


def list_corruptions(path: Path, outputs: Collection[str], seed: int) -> Iterator[Corruption]:
    """All corruptions of what `outputs`, and the signatures of a SavedModel, need."""
    container, graph = _open(path)
    needed = _needed(container, graph, outputs)
    bodies = [body for body in _bodies(graph) if body.name in needed]
    constants: dict[str, Array] = {}
    for body in bodies:
        for node in body.nodes:
            if node.op == "Const" and body.place(node) in needed:
                constants[body.place(node)] = tf.make_ndarray(node.attr["value"].tensor)
    constants |= {f"{_PREFIX}{name}": value for name, value in _variables(path).items()}
    yield from of_constants(constants, store, seed)
    yield from _of_captures(container, needed)
    for body in bodies:
        for node in body.nodes:
            if body.place(node) in needed:
                yield from _of_node(body, node, constants)


def store(path: Path, changed: Mapping[str, Array]) -> None:
    """Write new values of constants and variables."""
    variables = {name: value for name, value in changed.items() if name.startswith(_PREFIX)}
    if variables:
        _write_variables(path, {name[len(_PREFIX) :]: value for name, value in variables.items()})

    def change(place: str, node: Any) -> None:
        if place in changed:
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(changed[place]))

    if len(variables) < len(changed):
        _edit(path, change)


def _of_node(body: Body, node: Any, constants: Mapping[str, Array]) -> Iterator[Corruption]:
    place = body.place(node)
    for pair in LIKE:
        if node.op in pair:
            other = pair[1 - pair.index(node.op)]
            yield Corruption("op", f"{place}: {node.op} to {other}", _at(place, _set_op(other)))
    for name in sorted(node.attr):
        for what, change in _attribute_changes(name, node.attr[name]):
            yield Corruption("attribute", f"{place}: {name} {what}", _at(place, change))
    if "then_branch" in node.attr:
        yield Corruption("attribute", f"{place}: branches exchanged", _at(place, _exchange_branches))
    later = _dependents(body, node.name)
    for number, word in enumerate(node.input):
        for other in body.alike.get(body.types.get(word, ()), ()):
            if other == word or _node_of(other) in later:
                continue
            yield Corruption(
                "wire", f"{place}: input {number} to {other}", _at(place, _set_input(number, other))
            )
    if node.op == "StridedSlice":
        yield from _other_steps(body, node, constants)


def _set_op(op: str) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        node.op = op

    return change


def _set_input(number: int, word: str) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        node.input[number] = word

    return change


def _exchange_branches(node: Any) -> None:
    then = v1.AttrValue.FromString(node.attr["then_branch"].SerializeToString())
    node.attr["then_branch"].CopyFrom(node.attr["else_branch"])
    node.attr["else_branch"].CopyFrom(then)


def _attribute_changes(name: str, value: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Other values of an attribute."""
    kind = value.WhichOneof("value")
    if name.startswith("_") or name in _ASIDE or name.startswith("T"):
        return
    if kind == "b":
        yield f"to {not value.b}", _set_attribute(name, lambda one: setattr(one, "b", not one.b))
    elif kind in ("i", "f"):
        new = moved_number(name, getattr(value, kind))
        yield f"to {new}", _set_attribute(name, lambda one: setattr(one, kind, new))
    elif kind == "s" and value.s in (b"SAME", b"VALID"):
        other = b"VALID" if value.s == b"SAME" else b"SAME"
        yield f"to {other.decode()}", _set_attribute(name, lambda one: setattr(one, "s", other))
    elif kind == "list" and value.list.i:

        def move(one: Any) -> None:
            one.list.i[-1] += 1

        yield f"to {value.list.i[-1] + 1} at its end", _set_attribute(name, move)


def _set_attribute(name: str, change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda node: change(node.attr[name])


def _dependents(body: Body, name: str) -> set[str]:
    """A node and all that depend on it."""
    found, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += body.readers.get(one, [])
    return found


def _of_captures(container: Any, needed: Collection[str]) -> Iterator[Corruption]:
    """Exchanges of two variables of one shape that a function of a TensorFlow 2 SavedModel captures."""
    for name, captures, objects in _captures(container):
        if name not in needed:
            continue
        variables = {
            k: (objects[capture].variable.dtype, objects[capture].variable.shape.SerializeToString())
            for k, capture in enumerate(captures)
            if objects[capture].HasField("variable")
        }
        for one, other in combinations(variables, 2):
            if variables[one] == variables[other] and captures[one] != captures[other]:
                place = f"{name}: captures {one} and {other}"
                yield Corruption("wire", place, partial(_exchange_captures, name=name, pair=(one, other)))


def _captures(container: Any) -> Iterator[tuple[str, Any, Any]]:
    """Functions by name, the numbers of the objects that each captures, and all objects."""
    if isinstance(container, saved_model_pb2.SavedModel):
        objects = container.meta_graphs[0].object_graph_def
        for name, function in sorted(objects.concrete_functions.items()):
            yield name, function.bound_inputs, objects.nodes


def _exchange_captures(path: Path, *, name: str, pair: tuple[int, int]) -> None:
    container, _ = _open(path)
    captures = next(captures for found, captures, _ in _captures(container) if found == name)
    captures[pair[0]], captures[pair[1]] = captures[pair[1]], captures[pair[0]]
    _file(path).write_bytes(container.SerializeToString())


def _other_steps(body: Body, node: Any, constants: Mapping[str, Array]) -> Iterator[Corruption]:
    """The next element of an axis of which a slice takes one."""
    begin, end = (body.place(_named(body, word)) for word in node.input[1:3] if _named(body, word))
    if begin not in constants or end not in constants:
        return
    for axis in range(constants[begin].size):
        if node.attr["shrink_axis_mask"].i >> axis & 1:
            first = int(constants[begin][axis])
            changed = {name: constants[name].copy() for name in (begin, end)}
            changed[begin][axis] = shifted_step(first)
            changed[end][axis] += shifted_step(first) - first
            yield Corruption(
                "step", f"{body.place(node)}: axis {axis}", lambda path, new=changed: store(path, new)
            )
            return


def _named(body: Body, word: str) -> Any:
    return next(node for node in body.nodes if node.name == _node_of(word))


def _node_of(word: str) -> str:
    return word.lstrip("^").partition(":")[0]


def _at(place: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _edit(path, lambda found, node: change(node) if found == place else None)

    return write


def _bodies(graph: Any) -> Iterator[Body]:
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
    types = {}
    for word in {word for node in graph.node for word in node.input if not word.startswith("^")}:
        tensor = imported.get_tensor_by_name(word if ":" in word else f"{word}:0")
        types[word] = _type_of(tensor)
    yield Body("", graph.node, types)
    with imported.as_default():
        for function in graph.library.function:
            yield Body(function.signature.name, function.node_def, _types_in(function))


def _types_in(function: Any) -> dict[str, tuple[Any, Any]]:
    try:
        _, flat = function_def_to_graph.function_def_to_graph_def(function)
        made = function_def_to_graph.function_def_to_graph(function)
    except (ValueError, KeyError):  # a function of no signature, whose attributes its caller gives
        return {}
    words = {word for node in function.node_def for word in node.input if not word.startswith("^")}
    return {word: _type_of(made.get_tensor_by_name(flat[word])) for word in words if word in flat}


def _type_of(tensor: Any) -> tuple[Any, Any]:
    """The dtype and shape of a tensor; of one of no known rank, the op that makes it and its like."""
    is_known = tensor.shape.rank is not None
    return tensor.dtype.base_dtype, tuple(tensor.shape.as_list()) if is_known else tensor.op.name


def _needed(container: Any, graph: Any, outputs: Collection[str]) -> set[str]:
    """The places of nodes that outputs, tables and variables need, and of functions; "" is the graph."""
    ends = {_node_of(name) for name in outputs}
    for meta in getattr(container, "meta_graphs", [container]):
        if isinstance(meta, meta_graph_pb2.MetaGraphDef):
            ends |= {
                _node_of(info.name)
                for signature in meta.signature_def.values()
                for info in signature.outputs.values()
            }
            ends |= {meta.saver_def.restore_op_name}
    ends |= {node.name for node in graph.node if node.op.startswith(("LookupTableImport", "InitializeTable"))}
    functions = {function.signature.name: function for function in graph.library.function}
    by_name = {node.name: node for node in graph.node}
    found, waiting = {""}, [*ends]
    while waiting:
        node = by_name.get(waiting.pop())
        if node is None or node.name in found:
            continue
        found.add(node.name)
        waiting += [_node_of(word) for word in node.input]
    called = [name for place in found - {""} for name in _called(by_name[place])]
    while called:
        name = called.pop()
        if name in functions and name not in found and "traced_" not in name:
            found.add(name)
            for node in functions[name].node_def:
                found.add(f"{name}/{node.name}")
                called += _called(node)
    return found - {"cudnn_convert"}


def _called(node: Any) -> list[str]:
    listed = [one.name for value in node.attr.values() for one in (value.func, *value.list.func) if one.name]
    return [*listed, node.op]


def _open(path: Path) -> tuple[Any, Any]:
    """The message of an artifact's file, and its graph inside."""
    file = _file(path)
    if file.name == "saved_model.pb":
        container = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        return container, container.meta_graphs[0].graph_def
    if file.suffix == ".meta":
        container = meta_graph_pb2.MetaGraphDef.FromString(file.read_bytes())
        return container, container.graph_def
    container = v1.GraphDef.FromString(file.read_bytes())
    return container, container


def _file(path: Path) -> Path:
    names = ("saved_model.pb", "model.ckpt.meta", "frozen_graph.pb")
    return next((path / name for name in names if (path / name).is_file()), path)


def _edit(path: Path, change: Callable[[str, Any], None]) -> None:
    """Change nodes of an artifact's graph, each by its place."""
    container, graph = _open(path)
    for node in graph.node:
        change(node.name, node)
    for function in graph.library.function:
        for node in function.node_def:
            change(f"{function.signature.name}/{node.name}", node)
    _file(path).write_bytes(container.SerializeToString())


def _prefix(path: Path) -> Path | None:
    prefixes = (path / "variables" / "variables", path / "model.ckpt")
    return next((prefix for prefix in prefixes if Path(f"{prefix}.index").is_file()), None)


def _variables(path: Path) -> dict[str, Array]:
    prefix = _prefix(path)
    if prefix is None:
        return {}
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def _write_variables(path: Path, changed: Mapping[str, Array]) -> None:
    prefix, values = _prefix(path), _variables(path) | dict(changed)
    assert prefix is not None
    for file in prefix.parent.glob(f"{prefix.name}.data*"):
        file.unlink()
    names = sorted(values)
    tensors = [tf.constant(values[name]) for name in names]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )
