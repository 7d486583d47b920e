"""The parameter blob, and weights larger than memory, read one part at a time.

Layers and tensors are read on access. Small recurrences are decoded once and kept
(`exceeds_memory_budget`). Large matrices are transposed in strips, and read while others are written.

Layout of the blob: for each pseudo-layer (layer-major, forward before backward) the input matrices of all
gates, then the recurrent ones, each row-major `[units, inputs]`, then the projection `[width, units]` where
there is one; only after all matrices, per pseudo-layer the input biases of all gates, then the recurrent
ones. No padding. The same order holds for every mode and dtype (apache/mxnet v1.9
python/mxnet/rnn/rnn_cell.py FusedRNNCell._slice_weights hands this blob to cuDNN as it is; tensorflow v1.15.0
stream_executor/cuda/cuda_dnn.cc CudnnRnnParamsDescriptor asks cuDNN region by region). A skipped input leaves
layer 0 without input matrices, not without biases (docs/equations.md says what is known of both).
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar
from weakref import ref

import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import Array, Cell, Mode, Recurrence, Sizes, Tensor

#: Cells `[layer][direction]`, all there or made when they are asked for.
Cells: TypeAlias = Sequence[tuple[Cell, ...]]
#: A recurrence with more bytes of weights than this stays in its file.
LARGE: Final = 1 << 28
#: So many values are looked at at a time: they stay in a processor's cache.
_CHUNK: Final = 1 << 16


def exceeds_memory_budget(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    """Whether a recurrence's weights are decoded layer by layer on each access."""
    return length(sizes) * dtype.itemsize > LARGE


class Layers(Sequence[tuple[Cell, ...]]):
    """The cells of a recurrence, decoded on access; the last layer stays in memory.

    `decode` returns the cells of a layer. Raises what `decode` raises, and IndexError.
    """

    def __init__(self, count: int, decode: Callable[[int], tuple[Cell, ...]]) -> None:
        self._count, self._decode = count, decode
        self._last: tuple[int, tuple[Cell, ...]] | None = None
        self._seen: dict[int, bool] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return tuple(self[k] for k in range(*number.indices(self._count)))
        if not -self._count <= number < self._count:
            raise IndexError(number)
        number %= self._count
        if self._last is None or self._last[0] != number:
            self._last = None  # before the next one takes its own memory
            layer = self._decode(number)
            if number not in self._seen:
                self._seen[number] = all(map(is_finite, layer))
            self._last = number, layer
        return self._last[1]

    @property
    def finite(self) -> bool:
        """Whether all layers read so far have only finite weights."""
        return all(self._seen.values())

    def change_cells(self, change: Callable[[Cell], Cell]) -> Layers:
        """These layers with `change` applied to each cell as it is decoded."""
        return Layers(self._count, lambda number: tuple(map(change, self._decode(number))))


def map_cells(cells: Cells, change: Callable[[Cell], Cell]) -> Layers:
    """Cells with `change` applied on access."""
    if isinstance(cells, Layers):
        return cells.change_cells(change)
    return Layers(len(cells), lambda number: tuple(map(change, cells[number])))


def is_finite(cell: Cell) -> bool:
    """Whether all weights are finite."""
    parts = (cell.kernel, cell.recurrent_kernel, cell.bias, cell.recurrent_bias, cell.projection)
    return all(_is_finite(part) for part in parts if part is not None)


def _is_finite(part: Array) -> bool:
    if part.size <= _CHUNK:
        return bool(np.isfinite(part).all())
    rows = part.swapaxes(0, -1) if part.strides[0] < part.strides[-1] else part
    step = max(1, _CHUNK * len(rows) // rows.size)
    return all(bool(np.isfinite(rows[k : k + step]).all()) for k in range(0, len(rows), step))


class Read(Mapping[str, Array]):
    """Arrays by name, each read on access. Raises what `read` raises, KeyError."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Array]) -> None:
        self._names, self._read = dict.fromkeys(names), read

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read(tensors: Mapping[str, Tensor]) -> Read:
    """Map names to arrays, read on access."""
    return Read(tensors, lambda name: tensors[name].read())


def size(tensor: Tensor) -> int:
    """The size of a tensor in bytes, without reading it."""
    return math.prod(tensor.shape) * tensor.dtype.itemsize


#: Where TensorFlow takes an array's memory as it is: tensorflow v2.21.0 EIGEN_MAX_ALIGN_BYTES.
_ALIGNED: Final = 64
#: The blocks in which a matrix is turned: what a processor's cache holds beside all else. Their rows do not
#: lie a power of two apart, for those would share the same few lines of it.
_ROWS: Final = 256
_COLUMNS: Final = 128
_APART: Final = 16
#: As much of a turned matrix as a processor's cache still holds when it is written.
_STRIP: Final = 1 << 22
#: Memory from this size on is used again, and so many pieces of it that fit nothing are kept for that.
_LARGE: Final = 1 << 20
_KEPT: Final = 4
#: Memory from this size on is asked for by several threads, each so many bytes at a time.
_SHARED: Final = 1 << 26
_SHARE: Final = 1 << 21
_PAGE: Final = 1 << 12
_THREADS: Final = 8


class _Pool:
    """Buffers that were given out before, and in which no array lies any more."""

    def __init__(self) -> None:
        self.unused: list[Array] = []
        self._lock = Lock()

    def take(self, size: int) -> Array:
        """Return a byte buffer that returns to the pool when no array uses it."""
        with self._lock:  # buffers come back without it, at the end of the list
            fitting = [number for number, buffer in enumerate(self.unused) if buffer.size == size]
            if fitting:
                buffer = self.unused.pop(fitting[0])
            else:
                del self.unused[:-_KEPT]
                buffer = _new(size)
        return np.asarray(_Loan(buffer, self))


class _Loan:
    """The owner of an array in a pool's buffer, alive as long as any view."""

    def __init__(self, buffer: Array, pool: _Pool) -> None:
        self._buffer, self._pool = buffer, ref(pool)
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        if pool := self._pool():
            pool.unused.append(self._buffer)


_POOL: Final[ContextVar[_Pool | None]] = ContextVar("pool", default=None)


@contextmanager
def buffer_pool() -> Iterator[None]:
    """Let `empty` reuse large buffers that no array uses, within the context.

    New memory is slow where the system has to find and clear it, most of all in a virtual machine: reading
    into it then takes many times as long as into reused memory.
    """
    token = _POOL.set(_Pool())
    try:
        yield
    finally:
        _POOL.reset(token)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """As `numpy.empty`, aligned so that runtimes share the memory without a copy."""
    size = math.prod(shape) * dtype.itemsize
    pool = _POOL.get() if size >= _LARGE else None
    buffer = pool.take(size + _ALIGNED) if pool else _new(size + _ALIGNED)
    start = -buffer.ctypes.data % _ALIGNED
    return buffer[start : start + size].view(dtype).reshape(shape)


def _new(size: int) -> Array:
    """Allocate bytes; large buffers are touched by several threads.

    A page is mapped when it is first written to, and several processors map several pages at a time.
    """
    values = np.empty(size, np.uint8)
    if size >= _SHARED:
        pages, count = values[::_PAGE], _SHARE // _PAGE
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
            for start in range(0, len(pages), count):
                threads.submit(pages[start : start + count].fill, 0)
    return values


def row_chunks(matrix: Array) -> Iterator[Array]:
    """A matrix in row-major pieces, copied only if needed; other ranks in one piece."""
    if matrix.ndim != 2:
        yield np.ascontiguousarray(matrix)
        return
    count = max(1, _STRIP // max(1, matrix.shape[1] * matrix.itemsize))
    for top in range(0, len(matrix), count):
        yield contiguous(matrix[top : top + count])


def contiguous(matrix: Array) -> Array:
    """A row-major matrix: itself, or a copy. Other ranks use NumPy's copy."""
    if matrix.flags.c_contiguous or matrix.ndim != 2:
        return np.ascontiguousarray(matrix)
    values = empty(matrix.shape, matrix.dtype)
    fill(values, matrix)
    return values


def fill(array: Array, matrix: Array) -> None:
    """Copy a matrix into `array`, block by block where it must be transposed.

    NumPy copies a transposed matrix one value after the other along a column, which takes twenty times as
    long for columns longer than a cache. Each block is first gathered: only contiguous blocks are transposed
    fast.
    """
    if matrix.strides[1] <= matrix.strides[0]:
        array[:] = matrix
        return
    values = np.empty((_COLUMNS, _ROWS + _APART), matrix.dtype)
    for top in range(0, matrix.shape[0], _ROWS):
        for left in range(0, matrix.shape[1], _COLUMNS):
            region = slice(top, top + _ROWS), slice(left, left + _COLUMNS)
            rows, columns = matrix[region].shape
            values[:columns, :rows] = matrix[region].T
            array[region] = values[:columns, :rows].T


T = TypeVar("T")


def prefetch(items: Iterable[T], count: int) -> Iterator[T]:
    """Iterate `items`, with up to `count` made ahead in another thread.

    At most `count` items and one are in memory. A consumer that stops early waits for the item in progress.
    Raises what making an item raises.
    """
    items_left, context = iter(items), copy_context()

    def following() -> list[T]:
        return list(islice(items_left, 1))

    with ThreadPoolExecutor(1) as maker:
        coming = deque(maker.submit(context.run, following) for _ in range(count))
        try:
            while item := coming.popleft().result():
                coming.append(maker.submit(context.run, following))
                yield item[0]
        finally:
            for future in coming:
                future.cancel()


#: The most layers that a blob of unknown sizes is tried with.
_DEPTH: Final = 8
#: Units that are looked for unasked: a length alone may be what a file claims.
_WIDEST: Final = 1 << 14


def length(sizes: Sizes) -> int:
    """Number of elements of the blob."""
    gates, units, width = len(sizes.mode.gates), sizes.units, sizes.width

    def count_layer(layer: int) -> int:
        inputs = 0 if layer == 0 and sizes.skip_input else sizes.inputs(layer)
        return gates * units * (inputs + width + 2) + sizes.projection * units

    # All layers but the first are alike; how many there are may be what a file claims.
    return sizes.directions * (count_layer(0) + (sizes.layers - 1) * count_layer(1))


def report_lowered(recurrences: Sequence[Recurrence], number: int) -> None:
    """Report progress: the bytes of weights of the first `number` recurrences, which are lowered."""
    sizes = [length(each.sizes) * each.dtype.itemsize for each in recurrences]
    context.report_progress("lowering", sum(sizes[:number]), sum(sizes))


def solve_input_size(elements: int, sizes: Sizes) -> int | None:
    """The input size that gives a blob of `elements`, or None.

    `sizes.input_size` is ignored. With `sizes.skip_input` only one length is possible, and the input size
    equals the units.
    """
    without = length(replace(sizes, input_size=0))
    if sizes.skip_input:
        return sizes.units if elements == without else None
    step = sizes.directions * len(sizes.mode.gates) * sizes.units
    inputs, rest = divmod(elements - without, step)
    return inputs if rest == 0 and inputs > 0 else None


def split(blob: Array, sizes: Sizes, *, where: str) -> tuple[tuple[Cell, ...], ...]:
    """Cells `[layer][direction]` as views of the 1-D `blob`.

    A skipped input gives identity kernels. Raises InvalidModelError where the length differs from
    `length(sizes)`, or where a skipped input's size differs from the units.
    """
    if blob.ndim != 1 or blob.size != length(sizes):
        raise InvalidModelError(
            where, expected=f"{length(sizes)} values for {sizes}", found=f"shape {blob.shape}"
        )
    gates, units, width, offset = len(sizes.mode.gates), sizes.units, sizes.width, 0
    if sizes.skip_input and sizes.input_size != units:
        raise InvalidModelError(
            where, expected=f"an input of {units} values, which skip_input needs", found=f"{sizes.input_size}"
        )

    def take(*shape: int) -> Array:
        nonlocal offset
        start, offset = offset, offset + math.prod(shape)
        return blob[start:offset].reshape(shape)

    def matrices(layer: int) -> dict[str, Array]:
        skipped = layer == 0 and sizes.skip_input
        matrices_of = {
            "kernel": _identities(sizes, blob) if skipped else take(gates, units, sizes.inputs(layer)),
            "recurrent_kernel": take(gates, units, width),
        }
        return matrices_of | {"projection": take(width, units)} if sizes.projection else matrices_of

    ways = range(sizes.directions)
    cells = [[matrices(layer) for _ in ways] for layer in range(sizes.layers)]
    biases = [
        [{"bias": take(gates, units), "recurrent_bias": take(gates, units)} for _ in ways] for _ in cells
    ]
    return tuple(
        tuple(Cell(sizes.mode, **cells[layer][direction], **biases[layer][direction]) for direction in ways)
        for layer in range(sizes.layers)
    )


def _identities(sizes: Sizes, blob: Array) -> Array:
    """Identity kernels `[gates, units, units]`: every gate gets the input itself."""
    identity = np.eye(sizes.units).astype(blob.dtype)
    return np.broadcast_to(identity, (len(sizes.mode.gates), *identity.shape))


def join(layers: Sequence[Sequence[Cell]], *, skip_input: bool = False) -> Array:
    """The blob of cells `[layer][direction]`; the inverse of `split`.

    With `skip_input` the kernels of layer 0 are left out. Raises InvalidModelError where those are no
    identities.
    """
    cells = [cell for layer in layers for cell in layer]
    skipped = layers[0] if skip_input else ()
    for cell in skipped:
        identity = np.eye(cell.bias.shape[-1])
        if not all(np.array_equal(kernel, identity) for kernel in cell.kernel):
            raise InvalidModelError("cell.kernel", expected="identities, as skip_input has", found="others")
    matrices = [
        part.ravel()
        for number, cell in enumerate(cells)
        for part in (None if number < len(skipped) else cell.kernel, cell.recurrent_kernel, cell.projection)
        if part is not None
    ]
    biases = [part.ravel() for cell in cells for part in (cell.bias, cell.recurrent_bias)]
    return np.concatenate(matrices + biases)


def fitting(
    elements: int,
    mode: Mode | None = None,
    layers: int | None = None,
    directions: int | None = None,
    units: int | None = None,
) -> list[Sizes]:
    """All sizes of a linear-input blob of `elements` values, rounder units first.

    Arguments that are not None are fixed.
    """
    # A recurrent matrix, one column of another and two biases are more than the square of one unit more.
    most = min(math.isqrt(elements), _WIDEST + 1)
    partial = (
        Sizes(kind, depth, ways, width, 0)
        for kind in ([mode] if mode else Mode)
        for depth in ([layers] if layers else range(1, _DEPTH + 1))
        for ways in ([directions] if directions else (1, 2))
        for width in ([units] if units else range(1, most))
    )
    solved = ((sizes, solve_input_size(elements, sizes)) for sizes in partial)
    fitting_sizes = [replace(sizes, input_size=inputs) for sizes, inputs in solved if inputs is not None]
    return sorted(fitting_sizes, key=lambda sizes: (-math.gcd(sizes.units, 64), sizes.layers))
