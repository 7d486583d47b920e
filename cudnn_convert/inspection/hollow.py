"""A graph without its large constants, whose values nothing but their own recurrence asks for.

A frozen graph has all weights in it, and every step of a plan copies the graph. Here each large constant is a
variable of its name and shape, which stays unread as a checkpoint's do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import build
from cudnn_convert.model import Array, Model, Tensor

#: Smaller ones may be sizes, rates or axes, which a plan looks at.
_LARGE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class _Constant:
    """The value of a Const node."""

    node: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.node.attr["value"].tensor.tensor_shape.dim)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(tf.as_dtype(self.node.attr["dtype"].type).as_numpy_dtype)
        return found

    def read(self) -> Array:
        return np.asarray(tf.make_ndarray(self.node.attr["value"].tensor))


def hollow(model: Model) -> Model:
    """The model with a variable for each large constant of its graph."""
    graph: Any = model.graph
    held: dict[str, Tensor] = {
        node.name: one
        for node in graph.node
        if node.op == "Const" and (one := _Constant(node)).dtype.kind == "f" and math.prod(one.shape) > _LARGE
    }
    if not held:
        return model
    made = (
        build.node(
            node.name,
            "VariableV2",
            node.input,  # what it waits for, all a constant can have
            dtype=tf.as_dtype(held[node.name].dtype),
            shape=tf.TensorShape(held[node.name].shape),
        )
        if node.name in held
        else node
        for node in graph.node
    )
    return replace(model, graph=build.with_nodes(graph, made), variables={**model.variables, **held})
