"""Decoded weights by name: of `load`, of npz and safetensors, of PyTorch.

Arrays follow cuDNN's convention, as in `model`: a matrix multiplies a column vector, gates are in the order
of `Mode.gates`, and each gate has two separate biases.

`to_state_dict` uses the names of PyTorch's `nn.LSTM`, `nn.GRU` and `nn.RNN`, whose equations are cuDNN's,
both biases and the position of the GRU's reset gate included. Source: pytorch v2.8.0 torch/nn/modules/rnn.py
(RNNBase.__init__ names and shapes, LSTM and GRU equations).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.model import WAYS, Array, Cell, Recurrence
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.weights import layouts, npz_archive

#: The metadata key of a file, with the provenance and `describe` of each recurrence.
KEY: Final = "cudnn_convert"


@dataclass(frozen=True, slots=True)
class Weights:
    """The decoded weights of one recurrence, and its sizes.

    `weights` has the keys `layer_<n>/<forward|backward>/<field>`, n from 0:

    | field | shape |
    |---|---|
    | `kernel` | `[gates, units, inputs]`; none in layer 0 with `skip_input` |
    | `recurrent_kernel` | `[gates, units, width]`, `width` being `projection`, or without one `units` |
    | `bias`, `recurrent_bias` | `[gates, units]` |
    | `projection` | `[projection, units]`, only in a projected LSTM |

    `inputs` is `input_size` in layer 0, `directions * width` above. `gates` names the first axis, in order.
    `name` is the node, or the scope of weights without a graph; `mode` is `lstm`, `gru`, `rnn_tanh` or
    `rnn_relu`; `layout` is the first axis of its input and output, `time` or `batch`. The arrays have
    `dtype`; bfloat16, which NumPy lacks, becomes float32.
    """

    name: str
    mode: str
    gates: tuple[str, ...]
    layers: int
    directions: int
    units: int
    input_size: int
    projection: int
    skip_input: bool
    dtype: str
    layout: str
    weights: Mapping[str, Array]

    def describe(self) -> dict[str, Any]:
        """All fields except the arrays, for JSON."""
        description = {name: getattr(self, name) for name in self.__slots__ if name != "weights"}
        return description | {"gates": list(self.gates)}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The recurrences of a source; `notes` are the choices made without a flag."""

    source: str
    kind: str
    recurrences: tuple[Weights, ...]
    notes: tuple[str, ...]


def decode(single: Single) -> Weights:
    """The weights of a recurrence by name, as views of its cells."""
    recurrence = single.recurrence
    sizes, named = recurrence.sizes, dict[str, Array]()
    for number, layer in enumerate(recurrence.cells):
        for direction, cell in zip(WAYS, layer, strict=False):
            skipped = number == 0 and sizes.skip_input
            named |= {
                f"layer_{number}/{direction}/{key}": value for key, value in _fields(cell, skipped=skipped)
            }
    return Weights(
        name=single.name,
        mode=sizes.mode.value,
        gates=tuple(gate.value for gate in sizes.mode.gates),
        layers=sizes.layers,
        directions=sizes.directions,
        units=sizes.units,
        input_size=sizes.input_size,
        projection=sizes.projection,
        skip_input=sizes.skip_input,
        dtype=recurrence.dtype.name,
        layout="batch" if single.batch_major else "time",
        weights=named,
    )


def _fields(cell: Cell, *, skipped: bool) -> Iterator[tuple[str, Array]]:
    for key in ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "projection"):
        value = getattr(cell, key)
        if value is not None and not (skipped and key == "kernel"):
            yield key, value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def file_metadata(path: Path) -> dict[str, Any]:
    """A file's metadata: the provenance, and under `weights` the `describe` of each recurrence.

    Empty for a file that another program wrote. Raises what NumPy and safetensors raise for damaged files.
    """
    if path.suffix == ".npz":
        text = "".join(value.tobytes().decode() for value in npz_archive.load(path, only=KEY).values())
    else:
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            text = (file.metadata() or {}).get(KEY, "")
    record: dict[str, Any] = json.loads(text or "{}")
    return record


def arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npz or safetensors file by name. Raises as `file_metadata`."""
    if path.suffix == ".npz":
        return {key: value for key, value in npz_archive.load(path).items() if key != KEY}
    from safetensors.numpy import load_file

    tensors: dict[str, Array] = load_file(path)
    return tensors


def to_state_dict(recurrence: Recurrence) -> dict[str, Array]:
    """The state dict of the PyTorch module with the same weights.

    Shapes: `weight_ih_l<n>` `[gates*units, inputs]`, `weight_hh_l<n>` `[gates*units, width]`, `bias_ih_l<n>`
    and `bias_hh_l<n>` `[gates*units]`, with a projection `weight_hr_l<n>` `[width, units]`. Keys of the
    backward direction end in `_reverse`.
    """
    state: dict[str, Array] = {}
    for number, layer in enumerate(recurrence.cells):
        for cell, ending in zip(layer, ("", "_reverse"), strict=False):
            kernel, recurrent = (np.concatenate(each) for each in layouts.rows(cell, layouts.TORCH))
            bias, recurrent_bias = layouts.biases(cell, layouts.TORCH)
            named = {"weight_ih": kernel, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": recurrent_bias}
            named |= {} if cell.projection is None else {"weight_hr": cell.projection}
            state |= {f"{key}_l{number}{ending}": value for key, value in named.items()}
    return state
