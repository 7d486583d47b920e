"""The Keras that writes, under one set of names: Keras 1, 2, tf.keras or Keras 3."""

import importlib


class Library(object):
    def __init__(self, package):
        """`package` is keras or tf.keras."""
        import tensorflow as tf

        self.keras = tf.keras if package == "tf.keras" else importlib.import_module("keras")
        version = tf.__version__ if package == "tf.keras" else self.keras.__version__
        self.name = "%s-%s" % (package, version)
        self.major = 2 if package == "tf.keras" else int(self.keras.__version__.split(".")[0])
        self.layers = importlib.import_module("keras.layers") if package == "keras" else tf.keras.layers
        self.models = importlib.import_module("keras.models") if package == "keras" else tf.keras.models
        if self.major < 3 and package == "keras" and self.keras.backend.backend() == "theano":
            self.name += "-theano"
        self.weights_file = "model.weights.h5" if self.major == 3 else "weights.h5"
        self.is_eager = self.major == 3 or (package == "tf.keras" and tf.__version__.startswith("2."))

    @property
    def backend(self):
        return self.keras.backend if self.major < 3 else importlib.import_module("keras.ops")

    def sequential(self, *layers):
        model = self.models.Sequential()
        if self.major == 3 and isinstance(layers[0], self.layers.Embedding):
            model.add(self.layers.Input((7,)))
        for layer in layers:
            model.add(layer)
        return model

    def batch(self, *shape):
        """The argument that fixes a first layer's batch."""
        return {"batch_shape" if self.major == 3 else "batch_input_shape": shape}

    def model(self, inputs, outputs):
        if self.major == 1:
            return self.models.Model(input=inputs, output=outputs)
        return self.models.Model(inputs, outputs)

    def input(self, shape, name):
        return self.layers.Input(shape=shape, name=name)

    def embedding(self, size, **options):
        options.update({"input_length": 7} if self.major < 3 else {})
        return self.layers.Embedding(9, size, **options)

    def convolution_1d(self, filters, size, **options):
        return getattr(self.layers, "Convolution1D" if self.major == 1 else "Conv1D")(
            filters, size, **options
        )

    def convolution_2d(self, filters, size, **options):
        if self.major == 1:
            return self.layers.Convolution2D(filters, size, size, **options)
        return self.layers.Conv2D(filters, (size, size), **options)

    def channels_first(self):
        return {"dim_ordering": "th"} if self.major == 1 else {"data_format": "channels_first"}

    def concatenate(self, tensors):
        if self.major == 1:
            return self.layers.merge(tensors, mode="concat")
        return self.layers.concatenate(tensors)

    def renamed(self, **options):
        """The options under the names of Keras 1."""
        names = {"dropout": "dropout_W", "recurrent_dropout": "dropout_U"} if self.major == 1 else {}
        return {names.get(key, key): value for key, value in options.items()}

    def add_weight(self, layer, name, shape):
        if self.major == 1:
            return layer.add_weight(shape, initializer="glorot_uniform", name=name)
        return layer.add_weight(name=name, shape=shape, initializer="glorot_uniform")
