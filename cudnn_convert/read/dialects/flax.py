"""Names of recurrent cells of Flax, linen and nnx, in a single direction or two.

A key is `<path>/<part>/<kernel or bias>`, or with dots. A part is a Dense: kernel `[in, out]`, bias `[out]`.

* linen and nnx `LSTMCell`, linen `OptimizedLSTMCell`: `ii if ig io` without a bias, `hi hf hg ho` with one;
  nnx has `if_`.
* linen `GRUCell`: `ir iz in` with a bias, `hr hz` without one, `hn` with one.
* linen `SimpleCell`: `i` with a bias, `h` without one.
* nnx `OptimizedLSTMCell`, `GRUCell`, `SimpleCell`: `dense_i` and `dense_h`, of all gates side by side.

`Bidirectional` keeps its cells below `forward_rnn` and `backward_rnn`. Names tell neither tanh from relu nor
how cells follow each other. A box around an array, such as a variable of nnx or linen's `Partitioned`, adds
`/value` (nnx, before 0.10 `raw_value`).
Sources: flax v0.12.0 flax/linen/recurrent.py, flax/nnx/nn/recurrent.py (classes of these names, RNN,
Bidirectional), flax/core/meta.py Partitioned.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Array, CanonicalParameters, Cell, Mode, Tensor
from cudnn_convert.read.dialects import jax_trees
from cudnn_convert.read.dialects.shapes import MATRIX, WHOLE, check_type
from cudnn_convert.weights import layouts
from cudnn_convert.weights.lazy import LazyLayers

_KEY: Final = re.compile(
    r"(?P<path>(?:.*[./])?)(?P<part>if_|[ih][ifgorzn]|[ih]|dense_[ih])[./](?P<field>kernel|bias)"
    r"(?:[./](?:raw_)?value)?"
)
_WAYS: Final = ("forward_rnn", "backward_rnn")
_OF_WAY: Final = re.compile(rf"(?P<before>(?:.*[./])?)(?P<way>{'|'.join(_WAYS)})(?P<behind>[./].*)?")
_OWN_CELL: Final = "if it is a cell of your own with Flax's equations, save its parts by themselves"
_PLAIN: Final = (Mode.RNN_TANH, Mode.RNN_RELU)
_RANDOM: Final = re.compile(r"rngs[./]")


@dataclass(frozen=True, slots=True)
class _Form:
    """The parts of a class.

    `inputs` and `states` are parts in the order of gates, or one of all gates; `biases` are those with one.
    """

    name: str
    modes: tuple[Mode, ...]
    inputs: tuple[str, ...]
    states: tuple[str, ...]
    biases: tuple[str, ...]

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(f"{part}/kernel" for part in (*self.inputs, *self.states))

    @property
    def keys(self) -> frozenset[str]:
        return frozenset((*self.kernels, *(f"{part}/bias" for part in self.biases)))

    def shapes(self, inputs: int, units: int) -> dict[str, tuple[int, ...]]:
        wide = units * len(self.modes[0].gates) // len(self.states)
        shapes: dict[str, tuple[int, ...]] = {f"{part}/kernel": (inputs, wide) for part in self.inputs}
        shapes |= {f"{part}/kernel": (units, wide) for part in self.states}
        return shapes | {f"{part}/bias": (wide,) for part in self.biases}


_STATES: Final = ("hi", "hf", "hg", "ho")
_GRU: Final = ("ir", "iz", "in"), ("hr", "hz", "hn")
_SIDE_BY_SIDE: Final = ("dense_i",), ("dense_h",)
_FORMS: Final = (
    _Form("LSTMCell", (Mode.LSTM,), ("ii", "if", "ig", "io"), _STATES, _STATES),
    _Form("LSTMCell", (Mode.LSTM,), ("ii", "if_", "ig", "io"), _STATES, _STATES),
    _Form("GRUCell", (Mode.GRU,), *_GRU, (*_GRU[0], "hn")),
    _Form("SimpleCell", _PLAIN, ("i",), ("h",), ("i",)),
    _Form("OptimizedLSTMCell", (Mode.LSTM,), *_SIDE_BY_SIDE, ("dense_h",)),
    _Form("GRUCell", (Mode.GRU,), *_SIDE_BY_SIDE, ("dense_i",)),
    _Form("SimpleCell", _PLAIN, *_SIDE_BY_SIDE, ("dense_i",)),
)
#: Parts as short as these belong to other modules too.
_SHORT: Final = frozenset({"i/kernel", "h/kernel"})
#: The kernels of linen's MGUCell, which has two gates.
_MGU: Final = frozenset({"if/kernel", "in/kernel", "hf/kernel", "hn/kernel"})


@dataclass(frozen=True, slots=True)
class _Stored:
    """A cell in a file: the form, and the tensors by part and field."""

    path: str
    form: _Form
    tensors: Mapping[str, Tensor]

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The class, the input's width, the units and the type."""
        kernel, recurrent = (
            self.tensors[f"{parts[0]}/kernel"] for parts in (self.form.inputs, self.form.states)
        )
        return (self.form.name, *kernel.shape[:1], *recurrent.shape[:1], kernel.dtype)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every recurrent cell outside of an optimizer's state, sorted by path.

    Raises ReadError where no cell is one of Flax's, and one looks like it.
    """
    sets: dict[str, dict[str, Tensor]] = defaultdict(dict)
    weights = jax_trees.list_weights(tensors)
    for key, tensor in weights.items():
        if match := _KEY.fullmatch(key):
            sets[match["path"]][f"{match['part']}/{match['field']}"] = tensor
    foreign = jax_trees.list_foreign(weights, _KEY, ignored=_RANDOM) if sets else {}
    cells: dict[str, _Stored] = {}
    refusals: list[ReadError] = []
    for scope, own in sorted(sets.items()):
        stored = _recognise(path, scope, own, foreign.get(scope[:-1]))
        if isinstance(stored, _Stored):
            cells[scope] = stored
        elif stored is not None:
            refusals.append(stored)
    if refusals and not cells:
        raise refusals[0]
    return tuple(_pair(cells))


def _recognise(
    path: Path, scope: str, own: Mapping[str, Tensor], other: str | None
) -> _Stored | ReadError | None:
    """Return a cell, a refusal, or None for parts of another module.

    `other` is a key below the cell's path that is no part.
    """
    kernels = {key for key in own if key.endswith("/kernel")}
    likely = [form for form in _FORMS if 2 * len(kernels & {*form.kernels}) > len(form.kernels)]
    exact = [form for form in likely if form.keys == own.keys()]
    for form in () if other else exact:
        kernel, recurrent = (own[f"{parts[0]}/kernel"].shape for parts in (form.inputs, form.states))
        if len(kernel) == len(recurrent) == MATRIX and kernel[0] and recurrent[0]:
            shapes = form.shapes(kernel[0], recurrent[0])
            if all(own[key].shape == shape for key, shape in shapes.items()):
                return _check_types(path, _Stored(scope, form, own))
    if kernels == _MGU or (likely and kernels != _SHORT):
        nearest = sorted(exact or likely, key=lambda form: -len(form.keys & own.keys()))
        return _refuse(path, scope, own, other, nearest)
    return None


def _refuse(
    path: Path, scope: str, own: Mapping[str, Tensor], other: str | None, forms: Sequence[_Form]
) -> ReadError:
    """Return the refusal of a set like a cell of Flax."""
    if not forms:
        key, expected, actual = "", "a cell that cuDNN computes too", "Flax's MGUCell, of two gates"
        advice = "cuDNN has no such recurrence: train the model again with GRUCell, or run it in Flax"
    elif missing := forms[0].keys - own.keys():
        key, expected, actual, advice = min(missing), f"a part of {forms[0].name}", "no such key", WHOLE
    elif more := [*sorted(own.keys() - forms[0].keys), *filter(None, [other])]:
        key, expected, advice = "", f"the parts of Flax's {forms[0].name} alone", _OWN_CELL
        actual = f"{more[0]} beside them"
    else:
        key, shape = _find_misfit(forms[0], own)
        expected, actual, advice = f"shape {shape}", f"shape {own[key].shape}", WHOLE
        if len(own[key].shape) > len(shape):
            expected, actual = f"a {key.rpartition('/')[2]} of one cell", f"{actual}, of stacked cells"
            advice = "transforms such as nn.scan and nn.vmap stack cells: save each under a path of its own"
    where = (scope + key).rstrip("./") or "the root scope"
    return ReadError(path, where, expected=expected, found=actual, advice=advice)


def _find_misfit(form: _Form, own: Mapping[str, Tensor]) -> tuple[str, tuple[int, ...]]:
    """Return the first key with a misfit shape, and the expected shape."""
    sizes = (own[f"{parts[0]}/kernel"].shape[:1] or (1,) for parts in (form.inputs, form.states))
    shapes = form.shapes(*(max(size[0], 1) for size in sizes))
    return next((key, shape) for key, shape in shapes.items() if own[key].shape != shape)


def _check_types(path: Path, stored: _Stored) -> _Stored | ReadError:
    dtype = stored.tensors[stored.form.kernels[0]].dtype
    keyed = ((stored.path + key, tensor) for key, tensor in stored.tensors.items())
    refusals = (check_type(path, key, tensor, dtype) for key, tensor in keyed)
    return next(filter(None, refusals), stored)


def _pair(cells: Mapping[str, _Stored]) -> Iterator[CanonicalParameters]:
    """Yield the recurrences; two directions of a Bidirectional are a single recurrence."""
    for path, cell in cells.items():
        match = _OF_WAY.fullmatch(path)
        if match is None:
            yield _parameters(path, {"": cell})
            continue
        paths = [f"{match['before']}{each}{match['behind'] or ''}" for each in _WAYS]
        both = [cells[each] for each in paths if each in cells]
        if len(both) < len(_WAYS) or both[0].sizes != both[1].sizes:
            yield _parameters(path, {"": cell}, is_backward=match["way"] == _WAYS[1])
        elif path == paths[0]:
            yield _parameters(match["before"], dict(zip(_WAYS, both, strict=True)))


def _parameters(path: str, cells: Mapping[str, _Stored], *, is_backward: bool = False) -> CanonicalParameters:
    """Return a recurrence of cells by direction, "" for a single cell."""
    first = next(iter(cells.values()))
    stored = {
        f"{side}/{key}" if side else key: tensor
        for side, cell in cells.items()
        for key, tensor in cell.tensors.items()
    }

    def decode(mode: Mode) -> LazyLayers:
        return LazyLayers(1, lambda _: tuple(_cell(mode, cell) for cell in cells.values()))

    name, inputs, units, dtype = first.sizes
    scope = path.rstrip("./")
    return CanonicalParameters(
        scope=f"{scope}/" if scope else "",
        modes=first.form.modes,
        layers=1,
        directions=len(cells),
        units=units,
        input_size=inputs,
        decode=decode,
        tensors=stored,
        dialect="flax",
        dtype=dtype,
        batch_major=True,
        note=_note(scope or "the root scope", name, len(cells), is_backward=is_backward),
    )


def _note(where: str, name: str, directions: int, *, is_backward: bool) -> str:
    """Describe the reading of names, and the open questions."""
    functions = "without residual=True" if name == "SimpleCell" else "with default functions"
    if directions == len(_WAYS):
        return f"{where}: read as Bidirectional of two {name} {functions}, its directions side by side"
    if is_backward:
        return (
            f"{where}: read as {name} {functions}; it is the backward direction by its name: "
            "feed it reversed sequences"
        )
    return (
        f"{where}: read as {name} {functions}, forward in time; names do not say if it runs with "
        "reverse=True, nor which cells feed it"
    )


def _cell(mode: Mode, stored: _Stored) -> Cell:
    form, tensors = stored.form, stored.tensors

    def join(parts: tuple[str, ...]) -> tuple[Array, Array]:
        kernels = [tensors[f"{part}/kernel"].read() for part in parts]
        biases = [
            tensors[f"{part}/bias"].read() if part in form.biases else np.zeros(kernel.shape[1], kernel.dtype)
            for part, kernel in zip(parts, kernels, strict=True)
        ]
        return np.concatenate(kernels, axis=1), np.concatenate(biases)

    kernel, bias = join(form.inputs)
    recurrent, recurrent_bias = join(form.states)
    return layouts.unpack_columns(mode, layouts.FLAX, (kernel, recurrent), (bias, recurrent_bias))
