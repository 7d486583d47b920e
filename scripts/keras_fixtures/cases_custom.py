"""Code in a model: Lambda layers and a class of the user's own; and many layer names."""
import contextlib
import sys

from keras_fixtures.record import Case

HARMLESS = "lambda x: x * 2.0 - 1.0"
#: Would write an empty file in the working directory of whoever runs it. No run of this script calls it.
PWNED = "lambda x: (open('pwned', 'w').close(), x)[1]"


def function(source):
    """A lambda as a user's main script has it; its bytecode names no file of this machine."""
    return eval(compile(source, "model.py", "eval"), {"__name__": "__main__"})


def lambda_model(keras):
    return keras.Sequential([
        keras.lstm(5, return_sequences=True, input_shape=(None, 4), name="before"),
        keras.layers.Lambda(function(HARMLESS), name="code"),
        keras.gru(3, name="after"),
    ])


def lambda_harmless(keras):
    """A Lambda layer between CuDNNLSTM and CuDNNGRU; its bytecode is the writer's Python's."""
    return Case(lambda_model(keras), [[(3, 7, 4)], [(2, 12, 4)]], extra={"lambda": HARMLESS})


def lambda_pwned(keras):
    """As lambda_harmless, but the bytecode in the file would write a file named pwned if anyone called it.
    The answers are those of the harmless function."""
    extra = {"lambda": PWNED, "would_write": "pwned"}
    return Case(lambda_model(keras), [[(3, 7, 4)], [(2, 12, 4)]], before_save=swap_in_pwned, extra=extra)


def swap_in_pwned(model):
    (layer,) = [layer for layer in model.layers if layer.name == "code"]
    layer.function = function(PWNED)


def custom_layer(keras):
    """A class of the user's own, Scale, before and after a Bidirectional(CuDNNLSTM): it multiplies by its
    weight `scale` [features] and by its setting `factor`."""
    scale = scale_class(keras)
    model = keras.Sequential([
        scale(1.5, input_shape=(None, 4), name="scale_in"),
        keras.layers.Bidirectional(keras.lstm(5), name="recurrent"),
        scale(0.5, name="scale_out"),
    ])
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]], extra={"custom": ["Scale"]})


def scale_class(keras):
    class Scale(keras.layers.Layer):
        def __init__(self, factor=1.0, **options):
            super(Scale, self).__init__(**options)
            self.factor = factor

        def build(self, input_shape):
            self.scale = self.add_weight(name="scale", shape=(int(input_shape[-1]),), initializer="ones")
            super(Scale, self).build(input_shape)

        def call(self, inputs):
            return inputs * self.scale * self.factor

        def compute_output_shape(self, input_shape):
            return input_shape

        def get_config(self):
            return dict(super(Scale, self).get_config(), factor=self.factor)

    return Scale


def chunked_names(keras):
    """The attributes layer_names and weight_names in pieces (layer_names0, layer_names1, ..), as Keras writes
    them beyond 64 KB; the limit was lowered to 200 bytes, so that the file is small."""
    layers = [keras.lstm(5, return_sequences=True, input_shape=(None, 4), name="the_first_recurrent_layer")]
    for number in range(12):
        layers.append(keras.layers.Activation("linear", name="a_layer_with_a_rather_long_name_%d" % number))
    layers.append(keras.layers.Bidirectional(keras.gru(3), name="the_pair_of_recurrent_layers_comes_last"))
    return Case(keras.Sequential(layers), [[(3, 7, 4)], [(2, 12, 4)]])


@contextlib.contextmanager
def low_limit(keras):
    """Lowers HDF5_OBJECT_HEADER_LIMIT in every module of the writer that has it."""
    modules = [module for module in list(sys.modules.values())
               if module is not None and "HDF5_OBJECT_HEADER_LIMIT" in vars(module)]
    assert modules
    limits = [module.HDF5_OBJECT_HEADER_LIMIT for module in modules]
    for module in modules:
        module.HDF5_OBJECT_HEADER_LIMIT = 200
    try:
        yield
    finally:
        for module, limit in zip(modules, limits):
            module.HDF5_OBJECT_HEADER_LIMIT = limit


chunked_names.while_saving = low_limit

CASES = (lambda_harmless, lambda_pwned, custom_layer, chunked_names)
