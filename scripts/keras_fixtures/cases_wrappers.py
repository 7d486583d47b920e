"""Bidirectional, TimeDistributed, models in models."""
from keras_fixtures.record import Case

MERGE_MODES = ("concat", "sum", "mul", "ave", None)


def merge_modes(keras, layer):
    """Five Bidirectional layers on one input, one per merge mode; the last has two outputs."""
    x = keras.Input((None, 4), name="x")
    outputs = []
    for mode in MERGE_MODES:
        name = str(mode).lower()
        found = keras.layers.Bidirectional(layer(mode), merge_mode=mode, name=name)(x)
        outputs += list(found) if isinstance(found, (list, tuple)) else [found]
    return Case(keras.Model(x, outputs), [[(3, 7, 4)], [(2, 12, 4)]])


def merge_modes_lstm(keras):
    """Bidirectional(CuDNNLSTM) with every merge mode; `sum` and `none` give all steps."""
    return merge_modes(keras, lambda mode: keras.lstm(3, return_sequences=mode in ("sum", None)))


def merge_modes_gru(keras):
    """Bidirectional(CuDNNGRU) with every merge mode; `concat`, `mul` and `ave` give all steps."""
    return merge_modes(keras, lambda mode: keras.gru(3, return_sequences=mode in ("concat", "mul", "ave")))


def time_distributed(keras):
    """CuDNNGRU with all steps, TimeDistributed(Dense) after it."""
    model = keras.Sequential([
        keras.gru(5, return_sequences=True, input_shape=(None, 4)),
        keras.layers.TimeDistributed(keras.layers.Dense(3, activation="relu"), name="every_step"),
    ])
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]])


def time_distributed_nested(keras):
    """Documents of sentences: TimeDistributed over a model that holds a CuDNNLSTM, then a CuDNNGRU."""
    words = keras.Input((6, 4), name="words")
    sentence = keras.Model(words, keras.layers.Dense(3, name="project")(keras.lstm(5, name="read")(words)),
                           name="sentence")
    document = keras.Input((5, 6, 4), name="document")
    sentences = keras.layers.TimeDistributed(sentence, name="sentences")(document)
    model = keras.Model(document, keras.gru(4, name="summary")(sentences))
    return Case(model, [[(3, 5, 6, 4)], [(2, 5, 6, 4)]])


def time_distributed_layer(keras):
    """TimeDistributed right around a CuDNNLSTM."""
    document = keras.Input((5, 6, 4), name="document")
    sentences = keras.layers.TimeDistributed(keras.lstm(3), name="sentences")(document)
    return Case(keras.Model(document, sentences), [[(3, 5, 6, 4)], [(2, 5, 6, 4)]])


def nested(keras):
    """A functional model that holds a model (BatchNormalization before a CuDNNLSTM, so that trainable weights
    come first in the file) and a Sequential (Bidirectional(CuDNNGRU)); the inner model is called twice."""
    inside = keras.Input((None, 4), name="inside")
    normal = keras.layers.BatchNormalization(name="normal")(inside)
    steps = keras.lstm(4, return_sequences=True, name="inner_lstm")(normal)
    inner = keras.Model(inside, steps, name="inner")
    both_ways = keras.layers.Bidirectional(keras.gru(3), input_shape=(None, 4), name="both_ways")
    pair = keras.Sequential([both_ways], name="pair")
    x = keras.Input((None, 4), name="x")
    outer = keras.layers.Dense(2, name="answer")(pair(inner(inner(x))))
    return Case(keras.Model(x, outer), [[(3, 7, 4)], [(2, 12, 4)]])


def frozen_layers(keras):
    """A CuDNNLSTM that is not trainable before one that is, inside a model inside a model."""
    inside = keras.Input((None, 4), name="inside")
    steps = keras.lstm(5, return_sequences=True, name="still", trainable=False)(inside)
    inner = keras.Model(inside, keras.lstm(3, name="moving")(steps), name="inner")
    x = keras.Input((None, 4), name="x")
    return Case(keras.Model(x, keras.layers.Dense(2, name="answer")(inner(x))), [[(3, 7, 4)], [(2, 12, 4)]])


def bidirectional_states(keras):
    """Bidirectional(CuDNNLSTM) that returns its states, which start a second one."""
    x = keras.Input((None, 4), name="x")
    layer = keras.lstm(3, return_sequences=True, return_state=True)
    found = keras.layers.Bidirectional(layer, name="first")(x)
    second = keras.layers.Bidirectional(keras.lstm(3), name="second")(found[0], initial_state=found[1:])
    return Case(keras.Model(x, [second] + list(found[1:])), [[(3, 7, 4)], [(2, 12, 4)]])


CASES = (
    merge_modes_lstm, merge_modes_gru, time_distributed, time_distributed_nested,
    time_distributed_layer, nested, frozen_layers, bidirectional_states,
)
