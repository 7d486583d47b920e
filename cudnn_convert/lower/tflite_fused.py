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

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import Reason, UnsupportedModelError
from cudnn_convert.graph import control_flow, zeros
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import INPUT, INPUT_C, INPUT_H, LENGTHS, tensor
from cudnn_convert.lower import fixed_shapes, tflite_loops
from cudnn_convert.lower.tensorflow import layer_stack, lower
from cudnn_convert.lower.tensorflow.layer_stack import Stack
from cudnn_convert.lower.tensorflow.while_loop import CellSteps
from cudnn_convert.model import Array, Cell, Mode, Recurrence
from cudnn_convert.weights import layouts

#: The output of a cuDNN op that has an LSTM's final cell states.
_OUTPUT_C: Final = 2
#: Steps from which an unrolled recurrence is refused: each adds a dozen ops to the file.
MOST_STEPS: Final = 512


@dataclass(frozen=True, slots=True)
class SizedRecurrence:
    """A recurrence with the steps and rows of the input, and the reason for unrolling.

    `reason` is empty for a recurrence of fused ops.
    """

    recurrence: Recurrence
    steps: int
    rows: int
    reason: str = ""


def choose_forms(
    graph: Graph, recurrences: Sequence[Recurrence], ends: Collection[str]
) -> list[SizedRecurrence]:
    """Choose fused ops or steps for each recurrence of a frozen graph.

    `ends` are the tensors of the signature. Raises UnsupportedModelError with a reason for each recurrence of
    an open size, in a loop, or of too many steps.
    """
    frames = control_flow.frames(graph.index)
    sized, reasons = [], []
    for recurrence in recurrences:
        node = recurrence.node
        steps, rows = _read_sizes(graph, recurrence)
        if frames.get(node):
            reasons.append(f"{node}: expected a recurrence outside of loops, found one in a loop")
        elif steps is None or rows is None:
            sizes = f"{steps or 'open'} steps and {rows or 'open'} rows"
            reasons.append(f"{node}: expected an input of fixed sizes, found {sizes}")
        else:
            each = _choose_form(graph, recurrence, steps, rows, ends)
            sized.append(each)
            if each.reason and steps > MOST_STEPS:
                expected = f"at most {MOST_STEPS} steps to unroll ({each.reason})"
                reasons.append(f"{node}: expected {expected}, found {steps}")
    if reasons:
        cure = "leave out --lowering fused and --steps, and the file loops over any number of steps"
        raise UnsupportedModelError("tflite", [Reason(f"{reason}; {cure}") for reason in reasons])
    return sized


def _read_sizes(graph: Graph, recurrence: Recurrence) -> tuple[int | None, int | None]:
    """Return the steps and rows of a recurrence's input, as far as known."""
    shape = graph.shapes.get_operation_by_name(recurrence.node).inputs[INPUT].shape
    first, second = (None, None) if shape.rank is None else shape.as_list()[:2]
    return (first, second) if recurrence.time_major else (second, first)


def _choose_form(
    graph: Graph, recurrence: Recurrence, steps: int, rows: int, ends: Collection[str]
) -> SizedRecurrence:
    """Choose fused ops or steps for a recurrence; lengths of full rows are left out."""
    if recurrence.lengths and fixed_shapes.are_whole(graph, _read(graph, recurrence.node, LENGTHS), steps):
        recurrence = replace(recurrence, lengths=False)
    return SizedRecurrence(recurrence, steps, rows, _find_reason(graph, recurrence, ends))


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


def notes(sized: Sequence[SizedRecurrence]) -> Iterator[str]:
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


def fuse(sized: SizedRecurrence) -> lower.WeightForm:
    """Return the form of a recurrence of fused ops."""

    def compute(recurrence: Recurrence) -> Stack:
        sizes = recurrence.sizes
        names = tflite_loops.list_names(sizes)
        calls = [_mark_as_lstm(f"{recurrence.node}/{name}", sized) for name in names]
        layer = partial(_call_layer, calls=iter(calls))
        return _with_sizes(layer_stack.stack_layers(sizes, layer, 3, time_major=recurrence.time_major), sized)

    return lower.WeightForm(partial(tflite_loops.name_weights, read=_read_lstm), compute)


def unroll(sized: SizedRecurrence) -> lower.WeightForm:
    """Return the form of a recurrence of unrolled steps."""

    def compute(recurrence: Recurrence) -> Stack:
        count = len(_read_cell(recurrence.cells[0][0]))
        layer = partial(_unroll_layer, cells=tflite_loops.choose_cells(recurrence))
        stacked = layer_stack.stack_layers(recurrence.sizes, layer, count, time_major=recurrence.time_major)
        return _with_sizes(stacked, sized)

    return lower.WeightForm(partial(tflite_loops.name_weights, read=_read_cell), compute)


def _read_cell(cell: Cell) -> dict[str, Array]:
    """Return the float32 arrays of a pseudo-layer by name; sums of biases are rounded once."""
    exact = cell.change_arrays(lambda array: array.astype(np.float64))
    return {name: value.astype(np.float32) for name, value in tflite_loops.read_cell(exact).items()}


def _read_lstm(cell: Cell) -> dict[str, Array]:
    """Return a cell's arrays in float32; the sum of both biases is rounded once."""
    arrays = [*layouts.columns(cell, layouts.KERAS), *layouts.biases(cell, layouts.KERAS)]
    kernel, recurrent, bias, recurrent_bias = (value.astype(np.float64) for value in arrays)
    parts = {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias + recurrent_bias}
    return {name: value.astype(np.float32) for name, value in parts.items()}


def _with_sizes(stack: Stack, sized: SizedRecurrence) -> Stack:
    """Return a stack for inputs of fixed sizes."""
    sizes, major = sized.recurrence.sizes, sized.recurrence.time_major

    def compute(x: Any, h: Any, c: Any, *rest: Any) -> tuple[Any, Any, Any]:
        x.set_shape([*((sized.steps, sized.rows) if major else (sized.rows, sized.steps)), sizes.input_size])
        return stack(x, h, c, *rest)

    return compute


def _mark_as_lstm(name: str, sized: SizedRecurrence) -> Callable[..., Any]:
    """Return a function marked for replacement by the fused op.

    It takes `(x [steps, rows, inputs], h, c [rows, units], kernel, recurrent kernel, bias)`, and gives the
    last output, all outputs, both final states, and the runtime, as the LSTM of Keras does.
    """
    rows, units, steps = sized.rows, sized.recurrence.sizes.units, sized.steps

    def lstm(x: Any, h: Any, c: Any, *weights: Any) -> tuple[Any, ...]:
        # Nothing runs this: the converter reads types and shapes. A call that it leaves is refused by
        # `targets/fused_ops.py`. The outputs depend on an input, or they would be folded into constants.
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
    mode: Mode,
    x: Any,
    state: Any,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    cells: Callable[..., CellSteps],
) -> tuple[Any, Any, Any]:
    """Compute a pseudo-layer step by step; `cells` as of `tflite_loops.choose_cells`."""
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
