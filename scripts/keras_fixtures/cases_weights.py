"""Files of weights alone."""
import h5py

from keras_fixtures import cases_main, cases_wrappers


def weights_sequential(keras):
    """save_weights of a Sequential, with model.json for the architecture."""
    return cases_main.bidirectional(keras)._replace(file="weights.h5")


def weights_functional(keras):
    """save_weights of a functional model with models inside, with model.json for the architecture."""
    return cases_wrappers.nested(keras)._replace(file="weights.h5")


def weights_without_suffix(keras):
    """save_weights under a name without suffix."""
    return cases_main.siamese(keras)._replace(file="weights")


def weights_without_zero(keras):
    """save_weights, then edited: no weight's name ends with :0, as in files of other backends."""
    return cases_main.stacked(keras)._replace(file="weights.h5", edit=strip_zero)


def strip_zero(path):
    """Renames every dataset X:0 to X, and so in the attribute weight_names."""
    with h5py.File(path, "r+") as stream:
        for layer in stream.values():
            names = [name.decode() for name in layer.attrs["weight_names"]]
            for name in names:
                layer.move(name, name[:-len(":0")])
            layer.attrs["weight_names"] = [name[:-len(":0")].encode() for name in names]


CASES = (weights_sequential, weights_functional, weights_without_suffix, weights_without_zero)
