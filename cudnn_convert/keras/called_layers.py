"""Describes the layer calls behind a traced graph, by the names of tensors."""

from collections.abc import Iterator, Sequence
from typing import Final

from cudnn_convert.model import LayerCall
from cudnn_convert.private.layer_calls import NotedCall

#: Where layers of Keras' own are; `private` has some as older versions computed.
_OWN: Final = ("tf_keras.", "cudnn_convert.private.")


def describe(calls: Sequence[NotedCall], differences: frozenset[str]) -> Iterator[LayerCall]:
    """Yield each call of a layer of Keras' own, models excepted.

    `differences` are the names of what the file's Keras computes otherwise.
    """
    for call in calls:
        layer = call.layer
        if hasattr(layer, "layers") or not type(layer).__module__.startswith(_OWN):
            continue
        inputs, masks, outputs, output_masks = (
            tuple("" if tensor is None else tensor.name for tensor in tensors)
            for tensors in (call.inputs, call.masks, call.outputs, call.output_masks)
        )
        weights = tuple(weight.handle.op.name for weight in layer.weights)
        yield LayerCall(
            layer.name,
            type(layer).__name__,
            layer.get_config(),
            weights,
            inputs,
            tuple(None if each.shape.rank is None else tuple(each.shape) for each in call.inputs),
            masks,
            outputs,
            output_masks,
            differences,
            call.wrapper,
        )
