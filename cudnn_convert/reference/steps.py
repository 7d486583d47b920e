"""One step of one layer and direction: cell type, activations, gates.

`Gates` has the weights of one pseudo-layer gate by gate, in one order for all sources, and a step that is
written independently of the dialects' equations. That step can sum its products in another order, with
activations as inexact as those of runtimes, which shows the effect of rounding alone; and its parts can be
exchanged, for `reference.mutants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[Any]
#: The products of an input with its matrices, each `[batch, ...]`.
Products: TypeAlias = Sequence[F64]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pseudo-layer.

    Called with `x [batch, inputs]`, `h [batch, width]` and `c [batch, units]` it gives the next `h` and `c`;
    width is units without a projection. `weigh` multiplies inputs, of all steps at once or of one; `advance`
    computes the rest. `gates` gives the same weights gate by gate.
    """

    weigh: Callable[[F64], Products]
    advance: Callable[[Products, F64, F64], tuple[F64, F64]]
    gates: Callable[[], Gates]

    def __call__(self, x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return self.advance(self.weigh(x), h, c)


#: The gates stored at a blob's positions of i, f, g, o and of r, z, and at a canonical LSTM kernel's
#: positions of i, g, f, o. Lingvo's converter writes its own order (lingvo core/cudnn_rnn_utils.py); MIOpen
#: keeps i, f, o, g and z, r in the blob, which TensorFlow's converter then takes for cuDNN's (tf_keras v2.21
#: src/layers/rnn/gru_lstm_utils.py and lstm.py: `is_built_with_rocm`).
ORDERS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {"tf": ("ifgo", "rz", "igfo"), "lingvo": ("ifgo", "rz", "gifo"), "miopen": ("ifog", "zr", "iofg")}
)


class Steps(Sequence[Step]):
    """Steps by number, each made by `make` on access and not kept.

    A caller that needs them repeatedly makes a tuple. Raises IndexError past the end.
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


def order_gates(stored: str, values: Iterable[F64], wanted: str) -> Iterator[F64]:
    """Reorder `values` from the gate letters `stored` to the letters `wanted`."""
    named = dict(zip(stored, values, strict=True))
    return (named[gate] for gate in wanted)


#: The names of the gates, in the order in which `Gates` has them.
NAMES: Final = MappingProxyType(
    {"lstm": ("input", "forget", "cell", "output"), "gru": ("reset", "update", "candidate")}
)
#: The gate of a plain recurrence.
_PLAIN: Final = ("hidden",)


@dataclass(frozen=True, slots=True)
class Gates:
    """The weights of one pseudo-layer: a matrix or vector for each gate of `NAMES`.

    `kernel`: matrices `[units, inputs]`, or None where the input itself goes to each gate;
    `recurrent_kernel`: matrices `[units, width]`; `bias` and `recurrent_bias`: vectors `[units]`;
    `projection`: `[width, units]` or None. All are floats of one type.
    """

    mode: str
    kernel: tuple[F64, ...] | None
    recurrent_kernel: tuple[F64, ...]
    bias: tuple[F64, ...]
    recurrent_bias: tuple[F64, ...]
    projection: F64 | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the gates, in order."""
        return NAMES.get(self.mode, _PLAIN)

    @property
    def units(self) -> int:
        """The width of the cell state."""
        return len(self.recurrent_bias[0])

    @property
    def width(self) -> int:
        """The width of the hidden state."""
        return int(self.recurrent_kernel[0].shape[1])

    @property
    def inputs(self) -> int:
        """The width of the input."""
        return self.units if self.kernel is None else int(self.kernel[0].shape[1])

    def compose_projection(self) -> Gates:
        """The cell with the projection multiplied into the recurrent matrices.

        Its hidden state is the unprojected one.
        """
        if self.projection is None:
            return self
        matrices = tuple(np.asarray(matrix @ self.projection) for matrix in self.recurrent_kernel)
        return replace(self, recurrent_kernel=matrices, projection=None)

    def as_type(self, dtype: Any) -> Gates:
        """The weights cast to another float type."""
        kernel, recurrent, bias, other = (
            None if group is None else tuple(np.asarray(array, dtype) for array in group)
            for group in (self.kernel, self.recurrent_kernel, self.bias, self.recurrent_bias)
        )
        assert recurrent is not None
        assert bias is not None
        assert other is not None
        projection = None if self.projection is None else np.asarray(self.projection, dtype)
        return Gates(self.mode, kernel, recurrent, bias, other, projection)

    def weigh(self, x: F64) -> list[F64]:
        """The input's term of each gate, `[batch, units]`, without the bias."""
        if self.kernel is None:
            return [x] * len(self.bias)
        return [x @ matrix.T for matrix in self.kernel]

    def recur(self, h: F64) -> list[F64]:
        """The state's term of each gate, `[batch, units]`, without the bias."""
        return [h @ matrix.T for matrix in self.recurrent_kernel]

    def step(self, order: np.random.Generator | None = None) -> Step:
        """A step of these weights; with `order` one of other rounding, drawn from it.

        Products are then summed in another order, and activations are inexact as in `_inexact`.
        """
        if order is None:
            return Step(self.weigh, lambda wx, h, c: self.finish(wx, self.recur(h), h, c), lambda: self)
        columns, states = order.permutation(self.inputs), order.permutation(self.width)
        kernel = None if self.kernel is None else tuple(matrix[:, columns] for matrix in self.kernel)
        recurrent = tuple(matrix[:, states] for matrix in self.recurrent_kernel)
        moved = replace(self, kernel=kernel, recurrent_kernel=recurrent)

        def weigh(x: F64) -> Products:
            return moved.weigh(x if kernel is None else x[:, columns])

        def advance(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
            return self.finish(wx, moved.recur(h[:, states]), h, c, order)

        return Step(weigh, advance, lambda: self)

    def finish(
        self, wx: Sequence[F64], rh: Sequence[F64], h: F64, c: F64, order: np.random.Generator | None = None
    ) -> tuple[F64, F64]:
        """Compute the next `h` and `c` from both terms of each gate, adding biases."""
        sums = self._with(wx, self.bias), self._with(rh, self.recurrent_bias)
        h, c = finish_step(self.mode, *sums, h, c, order=order)
        return h if self.projection is None else h @ self.projection.T, c

    @staticmethod
    def _with(products: Sequence[F64], biases: Sequence[F64]) -> list[F64]:
        return [product + bias for product, bias in zip(products, biases, strict=True)]


def finish_step(
    mode: str,
    wx: Sequence[F64],
    rh: Sequence[F64],
    h: F64,
    c: F64,
    *,
    order: np.random.Generator | None = None,
) -> tuple[F64, F64]:
    """Compute the next `h`, before a projection, and `c`, from each gate's sums with biases.

    The sums are `[batch, units]`, or of any shape that broadcasts with `h` and `c`. With `order` activations
    are inexact as in `_inexact`.
    """

    def of(function: Callable[[F64], F64], x: F64) -> F64:
        return function(x) if order is None else _inexact(function(x), order)

    if mode == "lstm":
        i, f, g, o = (product + state for product, state in zip(wx, rh, strict=True))
        c = of(sigmoid, f) * c + of(sigmoid, i) * of(np.tanh, g)
        return of(sigmoid, o) * of(np.tanh, c), c
    if mode == "gru":
        r, z = (of(sigmoid, product + state) for product, state in zip(wx[:2], rh[:2], strict=True))
        n = of(np.tanh, wx[2] + r * rh[2])
        return (1 - z) * n + z * h, c
    if mode == "rnn_tanh":
        return of(np.tanh, wx[0] + rh[0]), c
    return activation(mode)(wx[0] + rh[0]), c


def _inexact(value: F64, order: np.random.Generator) -> F64:
    """Perturb values of sigmoid or tanh by up to the epsilon of their type.

    Runtimes approximate both within a few such units, also where they saturate: their 0 or 1 is not exact,
    and large recurrent weights amplify the difference.
    """
    unit = np.finfo(value.dtype).eps
    return np.asarray(value + unit * order.uniform(-1, 1, value.shape), value.dtype)
