"""Corrects the converter's ranges and scales of fused LSTMs in 8 bits.

* Cell states: the converter clips them at 10 and looks at those of the last step alone. A state of 16 bits
  then saturates at a step before. Here the range is that of all steps of the examples.
* States h: where a concatenation reads the outputs of two LSTMs, it gives them one scale, and leaves the
  states their own. The kernel has both in one tensor.
* Reversals: in the same way the result gets another scale than the source, and the kernel copies bytes.

Source: tensorflow v2.21.0 lite/tools/optimize/calibration/builtin_logging_ops/lstm.cc,
lite/kernels/lstm_eval.cc (LstmStepInteger8x8_16), lite/kernels/reverse.cc.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts.tflite import open_interpreter, operator_kind, pack_model, schema, unpack_model
from cudnn_convert.model import SERVING, Array
from cudnn_convert.private import lite_calibrator
from cudnn_convert.targets import fused_ops

#: The number of the state h among a fused op's intermediate values.
_HIDDEN: Final = 4
#: The largest cell state that the kernels take: 6 of 16 bits are before the point.
#: Source: tensorflow v2.21.0 lite/kernels/internal/reference/portable_tensor_utils.cc (PortableApplyTanh);
#: CMSIS-NN's kernel refuses a larger scale: tflite-micro lite/micro/kernels/cmsis_nn.
_LARGEST: Final = 64.0


def calibrate(examples: Sequence[Mapping[str, Array]]) -> AbstractContextManager[None]:
    """Let a converter measure the ranges of whole sequences, and of unclipped cell states."""
    return lite_calibrator.calibrate_sequences(_unclip, lambda content: _widen_cells(content, examples))


def _unclip(content: bytes) -> bytes:
    model = unpack_model(content)
    fused_ops.unclip_cells(model)
    return pack_model(model)


def _widen_cells(content: bytes, examples: Sequence[Mapping[str, Array]]) -> bytes:
    """Write the range of cell states at all steps of the examples into a file of floats."""
    model = unpack_model(content)
    ops = fused_ops.list_fused_ops(model)
    if not ops:
        return content
    inputs = _read_inputs(content, [int(op.inputs[0]) for _, op in ops], examples)
    for (graph, op), x in zip(ops, inputs, strict=True):
        parts = (fused_ops.KERNELS, fused_ops.RECURRENT_KERNELS, fused_ops.BIASES)
        weights = (fused_ops.read_weights(model, graph, op, operands) for operands in parts)
        largest = np.float32(min(_find_largest_cell(x, *weights), _LARGEST))
        ranges = graph.tensors[op.inputs[fused_ops.CELL]].quantization
        ranges.min, ranges.max = [-largest], [largest]
    return pack_model(model)


def _read_inputs(
    content: bytes, numbers: Sequence[int], examples: Sequence[Mapping[str, Array]]
) -> list[Array]:
    """Return the inputs [time, rows of all examples, width] of fused ops, by the numbers of tensors."""
    import tensorflow as tf

    kernels = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = open_interpreter(
        model_content=content, experimental_preserve_all_tensors=True, experimental_op_resolver_type=kernels
    )
    interpreter.allocate_tensors()  # which it refuses once there is a runner
    runner = interpreter.get_signature_runner(SERVING)
    read: list[list[Array]] = [[] for _ in numbers]
    for example in examples:
        interpreter.reset_all_variables()
        runner(**example)
        for values, number in zip(read, numbers, strict=True):
            values.append(interpreter.get_tensor(number))
    return [np.concatenate(values, 1) for values in read]


def _find_largest_cell(x: Array, kernels: Array, recurrent: Array, biases: Array) -> float:
    """Return the largest absolute cell state of an LSTM at any step of `x` [time, rows, width]."""
    h = c = np.zeros([x.shape[1], biases.shape[1]], np.float32)
    largest = 0.0
    for step in x:
        i, f, g, o = np.einsum("rn,gun->gru", step, kernels) + h @ recurrent.swapaxes(1, 2) + biases[:, None]
        c = _squash(f) * c + _squash(i) * np.tanh(g)
        h = _squash(o) * np.tanh(c)
        largest = max(largest, float(np.abs(c).max()))
    return largest


def _squash(gate: Array) -> Array:
    """Return the sigmoid of a gate; large numbers are safe."""
    half: Array = np.tanh(gate / 2)
    return (half + 1) / 2


def align_scales(model: Any) -> None:
    """Give one scale to 8-bit values kept together or copied by a kernel.

    A state takes the scale of the fused op's output: it is the wider one. What a reversal gives is changed to
    the scale that its reader expects by a QUANTIZE.
    """
    for graph, op in fused_ops.list_fused_ops(model):
        scale = graph.tensors[op.outputs[0]].quantization
        graph.tensors[op.inputs[fused_ops.STATE]].quantization = scale
        graph.tensors[op.intermediates[_HIDDEN]].quantization = scale
    for graph in model.subgraphs:
        graph.operators = [each for op in graph.operators or () for each in _rescale(model, graph, op)]


def _rescale(model: Any, graph: Any, op: Any) -> Iterator[Any]:
    """Yield an operator, and behind a reversal of two scales a QUANTIZE."""
    yield op
    codes = schema.BuiltinOperator
    if operator_kind(model, op) != codes.REVERSE_V2 or _has_one_scale(graph, op):
        return
    (last,) = op.outputs
    kept = copy.copy(graph.tensors[last])
    kept.name, kept.quantization = kept.name + b"/kept", graph.tensors[op.inputs[0]].quantization
    graph.tensors.append(kept)
    op.outputs = [len(graph.tensors) - 1]
    code, rescaled = schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = codes.QUANTIZE
    code.version = 2  # from 8 bits to 8 bits: tensorflow v2.21.0 lite/tools/versioning/op_version.cc
    model.operatorCodes.append(code)
    rescaled.opcodeIndex, rescaled.inputs, rescaled.outputs = len(model.operatorCodes) - 1, op.outputs, [last]
    rescaled.builtinOptionsType = schema.BuiltinOptions.QuantizeOptions
    rescaled.builtinOptions = schema.QuantizeOptionsT()
    yield rescaled


def _has_one_scale(graph: Any, op: Any) -> bool:
    scales = [graph.tensors[k].quantization for k in (op.inputs[0], op.outputs[0])]
    if any(each is None or each.scale is None or not len(each.scale) for each in scales):
        return True  # floats
    first, second = ((each.scale[0], each.zeroPoint[0]) for each in scales)
    return bool(first == second)
