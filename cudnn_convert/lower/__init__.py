"""Lowerings: cuDNN recurrences become ops that run on a CPU.

* block_lstm   : Prepares BlockLSTM and LSTMBlockCell nodes for ONNX and TensorFlow Lite.
* tensor_lists : Replaces TensorLists of loops by TensorArrays, which the next step converts.
* tensor_arrays: Replaces TensorArrays by tensors, which TensorFlow Lite's converter takes.
* missing_ops  : Replaces ops that ONNX or TensorFlow Lite lack by others that they have.
* missing_pools: Replaces pools and normalisations that TensorFlow Lite lacks by others that it has.
* same_padding : Convolutions whose windows leave out places, for TensorFlow Lite.
* image_blocks : Blocks of images over rows and columns, for TensorFlow Lite.
* permutations : Permutations that loops do not share with what is around them, for TensorFlow Lite.
* inexact_kernels: Ops whose kernels in TensorFlow Lite are wrong for some values, by others.
* empty_axes   : Open axes, which may have no values or many, for TensorFlow Lite.
* infinities   : Infinite constants of a TensorFlow Lite file.
* tflite       : Lowers recurrences to loops of TensorFlow Lite ops, in float32.
* search       : Traces a search over a model's steps, and adds it to a graph that has the model.
* tensorflow   : The lowering to TensorFlow ops that have CPU kernels in every build.
* onnx         : The lowering to ONNX: tf2onnx converts the graph, fused nodes the recurrences.

May import: errors, private, decode, model, values, weights, graph, graph.passes, recurrences,
lower.tensorflow.
Entry: `tensorflow.lower.lower`, `onnx.convert.lower`, `tflite.lower_tflite`, each for a whole graph.
"""
