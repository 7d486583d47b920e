"""Types of TensorFlow's protos, which has none for them: the fields that this package uses.

Source: tensorflow v2.21.0 core/framework/graph.proto, node_def.proto, attr_value.proto, function.proto.
"""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence, Sequence
from typing import Any, Protocol


class Message(Protocol):
    """What every proto has."""

    def CopyFrom(self, other: Any) -> None: ...  # noqa: N802 - protobuf's own names
    def HasField(self, field_name: str) -> bool: ...  # noqa: N802
    def ClearField(self, field_name: str) -> None: ...  # noqa: N802
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802


class AttrValue(Message, Protocol):
    """An attribute; of its fields one is set. `type` is the number of a dtype in types.proto."""

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
    """A node; `input` has tensors as `op` or `op:k`, then what it waits for, as `^op`."""

    name: str
    op: str
    device: str

    @property
    def input(self) -> MutableSequence[str]: ...
    @property
    def attr(self) -> MutableMapping[str, AttrValue]: ...


class FunctionDef(Message, Protocol):
    """A function of a library; tensors in it are `node:output:k`, or the names of its arguments."""

    signature: Any

    @property
    def node_def(self) -> MutableSequence[NodeDef]: ...
    @property
    def ret(self) -> MutableMapping[str, str]: ...
    @property
    def attr(self) -> MutableMapping[str, AttrValue]: ...


class FunctionDefLibrary(Message, Protocol):
    """The functions that nodes call by name."""

    gradient: Any

    @property
    def function(self) -> MutableSequence[FunctionDef]: ...


class AnyGraph(Protocol):
    """A graph that is only read: a GraphDef, or a `node_defs.Graph`."""

    @property
    def node(self) -> Sequence[NodeDef]: ...
    @property
    def library(self) -> FunctionDefLibrary: ...
    @property
    def versions(self) -> Any: ...


class GraphDef(Message, AnyGraph, Protocol):
    """TensorFlow's own form of a graph, which may be changed."""

    @property
    def node(self) -> MutableSequence[NodeDef]: ...
