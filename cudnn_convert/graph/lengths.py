"""Sequence lengths that say nothing: each row has as many steps as the input.

Keras fills them in where there is no mask (keras v3.15.0 src/backend/tensorflow/rnn.py `_cudnn_lstm`).
"""

from __future__ import annotations

from typing import Any, Final

from cudnn_convert.graph import fold
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split

#: Ops that hand on a tensor of the same number of steps.
_SAME_STEPS: Final = frozenset(
    {"Identity", "Cast", "ReverseV2", "ReverseSequence", "StopGradient", "Snapshot"}
)


def are_full(index: Index, node: Any) -> bool:
    """Whether the lengths of a CudnnRNNV3 are `Fill(..., Shape(input)[time])`."""
    inputs = index.data_inputs(node)
    filled = _node(index, inputs[LENGTHS])
    if filled.op != "Fill":
        return False
    steps = _node(index, index.data_inputs(filled)[1])
    if steps.op != "StridedSlice" or not steps.attr["shrink_axis_mask"].i:
        return False
    source, begin, *_ = index.data_inputs(steps)
    shape = _node(index, source)
    time = 0 if "time_major" not in node.attr or node.attr["time_major"].b else 1
    if shape.op != "Shape" or fold.scalar(index, begin) != time:
        return False
    return _root(index, index.data_inputs(shape)[0]) == _root(index, inputs[INPUT])


def _node(index: Index, name: str) -> Any:
    """The node that makes a tensor, behind what only hands it on."""
    found = index.nodes[split(name)[0]]
    while found.op == "Identity":
        found = index.nodes[split(index.data_inputs(found)[0])[0]]
    return found


def _root(index: Index, name: str) -> str:
    """The tensor that has the steps of `name`, as far up as only its values change."""
    while (found := index.nodes[split(name)[0]]).op in _SAME_STEPS:
        name = index.data_inputs(found)[0]
    return name
