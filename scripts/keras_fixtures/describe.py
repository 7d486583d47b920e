"""What case.json says of a model: the names of its ends, and its CuDNN layers."""

CUDNN = {"CuDNNLSTM": "lstm", "CuDNNGRU": "gru"}


def input_names(model):
    if deferred(model):
        return [model.layers[0].name + "_input"]
    return list(network(model).input_names)


def output_names(model):
    """The layers' names; of several outputs of one the later get _1, _2, as tf.keras 1.13+ has it."""
    if deferred(model):
        return [model.layers[-1].name]
    names = []
    for name in network(model).output_names:
        unique, number = name, 0
        while unique in names:
            number += 1
            unique = "%s_%d" % (name, number)
        names.append(unique)
    return names


def deferred(model):
    """A tf.keras Sequential built without an Input has no ends yet; later versions name them as above."""
    return not getattr(model, "inputs", None) and not hasattr(model, "model")


def network(model):
    """Keras 2.1's Sequential holds its network inside, once it is built."""
    if getattr(model, "output_names", None):
        return model
    if model.model is None:
        model.build()
    return model.model


def recurrences(model, inside=()):
    """Every CuDNN layer once; a Bidirectional pair is one, with the wrapper's name. `inside` goes inwards."""
    found = []
    for layer in model.layers:
        found += of_layer(layer, list(inside))
    return found


def of_layer(layer, inside):
    if type(layer).__name__ in CUDNN:
        return [entry(layer, layer, 1, inside)]
    if type(layer).__name__ == "Bidirectional" and type(layer.forward_layer).__name__ in CUDNN:
        return [entry(layer, layer.forward_layer, 2, inside)]
    if type(layer).__name__ == "TimeDistributed":
        return of_layer(layer.layer, inside + [layer.name])
    if hasattr(layer, "layers"):
        return recurrences(layer, inside + [layer.name])
    return []


def entry(named, layer, directions, inside):
    return {
        "layer": named.name,
        "inside": inside,
        "mode": CUDNN[type(layer).__name__],
        "directions": directions,
        "units": layer.units,
        "input_size": int(layer.kernel.shape[0]),
        "stateful": bool(layer.stateful),
    }
