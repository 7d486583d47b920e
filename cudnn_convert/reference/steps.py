"""One step of one pseudo-layer: its type, its activations, and the order of its gates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from cudnn_convert.reference.gates import Gates

F64: TypeAlias = npt.NDArray[Any]
#: The products of an input and the matrices that it is multiplied by, each `[batch, ...]`.
Products: TypeAlias = Sequence[F64]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `weigh` multiplies inputs, those of all steps at once or of one; `advance` does the rest.

    Called with `x [batch, inputs]`, `h [batch, width]` and `c [batch, units]` it gives the next `h` and `c`;
    width is units but with a projection. `gates` gives the same weights gate by gate.
    """

    weigh: Callable[[F64], Products]
    advance: Callable[[Products, F64, F64], tuple[F64, F64]]
    gates: Callable[[], Gates]

    def __call__(self, x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return self.advance(self.weigh(x), h, c)


#: The gates that lie in a blob's places for i, f, g, o and for r, z, and in a canonical LSTM kernel's for
#: i, g, f, o. Lingvo's converter writes its own order (lingvo core/cudnn_rnn_utils.py); MIOpen keeps i, f,
#: o, g and z, r in the blob, which TensorFlow's converter then takes for cuDNN's (tf_keras v2.21
#: src/layers/rnn/gru_lstm_utils.py and lstm.py: `is_built_with_rocm`).
ORDERS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {"tf": ("ifgo", "rz", "igfo"), "lingvo": ("ifgo", "rz", "gifo"), "miopen": ("ifog", "zr", "iofg")}
)


class Steps(Sequence[Step]):
    """Steps that `make` makes by their number when they are asked for, with weights of their own.

    Whoever wants to keep them makes a tuple of them. IndexError where there are no more.
    """

    def __init__(self, count: int, make: Callable[[int], Step]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._make(number)


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
