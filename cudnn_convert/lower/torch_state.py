"""Names the weights of a recurrence as PyTorch's `nn.LSTM`, `nn.GRU` and `nn.RNN` do.

Its equations are cuDNN's, both biases and the place of the GRU's reset gate included.
Source: pytorch v2.8.0 torch/nn/modules/rnn.py (RNNBase.__init__ names and shapes, LSTM and GRU equations).
"""

from __future__ import annotations

import numpy as np

from cudnn_convert.model import Array, Recurrence
from cudnn_convert.weights import layouts


def state(recurrence: Recurrence) -> dict[str, Array]:
    """`weight_ih_l<n>` `[gates*units, inputs]`, `weight_hh_l<n>` `[gates*units, width]`, `bias_ih_l<n>` and
    `bias_hh_l<n>` `[gates*units]`, and of a projection `weight_hr_l<n>` `[width, units]`.

    Those of the backward direction end in `_reverse`.
    """
    found: dict[str, Array] = {}
    for number, layer in enumerate(recurrence.cells):
        for cell, ending in zip(layer, ("", "_reverse"), strict=False):
            kernel, recurrent = (np.concatenate(each) for each in layouts.rows(cell, layouts.TORCH))
            bias, recurrent_bias = layouts.biases(cell, layouts.TORCH)
            named = {"weight_ih": kernel, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": recurrent_bias}
            named |= {} if cell.projection is None else {"weight_hr": cell.projection}
            found |= {f"{key}_l{number}{ending}": value for key, value in named.items()}
    return found
