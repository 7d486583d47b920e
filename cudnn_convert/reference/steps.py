"""Computes a step of a layer and direction, from each form of weights.

`Gates` has the weights of one pseudo-layer gate by gate, in one order for all sources, and a step that is
written independently of the dialects' equations. That step can sum its products in another order, with
activations as inexact as those of runtimes, which shows the effect of rounding alone; and its parts can be
exchanged, for `reference.mutants`.

`steps_from_blob` takes cuDNN's parameters, `steps_from_regions` their regions saved one by one,
`steps_from_canonical` the variables of TensorFlow 1's CPU-compatible cells, and `steps_from_keras` those of
Keras' CuDNNLSTM and CuDNNGRU.
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
class CellStep:
    """A step of a pseudo-layer.

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


class CellSteps(Sequence[CellStep]):
    """Steps by number, each made by `make` on every access.

    A caller that needs them repeatedly makes a tuple. Raises IndexError past the end.
    """

    def __init__(self, count: int, make: Callable[[int], CellStep]) -> None:
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
    """The weights of a pseudo-layer: a matrix or vector for each gate of `NAMES`.

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
        """Return the cell with the projection multiplied into the recurrent matrices.

        Its hidden state is the unprojected one.
        """
        if self.projection is None:
            return self
        matrices = tuple(np.asarray(matrix @ self.projection) for matrix in self.recurrent_kernel)
        return replace(self, recurrent_kernel=matrices, projection=None)

    def as_type(self, dtype: Any) -> Gates:
        """Return the weights cast to another float type."""
        recurrent, bias, other = (
            tuple(np.asarray(array, dtype) for array in group)
            for group in (self.recurrent_kernel, self.bias, self.recurrent_bias)
        )
        kernel = None if self.kernel is None else tuple(np.asarray(array, dtype) for array in self.kernel)
        projection = None if self.projection is None else np.asarray(self.projection, dtype)
        return Gates(self.mode, kernel, recurrent, bias, other, projection)

    def weigh(self, x: F64) -> list[F64]:
        """Return the input's term of each gate, `[batch, units]`, before the bias."""
        if self.kernel is None:
            return [x] * len(self.bias)
        return [x @ matrix.T for matrix in self.kernel]

    def recur(self, h: F64) -> list[F64]:
        """Return the state's term of each gate, `[batch, units]`, before the bias."""
        return [h @ matrix.T for matrix in self.recurrent_kernel]

    def step(self, order: np.random.Generator | None = None) -> CellStep:
        """Return a step of the weights, with rounding drawn from `order` if given.

        The rounding of such a step is another. Products are then summed in another order, and activations are
        inexact as in `_inexact`.
        """
        if order is None:
            return CellStep(self.weigh, lambda wx, h, c: self.finish(wx, self.recur(h), h, c), lambda: self)
        columns, states = order.permutation(self.inputs), order.permutation(self.width)
        kernel = None if self.kernel is None else tuple(matrix[:, columns] for matrix in self.kernel)
        recurrent = tuple(matrix[:, states] for matrix in self.recurrent_kernel)
        moved = replace(self, kernel=kernel, recurrent_kernel=recurrent)

        def weigh(x: F64) -> Products:
            return moved.weigh(x if kernel is None else x[:, columns])

        def advance(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
            return self.finish(wx, moved.recur(h[:, states]), h, c, order)

        return CellStep(weigh, advance, lambda: self)

    def finish(
        self, wx: Sequence[F64], rh: Sequence[F64], h: F64, c: F64, order: np.random.Generator | None = None
    ) -> tuple[F64, F64]:
        """Compute the next `h` and `c` from both terms of each gate, adding biases."""
        sums = self.add_bias(wx, self.bias), self.add_bias(rh, self.recurrent_bias)
        h, c = finish_step(self.mode, *sums, h, c, order=order)
        return h if self.projection is None else h @ self.projection.T, c

    @staticmethod
    def add_bias(products: Sequence[F64], biases: Sequence[F64]) -> list[F64]:
        """Return the term of each gate with the gate's bias added."""
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
    """Perturb values of sigmoid or tanh by up to the epsilon of the type.

    Runtimes approximate both within a few such units, also where they saturate: their 0 or 1 is not exact,
    and large recurrent weights amplify the difference.
    """
    unit = np.finfo(value.dtype).eps
    return np.asarray(value + unit * order.uniform(-1, 1, value.shape), value.dtype)


def steps_from_blob(
    blob: F64,
    mode: str,
    *,
    layers: int,
    directions: int,
    units: int,
    input_size: int,
    skip_input: bool = False,
    projection: int = 0,
    gate_order: str = "tf",
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from cuDNN's parameters, a 1-D array.

    With `skip_input` layer 0 has no W. With a `projection` it is the last matrix of each pseudo-layer. Raises
    ValueError where the length is wrong.
    """
    gates, width = {"lstm": 4, "gru": 3}.get(mode, 1), projection or units
    # The shapes of each pseudo-layer's matrices, None for a missing one, and their offsets.
    shapes: list[list[tuple[int, int] | None]] = []
    starts = [0]
    for layer in range(layers):
        inputs = input_size if layer == 0 else directions * width
        first = None if layer == 0 and skip_input else (units, inputs)
        each = [first] * gates + [(units, width)] * gates + ([(projection, units)] if projection else [])
        for _ in range(directions):
            shapes.append(each)
            starts.append(starts[-1] + sum(shape[0] * shape[1] for shape in each if shape))
    biases, many = starts.pop(), 2 * gates * units
    if biases + many * len(shapes) != blob.size:
        raise ValueError(f"{blob.size} parameters, {biases + many * len(shapes)} used")

    def step(number: int) -> CellStep:
        at, stored = starts[number], list[F64 | None]()
        for shape in shapes[number]:
            stored.append(None if shape is None else blob[at : at + shape[0] * shape[1]].reshape(shape))
            at += 0 if shape is None else shape[0] * shape[1]
        at = biases + many * number
        matrices = [None if matrix is None else np.asarray(matrix, dtype) for matrix in stored]
        bias = blob[at : at + many].reshape(2 * gates, units).astype(dtype)
        return _blob_step(mode, matrices, bias, gate_order)

    return CellSteps(len(shapes), step)


def _blob_step(
    mode: str, m: Sequence[F64 | None], b: F64, gate_order: str, forget_bias: float = 0.0
) -> CellStep:
    """Return a step from the matrices and biases of a blob's pseudo-layer.

    `m` has the W of each linear id, then the R; `b` likewise. LSTM ids are i, f, c, o; GRU r, z, h. A W that
    is None is the identity; an LSTM's ninth matrix is its projection.
    """

    lstm_order, gru_order, _ = ORDERS[gate_order]

    def times(k: int, x: F64) -> F64:
        matrix = m[k]
        return x if matrix is None else np.asarray(x @ matrix.T)

    def lstm(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (wx[k] + times(k + 4, h) + b[k] + b[k + 4] for k in range(4))
        i, f, g, o = order_gates(lstm_order, sums, "ifgo")
        c = sigmoid(f + c.dtype.type(forget_bias)) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return times(8, h) if len(m) == 9 else h, c

    def gru(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (sigmoid(wx[k] + times(k + 3, h) + b[k] + b[k + 3]) for k in range(2))
        r, z = order_gates(gru_order, sums, "rz")
        n = np.tanh(wx[2] + b[2] + r * (times(5, h) + b[5]))
        return (1 - z) * n + z * h, c

    def plain(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(wx[0] + times(1, h) + b[0] + b[1]), c

    def gates() -> Gates:
        many = len(b) // 2
        orders = {"lstm": (lstm_order, "ifgo"), "gru": (f"{gru_order}n", "rzn")}
        stored, wanted = orders.get(mode, ("h", "h"))
        groups: list[Any] = [m[:many], m[many : 2 * many], b[:many], b[many:]]
        W, R, bias, other = (tuple(order_gates(stored, group, wanted)) for group in groups)
        if mode == "lstm":
            bias = (bias[0], bias[1] + b.dtype.type(forget_bias), *bias[2:])
        return Gates(mode, None if m[0] is None else W, R, bias, other, m[8] if len(m) == 9 else None)

    return CellStep(
        lambda x: [times(k, x) for k in range(len(b) // 2)],
        {"lstm": lstm, "gru": gru}.get(mode, plain),
        gates,
    )


def steps_from_regions(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from the outputs of CudnnRNNParamsToCanonical, by index.

    Weights come first, then biases, each the values of one region of the blob in memory order.
    """
    regions = [tensors[str(k)] for k in range(len(tensors))]
    units, first = regions[-1].size, len(regions) // 2
    if mode == "lstm":  # the second of a pseudo-layer's eight biases is the forget gate's
        for k in range(first + 1, len(regions), 8):
            regions[k] = regions[k] + forget_bias
    return steps_from_blob(
        np.concatenate([region.ravel() for region in regions]),
        mode,
        layers=layers,
        directions=directions,
        units=units,
        input_size=regions[0].size // units,
        gate_order=gate_order,
        dtype=dtype,
    )


def steps_from_canonical(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from variables of TensorFlow 1's compatible cells.

    `tensors` is keyed without the layer's scope, e.g. `rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel`.
    `forget_bias` is what their LSTM cell would add to its forget gate.
    """
    cell = {"lstm": "cudnn_compatible_lstm_cell", "gru": "cudnn_compatible_gru_cell"}.get(
        mode, "basic_rnn_cell"
    )
    if directions == 1:
        stems = [f"rnn/multi_rnn_cell/cell_{layer}/{cell}/" for layer in range(layers)]
    else:
        stems = [
            f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{direction}/{cell}/"
            for layer in range(layers)
            for direction in ("fw", "bw")
        ]

    def step(number: int) -> CellStep:
        stem = stems[number]
        own = {key[len(stem) :]: tensors[key] for key in tensors if key.startswith(stem)}
        cast = {key: np.asarray(value, dtype) for key, value in own.items()}
        return _canonical_step(mode, cast, gate_order, forget_bias)

    return CellSteps(len(stems), step)


def _canonical_step(mode: str, cell: Mapping[str, F64], gate_order: str, forget_bias: float) -> CellStep:
    if mode == "gru":
        return _canonical_gru(cell, ORDERS[gate_order][1])
    kernel, bias = cell["kernel"], cell["bias"]
    units = len(bias) // (4 if mode == "lstm" else 1)
    inputs, recurrent = kernel[:-units], kernel[-units:]

    def lstm(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = np.split(products[0] + h @ recurrent + bias, 4, axis=1)
        i, f, g, o = order_gates(ORDERS[gate_order][2], sums, "ifgo")
        c = c * sigmoid(f + c.dtype.type(forget_bias)) + sigmoid(i) * np.tanh(g)
        return np.tanh(c) * sigmoid(o), c

    def plain(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(products[0] + h @ recurrent + bias), c

    def gates() -> Gates:
        stored, wanted = (ORDERS[gate_order][2], "ifgo") if mode == "lstm" else ("h", "h")
        groups = (np.split(part, len(stored), axis=-1) for part in (inputs, recurrent, bias))
        W, R, b = (tuple(order_gates(stored, group, wanted)) for group in groups)
        if mode == "lstm":
            b = (b[0], b[1] + bias.dtype.type(forget_bias), *b[2:])
        # The cells keep one bias, the sum of cuDNN's two.
        zero = np.zeros(units, bias.dtype)
        return Gates(
            mode, tuple(matrix.T for matrix in W), tuple(matrix.T for matrix in R), b, (zero,) * len(b)
        )

    return CellStep(lambda x: [x @ inputs], lstm if mode == "lstm" else plain, gates)


def _canonical_gru(cell: Mapping[str, F64], order: str) -> CellStep:
    gate_kernel, gate_bias = cell["gates/kernel"], cell["gates/bias"]
    in_kernel, in_bias = (cell[f"candidate/input_projection/{part}"] for part in ("kernel", "bias"))
    re_kernel, re_bias = (cell[f"candidate/hidden_projection/{part}"] for part in ("kernel", "bias"))

    units = len(in_bias)

    def gru(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        gates = np.split(sigmoid(products[0] + h @ gate_kernel[-units:] + gate_bias), 2, axis=1)
        r, u = order_gates(order, gates, "rz")
        candidate = np.tanh(products[1] + in_bias + r * (h @ re_kernel + re_bias))
        return (1 - u) * candidate + u * h, c

    def gates() -> Gates:
        W, R, b = (
            dict(zip(order, np.split(part, 2, axis=-1), strict=True))
            for part in (gate_kernel[:-units], gate_kernel[-units:], gate_bias)
        )
        zero = np.zeros(units, gate_bias.dtype)
        return Gates(
            "gru",
            (W["r"].T, W["z"].T, in_kernel.T),
            (R["r"].T, R["z"].T, re_kernel.T),
            (b["r"], b["z"], in_bias),
            (zero, zero, re_bias),
        )

    return CellStep(lambda x: [x @ gate_kernel[:-units], x @ in_kernel], gru, gates)


def steps_from_keras(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each direction from variables of Keras' CuDNNLSTM or CuDNNGRU.

    `tensors` is keyed without the layer's scope: `kernel`, `recurrent_kernel`, `bias`, for two directions
    below `forward_layer/` and `backward_layer/`. A Keras layer is one layer.
    """
    if layers != 1:
        raise ValueError(f"{layers} layers")
    stems = ("",) if directions == 1 else ("forward_layer/", "backward_layer/")

    def step(number: int) -> CellStep:
        parts = (tensors[stems[number] + key] for key in ("kernel", "recurrent_kernel", "bias"))
        arrays = [np.asarray(part, dtype) for part in parts]
        return _keras_step(mode, arrays, gate_order, forget_bias)

    return CellSteps(len(stems), step)


def _keras_step(mode: str, tensors: Sequence[F64], gate_order: str, forget_bias: float) -> CellStep:
    """Return a step from a Keras layer's kernel, recurrent kernel and bias.

    Columns of the kernels are gates i, f, c, o or z, r, h; the bias is bW of each, then bR of each. cuDNN
    reads the numbers of a gate's columns, row after row, as its matrix, which has the units first.
    """
    kernel, recurrent_kernel, bias = tensors
    # The layer passes its gates on as r, z, h: it stores cuDNN's z first.
    positions = [0, 1, 2, 3] if mode == "lstm" else [1, 0, 2]
    units = len(recurrent_kernel)

    def gate(weights: F64, k: int) -> F64:
        return np.reshape(weights[:, k * units : (k + 1) * units].flatten(), (units, len(weights)))

    matrices = [gate(weights, k) for weights in (kernel, recurrent_kernel) for k in positions]
    biases = bias.reshape(2, -1, units)[:, positions].reshape(-1, units)
    return _blob_step(mode, matrices, biases, gate_order, forget_bias)
