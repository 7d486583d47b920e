"""Builds an ONNX model of one recurrence, with nothing around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from cudnn_convert.lower.onnx import finish, fused_nodes
from cudnn_convert.lower.onnx.finish import Finished
from cudnn_convert.recurrences.graphless import Single, Spec

_FLOAT: Final = onnx.TensorProto.FLOAT
_SWAP: Final = [1, 0, 2]  # batch-major to time-major and back
_MOVED: Final = 13  # the opset from which Squeeze and Unsqueeze take their axes as an input


def lower(single: Single, *, opset: int = 17) -> Finished:
    """A canonical model; its inputs and outputs are the keys of `single`, in their order.

    Raises UsageError for an opset that not all lowerings know.
    """
    finish.require(opset)
    recurrence, made = single.recurrence, _Ops(opset)
    x = _into(made, "inputs", recurrence.dtype, swapped=single.batch_major)
    states = [_into(made, key, recurrence.dtype) for key in single.inputs if key.startswith("initial_")]
    lengths = "sequence_lengths" if recurrence.lengths else ""
    found = fused_nodes.stack(made, recurrence, x, states, lengths)
    for key, name in zip(single.outputs, found, strict=True):
        # The axes of states are the same in each layout.
        swapped = single.batch_major and key == "outputs"
        _out_of(made, name, key, recurrence.dtype, swapped=swapped)
    graph = helper.make_graph(
        made.nodes,
        "cudnn_convert",
        [_value(key, spec) for key, spec in single.inputs.items()],
        [_value(key, spec) for key, spec in single.outputs.items()],
        made.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return finish.finish_model(model, [recurrence])


def _value(key: str, spec: Spec) -> Any:
    dtype, shape = spec
    return helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _into(made: _Ops, key: str, dtype: np.dtype[Any], *, swapped: bool = False) -> str:
    """An input as the fused nodes take it: float, time-major."""
    name = key if dtype == np.float32 else made("Cast", [key], to=_FLOAT)
    return made("Transpose", [name], perm=_SWAP) if swapped else name


def _out_of(made: _Ops, name: str, key: str, dtype: np.dtype[Any], *, swapped: bool) -> None:
    """An output from what the fused nodes give."""
    if swapped:
        name = made("Transpose", [name], perm=_SWAP)
    if dtype != np.float32:
        name = made("Cast", [name], to=helper.np_dtype_to_tensor_dtype(dtype))
    made.nodes.append(helper.make_node("Identity", [name], [key]))


class _Ops:
    """Makes nodes in a list of their own; see `fused_nodes.Ops`."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        (found,) = self.several(op, inputs, 1, **attributes)
        return found

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        names = [f"{op}/{len(self.nodes)}:{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant/{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def part(self, data: str, start: int, end: int, axis: int = 0) -> str:
        return self("Slice", [data, *(self.constant([k]) for k in (start, end, axis))])

    def squeeze(self, data: str, axis: int) -> str:
        return self._of_axes("Squeeze", data, [axis])

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        return self._of_axes("Unsqueeze", data, axes)

    def steps(self, x: str) -> int:
        return -1  # every input of a signature of its own has an open number of steps

    def _of_axes(self, op: str, data: str, axes: list[int]) -> str:
        if self.opset < _MOVED:
            return self(op, [data], axes=axes)
        return self(op, [data, self.constant(axes)])
