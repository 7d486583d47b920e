"""The cases that every writer gets."""
from keras_fixtures.record import Case


def sequential_lstm(keras):
    """A Sequential of CuDNNLSTM and Dense, layer names as Keras gives them."""
    layers = [keras.lstm(5, input_shape=(None, 4)), keras.layers.Dense(3)]
    return Case(keras.Sequential(layers), [[(3, 7, 4)], [(2, 12, 4)]])


def stacked(keras):
    """Two CuDNNLSTM and a CuDNNGRU, each with its own regularizers, constraints, initializers and name."""
    regularizers, constraints = keras.keras.regularizers, keras.keras.constraints
    model = keras.Sequential([
        keras.lstm(
            5, return_sequences=True, input_shape=(None, 4), name="first", unit_forget_bias=False,
            kernel_initializer="he_normal", recurrent_initializer="glorot_uniform", bias_initializer="ones",
            kernel_regularizer=regularizers.l1_l2(0.01, 0.02), recurrent_regularizer=regularizers.l2(0.03),
        ),
        keras.lstm(
            3, return_sequences=True, name="second", kernel_constraint=constraints.max_norm(2),
            recurrent_constraint=constraints.non_neg(), bias_constraint=constraints.unit_norm(),
        ),
        keras.gru(
            6, name="third", bias_initializer="random_normal", bias_regularizer=regularizers.l1(0.01),
            activity_regularizer=regularizers.l2(0.01),
        ),
    ], name="stack")
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]])


def bidirectional(keras):
    """Bidirectional(CuDNNLSTM) with all steps, Bidirectional(CuDNNGRU) with the last one, Dense."""
    model = keras.Sequential([
        keras.layers.Bidirectional(keras.lstm(5, return_sequences=True), input_shape=(None, 4)),
        keras.layers.Bidirectional(keras.gru(3)),
        keras.layers.Dense(2),
    ])
    return Case(model, [[(3, 7, 4)], [(2, 12, 4)]])


def siamese(keras):
    """Two inputs, two outputs; one CuDNNLSTM is called on both inputs."""
    left, right = keras.Input((None, 4), name="left"), keras.Input((None, 4), name="right")
    encoder = keras.lstm(5, name="encoder")
    first, second = encoder(left), encoder(right)
    similarity = keras.layers.Dot(axes=-1, name="similarity")([first, second])
    both = keras.layers.concatenate([first, second])
    label = keras.layers.Dense(3, activation="softmax", name="label")(both)
    model = keras.Model([left, right], [similarity, label])
    return Case(model, [[(3, 7, 4), (3, 4, 4)], [(2, 3, 4), (2, 12, 4)]])


def encoder_decoder(keras):
    """Final states of one CuDNNLSTM start the next (initial_state), whose states are outputs; then two
    CuDNNGRU."""
    source, target = keras.Input((None, 4), name="source"), keras.Input((None, 3), name="target")
    _, h, c = keras.lstm(5, return_state=True, name="encode")(source)
    decoded, h, c = keras.lstm(5, return_sequences=True, return_state=True, name="decode")(
        target, initial_state=[h, c]
    )
    _, state = keras.gru(6, return_state=True, name="encode_again")(source)
    again = keras.gru(6, return_sequences=True, name="decode_again")(decoded, initial_state=state)
    logits = keras.layers.Dense(2, name="logits")(again)
    model = keras.Model([source, target], [logits, h, c])
    return Case(model, [[(3, 7, 4), (3, 4, 3)], [(2, 3, 4), (2, 12, 3)]])


CASES = (sequential_lstm, stacked, bidirectional, siamese, encoder_decoder)
