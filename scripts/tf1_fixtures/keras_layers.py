"""The same Keras recurrent layer twice: as CuDNNLSTM/CuDNNGRU, and as the LSTM/GRU that computes it on a CPU.

A case builds its graph through one of these two objects. Both make variables of the same names; the CPU
layers get their weights by Keras's own rule for loading a CuDNN layer's weights into theirs.
"""
import tensorflow as tf

try:
    from tensorflow.python.keras.saving.hdf5_format import preprocess_weights_for_loading
except ImportError:  # before 1.14
    from tensorflow.python.keras.engine.saving import preprocess_weights_for_loading

CUDNN = {"lstm": "CuDNNLSTM", "gru": "CuDNNGRU"}


class CudnnKeras:
    """Builds tf.keras.layers.CuDNN* layers, which only a GPU can run, and keeps them in `built`."""

    trains = True

    def __init__(self):
        self.built = []

    def lstm(self, units, **options):
        return self._keep(tf.keras.layers.CuDNNLSTM(units, **options))

    def gru(self, units, **options):
        return self._keep(tf.keras.layers.CuDNNGRU(units, **options))

    def bidirectional(self, layer, **options):
        """The wrapper makes two copies of the layer, which take its place."""
        self.built.remove(layer)
        wrapper = tf.keras.layers.Bidirectional(layer, **options)
        self.built += [wrapper.forward_layer, wrapper.backward_layer]
        return wrapper

    def _keep(self, layer):
        self.built.append(layer)
        return layer


class CpuKeras(CudnnKeras):
    """Builds their CPU twins, under the names that Keras would give the CuDNN layers."""

    trains = False

    def lstm(self, units, **options):
        options.setdefault("name", self._name("cu_dnnlstm"))
        return self._keep(tf.keras.layers.LSTM(units, recurrent_activation="sigmoid", **options))

    def gru(self, units, **options):
        options.setdefault("name", self._name("cu_dnngru"))
        cell = dict(recurrent_activation="sigmoid", reset_after=True)
        return self._keep(tf.keras.layers.GRU(units, **dict(cell, **options)))

    def _name(self, kind):
        taken = [layer.name for layer in self.built if layer.name.split("_bi")[0].startswith(kind)]
        return "%s_%d" % (kind, len(taken)) if taken else kind


def keys(layer):
    """The names of a recurrent layer's variables: kernel, recurrent kernel, bias."""
    return [variable.op.name for variable in layer.weights]


def converted(layer, values):
    """A CuDNN layer's three arrays as the CPU twin `layer` takes them."""
    return preprocess_weights_for_loading(layer, [value.copy() for value in values])
