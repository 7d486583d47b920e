"""Replaces the cuDNN layers of a Keras model by CPU layers, in config and weights.

CuDNNLSTM becomes LSTM, CuDNNGRU becomes GRU with `reset_after`, anywhere in the model; every other layer
stays unchanged, with the defaults of missing keys written out.
Source: tf_keras v2.21.0 src/layers/rnn/cudnn_lstm.py, cudnn_gru.py, src/saving/legacy/hdf5_format.py.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.keras.config import classes, layer_tree
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Array, Mode, Tensor
from cudnn_convert.weights import layouts

_NAMES: Final = ("kernel", "recurrent_kernel", "bias")

Listed = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A model for a CPU; `layers` are the paths of former cuDNN layers."""

    architecture: Architecture
    layers: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CpuTensor:
    """A weight of a CPU layer, computed from a cuDNN layer's weights when read.

    `halves`: one of the two biases becomes the CPU layer's, as is right for an optimizer's state.
    """

    mode: Mode
    name: str
    cudnn: tuple[Tensor, Tensor, Tensor]
    halves: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        if self.name != "bias":
            return self.cudnn[_NAMES.index(self.name)].shape
        (both,) = self.cudnn[2].shape
        return (2, both // 2) if self.mode is Mode.GRU else (both // 2,)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.cudnn[_NAMES.index(self.name)].dtype

    def read(self) -> Array:
        stored = {name: tensor.read() for name, tensor in zip(_NAMES, self.cudnn, strict=True)}
        cell = layouts.unpack_keras(self.mode, stored)
        kept = layouts.one_bias(cell) if self.halves and self.mode is Mode.LSTM else cell
        return layouts.pack_keras(kept)[self.name]


def has_cudnn(model: Architecture) -> bool:
    """Return True if a layer is cuDNN's, or has the weights of a cuDNN layer."""
    return bool(classes.cudnn_layers(model)) or any(_triples(listed) for listed in model.weights.values())


def rewritten(path: Path, model: Architecture, *, slots: bool = False) -> Rewritten:
    """Replace a model's cuDNN layers; with `slots` convert the optimizer's state too.

    Raises ReadError where weights do not fit their layers.
    """
    weights = convert_weights(path, model)
    optimizer, dropped = _slots(model) if slots else ((), "; keep it with --slots")
    config = _with_dtype(model, layer_tree.map_entries(model.config, _change))
    changed = replace(model, config=config, weights=weights, optimizer=optimizer)
    notes = (f"optimizer state dropped{dropped}",) if dropped and model.optimizer else ()
    return Rewritten(changed, tuple(classes.cudnn_layers(model)), notes)


def convert_weights(path: Path, model: Architecture) -> dict[str, Any]:
    """Return the weights of `rewritten`, by layer. Raises ReadError likewise."""
    entries = {layer_tree.layer_name(entry): entry for entry in layer_tree.layer_entries(model.config)}
    return {name: _weights(path, name, listed, entries.get(name)) for name, listed in model.weights.items()}


def _slots(model: Architecture) -> tuple[tuple[tuple[str, Tensor], ...], str]:
    """Convert an optimizer's state for the CPU layers, or give the reason for dropping.

    It has a slot for each weight, either one kind after the other, or in newer optimizers (tf_keras v2.21.0
    src/optimizers/adam.py `build`) all kinds of one weight side by side. A wrong stride mixes kinds, so that
    some bias lacks its kernels: the right stride finds the most layers.
    """
    listed = model.optimizer
    if not has_cudnn(model):
        return tuple(listed), ""
    stride = max((1, 2, 3), key=lambda stride: len(_triples(listed, stride)))
    if not _triples(listed, stride):
        return (), ", for none of it has the shapes of a cuDNN layer"
    return _convert(listed, stride, halves=True), ""


def _with_dtype(model: Architecture, config: Any) -> Any:
    """Set the layers' dtype where all weights share a dtype different from float32.

    keras 2.2.4 engine/base_layer.py: a layer without dtype has `floatx()` of the process that made it.
    """
    dtypes = {tensor.dtype for listed in model.weights.values() for _, tensor in listed}
    dtype = next(iter(dtypes)) if len(dtypes) == 1 else np.dtype(np.float32)
    if dtype.kind != "f" or dtype == np.float32:
        return config

    def with_dtype(entry: Entry) -> Entry:
        is_layer = classes.is_keras_class(entry) and not layer_tree.is_model(entry)
        if not is_layer or not isinstance(entry["config"], dict):
            return entry
        return {**entry, "config": {"dtype": dtype.name, **entry["config"]}}

    return layer_tree.map_entries(config, with_dtype)


def _change(entry: Entry) -> Entry:
    if classes.is_cudnn(entry):
        kind = str(entry["class_name"])
        more = {"reset_after": True} if classes.MODES[kind] is Mode.GRU else {}
        changed = {**entry, "class_name": classes.CUDNN[kind]}
        if changed.get("registered_name"):
            changed["registered_name"] = None
        return {**changed, "config": {**entry["config"], **classes.CPU, "implementation": 2, **more}}
    missing = classes.MISSING.get(str(entry["class_name"]))
    if missing is None or not classes.is_keras_class(entry) or not isinstance(entry["config"], dict):
        return entry
    return {**entry, "config": {**missing, **entry["config"]}}


def _weights(path: Path, name: str, listed: Listed, entry: Entry | None) -> tuple[tuple[str, Tensor], ...]:
    """Return a top-level layer's weights, with the weights of cuDNN layers converted."""
    counts = Counter((mode, recurrent.shape[0]) for _, mode, (_, recurrent, _) in _triples(listed))
    expected = Counter(_list_recurrent(entry, cudnn=True))
    # A CPU layer's config over weights that a cuDNN layer saved: Keras 2 converts such on loading too.
    spare = Counter(_list_recurrent(entry, cudnn=False))
    if expected - counts or (counts - expected) - spare:
        raise ReadError(
            path,
            f"layer {name}",
            expected=f"the weights of {_list_counts(expected) or 'no cuDNN layer'}",
            found=f"the weights of {_list_counts(counts) or 'other layers'}, judged by their shapes",
        )
    return _convert(listed) if counts else tuple(listed)


def _list_recurrent(entry: Entry | None, *, cudnn: bool) -> Iterator[tuple[Mode, int]]:
    """Yield `(mode, units)` of an entry's cuDNN layers, or of CPU layers with equal arithmetic."""
    for _, below in layer_tree.walk(entry) if entry is not None else ():
        config, kind = below["config"], str(below["class_name"])
        if kind not in classes.MODES or not classes.is_keras_class(below) or not isinstance(config, dict):
            continue
        same = {**classes.MISSING.get(kind, {}), **config}
        needed = {key: value for key, value in classes.CPU.items() if "dropout" not in key}
        fits = all(same.get(key, value) == value for key, value in needed.items())
        is_equal = kind not in classes.CUDNN and fits and same.get("reset_after", True)
        if classes.is_cudnn(below) if cudnn else is_equal:
            yield classes.MODES[kind], int(config.get("units", 0))


def _list_counts(counts: Counter[tuple[Mode, int]]) -> str:
    return ", ".join(f"{count} x {mode.value} of {units} units" for (mode, units), count in counts.items())


def _convert(listed: Listed, stride: int = 1, *, halves: bool = False) -> tuple[tuple[str, Tensor], ...]:
    changed = list(listed)
    for first, mode, three in _triples(listed, stride):
        for position, name in zip(range(first, len(changed), stride), _NAMES, strict=False):
            changed[position] = (changed[position][0], CpuTensor(mode, name, three, halves))
    return tuple(changed)


def _triples(listed: Listed, stride: int = 1) -> list[tuple[int, Mode, tuple[Tensor, Tensor, Tensor]]]:
    """List the position, mode and weights of each cuDNN layer, found by shapes.

    A bias of 8 or 6 times the units has no other reading in Keras, whatever the weights are called. `stride`
    is how far the weights of one layer stand from each other.
    """
    triples = []
    taken: set[int] = set()
    for position in range(len(listed) - 2 * stride):
        places = (position, position + stride, position + 2 * stride)
        kernel, recurrent, bias = (listed[start][1] for start in places)
        mode = layouts.find_keras_mode((kernel, recurrent, bias))
        if mode is not None and taken.isdisjoint(places):
            taken.update(places)
            triples.append((position, mode, (kernel, recurrent, bias)))
    return triples
