"""TensorFlow 1's cuDNN layers for TensorFlow 2, so that old models train and run on as they are written.

* cudnn_rnn    : The layers of `tf.contrib.cudnn_rnn`, and `install` for code that cannot be edited.
* cudnn_rnn_ops: Converters, saveables, and functions and classes on a parameter blob.
* rnn          : What `tf.contrib.rnn` has: cells, fused cells, stacks of bidirectional layers.
* cells        : TensorFlow 1's fused LSTM cells, and the CPU cells of cuDNN's layers.
* parameters   : Parameter blobs as tensors: cuDNN's matrices, and TensorFlow 1's canonical tensors.
* branches     : A recurrence in a graph: cuDNN's op on a GPU, CPU ops elsewhere.
* contrib      : Puts modules at `tf.contrib`, and messages for all else that was there.

May import: private, model, weights, lower.tensorflow.
Entry: `cudnn_rnn` and `rnn`, imported in place of contrib's; `cudnn_rnn.install()`.
"""
