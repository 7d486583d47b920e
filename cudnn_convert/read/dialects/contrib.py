"""Names of canonical weights of tf.contrib cuDNN layers, TensorFlow 1.3 to 1.15.

Beside the raw blob, a layer's saveable writes `<scope><stem><cell>/<key>`, with the stem

* `rnn/multi_rnn_cell/cell_<i>/` for one direction,
* `stack_bidirectional_rnn/cell_<i>/bidirectional_rnn/<fw|bw>/` for two,
* `multi_rnn_cell/cell_<i>/` in TensorFlow 1.3, for LSTM and GRU of one direction, which also stores the
  unsummed biases under separate keys: not needed here.

`<scope>` is the scope that was current when the layer was built: the layer's own where it was called, the
enclosing one where `build()` was called first. Tanh and relu share a cell name, so names cannot separate
them. An object-based checkpoint (`tf.train.Checkpoint`, TensorFlow 1.8-1.15) stores a unidirectional LSTM as
`<path>cell-<i>/<key>/.ATTRIBUTES/VARIABLE_VALUE`, without a cell name; a single layer also without
`cell-<i>/`.

Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/layers/cudnn_rnn.py `_create_saveable` and
ops/cudnn_rnn_ops.py `Cudnn*Saveable._tf_canonical_name_prefix`, `_checkpoint_dependencies`; the same names
in v1.4.0-v1.15.0; v1.3.0 ops/cudnn_rnn_ops.py `RNNParamsSaveable._transformed_*_names`.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, Mode, Tensor
from cudnn_convert.read.tensorbundle import object_graph
from cudnn_convert.weights import layouts, lazy
from cudnn_convert.weights.lazy import LazyLayers

CELLS: Final = MappingProxyType(
    {
        "cudnn_compatible_lstm_cell": (Mode.LSTM,),
        "cudnn_compatible_gru_cell": (Mode.GRU,),
        "basic_rnn_cell": (Mode.RNN_TANH, Mode.RNN_RELU),
    }
)
_VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
_WHOLE: Final = "does the whole checkpoint belong to one model?"


@dataclass(frozen=True, slots=True)
class _KeySpelling:
    """The spelling of keys by a single writer.

    `stems` has a key prefix for each direction, `suffix` follows the key, `cell` is the cell where the key
    does not name it.
    """

    stems: tuple[str, ...]
    suffix: str = ""
    cell: str | None = None
    note: str | None = None
    may_be_dense: bool = False

    def pattern(self) -> re.Pattern[str]:
        """Return a regular expression for a tensor's whole key, in any direction."""
        ways = "|".join(re.escape(stem).replace(r"\{layer\}", r"(\d{1,9})") for stem in self.stems)
        cell = "" if self.cell else f"(?P<cell>{'|'.join(CELLS)})/"
        key = r"(?P<key>kernel|bias|gates/(?:kernel|bias)|candidate/\w+/(?:kernel|bias))"
        return re.compile(rf"(?P<scope>(?:.*/)?)(?P<stem>{ways}){cell}{key}{re.escape(self.suffix)}")


#: Tried in this order: later stems are suffixes of earlier ones.
_FORMS: Final = (
    _KeySpelling(("rnn/multi_rnn_cell/cell_{layer}/",)),
    _KeySpelling(
        (
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/fw/",
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/bw/",
        )
    ),
    _KeySpelling(("multi_rnn_cell/cell_{layer}/",)),
    _KeySpelling(
        ("cell-{layer}/",),
        _VALUE,
        "cudnn_compatible_lstm_cell",
        "object-based keys cell-<i>/kernel: read as CudnnLSTM's; cells that add a forget bias of their own "
        "have the same names, and need --forget-bias 1",
    ),
    _KeySpelling(("",), _VALUE, "cudnn_compatible_lstm_cell", may_be_dense=True),
)
_PATTERNS: Final = tuple((form, form.pattern()) for form in _FORMS)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every set of canonical keys in `tensors`, sorted by scope. Raises ReadError.

    `tensors` are those of a checkpoint.
    """
    numbers: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    objects = object_graph.list_variable_names(tensors)
    for key in tensors:
        for number, (form, pattern) in enumerate(_PATTERNS):
            if match := pattern.fullmatch(key):
                if form.may_be_dense and objects.get(key):
                    break  # a variable, as in a dense layer: a slice of a blob has no variable name
                cell = form.cell or match["cell"]
                numbers[match["scope"], number, cell].add(int((re.findall(r"\d+", match["stem"]) or [0])[0]))
                break
    sizes = (
        _parameters(_Set(path, tensors, scope, _FORMS[number], cell, min(max(seen), len(tensors)) + 1))
        for (scope, number, cell), seen in sorted(numbers.items())
    )
    return tuple(parameters for parameters in sizes if parameters is not None)


@dataclass(frozen=True, slots=True)
class _Set:
    """The keys of a single layer object."""

    path: Path
    tensors: Mapping[str, Tensor]
    scope: str
    form: _KeySpelling
    cell: str
    layers: int

    def key(self, layer: int, direction: int, name: str) -> str:
        """Return the key as stored in the checkpoint."""
        cell = "" if self.form.cell else f"{self.cell}/"
        return f"{self.scope}{self.form.stems[direction].format(layer=layer)}{cell}{name}{self.form.suffix}"

    def plain(self, layer: int, direction: int, name: str) -> str:
        """Return the key for `CanonicalParameters.tensors`, scope left out.

        TensorFlow 1.4-1.15 spells it so.
        """
        form = self.form if len(self.form.stems) > 1 else _FORMS[0]
        return f"{form.stems[direction].format(layer=layer)}{self.cell}/{name}"


def _parameters(keys: _Set) -> CanonicalParameters | None:
    modes, directions = CELLS[keys.cell], len(keys.form.stems)
    summed = modes[0] is not Mode.GRU
    bias = keys.tensors.get(keys.key(0, 0, "bias" if summed else "candidate/hidden_projection/bias"))
    kernel_key = keys.key(0, 0, "kernel" if summed else "candidate/input_projection/kernel")
    kernel = keys.tensors.get(kernel_key)
    if bias is None or kernel is None or len(bias.shape) != 1 or len(kernel.shape) != 2:
        return None  # cells of another kind under these names
    if keys.form.may_be_dense and not _may_be_lstm(keys, kernel.shape, bias.shape):
        return None
    units = bias.shape[0] // (len(modes[0].gates) if summed else 1)
    inputs = kernel.shape[0] - (units if summed else 0)
    if units < 1 or inputs < 1:
        if keys.form.may_be_dense:
            return None
        more = f"more than {units} rows, the units of its bias"
        expected = more if summed and units else "a kernel with units and inputs"
        actual = f"shape {kernel.shape}, with a bias of {bias.shape}"
        raise ReadError(keys.path, kernel_key, expected=expected, found=actual, advice=_WHOLE)

    def decode(mode: Mode) -> LazyLayers:
        widths = [inputs] + [directions * units] * (keys.layers - 1)
        layers = [
            [
                _read_cell(keys, layer, direction, mode, units=units, inputs=width)
                for direction in range(directions)
            ]
            for layer, width in enumerate(widths)
        ]
        return LazyLayers(
            keys.layers,
            lambda layer: tuple(
                layouts.unpack_contrib(mode, {**lazy.read(direction)}) for direction in layers[layer]
            ),
        )

    names = layouts.contrib_shapes(modes[0], units=units, inputs=inputs)
    every = product(range(keys.layers), range(directions), names)
    stored = {keys.plain(*each): keys.tensors.get(keys.key(*each)) for each in every}
    return CanonicalParameters(
        keys.scope, modes, keys.layers, directions, units, inputs, decode,
        {key: tensor for key, tensor in stored.items() if tensor is not None},
        dtype=kernel.dtype, note=keys.form.note,
        may_be_dense=keys.form.may_be_dense,
    )  # fmt: skip


def _may_be_lstm(keys: _Set, kernel: tuple[int, ...], bias: tuple[int, ...]) -> bool:
    """Return True if keys lacking a cell name may be of an LSTM.

    They fit where they have its sizes, and no `recurrent_kernel`.
    """
    recurrent = keys.key(0, 0, "recurrent_kernel") in keys.tensors
    return not recurrent and bias[0] % 4 == 0 and kernel[1] == bias[0] and kernel[0] > bias[0] // 4


def _read_cell(
    keys: _Set, layer: int, direction: int, mode: Mode, *, units: int, inputs: int
) -> dict[str, Tensor]:
    """Return a cell's tensors by weight name. Raises ReadError where a tensor misfits."""
    shapes = layouts.contrib_shapes(mode, units=units, inputs=inputs)
    for name, shape in shapes.items():
        key = keys.key(layer, direction, name)
        tensor = keys.tensors.get(key)
        if tensor is None or tensor.shape != shape:
            actual = "no such key" if tensor is None else f"shape {tensor.shape}"
            raise ReadError(keys.path, key, expected=f"shape {shape}", found=actual, advice=_WHOLE)
    return {name: keys.tensors[keys.key(layer, direction, name)] for name in shapes}
