"""What cuDNN computes, in float64 NumPy, from the tensors that a source stores.

This is the judge of every lowering, so it shares no code with `weights`, `read` or `lower`: it
walks a blob by its own offsets, and evaluates canonical tensors by the equations of TensorFlow's own
CPU-compatible cells. Letters: x input, h state, c cell state, W input matrix, R recurrent matrix, b bias.

* LSTM: i,f,o = sigmoid(Wx + Rh + bW + bR), g = tanh(...), c' = f*c + i*g, h' = o*tanh(c').
* GRU: r,z = sigmoid(...), n = tanh(Wx + bW + r*(Rh + bR)), h' = (1-z)*n + z*h.
* RNN: h' = act(Wx + Rh + bW + bR).
* Skipped input: x stands for the Wx of every gate of layer 0. Projection Q: h' = Q(o*tanh(c')).

Sources: NVIDIA cuDNN 9 API, cudnnRNNMode_t; tensorflow v1.15.0
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell),
python/ops/rnn_cell_impl.py (BasicRNNCell) and python/keras/layers/cudnn_recurrent.py (CuDNNLSTM, CuDNNGRU).

* steps  : One step of one layer and direction: cell type, activations, gates.
* sources: Steps from each form of weights: cuDNN's blob, TensorFlow 1's cells, Keras.
* mutants: What a step would answer with other weights, to measure the power of inputs.

May import: nothing.
Entry: `run`, on the steps that `steps_from_blob` or a function of `DIALECTS` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudnn_convert.reference.sources import (
    steps_from_blob,
    steps_from_canonical,
    steps_from_keras,
    steps_from_regions,
)
from cudnn_convert.reference.steps import F64, Gates, Step, Steps

__all__ = [
    "DIALECTS",
    "Gates",
    "Layer",
    "layers",
    "run",
    "steps_from_blob",
    "steps_from_canonical",
    "steps_from_keras",
    "steps_from_regions",
]

#: How to evaluate tensors as a source stores them, by the names of the dialect that they are in.
DIALECTS: Final[Mapping[str, Callable[..., Steps]]] = MappingProxyType(
    {"contrib": steps_from_canonical, "keras": steps_from_keras, "regions": steps_from_regions}
)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer sees and gives.

    `x [time, batch, inputs]`; `y [time, batch, directions*width]`, zeros past each length; the final states
    `h [directions, batch, width]` and `c [directions, batch, units]`.
    """

    x: F64
    y: F64
    h: F64
    c: F64


def run(
    steps: Sequence[Step],
    x: F64,
    h0: F64,
    c0: F64,
    *,
    directions: int,
    lengths: npt.NDArray[Any] | None = None,
) -> tuple[F64, F64, F64]:
    """`x [time, batch, inputs]`, `h0, c0 [layers*directions, batch, units]`, `lengths [batch]`.

    With a projection, `h0` and each direction of `y` have its width. Returns
    `y [time, batch, directions*units]` with zeros past each length, and the final `h`, `c` at each
    row's own end. The dtype of `x` is the dtype of the arithmetic. Each of `steps` is asked for once, and
    dropped before the next.
    """
    final_h, final_c = h0.copy(), c0.copy()
    for number, layer in enumerate(layers(steps, x, h0, c0, directions=directions, lengths=lengths)):
        rows = slice(number * directions, (number + 1) * directions)
        final_h[rows], final_c[rows] = layer.h, layer.c
        x = layer.y
    return x, final_h, final_c


def layers(
    steps: Sequence[Step],
    x: F64,
    h0: F64,
    c0: F64,
    *,
    directions: int,
    lengths: npt.NDArray[Any] | None = None,
) -> Iterator[Layer]:
    """What `run` computes, layer by layer; takes what `run` takes."""
    time, batch = x.shape[:2]
    alive = np.arange(time)[:, None] < (np.full(batch, time) if lengths is None else lengths)[None, :]
    for first in range(0, len(steps), directions):
        halves, ends = [], []
        for direction in range(directions):
            h, c = h0[first + direction], c0[first + direction]
            step = steps[first + direction]
            products = [
                product.reshape(time, batch, product.shape[1])
                for product in step.weigh(x.reshape(time * batch, x.shape[2]))
            ]
            y = np.zeros((time, batch, h.shape[1]), x.dtype)
            for t in range(time) if direction == 0 else reversed(range(time)):
                mask = alive[t][:, None]
                new_h, new_c = step.advance([product[t] for product in products], h, c)
                h, c = np.where(mask, new_h, h), np.where(mask, new_c, c)
                y[t] = np.where(mask, new_h, 0)
            ends.append((h, c))
            del step  # and its weights
            halves.append(y)
        layer = Layer(
            x, np.concatenate(halves, axis=2), *(np.stack(states) for states in zip(*ends, strict=True))
        )
        x = layer.y
        yield layer
