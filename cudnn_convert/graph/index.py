"""Lookups in a graph: tensor names, producers, consumers, ancestors.

NodeDefs stay the one in-memory form of a graph; an `Index` only points at them. A tensor is named
`op:k` throughout, a control input `^op`.
Source: tensorflow v2.21.0 core/framework/node_def.proto (input forms).

TensorFlow ships no types for its protos: the Protocols here have the fields that this package uses.
Source: tensorflow v2.21.0 core/framework/graph.proto, node_def.proto, attr_value.proto, function.proto.
"""

import re
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from typing import Any, Final, Protocol, TypeVar

from cudnn_convert.errors import InvalidModelError


class Message(Protocol):
    """The methods common to all protos."""

    def CopyFrom(self, other: Any) -> None: ...  # noqa: N802 - protobuf's own names
    def HasField(self, field_name: str) -> bool: ...  # noqa: N802
    def ClearField(self, field_name: str) -> None: ...  # noqa: N802
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802


class AttrValue(Message, Protocol):
    """The value of an attribute, with a single field set.

    `type` is a number of types.proto.
    """

    type: int
    b: bool
    i: int
    f: float
    s: bytes
    shape: Any
    tensor: Any
    list: Any
    func: Any


class NodeDef(Message, Protocol):
    """A node; `input` lists tensors as `op` or `op:k`, then control inputs as `^op`."""

    name: str
    op: str
    device: str

    @property
    def input(self) -> MutableSequence[str]: ...
    @property
    def attr(self) -> MutableMapping[str, AttrValue]: ...


class FunctionDef(Message, Protocol):
    """A function of a library.

    Tensors in it are named `node:output:k`, or as an argument.
    """

    signature: Any

    @property
    def node_def(self) -> MutableSequence[NodeDef]: ...
    @property
    def ret(self) -> MutableMapping[str, str]: ...
    @property
    def attr(self) -> MutableMapping[str, AttrValue]: ...


class FunctionDefLibrary(Message, Protocol):
    """The functions called by name from nodes."""

    gradient: Any

    @property
    def function(self) -> MutableSequence[FunctionDef]: ...


class AnyGraph(Protocol):
    """A graph for reading only: a GraphDef, or a `graph.Graph`."""

    @property
    def node(self) -> Sequence[NodeDef]: ...
    @property
    def library(self) -> FunctionDefLibrary: ...
    @property
    def versions(self) -> Any: ...


class GraphDef(Message, AnyGraph, Protocol):
    """A graph in TensorFlow's own form, open to changes."""

    @property
    def node(self) -> MutableSequence[NodeDef]: ...


#: Outputs 0-2 of a forward op are output, output_h, output_c.
INPUT, INPUT_H, INPUT_C, PARAMS, LENGTHS = range(5)
OUTPUTS: Final = 3
_Item = TypeVar("_Item")
#: More digits than the number of an output has.
_DIGITS: Final = 10
#: Source: tensorflow v2.21.0 python/framework/ops.py _VALID_SCOPE_NAME_REGEX, core/graph/tensor_id.cc.
_OP_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")


def split(reference: str) -> tuple[str, int]:
    """Return `("op", k)` of an input reference `op`, `op:k`, or `^op` (k is then -1)."""
    if reference.startswith("^"):
        return reference[1:], -1
    op, _, k = reference.rpartition(":")
    return (op, int(k)) if op and k.isdecimal() and len(k) < _DIGITS else (reference, 0)


def tensor(reference: str) -> str:
    """Return the full name `op:k` of an input reference."""
    op, k = split(reference)
    return f"{op}:{k}"


def reference(name: str) -> str:
    """Return the tensor `op:k` as written in a NodeDef, the index 0 left out."""
    return name.removesuffix(":0")


def rename_reference(name: str, renamed: Mapping[str, str]) -> str:
    """Return an input reference with the op renamed by `renamed`, if listed there."""
    op, k = split(name)
    if op not in renamed:
        return name
    return f"^{renamed[op]}" if k < 0 else reference(f"{renamed[op]}:{k}")


class _Nodes(dict[str, NodeDef]):
    """Nodes by name; the lookup of a missing name raises InvalidModelError."""

    def __missing__(self, name: str) -> NodeDef:
        raise InvalidModelError(f"node {name}", expected="a node of the graph", found="no node of this name")


class Index:
    """Lookups in a graph, built once and immutable: nodes by name, consumers by op."""

    def __init__(self, graph: AnyGraph) -> None:
        self.nodes: dict[str, NodeDef] = _Nodes((node.name, node) for node in graph.node)
        self._consumers: dict[str, list[tuple[NodeDef, int, int]]] = defaultdict(list)
        for node in graph.node:
            for position, name in enumerate(node.input):
                op, k = split(name)
                self._consumers[op].append((node, position, k))

    def data_inputs(self, node: NodeDef) -> list[str]:
        """Return the tensors `op:k` read by a node, in order."""
        return [tensor(name) for name in node.input if not name.startswith("^")]

    def sort(self) -> list[NodeDef]:
        """Return the nodes in data order, producers first; nodes of loops in any order."""

        def above(name: str) -> list[str]:
            return [split(read)[0] for read in self.data_inputs(self.nodes[name])]

        return [self.nodes[name] for name in walk_behind(self.nodes, above)]

    def consumers(self, op: str, k: int | None = None) -> Iterator[NodeDef]:
        """Return the nodes reading output `k` of `op`, by default any output."""
        return (node for node, _, output in self._consumers[op] if output == k or (k is None and output >= 0))

    def outputs_read(self, op: str) -> set[int]:
        """Return the numbers of the outputs of `op` read by any node."""
        return {output for _, _, output in self._consumers[op] if output >= 0}

    def is_read(self, op: str) -> bool:
        """Return True if any node reads data of `op`."""
        return any(self.consumers(op))

    def readers(self, op: str) -> Iterator[NodeDef]:
        """Return the nodes reading data of `op` or waiting for `op`."""
        return (node for node, _, _ in self._consumers[op])

    def ancestors(self, ops: Iterable[str], *, control: bool = True, stop: Collection[str] = ()) -> set[str]:
        """Return the names of `ops` and of all ancestors among the graph's nodes.

        Inputs of a `stop` op are not followed; control inputs are followed if `control`.
        """

        def above(op: str) -> list[str]:
            references = () if op in stop else map(split, self.nodes[op].input)
            return [source for source, k in references if source in self.nodes and (control or k >= 0)]

        return set(walk((op for op in ops if op in self.nodes), above))

    def descendants(self, ops: Iterable[str], *, control: bool = False) -> set[str]:
        """Return the names of `ops` and of all descendants, by control edges if `control`."""
        readers = self.readers if control else self.consumers
        return set(walk(ops, lambda op: (node.name for node in readers(op))))

    def maker(self, name: str, carriers: Collection[str] = ()) -> NodeDef:
        """Return the producer of a tensor, skipping ops in `carriers` as `origin` does."""
        return self.nodes[split(self.origin(name, carriers))[0]]

    def origin(self, name: str, carriers: Collection[str]) -> str:
        """Follow tensor `name` back through ops in `carriers`, along the first inputs.

        An IdentityN hands on the input of the output that is read. In a circle of carriers, a tensor of any
        of them.
        """
        seen: set[str] = set()
        while (node := self.nodes[split(name)[0]]).op in carriers and node.name not in seen:
            seen.add(node.name)
            name = tensor(node.input[split(name)[1] if node.op == "IdentityN" else 0])
        return name


def walk(start: Iterable[_Item], onward: Callable[[_Item], Iterable[_Item]]) -> Iterator[_Item]:
    """Yield all items reachable from `start`, itself included, once; `onward` gives successors."""
    seen: set[_Item] = set()
    todo = [*start]
    while todo:
        item = todo.pop()
        if item not in seen:
            seen.add(item)
            yield item
            todo += onward(item)


def walk_behind(start: Iterable[_Item], above: Callable[[_Item], Iterable[_Item]]) -> Iterator[_Item]:
    """Yield the items of `walk`, each after the items above, as far as loops allow.

    `above` gives the items above an item.
    """
    seen: set[_Item] = set()
    todo = [(item, False) for item in reversed([*start])]
    while todo:
        item, is_ready = todo.pop()
        if is_ready:
            yield item
        elif item not in seen:
            seen.add(item)
            todo.append((item, True))
            todo += [(other, False) for other in above(item)]


def library(graph: AnyGraph) -> dict[str, FunctionDef]:
    """Return the functions of a graph by name."""
    return {function.signature.name: function for function in graph.library.function}


def all_nodes(graph: AnyGraph) -> Iterator[NodeDef]:
    """Yield the nodes of a graph, then the nodes of the functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def callees(node: NodeDef) -> list[str]:
    """List the names callable by a node: the op, and the functions in attributes."""
    return [node.op, *functions_in(node.attr.values())]


def functions_in(attributes: Iterable[AttrValue]) -> Iterator[str]:
    """Yield the function names in attributes, nested attributes of functions included."""
    for attribute in attributes:
        for function in [attribute.func] if attribute.HasField("func") else attribute.list.func:
            yield function.name
            yield from functions_in(function.attr.values())


def reachable_functions(functions: Mapping[str, FunctionDef], names: Iterable[str]) -> set[str]:
    """Return the names in `functions` reachable from `names` by calls."""

    def calls(name: str) -> list[str]:
        nodes = functions[name].node_def if name in functions else ()
        return [callee for node in nodes for callee in callees(node)]

    return functions.keys() & walk(names, calls)


def is_op_name(name: str) -> bool:
    """Return True if TensorFlow accepts `name` as an op's name and as a scope."""
    return _OP_NAME.fullmatch(name) is not None


def unique(name: str, taken: Collection[str]) -> str:
    """Return `name`, or the first free name of `name_1`, `name_2`, ..."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


def claim(name: str, taken: set[str]) -> str:
    """Return a name chosen by `unique`, and add the name to `taken`."""
    claimed = unique(name, taken)
    taken.add(claimed)
    return claimed
