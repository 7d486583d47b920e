"""The recurrent layers of a Keras model, each called by itself.

A layer is found by its name, which the artifact keeps: the parameters of a recurrence lie in the scope of
the layer that it was, or of the `TimeDistributed` around that, and below the scopes of what is around it. It
is called with its own weights on inputs from first to last: turning them round, for a layer that goes
backward, is not the recurrence's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Mode, Recurrence
from cudnn_convert.verification.pieces.inputs import Asked
from cudnn_convert.verification.pieces.piece import Answer, Artifact, Piece, Pieces
from cudnn_convert.verification.run import Layers, Opened

#: What a layer is called with, whatever it was built with.
_CALLED: Final = {
    **{"return_sequences": True, "return_state": True},
    **{"go_backwards": False, "stateful": False, "time_major": False},
}


def pieces(artifact: Artifact, recurrences: Sequence[Recurrence]) -> Pieces:
    """The layer of each recurrence of one layer and one direction."""
    layers, reasons = layers_of(artifact, recurrences)
    found = [
        Piece(one.node, (0,), layers[one.node][0], _asking(layers[one.node][1], one), lengths=False)
        for one in recurrences
        if one.node in layers
    ]
    return Pieces(tuple(found), reasons)


def layers_of(
    artifact: Artifact, recurrences: Sequence[Recurrence]
) -> tuple[dict[str, tuple[str, Any]], dict[str, str]]:
    """By node the layer that computes a recurrence, its names before it, or why none is known."""
    assert isinstance(artifact.answer, Opened)
    models = [one.model for _, one in artifact.answer.runners if isinstance(one, Layers)]
    layers = [found for model in models for found in _recurrent(model, ())]
    found: dict[str, tuple[str, Any]] = {}
    reasons = {}
    for one in recurrences:
        *around, scope = one.shared.split("/")[:-1] or [""]
        named = [(path, layer) for path, layer in layers if path[-1] == scope]
        named = named or [(path, layer) for path, layer in layers if path[-2:-1] == (scope,)]
        if len(named) > 1:  # in several wrappers or models, whose names are scopes too
            named = [(path, layer) for path, layer in named if {*path[:-1]} <= {*around}]
        if len(named) != 1:
            reasons[one.node] = f"expected one layer {scope} in the artifact, found {len(named)}"
            continue
        ((path, layer),) = named
        found[one.node] = ("/".join(path), layer)
    return found, reasons


def _recurrent(layer: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The recurrent layers in a layer, with the names of what is around each and its own."""
    if hasattr(layer, "cell") and hasattr(layer, "return_sequences"):
        yield (*path, layer.name), layer
        return
    inner = [getattr(layer, name, None) for name in ("forward_layer", "backward_layer", "layer")]
    inside = [one for one in inner if one is not None] or list(getattr(layer, "layers", ()))
    for one in inside:
        yield from _recurrent(one, (*path, layer.name))


@contextmanager
def _built_so(layer: Any) -> Iterator[None]:
    """The layer as it is to be called; afterwards it is as it was."""
    before = {name: getattr(layer, name) for name in _CALLED if hasattr(layer, name)}
    try:
        for name in before:
            setattr(layer, name, _CALLED[name])
        yield
    finally:
        for name, value in before.items():
            setattr(layer, name, value)


def _asking(layer: Any, one: Recurrence) -> Callable[[Asked], Answer]:
    def ask(asked: Asked) -> Answer:
        import tensorflow as tf

        x = tf.constant(asked.x.swapaxes(0, 1), one.dtype)
        states = [asked.h[0], asked.c[0]] if one.sizes.mode is Mode.LSTM else [asked.h[0]]
        start = [tf.constant(value, one.dtype) for value in states]
        with _built_so(layer):
            y, *ends = tf.nest.flatten(layer.call(x, initial_state=start, training=False))
        h, *c = (np.asarray(value)[None] for value in ends)
        return np.asarray(y).swapaxes(0, 1), h, c[0] if c else None

    return ask
