"""As `changes`, of the tensors that a repaired SavedModel computes on: its weights stay variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from mutants import changes
from mutants.steps import Layer
from support.cases import Case

from cudnn_convert.model import Gate, Mode
from cudnn_convert.weights.layouts import Layout

#: Kernel, recurrent kernel, bias, and a GRU's recurrent bias; gates in the last axis, in a layout's order.
Arrays = Sequence[Any]
Change = Callable[[Arrays, Sequence[Gate]], Arrays]


def of_arrays(change: Change, layer: Layer) -> Layer:
    """A layer that gets changed arrays."""
    layout: Layout = layer.keywords["layout"]  # type: ignore[attr-defined]

    def changed(mode: Mode, x: Any, state: Any, lengths: Any, arrays: Arrays, **named: Any) -> Any:
        return layer(mode, x, state, lengths, tuple(change(arrays, layout.gates[mode])), **named)

    return changed


def _at(place: int, change: Callable[[Any], Any]) -> Change:
    return lambda arrays, _: [change(array) if k == place else array for k, array in enumerate(arrays)]


def _transposed(matrix: Any) -> Any:
    return tf.reshape(tf.transpose(matrix), tf.shape(matrix))


def _parted(array: Any, order: Sequence[Gate]) -> dict[Gate, Any]:
    return dict(zip(order, tf.split(array, len(order), -1), strict=True))


def _joined(parts: dict[Gate, Any]) -> Any:
    return tf.concat([*parts.values()], -1)


def forget_bias_shifted(arrays: Arrays, order: Sequence[Gate]) -> Arrays:
    kernel, recurrent, bias = arrays
    parts = _parted(bias, order)
    return kernel, recurrent, _joined({**parts, Gate.FORGET: parts[Gate.FORGET] + 1})


def candidate_biases_swapped(arrays: Arrays, order: Sequence[Gate]) -> Arrays:
    kernel, recurrent, *biases = arrays
    one, other = (_parted(bias, order) for bias in biases)
    one[Gate.CANDIDATE], other[Gate.CANDIDATE] = other[Gate.CANDIDATE], one[Gate.CANDIDATE]
    return kernel, recurrent, _joined(one), _joined(other)


def gates_swapped(first: Gate, second: Gate, arrays: Arrays, order: Sequence[Gate]) -> Arrays:
    places = {first: second, second: first}
    parted = [_parted(array, order) for array in arrays]
    return [_joined({gate: parts[places.get(gate, gate)] for gate in order}) for parts in parted]


def of_weights(mode: Mode) -> dict[str, Change]:
    """What changes the arrays of a mode, by name."""
    found: dict[str, Change] = {
        "transposed_kernel": _at(0, _transposed),
        "transposed_recurrent_kernel": _at(1, _transposed),
        "without_bias": _at(2, tf.zeros_like),
    }
    if mode is Mode.GRU:  # else one bias is all
        found["without_recurrent_bias"] = _at(3, tf.zeros_like)
        found["candidate_biases_swapped"] = candidate_biases_swapped
    if mode is Mode.LSTM:
        found["forget_bias_shifted"] = forget_bias_shifted
    for a, b in changes.pairs(mode):
        found[f"gates_{a}_{b}_swapped"] = partial(gates_swapped, mode.gates[a], mode.gates[b])
    return found


def exported(mode: Mode, folder: Path) -> Path:
    """A SavedModel of TensorFlow 2: a node of two directions with lengths and states, its blob a variable."""
    case, module = Case(mode, directions=2, op="CudnnRNNV3"), tf.Module()
    module.blob = tf.Variable(case.blob)
    hidden, cell = case.sizes.states(time_major=True)
    specs = {"x": tf.TensorSpec([None, None, case.inputs]), "h": tf.TensorSpec(hidden)}
    specs |= {"c": tf.TensorSpec(cell)} if mode is Mode.LSTM else {}

    @tf.function
    def call(x: Any, h: Any, lengths: Any, c: Any = 0.0) -> dict[str, Any]:
        found = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=h, input_c=c, params=module.blob, sequence_lengths=lengths,
            rnn_mode=mode.value, direction="bidirectional", is_training=False,
        )  # fmt: skip
        ends = {"y": found.output, "h_n": found.output_h}
        return ends | ({"c_n": found.output_c} if mode is Mode.LSTM else {})

    signature = call.get_concrete_function(**specs, lengths=tf.TensorSpec([None], tf.int32))
    tf.saved_model.save(module, str(folder), signatures=signature)
    return folder
