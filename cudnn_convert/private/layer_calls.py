"""Notes how layers of tf_keras are called while a model is built.

Source: tf_keras v2.21.0 src/engine/base_layer.py and base_layer_v1.py, `__call__`; a tensor's mask is its
attribute `_keras_mask`.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import tensorflow as tf

#: The arguments of a call that are its inputs, in this order.
_INPUTS: Final = ("inputs", "input", "x", "query", "value", "key", "initial_state")


@dataclass(frozen=True, slots=True)
class NotedCall:
    """A layer and the tensors of a call: inputs, outputs, and a mask of each.

    A mask is None where a tensor has none. `wrapper` has the classes of the layers that make the call, from
    the outermost on.
    """

    layer: Any
    inputs: Sequence[Any]
    masks: Sequence[Any]
    outputs: Sequence[Any]
    output_masks: Sequence[Any]
    wrapper: str


@contextmanager
def note_calls() -> Iterator[list[NotedCall]]:
    """Note the calls within the context, in the current graph and outside of loops.

    A call with an argument that is neither an input nor its mask is left out.
    """
    from tf_keras.src.engine import base_layer, base_layer_v1

    calls: list[NotedCall] = []
    around: list[str] = []
    graph = tf.compat.v1.get_default_graph()

    def noting(call: Any) -> Any:
        def call_and_note(self: Any, *given: Any, **named: Any) -> Any:
            wrapper = "/".join(around)
            around.append(type(self).__name__)
            try:
                answer = call(self, *given, **named)
            finally:
                around.pop()
            noted = _note(self, given, named, answer, wrapper)
            if noted is not None and _is_outside(noted, graph):
                calls.append(noted)
            return answer

        return call_and_note

    first, second = base_layer.Layer, base_layer_v1.Layer
    with (
        patch.object(first, "__call__", noting(first.__call__)),
        patch.object(second, "__call__", noting(second.__call__)),
    ):
        yield calls


def _note(
    layer: Any, given: Sequence[Any], named: Mapping[str, Any], answer: Any, wrapper: str
) -> NotedCall | None:
    try:
        arguments = dict(inspect.signature(layer.call).bind(*given, **named).arguments)
    except TypeError:  # what a layer takes from its call is no argument of `call`
        return None
    inputs = [
        tensor
        for name in _INPUTS
        for tensor in tf.nest.flatten(arguments.pop(name, None))
        if tensor is not None
    ]
    masks = tf.nest.flatten(arguments.pop("mask", None))
    arguments = {key: value for key, value in arguments.items() if key != "training"}
    if any(value is not None and value is not False and value != {} for value in arguments.values()):
        return None
    if masks == [None]:
        masks = [getattr(tensor, "_keras_mask", None) for tensor in inputs]
    masks = [*masks, *[None] * len(inputs)][: len(inputs)]
    outputs = tf.nest.flatten(answer)
    return NotedCall(
        layer, inputs, masks, outputs, [getattr(value, "_keras_mask", None) for value in outputs], wrapper
    )


def _is_outside(noted: NotedCall, graph: Any) -> bool:
    """Return True if a call's tensors are all of a graph, outside loops and branches."""
    tensors = [*noted.inputs, *noted.outputs]
    tensors += [mask for mask in (*noted.masks, *noted.output_masks) if mask is not None]
    return bool(noted.inputs) and all(
        isinstance(tensor, tf.Tensor) and tensor.graph is graph and _find_context(tensor.op) is None
        for tensor in tensors
    )


def _find_context(op: Any) -> Any:
    """Return the loop or branch of an op's values.

    None outside of all. What leaves one is outside of it.
    """
    context = op._get_control_flow_context()
    return context.outer_context if op.type == "Exit" and context is not None else context
