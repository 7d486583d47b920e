"""Lowers recurrences to fused LSTM ops or to unrolled steps, for microcontrollers.

TensorFlow Lite Micro reserves all memory before the first call. It takes no open size, and has few kernels.
An LSTM that begins with zeros becomes one UNIDIRECTIONAL_SEQUENCE_LSTM op for each layer and direction. Every
other recurrence is unrolled, step by step.

The converter makes the op of a function that is marked as the LSTM of Keras: the function's arguments are the
op's operands. It takes the function's last and its second output, and ignores the body.

    before:  y = CudnnRNN(x [25, 1, 10], 0, 0, params)
    after:   y = PartitionedCall(x, 0, 0, kernel, recurrent, bias), api_implements="lstm_y/layer_0_forward"
    in the file:  y = UNIDIRECTIONAL_SEQUENCE_LSTM(x, 4 kernels, 4 recurrent kernels, 4 biases, states)

The op keeps both states in variables from call to call. A caller resets them before each sequence.

Source: tensorflow v2.21.0 compiler/mlir/lite/transforms/prepare_composite_functions_tf.cc
(CheckFusableKerasLstm, ConvertTFAPIImplements), compiler/mlir/lite/utils/lstm_utils.cc
(ConvertKerasLSTMLayer: gates in the order i, f, c, o), lite/kernels/unidirectional_sequence_lstm.cc.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import Reason, UnsupportedModelError
from cudnn_convert.graph import control_flow, zeros
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, tensor
from cudnn_convert.lower import fixed_shapes
from cudnn_convert.lower.tensorflow import layer_stack, lower
from cudnn_convert.lower.tensorflow.layer_stack import Stack
from cudnn_convert.lower.tensorflow.while_loop import CellSteps
from cudnn_convert.model import WAYS, Array, Cell, Mode, Recurrence, Sizes
from cudnn_convert.weights import layouts

#: The output of a cuDNN op that has an LSTM's final cell states.
_OUTPUT_C: Final = 2
#: Steps from which an unrolled recurrence is refused: each adds a dozen ops to the file.
MOST_STEPS: Final = 512
#: `(mode, x, arrays, layout) -> steps` of a pseudo-layer.
Cells = Callable[..., CellSteps]


@dataclass(frozen=True, slots=True)
class Sized:
    """A recurrence with the steps and rows of the input, and the reason for unrolling.

    `reason` is empty for a recurrence of fused ops.
    """

    recurrence: Recurrence
    steps: int
    rows: int
    reason: str = ""


def choose_forms(graph: Graph, recurrences: Sequence[Recurrence], ends: Collection[str]) -> list[Sized]:
    """Choose fused ops or steps for each recurrence of a frozen graph.

    `ends` are the tensors of the signature. Raises UnsupportedModelError with a reason for each recurrence of
    an open size, in a loop, or of too many steps.
    """
    frames = control_flow.frames(graph.index)
    sized, reasons = [], []
    for recurrence in recurrences:
        node = recurrence.node
        shape = graph.shapes.get_operation_by_name(node).inputs[INPUT].shape
        sizes = [None] * 2 if shape.rank is None else shape.as_list()[:2]
        steps, rows = sizes if recurrence.time_major else reversed(sizes)
        if recurrence.lengths and fixed_shapes.are_whole(graph, _read(graph, node, LENGTHS), steps):
            recurrence = replace(recurrence, lengths=False)  # noqa: PLW2901 - the same computation
        why = "" if frames.get(node) else _find_reason(graph, recurrence, ends)
        if frames.get(node):
            reasons.append(f"{node}: expected a recurrence outside of loops, found one in a loop")
        elif steps is None or rows is None:
            sizes_in = f"{steps or 'open'} steps and {rows or 'open'} rows"
            reasons.append(f"{node}: expected an input of fixed sizes, found {sizes_in}")
        elif why and steps > MOST_STEPS:
            expected = f"at most {MOST_STEPS} steps to unroll ({why})"
            reasons.append(f"{node}: expected {expected}, found {steps}")
        else:
            sized.append(Sized(recurrence, steps, rows, why))
    if reasons:
        cure = "leave out --lowering fused, and the file loops over any number of steps"
        raise UnsupportedModelError("tflite", [Reason(f"{reason}; {cure}") for reason in reasons])
    return sized


def _find_reason(graph: Graph, recurrence: Recurrence, ends: Collection[str]) -> str:
    """Return the reason against fused ops for a recurrence, or ""."""
    sizes, index = recurrence.sizes, graph.index
    begins = [_read(graph, recurrence.node, operand) for operand in (INPUT_H, INPUT_C)]
    ends_in = f"{recurrence.node}:{_OUTPUT_C}"
    has_peepholes = any(cell.peepholes is not None for layer in recurrence.cells for cell in layer)
    obstacles = {
        f"the fused op computes LSTMs, and this is a {sizes.mode.value}": sizes.mode is not Mode.LSTM,
        "the fused op takes no lengths of rows": recurrence.lengths,
        "the fused op of microcontrollers has no projection": bool(sizes.projection),
        "the fused op of microcontrollers has no peepholes": has_peepholes,
        "the fused op begins with zeros": not all(zeros.is_zeros(index, begin, {}) for begin in begins),
        "the fused op gives no final cell state": (
            ends_in in ends or any(index.consumers(recurrence.node, _OUTPUT_C))
        ),
    }
    return next((reason for reason, stands in obstacles.items() if stands), "")


def _read(graph: Graph, node: str, operand: int) -> str:
    """Return the tensor read by an operand of a node."""
    return tensor(graph.index.data_inputs(graph.index.nodes[node])[operand])


def notes(sized: Sequence[Sized]) -> Iterator[str]:
    """Yield a note on the states of fused ops, and on each unrolled recurrence."""
    if not all(each.reason for each in sized):
        yield (
            "fused LSTMs keep their states from call to call: reset them before each sequence with "
            "Interpreter.reset_all_variables() of TensorFlow Lite, or Reset() of TensorFlow Lite Micro"
        )
    for each in sized:
        if each.reason:
            steps = "1 step" if each.steps == 1 else f"{each.steps} steps"
            yield f"{each.recurrence.node} is unrolled into {steps}: {each.reason}"


def fuse(sized: Sized) -> lower.WeightForm:
    """Return the form of a recurrence of fused ops."""

    def compute(recurrence: Recurrence) -> Stack:
        sizes = recurrence.sizes
        names = iter(name for layer in names_of_ops(sizes) for name in layer)
        calls = [_mark_as_lstm(f"{recurrence.node}/{name}", sized) for name in names]
        layer = partial(_call_layer, calls=iter(calls))
        return _with_sizes(layer_stack.stack_layers(sizes, layer, 3, time_major=recurrence.time_major), sized)

    return lower.WeightForm(partial(name_weights, of_cell=_read_lstm), compute)


def unroll(sized: Sized, cells: Cells, of_cell: Callable[[Cell], Mapping[str, Array]]) -> lower.WeightForm:
    """Return the form of a recurrence of unrolled steps.

    `cells` gives the steps of a pseudo-layer from its arrays, which `of_cell` gives by name. They become
    float32, as the graph is; sums of biases are rounded once.
    """

    def read(cell: Cell) -> Mapping[str, Array]:
        parts = {part.name: getattr(cell, part.name) for part in fields(cell)}
        arrays: dict[str, Any] = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
        exact = replace(cell, **{name: array.astype(np.float64) for name, array in arrays.items()})
        return {name: value.astype(np.float32) for name, value in of_cell(exact).items()}

    def compute(recurrence: Recurrence) -> Stack:
        count = len(of_cell(recurrence.cells[0][0]))
        layer = partial(_unroll_layer, cells=cells)
        stacked = layer_stack.stack_layers(recurrence.sizes, layer, count, time_major=recurrence.time_major)
        return _with_sizes(stacked, sized)

    return lower.WeightForm(partial(name_weights, of_cell=read), compute)


def names_of_ops(sizes: Sizes) -> list[list[str]]:
    """List the names of layers and directions below the node's name, in stack order."""
    return [
        [f"layer_{layer}_{direction}" for direction in WAYS[: sizes.directions]]
        for layer in range(sizes.layers)
    ]


def name_weights(
    recurrence: Recurrence, *, of_cell: Callable[[Cell], Mapping[str, Array]]
) -> dict[str, Array]:
    """Return the arrays of a recurrence by the names of variables."""
    return {
        f"{recurrence.shared}/layer_{number}/{direction}_{recurrence.dtype.name}/{name}": value
        for number, layer in enumerate(recurrence.cells)
        for direction, cell in zip(WAYS, layer, strict=False)
        for name, value in of_cell(cell).items()
    }


def _read_lstm(cell: Cell) -> dict[str, Array]:
    """Return a cell's arrays in float32; the sum of both biases is rounded once."""
    arrays = [*layouts.columns(cell, layouts.KERAS), *layouts.biases(cell, layouts.KERAS)]
    kernel, recurrent, bias, recurrent_bias = (value.astype(np.float64) for value in arrays)
    parts = {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias + recurrent_bias}
    return {name: value.astype(np.float32) for name, value in parts.items()}


def _with_sizes(stack: Stack, sized: Sized) -> Stack:
    """Return a stack for inputs of fixed sizes."""
    sizes, major = sized.recurrence.sizes, sized.recurrence.time_major

    def compute(x: Any, h: Any, c: Any, *rest: Any) -> tuple[Any, Any, Any]:
        x.set_shape([*((sized.steps, sized.rows) if major else (sized.rows, sized.steps)), sizes.input_size])
        return stack(x, h, c, *rest)

    return compute


def _mark_as_lstm(name: str, sized: Sized) -> Callable[..., Any]:
    """Return a function marked for replacement by the fused op.

    It takes `(x [steps, rows, inputs], h, c [rows, units], kernel, recurrent kernel, bias)`, and gives the
    last output, all outputs, both final states, and the runtime, as the LSTM of Keras does.
    """
    rows, units, steps = sized.rows, sized.recurrence.sizes.units, sized.steps

    def lstm(x: Any, h: Any, c: Any, *weights: Any) -> tuple[Any, ...]:
        del c, weights
        return h, tf.zeros([steps, rows, units]) + x[:1, :, :1], h, h, tf.constant(0.0)

    attributes = {"api_implements": f"lstm_{name}", "time_major": True, "go_backwards": False}
    marked: Callable[..., Any] = tf.function(lstm, autograph=False, experimental_attributes=attributes)
    return marked


def _call_layer(
    _: Mode, x: Any, state: Any, lengths: Any, arrays: Sequence[Any], *, backward: bool, calls: Iterator[Any]
) -> tuple[Any, Any, Any]:
    """Call the next function of `calls` for a pseudo-layer.

    The final cell state is that of the beginning: nothing reads it.
    """
    del lengths
    zero = tf.zeros([x.shape[1], state[0].shape[1]])
    _, y, *_ = next(calls)(tf.reverse(x, [0]) if backward else x, zero, zero, *arrays)
    return tf.reverse(y, [0]) if backward else y, y[-1], state[1]


def _unroll_layer(
    mode: Mode, x: Any, state: Any, lengths: Any, arrays: Sequence[Any], *, backward: bool, cells: Cells
) -> tuple[Any, Any, Any]:
    sums, stepped = cells(mode, x, arrays, layouts.LOOP)
    rows = list(zip(*(tf.unstack(part) for part in sums), strict=True))
    outputs: dict[int, Any] = {}
    for t in reversed(range(len(rows))) if backward else range(len(rows)):
        new = stepped(rows[t], state)
        outputs[t] = new[0]
        if lengths is not None:
            alive = tf.expand_dims(t < lengths, 1)
            outputs[t] = tf.where(alive, new[0], tf.zeros_like(new[0]))
            new = tuple(tf.where(alive, value, old) for value, old in zip(new, state, strict=True))
        state = new
    return tf.stack([outputs[t] for t in range(len(rows))]), state[0], state[-1]
