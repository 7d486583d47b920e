"""The names under which `tf.contrib.cudnn_rnn` layers of TensorFlow 1.4-1.15 save their weights.

A layer's saveable writes, beside the raw `opaque_kernel`, the variables of the CPU-compatible cells:
`<scope>rnn/multi_rnn_cell/cell_<i>/<cell>/<key>` for one direction, and
`<scope>stack_bidirectional_rnn/cell_<i>/bidirectional_rnn/<fw|bw>/<cell>/<key>` for two. `<scope>` is the
scope that was current when the layer was built: the layer's own where it was called, the one around it
where `build()` was called first. Tanh and relu share the cell name, so names alone cannot tell them apart.

Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/layers/cudnn_rnn.py `_create_saveable` and
ops/cudnn_rnn_ops.py `Cudnn*Saveable._tf_canonical_name_prefix`; the same names in v1.4.0-v1.15.0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cudnn_convert import layouts
from cudnn_convert.errors import ReadError
from cudnn_convert.model import Array, CanonicalParameters, Cell, Mode, Tensor

CELLS: Final = MappingProxyType(
    {
        "cudnn_compatible_lstm_cell": (Mode.LSTM,),
        "cudnn_compatible_gru_cell": (Mode.GRU,),
        "basic_rnn_cell": (Mode.RNN_TANH, Mode.RNN_RELU),
    }
)
#: The stem of one layer's cell in each direction, by the number of directions.
STEMS: Final = MappingProxyType(
    {
        1: ("rnn/multi_rnn_cell/cell_{layer}/",),
        2: (
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/fw/",
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/bw/",
        ),
    }
)
_KEY: Final = re.compile(
    r"(?P<scope>(?:.*/)?)(?:rnn/multi_rnn_cell/cell_|(?P<both>stack_bidirectional_rnn)/cell_)(?P<layer>\d+)/"
    r"(?(both)bidirectional_rnn/(?:fw|bw)/)(?P<cell>"
    + "|".join(CELLS)
    + r")/(?:kernel|bias|gates/.*|candidate/.*)"
)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Every set of canonical keys among a checkpoint's `tensors`, in the order of their scopes."""
    layers: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for key in tensors:
        if match := _KEY.fullmatch(key):
            group = (match["scope"], 2 if match["both"] else 1, match["cell"])
            layers[group].add(int(match["layer"]))
    found = (
        _parameters(path, tensors, *group, layers=max(seen) + 1) for group, seen in sorted(layers.items())
    )
    return tuple(parameters for parameters in found if parameters is not None)


def _parameters(
    path: Path, tensors: Mapping[str, Tensor], scope: str, directions: int, cell: str, *, layers: int
) -> CanonicalParameters | None:
    first = scope + STEMS[directions][0].format(layer=0) + cell + "/"
    biases = [tensors.get(first + key) for key in ("bias", "candidate/hidden_projection/bias")]
    kernels = [tensors.get(first + key) for key in ("kernel", "candidate/input_projection/kernel")]
    bias, kernel = (next((t for t in pair if t is not None), None) for pair in (biases, kernels))
    if bias is None or kernel is None or len(bias.shape) != 1 or len(kernel.shape) != 2:
        return None  # another project's cells; a cuDNN layer of ours would miss them by name
    modes = CELLS[cell]
    summed = modes[0] is not Mode.GRU
    units = bias.shape[0] // (len(modes[0].gates) if summed else 1)
    inputs = kernel.shape[0] - (units if summed else 0)
    stems = [[scope + stem.format(layer=i) + cell + "/" for stem in STEMS[directions]] for i in range(layers)]

    def cell_of(mode: Mode, stem: str, width: int) -> Cell:
        return layouts.unpack_contrib(mode, _cell(path, tensors, stem, mode, units=units, inputs=width))

    def decode(mode: Mode) -> tuple[tuple[Cell, ...], ...]:
        widths = [inputs] + [directions * units] * (layers - 1)
        pairs = zip(stems, widths, strict=True)
        return tuple(tuple(cell_of(mode, stem, width) for stem in row) for row, width in pairs)

    def stored() -> Mapping[str, Array]:
        keys = (key for row in stems for stem in row for key in tensors if key.startswith(stem))
        return {key.removeprefix(scope): tensors[key].read() for key in keys if _KEY.fullmatch(key)}

    return CanonicalParameters(scope, modes, layers, directions, units, inputs, decode, stored)


def _cell(
    path: Path, tensors: Mapping[str, Tensor], stem: str, mode: Mode, *, units: int, inputs: int
) -> dict[str, Array]:
    shapes = layouts.contrib_shapes(mode, units=units, inputs=inputs)
    for key, shape in shapes.items():
        tensor = tensors.get(stem + key)
        if tensor is None or tensor.shape != shape:
            found = "no such key" if tensor is None else f"shape {tensor.shape}"
            raise ReadError(path, stem + key, expected=f"shape {shape}", found=found)
    return {key: tensors[stem + key].read() for key in shapes}
