"""Names of MXNet's recurrent layers and cells, of gluon and of symbols.

A key ends in `i2h_weight`, `h2h_weight`, `i2h_bias` or `h2h_bias`, and with a projection in `h2r_weight` too.
`unpack_weights` writes an array for each gate, such as `i2h_f_weight`. The head of a key says whose it is:

* `<prefix>l<n>_`, backward `<prefix>r<n>_`: a layer, as gluon's `collect_params` and `export` name it, and as
  FusedRNNCell does. Prefixes are `lstm0_`, `net_lstm0_` or `1.`, say.
* `<path>_unfused.<n>.`, and with two directions `<path>_unfused.<n>.l_cell.` and `r_cell.`: such a layer, as
  `save_parameters` names it.
* `<path><n>.`, or `<path><n>.l_cell.` and `r_cell.`: cell n of gluon's SequentialRNNCell.
* `<path>l_cell.` and `<path>r_cell.`: gluon's BidirectionalCell.
* any other: a cell.

The cells of a sequence are layers of one recurrence where their sizes chain. A ResidualCell or ZoneoutCell
between them is seen, as its keys have `base_cell.`; a DropoutCell has none. Names tell neither tanh from relu
nor the activations of an LSTMCell.
Source: mxnet 1.9.1 python/mxnet/gluon/rnn/rnn_layer.py _RNNLayer.__init__, _collect_params_with_prefix,
gluon/rnn/rnn_cell.py, python/mxnet/rnn/rnn_cell.py FusedRNNCell._slice_weights, BaseRNNCell.unpack_weights.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Array, CanonicalParameters, Cell, Mode, Tensor
from cudnn_convert.read.dialects import shapes
from cudnn_convert.read.dialects.shapes import RowSizes
from cudnn_convert.weights import layouts
from cudnn_convert.weights.lazy import LazyLayers

_TAIL: Final = r"(?P<tail>(?:i2h|h2h|h2r)(?:_[ifcorz])?_(?:weight|bias))"
_SIDE: Final = r"(?:(?P<side>[lr])_cell\.)?"
_FORMS: Final = {
    form: re.compile(head + _TAIL, re.ASCII)
    for form, head in {
        "unfused": rf"(?P<path>(?:.*\.)?)_unfused\.(?P<layer>\d{{1,9}})\.{_SIDE}",
        # No letter stands before the direction: cell0_ is no layer of cel.
        "layered": r"(?P<path>(?:.*[^A-Za-z])?)(?P<side>[lr])(?P<layer>\d{1,9})_",
        "numbered": rf"(?P<path>(?:.*\.)?)(?P<layer>\d{{1,9}})\.{_SIDE}",
        "pair": r"(?P<path>(?:.*\.)?)(?P<side>[lr])_cell\.",
        "cell": r"(?P<path>.*)",
    }.items()
}
#: The head of a layer whose prefix ends with a letter.
_GLUED: Final = re.compile(r"(?P<path>.*[A-Za-z])(?P<side>[lr])(?P<layer>\d{1,9})_", re.ASCII)
#: The names of gates with arrays of their own, in the order of the layout, by their number.
_APART: Final = {4: ("_i", "_f", "_c", "_o"), 3: ("_r", "_z", "_o")}
#: Weights of cells that have more than cuDNN's, layer normalization or peepholes, say.
_MORE: Final = re.compile(r"(?:i2h|h2h|h2r|c2c).*|.*_(?:gamma|beta)")
_BACKWARD: Final = re.compile(r"(?:.*\.)?r_cell\.")
_SINGLY: Final = "save the arrays of each recurrence to a file of its own"
_OTHER: Final = "such a cell is none of cuDNN's; take it out, or run it with MXNet"


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Find every layer, sequence of cells and cell, sorted by path. Raises ReadError."""
    keys = sorted(tensors)
    sets: dict[str, CanonicalParameters] = {}
    for _, cells in sorted(_group(path, tensors).items()):
        for stack in _make_stacks(cells, keys):
            parameters = _parameters(path, stack, keys)
            if parameters is None:
                continue
            if parameters.scope in sets:  # lstm_ may be a cell's head and the prefix of a layer
                parameters = replace(parameters, scope=f"{stack.cells[0][0].head}/")
            sets[parameters.scope] = parameters
    return tuple(sets.values())


@dataclass(frozen=True, slots=True)
class _CellForm:
    """The sizes of a cell, and the names of gates with separate arrays, else ""."""

    sizes: RowSizes
    ends: tuple[str, ...]

    def with_inputs(self, inputs: int) -> "_CellForm":
        """Return the form of such a cell for another input size."""
        return replace(self, sizes=replace(self.sizes, inputs=inputs))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a cell's tensors by the tails of keys."""
        sizes, rows = self.sizes, self.sizes.rows // len(self.ends)
        expected: dict[str, tuple[int, ...]] = {}
        for end in self.ends:
            expected |= {f"i2h{end}_weight": (rows, sizes.inputs), f"h2h{end}_weight": (rows, sizes.width)}
            expected |= {f"i2h{end}_bias": (rows,), f"h2h{end}_bias": (rows,)}
        return expected | ({"h2r_weight": (sizes.width, sizes.units)} if sizes.has_projection else {})


@dataclass(slots=True)
class _NamedCell:
    """The tensors of a cell by the tails of keys; the head's facts."""

    form: str
    path: str
    layer: int
    side: str
    head: str
    tensors: dict[str, Tensor]

    def measure(self) -> _CellForm | None:
        """Return the form and sizes; None for another kind of cell."""
        apart = (ends for ends in _APART.values() if f"i2h{ends[0]}_weight" in self.tensors)
        ends = ("",) if "i2h_weight" in self.tensors else next(apart, ("",))
        names = (f"i2h{ends[0]}_weight", f"h2h{ends[0]}_weight", "h2r_weight")
        sizes = shapes.measure_rows(*map(self.tensors.get, names), parts=len(ends))
        return None if sizes is None else _CellForm(sizes, ends)

    def is_whole(self) -> bool:
        """Return True if all tensors are there and fit together."""
        form = self.measure()
        return form is not None and form.shapes == {
            tail: tensor.shape for tail, tensor in self.tensors.items()
        }


@dataclass(frozen=True, slots=True)
class _NamedStack:
    """The cells of a recurrence, `[layer][direction]`.

    `prefix` begins all of their keys. `of_cells`: they are cells by their names, not a layer. `note` says
    what is taken for granted.
    """

    prefix: str
    cells: Sequence[Sequence[_NamedCell]]
    of_cells: bool = False
    note: str = ""


def _group(path: Path, tensors: Mapping[str, Tensor]) -> dict[tuple[str, str], list[_NamedCell]]:
    """Return the cells by the path and the form of heads. Raises ReadError."""
    cells: dict[str, _NamedCell] = {}
    for key, tensor in tensors.items():
        matches = ((form, pattern.fullmatch(key)) for form, pattern in _FORMS.items())
        form, match = next(((form, match) for form, match in matches if match), ("", None))
        if match is not None:
            head, parts = key[: match.start("tail")], match.groupdict()
            layer, side = int(parts.get("layer") or 0), parts.get("side") or ""
            cells.setdefault(head, _NamedCell(form, match["path"], layer, side, head, {}))
            cells[head].tensors[match["tail"]] = tensor
    _join_glued(cells)
    groups: dict[tuple[str, str], list[_NamedCell]] = defaultdict(list)
    seen: dict[tuple[str, str, int, str], str] = {}
    for head, cell in cells.items():
        groups[cell.path, cell.form].append(cell)
        if (other := seen.setdefault((cell.path, cell.form, cell.layer, cell.side or "l"), head)) != head:
            expected = "one cell of a layer and direction"
            raise ReadError(path, head, expected=expected, found=f"{other} too", advice=shapes.WHOLE)
    return groups


def _join_glued(cells: Mapping[str, _NamedCell]) -> None:
    """Join cells such as encoderl0_ and encoderr0_ to layers."""
    matches = {head: match for head, cell in cells.items() if (match := _GLUED.fullmatch(head))}
    sides = {(match["path"], match["side"]) for match in matches.values()}
    for head, match in matches.items():
        if {(match["path"], "l"), (match["path"], "r")} <= sides:
            cells[head].form, cells[head].path = "layered", match["path"]
            cells[head].layer, cells[head].side = int(match["layer"]), match["side"]


def _make_stacks(cells: Iterable[_NamedCell], keys: Sequence[str]) -> Iterator[_NamedStack]:
    """Yield the recurrences of a path's cells.

    A cell that is no layer of one is one of its own.
    """
    by_layer: dict[int, list[_NamedCell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: (cell.layer, cell.side)):
        by_layer[cell.layer].append(cell)
    layers = [*by_layer.values()]
    form, path = layers[0][0].form, layers[0][0].path
    if form == "unfused" or (form == "layered" and not _are_cells(by_layer)):
        yield _NamedStack(path, layers)
    elif form == "numbered" and len(layers) > 1 and _do_chain(layers) and not _skip(path, by_layer, keys):
        listed = ", ".join(map(str, by_layer))
        note = f"cells {listed} are taken for the layers of one recurrence, each fed by the one before"
        yield _NamedStack(path, layers, of_cells=True, note=note)
    else:
        for layer in layers:
            head = layer[0].head
            note = "a cell, taken for a layer that runs forward" if len(layer) == 1 else ""
            yield _NamedStack(head.removesuffix("l_cell."), [layer], of_cells=True, note=note)


def _are_cells(by_layer: Mapping[int, Sequence[_NamedCell]]) -> bool:
    """Return True for separate cells with heads such as lstm_l1_."""
    cells = [cell for layer in by_layer.values() for cell in layer]
    if any(cell.side == "r" for cell in cells):
        return False
    is_whole = all(map(_NamedCell.is_whole, cells))
    return 0 not in by_layer or (is_whole and not _do_chain([*by_layer.values()]))


def _do_chain(layers: Sequence[Sequence[_NamedCell]]) -> bool:
    """Return True if the sizes of cells chain, as in one recurrence."""
    first, sides = layers[0][0].measure(), [cell.side for cell in layers[0]]
    if first is None:
        return False
    for number, layer in enumerate(layers):
        form = first if number == 0 else first.with_inputs(len(sides) * first.sizes.width)
        if [cell.side for cell in layer] != sides or any(cell.measure() != form for cell in layer):
            return False
    return True


def _skip(path: str, by_layer: Mapping[int, object], keys: Sequence[str]) -> bool:
    """Return True if the cells of a sequence skip the number of other weights."""
    pattern = re.compile(rf"{re.escape(path)}(\d{{1,9}})\.", re.ASCII)
    numbers = {int(match[1]) for key in _list_under(path, keys) if (match := pattern.match(key))}
    return any(min(by_layer) < number < max(by_layer) for number in numbers - by_layer.keys())


def _list_under(head: str, keys: Sequence[str]) -> Iterator[str]:
    """Yield the keys with the beginning `head`; `keys` are sorted."""
    for position in range(bisect_left(keys, head), len(keys)):
        if not keys[position].startswith(head):
            return
        yield keys[position]


def _parameters(path: Path, stack: _NamedStack, keys: Sequence[str]) -> CanonicalParameters | None:
    first = stack.cells[0][0].measure()
    if first is None:
        return None
    sizes, sides = first.sizes, _sides(path, stack)
    stored: dict[str, Tensor] = {}
    for number, layer in enumerate(stack.cells):
        form = first if number == 0 else first.with_inputs(len(sides) * sizes.width)
        for cell in layer:
            _refuse_others(path, cell, form.shapes, keys)
            for tail, shape in form.shapes.items():
                key = f"{cell.head}{tail}"
                tensor = shapes.take(path, key, cell.tensors.get(tail), shape, sizes.dtype)
                stored[key.removeprefix(stack.prefix)] = tensor

    def decode(mode: Mode) -> LazyLayers:
        def layer(number: int) -> tuple[Cell, ...]:
            return tuple(_cell(mode, first, cell) for cell in stack.cells[number])

        return LazyLayers(len(stack.cells), layer)

    name = stack.prefix.rstrip("._/")
    notes = [stack.note] if stack.note else []
    if stack.of_cells and sizes.gates == len(Mode.LSTM.gates):
        notes.append("LSTMCell's activations are taken to be its own, tanh and sigmoid")
    if _BACKWARD.match(stack.prefix):
        notes.append("its BidirectionalCell gives it the sequence from the end on")
    return CanonicalParameters(
        scope=f"{name}/" if name else "",
        modes=shapes.MODES[sizes.gates],
        layers=len(stack.cells),
        directions=len(sides),
        units=sizes.units,
        input_size=sizes.inputs,
        decode=decode,
        tensors=stored,
        dialect="mxnet",
        dtype=sizes.dtype,
        projection=sizes.projection,
        note=f"{name or path.name}: {'; '.join(notes)}" if notes else None,
    )


def _sides(path: Path, stack: _NamedStack) -> list[str]:
    """Return the letters of each layer's directions. Raises ReadError for a missing one."""
    first = stack.cells[0][0]
    sides = ["l", "r"] if any(cell.side == "r" for layer in stack.cells for cell in layer) else [first.side]
    if sides == ["l"] and first.form != "layered":  # l_cell. without r_cell.
        sides = ["l", "r"]
    for number, layer in enumerate(stack.cells):
        actual = [cell.side for cell in layer]
        if actual != sides:
            expected = f"cells {' and '.join(sides)} in each layer, as in one of them"
            listed = " and ".join(actual)
            raise ReadError(path, layer[0].head, expected=expected, found=listed, advice=_SINGLY)
        if not stack.of_cells and layer[0].layer != number:
            expected, lack = f"layer {number} before it", "none"
            raise ReadError(path, layer[0].head, expected=expected, found=lack, advice=shapes.WHOLE)
    return sides


def _refuse_others(path: Path, cell: _NamedCell, tails: Mapping[str, object], keys: Sequence[str]) -> None:
    """Raise ReadError for a cell with more weights than cuDNN's."""
    for key in _list_under(cell.head, keys):
        tail = key.removeprefix(cell.head)
        if tail not in tails and (cell.head.endswith(".") or _MORE.fullmatch(tail)):
            expected = f"a cell with {', '.join(tails)}"
            raise ReadError(path, key, expected=expected, found="more of it", advice=_OTHER)


def _cell(mode: Mode, form: _CellForm, cell: _NamedCell) -> Cell:
    def read(name: str, kind: str) -> Array:
        return np.concatenate([cell.tensors[f"{name}{end}_{kind}"].read() for end in form.ends])

    kernels = read("i2h", "weight"), read("h2h", "weight")
    biases = read("i2h", "bias"), read("h2h", "bias")
    projection = cell.tensors["h2r_weight"].read() if form.sizes.has_projection else None
    return layouts.unpack_rows(mode, layouts.MXNET, kernels, biases, projection)
