"""Names of PyTorch's recurrent modules and cells in a state dict.

A module's keys are `<path>.weight_ih_l<n>`, `weight_hh_l<n>`, `bias_ih_l<n>`, `bias_hh_l<n>` and with a
projection `weight_hr_l<n>`; those of the backward direction end in `_reverse`. A cell's keys lack the layer.
With `bias=False` there are no biases. Shapes are those of `layouts.unpack_rows`. Names tell neither tanh from
relu nor `batch_first`.
Source: pytorch v2.8.0 torch/nn/modules/rnn.py RNNBase.__init__, RNNCellBase.__init__.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, Cell, Mode, Tensor
from cudnn_convert.weights import layouts
from cudnn_convert.weights.lazy import LazyLayers

_KEY: Final = re.compile(
    r"(?P<path>(?:.*[./])?)(?P<field>weight_ih|weight_hh|bias_ih|bias_hh|weight_hr)"
    r"(?P<ending>(?:_l\d{1,9}(?:_reverse)?)?)"
)
#: What a weight is computed from, by the suffix or the folder of its name: weight_norm, spectral_norm and
#: pruning, a dropout of weights as in AWD-LSTM. A weight beside them may be of an earlier step.
#: Source: pytorch v2.8.0 torch/nn/utils/weight_norm.py, spectral_norm.py, prune.py, parametrize.py; fastai
#: 2.8 text/models/awdlstm.py WeightDropout.
_PART: Final = re.compile(
    r"(?:.*[./])?(?:parametrizations\.)?(?P<weight>(?:weight|bias)_(?:ih|hh|hr)(?:_l\d{1,9}(?:_reverse)?)?)"
    r"(?:_g|_v|_orig|_raw|\.original\d*)"
)
_LAYER: Final = re.compile(r"_l(\d+)")
_MODES: Final = {4: (Mode.LSTM,), 3: (Mode.GRU,), 1: (Mode.RNN_TANH, Mode.RNN_RELU)}
_BIASES: Final = ("bias_ih", "bias_hh")
_MATRIX: Final = 2
_COMPUTE: Final = (
    "before the state dict is saved, call torch.nn.utils.parametrize.remove_parametrizations, or what else "
    "removes weight_norm, spectral_norm, pruning or the dropout of weights"
)
_WHOLE: Final = "does the whole file belong to one model?"


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every recurrent module and cell, sorted by path. Raises ReadError."""
    _refuse_parts(path, tensors)
    modules: dict[tuple[str, bool], dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        if match := _KEY.fullmatch(key):
            modules[match["path"], bool(match["ending"])][match["field"] + match["ending"]] = tensor
    sets = (_parameters(_Module(path, *where, own)) for where, own in sorted(modules.items()))
    return tuple(parameters for parameters in sets if parameters is not None)


def is_weight(key: str) -> bool:
    """Return True if a recurrent module or cell has such a key."""
    return _KEY.fullmatch(key) is not None


def _refuse_parts(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for key in tensors:
        if match := _PART.fullmatch(key):
            expected, actual = f"{match['weight']} itself", "a part that it is computed from"
            raise ReadError(path, key, expected=expected, found=actual, advice=_COMPUTE)


@dataclass(frozen=True, slots=True)
class _Module:
    """The tensors of a module by key without its path; `layered` as their names have a layer."""

    path: Path
    prefix: str
    layered: bool
    tensors: Mapping[str, Tensor]

    def endings(self, layers: int, directions: int) -> list[list[str]]:
        """Return the ends of keys, `[layer][direction]`."""
        if not self.layered:
            return [[""]]
        return [
            [f"_l{layer}{reverse}" for reverse in ("", "_reverse")[:directions]] for layer in range(layers)
        ]


def _parameters(module: _Module) -> CanonicalParameters | None:
    layers = 1 + max(int(match[1]) if (match := _LAYER.search(key)) else 0 for key in module.tensors)
    layers = min(layers, len(module.tensors))
    directions = 2 if any(key.endswith("_reverse") for key in module.tensors) else 1
    first = "_l0" if module.layered else ""
    kernel, recurrent = (module.tensors.get(name + first) for name in ("weight_ih", "weight_hh"))
    if kernel is None or recurrent is None or len(kernel.shape) != _MATRIX or len(recurrent.shape) != _MATRIX:
        return None  # of another module with such names
    projection = module.tensors.get(f"weight_hr{first}")
    width = recurrent.shape[1]
    units = width if projection is None or len(projection.shape) != _MATRIX else projection.shape[1]
    gates, rest = divmod(recurrent.shape[0], units) if units else (0, 0)
    if (
        rest
        or gates not in _MODES
        or not kernel.shape[1]
        or (projection is not None and gates != len(Mode.LSTM.gates))
    ):
        return None
    inputs, has_bias = kernel.shape[1], any(f"{name}{first}" in module.tensors for name in _BIASES)
    stored: dict[str, Tensor] = {}
    for layer, endings in enumerate(module.endings(layers, directions)):
        shapes = {
            "weight_ih": (gates * units, inputs if layer == 0 else directions * width),
            "weight_hh": (gates * units, width),
            **({"weight_hr": (width, units)} if projection is not None else {}),
            **(dict.fromkeys(_BIASES, (gates * units,)) if has_bias else {}),
        }
        for ending in endings:
            stored |= {name + ending: _take(module, name + ending, shape) for name, shape in shapes.items()}
    if others := module.tensors.keys() - stored.keys():
        raise ReadError(
            module.path, module.prefix + min(others), expected="no such key", found="one", advice=_WHOLE
        )

    def decode(mode: Mode) -> LazyLayers:
        endings = module.endings(layers, directions)
        return LazyLayers(layers, lambda layer: tuple(_cell(mode, stored, each) for each in endings[layer]))

    scope = module.prefix.rstrip("./")
    return CanonicalParameters(
        scope=f"{scope}/" if scope else "",
        modes=_MODES[gates],
        layers=layers,
        directions=directions,
        units=units,
        input_size=inputs,
        decode=decode,
        tensors=stored,
        dialect="torch",
        dtype=kernel.dtype,
        projection=0 if projection is None else width,
    )


def _take(module: _Module, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of the module. Raises ReadError where it is missing or misfits."""
    tensor = module.tensors.get(name)
    if tensor is None or tensor.shape != shape:
        actual = "no such key" if tensor is None else f"shape {tensor.shape}"
        raise ReadError(
            module.path, module.prefix + name, expected=f"shape {shape}", found=actual, advice=_WHOLE
        )
    return tensor


def _cell(mode: Mode, stored: Mapping[str, Tensor], ending: str) -> Cell:
    kernel, recurrent = (stored[name + ending].read() for name in ("weight_ih", "weight_hh"))
    zeros = np.zeros(kernel.shape[0], kernel.dtype)
    bias, recurrent_bias = (
        stored[name + ending].read() if name + ending in stored else zeros for name in _BIASES
    )
    projection = stored[f"weight_hr{ending}"].read() if f"weight_hr{ending}" in stored else None
    return layouts.unpack_rows(mode, layouts.TORCH, (kernel, recurrent), (bias, recurrent_bias), projection)
