"""A Keras model whose recurrent layers give what is given: what they take is noted.

So is what each other layer with a matrix gives, which is to be among the source's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from cudnn_convert.model import Array, Mode, Recurrence
from cudnn_convert.verification.computed import Call, nearest
from cudnn_convert.verification.pieces.glue import Run, Seen
from cudnn_convert.verification.pieces.keras import layers_of
from cudnn_convert.verification.pieces.piece import Artifact
from cudnn_convert.verification.run import Layers, Opened


def runner(artifact: Artifact) -> Run:
    """Runs the glue of a model in which each recurrence is a layer that keeps no state."""
    plan = artifact.plan

    def run(feed: Mapping[str, Array], calls: Sequence[Call]) -> Seen:
        assert isinstance(artifact.answer, Opened)
        ((_, model),) = artifact.answer.runners
        assert isinstance(model, Layers)
        layers, reasons = layers_of(artifact, plan.recurrences)
        if reasons:
            raise LookupError(next(iter(reasons.values())))
        if any(getattr(layer, "stateful", False) for _, layer in layers.values()):
            raise LookupError("a layer keeps its state between calls")
        keys = {tensor: key for key, tensor in plan.signature.inputs.items()}
        fed = {keys[tensor]: value for tensor, value in feed.items()}
        given = _Given(is_old=artifact.form == "h5")
        products: dict[str, Array] = {}
        hidden: list[str] = []
        with ExitStack() as stack:
            stack.enter_context(context.eager_mode())  # the judge's own graph stands open
            for name, layer in dict(layers.values()).items():
                own = [one for one in plan.recurrences if layers[one.node][0] == name]
                given.calls[name] = [call for call in calls if call.node in {one.node for one in own}]
                stack.enter_context(_giving(layer, given.of(name, layer, own[0])))
            for name, layer in _weighing(model.model):
                if hasattr(layer, "cell"):
                    hidden += [] if name in given.calls else [f"layer {name}"]
                else:
                    stack.enter_context(_giving(layer, _noting(layer, f"layer {name}", products)))
            try:
                outputs = model(fed)
            except Exception as cause:
                if given.reasons:  # Keras makes another exception of one in a layer
                    raise LookupError(*given.reasons) from cause
                raise
        return Seen(outputs, given.entered, products, hidden=hidden)

    return run


class _Given:
    """What layers are called with, `entered`, against what the source's recurrences took.

    `calls` are those by the name of the layer; `reasons` say why a call fits none of them. `is_old`: the
    layers are tf_keras's.
    """

    def __init__(self, *, is_old: bool) -> None:
        self.is_old = is_old
        self.calls: dict[str, list[Call]] = {}
        self.entered: list[tuple[str, Array, Array]] = []
        self.reasons: list[str] = []

    def of(self, name: str, layer: Any, one: Recurrence) -> Callable[..., Any]:
        """What a layer is to call: it answers as the source's recurrence did."""

        def call(x: Any, *_: Any, initial_state: Any = None, mask: Any = None, **__: Any) -> Any:
            try:
                if mask is not None:
                    raise LookupError("a layer has a mask")
                answer = self._see(name, layer, one, x, initial_state)
            except LookupError as reason:
                self.reasons.append(str(reason.args[0]))
                raise
            y, *states = (tf.constant(value, tf.as_dtype(layer.compute_dtype)) for value in answer)
            last = y if layer.return_sequences else y[:, -1]
            answers = [last, *states]
            # Keras 3 makes tuples, and adds them to tuples.
            return (answers if self.is_old else tuple(answers)) if layer.return_state else last

        return call

    def _see(self, name: str, layer: Any, one: Recurrence, x: Any, start: Any) -> list[Array]:
        """Notes what enters; gives `y [batch, time, units]` and the states `[batch, units]`."""
        taken = np.asarray(x).swapaxes(0, 1)
        taken = taken[::-1] if layer.go_backwards else taken
        count = 2 if one.sizes.mode is Mode.LSTM else 1
        zeros = np.zeros((taken.shape[1], one.sizes.units), taken.dtype)
        starts = [zeros] * count if start is None else [*map(np.asarray, tf.nest.flatten(start))]
        h, *c = (value[None] for value in starts)
        call = nearest(self.calls[name], taken, h, c[0] if c else None)
        self.entered.append((f"input of {name}", taken, call.x))
        expected = [call.h[0], call.c[0]][:count]
        for what, found, wanted in zip("hc", starts, expected, strict=False):
            self.entered.append((f"initial {what} of {name}", found, wanted))
        y, *ends = (value if one.time_major else value.swapaxes(0, 1) for value in call.gave[: 1 + count])
        return [y.swapaxes(0, 1), *(value[0] for value in ends)]


@contextmanager
def _giving(layer: Any, call: Callable[..., Any]) -> Iterator[None]:
    """The layer with another `call`; afterwards it is as it was."""
    before = layer.call
    try:
        layer.call = call
        yield
    finally:
        layer.call = before


def _weighing(layer: Any, around: str = "") -> Iterator[tuple[str, Any]]:
    """The layers that have matrices and no layers inside them, and recurrent ones, by name."""
    names = ("forward_layer", "backward_layer", "layer")
    inner = [one for name in names if (one := getattr(layer, name, None)) is not None]
    inner = inner or [*getattr(layer, "layers", ())]
    if inner and not hasattr(layer, "cell"):
        for one in inner:
            yield from _weighing(one, f"{around}{layer.name}/")
    elif any(len(one.shape) > 1 for one in layer.weights):
        yield f"{around}{layer.name}", layer


def _noting(layer: Any, name: str, products: dict[str, Array]) -> Callable[..., Any]:
    """What a layer calls, with its value kept: the values of all its calls, one after another."""
    before = layer.call

    def call(*given: Any, **named: Any) -> Any:
        answer = before(*given, **named)
        values = [np.asarray(value) for value in tf.nest.flatten(answer)]
        products.update({f"{name}, call {len(products)}": value for value in values})
        return answer

    return call
