"""Lowerings of cuDNN recurrences to CPU ops.

* block_lstm   : Prepares BlockLSTM and LSTMBlockCell nodes for ONNX and TensorFlow Lite.
* tensor_lists : Replaces TensorLists of loops by TensorArrays, for conversion in the next step.
* tensor_arrays: Replaces TensorArrays by tensors, for TensorFlow Lite's converter.
* missing_ops  : Replaces ops unknown to ONNX or TensorFlow Lite by supported ops.
* missing_pools: Replaces pools and normalisations missing or inexact in TensorFlow Lite by supported ops.
* same_padding : Convolutions with windows leaving out places, for TensorFlow Lite.
* image_blocks : Blocks of images over rows and columns, for TensorFlow Lite.
* permutations : Separates the permutations of Transpose nodes in and around loops, for TensorFlow Lite.
* inexact_kernels: Replaces ops with TensorFlow Lite kernels wrong for some values.
* empty_axes   : Handles axes of open size, possibly empty, for TensorFlow Lite.
* infinities   : Infinite constants of a TensorFlow Lite file.
* fixed_shapes : Replaces ops without a kernel in TensorFlow Lite Micro, in graphs of fixed sizes.
* tflite_loops : Loops of TensorFlow Lite ops for recurrences, in blocks of steps.
* tflite_fused : Lowers recurrences to fused LSTM ops or to unrolled steps, for microcontrollers.
* tflite       : Lowers a graph to TensorFlow Lite ops, in float32.
* search       : Traces a search over a model's steps, and adds the search to the model's graph.
* tensorflow   : The lowering to TensorFlow ops with CPU kernels in every build.
* onnx         : The lowering to ONNX: tf2onnx converts the graph, fused nodes the recurrences.

May import: text, errors, private, decode, model, values, weights, graph, graph.passes, recurrences,
lower.tensorflow.
Entry: `tensorflow.lower.lower`, `onnx.convert.lower`, `tflite.lower_tflite`, each for a whole graph.
"""
