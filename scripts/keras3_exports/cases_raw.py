"""cuDNN's ops as a hand-written tf.function calls them, without any Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .case import Case, Feed, Floats, Lengths, Recurrence, Signature, seeded
from .raw_reference import Shape, evaluate

#: Which op each mode goes through; CudnnRNNV3 alone has lengths and batch-major tensors.
LSTM = Shape("lstm", 4, 3, layers=2, directions=2)
GRU = Shape("gru", 5, 8, layers=1, directions=2)
TANH = Shape("rnn_tanh", 3, 10, layers=2, directions=1)
RELU = Shape("rnn_relu", 4, 3, layers=1, directions=1)
PLACES = {"lstm": LSTM, "gru": GRU, "tanh": TANH, "relu": RELU}


def blobs() -> dict[str, np.ndarray]:
    return {
        name: seeded(f"raw_ops/{name}").uniform(-0.6, 0.6, shape.size()).astype(np.float32)
        for name, shape in PLACES.items()
    }


class Raw(tf.Module):
    """Two functions over four blobs. All tensors are time-major but those of `ragged`."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in blobs().items():
            setattr(self, name, tf.Variable(value, name=name))

    @tf.function
    def chain(self, x: Any, h: Any, c: Any) -> dict[str, Any]:
        """CudnnRNN on CudnnRNNV2 on CudnnRNN: two layers of LSTM both ways, GRU both ways, two of tanh.

        `x [T, B, 3]`; `h` and `c` `[4, B, 4]` start the LSTM, the others start from a constant."""
        batch = tf.shape(x)[1]
        y, last_h, last_c, *_ = tf.raw_ops.CudnnRNN(
            input=x, input_h=h, input_c=c, params=self.lstm, direction="bidirectional", is_training=False
        )
        gru, gru_h, *_ = tf.raw_ops.CudnnRNNV2(
            input=y,
            input_h=tf.fill([2, batch, 5], 0.25),
            input_c=tf.zeros([]),
            params=self.gru,
            rnn_mode="gru",
            direction="bidirectional",
        )
        tanh, *_ = tf.raw_ops.CudnnRNN(
            input=gru, input_h=tf.fill([2, batch, 3], -0.5), input_c=[], params=self.tanh, rnn_mode="rnn_tanh"
        )
        return {"lstm": y, "lstm_h": last_h, "lstm_c": last_c, "gru": gru, "gru_h": gru_h, "tanh": tanh}

    @tf.function
    def ragged(self, x: Any, h: Any, lengths: Any) -> dict[str, Any]:
        """CudnnRNNV3 with lengths `[B]`: the two layers of LSTM batch-major, and relu time-major.

        `x [B, T, 3]`; `h [B, 1, 4]` starts the relu and, four times, the LSTM."""
        y, last_h, last_c, *_ = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=tf.tile(h, [1, 4, 1]),
            input_c=tf.tile(0.5 * h, [1, 4, 1]),
            params=self.lstm,
            sequence_lengths=lengths,
            direction="bidirectional",
            is_training=False,
            time_major=False,
        )
        relu, relu_h, *_ = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(x, [1, 0, 2]),
            input_h=tf.transpose(h, [1, 0, 2]),
            input_c=[],
            params=self.relu,
            sequence_lengths=lengths,
            rnn_mode="rnn_relu",
        )
        return {"lstm": y, "lstm_h": last_h, "lstm_c": last_c, "relu": relu, "relu_h": relu_h}


def chain_answer(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
    blob, batch = blobs(), x.shape[1]
    y, last_h, last_c = evaluate(LSTM, blob["lstm"], x, np.stack([h, c]))
    gru, gru_h, _ = evaluate(GRU, blob["gru"], y, np.full((2, 2, batch, 5), 0.25))
    tanh, _, _ = evaluate(TANH, blob["tanh"], gru, np.full((2, 2, batch, 3), -0.5))
    return {"lstm": y, "lstm_h": last_h, "lstm_c": last_c, "gru": gru, "gru_h": gru_h, "tanh": tanh}


def ragged_answer(x: np.ndarray, h: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
    blob, major = blobs(), (1, 0, 2)
    x, h = x.transpose(major), h.transpose(major)
    states = np.tile(h, (4, 1, 1))
    pair = evaluate(LSTM, blob["lstm"], x, np.stack([states, 0.5 * states]), lengths)
    y, last_h, last_c = (value.transpose(major) for value in pair)
    relu, relu_h, _ = evaluate(RELU, blob["relu"], x, np.stack([h, h]), lengths)
    return {"lstm": y, "lstm_h": last_h, "lstm_c": last_c, "relu": relu, "relu_h": relu_h}


def raw_ops(_: Any) -> Case:
    """A tf.Module whose functions call CudnnRNN, CudnnRNNV2 and CudnnRNNV3 on blobs that are variables."""
    module = Raw()

    def save(folder: Path) -> None:
        def spec(*shape: int | None) -> tf.TensorSpec:
            return tf.TensorSpec(shape, tf.float32)

        chain = module.chain.get_concrete_function(spec(None, None, 3), spec(4, None, 4), spec(4, None, 4))
        ragged = module.ragged.get_concrete_function(
            spec(None, None, 3), spec(None, 1, 4), tf.TensorSpec((None,), tf.int32)
        )
        tf.saved_model.save(module, str(folder), signatures={"chain": chain, "ragged": ragged})

    def answer(signature: str, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = {"chain": chain_answer, "ragged": ragged_answer}[signature](**feed)
        return {name: value.astype(np.float32) for name, value in found.items()}

    chain_feeds: list[Feed] = [
        {"x": Floats((steps, batch, 3)), "h": Floats((4, batch, 4)), "c": Floats((4, batch, 4))}
        for steps, batch in ((5, 2), (2, 3))
    ]
    lengths = ((6, 2, 3), (1, 4))
    ragged_feeds: list[Feed] = [
        {"x": Floats((len(rows), max(rows), 3)), "h": Floats((len(rows), 1, 4)), "lengths": Lengths(rows)}
        for rows in lengths
    ]
    recurrences = [described(shape, masked=True) for shape in (LSTM, RELU)]
    signatures = {
        "chain": Signature(chain_feeds, [described(shape) for shape in (LSTM, GRU, TANH)]),
        "ragged": Signature(ragged_feeds, recurrences, lengths),
    }
    return Case(module, signatures, save, called=False, answer=answer)


def described(shape: Shape, masked: bool = False) -> Recurrence:
    sizes = shape.units, shape.input_size, shape.layers, shape.directions
    return Recurrence(shape.mode, *sizes, masked=masked)


CASES = (raw_ops,)
