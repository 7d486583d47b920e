"""Layers that run on a CPU, recognised by names and shapes of their weights.

Nothing is converted by this: it says what a file without any cuDNN recurrence looks like.
Source: tensorflow v1.15.0 python/keras/layers (recurrent.py, core.py, convolutional.py, normalization.py,
embeddings.py), python/ops/rnn_cell_impl.py, contrib/rnn/python/ops/lstm_ops.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cudnn_convert.model import CanonicalParameters, Plain, Tensor

_VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
#: Slots of optimizers and averages, the objects of a checkpoint, counters: of no layer.
_BESIDE: Final = re.compile(
    r".*(/\.OPTIMIZER_SLOT/.*|\.ATTRIBUTES/OBJECT_CONFIG_JSON|/Adam(_1)?|/Momentum|/RMSProp(_1)?|/Adagrad|"
    r"/ExponentialMovingAverage)|_CHECKPOINTABLE_OBJECT_GRAPH|(.*/)?(global_step|save_counter|beta[12]_power|"
    r"optimizer/.*)(/\.ATTRIBUTES/VARIABLE_VALUE)?"
)
_GATES: Final = {4: "LSTM", 3: "GRU", 1: "SimpleRNN"}
#: The cells of tf.nn.rnn_cell and contrib.rnn, whose kernel has the input's rows and the state's.
_LSTM_CELL: Final = re.compile(r"(.*/)?(basic_|layer_norm_basic_)?lstm(_block)?(_fused)?_cell(_\d+)?")
_GRU_CELL: Final = re.compile(r"(.*/)?gru(_block)?_cell(_v2)?(_\d+)?/(?P<part>gates|candidate)")
_NORMAL: Final = frozenset({"gamma", "beta", "moving_mean", "moving_variance"})
_EMBEDDING: Final = re.compile(r"embeddings?|embedding_weights")
_FLAT, _TABLE = 1, 2

#: What Keras calls by place alone since 2.13, by how many there are (read/keras_archive.py).
_BY_PLACE: Final = {
    2: ("kernel", "bias"),
    3: ("kernel", "recurrent_kernel", "bias"),
    4: ("gamma", "beta", "moving_mean", "moving_variance"),
}

Weights = dict[str, Tensor]


def describe_layers(tensors: Mapping[str, Tensor], canonical: Sequence[CanonicalParameters]) -> Plain:
    """What the layers look like beside the recurrences that `canonical` keys may be of."""
    doubtful = [found.scope for found in canonical]
    scopes: dict[str, Weights] = {}
    for key, tensor in tensors.items():
        if not _BESIDE.fullmatch(key):
            scope, _, name = key.removesuffix(_VALUE).rpartition("/")
            scopes.setdefault(scope, {})[name] = tensor
    phrases = {
        scope: "" if _is_below(scope, doubtful) else _phrase(scope, weights)
        for scope, weights in sorted(scopes.items())
    }
    known = tuple(f"{scope or 'the root scope'}: {phrase}" for scope, phrase in phrases.items() if phrase)
    return Plain(known, whole=bool(known) and all(phrases.values()))


def _is_below(scope: str, others: Sequence[str]) -> bool:
    """Whether a scope is one of `others`, or in one that has a name."""
    return any(f"{scope}/" == f"{one.rstrip('/')}/" or (one and scope.startswith(one)) for one in others)


def _phrase(scope: str, weights: Weights) -> str:
    """What a scope's weights are of, "" where that is not known."""
    return next(_readings(scope, weights), "")


def _readings(scope: str, weights: Weights) -> Iterator[str]:
    names = _BY_PLACE.get(len(weights), ())
    if weights.keys() == {str(place) for place in range(len(names))}:
        weights = {name: weights[str(place)] for place, name in enumerate(names)}
    kernel = weights.get("kernel", weights.get("weights"))
    bias, square = weights.get("bias", weights.get("biases")), weights.get("recurrent_kernel")
    if kernel is not None and square is not None and len(square.shape) == _TABLE:
        units, wide = square.shape
        gates = wide // units if units else 0
        # The bias of a cuDNN layer is twice as long, and its kernels are of the same sizes.
        is_whole = (wide,) == (gates * units,) == kernel.shape[-1:] and gates in _GATES
        if is_whole and (bias is None or bias.shape in ((wide,), (2, wide))):
            yield f"{_GATES[gates]} of {units} units, a CPU layer"
        return
    if kernel is None:
        yield from _without_kernel(weights)
        return
    if _LSTM_CELL.fullmatch(scope) and bias is not None and len(bias.shape) == _FLAT:
        yield f"LSTM cell of {bias.shape[0] // 4} units, a CPU layer"
    elif match := _GRU_CELL.fullmatch(scope):
        yield f"{match['part']} of a GRU cell, a CPU layer"
    elif len(kernel.shape) > _TABLE:
        *window, inputs, outputs = kernel.shape
        yield f"convolution of {'x'.join(map(str, window))}, {inputs} to {outputs}"
    elif len(kernel.shape) == _TABLE and (bias is None or bias.shape == kernel.shape[1:]):
        yield f"Dense, {kernel.shape[0]} to {kernel.shape[1]}"


def _without_kernel(weights: Weights) -> Iterator[str]:
    if weights.keys() <= _NORMAL and all(len(one.shape) == _FLAT for one in weights.values()):
        yield "normalisation"
    elif len(weights) == 1 and _EMBEDDING.fullmatch(next(iter(weights))):
        (table,) = weights.values()
        if len(table.shape) == _TABLE:
            yield f"embedding of {table.shape[0]} rows"
