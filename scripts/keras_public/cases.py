"""The models, each a function of a `Library`; a version without some layer or argument has no such case.

A case returns the model, and what it is fed: a kind and a shape for each input, with the batch in front.
"""

from collections import OrderedDict, namedtuple

CASES = OrderedDict()
#: file: model.h5 and model.keras are whole models; another name is of weights, and `architecture` lies beside.
#: answers: the layer whose output is recorded in the place of the model's, behind which a loss stands.
Case = namedtuple("Case", "model feeds file architecture answers")
Case.__new__.__defaults__ = ("", None, None)

WORDS, STEPS = 9, 7
#: The backend, a global of the functions in Lambdas as in the scripts that these models come from.
K = None


CTC = """
def ctc_lambda_func(given):
    predicted, labels, lengths, counts = given
    return K.ctc_batch_cost(labels, predicted[:, 2:, :], lengths, counts)
"""
DISTANCE = """
def manhattan(ends):
    return K.exp(-K.sum(K.abs(ends[0] - ends[1]), axis=1, keepdims=True))
"""


def compiled(source):
    """A function of its text, as a script of the time had it; its code names no file of ours."""
    names = {}
    exec(compile(source, "model.py", "exec"), globals(), names)
    return next(iter(names.values()))


def case(build):
    CASES[build.__name__] = build
    return build


@case
def char_rnn(k):
    """Two layers over one-hot characters: keras/examples lstm_text_generation.py and its many copies."""
    l = k.layers
    model = k.sequential(
        l.LSTM(12, return_sequences=True, input_shape=(STEPS, 5)),
        l.Dropout(0.2),
        l.LSTM(10),
        l.Dropout(0.2),
        l.Dense(5),
        l.Activation("softmax"),
    )
    return Case(model, [("numbers", (3, STEPS, 5))])


@case
def imdb_bidirectional(k):
    """keras/examples imdb_bidirectional_lstm.py."""
    l = k.layers
    model = k.sequential(
        k.embedding(6), l.Bidirectional(l.LSTM(5)), l.Dropout(0.5), l.Dense(1, activation="sigmoid")
    )
    return Case(model, [("words", (3, STEPS))])


@case
def imdb_masked(k):
    """Masked words and dropout in the layer: imdb_lstm.py."""
    l = k.layers
    rates = k.renamed(dropout=0.2, recurrent_dropout=0.2)
    model = k.sequential(k.embedding(6, mask_zero=True), l.LSTM(8, **rates), l.Dense(1, activation="sigmoid"))
    return Case(model, [("words", (3, STEPS))])


@case
def ner_tagger(k):
    """A tagger of masked words."""
    l = k.layers
    model = k.sequential(
        k.embedding(6, mask_zero=True),
        l.Bidirectional(l.LSTM(5, return_sequences=True)),
        l.TimeDistributed(l.Dense(4, activation="softmax")),
    )
    return Case(model, [("words", (3, STEPS))])


@case
def gru_sentiment(k):
    l = k.layers
    model = k.sequential(k.embedding(6), l.SpatialDropout1D(0.2), l.GRU(7), l.Dense(3, activation="softmax"))
    return Case(model, [("words", (3, STEPS))])


@case
def cnn_lstm(k):
    """imdb_cnn_lstm.py."""
    l = k.layers
    model = k.sequential(
        k.embedding(6),
        k.convolution_1d(5, 3, activation="relu"),
        l.MaxPooling1D(2),
        l.LSTM(6),
        l.Dense(1),
        l.Activation("sigmoid"),
    )
    return Case(model, [("words", (3, STEPS))])


@case
def stock_prices(k):
    """Windows of prices through a stack of GRUs."""
    l = k.layers
    model = k.sequential(
        l.GRU(8, return_sequences=True, input_shape=(STEPS, 1)),
        l.Dropout(0.2),
        l.GRU(6, activation="relu"),
        l.Dense(1, activation="linear"),
    )
    return Case(model, [("numbers", (3, STEPS, 1))])


@case
def autoencoder(k):
    l = k.layers
    model = k.sequential(
        l.LSTM(6, input_shape=(STEPS, 3)),
        l.RepeatVector(STEPS),
        l.LSTM(5, return_sequences=True),
        l.TimeDistributed(l.Dense(3)),
    )
    return Case(model, [("numbers", (3, STEPS, 3))])


@case
def video(k):
    """Frames through a convolution at each step, then a recurrence."""
    l = k.layers
    model = k.sequential(
        l.TimeDistributed(k.convolution_2d(3, 3, activation="relu"), input_shape=(4, 6, 6, 2)),
        l.TimeDistributed(l.MaxPooling2D((2, 2))),
        l.TimeDistributed(l.Flatten()),
        l.LSTM(5),
        l.BatchNormalization(),
        l.Dense(3, activation="softmax"),
    )
    return Case(model, [("numbers", (2, 4, 6, 6, 2))])


@case
def babi(k):
    """A story and a question, merged: babi_rnn.py."""
    l = k.layers
    story, question = k.input((STEPS,), "story"), k.input((4,), "question")
    encoded = l.LSTM(6)(l.Dropout(0.3)(l.Embedding(WORDS, 5)(story)))
    asked = l.LSTM(6)(l.Dropout(0.3)(l.Embedding(WORDS, 5)(question)))
    merged = k.concatenate([encoded, asked])
    answer = l.Dense(WORDS, activation="softmax")(merged)
    return Case(k.model([story, question], answer), [("words", (3, STEPS)), ("words", (3, 4))])


@case
def seq2seq(k):
    """lstm_seq2seq.py: the encoder's states begin the decoder."""
    l = k.layers
    source, target = k.input((None, 4), "source"), k.input((None, 3), "target")
    _, h, c = l.LSTM(6, return_state=True)(source)
    decoded, _, _ = l.LSTM(6, return_sequences=True, return_state=True)(target, initial_state=[h, c])
    model = k.model([source, target], l.Dense(3, activation="softmax")(decoded))
    return Case(model, [("numbers", (2, STEPS, 4)), ("numbers", (2, 5, 3))])


@case
def stateful(k):
    l = k.layers
    model = k.sequential(
        l.LSTM(5, **k.batch(2, STEPS, 3), return_sequences=True, stateful=True),
        l.LSTM(4, stateful=True),
        l.Dense(1),
    )
    return Case(model, [("numbers", (2, STEPS, 3))])


@case
def time_major(k):
    """Steps before rows, which Keras 3 has no argument for."""
    l = k.layers
    steps = k.input((2, 4), "steps")
    model = k.model(steps, l.LSTM(5, time_major=True, return_sequences=True)(steps))
    return Case(model, [("numbers", (6, 2, 4))])


@case
def highway(k):
    """Layers that Keras 1 had last."""
    l = k.layers
    model = k.sequential(
        l.LSTM(6, input_shape=(STEPS, 3)), l.Highway(activation="relu"), l.MaxoutDense(4, nb_feature=3)
    )
    return Case(model, [("numbers", (3, STEPS, 3))])


@case
def merged_models(k):
    """A Sequential over two others, by the Merge of Keras 1."""
    l = k.layers
    left = k.sequential(l.LSTM(5, input_shape=(STEPS, 3)))
    right = k.sequential(l.GRU(5, input_shape=(STEPS, 3)))
    model = k.sequential(l.Merge([left, right], mode="concat"), l.Dense(3, activation="softmax"))
    return Case(model, [("numbers", (3, STEPS, 3)), ("numbers", (3, STEPS, 3))])


@case
def ocr(k):
    """image_ocr.py: the loss is a Lambda behind the softmax, and the model's only output."""
    l = k.layers
    image, labels = k.input((8, 6, 1), "the_input"), k.input((4,), "the_labels")
    lengths, counts = k.input((1,), "input_length"), k.input((1,), "label_length")
    inner = k.convolution_2d(3, 3, activation="relu")(image)
    inner = l.MaxPooling2D((2, 2), name="max1")(inner)
    inner = l.Reshape((3, 6), name="reshape")(inner)
    inner = l.Bidirectional(l.GRU(5, return_sequences=True), name="gru1_both")(inner)
    inner = l.Dense(4, name="dense2")(inner)
    y = l.Activation("softmax", name="softmax")(inner)
    loss = l.Lambda(compiled(CTC), output_shape=(1,), name="ctc")([y, labels, lengths, counts])
    fed = [("numbers", (2, 8, 6, 1)), ("words", (2, 4)), ("words", (2, 1)), ("words", (2, 1))]
    return Case(k.model([image, labels, lengths, counts], loss), fed, answers="softmax")


@case
def siamese(k):
    """Two sentences through one layer, their distance by a Lambda: Manhattan LSTM."""
    l = k.layers
    left, right = k.input((STEPS,), "left"), k.input((STEPS,), "right")
    embedding, shared = l.Embedding(WORDS, 5, name="embedding"), l.LSTM(6, name="shared")
    ends = [shared(embedding(left)), shared(embedding(right))]
    distance = l.Lambda(compiled(DISTANCE), output_shape=(1,), name="distance")(ends)
    return Case(k.model([left, right], distance), [("words", (3, STEPS))] * 2, answers="shared")


def attention_layer(k):
    """AttentionWithContext's shape: a learned weight for each step, from a dozen public kernels."""

    class AttentionWithContext(k.layers.Layer):
        def build(self, input_shape):
            self.W = k.add_weight(self, "W", (int(input_shape[-1]), int(input_shape[-1])))
            self.u = k.add_weight(self, "u", (int(input_shape[-1]), 1))
            super(AttentionWithContext, self).build(input_shape)

        def call(self, x, mask=None):
            scores = K.dot(K.tanh(K.dot(x, self.W)), self.u)
            weights = K.exp(scores) / K.sum(K.exp(scores), axis=1, keepdims=True)
            return K.sum(x * weights, axis=1)

        def compute_output_shape(self, input_shape):
            return (input_shape[0], input_shape[-1])

        get_output_shape_for = compute_output_shape

    return AttentionWithContext


@case
def attention(k):
    """Kaggle's attention in the middle: nothing behind it can be had without its code."""
    l = k.layers
    words = k.input((STEPS,), "words")
    encoded = l.Bidirectional(l.GRU(5, return_sequences=True), name="encoded")(k.embedding(6)(words))
    answer = l.Dense(1, activation="sigmoid")(attention_layer(k)(name="attention")(encoded))
    return Case(k.model(words, answer), [("words", (3, STEPS))], answers="encoded")


@case
def crf_tagger(k):
    """A tagger whose last layer is a CRF, with the weights of keras_contrib's."""

    class CRF(k.layers.Layer):
        def build(self, input_shape):
            size = int(input_shape[-1])
            self.kernel = k.add_weight(self, "kernel", (size, 4))
            self.chain_kernel = k.add_weight(self, "chain_kernel", (4, 4))
            super(CRF, self).build(input_shape)

        def call(self, x, mask=None):
            return K.dot(K.dot(x, self.kernel), self.chain_kernel)

        def compute_output_shape(self, input_shape):
            return (input_shape[0], input_shape[1], 4)

        get_output_shape_for = compute_output_shape

    l = k.layers
    words = k.input((STEPS,), "words")
    encoded = l.Bidirectional(l.LSTM(5, return_sequences=True, name="lstm"), name="encoded")(k.embedding(6)(words))
    return Case(k.model(words, CRF(name="crf")(encoded)), [("words", (3, STEPS))], answers="encoded")


@case
def word_and_tag_tagger(k):
    """Masked words beside their masked tags."""
    words, tags = k.input((STEPS,), "words"), k.input((STEPS,), "tags")
    merged = k.concatenate([k.embedding(5, mask_zero=True)(words), k.embedding(3, mask_zero=True)(tags)])
    answer = k.layers.Dense(4, activation="softmax")(k.layers.LSTM(6)(merged))
    return Case(k.model([words, tags], answer), [("words", (3, STEPS)), ("words", (3, STEPS))])


@case
def gated_words(k):
    """Masked words times a gate for each of their numbers."""
    words, gates = k.input((STEPS,), "words"), k.input((STEPS, 5), "gates")
    gated = k.layers.Multiply()([k.embedding(5, mask_zero=True)(words), gates])
    return Case(
        k.model([words, gates], k.layers.LSTM(4)(gated)), [("words", (3, STEPS)), ("numbers", (3, STEPS, 5))]
    )


@case
def attention_pooling(k):
    """A weight for each word that is not padding; the last row is padding alone."""
    l = k.layers
    words = k.input((STEPS,), "words")
    embedded = k.embedding(5)(words)
    scores = l.Flatten()(l.Dense(1)(embedded))
    weights = l.Softmax(name="weights")(scores, mask=K.not_equal(words, 0))
    return Case(k.model(words, l.Dot(axes=1)([weights, embedded])), [("words", (STEPS + 1, STEPS))])


@case
def given_mask(k):
    """A mask that the first of two recurrences is given; cuDNN would give zeros for what it masks."""
    l = k.layers
    steps, words = k.input((STEPS, 4), "steps"), k.input((STEPS,), "words")
    first = l.SimpleRNN(5, return_sequences=True, name="first")(steps, mask=K.not_equal(words, 0))
    return Case(k.model([steps, words], l.LSTM(3)(first)), [("numbers", (3, STEPS, 4)), ("words", (3, STEPS))])


@case
def weights_alone(k):
    """save_weights, the architecture as JSON beside it."""
    return char_rnn(k)._replace(file=k.weights_file, architecture="model.json")


@case
def weights_and_yaml(k):
    return ner_tagger(k)._replace(file=k.weights_file, architecture="model.yaml")


@case
def theano_images(k):
    """Images and kernels in Theano's order, channels first."""
    l = k.layers
    model = k.sequential(
        k.convolution_2d(3, 3, activation="relu", input_shape=(2, 6, 6), **k.channels_first()),
        l.MaxPooling2D((2, 2), **k.channels_first()),
        l.Reshape((3, 4)),
        l.LSTM(5),
        l.Dense(2),
    )
    return Case(model, [("numbers", (2, 2, 6, 6))])


# Layers and models that Keras 1 alone writes so.


def keras1(build):
    """A case of Keras 1 alone."""

    def made(k):
        if k.major != 1:
            raise ValueError("a model of Keras 1")
        return build(k)

    made.__name__ = build.__name__
    return case(made)


@keras1
def frozen_inner(k):
    """Frozen layers in models in a model, as transfer learning leaves them."""
    l = k.layers
    deep = k.sequential(l.Dense(8, input_dim=8), l.Dense(8, trainable=False), l.BatchNormalization())
    inner = k.sequential(l.Dense(8, input_dim=8, trainable=False, activation="tanh"), deep, l.Dense(8))
    given = k.input((8,), "given")
    return Case(k.model(given, l.Dense(3)(inner(given))), [("numbers", (3, 8))])


@keras1
def siamese_glove(k):
    """A frozen embedding and an LSTM as a model for both sentences."""
    l = k.layers
    inner = k.sequential(k.embedding(5, trainable=False), l.LSTM(6))
    left, right = k.input((STEPS,), "left"), k.input((STEPS,), "right")
    merged = k.concatenate([inner(left), inner(right)])
    return Case(k.model([left, right], l.Dense(2)(merged)), [("words", (3, STEPS))] * 2)


@keras1
def norms_inner(k):
    """Two normalisations of one width at each step of a model in a model."""
    l = k.layers
    first = l.TimeDistributed(l.BatchNormalization(), input_shape=(4, 5))
    inner = k.sequential(first, l.TimeDistributed(l.BatchNormalization()))
    given = k.input((4, 5), "given")
    return Case(k.model(given, l.Dense(3)(l.Flatten()(inner(given)))), [("numbers", (3, 4, 5))])


@keras1
def bidirectional_inner(k):
    l = k.layers
    steps, given = k.input((4, 3), "steps"), k.input((4, 3), "given")
    inner = k.model(steps, l.Dense(4)(l.Bidirectional(l.GRU(5, trainable=False))(steps)))
    return Case(k.model(given, l.Dense(2)(inner(given))), [("numbers", (3, 4, 3))])


@keras1
def highway_functional(k):
    """Layers that become models, one called twice, one the output."""
    l = k.layers
    left, right = k.input((4,), "left"), k.input((4,), "right")
    shared = l.Highway(activation="tanh")
    merged = k.concatenate([shared(left), shared(right)])
    return Case(k.model([left, right], l.MaxoutDense(3, nb_feature=2)(merged)), [("numbers", (3, 4))] * 2)


@keras1
def merged_highway(k):
    """A Merge of branches, of which one begins with its input, below a Highway."""
    l = k.layers
    left, right = k.sequential(l.InputLayer((4,)), l.Dense(3)), k.sequential(l.Dense(3, input_dim=5))
    model = k.sequential(l.Merge([left, right], mode="mul"), l.Highway(), l.Dense(2))
    return Case(model, [("numbers", (3, 4)), ("numbers", (3, 5))])


@keras1
def models_in_row(k):
    """Sequential models in a Sequential, which write no names."""
    l = k.layers
    first, second = k.sequential(l.Dense(4, input_dim=4)), k.sequential(l.Dense(4, input_dim=4), l.Dense(4))
    return Case(
        k.sequential(first, l.Dense(4), second, k.sequential(l.Dense(4, input_dim=4))), [("numbers", (3, 4))]
    )


@keras1
def deconvolution(k):
    """Transposed convolutions to sizes that Keras 2 would not infer."""
    l = k.layers
    sizes = {"dim_ordering": "tf", "subsample": (2, 2)}
    model = k.sequential(
        l.Deconvolution2D(3, 3, 3, (None, 13, 14, 3), border_mode="same", input_shape=(7, 7, 2), **sizes),
        l.Deconvolution2D(2, 3, 3, (None, 28, 29, 2), border_mode="valid", **sizes),
    )
    return Case(model, [("numbers", (2, 7, 7, 2))])


@keras1
def channels_unsaid(k):
    """Images with their channels first, of which some layers say nothing."""
    l = k.layers
    first = {"dim_ordering": "th"}
    model = k.sequential(
        l.ZeroPadding2D({"top_pad": 1, "right_pad": 2}, input_shape=(2, 6, 5), **first),
        l.Convolution2D(3, 3, 3, **first),
        l.Cropping2D(((1, 0), (0, 1)), **first),
        l.PReLU(shared_axes=[2, 3]),
        l.UpSampling2D((2, 3), **first),
    )
    return Case(model, [("numbers", (2, 2, 6, 5))])


@case
def unnamed_models(k):
    """Models in models, in another order than they were made; a Sequential of Keras 2.1.6 writes no name."""
    l = k.layers
    last = k.sequential(l.Dense(4, input_shape=(4,)))
    first = k.sequential(l.Dense(4, input_shape=(4,)), l.BatchNormalization())
    deep = k.sequential(k.sequential(l.LSTM(4, input_shape=(STEPS, 3)), l.BatchNormalization()), l.Dense(4))
    return Case(k.sequential(deep, first, last, l.Dense(2)), [("numbers", (3, STEPS, 3))])
