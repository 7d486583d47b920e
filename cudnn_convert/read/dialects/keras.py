"""Names of the weights of Keras' CuDNNLSTM and CuDNNGRU in TensorFlow checkpoints.

`<scope>kernel`, `<scope>recurrent_kernel` and `<scope>bias`, one set a layer. `save_weights(...,
save_format="tf")` and `tf.train.Checkpoint` name them by objects and add `/.ATTRIBUTES/VARIABLE_VALUE`, a
`tf.train.Saver` by variables; Bidirectional has a `forward_layer/` and a `backward_layer/`, or by variables
`forward_<name>/` and `backward_<name>/`. The lengths of the biases tell: 8 or 6 times the units are a CuDNN
layer's, 4 times or `[2, 3*units]` a CPU layer's, which needs no conversion and is left out.

Source: tensorflow v1.15.0 python/keras/layers/cudnn_recurrent.py `build`, layers/wrappers.py Bidirectional,
python/training/tracking/graph_view.py; the same keys in v1.12.0-v1.15.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.model import Array, CanonicalParameters, Cell, Mode, Tensor, is_float
from cudnn_convert.weights import layouts, lazy
from cudnn_convert.weights.lazy import Layers

_KERNEL: Final = re.compile(r"(?P<scope>(?:.*/)?)kernel(?P<suffix>(?:/\.ATTRIBUTES/VARIABLE_VALUE)?)")
_WAY: Final = re.compile(r"(?P<around>(?:.*/)?)(?P<way>forward|backward)(?P<layer>_[^/]+)/")
_NAMES: Final = ("kernel", "recurrent_kernel", "bias")
#: What `tensors` of the dialect `keras` are keyed by, before the name: by the number of directions.
STEMS: Final = {1: ("",), 2: ("forward_layer/", "backward_layer/")}
_ALONE: Final = "its keys do not say go_backwards; a layer that has it takes its inputs reversed in time"
_BOTH: Final = "its keys do not say merge_mode; outputs are both directions side by side, as of concat"


@dataclass(frozen=True, slots=True)
class Layer:
    """One CuDNN layer, or one direction of a Bidirectional: its tensors by their names in it."""

    mode: Mode
    units: int
    inputs: int
    tensors: Mapping[str, Tensor]


def find(_: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Every CuDNN layer of Keras among a checkpoint's `tensors`, in the order of their scopes."""
    alone: dict[str, Layer] = {}
    for key in tensors:
        if match := _KERNEL.fullmatch(key):
            kept = {name: tensors.get(f"{match['scope']}{name}{match['suffix']}") for name in _NAMES}
            layer = recognise_layer({name: tensor for name, tensor in kept.items() if tensor is not None})
            if layer is not None:
                alone[match["scope"]] = layer
    pairs = _pairs(alone)
    both = {scope for pair in pairs.values() for scope in pair}
    found = {scope: [layer] for scope, layer in alone.items() if scope not in both}
    found |= {scope: [alone[name] for name in pair] for scope, pair in pairs.items()}
    return tuple(parameters(scope, ways) for scope, ways in sorted(found.items()))


def recognise_layer(tensors: Mapping[str, Tensor]) -> Layer | None:
    """The CuDNN layer that `kernel`, `recurrent_kernel` and `bias` make by their shapes, or None."""
    if set(tensors) != set(_NAMES) or any(len(tensors[name].shape) != 2 for name in _NAMES[:2]):
        return None
    if not all(is_float(tensor.dtype) for tensor in tensors.values()):
        return None
    units, inputs = tensors["recurrent_kernel"].shape[0], tensors["kernel"].shape[0]
    for mode in (Mode.LSTM, Mode.GRU):
        shapes = layouts.keras_shapes(mode, units=units, inputs=inputs)
        if units and inputs and all(tensors[name].shape == shape for name, shape in shapes.items()):
            return Layer(mode, units, inputs, tensors)
    return None


def _pairs(layers: Mapping[str, Layer]) -> dict[str, tuple[str, str]]:
    """The scopes of both directions of each Bidirectional, by its own scope."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for scope, layer in layers.items():
        match = _WAY.fullmatch(scope)
        if match and match["way"] == "forward":
            other = f"{match['around']}backward{match['layer']}/"
            if other in layers and _shapes(layers[other]) == _shapes(layer):
                pairs.setdefault(match["around"], []).append((scope, other))
    # Two of them in one scope, which Keras does not make, could not be told apart by it.
    return {around: found[0] for around, found in pairs.items() if len(found) == 1 and around not in layers}


def _shapes(layer: Layer) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in layer.tensors.items()}


def parameters(scope: str, ways: Sequence[Layer]) -> CanonicalParameters:
    """The recurrence of one layer, or of both directions of a Bidirectional."""
    first, stems = ways[0], STEMS[len(ways)]
    note = _BOTH if len(ways) > 1 else _ALONE

    def decode(mode: Mode) -> Layers:
        def layer(_: int) -> tuple[Cell, ...]:
            return tuple(layouts.unpack_keras(mode, {**lazy.read(way.tensors)}) for way in ways)

        return Layers(1, layer)

    def stored() -> Mapping[str, Array]:
        pairs = zip(stems, ways, strict=True)
        return lazy.read({stem + name: way.tensors[name] for stem, way in pairs for name in _NAMES})

    return CanonicalParameters(
        scope=scope,
        modes=(first.mode,),
        layers=1,
        directions=len(ways),
        units=first.units,
        input_size=first.inputs,
        decode=decode,
        tensors=stored,
        dialect="keras",
        dtype=np.dtype(first.tensors["kernel"].dtype),
        batch_major=True,
        note=f"{scope.rstrip('/') or 'the root scope'}: {note}",
    )
