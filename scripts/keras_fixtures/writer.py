"""The Keras that writes: keras-team's package, TensorFlow 1's tf.keras, or tf_keras, as one object.

A case builds its model through a `Writer`. `CudnnLayers` gives it CuDNNLSTM and CuDNNGRU; `CpuLayers` gives
it the LSTM and GRU that compute the same on a CPU: the model that answers.
"""
import importlib

import tensorflow as tf


class Writer:
    """What the cases need of a Keras: `layers`, `Sequential`, `Model`, `Input` and two recurrent layers."""

    def __init__(self, package):
        """`package` is keras, tf.keras or tf_keras."""
        self.package = package
        self.keras = tf.keras if package == "tf.keras" else importlib.import_module(package)
        self.backend = self.keras.backend
        self.layers = self.keras.layers
        self.Sequential = self.keras.models.Sequential
        self.Model = self.keras.models.Model
        self.Input = self.keras.layers.Input
        self.version = tf.__version__ if package == "tf.keras" else self.keras.__version__
        #: Whether layers run as they are called; TensorFlow 1 and its tf_keras build graphs.
        self.is_v2 = package == "tf.keras" and not tf.__version__.startswith("1.")

    @property
    def name(self):
        return "%s-%s" % (self.package, self.version)

    def cudnn_class(self, name):
        """CuDNNLSTM or CuDNNGRU; tf_keras has them in its version 1 interface only."""
        if self.package == "tf_keras":
            module = {"CuDNNLSTM": "cudnn_lstm", "CuDNNGRU": "cudnn_gru"}[name]
            return getattr(importlib.import_module("tf_keras.src.layers.rnn." + module), name)
        return getattr(self.layers, name)

    def start(self):
        """An empty graph. In TensorFlow 1 only what runs is placed: CudnnRNN has no kernel on a CPU."""
        self.backend.clear_session()
        self.backend.set_floatx("float32")
        if self.package != "tf_keras" and not self.is_v2:
            self.backend.set_session(tf.Session(config=tf.ConfigProto(
                graph_options=tf.GraphOptions(place_pruned_graph=True),
                inter_op_parallelism_threads=1,
                intra_op_parallelism_threads=1,
            )))


class CudnnLayers(Writer):
    cudnn = True

    def lstm(self, units, **options):
        return self.cudnn_class("CuDNNLSTM")(units, **options)

    def gru(self, units, **options):
        return self.cudnn_class("CuDNNGRU")(units, **options)


class CpuLayers(Writer):
    cudnn = False

    def lstm(self, units, **options):
        return self.layers.LSTM(units, activation="tanh", recurrent_activation="sigmoid", **options)

    def gru(self, units, **options):
        options = dict(options, activation="tanh", recurrent_activation="sigmoid", reset_after=True)
        return self.layers.GRU(units, **options)
