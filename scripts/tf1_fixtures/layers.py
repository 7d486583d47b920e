"""The same recurrent layer twice: as a GPU graph has it, and as TensorFlow 1 computes it on a CPU.

A case builds its graph through one of these two objects, so that everything around the recurrence (scopes,
names, dense layers) is one text and comes out the same in both graphs.
"""
import tensorflow as tf
from tensorflow.contrib import cudnn_rnn
from tensorflow.contrib.rnn import stack_bidirectional_dynamic_rnn

from tf1_fixtures.blob import Recurrence

LSTMStateTuple = tf.nn.rnn_cell.LSTMStateTuple

CUDNN_LAYERS = {
    "lstm": cudnn_rnn.CudnnLSTM,
    "gru": cudnn_rnn.CudnnGRU,
    "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.CudnnRNNRelu,
}
COMPATIBLE_CELLS = {
    "lstm": cudnn_rnn.CudnnCompatibleLSTMCell,
    "gru": cudnn_rnn.CudnnCompatibleGRUCell,
    "rnn_tanh": lambda units: tf.nn.rnn_cell.BasicRNNCell(units, activation=tf.nn.tanh),
    "rnn_relu": lambda units: tf.nn.rnn_cell.BasicRNNCell(units, activation=tf.nn.relu),
}


class CudnnLayers:
    """Builds tf.contrib.cudnn_rnn layers: a graph with gradients and savers that only a GPU can run."""

    trains = True

    def layer(self, mode, layers, units, directions=1, name=None, dropout=0.0, dtype=tf.float32):
        direction = "unidirectional" if directions == 1 else "bidirectional"
        return CUDNN_LAYERS[mode](layers, units, direction=direction, dropout=dropout, name=name, dtype=dtype)


class CompatibleLayers:
    """Builds the CPU twins and keeps them in `built`, so that their weights can be set afterwards."""

    trains = False

    def __init__(self):
        self.built = []

    def layer(self, mode, layers, units, directions=1, name=None, dropout=0.0, dtype=tf.float32):
        twin = CompatibleRNN(mode, layers, units, directions, name or "cudnn_" + mode, dtype)
        self.built.append(twin)
        return twin


class CompatibleRNN:
    """A CPU stack of compatible cells with the scopes and the call signature of a Cudnn layer.

    Between layers there is no dropout: the twin stands for a layer called with training=False.
    """

    def __init__(self, mode, layers, units, directions, name, dtype):
        self.mode, self.layers, self.units, self.directions = mode, layers, units, directions
        self.name, self.dtype = name, dtype
        self.scope = None  # where the Cudnn layer keeps its opaque_kernel
        self.cell_scope = None  # where the canonical tensors' keys begin
        self.input_size = None

    @property
    def recurrence(self):
        dtype = tf.as_dtype(self.dtype).as_numpy_dtype
        return Recurrence(self.mode, self.layers, self.directions, self.units, self.input_size, dtype)

    @property
    def opaque_key(self):
        return self.scope.name + "/opaque_kernel"

    def build(self, shape):
        """As the Cudnn layer's: an explicit build leaves its own scope out of the canonical keys."""
        self._capture_scope(shape[-1])
        self.cell_scope = tf.get_variable_scope()
        self._run(tf.zeros([1, 1, self.input_size], self.dtype))

    def __call__(self, inputs, initial_state=None, sequence_lengths=None, time_major=True, training=True):
        if self.scope is None:
            self._capture_scope(int(inputs.shape[-1]))
            self.cell_scope = self.scope
        if time_major:
            return self._run(inputs, initial_state, sequence_lengths)
        states = initial_state and [swap_batch(s) for s in initial_state]
        outputs, states = self._run(swap_batch(inputs), states, sequence_lengths)
        return swap_batch(outputs), tuple(swap_batch(s) for s in states)

    def _capture_scope(self, input_size):
        self.input_size = int(input_size)
        with tf.variable_scope(None, default_name=self.name) as self.scope:
            pass

    def _run(self, inputs, states=None, lengths=None):
        def cells():
            return [COMPATIBLE_CELLS[self.mode](self.units) for _ in range(self.layers)]

        states = states and self._split(states)
        with tf.variable_scope(self.cell_scope, reuse=tf.AUTO_REUSE):
            if self.directions == 1:
                cell = tf.nn.rnn_cell.MultiRNNCell(cells())
                outputs, final = tf.nn.dynamic_rnn(
                    cell, inputs, lengths, states and tuple(states), self.dtype, time_major=True
                )
            else:
                outputs, forward, backward = stack_bidirectional_dynamic_rnn(
                    cells(), cells(), inputs, states and states[0::2], states and states[1::2],
                    dtype=self.dtype, sequence_length=lengths, time_major=True,
                )
                final = [state for pair in zip(forward, backward) for state in pair]
        return outputs, self._join(final)

    def _split(self, states):
        """(h, c) or (h,), each [layers * directions, batch, units] -> one cell state a pseudo-layer."""
        rows = [tf.unstack(s, self.layers * self.directions) for s in states]
        return [LSTMStateTuple(c, h) for h, c in zip(*rows)] if self.mode == "lstm" else rows[0]

    def _join(self, final):
        if self.mode == "lstm":
            return tf.stack([s.h for s in final]), tf.stack([s.c for s in final])
        return (tf.stack(list(final)),)


def swap_batch(tensor):
    """[batch, steps, ...] <-> [steps, batch, ...]"""
    return tf.transpose(tensor, [1, 0, 2])
