"""Decoders that do not begin with zeros, and what they say of the next token by NumPy.

`state`: trained variables; `speaker`: a function of another input; `attention`: an encoder of both
directions, whose last states begin the decoder and whose outputs it attends to at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import reference
from cudnn_convert.model import Array, Mode, Sizes
from cudnn_convert.weights import parameter_blob
from support.graphs import drawing, placeholder, saved, variable
from support.starts import drawn

KINDS: Final = ("state", "speaker", "attention")
TOKENS, WIDTH, UNITS, SPEAKER, SOURCES, ENCODED = 11, 5, 6, 4, 8, 3
_DECODER: Final = Sizes(Mode.LSTM, 1, 1, UNITS, WIDTH)
_ENCODER: Final = Sizes(Mode.GRU, 1, 2, ENCODED, WIDTH)
#: What makes the numbers far from equal, so that choices hang on no rounding.
_SHARP: Final = 6.0


@dataclass(frozen=True)
class Decoder:
    """One of `KINDS`; `end` makes an output of logits `[batch, time, tokens]`."""

    kind: str

    @property
    def values(self) -> dict[str, Array]:
        """The variables."""
        rows = {"state": 1, "speaker": SPEAKER, "attention": 2 * ENCODED}[self.kind]
        values = {
            "table": drawn("table", TOKENS, WIDTH, scale=2.5),
            "decoder/blob": drawn("decoder", parameter_blob.length(_DECODER)),
            "out": drawn(
                "out", UNITS + (2 * ENCODED if self.kind == "attention" else 0), TOKENS, scale=_SHARP
            ),
            "h": drawn("h", rows, UNITS),
            "c": drawn("c", rows, UNITS),
        }
        if self.kind == "attention":
            values["sources"] = drawn("sources", SOURCES, WIDTH, scale=2.5)
            values["encoder/blob"] = drawn("encoder", parameter_blob.length(_ENCODER))
            values["attention"] = drawn("attention", UNITS, 2 * ENCODED, scale=2.0)
        return values

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs beside the tokens, by key."""
        return {"state": (), "speaker": ("speaker",), "attention": ("source", "source_lengths")}[self.kind]

    def save(self, folder: Path, end: Callable[[Any], Any] | None = None) -> Path:
        """A checkpoint with its MetaGraph; `end` is what is made of the logits."""
        values = self.values
        read = {}
        with drawing() as graph:
            read = {name: variable(name, value.shape) for name, value in values.items()}
            ids = placeholder("ids", (None, None), tf.int32)
            x = tf.transpose(tf.gather(read["table"], ids), [1, 0, 2])
            memory, mask, given = self._encode(read)
            if given is None:
                states = [tf.tile(read[name][None], [1, tf.shape(ids)[0], 1]) for name in "hc"]
            else:
                states = [tf.tanh(tf.matmul(given, read[name]))[None] for name in "hc"]
            y = tf.raw_ops.CudnnRNN(
                input=x, input_h=states[0], input_c=states[1], params=read["decoder/blob"],
                is_training=False, name="decoder/CudnnRNN",
            ).output  # fmt: skip
            y = tf.transpose(y, [1, 0, 2])
            if memory is not None:
                scores = tf.matmul(tf.einsum("btu,ue->bte", y, read["attention"]), memory, transpose_b=True)
                shares = tf.nn.softmax(tf.where(mask[:, None] & tf.ones_like(scores, tf.bool), scores,
                                                tf.fill(tf.shape(scores), -1e9)))  # fmt: skip
                y = tf.concat([y, tf.matmul(shares, memory)], 2)
            (end or (lambda logits: tf.identity(logits, "logits")))(tf.einsum("btu,uw->btw", y, read["out"]))
        return saved(folder, graph, values)

    def _encode(self, read: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The memory `[batch, sources, width]`, which of it counts, and what states are made of."""
        if self.kind == "state":
            return None, None, None
        if self.kind == "speaker":
            return None, None, placeholder("speaker", (None, SPEAKER))
        source = placeholder("source", (None, None), tf.int32)
        lengths = placeholder("source_lengths", (None,), tf.int32)
        embedded = tf.transpose(tf.gather(read["sources"], source), [1, 0, 2])
        zeros = tf.zeros([2, tf.shape(source)[0], ENCODED])
        encoded = tf.raw_ops.CudnnRNNV3(
            input=embedded, input_h=zeros, input_c=tf.zeros([]), params=read["encoder/blob"],
            sequence_lengths=lengths, rnn_mode="gru", direction="bidirectional", is_training=False,
            name="encoder/CudnnRNN",
        )  # fmt: skip
        memory = tf.transpose(encoded.output, [1, 0, 2], name="encoder/memory")
        mask = tf.sequence_mask(lengths, tf.shape(source)[1])
        return memory, mask, tf.concat([encoded.output_h[0], encoded.output_h[1]], 1)

    def feeds(self, rows: int = 3) -> dict[str, Array]:
        """Inputs beside the tokens, by key."""
        rng = np.random.default_rng(rows)
        every = {
            "speaker": drawn("speaker", rows, SPEAKER, scale=1.5),
            "source": rng.integers(0, SOURCES, (rows, 7)).astype(np.int32),
            "source_lengths": rng.integers(2, 8, rows).astype(np.int32),
        }
        return {key: every[key] for key in self.inputs}

    def log_probs(self, first: Array, feeds: Mapping[str, Array]) -> Callable[[int, tuple[int, ...]], Array]:
        """Log probabilities after a row's first token and a prefix, from the beginning, in float64."""

        @cache
        def after(row: int, prefix: tuple[int, ...]) -> Array:
            logits = self.logits(
                np.array([[first[row], *prefix]]), {k: v[row : row + 1] for k, v in feeds.items()}
            )
            last = logits[0, -1]
            return np.asarray(last - last.max() - np.log(np.exp(last - last.max()).sum()))

        return after

    def logits(self, ids: Array, feeds: Mapping[str, Array]) -> Array:
        """The logits of whole sequences `[batch, time]`, in float64."""
        values = {name: value.astype(np.float64) for name, value in self.values.items()}
        memory = given = None
        if self.kind == "speaker":
            given = feeds["speaker"].astype(np.float64)
        if self.kind == "attention":
            embedded = values["sources"][feeds["source"]].swapaxes(0, 1)
            zeros = np.zeros([2, len(ids), ENCODED])
            steps = _steps(self.values["encoder/blob"], _ENCODER)
            y, h, _ = reference.run(
                steps, embedded, zeros, zeros, directions=2, lengths=feeds["source_lengths"]
            )
            memory, given = y.swapaxes(0, 1), np.concatenate([h[0], h[1]], 1)
        states = [
            np.tile(values[name][None], [1, len(ids), 1])
            if given is None
            else np.tanh(given @ values[name])[None]
            for name in "hc"
        ]
        x = values["table"][ids].swapaxes(0, 1)
        y, _, _ = reference.run(_steps(self.values["decoder/blob"], _DECODER), x, *states, directions=1)
        y = y.swapaxes(0, 1)
        if memory is not None:
            scores = (y @ values["attention"]) @ memory.swapaxes(1, 2)
            counts = np.arange(memory.shape[1]) < feeds["source_lengths"][:, None]
            scores = np.where(counts[:, None], scores, -1e9)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            y = np.concatenate([y, shares / shares.sum(-1, keepdims=True) @ memory], 2)
        return np.asarray(y @ values["out"])


def _steps(blob: Array, sizes: Sizes) -> Any:
    return reference.steps_from_blob(
        blob, mode=sizes.mode.value, layers=sizes.layers, directions=sizes.directions, units=sizes.units,
        input_size=sizes.input_size,
    )  # fmt: skip
