"""A user's own layer, as scripts/keras_fixtures has it, for Keras 3."""

import keras


class Scale(keras.layers.Layer):
    def __init__(self, factor=1.0, **options):
        super().__init__(**options)
        self.factor = factor

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")
        super().build(input_shape)

    def call(self, inputs):
        return inputs * self.scale * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}
