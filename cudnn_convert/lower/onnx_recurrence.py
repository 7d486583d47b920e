"""A cuDNN recurrence in ONNX ops: one fused LSTM, GRU or RNN node for each layer, both directions in it.

Weights never pass through tf2onnx. The fused nodes read *tickets*, float constants `[owner, layer, slot]`,
and `redeem` puts the arrays in their place once the rest of the graph is settled: tf2onnx copies every
constant for every pass of its optimizer. ONNX runtimes have no recurrences of double, half or bfloat16, so
those are cast to float and back. ONNX knows no projection either: `projection` says how it goes without.
Sources: onnx v1.18 docs/Operators.md LSTM-7, GRU-7, RNN-7 (W `[directions, gates*units, inputs]`,
R `[directions, gates*units, units]`, B `[directions, 2*gates*units]`, Y `[steps, directions, batch, units]`);
tf2onnx v1.17.0 tf2onnx/graph.py, graph_builder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from tf2onnx.graph_builder import GraphBuilder
from tf2onnx.utils import make_name

from cudnn_convert import layouts
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS
from cudnn_convert.lower import projection
from cudnn_convert.lower.onnx_order import subgraphs
from cudnn_convert.model import Array, Cell, Mode, Recurrence

_OPS: Final = {Mode.LSTM: "LSTM", Mode.GRU: "GRU", Mode.RNN_TANH: "RNN", Mode.RNN_RELU: "RNN"}
_FLOAT: Final = onnx.TensorProto.FLOAT
_SWAP: Final = [1, 0, 2]  # batch-major to time-major and back
#: What stands in inputs 1 to 3 of a fused node, W, R and B, for one direction.
_WEIGHTS: Final[tuple[Callable[[Cell], Array], ...]] = (
    lambda cell: layouts.rows(cell, layouts.ONNX)[0],
    lambda cell: layouts.rows(projection.composed(cell), layouts.ONNX)[1],
    lambda cell: np.concatenate(layouts.biases(cell, layouts.ONNX)),
)


def refusals(recurrences: Sequence[Recurrence]) -> Iterator[str]:
    """Why a recurrence has no ONNX form."""
    for recurrence in recurrences:
        if not all(projection.solvable(cell) for layer in recurrence.cells for cell in layer):
            yield (
                f"{recurrence.node}: expected a projection of independent rows, found others; "
                "convert to savedmodel or frozen"
            )


def replace(graph: Any, node: Any, recurrences: Sequence[Recurrence]) -> None:
    """Put ONNX ops in the place of a cuDNN `node` of a tf2onnx `graph`; `seed2` is its recurrence's number.

    The node's output tensors keep their names. What nobody reads is left to `onnx_canonical` to drop.
    """
    recurrence = recurrences[node.get_attr_int("seed2")]
    inputs, outputs, dtype = list(node.input), list(node.output), graph.get_dtype(node.input[INPUT])
    shapes = [graph.get_shape(name) for name in outputs]
    graph.remove_node(node.name)
    made = _Ops(graph)
    lstm = recurrence.sizes.mode is Mode.LSTM
    floats = [inputs[k] for k in (INPUT, INPUT_H, INPUT_C)][: 3 if lstm else 2]
    if dtype != _FLOAT:
        floats = [made("Cast", [name], to=_FLOAT) for name in floats]
    if not recurrence.time_major:
        floats = [made("Transpose", [name], perm=_SWAP) for name in floats]
    lengths = inputs[LENGTHS:] if recurrence.lengths else []
    results = _stack(made, recurrence, _owner(recurrences, recurrence), floats, lengths)
    if not recurrence.time_major:
        results = [made("Transpose", [name], perm=_SWAP) for name in results]
    if dtype != _FLOAT:
        results = [made("Cast", [name], to=dtype) for name in results]
    if not lstm:  # cuDNN leaves output_c undefined; as in the TensorFlow lowering input_c passes through
        results.append(inputs[INPUT_C])
        shapes[INPUT_C] = graph.get_shape(inputs[INPUT_C])
    for name, result, shape in zip(outputs, results, shapes, strict=False):
        graph.make_node("Identity", [result], outputs=[name], shapes=[shape], dtypes=[dtype])


class _Ops:
    """Makes nodes in one graph and gives back the name of their first output."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.versioned = GraphBuilder(graph)  # for ops whose axes moved from attribute to input

    def __call__(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        return str(self.graph.make_node(op, list(inputs), attr=attributes).output[0])

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return str(self.graph.make_const(make_name("constant"), np.array(value, dtype)).output[0])

    def part(self, data: str, start: int, end: int, axis: int = 0) -> str:
        """`data[start:end]` on `axis`."""
        return str(
            self.versioned.make_slice({"data": data, "starts": [start], "ends": [end], "axes": [axis]})
        )

    def squeeze(self, data: str, axis: int) -> str:
        return str(self.versioned.make_squeeze({"data": data, "axes": [axis]}))

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        return str(self.versioned.make_unsqueeze({"data": data, "axes": axes}))


def _stack(
    made: _Ops, recurrence: Recurrence, owner: int, floats: Sequence[str], lengths: Sequence[str]
) -> list[str]:
    """All layers over `x [steps, batch, inputs]` and states `[layers*directions, batch, units]`.

    Gives `y [steps, batch, directions*units]` and the final states; h and y are of a projection's width.
    """
    sizes, (x, *states) = recurrence.sizes, floats
    rows, empty = _lengths(made, x, sizes.mode, lengths[0] if lengths else "")
    ends: list[list[str]] = [[] for _ in states]
    for layer in range(sizes.layers):
        first = layer * sizes.directions
        starts = states
        if sizes.layers > 1:
            starts = [made.part(name, first, first + sizes.directions) for name in states]
        into, out_of = _projections(made, recurrence.cells[layer])
        starts = [_times(made, starts[0], into, axis=0), *starts[1:]]
        tickets = [made.constant([owner, layer, slot], np.float32) for slot in range(3)]
        node = made.graph.make_node(
            _OPS[sizes.mode],
            [x, *tickets, rows, *starts, *_peepholes(made, recurrence, layer)],
            attr=_attributes(recurrence),
            output_count=1 + len(states),
        )
        y, h, *c = node.output
        y, h = _times(made, y, out_of, axis=1), _times(made, h, out_of, axis=0)
        x = _merged(made, y, directions=sizes.directions, units=sizes.width)
        for found, name in zip(ends, [h, *c], strict=True):
            found.append(name)
    finals = [made("Concat", found, axis=0) if len(found) > 1 else found[0] for found in ends]
    if empty:  # ONNX Runtime gives zeros for a row without steps, where the state never left its start
        finals = [made("Where", [empty, *pair]) for pair in zip(states, finals, strict=True)]
    return [x, *finals]


def _projections(made: _Ops, cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """What h0 is multiplied with before a fused node, and y and h behind it, by direction; mostly nothing."""
    inverses = [found for cell in cells if (found := projection.inverse(cell)) is not None]
    columns = [matrix for cell in cells for matrix in layouts.projection_columns(cell)]
    into, out_of = ([made.constant(found, np.float32) for found in group] for group in (inverses, columns))
    return into, out_of


def _times(made: _Ops, name: str, matrices: Sequence[str], *, axis: int) -> str:
    """The part of each direction, one index on `axis`, times its own matrix.

    Not one product of stacked matrices: ONNX Runtime (1.31.1) has none for 0 steps.
    """
    if len(matrices) < 2:
        return made("MatMul", [name, *matrices]) if matrices else name
    ways = [made("MatMul", [made.part(name, k, k + 1, axis), matrix]) for k, matrix in enumerate(matrices)]
    return made("Concat", ways, axis=axis)


def _peepholes(made: _Ops, recurrence: Recurrence, layer: int) -> list[str]:
    found = [layouts.peephole_row(cell, layouts.ONNX) for cell in recurrence.cells[layer]]
    return [] if found[0] is None else [made.constant(found, np.float32)]


def _attributes(recurrence: Recurrence) -> dict[str, Any]:
    sizes = recurrence.sizes
    direction = "bidirectional" if sizes.directions == 2 else "forward"
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": sizes.units}
    if sizes.mode is Mode.GRU:
        attributes["linear_before_reset"] = 1  # cuDNN resets after the matrix product
    if sizes.mode is Mode.RNN_RELU:
        attributes["activations"] = ["Relu"] * sizes.directions
    return attributes


def _lengths(made: _Ops, x: str, mode: Mode, lengths: str) -> tuple[str, str]:
    """`(lengths [batch] for the fused nodes or "", what is true where a row has no steps or "")`."""
    if not lengths:
        steps = (made.graph.get_shape(x) or [-1])[0]
        if steps > 0:
            return "", ""
        shape = made("Shape", [x])
        count = made.part(shape, 0, 1)
        if mode is not Mode.GRU:
            return "", made("Equal", [count, made.constant([0])])
        # ONNX Runtime (1.31.1) ends the process on a GRU of 0 steps that is given no lengths.
        lengths = made("Expand", [made("Cast", [count], to=onnx.TensorProto.INT32), made.part(shape, 1, 2)])
    alone = made("Equal", [lengths, made.constant([0], np.int32)])
    return lengths, made.unsqueeze(alone, [0, 2])


def _merged(made: _Ops, y: str, *, directions: int, units: int) -> str:
    """`[steps, directions, batch, units]` to `[steps, batch, directions*units]`."""
    if directions == 1:
        # Not as below: tf2onnx's optimizer makes a Reshape of this Transpose and merges the two wrongly.
        return made.squeeze(y, 1)
    side_by_side = made("Transpose", [y], perm=[0, 2, 1, 3])
    return made("Reshape", [side_by_side, made.constant([0, 0, directions * units])])


def _owner(recurrences: Sequence[Recurrence], wanted: Recurrence) -> int:
    """The number of the first recurrence that holds the same weights, so that both read one constant."""
    return next(
        k
        for k, other in enumerate(recurrences)
        if (other.shared, other.sizes, other.dtype) == (wanted.shared, wanted.sizes, wanted.dtype)
    )


def redeem(graph: Any, recurrences: Sequence[Recurrence]) -> None:
    """Fill each ticket of a GraphProto and of the graphs in it with the weights it stands for."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for nested in subgraphs(node):
            redeem(nested, recurrences)
        if node.op_type not in _OPS.values():
            continue
        for name in node.input[1:4]:
            tensor = constants.get(name)
            if tensor is not None and len(tensor.dims) == 1:  # real weights have rank 2 or 3
                owner, layer, slot = onnx.numpy_helper.to_array(tensor).astype(int)
                parts = [_WEIGHTS[slot](cell) for cell in recurrences[owner].cells[layer]]
                tensor.dims[:] = [len(parts), *parts[0].shape]
                tensor.raw_data = b"".join(np.asarray(part, "<f4").tobytes() for part in parts)
