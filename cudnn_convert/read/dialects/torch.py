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
from cudnn_convert.model import CanonicalParameters, Cell, Mode, Tensor, is_float
from cudnn_convert.read.dialects import shapes
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
_OWN: Final = "if the module has PyTorch's equations, save its weight_* and bias_* by themselves"
_BIASES: Final = ("bias_ih", "bias_hh")
_COMPUTE: Final = (
    "before the state dict is saved, call torch.nn.utils.parametrize.remove_parametrizations, or what else "
    "removes weight_norm, spectral_norm, pruning or the dropout of weights"
)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every recurrent module and cell, sorted by path. Raises ReadError."""
    _refuse_parts(path, tensors)
    modules: dict[tuple[str, bool], dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        if match := _KEY.fullmatch(key):
            modules[match["path"], bool(match["ending"])][match["field"] + match["ending"]] = tensor
    sets = ((_Module(path, *where, own), where) for where, own in sorted(modules.items()))
    recognised = [(where, parameters) for module, where in sets if (parameters := _parameters(module))]
    _refuse_more(path, tensors, {prefix: layered for (prefix, layered), _ in recognised})
    return tuple(parameters for _, parameters in recognised)


def _refuse_more(path: Path, tensors: Mapping[str, Tensor], prefixes: Mapping[str, bool]) -> None:
    """Raise ReadError for a cell with more parameters than PyTorch's, by their names.

    `prefixes` are those of recurrences, and whether their keys have a layer. A parameter beside the weights
    belongs to them, and so does a normalization in the module of a cell: TorchScript's LayerNormLSTM has one.
    """
    for key, tensor in tensors.items():
        end = max(key.rfind("."), key.rfind("/")) + 1
        above = max(key.rfind(".", 0, end - 1), key.rfind("/", 0, end - 1)) + 1
        is_beside = key[:end] in prefixes and not _KEY.fullmatch(key)
        is_norm = prefixes.get(key[:above]) is False and "norm" in key[above:end].lower()
        if tensor.shape and is_float(tensor.dtype) and (is_beside or is_norm):
            expected = "the parameters of a PyTorch module alone"
            raise ReadError(path, key, expected=expected, found="one more beside them", advice=_OWN)


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
    """The tensors of a module by key, without the module's path.

    `layered`: the names have a layer.
    """

    path: Path
    prefix: str
    layered: bool
    tensors: Mapping[str, Tensor]


def _parameters(module: _Module) -> CanonicalParameters | None:
    layers = 1 + max(int(match[1]) if (match := _LAYER.search(key)) else 0 for key in module.tensors)
    layers = min(layers, len(module.tensors))
    directions = 2 if any(key.endswith("_reverse") for key in module.tensors) else 1
    # The ends of keys, `[layer][direction]`.
    endings = [[""]]
    if module.layered:
        reverses = ("", "_reverse")[:directions]
        endings = [[f"_l{layer}{reverse}" for reverse in reverses] for layer in range(layers)]
    first = endings[0][0]
    names = ("weight_ih", "weight_hh", "weight_hr")
    sizes = shapes.measure_rows(*(module.tensors.get(name + first) for name in names))
    if sizes is None:
        return None
    has_bias = any(name + first in module.tensors for name in _BIASES)
    stored: dict[str, Tensor] = {}
    for layer, ends in enumerate(endings):
        expected = {
            "weight_ih": (sizes.rows, sizes.inputs if layer == 0 else directions * sizes.width),
            "weight_hh": (sizes.rows, sizes.width),
            **({"weight_hr": (sizes.width, sizes.units)} if sizes.has_projection else {}),
            **(dict.fromkeys(_BIASES, (sizes.rows,)) if has_bias else {}),
        }
        for key, shape in ((name + ending, shape) for ending in ends for name, shape in expected.items()):
            where, tensor = module.prefix + key, module.tensors.get(key)
            stored[key] = shapes.take(module.path, where, tensor, shape, sizes.dtype)
    if others := module.tensors.keys() - stored.keys():
        where = module.prefix + min(others)
        raise ReadError(module.path, where, expected="no such key", found="one", advice=shapes.WHOLE)

    def decode(mode: Mode) -> LazyLayers:
        return LazyLayers(layers, lambda layer: tuple(_cell(mode, stored, each) for each in endings[layer]))

    scope = module.prefix.rstrip("./")
    return CanonicalParameters(
        scope=f"{scope}/" if scope else "",
        modes=shapes.MODES[sizes.gates],
        layers=layers,
        directions=directions,
        units=sizes.units,
        input_size=sizes.inputs,
        decode=decode,
        tensors=stored,
        dialect="torch",
        dtype=sizes.dtype,
        projection=sizes.projection,
    )


def _cell(mode: Mode, stored: Mapping[str, Tensor], ending: str) -> Cell:
    kernel, recurrent = (stored[name + ending].read() for name in ("weight_ih", "weight_hh"))
    zeros = np.zeros(kernel.shape[0], kernel.dtype)
    bias, recurrent_bias = (
        stored[name + ending].read() if name + ending in stored else zeros for name in _BIASES
    )
    projection = stored[f"weight_hr{ending}"].read() if f"weight_hr{ending}" in stored else None
    return layouts.unpack_rows(mode, layouts.TORCH, (kernel, recurrent), (bias, recurrent_bias), projection)
