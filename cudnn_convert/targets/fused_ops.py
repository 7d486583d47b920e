"""Fused LSTM ops of a TensorFlow Lite file: weights, bounds and names.

Source: tensorflow v2.21.0 lite/kernels/unidirectional_sequence_lstm.cc (the numbers of operands).
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts.tflite import read_floats, schema
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Array, Cell

#: The operands of a fused op, each gate's in cuDNN's order: i, f, c, o.
KERNELS: Final = (1, 2, 3, 4)
RECURRENT_KERNELS: Final = (5, 6, 7, 8)
BIASES: Final = (12, 13, 14, 15)
#: The operands that are states, h and c: variables.
STATE, CELL = 18, 19


def list_fused_ops(model: Any) -> list[tuple[Any, Any]]:
    """List the fused ops of a model, each as `(subgraph, operator)`."""
    return [
        (graph, op)
        for graph in model.subgraphs
        for op in graph.operators or ()
        if op.builtinOptionsType == schema.BuiltinOptions.UnidirectionalSequenceLSTMOptions
    ]


def read_weights(model: Any, graph: Any, op: Any, operands: tuple[int, ...]) -> Array:
    """Return the stacked weights of all gates.

    Shapes are `[4, units, width]` for kernels, `[4, units]` for biases.
    """
    return np.stack([read_floats(model, graph.tensors[op.inputs[operand]]) for operand in operands])


def unclip_cells(model: Any) -> None:
    """Remove the bound of cell states, set to 10 by the converter."""
    for _, op in list_fused_ops(model):
        op.builtinOptions.cellClip = 0.0


def name_fused_ops(model: Any, cells: Mapping[str, Cell]) -> None:
    """Name the output of each fused op by the cell with equal recurrent kernels.

    The converter forgets the names of functions. Of kernels in 8 bits the nearest count. Raises
    UnsupportedModelError for a cell without an op.
    """
    left = dict(cells)
    for graph, op in list_fused_ops(model):
        kernels = read_weights(model, graph, op, RECURRENT_KERNELS)
        alike = {name: cell for name, cell in left.items() if cell.recurrent_kernel.shape == kernels.shape}
        gaps = {name: np.abs(cell.recurrent_kernel - kernels).max() for name, cell in alike.items()}
        if gaps:
            name = min(gaps, key=lambda name: gaps[name])
            graph.tensors[op.outputs[0]].name = name.encode()
            del left[name]
    if left:
        expected = "expected a fused op, found none: TensorFlow's converter left it out"
        raise UnsupportedModelError(
            "tflite", [f"{name}: {expected}; leave out --lowering fused and --steps" for name in left]
        )
