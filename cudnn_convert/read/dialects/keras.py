"""Recognises Keras layers, plain layers too, by names and shapes of weights.

A layer's keys are `<scope>kernel`, `<scope>recurrent_kernel` and `<scope>bias`. `save_weights(...,
save_format="tf")` and `tf.train.Checkpoint` name them by objects and add `/.ATTRIBUTES/VARIABLE_VALUE`;
`tf.train.Saver` names them by variables. The directions of a Bidirectional lie in `forward_layer/` and
`backward_layer/`, or by variables in `forward_<name>/` and `backward_<name>/`. The shape of the bias
separates the kinds: 8 or 6 times the units is a CuDNN layer; 4 times, or `[2, 3*units]`, is a CPU layer,
which needs no conversion and is left out.

Source: tensorflow v1.15.0 python/keras/layers/cudnn_recurrent.py `build`, layers/wrappers.py Bidirectional,
python/training/tracking/graph_view.py; the same keys in v1.12.0-v1.15.0.

`describe_layers` converts nothing: it describes the layers of a file without a cuDNN recurrence.
Source: tensorflow v1.15.0 python/keras/layers (recurrent.py, core.py, convolutional.py, normalization.py,
embeddings.py), python/ops/rnn_cell_impl.py, contrib/rnn/python/ops/lstm_ops.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.model import CanonicalParameters, Cell, Mode, Plain, Tensor
from cudnn_convert.weights import layouts, lazy
from cudnn_convert.weights.lazy import LazyLayers

_KERNEL: Final = re.compile(r"(?P<scope>(?:.*/)?)kernel(?P<suffix>(?:/\.ATTRIBUTES/VARIABLE_VALUE)?)")
_WAY: Final = re.compile(r"(?P<around>(?:.*/)?)(?P<way>forward|backward)(?P<layer>_[^/]+)/")
_NAMES: Final = ("kernel", "recurrent_kernel", "bias")
#: Prefixes of the keys of `CanonicalParameters.tensors` in this dialect, by the number of directions.
STEMS: Final = {1: ("",), 2: ("forward_layer/", "backward_layer/")}
_ALONE: Final = "its keys do not say go_backwards; a layer that has it takes its inputs reversed in time"
_BOTH: Final = "its keys do not say merge_mode; outputs are both directions side by side, as of concat"


@dataclass(frozen=True, slots=True)
class CudnnLayer:
    """A CuDNN layer, or a direction of a Bidirectional; `tensors` by weight name."""

    mode: Mode
    units: int
    inputs: int
    tensors: Mapping[str, Tensor]


def find(_: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every CuDNN layer of Keras in a checkpoint's `tensors`, sorted by scope."""
    alone: dict[str, CudnnLayer] = {}
    for key in tensors:
        if match := _KERNEL.fullmatch(key):
            kept = {name: tensors.get(f"{match['scope']}{name}{match['suffix']}") for name in _NAMES}
            layer = recognise_layer({name: tensor for name, tensor in kept.items() if tensor is not None})
            if layer is not None:
                alone[match["scope"]] = layer
    pairs = _pairs(alone)
    both = {scope for pair in pairs.values() for scope in pair}
    layers = {scope: [layer] for scope, layer in alone.items() if scope not in both}
    layers |= {scope: [alone[name] for name in pair] for scope, pair in pairs.items()}
    return tuple(parameters(scope, ways) for scope, ways in sorted(layers.items()))


def recognise_layer(tensors: Mapping[str, Tensor]) -> CudnnLayer | None:
    """Return the CuDNN layer with the shapes of `kernel`, `recurrent_kernel` and `bias`.

    Returns None where no layer has them.
    """
    is_whole = set(tensors) == set(_NAMES)
    mode = layouts.find_keras_mode([tensors[name] for name in _NAMES]) if is_whole else None
    if mode is None:
        return None
    return CudnnLayer(mode, tensors["recurrent_kernel"].shape[0], tensors["kernel"].shape[0], tensors)


def _pairs(layers: Mapping[str, CudnnLayer]) -> dict[str, tuple[str, str]]:
    """Return the scopes of each Bidirectional's directions, keyed by the Bidirectional's scope."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for scope, layer in layers.items():
        match = _WAY.fullmatch(scope)
        if match and match["way"] == "forward":
            other = f"{match['around']}backward{match['layer']}/"
            if other in layers and _shapes(layers[other]) == _shapes(layer):
                pairs.setdefault(match["around"], []).append((scope, other))
    # Keras makes one Bidirectional a scope; two in one scope could not be told apart.
    return {
        around: scopes[0] for around, scopes in pairs.items() if len(scopes) == 1 and around not in layers
    }


def _shapes(layer: CudnnLayer) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in layer.tensors.items()}


def parameters(scope: str, ways: Sequence[CudnnLayer]) -> CanonicalParameters:
    """Return the recurrence of a layer, or of both directions of a Bidirectional."""
    first, stems = ways[0], STEMS[len(ways)]
    note = _BOTH if len(ways) > 1 else _ALONE

    def decode(mode: Mode) -> LazyLayers:
        def layer(_: int) -> tuple[Cell, ...]:
            return tuple(layouts.unpack_keras(mode, {**lazy.read(direction.tensors)}) for direction in ways)

        return LazyLayers(1, layer)

    return CanonicalParameters(
        scope=scope,
        modes=(first.mode,),
        layers=1,
        directions=len(ways),
        units=first.units,
        input_size=first.inputs,
        decode=decode,
        tensors={
            stem + name: direction.tensors[name]
            for stem, direction in zip(stems, ways, strict=True)
            for name in _NAMES
        },
        dialect="keras",
        dtype=np.dtype(first.tensors["kernel"].dtype),
        batch_major=True,
        note=f"{scope.rstrip('/') or 'the root scope'}: {note}",
    )


_VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
#: Keys that belong to no layer: slots of optimizers and averages, the object graph, counters.
_BESIDE: Final = re.compile(
    r".*(/\.OPTIMIZER_SLOT/.*|\.ATTRIBUTES/OBJECT_CONFIG_JSON|/Adam(_1)?|/Momentum|/RMSProp(_1)?|/Adagrad|"
    r"/ExponentialMovingAverage)|_CHECKPOINTABLE_OBJECT_GRAPH|(.*/)?(global_step|save_counter|beta[12]_power|"
    r"optimizer/.*)(/\.ATTRIBUTES/VARIABLE_VALUE)?"
)
_GATES: Final = {4: "LSTM", 3: "GRU", 1: "SimpleRNN"}
#: Cells of tf.nn.rnn_cell and contrib.rnn; their kernel has the rows of the input, then of the state.
_LSTM_CELL: Final = re.compile(r"(.*/)?(basic_|layer_norm_basic_)?lstm(_block)?(_fused)?_cell(_\d+)?")
_GRU_CELL: Final = re.compile(r"(.*/)?gru(_block)?_cell(_v2)?(_\d+)?/(?P<part>gates|candidate)")
_NORMAL: Final = frozenset({"gamma", "beta", "moving_mean", "moving_variance"})
_EMBEDDING: Final = re.compile(r"embeddings?|embedding_weights")
_FLAT, _TABLE = 1, 2

#: The names of weights that Keras since 2.13 stores by position, by their number (read/keras_archive.py).
_BY_PLACE: Final = {
    2: ("kernel", "bias"),
    3: ("kernel", "recurrent_kernel", "bias"),
    4: ("gamma", "beta", "moving_mean", "moving_variance"),
}

Weights = dict[str, Tensor]


def describe_layers(tensors: Mapping[str, Tensor], canonical: Sequence[CanonicalParameters]) -> Plain:
    """Describe the layers of a checkpoint, leaving out the scopes of the `canonical` recurrences."""
    doubtful = [dialect_set.scope for dialect_set in canonical]
    scopes: dict[str, Weights] = {}
    for key, tensor in tensors.items():
        if not _BESIDE.fullmatch(key):
            scope, _, name = key.removesuffix(_VALUE).rpartition("/")
            scopes.setdefault(scope, {})[name] = tensor
    phrases = {
        scope: "" if _is_below(scope, doubtful) else next(_readings(scope, weights), "")
        for scope, weights in sorted(scopes.items())
    }
    known = tuple(f"{scope or 'the root scope'}: {phrase}" for scope, phrase in phrases.items() if phrase)
    return Plain(known, whole=bool(known) and all(phrases.values()))


def _is_below(scope: str, others: Sequence[str]) -> bool:
    """Return True if `scope` is in `others`, or below a scope of `others`.

    Scopes below the root do not count as below it.
    """
    return any(
        f"{scope}/" == f"{other.rstrip('/')}/" or (other and scope.startswith(other)) for other in others
    )


def _readings(scope: str, weights: Weights) -> Iterator[str]:
    """Yield a description of the layer with the given weights, if recognised."""
    names = _BY_PLACE.get(len(weights), ())
    if weights.keys() == {str(number) for number in range(len(names))}:
        weights = {name: weights[str(number)] for number, name in enumerate(names)}
    kernel = weights.get("kernel", weights.get("weights"))
    bias, square = weights.get("bias", weights.get("biases")), weights.get("recurrent_kernel")
    if kernel is not None and square is not None and len(square.shape) == _TABLE:
        units, wide = square.shape
        gates = wide // units if units else 0
        # The bias of a cuDNN layer is twice as long, and its kernels are of the same sizes.
        is_whole = (wide,) == (gates * units,) == kernel.shape[1:] and gates in _GATES
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
    if weights.keys() <= _NORMAL and all(len(weight.shape) == _FLAT for weight in weights.values()):
        yield "normalisation"
    elif len(weights) == 1 and _EMBEDDING.fullmatch(next(iter(weights))):
        (table,) = weights.values()
        if len(table.shape) == _TABLE:
            yield f"embedding of {table.shape[0]} rows"
