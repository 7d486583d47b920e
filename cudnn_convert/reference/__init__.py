"""Computes cuDNN's equations in float64 NumPy from the tensors stored in a source.

This is the judge of every lowering, so it shares no code with `weights`, `read` or `lower`: it computes a
blob's offsets independently, and evaluates canonical tensors by the equations of TensorFlow's CPU-compatible
cells. Letters: x input, h state, c cell state, W input matrix, R recurrent matrix, b bias.

* Skipped input: x replaces the Wx of every gate of layer 0. Projection Q: h' = Q(o*tanh(c')).

Sources: NVIDIA cuDNN 9 API, cudnnRNNMode_t; tensorflow v1.15.0
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell),
python/ops/rnn_cell_impl.py (BasicRNNCell) and python/keras/layers/cudnn_recurrent.py (CuDNNLSTM, CuDNNGRU).

* steps  : Computes a step of a layer and direction, from each form of weights.
* frameworks: Computes a step of a layer and direction from the weights of other frameworks.
* search : Searches over a model's steps, example by example in NumPy, with the effect of rounding.
* convolutions: Convolutions in float64, channels last, a product for each place of the window.
* keras_layers: Layers of Keras in float64 NumPy, as computed by the version behind a file.
* cells  : Recurrent layers of Keras with masks, in float64 NumPy, from layer configs.
* images : Layers of Keras over images and films, channels last, in float64 NumPy.
* mutants: Computes the answers of a step with wrong weights, to measure the power of inputs.

May import: nothing.
Entry: `run`, on the steps that `steps_from_blob` or a function of `DIALECTS` gives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudnn_convert.reference import frameworks
from cudnn_convert.reference.steps import (
    F64,
    CellStep,
    CellSteps,
    Gates,
    steps_from_blob,
    steps_from_canonical,
    steps_from_keras,
    steps_from_regions,
)

__all__ = [
    "DIALECTS",
    "Gates",
    "LayerRun",
    "layers",
    "run",
    "steps_from_blob",
    "steps_from_canonical",
    "steps_from_keras",
    "steps_from_regions",
]

#: The function that makes steps of stored tensors, by dialect.
DIALECTS: Final[Mapping[str, Callable[..., CellSteps]]] = MappingProxyType(
    {
        "contrib": steps_from_canonical,
        "keras": steps_from_keras,
        "regions": steps_from_regions,
        **frameworks.DIALECTS,
    }
)


@dataclass(frozen=True, slots=True)
class LayerRun:
    """The input and results of a layer.

    `x [time, batch, inputs]`; `y [time, batch, directions*width]`, zeros past each length; the final states
    `h [directions, batch, width]` and `c [directions, batch, units]`.
    """

    x: F64
    y: F64
    h: F64
    c: F64


def run(
    steps: Sequence[CellStep],
    x: F64,
    h0: F64,
    c0: F64,
    *,
    directions: int,
    lengths: npt.NDArray[Any] | None = None,
) -> tuple[F64, F64, F64]:
    """Compute a recurrence: `y [time, batch, directions*width]`, and the final `h` and `c`.

    `x [time, batch, inputs]`, `h0 [layers*directions, batch, width]`, `c0 [layers*directions, batch, units]`,
    `lengths [batch]`; width is units without a projection. `y` is zero past each length; `h` and `c` are
    those at each row's end. The dtype of `x` is the dtype of the arithmetic. Each of `steps` is read once,
    and freed before the next.
    """
    final_h, final_c = h0.copy(), c0.copy()
    for number, layer in enumerate(layers(steps, x, h0, c0, directions=directions, lengths=lengths)):
        rows = slice(number * directions, (number + 1) * directions)
        final_h[rows], final_c[rows] = layer.h, layer.c
        x = layer.y
    return x, final_h, final_c


def layers(
    steps: Sequence[CellStep],
    x: F64,
    h0: F64,
    c0: F64,
    *,
    directions: int,
    lengths: npt.NDArray[Any] | None = None,
) -> Iterator[LayerRun]:
    """Compute layer by layer, with the arguments of `run`."""
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
        layer = LayerRun(
            x, np.concatenate(halves, axis=2), *(np.stack(states) for states in zip(*ends, strict=True))
        )
        x = layer.y
        yield layer
