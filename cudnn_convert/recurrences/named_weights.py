"""Decoded weights by name: arrays, PyTorch's state dict, layers of Keras 3.

Arrays follow cuDNN's convention, as in `model`: a matrix multiplies a column vector, gates are in the order
of `Mode.gates`, and each gate has two separate biases.

`to_state_dict` uses the names of PyTorch's `nn.LSTM`, `nn.GRU` and `nn.RNN`, whose equations are cuDNN's,
both biases and the position of the GRU's reset gate included. Source: pytorch v2.8.0 torch/nn/modules/rnn.py
(RNNBase.__init__ names and shapes, LSTM and GRU equations).

`build_keras_model` makes a functional model of Keras' `LSTM`, `GRU` or `SimpleRNN`. It has an input `inputs`
`[batch, time, input_size]`, with `states` also `initial_h` (and an LSTM's `initial_c`)
`[batch, layers*directions, units]`; its outputs are `outputs` `[batch, time, directions*units]`, `state_h`
and an LSTM's `state_c`, of the shape of the initial ones. Layer n is named `layer_<n>`; one of two directions
is a `Bidirectional`. Keras is batch-major throughout; lengths become the caller's mask. A layer that is
called with initial states gets no mask from the model's call (keras v3.15.0 src/layers/layer.py
`Layer.__call__` hands one on to a single tensor alone), so with states the mask is an input of its own.
Source: keras v3.15.0 src/layers/rnn/lstm.py, gru.py (`reset_after`), simple_rnn.py, bidirectional.py.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import keras_cells
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.model import WAYS, Array, Cell, Mode, Recurrence, Sizes
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.weights import layouts, npz_archive

_ACTIVATIONS: Final = {Mode.RNN_TANH: "tanh", Mode.RNN_RELU: "relu"}


def name_keras_model(name: str) -> str:
    """Return the name of a recurrence's model and file: the scope in letters and digits."""
    return re.sub(r"\W", "_", re.sub(r"/CudnnRNN(V[23])?(_\d+)?$", "", name)).strip("_") or "rnn"


def name_keras_layer(number: int) -> str:
    """Return the name of layer `number` in a model."""
    return f"layer_{number}"


def explain_keras_refusal(name: str, sizes: Sizes) -> str | None:
    """Return the reason for refusing Keras layers, or None.

    Keras has no layer for a recurrence with a projection.
    """
    if not sizes.projection:
        return None
    return f"{name}: expected no projection, which layers of Keras 3 lack, found {sizes.projection} values"


def build_keras_model(
    name: str,
    sizes: Sizes,
    cells: Sequence[Sequence[Cell]],
    dtype: np.dtype[Any],
    *,
    states: bool = False,
    masked: bool = False,
) -> Any:
    """Build the functional model of a recurrence; `cells` are `[layer][direction]`.

    `masked`: it has an input `mask` `[batch, time]`, false past the end of each row; None where all are full.
    """
    import keras

    kinds = "hc" if sizes.mode is Mode.LSTM else "h"
    depth, kind = sizes.layers * sizes.directions, dtype.name
    x = keras.Input([None, sizes.input_size], name="inputs", dtype=kind)
    inputs = {"inputs": x}
    if states:
        inputs |= {
            f"initial_{key}": keras.Input([depth, sizes.units], name=f"initial_{key}", dtype=kind)
            for key in kinds
        }
    if masked:
        inputs["mask"] = keras.Input([None], name="mask", dtype="bool", optional=True)
    ends: list[list[Any]] = []
    for number in range(sizes.layers):
        rows = range(number * sizes.directions, (number + 1) * sizes.directions)
        begin = [_take(inputs[f"initial_{key}"], row) for row in rows for key in kinds] if states else None
        given = {"mask": inputs["mask"]} if masked else {}
        x, *after = _layer(number, sizes, kind, masked=masked)(x, initial_state=begin, **given)
        ends += [after[first : first + len(kinds)] for first in range(0, len(after), len(kinds))]
    outputs = [keras.layers.Identity(name="outputs", dtype=kind)(x)]
    for number, key in enumerate(kinds):
        joined = _join([end[number] for end in ends])
        outputs.append(keras.layers.Identity(name=f"state_{key}", dtype=kind)(joined))
    # Keras warns of a tensor where it was told of a list.
    model = keras.Model(
        [*inputs.values()] if len(inputs) > 1 else inputs["inputs"], outputs, name=name_keras_model(name)
    )
    for number, layer in enumerate(cells):
        model.get_layer(name_keras_layer(number)).set_weights(
            [value for cell in layer for value in layouts.pack_keras(cell).values()]
        )
    return model


def _take(states: Any, row: int) -> Any:
    """Return row `row` of states `[batch, rows, units]`, by layers known to all Keras programs."""
    import keras

    depth, units, dtype = states.shape[1], states.shape[2], states.dtype
    cropped = keras.layers.Cropping1D((row, depth - row - 1), dtype=dtype)(states) if depth > 1 else states
    return keras.layers.Reshape([units], dtype=dtype)(cropped)


def _join(states: Sequence[Any]) -> Any:
    """Stack states `[batch, units]` as `[batch, rows, units]`."""
    import keras

    dtype = states[0].dtype
    rows = [keras.layers.Reshape([1, state.shape[1]], dtype=dtype)(state) for state in states]
    return keras.layers.Concatenate(axis=1, dtype=dtype)(rows) if len(rows) > 1 else rows[0]


def _layer(number: int, sizes: Sizes, dtype: str, *, masked: bool) -> Any:
    import keras

    named: dict[str, Any] = {"return_sequences": True, "return_state": True, "dtype": dtype}
    if masked:  # as cuDNN, which gives zeros past a row's end
        named |= {"zero_output_for_mask": True}
    classes = {Mode.LSTM: keras.layers.LSTM, Mode.GRU: keras.layers.GRU}
    kind = classes.get(sizes.mode, keras.layers.SimpleRNN)
    if dtype.endswith("16"):  # JAX cannot draw an orthogonal matrix in half precision
        named |= {"recurrent_initializer": "glorot_uniform"}
    if sizes.mode is Mode.GRU:
        named |= {"reset_after": True}
    if sizes.mode in classes:
        named |= {"activation": "tanh", "recurrent_activation": "sigmoid"}
    else:
        named |= {"activation": _ACTIVATIONS[sizes.mode]}
    if sizes.directions == 1:
        return kind(sizes.units, name=name_keras_layer(number), **named)
    return keras.layers.Bidirectional(kind(sizes.units, **named), name=name_keras_layer(number), dtype=dtype)


_FIELDS: Final = ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "projection")


@dataclass(frozen=True, slots=True)
class Weights:
    """The decoded weights and the sizes of a recurrence.

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

    def to_keras(self, *, states: bool = False, cells: bool = False) -> Any:
        """Return a functional `keras.Model` (Keras 3) of `LSTM`, `GRU` or `SimpleRNN` layers.

        The layers have these weights. `inputs` `[batch, time, input_size]` -> `outputs` `[batch, time,
        directions*units]`, `state_h` and an LSTM's `state_c` `[batch, layers*directions, units]`; with
        `states` it takes `initial_h`, `initial_c` and `mask` too, bool `[batch, time]`, false past the end of
        each row, None for full rows: a `mask=` of the call reaches no layer that is called with states. With
        `cells` each layer is an `RNN` of its cell, to call step by step. Unlike `Loaded.to_keras` it compares
        nothing. Raises UnsupportedModelError for a projection, which Keras has no layer of.
        """
        sizes = Sizes(
            Mode(self.mode),
            self.layers,
            self.directions,
            self.units,
            self.input_size,
            self.skip_input,
            self.projection,
        )
        if reason := explain_keras_refusal(self.name, sizes):
            raise UnsupportedModelError(self.name, [reason])
        dtype = next(iter(self.weights.values())).dtype
        model = build_keras_model(
            self.name, sizes, list(self._cells(sizes)), dtype, states=states, masked=states
        )
        return keras_cells.with_cells(model) if cells else model

    def _cells(self, sizes: Sizes) -> Iterator[list[Cell]]:
        for number in range(self.layers):
            layer = []
            for direction in WAYS[: self.directions]:
                prefix = f"layer_{number}/{direction}/"
                parts = {
                    field: self.weights[prefix + field] for field in _FIELDS if prefix + field in self.weights
                }
                # A skipped input is added to every gate as it is.
                skipped = np.stack([np.eye(self.units, dtype=parts["bias"].dtype)] * len(self.gates))
                layer.append(Cell(sizes.mode, **{"kernel": skipped, **parts}))
            yield layer

    def describe(self) -> dict[str, Any]:
        """Return all fields except the arrays, for JSON."""
        description = {name: getattr(self, name) for name in self.__slots__ if name != "weights"}
        return description | {"gates": list(self.gates)}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The recurrences of a source; `notes` are the choices made for absent flags.

    `prove` compares Keras models by recurrence with the float64 reference; None where nothing can.
    """

    source: str
    kind: str
    recurrences: tuple[Weights, ...]
    notes: tuple[str, ...]
    prove: Callable[[str, Any], None] | None = field(default=None, repr=False, compare=False)

    def to_keras(
        self, name: str | None = None, *, states: bool = False, cells: bool = False, verify: bool = True
    ) -> Any:
        """Return the recurrence `name` as a functional model of Keras 3.

        Without `name` it is the only recurrence; see `Weights.to_keras`. Unless `verify` is False, the model
        is run on random inputs and compared with the float64 reference. Raises UsageError for another name,
        or none where there are several, UnsupportedModelError for a projection, VerificationError where the
        numbers differ.
        """
        named = {weights.name: weights for weights in self.recurrences}
        if name is None and len(named) == 1:
            (name,) = named
        if name not in named:
            raise UsageError(
                f"{self.source}: name: expected one of {', '.join(named)}, found {name or 'none'}"
            )
        model = named[name].to_keras(states=states, cells=cells)
        if verify and self.prove is not None:
            self.prove(name, model)
        return model


def decode(single: Single) -> Weights:
    """Return the weights of a recurrence by name, as views of the cells."""
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
    for key in _FIELDS:
        value = getattr(cell, key)
        if value is not None and not (skipped and key == "kernel"):
            yield key, value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def file_metadata(path: Path) -> dict[str, Any]:
    """Read a file's metadata: the provenance, and the `describe` of each recurrence under `weights`.

    Empty for a file that another program wrote. Raises what NumPy and safetensors raise for damaged files.
    """
    if path.suffix.lower() == ".npz":
        text = "".join(
            value.tobytes().decode() for value in npz_archive.load(path, only=npz_archive.RECORD).values()
        )
    else:
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            text = (file.metadata() or {}).get(npz_archive.RECORD, "")
    record: dict[str, Any] = json.loads(text or "{}")
    return record


def arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of an npz or safetensors file by name. Raises as `file_metadata`."""
    if path.suffix.lower() == ".npz":
        return {key: value for key, value in npz_archive.load(path).items() if key != npz_archive.RECORD}
    from safetensors.numpy import load_file

    tensors: dict[str, Array] = load_file(path)
    return tensors


def to_state_dict(recurrence: Recurrence) -> dict[str, Array]:
    """Return the state dict of the PyTorch module with the same weights.

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
