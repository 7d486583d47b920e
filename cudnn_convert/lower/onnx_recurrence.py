"""cuDNN nodes of a tf2onnx graph: each becomes the nodes of `onnx_stack`, its outputs keeping their names.

Weights never pass through tf2onnx, which copies every constant for every pass of its optimizer.
Source: tf2onnx v1.17.0 tf2onnx/graph.py, graph_builder.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from tf2onnx.graph_builder import GraphBuilder
from tf2onnx.utils import make_name

from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS
from cudnn_convert.lower import onnx_stack, projection
from cudnn_convert.model import Mode, Recurrence

_FLOAT: Final = onnx.TensorProto.FLOAT
_SWAP: Final = [1, 0, 2]  # batch-major to time-major and back


def refusals(recurrences: Sequence[Recurrence]) -> Iterator[str]:
    """Why a recurrence has no ONNX form."""
    for recurrence in recurrences:
        if not recurrence.sizes.projection:
            continue  # and no weights need to be looked at
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
    floats = [inputs[k] for k in ((INPUT, INPUT_H, INPUT_C) if lstm else (INPUT, INPUT_H))]
    if all(_are_zeros(graph, name) for name in floats[1:]):
        del floats[1:]  # which a fused node starts from by itself
    if dtype != _FLOAT:
        floats = [made("Cast", [name], to=_FLOAT) for name in floats]
    if not recurrence.time_major:
        floats = [made("Transpose", [name], perm=_SWAP) for name in floats]
    lengths = inputs[LENGTHS] if recurrence.lengths else ""
    x, *states = floats
    owner = _owner(recurrences, recurrence)
    results = onnx_stack.stack(made, recurrence, x, states, lengths, owner=owner)
    if not recurrence.time_major:
        results = [made("Transpose", [name], perm=_SWAP) for name in results]
    if dtype != _FLOAT:
        results = [made("Cast", [name], to=dtype) for name in results]
    if not lstm:  # cuDNN leaves output_c undefined; as in the TensorFlow lowering input_c passes through
        results.append(inputs[INPUT_C])
        shapes[INPUT_C] = graph.get_shape(inputs[INPUT_C])
    for name, result, shape in zip(outputs, results, shapes, strict=False):
        graph.make_node("Identity", [result], outputs=[name], shapes=[shape], dtypes=[dtype])


def _are_zeros(graph: Any, name: str) -> bool:
    """Whether a tensor is zeros of whatever shape, as `tf.zeros` and `zeros_like` are when they come here."""
    node = graph.get_node_by_output(name)
    while node is not None and node.type in ("Identity", "Expand"):
        node = node.inputs[0]
    if node is None or not node.is_const():
        return False
    return not node.get_tensor_value(as_list=False).any()


class _Ops:
    """`onnx_stack.Ops` in a tf2onnx graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.versioned = GraphBuilder(graph)  # for ops whose axes moved from attribute to input

    def __call__(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        (found,) = self.several(op, inputs, 1, **attributes)
        return found

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        made = self.graph.make_node(op, list(inputs), attr=attributes, output_count=outputs)
        return list(made.output)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return str(self.graph.make_const(make_name("constant"), np.array(value, dtype)).output[0])

    def part(self, data: str, start: int, end: int, axis: int = 0) -> str:
        ends = {"data": data, "starts": [start], "ends": [end], "axes": [axis]}
        return str(self.versioned.make_slice(ends))

    def squeeze(self, data: str, axis: int) -> str:
        return str(self.versioned.make_squeeze({"data": data, "axes": [axis]}))

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        return str(self.versioned.make_unsqueeze({"data": data, "axes": axes}))

    def steps(self, x: str) -> int:
        return int((self.graph.get_shape(x) or [-1])[0])


def _owner(recurrences: Sequence[Recurrence], wanted: Recurrence) -> int:
    """The number of the first recurrence that holds the same weights, so that both read one constant."""
    return next(
        k
        for k, other in enumerate(recurrences)
        if (other.shared, other.sizes, other.dtype) == (wanted.shared, wanted.sizes, wanted.dtype)
    )
