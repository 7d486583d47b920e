"""Builds fused ONNX nodes: one LSTM, GRU or RNN for each layer.

`NodeBuilder` adds the nodes to a tf2onnx graph or to a new one. The fused nodes first read *tickets* in place
of weights, float constants `[owner, layer, slot, MARK]`; `attach_weights` replaces them by the arrays once
the graph is final, since every pass over a graph copies its constants. ONNX runtimes have no recurrences of
double, half or bfloat16, so those are computed in float. ONNX has no projection; `weights.layouts` expresses
one without it.

Source: onnx v1.18 docs/Operators.md LSTM-7, GRU-7, RNN-7 (W `[directions, gates*units, inputs]`,
R `[directions, gates*units, units]`, B `[directions, 2*gates*units]`, Y `[steps, directions, batch, units]`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

from cudnn_convert.lower.onnx.walk import subgraphs
from cudnn_convert.model import Array, Cell, Mode, Parts, Recurrence, Sizes
from cudnn_convert.weights import buffers, layouts
from cudnn_convert.weights.lazy import LazyLayers

_OPS: Final = {Mode.LSTM: "LSTM", Mode.GRU: "GRU", Mode.RNN_TANH: "RNN", Mode.RNN_RELU: "RNN"}
#: The ONNX ops of fused recurrences.
FUSED: Final = frozenset(_OPS.values())
#: The attribute `clip` of nodes with lengths of the model: a bound that no float passes. OpenVINO (2024.6.0,
#: 2025.4.1 and 2026.4.1) ignores lengths where steps or batch are open. It makes a loop of a node that clips,
#: and the loop keeps to the lengths. Source: openvino 00262ea src/plugins/intel_cpu/src/nodes/rnn.cpp
#: RNN::isSupportedOperation. The bound is ONNX Runtime's own default for an LSTM and a GRU. Its RNN without
#: the attribute differs for infinite sums alone. Source: onnxruntime core/providers/cpu/rnn/lstm_base.h
#: LSTMBase, deep_cpu_gru.h DeepCpuGruOp, rnn.cc Clip.
_NO_CLIP: Final = float(np.finfo(np.float32).max)
#: From these opsets on, axes are an input: of some ops, of the other reductions.
_AXES_AS_INPUT: Final = {"Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13}
_AXES_OF_REDUCTIONS: Final = 18
#: Last value of a ticket, so that it equals no other constant: tf2onnx merges equal ones.
MARK: Final = 2.0**-113 * 1.2912
#: The parts of inputs 1 to 3 of a fused node, W, R and B, for one direction.
_WEIGHTS: Final[tuple[Callable[[Cell], Sequence[Array]], ...]] = (
    lambda cell: layouts.rows(cell, layouts.ONNX)[0],
    lambda cell: layouts.rows(layouts.fold_projection(cell), layouts.ONNX)[1],
    lambda cell: layouts.biases(cell, layouts.ONNX),
)
#: Shapes of W, R and B for one direction, known without the weights.
_SHAPES: Final[tuple[Callable[[Sizes, int], tuple[int, ...]], ...]] = (
    lambda sizes, layer: (len(sizes.mode.gates) * sizes.units, sizes.inputs(layer)),
    lambda sizes, _: (len(sizes.mode.gates) * sizes.units, sizes.units),
    lambda sizes, _: (2 * len(sizes.mode.gates) * sizes.units,),
)


class NodeBuilder(ABC):
    """A builder of nodes in a graph, returning the names of outputs."""

    opset: int

    @abstractmethod
    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]: ...
    @abstractmethod
    def constant(self, value: Any, dtype: Any = np.int64) -> str: ...
    @abstractmethod
    def steps(self, x: str) -> int:
        """Return the length of the first axis, -1 if unknown."""

    def __call__(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        (output,) = self.several(op, inputs, 1, **attributes)
        return output

    def part(self, data: str, start: int, end: int, axis: int = 0) -> str:
        """Return `data[start:end]` on `axis`."""
        return self("Slice", [data, *(self.constant([k]) for k in (start, end, axis))])

    def squeeze(self, data: str, axis: int) -> str:
        return self.over_axes("Squeeze", data, [axis])

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        return self.over_axes("Unsqueeze", data, axes)

    def over_axes(self, op: str, data: str, axes: list[int], **attributes: Any) -> str:
        """Add an op over axes, such as a reduction.

        Axes are an attribute in older opsets, an input in newer ones.
        """
        if self.opset < _AXES_AS_INPUT.get(op, _AXES_OF_REDUCTIONS):
            return self(op, [data], axes=axes, **attributes)
        return self(op, [data, self.constant(axes)], **attributes)


def stack(
    ops: NodeBuilder,
    recurrence: Recurrence,
    x: str,
    states: Sequence[str],
    lengths: str = "",
    *,
    owner: int = 0,
) -> list[str]:
    """Add all layers over `x [steps, batch, inputs]`, in float32.

    `states` are h and for an LSTM c, `[layers*directions, batch, units]`, or empty for zeros; `lengths
    [batch]` may be "". `owner` is the number in the tickets. Returns `y [steps, batch, directions*units]` and
    the final states; with a projection h and y have its width.
    """
    sizes = recurrence.sizes
    rows, empty = _lengths(ops, x, sizes.mode, lengths)
    kinds = 2 if sizes.mode is Mode.LSTM else 1
    ends: list[list[str]] = [[] for _ in range(kinds)]
    for layer in range(sizes.layers):
        first = layer * sizes.directions
        starts = list(states)
        if sizes.layers > 1:
            starts = [ops.part(name, first, first + sizes.directions) for name in states]
        into, out_of = _projections(ops, recurrence.cells[layer] if sizes.projection else ())
        starts = [_times(ops, name, into if k == 0 else [], axis=0) for k, name in enumerate(starts)]
        tickets = [ops.constant([owner, layer, slot, MARK], np.float32) for slot in range(3)]
        peepholes = _peepholes(ops, recurrence, layer)
        inputs = [x, *tickets, rows, *(starts or [""] * kinds), *peepholes]
        while not inputs[-1]:
            inputs.pop()
        attributes = _attributes(recurrence) | ({"clip": _NO_CLIP} if lengths else {})
        y, h, *c = ops.several(_OPS[sizes.mode], inputs, 1 + kinds, **attributes)
        y, h = _times(ops, y, out_of, axis=1), _times(ops, h, out_of, axis=0)
        x = _merge_directions(ops, y, directions=sizes.directions, units=sizes.width)
        for initial, name in zip(ends, [h, *c], strict=True):
            initial.append(name)
    finals = [ops("Concat", initial, axis=0) if len(initial) > 1 else initial[0] for initial in ends]
    if empty:
        # A row without steps must return its initial state. ONNX Runtime (1.31.1) gives zeros, or
        # uninitialised memory for an LSTM of 0 steps with neither lengths nor states.
        starts = list(states) or [ops.constant(0, np.float32)] * kinds
        finals = [ops("Where", [empty, *pair]) for pair in zip(starts, finals, strict=True)]
    return [x, *finals]


def _projections(ops: NodeBuilder, cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """Return the matrices for h0, and for a fused node's y and h, by direction.

    Both lists are empty without a projection.
    """
    inverses = [inverse for cell in cells if (inverse := layouts.invert_projection(cell)) is not None]
    columns = [matrix for cell in cells for matrix in layouts.projection_columns(cell)]
    into, out_of = ([ops.constant(inverse, np.float32) for inverse in group] for group in (inverses, columns))
    return into, out_of


def _times(ops: NodeBuilder, name: str, matrices: Sequence[str], *, axis: int) -> str:
    """Multiply each direction's part, a single index on `axis`, by the direction's matrix.

    Not one product of stacked matrices: ONNX Runtime (1.31.1) has none for 0 steps.
    """
    if len(matrices) < 2:
        return ops("MatMul", [name, *matrices]) if matrices else name
    ways = [ops("MatMul", [ops.part(name, k, k + 1, axis), matrix]) for k, matrix in enumerate(matrices)]
    return ops("Concat", ways, axis=axis)


def _peepholes(ops: NodeBuilder, recurrence: Recurrence, layer: int) -> list[str]:
    if isinstance(recurrence.cells, LazyLayers):
        return []  # only a block has peepholes, and its cells are never `LazyLayers`
    rows = [layouts.peephole_row(cell, layouts.ONNX) for cell in recurrence.cells[layer]]
    return [] if rows[0] is None else [ops.constant(rows, np.float32)]


def _attributes(recurrence: Recurrence) -> dict[str, Any]:
    sizes = recurrence.sizes
    direction = "bidirectional" if sizes.directions == 2 else "forward"
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": sizes.units}
    if sizes.mode is Mode.GRU:
        attributes["linear_before_reset"] = 1  # cuDNN resets after the matrix product
    if sizes.mode is Mode.RNN_RELU:
        attributes["activations"] = ["Relu"] * sizes.directions
    return attributes


def _lengths(ops: NodeBuilder, x: str, mode: Mode, lengths: str) -> tuple[str, str]:
    """Return the `lengths [batch]` for the fused nodes, and a mask of empty rows.

    Either is "" where it is not needed.
    """
    if not lengths:
        if ops.steps(x) > 0:
            return "", ""
        shape = ops("Shape", [x])
        count = ops.part(shape, 0, 1)
        if mode is not Mode.GRU:
            return "", ops("Equal", [count, ops.constant([0])])
        # ONNX Runtime (1.31.1) crashes on a GRU of 0 steps without lengths.
        lengths = ops("Expand", [ops("Cast", [count], to=onnx.TensorProto.INT32), ops.part(shape, 1, 2)])
    alone = ops("Equal", [lengths, ops.constant([0], np.int32)])
    return lengths, ops.unsqueeze(alone, [0, 2])


def _merge_directions(ops: NodeBuilder, y: str, *, directions: int, units: int) -> str:
    """Reshape `[steps, directions, batch, units]` to `[steps, batch, directions*units]`."""
    if directions == 1:
        # Not as below: tf2onnx's optimizer turns this Transpose into a Reshape and merges the two wrongly.
        return ops.squeeze(y, 1)
    side_by_side = ops("Transpose", [y], perm=[0, 2, 1, 3])
    return ops("Reshape", [side_by_side, ops.constant([0, 0, directions * units])])


def map_layers(
    graph: Any, recurrences: Sequence[Recurrence], around: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return the recurrence and layer of each fused node: dicts of `piece`, `node`, `layer`.

    Must be called before `attach_weights`. `around` has the constants of enclosing graphs, by name.
    """
    constants = {**around, **{tensor.name: tensor for tensor in graph.initializer}}
    layers = []
    for node in graph.node:
        for nested in subgraphs(node):
            layers += map_layers(nested, recurrences, constants)
        ticket = _ticket(constants.get(node.input[1])) if node.op_type in FUSED else None
        if ticket is not None:
            owner, layer, _ = ticket
            layers.append({"piece": node.name, "node": recurrences[owner].node, "layer": layer})
    return layers


def _ticket(tensor: Any) -> tuple[int, int, int] | None:
    """Return the owner, layer and slot of a ticket, or None for another constant.

    Weights have rank 2 or 3, tickets rank 1.
    """
    if tensor is None or [*tensor.dims] != [4]:
        return None
    *numbers, mark = onnx.numpy_helper.to_array(tensor)
    if mark != np.float32(MARK):
        return None
    owner, layer, slot = map(int, numbers)
    return owner, layer, slot


def attach_weights(graph: Any, recurrences: Sequence[Recurrence]) -> dict[str, Parts]:
    """Return the weights for each ticket of a GraphProto, by name; tickets get shapes alone.

    Tickets in nested graphs are filled at once: a file beside the model cannot hold their weights.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    parts: dict[str, Parts] = {}
    for node in graph.node:
        for nested in subgraphs(node):
            for name, weights in attach_weights(nested, recurrences).items():
                fill(next(tensor for tensor in nested.initializer if tensor.name == name), weights)
        if node.op_type not in FUSED:
            continue
        for name in node.input[1:4]:
            tensor = constants.get(name)
            if tensor is not None and name not in parts and (ticket := _ticket(tensor)):
                owner, layer, slot = ticket
                recurrence = recurrences[owner]
                parts[name] = partial(_parts, recurrence, layer, _WEIGHTS[slot])
                tensor.dims[:] = [recurrence.sizes.directions, *_SHAPES[slot](recurrence.sizes, layer)]
                tensor.ClearField("raw_data")
    return parts


def fill(tensor: Any, weights: Parts) -> None:
    """Write weights into a TensorProto of the same shape."""
    tensor.raw_data = b"".join(part.data.cast("B") for part in weights())


def _parts(recurrence: Recurrence, layer: int, weights: Callable[[Cell], Sequence[Array]]) -> Iterator[Array]:
    """Yield a constant's bytes, part by part for each direction, copied only where necessary."""
    parts = (part for cell in recurrence.cells[layer] for part in weights(cell))
    return (np.ascontiguousarray(strip, "<f4") for part in parts for strip in buffers.row_chunks(part))
