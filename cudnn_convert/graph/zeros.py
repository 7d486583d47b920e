"""Finds tensors of zeros for all sizes of a graph's inputs.

Zeros of an open size, such as `tf.zeros([1, batch, units])`, are no constant: `fold_constant` does not find
them. `is_zeros` follows them through ops that move elements or give zero for zeros.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from cudnn_convert.graph import constant_folding, ops, session
from cudnn_convert.graph.index import Index, split, walk
from cudnn_convert.model import Tensor

#: Give zeros where the operand at this position is zeros. The others are shapes and axes.
_CARRY: Final[Mapping[str, int]] = {
    **dict.fromkeys(ops.COPIES, 0),
    **dict.fromkeys(
        "Cast Reshape Transpose Tile ExpandDims Squeeze BroadcastTo StridedSlice Slice GatherV2 Gather Sum "
        "EnsureShape PlaceholderWithDefault Neg Abs Square Sqrt Tanh Relu ReverseV2".split(),
        0,
    ),
    "Fill": 1,
}
#: Give zeros where all operands that are joined are zeros: their positions.
_JOINED: Final[Mapping[str, slice]] = {
    "ConcatV2": slice(0, -1),
    "Concat": slice(1, None),
    "Pack": slice(0, None),
    **dict.fromkeys(ops.SUMS, slice(0, None)),
}


def is_zeros(index: Index, tensor: str, variables: Mapping[str, Tensor]) -> bool:
    """Return True if tensor `op:k` is zeros of any shape.

    `variables` has the values by key.
    """
    return all(
        _reads_zeros(index, name, variables) for name in walk([tensor], lambda name: _parts(index, name))
    )


def _parts(index: Index, name: str) -> list[str]:
    """Return the operands required to be zeros for a tensor of zeros.

    Empty where the op itself tells.
    """
    node = index.nodes[split(name)[0]]
    operands = index.data_inputs(node)
    if node.op in _CARRY:
        return [operands[_CARRY[node.op]]]
    return operands[_JOINED[node.op]] if node.op in _JOINED else []


def _reads_zeros(index: Index, name: str, variables: Mapping[str, Tensor]) -> bool:
    """Return True if a tensor's op hands zeros on, or makes zeros."""
    node = index.nodes[split(name)[0]]
    if node.op in _CARRY or node.op in _JOINED or node.op == "ZerosLike":
        return True
    if node.op == "ReadVariableOp":
        node = index.nodes[split(node.input[0])[0]]
    if node.op in ops.VARIABLES:
        key = session.checkpoint_key(node)
        return key in variables and not np.any(variables[key].read())
    if node.op != "Const":
        return False
    value = constant_folding.fold_constant(index, name)
    return value is not None and value.dtype.kind in "fiub" and not np.any(value)
