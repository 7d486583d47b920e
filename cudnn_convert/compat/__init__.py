"""TensorFlow 1's cuDNN layers for TensorFlow 2, so that old models train and run on as they are written.

* cudnn_rnn    : `tf.contrib.cudnn_rnn`: the layers, and `install` for code that cannot be edited.
* cudnn_rnn_ops: Its converters, saveables, and functions and classes on a parameter blob.
* rnn          : `tf.contrib.rnn`: cells, fused cells, stacks of bidirectional layers.
* cells        : The cells that compute on a CPU what the layers do, and TensorFlow 1's fused LSTMs.
* parameters   : The parameter blob as tensors: cuDNN's matrices, and canonical tensors.
* branches     : A recurrence as cuDNN's op on a GPU, as CPU ops elsewhere.
* contrib      : What stands at `tf.contrib` after `install`.

May import: private, model, weights, lower.tensorflow.
Entry: `cudnn_rnn` and `rnn`, imported in place of contrib's; `cudnn_rnn.install()`.
"""
