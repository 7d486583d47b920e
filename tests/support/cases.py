"""One cuDNN node in a small graph, with random distinct weights, and what the reference makes of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert import reference
from cudnn_convert.model import Array, BlobEvidence, Mode, Recurrence, Signature, Sizes
from cudnn_convert.weights import parameter_blob

STEPS, BATCH, INPUTS, UNITS = 7, 3, 4, 5
v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Case:
    """One cuDNN node: what its graph is made from, and what the reference computes it with."""

    mode: Mode
    layers: int = 1
    directions: int = 1
    op: str = "CudnnRNN"
    time_major: bool = True
    dtype: str = "float32"
    units: int = UNITS
    input_mode: str = "linear_input"
    projection: int = 0

    @property
    def inputs(self) -> int:
        return INPUTS if self.input_mode == "linear_input" else self.units

    @property
    def sizes(self) -> Sizes:
        skip = self.input_mode != "linear_input"
        return Sizes(self.mode, self.layers, self.directions, self.units, self.inputs, skip, self.projection)

    @property
    def depth(self) -> int:
        return self.layers * self.directions

    @property
    def blob(self) -> Array:
        """Distinct values of a fixed seed, so that no swap of two parts goes unseen."""
        random = np.random.default_rng(self.depth + len(self.mode.value))
        return random.uniform(-0.5, 0.5, parameter_blob.length(self.sizes)).astype(self.dtype)

    def recurrence(self, node: str = "rnn") -> Recurrence:
        """The decoded node."""
        return Recurrence(
            node,
            self.op,
            self.sizes,
            self.time_major,
            self.op == "CudnnRNNV3",
            np.dtype(self.dtype),
            parameter_blob.split(self.blob, self.sizes, where=node),
            BlobEvidence(self.blob),
            f"{node}/blob",
        )

    def op_call(
        self, x: Any, h: Any, c: Any, lengths: Any = None, *, params: Any = None, name: str = "rnn"
    ) -> Any:
        """The cuDNN op in the graph under construction; its parameters are `params`, else a constant."""
        call = getattr(tf.raw_ops, self.op)
        extra = (
            {"sequence_lengths": lengths, "time_major": self.time_major, "num_proj": self.projection}
            if self.op == "CudnnRNNV3"
            else {}
        )
        way = "bidirectional" if self.directions == 2 else "unidirectional"
        return call(
            input=x,
            input_h=h,
            input_c=c,
            params=tf.constant(self.blob, name=f"{name}/blob") if params is None else params,
            rnn_mode=self.mode.value,
            input_mode=self.input_mode,
            direction=way,
            is_training=False,
            name=name,
            **extra,
        )

    def placeholders(self) -> list[Any]:
        """x, h, c and, for V3, the lengths."""
        hidden, cell = (
            [self.depth, None, width] if self.time_major else [None, self.depth, width]
            for width in (self.sizes.width, self.units)
        )
        is_lstm = self.mode is Mode.LSTM
        found = [
            v1.placeholder(self.dtype, [None, None, self.inputs], "x"),
            v1.placeholder(self.dtype, hidden, "h"),
            v1.placeholder(self.dtype, cell if is_lstm else [], "c"),
        ]
        if self.op == "CudnnRNNV3":
            found.append(v1.placeholder("int32", [None], "lengths"))
        return found

    def graph(self) -> tuple[Any, Signature]:
        """A graph of just this node, and its signature."""
        with tf.Graph().as_default() as graph:
            inputs = self.placeholders()
            outputs = self.op_call(*inputs)
        ends = ("y", "h_n", "c_n")[: 3 if self.mode is Mode.LSTM else 2]
        return graph.as_graph_def(), Signature(
            {t.op.name: t.name for t in inputs if t.op.name != "c" or len(ends) == 3},
            {key: outputs[k].name for k, key in enumerate(ends)},
        )

    def feeds(self, steps: int = STEPS, batch: int = BATCH) -> dict[str, Array]:
        """Random inputs in cuDNN's own (time-major) layout; some rows are shorter, one is empty."""
        random = np.random.default_rng(steps * 31 + batch)
        found = {"x": random.normal(size=(steps, batch, self.inputs))}
        for key, width in (("h", self.sizes.width), ("c", self.units)):
            found[key] = random.uniform(-1, 1, (self.depth, batch, width))
        found = {key: value.astype(self.dtype) for key, value in found.items()}
        if self.op == "CudnnRNNV3":
            found["lengths"] = np.minimum(np.array([steps, 0, 3, 1, 5])[:batch], steps).astype(np.int32)
        return found

    def expected(self, feeds: dict[str, Array]) -> list[Array]:
        """What the reference gives for `feeds`, time-major."""
        steps = reference.steps_from_blob(
            self.blob,
            self.mode.value,
            layers=self.layers,
            directions=self.directions,
            units=self.units,
            input_size=self.inputs,
            skip_input=self.sizes.skip_input,
            projection=self.projection,
        )
        x, h, c = (feeds[key].astype(np.float64) for key in ("x", "h", "c"))
        found = reference.run(steps, x, h, c, directions=self.directions, lengths=feeds.get("lengths"))
        return list(found)[: 3 if self.mode is Mode.LSTM else 2]


def swapped(value: Array) -> Array:
    """Batch-major to time-major and back."""
    return value.swapaxes(0, 1) if value.ndim == 3 else value
