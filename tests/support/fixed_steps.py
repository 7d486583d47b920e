"""Small graphs of TensorFlow 1 that fix the number of their steps, and what they answer by NumPy."""

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
from support.starts import drawn

STEPS: Final = 10
_SPEAKER, _WORDS = 3, 9


@dataclass(frozen=True)
class FixedCase:
    """A graph over ten steps; `kind` says where beside its placeholder their number stands.

    * `reshape`: `[-1, 10, words]`, batch first, as `[10, -1, words]` else
    * `product`: in a product with the rows, `[10 * rows, inputs]`
    * `tile`, `fill`: an input of each row that is repeated for all steps, and a constant one
    * `mask`: a second input with the steps
    * `slice`, `last`: `x[:10]`, and the last step alone, `y[9]`
    * `table`, `flat`: a row for each step is added; a product over all steps
    * `rows`: the batch is ten too
    """

    kind: str
    units: int = 7
    inputs: int = 5

    @property
    def sizes(self) -> Sizes:
        more = _SPEAKER if self.kind == "tile" else 1 if self.kind == "fill" else 0
        return Sizes(Mode.GRU, 2, 1, self.units, self.inputs + more)

    @property
    def values(self) -> dict[str, Array]:
        """The variables."""
        rows = self.units * (STEPS if self.kind == "flat" else 1)
        return {
            "blob": drawn("blob", parameter_blob.length(self.sizes)),
            "out": drawn("out", rows, _WORDS),
            "table": drawn("table", STEPS, 1, self.inputs),
        }

    def save(self, folder: Path) -> Path:
        """A checkpoint with its MetaGraph."""
        values = self.values
        with drawing() as graph:
            y = self._after(self._recurrence(self._before(values)), values)
            tf.identity(y, "scores")
        kept = {node.name for node in graph.as_graph_def().node}
        return saved(folder, graph, {name: value for name, value in values.items() if name in kept})

    def _before(self, values: Mapping[str, Array]) -> Any:
        """The input of the recurrence, `[steps, rows, inputs]`."""
        rows = STEPS if self.kind == "rows" else None
        if self.kind == "reshape":
            return tf.transpose(placeholder("x", (rows, STEPS, self.inputs)), [1, 0, 2])
        x = placeholder("x", (STEPS, rows, self.inputs))
        count, size = tf.shape(x)[1], self.inputs
        match self.kind:
            case "product":
                x = tf.reshape(tf.tanh(tf.reshape(x, [STEPS * count, size])), [STEPS, count, size])
            case "tile":
                speaker = placeholder("speaker", (None, _SPEAKER))
                x = tf.concat([x, tf.tile(speaker[tf.newaxis], [STEPS, 1, 1])], 2)
            case "fill":
                x = tf.concat([x, tf.fill([STEPS, count, 1], 0.25)], 2)
            case "mask":
                x *= tf.reshape(placeholder("mask", (STEPS, None)), [STEPS, -1, 1])
            case "slice":
                x = x[:STEPS]
            case "table":
                x += variable("table", values["table"].shape)
        return x

    def _recurrence(self, x: Any) -> Any:
        return tf.raw_ops.CudnnRNN(
            input=x, input_h=tf.zeros([2, tf.shape(x)[1], self.units]), input_c=tf.zeros([]),
            params=variable("blob", self.values["blob"].shape), rnn_mode="gru", is_training=False,
            name="rnn/CudnnRNN",
        ).output  # fmt: skip

    def _after(self, y: Any, values: Mapping[str, Array]) -> Any:
        out = variable("out", values["out"].shape)
        if self.kind == "last":
            return tf.matmul(y[STEPS - 1], out)
        if self.kind == "flat":
            return tf.matmul(tf.reshape(tf.transpose(y, [1, 0, 2]), [-1, STEPS * self.units]), out)
        y = tf.transpose(y, [1, 0, 2]) if self.kind == "reshape" else y
        words = tf.matmul(tf.reshape(y, [-1, self.units]), out)
        return tf.reshape(words, [-1, STEPS, _WORDS] if self.kind == "reshape" else [STEPS, -1, _WORDS])

    def feeds(self, rows: int = 3) -> dict[str, Array]:
        """Inputs by key, of the one number of steps that the source takes."""
        shape = (rows, STEPS) if self.kind == "reshape" else (STEPS, rows)
        more = {"tile": {"speaker": (rows, _SPEAKER)}, "mask": {"mask": shape}}.get(self.kind, {})
        return {
            key: drawn(key, *size, scale=1.5) for key, size in {"x": (*shape, self.inputs), **more}.items()
        }

    def answer(self, feeds: Mapping[str, Array]) -> Array:
        """The scores of the whole sequence in float64, by the reference and NumPy."""
        x = feeds["x"].astype(np.float64)
        x = x.swapaxes(0, 1) if self.kind == "reshape" else x
        steps, rows, _ = x.shape
        match self.kind:
            case "product":
                x = np.tanh(x)
            case "tile":
                x = np.concatenate([x, np.broadcast_to(feeds["speaker"], (steps, rows, _SPEAKER))], 2)
            case "fill":
                x = np.concatenate([x, np.full((steps, rows, 1), 0.25)], 2)
            case "mask":
                x = x * feeds["mask"][:, :, None]
        sizes, zeros = self.sizes, np.zeros([2, rows, self.units])
        weights = reference.steps_from_blob(
            self.values["blob"], mode="gru", layers=2, directions=1, units=self.units,
            input_size=sizes.input_size,
        )  # fmt: skip
        y, _, _ = reference.run(weights, x, zeros, zeros, directions=1)
        y = y.swapaxes(0, 1) if self.kind == "reshape" else y
        return np.asarray((y[-1] if self.kind == "last" else y) @ self.values["out"])
