"""One step of one pseudo-layer: its type, its activations, and the order of its gates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[Any]
#: (x [batch, inputs], h [batch, width], c [batch, units]) -> (h, c); width is units but with a projection
Step: TypeAlias = Callable[[F64, F64, F64], tuple[F64, F64]]


#: The gates that lie in a blob's places for i, f, g, o and for r, z, and in a canonical LSTM kernel's for
#: i, g, f, o. Lingvo's converter writes its own order (lingvo core/cudnn_rnn_utils.py); MIOpen keeps i, f,
#: o, g and z, r in the blob, which TensorFlow's converter then takes for cuDNN's (tf_keras v2.21
#: src/layers/rnn/gru_lstm_utils.py and lstm.py: `is_built_with_rocm`).
ORDERS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {"tf": ("ifgo", "rz", "igfo"), "lingvo": ("ifgo", "rz", "gifo"), "miopen": ("ifog", "zr", "iofg")}
)


def sigmoid(x: F64) -> F64:
    # 0.5*(1+tanh(x/2)) neither overflows nor loses digits.
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def activation(mode: str) -> Callable[[F64], F64]:
    def relu(x: F64) -> F64:
        return np.asarray(np.maximum(x, 0))

    return np.tanh if mode == "rnn_tanh" else relu


def ordered(stored: str, values: Iterable[F64], wanted: str) -> Iterator[F64]:
    """The values of gates `stored`, a letter each, in the order of the letters `wanted`."""
    named = dict(zip(stored, values, strict=True))
    return (named[gate] for gate in wanted)
