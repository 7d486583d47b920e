"""Names of the regions of a blob saved by TensorFlow 1.0 to 1.3.

Keys are `<name scope>CudnnRNNParamsToCanonical[_<n>]:<k>`: all weights, then as many biases, both in cuDNN's
order of pseudo-layers and linear layer ids, biases not summed. Concatenated they are the blob. (TensorFlow
1.3: plain RNNs and bidirectional layers only.) A weight may be stored flat, or with the shape
`[inputs, units]` although its memory is row-major `[units, inputs]`; so only sizes are compared, not shapes.

These versions saved only the first `layers` of the `2*layers` pseudo-layers of a bidirectional layer, so a
set of keys may be half a layer.
Source: tensorflow v1.2.0 and v1.3.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py RNNParamsSaveable, kernels/
cudnn_rnn_ops.cc CudnnRNNParamsToCanonical.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, Cell, Mode, Sizes, Tensor
from cudnn_convert.read.dialects.shapes import MODES
from cudnn_convert.weights import parameter_blob

_KEY: Final = re.compile(r"(?P<op>(?P<scope>(?:.*/)?)CudnnRNNParamsToCanonical(?:_\d+)?):(?P<k>\d{1,9})")
_COMPLETE: Final = "is the checkpoint complete?"


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every set of region keys, once for each fitting mode. Raises ReadError."""
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    scopes = {}
    for key in tensors:
        if match := _KEY.fullmatch(key):
            groups[match["op"]][int(match["k"])] = key
            scopes[match["op"]] = match["scope"]
    readings = []
    for op, keys in sorted(groups.items()):
        if sorted(keys) != list(range(len(keys))) or len(keys) % 2:
            expected, listed = "as many weights as biases", f"outputs {sorted(keys)}"
            raise ReadError(path, op, expected=expected, found=listed, advice=_COMPLETE)
        # Two ops in one scope are two layers: the op's own name keeps them apart.
        scope = scopes[op] if op.endswith("CudnnRNNParamsToCanonical") else f"{op}/"
        readings += _readings(_Regions(path, op, scope, [tensors[keys[k]] for k in range(len(keys))]))
    return tuple(readings)


@dataclass(frozen=True, slots=True)
class _Regions:
    """The tensors of an op, in the order of the outputs."""

    path: Path
    op: str
    scope: str
    tensors: Sequence[Tensor]

    def cells(self, sizes: Sizes) -> tuple[tuple[Cell, ...], ...]:
        blob = np.concatenate([tensor.read().ravel() for tensor in self.tensors])
        if blob.size != parameter_blob.length(sizes):
            expected = f"{parameter_blob.length(sizes)} values of {sizes.layers} layers of one direction"
            half = f"{blob.size}: half of a bidirectional layer, all that TensorFlow before 1.4 saved of it"
            advice = "convert its blob with --directions 2"
            raise ReadError(self.path, self.op, expected=expected, found=half, advice=advice)
        return parameter_blob.split(blob, sizes, where=self.op)


def _readings(regions: _Regions) -> list[CanonicalParameters]:
    """List the layers fitting the weights' number and sizes, half layers included."""
    counts = [math.prod(tensor.shape) for tensor in regions.tensors]
    if min(counts) < 1:
        empty = counts.index(min(counts))
        expected, actual = "weights and biases", f"output {empty} of shape {regions.tensors[empty].shape}"
        raise ReadError(regions.path, regions.op, expected=expected, found=actual, advice=_COMPLETE)
    weights, units = counts[: len(counts) // 2], counts[-1]
    inputs, square = weights[0] // units, units * units
    readings = []
    for gates, modes in MODES.items():
        layers, rest = divmod(len(weights), 2 * gates)
        first = [inputs * units] * gates + [square] * gates
        whole = first + [square] * (2 * gates * (layers - 1))
        # The second pseudo-layer of a bidirectional layer sees the model's input again.
        half = first + first + ([2 * square] * gates + [square] * gates) * layers
        if rest == 0 and weights in (whole, half[: len(weights)]):
            readings.append(_parameters(regions, modes, Sizes(modes[0], layers, 1, units, inputs)))
    return readings


def _parameters(regions: _Regions, modes: tuple[Mode, ...], sizes: Sizes) -> CanonicalParameters:
    return CanonicalParameters(
        scope=regions.scope,
        modes=modes,
        layers=sizes.layers,
        directions=1,
        units=sizes.units,
        input_size=sizes.input_size,
        decode=lambda mode: regions.cells(replace(sizes, mode=mode)),
        tensors={str(k): tensor for k, tensor in enumerate(regions.tensors)},
        dialect="regions",
        dtype=regions.tensors[0].dtype,
        may_be_half=True,
    )
