"""States, directions, plain layers beside CuDNN ones, a realistic classifier, training."""
import tensorflow as tf

from keras_fixtures import reproducible
from keras_fixtures.record import Case
from keras_fixtures.weights import Ids


def stateful_lstm(keras):
    """A stateful CuDNNLSTM: the feeds are calls in a row after reset_states, the state carried."""
    layer = keras.lstm(5, stateful=True, return_sequences=True, batch_input_shape=(2, None, 4))
    model = keras.Sequential([layer, keras.layers.Dense(3)])
    return Case(model, [[(2, 7, 4)], [(2, 12, 4)], [(2, 1, 4)]])


def stateful_gru(keras):
    """Two stateful CuDNNGRU: the feeds are calls in a row after reset_states, the states carried."""
    x = keras.Input(batch_shape=(3, None, 4), name="x")
    steps = keras.gru(5, stateful=True, return_sequences=True, name="first")(x)
    last = keras.gru(3, stateful=True, name="second")(steps)
    return Case(keras.Model(x, last), [[(3, 7, 4)], [(3, 2, 4)], [(3, 5, 4)]])


def go_backwards(keras):
    """go_backwards: a CuDNNLSTM whose steps stay in reversed order, and a CuDNNGRU; both read the input."""
    x = keras.Input((None, 4), name="x")
    reversed_steps = keras.lstm(5, go_backwards=True, return_sequences=True, name="reversed_steps")(x)
    first_step = keras.gru(3, go_backwards=True, name="first_step")(x)
    return Case(keras.Model(x, [reversed_steps, first_step]), [[(3, 7, 4)], [(2, 12, 4)]])


def beside_plain(keras):
    """CuDNNLSTM and CuDNNGRU beside plain LSTM, GRU, SimpleRNN and Bidirectional(GRU) with the defaults of
    their Keras (hard_sigmoid and reset_after=False in older ones): the plain ones must stay as they are."""
    x = keras.Input((None, 4), name="x")
    steps = keras.lstm(5, return_sequences=True, name="fast_lstm")(x)
    steps = keras.layers.LSTM(3, return_sequences=True, name="plain_lstm")(steps)
    steps = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True), name="plain_pair")(steps)
    steps = keras.gru(6, return_sequences=True, name="fast_gru")(steps)
    first = keras.layers.GRU(3, name="plain_gru")(steps)
    second = keras.layers.SimpleRNN(2, name="plain_rnn")(steps)
    extra = {"plain": ["plain_lstm", "plain_pair", "plain_gru", "plain_rnn"]}
    return Case(keras.Model(x, [first, second]), [[(3, 7, 4)], [(2, 12, 4)]], extra=extra)


def text_classifier(keras):
    """Embedding, SpatialDropout1D, Conv1D, BatchNormalization, Bidirectional(CuDNNGRU), average and maximum
    pooling, Dropout, Dense."""
    layers = keras.layers
    words = keras.Input((None,), name="words")
    found = layers.SpatialDropout1D(0.2, name="dropout")(layers.Embedding(30, 6, name="embedding")(words))
    found = layers.Conv1D(5, 3, padding="same", activation="relu", name="convolution")(found)
    found = layers.BatchNormalization(name="normal")(found)
    found = layers.Bidirectional(keras.gru(4, return_sequences=True), name="recurrent")(found)
    average = layers.GlobalAveragePooling1D(name="average")(found)
    maximum = layers.GlobalMaxPooling1D(name="maximum")(found)
    found = layers.Dropout(0.5, name="last_dropout")(layers.concatenate([average, maximum], name="pooled"))
    label = layers.Dense(3, activation="softmax", name="label")(found)
    return Case(keras.Model(words, label), [[Ids((3, 7), 30)], [Ids((2, 12), 30)]])


def adam(keras):
    """Trained for three steps of Adam after its weights were set; the file holds the optimizer's state, in
    the shapes of the CuDNN layers, and the training configuration."""
    model = keras.Sequential([
        keras.lstm(5, return_sequences=True, input_shape=(None, 4)),
        keras.layers.Bidirectional(keras.gru(3)),
        keras.layers.Dense(2),
    ])
    model.compile(keras.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]])


adam.fits = True


def compiled(keras):
    """Compiled but never trained: a training configuration without optimizer state."""
    label = keras.layers.Dense(3, activation="softmax")
    model = keras.Sequential([keras.gru(5, input_shape=(None, 4)), label])
    model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]])



def time_major(keras):
    """time_major=True, which tf.keras has since 1.13: CuDNNLSTM and CuDNNGRU on [steps, batch, features]."""
    x = keras.Input((None, 4), name="x")
    steps = keras.lstm(5, return_sequences=True, time_major=True, name="first")(x)
    steps = keras.gru(3, return_sequences=True, time_major=True, name="second")(steps)
    return Case(keras.Model(x, steps), [[(7, 3, 4)], [(12, 2, 4)]])


def float64(keras):
    """Everything in float64 (keras.backend.set_floatx): CuDNNLSTM and CuDNNGRU."""
    keras.backend.set_floatx("float64")
    x = keras.Input((None, 4), name="x")
    steps = keras.lstm(5, return_sequences=True, name="first")(x)
    return Case(keras.Model(x, keras.gru(3, name="second")(steps)), [[(3, 7, 4)], [(2, 12, 4)]])


def deferred(keras):
    """A Sequential without input_shape, built afterwards: its shape stands in build_input_shape alone."""
    model = keras.Sequential([keras.lstm(5), keras.layers.Dense(3)])
    model.build((None, 7, 4))
    return Case(model, [[(3, 7, 4)], [(2, 7, 4)]])


def op_layers(keras):
    """Ops of TensorFlow on what layers return, each of which becomes a layer (TensorFlowOpLayer, TFOpLambda):
    arithmetic, a slice, a split in two, a size; and the last one is an output."""
    x = keras.Input((None, 4), name="x")
    steps = keras.lstm(5, return_sequences=True, name="first")(1.0 - 0.5 * x)
    halves = tf.split(keras.gru(6, return_sequences=True, name="second")(steps), 2, axis=-1)
    mixed = tf.concat([halves[1], tf.nn.sigmoid(halves[0])], axis=-1)
    label = keras.layers.Dense(3, name="label")(mixed[:, -1, :])
    share = tf.reduce_max(steps, axis=[1, 2]) / tf.cast(tf.shape(steps)[1], tf.float32)
    return Case(keras.Model(x, [label, share]), [[(3, 7, 4)], [(2, 12, 4)]])


op_layers.while_saving = reproducible.attributes


CASES = (
    stateful_lstm, stateful_gru, go_backwards, beside_plain, text_classifier, adam, compiled, float64,
)
SINCE_TF_1_13 = (time_major, deferred)
