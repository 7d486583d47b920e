"""Replaces ops without a kernel in TensorFlow Lite Micro, in graphs of fixed sizes.

`fold_shapes`:
    before:  s = Shape(x[1, 40, 3])
    after:   s = Const([1, 40, 3])

`reverse_whole_rows`: TensorFlow Lite Micro has no kernel for ReverseSequence, which Keras writes for layers
that go backward.
    before:  y = ReverseSequence(x[1, 40, 3], [40], seq_dim=1, batch_dim=0)
    after:   y = ReverseV2(x, [1])

`replace_selects`: TensorFlow Lite Micro chooses between floats alone. For 32-bit integers the result stays
exact where a difference overflows, since such sums wrap around. Embeddings of Keras 3 count negative numbers
from the end in this way.
    before:  y = SelectV2(c, a, b)
    after:   y = AddV2(b, Mul(Cast(c), Sub(a, b)))
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.graph import Graph, replace_nodes, rewrite_nodes
from cudnn_convert.graph.index import NodeDef, claim, split, tensor
from cudnn_convert.graph.passes.run import Keep


def fold_shapes(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each Shape of a tensor of known sizes by a constant."""
    changes = {}
    for node in graph.node:
        if node.op != "Shape":
            continue
        shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
        if shape.is_fully_defined():
            kind = graph.shapes.get_tensor_by_name(f"{node.name}:0").dtype.as_numpy_dtype
            wait = [f"^{split(node.input[0])[0]}"]  # which keeps it in a branch or a loop
            changes[node.name] = node_defs.constant(node.name, np.array(shape.as_list(), kind), control=wait)
    return replace_nodes(graph, changes)


def reverse_whole_rows(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each ReverseSequence of rows of full length by a ReverseV2."""

    def reverse(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        if node.op == "ReverseSequence" and are_whole(graph, node.input[1], _size(graph, node)):
            axis = claim(f"{node.name}/axis", taken)
            value = np.array([node.attr["seq_dim"].i], np.int32)
            yield node_defs.constant(axis, value, control=[f"^{split(node.input[0])[0]}"])
            kind = tf.as_dtype(node.attr["T"].type)
            yield node_defs.node(node.name, "ReverseV2", [node.input[0], axis], T=kind, Tidx=tf.int32)

    return rewrite_nodes(graph, reverse)


def _size(graph: Graph, node: NodeDef) -> int | None:
    """Return the size of the axis reversed by a ReverseSequence, if known."""
    shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
    size: int | None = shape[node.attr["seq_dim"].i] if shape.rank is not None else None
    return size


def are_whole(graph: Graph, lengths: str, steps: int | None) -> bool:
    """Return True if the tensor `lengths` is constant, and every row has `steps` steps."""
    known = constant_folding.fold_constant(graph.index, tensor(lengths))
    return known is not None and steps is not None and bool((known == steps).all())


_SELECTS: Final = frozenset({"Select", "SelectV2"})


def replace_selects(graph: Graph, _: Keep = ()) -> Graph:
    """Replace each choice between 32-bit integers by sums and a product."""

    def add(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
        if node.op not in _SELECTS or node.attr["T"].type != tf.int32.as_datatype_enum:
            return
        condition, first, second = graph.index.data_inputs(node)
        shapes = [graph.shapes.get_tensor_by_name(tensor(name)).shape for name in (condition, first)]
        if node.op == "Select" and shapes[0].as_list() != shapes[1].as_list():
            return  # a condition of rows, which does not broadcast as a product does
        cast, difference, product = (claim(f"{node.name}/{name}", taken) for name in ("cast", "sub", "mul"))
        yield node_defs.node(cast, "Cast", [condition], SrcT=tf.bool, DstT=tf.int32)
        yield node_defs.node(difference, "Sub", [first, second], T=tf.int32)
        yield node_defs.node(product, "Mul", [cast, difference], T=tf.int32)
        yield node_defs.node(node.name, "AddV2", [second, product], T=tf.int32)

    return rewrite_nodes(graph, add)
