"""Tensors with a second layout: the order of axes, and the nodes for the layout.

An order lists the axes of a tensor as they lie in its other layout: `(0, 2, 3, 1)` of `[N, C, H, W]` is
`[N, H, W, C]`. Constants that a loop's nodes read stand in the loop, by an edge from what they are read with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import NodeDef, claim, reference, split
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private

Order = tuple[int, ...]
#: What the name of a node gets that computes in another layout.
SUFFIX: Final = "/channels_last"
#: Attributes about a node's old outputs and place.
_NOTES: Final = ("_output_shapes", "_class")
_CONSTANTS: Final = ops.VARIABLES | {"Const", "ReadVariableOp"}


@dataclass(frozen=True, slots=True)
class TransposedTensor:
    """A tensor with the values of another, the axes in `order`."""

    name: str
    order: Order


@dataclass(frozen=True, slots=True)
class RewrittenNode:
    """A node in the place of another, and the order of each output.

    The order is None for an output that is as it was.
    """

    node: NodeDef
    orders: tuple[Order | None, ...]


def order_of(rank: int) -> Order:
    """Return the channels-last order of the axes of a tensor with channels first."""
    return (0, *range(2, rank), 1) if rank > 1 else (*range(rank),)


def invert(order: Order) -> Order:
    """Return the inverse of an order."""
    return tuple(int(k) for k in np.argsort(order))


def element_type(node: NodeDef) -> tf.DType:
    """Return the type of a node's elements, the default where unstated."""
    key = "SrcT" if node.op == "Cast" else "T"
    if key in node.attr:
        return tf.as_dtype(node.attr[key].type)
    known = (each.default_value.type for each in tf_private.find_op(node.op).attr if each.name == key)
    return tf.as_dtype(next(known, 0) or tf.float32)


class TransposedTensors:
    """The tensors of a graph with a second layout, by name, and the added nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.index = graph, graph.index
        self.known: dict[str, TransposedTensor] = {}
        self.taken = {node.name for node in graph.node}
        #: What is added, by the node for which it is.
        self.added: dict[str, list[NodeDef]] = {}
        self.owner = ""

    @cached_property
    def _around(self) -> dict[str, tuple[str, ...]]:
        return control_flow.frames(self.index)

    def add(self, suffix: str, op: str, inputs: Iterable[str], **attributes: Any) -> str:
        """Add a node beside the rewritten node, and return the name."""
        name = claim(f"{self.owner}/{suffix}", self.taken)
        node = node_defs.node(name, op, map(reference, inputs), **attributes)
        self.added.setdefault(self.owner, []).append(node)
        return name

    def constant(self, suffix: str, value: Array) -> str:
        """Add a constant for the rewritten node, and return the name."""
        name = claim(f"{self.owner}/{suffix}", self.taken)
        inputs = self.index.nodes[self.owner].input
        wait = [f"^{split(inputs[0])[0]}"] if self._around.get(self.owner) and inputs else []
        self.added.setdefault(self.owner, []).append(node_defs.constant(name, value, control=wait))
        return name

    def shape(self, name: str) -> list[int | None] | None:
        """Return the static shape of a tensor of the graph.

        Returns None where its rank is not known.
        """
        try:
            shape = self.graph.shapes.get_tensor_by_name(name).shape
        except (InvalidModelError, KeyError, ValueError):
            return None
        return None if shape.rank is None else list(shape)

    def value(self, name: str) -> Array | None:
        """Return the value of a small constant.

        Returns None for any other tensor.
        """
        return constant_folding.fold_constant(self.index, name)

    def transpose(self, name: str, order: Order, dtype: tf.DType, suffix: str = "last") -> str:
        """Add the transposition of a tensor."""
        perm = self.constant(f"{suffix}/perm", np.array(order, np.int32))
        return self.add(suffix, "Transpose", [name, perm], T=dtype, Tperm=tf.int32)

    def lay(self, name: str, order: Order, dtype: tf.DType) -> str:
        """Return a tensor in an order, transposed at most once."""
        if order == tuple(sorted(order)):
            return name
        known = self.known.get(name)
        if known is None:
            known = TransposedTensor(f"{self.transpose(name, order, dtype, 'channels_last/input')}:0", order)
            self.known[name] = known
        if known.order == order:
            return known.name
        between = tuple(known.order.index(axis) for axis in order)
        return self.transpose(known.name, between, dtype, "channels_last/input")

    def vector(self, name: str, order: Sequence[int], suffix: str = "sizes") -> str:
        """Return the rows of a tensor with a row per axis, in an order."""
        value = self.value(name)
        if value is not None and len(value) == len(order):
            return self.constant(f"channels_last/{suffix}", value[[*order]])
        at = self.constant(f"channels_last/{suffix}/order", np.array(order, np.int32))
        axis = self.constant(f"channels_last/{suffix}/axis", np.array(0, np.int32))
        maker = self.graph.shapes.get_tensor_by_name(name)
        kinds = {"Tparams": maker.dtype, "Tindices": tf.int32, "Taxis": tf.int32}
        return self.add(f"channels_last/{suffix}", "GatherV2", [name, at, axis], **kinds)

    def operand(self, name: str, order: Order, dtype: tf.DType) -> str | None:
        """Return an operand of an elementwise op, for use beside tensors in an order.

        Returns None where it would cost more. A tensor of fewer axes belongs to the last ones.
        """
        known = self.known.get(name)
        if known is not None and known.order == order:
            return known.name
        shape, rank = self.shape(name), len(order)
        if shape is None or len(shape) > rank or any(size is None for size in shape):
            return name if shape == [] else None
        sizes = [1] * (rank - len(shape)) + [int(size or 0) for size in shape]
        wide = [axis for axis in order if sizes[axis] != 1]
        if not wide:
            return name
        if len(wide) > 1 and self.index.maker(name, ops.IDENTITIES).op not in _CONSTANTS:
            return None
        if wide == sorted(wide):
            return self._reshape(name, [sizes[axis] for axis in order], dtype)
        whole = name if len(shape) == rank else self._reshape(name, sizes, dtype)
        return self.transpose(whole, order, dtype, "channels_last/operand")

    def _reshape(self, name: str, sizes: Sequence[int], dtype: tf.DType) -> str:
        shape = self.constant("channels_last/shape", np.array(sizes, np.int32))
        return self.add("channels_last/operand", "Reshape", [name, shape], T=dtype, Tshape=tf.int32)

    def copy(self, node: NodeDef, inputs: Sequence[str]) -> NodeDef:
        """Copy a node for another layout, with the original's control inputs."""
        waits = [name for name in node.input if name.startswith("^")]
        name = claim(f"{node.name}{SUFFIX}", self.taken)
        copied = node_defs.copy_node(node, name=name, inputs=[*map(reference, inputs), *waits])
        for key in _NOTES:
            copied.attr.pop(key, None)
        return copied

    def orders(self, names: Collection[str]) -> set[Order]:
        """Return the known orders of some tensors."""
        return {self.known[name].order for name in names if name in self.known}


def permute_attribute(node: NodeDef, key: str, order: Sequence[int]) -> None:
    """Put the numbers of an attribute, given per axis, into an order, in place."""
    values = [*node.attr[key].list.i] if key in node.attr else []
    if len(values) == len(order):
        node.attr[key].list.i[:] = [values[axis] for axis in order]
    elif len(values) == 2 * len(order):  # pairs, before and behind
        node.attr[key].list.i[:] = [values[2 * axis + side] for axis in order for side in (0, 1)]
