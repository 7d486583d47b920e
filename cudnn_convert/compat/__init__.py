"""TensorFlow 1's cuDNN layers for TensorFlow 2, to train and run old models unchanged.

* cudnn_rnn    : The layers of `tf.contrib.cudnn_rnn`, and `install` for unchangeable code.
* cudnn_rnn_ops: Converters, saveables, and functions and classes on a parameter blob.
* rnn          : The contents of `tf.contrib.rnn`: cells, fused cells, stacks of bidirectional layers.
* cells        : TensorFlow 1's fused LSTM cells, and the CPU cells of cuDNN's layers.
* parameters   : Parameter blobs as tensors: cuDNN's matrices, and TensorFlow 1's canonical tensors.
* branches     : A recurrence in a graph: cuDNN's op on a GPU, CPU ops elsewhere.
* contrib      : Puts modules at `tf.contrib`, and messages for all former parts.

May import: private, model, weights, lower.tensorflow.
Entry: `cudnn_rnn` and `rnn`, imported in place of contrib's; `cudnn_rnn.install()`.
"""
