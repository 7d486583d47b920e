"""Random numbers that depend on names alone: neither the order of calls nor a Keras's version changes one."""
import zlib
from collections import namedtuple

import numpy as np

#: Whole numbers from 0 to below `below`, as floats: Keras's Input has that type unless told otherwise.
Ids = namedtuple("Ids", "shape below")


def seeded(text):
    return np.random.RandomState(zlib.crc32(text.encode()) & 0xFFFFFFFF)


def set_weights(writer, name, model):
    """Every variable of every layer: seeded by the case, the layer's place, the variable's place and name."""
    pairs = []
    layers = [layer for layer in model.layers if layer.weights]
    for place, layer in enumerate(layers):
        for number, variable in enumerate(layer.trainable_weights + layer.non_trainable_weights):
            text = "%s/%d/%d/%s" % (name, place, number, own_name(variable))
            pairs.append((variable, random_value(text, writer.backend.int_shape(variable), variable.dtype)))
    writer.backend.batch_set_value(pairs)


def own_name(variable):
    return variable.name.split(":")[0].rsplit("/", 1)[-1]


def random_value(text, shape, dtype):
    dtype = getattr(dtype, "as_numpy_dtype", dtype)
    low, high = (0.2, 0.9) if text.endswith("moving_variance") else (-0.7, 0.7)
    return seeded(text).uniform(low, high, shape).astype(str(np.dtype(dtype)).replace("_ref", ""))


def fed_values(writer, name, case):
    """Per run the list of the model's inputs, in their types."""
    ends = case.model.inputs or [None] * len(case.feeds[0])  # a deferred Sequential has none yet
    types = ["float32" if end is None else writer.backend.dtype(end) for end in ends]
    return [
        [
            fed_value("%s/feed%d/%d" % (name, number, place), kind).astype(dtype)
            for place, (kind, dtype) in enumerate(zip(feed, types))
        ]
        for number, feed in enumerate(case.feeds)
    ]


def fed_value(text, kind):
    if isinstance(kind, Ids):
        return seeded(text).randint(0, kind.below, kind.shape)
    return seeded(text).standard_normal(kind)


def training_data(name, model, fed):
    """A feed, and random targets of the shapes of the model's outputs."""
    batch = len(fed[0])
    shapes = [tuple(output.shape[1:]) for output in model.outputs]
    targets = [
        seeded("%s/target%d" % (name, place)).standard_normal((batch,) + tuple(int(size) for size in shape))
        for place, shape in enumerate(shapes)
    ]
    return fed, targets
