"""What a checkpoint holds: a random value for every key, recurrent layers in both of their forms."""
import zlib

import numpy as np
import tensorflow as tf

from tf1_fixtures import blob

AVERAGE = "/ExponentialMovingAverage"


def seeded(text):
    """A generator that depends on the text alone: neither order nor TensorFlow version changes a value."""
    return np.random.RandomState(zlib.crc32(text.encode()) & 0xFFFFFFFF)


def recurrent_tensors(layers, copy=""):
    """Key -> tensor for the blob of every recurrent layer and for the canonical tensors of that blob.

    With copy=AVERAGE they come from the moving average of the blob. It has no canonical keys of its own: the
    tensors have the names under which a CPU graph would serve them.
    """
    tensors = {}
    for layer in layers.built:
        key = layer.opaque_key + copy
        pseudo = blob.pseudo_layers(seeded(key), layer.recurrence)
        tensors[key] = blob.opaque(layer.mode, pseudo)
        prefix = layer.cell_scope.name + "/" if layer.cell_scope.name else ""
        for suffix, tensor in blob.canonical(layer.recurrence, pseudo).items():
            tensors[prefix + suffix] = tensor
    return tensors


def canonical_only(tensors):
    return {key: value for key, value in tensors.items() if "/opaque_kernel" not in key}


def checkpoint_values(keys, variables, layers):
    """Key -> value; variables give the static shape and type of what is no recurrent tensor."""
    known = dict(recurrent_tensors(layers, AVERAGE), **recurrent_tensors(layers))
    values = {}
    for key in keys:
        if key in known:
            values[key] = known[key]
        else:
            # an opaque_kernel has no static shape, and so its optimizer slots have none
            owner = known.get(key.rsplit("/", 1)[0], variables[key])
            values[key] = random_value(key, owner.shape, variables[key].dtype.base_dtype.as_numpy_dtype)
    return values


def random_value(key, shape, dtype):
    if tf.TensorShape(shape).ndims is None:  # its first assignment gives it a shape; until then it is a scalar
        return np.zeros([], dtype)
    shape = tf.TensorShape(shape).as_list()
    if np.issubdtype(dtype, np.integer):
        return np.full(shape, 1000, dtype)
    if key.endswith(("_power", "Adam_1", "moving_variance", "Squeeze_1/ExponentialMovingAverage")):  # never negative in a trained model
        return np.asarray(seeded(key).uniform(0.2, 0.9, shape)).astype(dtype)
    return np.asarray(seeded(key).uniform(-0.7, 0.7, shape)).astype(dtype)
