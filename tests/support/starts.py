"""Small models whose recurrences begin with anything, and what they answer by NumPy.

A start is how initial states are made, a structure the recurrences that begin with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import reference
from cudnn_convert.model import Array, Mode, Sizes
from cudnn_convert.weights import parameter_blob
from support.graphs import drawing, placeholder, saved, variable

INPUTS, SPEAKER, WORDS, ENCODED = 5, 4, 9, 3
#: How initial states are made.
STARTS: Final = ("zeros", "constant", "trained", "rows", "first_frame", "encoder", "speaker")
#: Each recurrence: its kind, its layers, its units.
STRUCTURES: Final[Mapping[str, tuple[tuple[Mode, int, int], ...]]] = {
    "one_layer": ((Mode.LSTM, 1, 7),),
    "stacked": ((Mode.GRU, 3, 6),),
    "two_recurrences": ((Mode.GRU, 1, 4), (Mode.LSTM, 2, 8)),
}
_NAMES: Final = {Mode.LSTM: "lstm", Mode.GRU: "gru"}


def drawn(seed: str, *shape: int, scale: float = 0.8) -> Array:
    """Distinct values; zeros would begin a sequence otherwise."""
    rng = np.random.default_rng([*seed.encode()])
    return rng.uniform(-scale, scale, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A start in a structure."""

    start: str
    structure: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the source, by key."""
        more = {"encoder": ("source",), "speaker": ("speaker",)}
        return ("x", *more.get(self.start, ()))

    @property
    def sizes(self) -> list[Sizes]:
        """Those of each recurrence."""
        inputs, found = INPUTS, []
        for mode, layers, units in STRUCTURES[self.structure]:
            found.append(Sizes(mode, layers, 1, units, inputs))
            inputs = units
        return found

    @property
    def values(self) -> dict[str, Array]:
        """The variables."""
        values = {"encoder/blob": drawn("encoder", parameter_blob.length(_ENCODER))}
        values["out"] = drawn("out", self.sizes[-1].units, WORDS)
        for number, sizes in enumerate(self.sizes):
            values[f"rnn_{number}/blob"] = drawn(f"blob{number}", parameter_blob.length(sizes))
            for kind in _kinds(sizes):
                name = f"rnn_{number}/{kind}"
                width = sizes.layers * sizes.units
                values[name] = drawn(name, sizes.layers, 1, sizes.units)
                rows = {"first_frame": INPUTS, "encoder": 2 * ENCODED, "speaker": SPEAKER}
                values[f"{name}/kernel"] = drawn(name, rows.get(self.start, 1), width)
        return values

    def save(self, folder: Path) -> Path:
        """A checkpoint with its MetaGraph."""
        values = self.values
        with drawing() as graph:
            x = placeholder("x", (None, None, INPUTS))
            given = self._given(x, lambda name: variable(name, values[name].shape))
            y = x
            for number, sizes in enumerate(self.sizes):
                states = {
                    kind: self._initial(f"rnn_{number}/{kind}", sizes, y, given, values)
                    for kind in _kinds(sizes)
                }
                y = tf.raw_ops.CudnnRNN(
                    input=y, input_h=states["h"], input_c=states.get("c", tf.zeros([])), is_training=False,
                    params=variable(f"rnn_{number}/blob", values[f"rnn_{number}/blob"].shape),
                    rnn_mode=_NAMES[sizes.mode], name=f"rnn_{number}/CudnnRNN",
                ).output  # fmt: skip
            scores = tf.einsum("tbu,uw->tbw", y, variable("out", values["out"].shape))
            tf.identity(scores, "scores")
        kept = {node.name for node in graph.as_graph_def().node}
        return saved(folder, graph, {name: value for name, value in values.items() if name in kept})

    def _given(self, x: Any, read: Any) -> Any:
        """What each row's states are made of: `[batch, size]`."""
        if self.start == "first_frame":
            return x[0]
        if self.start == "speaker":
            return placeholder("speaker", (None, SPEAKER))
        if self.start == "encoder":
            source = placeholder("source", (None, None, INPUTS))
            zeros = tf.zeros([2, tf.shape(source)[1], ENCODED])
            last = tf.raw_ops.CudnnRNN(
                input=source, input_h=zeros, input_c=tf.zeros([]), params=read("encoder/blob"),
                rnn_mode="gru", direction="bidirectional", is_training=False, name="encoder/CudnnRNN",
            ).output_h  # fmt: skip
            return tf.concat([last[0], last[1]], 1)
        return None

    def _initial(self, name: str, sizes: Sizes, x: Any, given: Any, values: Mapping[str, Array]) -> Any:
        """The state of a recurrence over `x`, of which it takes its number of rows, as layers do."""
        shape = [sizes.layers, tf.shape(x)[1], sizes.units]
        if self.start == "zeros":
            return tf.fill(shape, 0.0)
        if self.start in ("constant", "trained"):
            row = (
                tf.constant(values[name]) if self.start == "constant" else variable(name, values[name].shape)
            )
            return tf.tile(row, [1, shape[1], 1])
        if self.start == "rows":  # each begins with its own
            number = tf.cast(tf.range(shape[1]), tf.float32)[None, :, None]
            return number * variable(name, values[name].shape)
        made = tf.tanh(tf.matmul(given, variable(f"{name}/kernel", values[f"{name}/kernel"].shape)))
        return tf.transpose(tf.reshape(made, [-1, sizes.layers, sizes.units]), [1, 0, 2])

    def feeds(self, rows: int = 3, steps: int = 13) -> dict[str, Array]:
        """Inputs by key, not of the size of any proof."""
        shapes = {"x": (steps, rows, INPUTS), "source": (steps - 4, rows, INPUTS), "speaker": (rows, SPEAKER)}
        return {key: drawn(key, *shapes[key], scale=1.5) for key in self.inputs}

    def answer(self, feeds: Mapping[str, Array]) -> Array:
        """The scores of the whole sequence in float64, by the reference and NumPy."""
        values = {name: value.astype(np.float64) for name, value in self.values.items()}
        y = feeds["x"].astype(np.float64)
        given = self._given_rows(feeds)
        for number, sizes in enumerate(self.sizes):
            states = {"c": np.zeros([sizes.layers, y.shape[1], sizes.units])}
            for kind in _kinds(sizes):
                name = f"rnn_{number}/{kind}"
                states[kind] = _state(self.start, values[name], values[f"{name}/kernel"], given, y.shape[1])
            steps = _steps(self.values[f"rnn_{number}/blob"], sizes)
            y, _, _ = reference.run(steps, y, states["h"], states["c"], directions=1)
        return np.asarray(y @ values["out"])

    def _given_rows(self, feeds: Mapping[str, Array]) -> Array | None:
        if self.start == "first_frame":
            return feeds["x"][0].astype(np.float64)
        if self.start == "speaker":
            return feeds["speaker"].astype(np.float64)
        if self.start != "encoder":
            return None
        source = feeds["source"].astype(np.float64)
        zeros = np.zeros([2, source.shape[1], ENCODED])
        steps = _steps(self.values["encoder/blob"], _ENCODER)
        _, last, _ = reference.run(steps, source, zeros, zeros, directions=2)
        return np.concatenate([last[0], last[1]], 1)


_ENCODER: Final = Sizes(Mode.GRU, 1, 2, ENCODED, INPUTS)


def _kinds(sizes: Sizes) -> str:
    return "hc" if sizes.mode is Mode.LSTM else "h"


def _steps(blob: Array, sizes: Sizes) -> Any:
    return reference.steps_from_blob(
        blob, mode=sizes.mode.value, layers=sizes.layers, directions=sizes.directions, units=sizes.units,
        input_size=sizes.input_size,
    )  # fmt: skip


def _state(start: str, value: Array, kernel: Array, given: Array | None, rows: int) -> Array:
    if start == "zeros":
        return np.zeros([value.shape[0], rows, value.shape[2]])
    if start == "rows":
        return np.arange(rows)[None, :, None] * value
    if given is None:
        return np.tile(value, [1, rows, 1])
    made = np.tanh(given @ kernel).reshape(rows, value.shape[0], value.shape[2])
    return made.swapaxes(0, 1)
