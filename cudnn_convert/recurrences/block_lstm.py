"""Attributes, constant weights and used outputs of a BlockLSTM node.

Inputs and outputs, and which weights are stored how: tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM,
BlockLSTMV2. A node that clips, whose weights are no constants, or whose inner values are read at every step
has no fused form elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.model import Cell
from cudnn_convert.weights import layouts

BLOCK_OPS: Final = frozenset({"BlockLSTM", "BlockLSTMV2"})
CELL_OPS: Final = frozenset({"LSTMBlockCell", "GRUBlockCell"})
STEPS, X, C_FIRST, H_FIRST, KERNEL, WCI, WCF, WCO, BIAS = range(9)
#: Outputs: input gate, cell state, forget gate, output gate, new memory, tanh of cell state, hidden state.
CELL_STATES, HIDDEN_STATES, OUTPUTS = 1, 6, 7
_CARRIERS: Final = frozenset({"Identity", "Enter", "StopGradient", "Snapshot"})


@dataclass(frozen=True, slots=True)
class Block:
    """A BlockLSTM node. `clip` is 0 where it is off; `read` are the outputs that something needs.

    `cell` is None where the weights are no constants. `last_only`: whether of the cell states only the last
    step is read. `full`: whether the node is known to compute all steps of its input.
    """

    node: Any
    inputs: tuple[str, ...]
    layout: layouts.Layout
    dtype: tf.DType
    forget_bias: float
    clip: float
    use_peephole: bool
    read: frozenset[int]
    cell: Cell | None
    last_only: bool
    full: bool


def blocks(graph: Any, outputs: Iterable[str]) -> list[Block]:
    """The BlockLSTM nodes of a graph that gives the tensors `outputs`, in its order."""
    index = Index(graph)
    ends = [split(name) for name in outputs]
    return [_block(index, node, ends) for node in graph.node if node.op in BLOCK_OPS]


def dtypes(graph: Any) -> set[tf.DType]:
    """The types that the graph's own fused recurrences compute in, of one step as of all."""
    return {tf.as_dtype(node.attr["T"].type) for node in graph.node if node.op in BLOCK_OPS | CELL_OPS}


def _block(index: Index, node: Any, ends: list[tuple[str, int]]) -> Block:
    inputs = tuple(index.data_inputs(node))
    first, peephole = node.op == "BlockLSTM", bool(_attribute(node, "use_peephole").b)
    layout = layouts.BLOCK_LSTM_V1 if first else layouts.BLOCK_LSTM
    forget_bias = _attribute(node, "forget_bias").f if first else 0.0
    readers = [(reader, k) for reader in index.consumers(node.name) for k in _outputs(reader, node.name)]
    wanted = {k for op, k in ends if op == node.name}
    cell_readers = [reader for reader, k in readers if k == CELL_STATES]
    return Block(
        node=node,
        inputs=inputs,
        layout=layout,
        dtype=tf.as_dtype(node.attr["T"].type),
        forget_bias=forget_bias,
        clip=max(0.0, _attribute(node, "cell_clip").f),
        use_peephole=peephole,
        read=frozenset(wanted | {k for _, k in readers}),
        cell=_cell(index, inputs, layout, forget_bias=forget_bias, peephole=peephole),
        last_only=CELL_STATES not in wanted and all(_takes_last(index, reader) for reader in cell_readers),
        full=_is_full(index, inputs[STEPS], inputs[X]),
    )


def _outputs(reader: Any, op: str) -> set[int]:
    return {k for source, k in map(split, reader.input) if source == op and k >= 0}


def _attribute(node: Any, name: str) -> Any:
    """An attribute or, SavedModels strip those, its default."""
    if name in node.attr:
        return node.attr[name]
    definition = op_def_registry.get(node.op)
    return next(found.default_value for found in definition.attr if found.name == name)


def _cell(
    index: Index, inputs: tuple[str, ...], layout: layouts.Layout, *, forget_bias: float, peephole: bool
) -> Cell | None:
    places = (KERNEL, BIAS, *((WCI, WCF, WCO) if peephole else ()))
    values = [node_defs.fold_constant(index, _origin(index, inputs[place])) for place in places]
    known = [value.astype(np.float32) for value in values if value is not None]
    if len(known) < len(values):
        return None
    kernel, bias, *peepholes = known
    found = np.stack(peepholes) if peepholes else None
    return layouts.unpack_block(kernel, bias, layout, forget_bias=forget_bias, peepholes=found)


def _origin(index: Index, name: str) -> str:
    """What a tensor is outside of the loops it was carried into."""
    while (node := index.nodes[split(name)[0]]).op in _CARRIERS:
        name = tensor(node.input[0])
    return name


def _takes_last(index: Index, reader: Any) -> bool:
    """Whether a node is `states[-1]` or `states[-1:]`, whatever it does to the other axes."""
    if reader.op != "StridedSlice":
        return False
    begin, _, stride = (node_defs.fold_constant(index, name) for name in index.data_inputs(reader)[1:4])
    masks = {name: reader.attr[f"{name}_mask"].i & 1 for name in ("begin", "ellipsis", "new_axis")}
    if begin is None or stride is None or any(masks.values()) or begin[0] != -1 or stride[0] != 1:
        return False
    return bool(reader.attr["shrink_axis_mask"].i & 1 or reader.attr["end_mask"].i & 1)


def _is_full(index: Index, steps: str, x: str) -> bool:
    """Whether `steps` is `cast(shape(x)[0])`, as TensorFlow 1's fused cell writes it without lengths."""
    node = index.nodes[split(_origin(index, steps))[0]]
    while node.op == "Cast":
        node = index.nodes[split(node.input[0])[0]]
    if node.op != "StridedSlice" or not node.attr["shrink_axis_mask"].i & 1:
        return False
    begin = node_defs.fold_constant(index, tensor(node.input[1]))
    shape = index.nodes[split(node.input[0])[0]]
    same = shape.op == "Shape" and _origin(index, tensor(shape.input[0])) == _origin(index, x)
    return bool(same and begin is not None and begin.tolist() == [0] and not node.attr["begin_mask"].i)
