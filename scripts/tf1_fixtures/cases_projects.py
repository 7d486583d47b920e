"""Models as projects of ten kinds write them: inputs, towers, losses, metrics and what they feed."""
import numpy as np
import tensorflow as tf

from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case
from tf1_fixtures.weights import seeded


def integers(name, high, shape):
    return seeded(name).randint(1, high, size=shape).astype(np.int32)


def train(rnn, loss):
    """Adam with clipped gradients behind the updates of batch statistics, averages of weights, a summary."""
    if not rnn.trains:
        return
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(1e-3, step, 1000, 0.9, staircase=True)
    tf.summary.scalar("rate", rate)
    tf.summary.scalar("loss", loss)
    optimizer = tf.train.AdamOptimizer(rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    tf.summary.scalar("norm", norm)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        tf.group(optimizer.apply_gradients(zip(clipped, variables), global_step=step), name="train_op")
    tf.summary.merge_all()


def project_speech(rnn):
    """Speech with CTC: spectrogram and lengths, two strided convolutions with batch normalisation behind a flag,
    two bidirectional GRU layers, logits, greedy decoding, the error rate of labels."""
    x = tf.placeholder(tf.float32, [None, None, 12], name="spectrogram")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    training = tf.placeholder_with_default(False, [], name="is_training")
    with tf.variable_scope("conv"):
        hidden = tf.expand_dims(x, -1)
        for number, (filters, strides) in enumerate([(4, (2, 2)), (5, (1, 2))]):
            hidden = tf.layers.conv2d(hidden, filters, (5, 3), strides, padding="same", use_bias=False, name="conv%d" % number)
            hidden = tf.layers.batch_normalization(hidden, training=training, momentum=0.9, name="norm%d" % number)
            hidden = tf.minimum(tf.nn.relu(hidden), 20.0)
    shape = tf.shape(hidden)
    hidden = tf.reshape(hidden, [shape[0], shape[1], 3 * 5])
    outputs, _ = rnn.layer("gru", 2, 6, directions=2, name="encoder")(swap_batch(hidden))
    logits = tf.layers.dense(outputs, 9, name="logits")
    steps = (lengths + 1) // 2
    decoded, scores = tf.nn.ctc_greedy_decoder(logits, steps)
    text = tf.sparse_tensor_to_dense(decoded[0], default_value=-1, name="text")
    tf.identity(scores, name="scores")
    if rnn.trains:
        labels = tf.sparse_placeholder(tf.int32, name="labels")
        loss = tf.reduce_mean(tf.nn.ctc_loss(labels, logits, steps, ignore_longer_outputs_than_inputs=True))
        rate = tf.reduce_mean(tf.edit_distance(tf.cast(decoded[0], tf.int32), labels), name="label_error_rate")
        tf.summary.scalar("label_error_rate", rate)
        train(rnn, loss)
    return Case(
        [text.name, "scores:0"],
        [{"spectrogram:0": (3, 14, 12), "lengths:0": [14, 9, 11]}, {"spectrogram:0": (2, 7, 12), "lengths:0": [4, 7]}],
    )


def project_music(rnn):
    """A variational autoencoder of melodies: a bidirectional LSTM, mean and deviation of a latent vector, a draw of
    it, a decoder of plain cells that is taught by the melody, the evidence bound."""
    notes = tf.placeholder(tf.int32, [None, 8], name="melody")
    table = tf.get_variable("notes", [11, 6])
    with tf.variable_scope("encoder"):
        _, (h, _) = rnn.layer("lstm", 1, 7, directions=2)(swap_batch(tf.nn.embedding_lookup(table, notes)))
        last = tf.concat(tf.unstack(h, 2), -1)
    mean = tf.layers.dense(last, 4, name="mean")
    deviation = tf.layers.dense(last, 4, tf.nn.softplus, name="deviation")
    latent = mean + deviation * tf.random_normal(tf.shape(mean), seed=3)
    with tf.variable_scope("decoder"):
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(5, name="cell_%d" % k) for k in range(2)])
        first = tf.layers.dense(latent, 20, tf.nn.tanh, name="start")
        parts = tf.split(first, 4, -1)
        start = tuple(tf.nn.rnn_cell.LSTMStateTuple(*parts[k:k + 2]) for k in (0, 2))
        taught = tf.pad(tf.nn.embedding_lookup(table, notes), [[0, 0], [1, 0], [0, 0]])[:, :-1]
        outputs, _ = tf.nn.dynamic_rnn(cell, taught, initial_state=start)
        logits = tf.layers.dense(outputs, 11, name="logits")
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=notes, logits=logits)
    prior = tf.distributions.Normal(tf.zeros([4]), tf.ones([4]))
    gap = tf.reduce_sum(tf.distributions.kl_divergence(tf.distributions.Normal(mean, deviation), prior), -1)
    train(rnn, tf.reduce_mean(tf.reduce_sum(nats, -1) + 0.2 * gap, name="bound"))
    outputs = ["mean/BiasAdd:0", "deviation/Softplus:0"]
    return Case(
        outputs,
        [{"melody:0": integers("melody", 11, (3, 8))}, {"melody:0": integers("more", 11, (5, 8))}],
        flags=["--outputs", ",".join(outputs)],
    )


def project_handwriting(rnn):
    """Handwriting by a mixture of bivariate normals: strokes in, states in and out, parameters of the mixture."""
    strokes = tf.placeholder(tf.float32, [None, None, 3], name="strokes")
    state = tf.placeholder(tf.float32, [2, None, 9], name="state_in_h"), tf.placeholder(tf.float32, [2, None, 9], name="state_in_c")
    outputs, final = rnn.layer("lstm", 2, 9)(swap_batch(strokes), initial_state=state)
    tf.identity(final[0], name="state_out_h")
    tf.identity(final[1], name="state_out_c")
    flat = tf.reshape(outputs, [-1, 9])
    raw = tf.nn.xw_plus_b(flat, tf.get_variable("output_w", [9, 1 + 4 * 6]), tf.get_variable("output_b", [25]))
    pen, rest = raw[:, :1], raw[:, 1:]
    weights, x, y, wide, high, tied = tf.split(rest, 6, 1)
    named = [
        tf.nn.softmax(weights, name="weights"), tf.identity(x, "x"), tf.identity(y, "y"), tf.exp(wide, name="wide"),
        tf.exp(high, name="high"), tf.tanh(tied, name="correlation"), tf.sigmoid(pen, name="end_of_stroke"),
    ]
    if rnn.trains:
        targets = tf.reshape(swap_batch(tf.placeholder(tf.float32, [None, None, 3], name="targets")), [-1, 3])
        over = [(targets[:, k:k + 1] - center) / spread for k, center, spread in ((0, x, named[3]), (1, y, named[4]))]
        z = tf.square(over[0]) + tf.square(over[1]) - 2 * named[5] * over[0] * over[1]
        free = 1 - tf.square(named[5])
        density = tf.exp(-z / (2 * free)) / (2 * np.pi * named[3] * named[4] * tf.sqrt(free))
        loss = -tf.log(tf.maximum(tf.reduce_sum(named[0] * density, 1, keepdims=True), 1e-20))
        ended = tf.where(targets[:, 2:] > 0.5, tf.log(named[6] + 1e-8), tf.log(1 - named[6] + 1e-8))
        train(rnn, tf.reduce_mean(loss - ended))
    fed = lambda batch, steps: {"strokes:0": (batch, steps, 3), "state_in_h:0": (2, batch, 9), "state_in_c:0": (2, batch, 9)}
    outputs = ["state_out_h:0", "state_out_c:0"] + [each.name for each in named]
    return Case(outputs, [fed(3, 6), fed(1, 1)], flags=["--outputs", ",".join(outputs)])


def project_pointer(rnn):
    """Question answering with a pointer network: words and characters, dropout behind a keep probability, attention
    of context over question, pointers to a span whose end is at most some words behind its start."""
    context = tf.placeholder(tf.int32, [None, None], name="context")
    question = tf.placeholder(tf.int32, [None, None], name="question")
    letters = tf.placeholder(tf.int32, [None, None, 5], name="context_letters")
    keep = tf.placeholder_with_default(1.0, [], name="keep_prob")
    words, characters = tf.get_variable("words", [15, 6]), tf.get_variable("characters", [9, 4])
    seen = tf.cast(tf.cast(context, tf.bool), tf.float32)
    asked = tf.cast(tf.cast(question, tf.bool), tf.float32)
    shape = tf.shape(context)
    spelled = tf.reshape(tf.nn.embedding_lookup(characters, letters), [-1, 5, 4])
    spelled = tf.reduce_max(tf.nn.relu(tf.layers.conv1d(spelled, 7, 3, name="spell")), 1)
    spelled = tf.reshape(spelled, [shape[0], shape[1], 7])
    read = tf.concat([tf.nn.embedding_lookup(words, context), spelled], -1)
    drop = lambda value: tf.nn.dropout(value, keep)
    with tf.variable_scope("context"):
        c, _ = rnn.layer("gru", 1, 5, directions=2)(swap_batch(drop(read)))
    with tf.variable_scope("question"):
        q, _ = rnn.layer("gru", 1, 5, directions=2)(swap_batch(drop(tf.nn.embedding_lookup(words, question))))
    c, q = swap_batch(c), swap_batch(q)
    c, q = tf.reshape(c, [shape[0], -1, 10]), tf.reshape(q, [shape[0], -1, 10])
    similar = tf.matmul(tf.layers.dense(drop(c), 8, tf.nn.relu, name="key"), tf.layers.dense(drop(q), 8, tf.nn.relu, name="query"), transpose_b=True)
    masked = similar / 8 ** 0.5 - 1e30 * (1 - tf.expand_dims(asked, 1))
    match = tf.concat([c, tf.matmul(tf.nn.softmax(masked), q)], -1)
    match = match * tf.layers.dense(match, 20, tf.nn.sigmoid, use_bias=False, name="gate")
    with tf.variable_scope("match"):
        m, _ = rnn.layer("gru", 1, 4)(swap_batch(match))
    m = tf.reshape(swap_batch(m), [shape[0], -1, 4])
    logits = [tf.squeeze(tf.layers.dense(m, 1, name=name), -1) - 1e30 * (1 - seen) for name in ("start", "end")]
    chances = [tf.nn.softmax(each) for each in logits]
    spans = tf.matrix_band_part(tf.expand_dims(chances[0], 2) * tf.expand_dims(chances[1], 1), 0, 4)
    tf.argmax(tf.reduce_max(spans, 2), 1, name="from")
    tf.argmax(tf.reduce_max(spans, 1), 1, name="to")
    if rnn.trains:
        labels = [tf.placeholder(tf.int32, [None], name=name) for name in ("first", "last")]
        losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels=a, logits=b) for a, b in zip(labels, logits)]
        train(rnn, tf.reduce_mean(sum(losses)))
        tf.train.ExponentialMovingAverage(0.999).apply(tf.trainable_variables())
    def fed(batch, steps, many):
        c, q = integers("c%d" % batch, 15, (batch, steps)), integers("q%d" % batch, 15, (batch, many))
        c[0, -2:], q[0, -1:] = 0, 0
        return {"context:0": c, "question:0": q, "context_letters:0": integers("l%d" % batch, 9, (batch, steps, 5))}
    return Case(["from:0", "to:0"], [fed(3, 8, 4), fed(2, 5, 6)])


def project_forecast(rnn):
    """Forecasts with a loop of decoding: an encoder, a GRUBlockCell that reads its own forecast and known features,
    a loop with TensorArrays, scaled back by each series' own mean and deviation."""
    past = tf.placeholder(tf.float32, [None, 12], name="past")
    features = tf.placeholder(tf.float32, [None, 12, 3], name="features")
    coming = tf.placeholder(tf.float32, [None, 5, 3], name="coming")
    mean, variance = tf.nn.moments(past, 1, keep_dims=True)
    deviation = tf.sqrt(tf.maximum(variance, 1e-6))
    x = tf.concat([tf.expand_dims((past - mean) / deviation, -1), features], -1)
    encoded, (h,) = rnn.layer("gru", 1, 6, name="encoder")(swap_batch(x))
    with tf.variable_scope("decoder"):
        cell = tf.contrib.rnn.GRUBlockCell(6)
        head = tf.layers.Dense(1, name="forecast")
        known = tf.TensorArray(tf.float32, 5).unstack(swap_batch(coming))

        def step(time, previous, state, forecasts):
            output, state = cell(tf.concat([previous, known.read(time)], 1), state)
            previous = head(output)
            return time + 1, previous, state, forecasts.write(time, tf.squeeze(previous, -1))

        loop = [tf.constant(0), x[:, -1, :1], tf.squeeze(h, 0), tf.TensorArray(tf.float32, 5)]
        _, _, _, forecasts = tf.while_loop(lambda time, *_: time < 5, step, loop)
        scaled = tf.transpose(forecasts.stack())
    forecast = tf.add(scaled * deviation, mean, name="forecast")
    if rnn.trains:
        truth = tf.placeholder(tf.float32, [None, 5], name="truth")
        epsilon = 0.1
        total = tf.maximum(tf.abs(truth) + tf.abs(forecast) + epsilon, 0.5 + epsilon)
        train(rnn, tf.reduce_mean(2 * tf.abs(forecast - truth) / total, name="smape"))
    fed = lambda batch: {"past:0": (batch, 12), "features:0": (batch, 12, 3), "coming:0": (batch, 5, 3)}
    return Case(["forecast:0"], [fed(3), fed(4)], flags=["--outputs", "forecast:0"])


def project_characters(rnn):
    """A tagger with a CRF: characters of each word through a recurrence of their own, words through another, lengths,
    scores and the transitions from which a program decodes."""
    words = tf.placeholder(tf.int32, [None, None], name="words")
    spelling = tf.placeholder(tf.int32, [None, None, None], name="spelling")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    rate = tf.placeholder_with_default(0.0, [], name="dropout_rate")
    shape = tf.shape(spelling)
    letters = tf.nn.embedding_lookup(tf.get_variable("letters", [10, 4]), spelling)
    letters = tf.reshape(letters, [shape[0] * shape[1], shape[2], 4])
    with tf.variable_scope("characters"):
        _, (h, _) = rnn.layer("lstm", 1, 3, directions=2)(swap_batch(letters))
    spelled = tf.reshape(tf.concat(tf.unstack(h, 2), -1), [shape[0], shape[1], 6])
    read = tf.concat([tf.nn.embedding_lookup(tf.get_variable("table", [12, 5]), words), spelled], -1)
    read = tf.layers.dropout(read, rate=rate, training=tf.greater(rate, 0.0))
    with tf.variable_scope("words"):
        outputs, _ = rnn.layer("lstm", 1, 6, directions=2)(swap_batch(read))
    scores = tf.layers.dense(swap_batch(outputs), 5, name="scores")
    transitions = tf.get_variable("transitions", [5, 5])
    if rnn.trains:
        tags = tf.placeholder(tf.int32, [None, None], name="tags")
        likely, _ = tf.contrib.crf.crf_log_likelihood(scores, tags, lengths, transitions)
        train(rnn, tf.reduce_mean(-likely))
    decoded, best = tf.contrib.crf.crf_decode(scores, transitions, lengths)
    tf.identity(decoded, name="decoded")
    tf.identity(best, name="best_score")
    def fed(batch, steps, width):
        return {
            "words:0": integers("w%d" % batch, 12, (batch, steps)),
            "spelling:0": integers("s%d" % batch, 10, (batch, steps, width)),
            "lengths:0": seeded("n%d" % batch).randint(1, steps + 1, batch).astype(np.int32),
        }
    return Case(["decoded:0", "best_score:0"], [fed(3, 6, 4), fed(2, 4, 7)])


def project_translation(rnn):
    """Translation with attention: a bidirectional encoder, two decoders that share cells of LSTMBlockCell, one taught
    by the target, one greedy, a loss over valid words."""
    source = tf.placeholder(tf.int32, [None, None], name="source")
    lengths = tf.placeholder(tf.int32, [None], name="source_lengths")
    batch = tf.shape(source)[0]
    tables = [tf.get_variable(name, [10, 5]) for name in ("source_table", "target_table")]
    outputs, (h, c) = rnn.layer("lstm", 1, 4, directions=2, name="encoder")(
        swap_batch(tf.nn.embedding_lookup(tables[0], source))
    )
    memory = tf.reshape(swap_batch(outputs), [batch, -1, 8])
    state = tf.nn.rnn_cell.LSTMStateTuple(*[tf.reshape(tf.transpose(each, [1, 0, 2]), [batch, 8]) for each in (c, h)])
    with tf.variable_scope("decoder"):
        attention = tf.contrib.seq2seq.LuongAttention(8, memory, memory_sequence_length=lengths, scale=True)
        cell = tf.contrib.seq2seq.AttentionWrapper(
            tf.contrib.rnn.LSTMBlockCell(8, name="cell"), attention, attention_layer_size=6
        )
        start = cell.zero_state(batch, tf.float32).clone(cell_state=state)
        output = tf.layers.Dense(10, name="words", use_bias=False)
        helpers = {"greedy": tf.contrib.seq2seq.GreedyEmbeddingHelper(tables[1], tf.fill([batch], 1), 2)}
        if rnn.trains:
            target = tf.placeholder(tf.int32, [None, None], name="target")
            many = tf.placeholder(tf.int32, [None], name="target_lengths")
            taught = tf.nn.embedding_lookup(tables[1], target)
            helpers["taught"] = tf.contrib.seq2seq.TrainingHelper(taught, many)
        found = {}
        for name, helper in sorted(helpers.items(), reverse=True):
            decoder = tf.contrib.seq2seq.BasicDecoder(cell, helper, start, output)
            with tf.variable_scope("loop", reuse=tf.AUTO_REUSE):
                found[name], _, _ = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    tf.identity(found["greedy"].rnn_output, name="scores")
    tf.identity(found["greedy"].sample_id, name="translation")
    if rnn.trains:
        logits = found["taught"].rnn_output
        weights = tf.sequence_mask(many, tf.shape(logits)[1], tf.float32)
        train(rnn, tf.contrib.seq2seq.sequence_loss(logits, target[:, :tf.shape(logits)[1]], weights))
    return Case(
        ["scores:0", "translation:0"],
        [
            {"source:0": integers("s", 10, (3, 7)), "source_lengths:0": [7, 4, 5]},
            {"source:0": integers("t", 10, (2, 4)), "source_lengths:0": [2, 4]},
        ],
        flags=["--outputs", "scores:0,translation:0"],
    )


def project_agent(rnn):
    """Reinforcement learning: an online and a target network that copies it, states that go in and out, advantages
    beside a value, the greedy action, the loss of chosen actions."""
    seen = tf.placeholder(tf.float32, [None, None, 7], name="observations")
    state = [tf.placeholder(tf.float32, [None, 6], name=name) for name in ("state_h", "state_c")]

    def network(scope):
        with tf.variable_scope(scope):
            hidden = tf.layers.dense(seen, 8, tf.nn.elu, name="observe")
            outputs, final = rnn.layer("lstm", 1, 6)(
                swap_batch(hidden), initial_state=tuple(tf.expand_dims(each, 0) for each in state)
            )
            outputs = swap_batch(outputs)
            advantage, value = tf.layers.dense(outputs, 4, name="advantage"), tf.layers.dense(outputs, 1, name="value")
            return value + advantage - tf.reduce_mean(advantage, -1, keepdims=True), final

    values, final = network("online")
    tf.identity(values, name="q_values")
    tf.argmax(values, -1, name="actions", output_type=tf.int32)
    for name, each in zip(("next_h", "next_c"), final):
        tf.squeeze(each, 0, name=name)
    later, _ = network("target")
    if rnn.trains:
        both = [tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope) for scope in ("online", "target")]
        tf.group(*[tf.assign(b, a, validate_shape=False) for a, b in zip(*both)], name="copy_to_target")
        chosen = tf.placeholder(tf.int32, [None, None], name="chosen")
        reward = tf.placeholder(tf.float32, [None, None], name="reward")
        goal = tf.stop_gradient(reward + 0.9 * tf.reduce_max(later, -1))
        train(rnn, tf.losses.huber_loss(goal, tf.reduce_sum(values * tf.one_hot(chosen, 4), -1)))
    fed = lambda batch, steps: {"observations:0": (batch, steps, 7), "state_h:0": (batch, 6), "state_c:0": (batch, 6)}
    return Case(["q_values:0", "actions:0", "next_h:0", "next_c:0"], [fed(3, 5), fed(2, 1)])


def project_reader(rnn):
    """Optical character recognition: convolutions, pools and batch normalisation, columns as steps, two bidirectional
    layers, a beam search of CTC."""
    image = tf.placeholder(tf.float32, [None, 8, None, 1], name="image")
    training = tf.placeholder(tf.bool, [], name="training")
    hidden = image
    for number, filters in enumerate((4, 6)):
        hidden = tf.layers.conv2d(hidden, filters, 3, padding="same", name="conv%d" % number)
        hidden = tf.nn.relu(tf.layers.batch_normalization(hidden, training=training, name="norm%d" % number))
        hidden = tf.layers.max_pooling2d(hidden, (2, 2), (2, 2 - number), padding="same")
    hidden = tf.transpose(hidden, [2, 0, 1, 3])
    shape = tf.shape(hidden)
    hidden = tf.reshape(hidden, [shape[0], shape[1], 2 * 6])
    outputs, _ = rnn.layer("lstm", 2, 5, directions=2)(hidden)
    logits = tf.layers.dense(outputs, 7, name="logits")
    lengths = tf.fill([shape[1]], shape[0])
    paths, chances = tf.nn.ctc_beam_search_decoder(logits, lengths, beam_width=4, merge_repeated=False)
    tf.sparse_tensor_to_dense(paths[0], default_value=-1, name="letters")
    tf.identity(chances, name="chances")
    if rnn.trains:
        labels = tf.sparse_placeholder(tf.int32, name="labels")
        train(rnn, tf.reduce_mean(tf.nn.ctc_loss(labels, logits, lengths)))
    return Case(
        ["letters:0", "chances:0"], [{"image:0": (3, 8, 14, 1)}, {"image:0": (2, 8, 9, 1)}],
        flags=["--set", "training:0=false"], bound={"training:0": False},
    )


def project_tasks(rnn):
    """Several tasks over one encoder: a class of the whole, a label for each step, a number, with weights of losses
    that are trained, and accuracies that are counted."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    training = tf.placeholder_with_default(False, [], name="training")
    mask = tf.cast(tf.not_equal(ids, 0), tf.float32)
    read = tf.nn.embedding_lookup(tf.get_variable("table", [14, 6]), ids)
    read = tf.layers.dropout(read, 0.3, noise_shape=[tf.shape(ids)[0], 1, 6], training=training)
    outputs, _ = rnn.layer("gru", 1, 5, directions=2)(swap_batch(read))
    outputs = swap_batch(outputs)
    pooled = tf.reduce_sum(outputs * tf.expand_dims(mask, -1), 1) / tf.reduce_sum(mask, 1, keepdims=True)
    pooled = tf.contrib.layers.layer_norm(pooled)
    topic = tf.layers.dense(tf.layers.dropout(pooled, 0.5, training=training), 3, name="topic")
    labels = tf.layers.dense(outputs, 4, name="labels")
    score = tf.squeeze(tf.layers.dense(tf.concat([pooled, tf.reduce_max(outputs, 1)], -1), 1, name="score"), -1)
    named = [tf.nn.softmax(topic, name="topics"), tf.nn.softmax(labels, name="tags"), tf.nn.sigmoid(score, name="grade")]
    if rnn.trains:
        truth = [tf.placeholder(kind, shape, name=name) for kind, shape, name in (
            (tf.int32, [None], "topic_id"), (tf.int32, [None, None], "tag_ids"), (tf.float32, [None], "grade_value"))]
        losses = [
            tf.losses.sparse_softmax_cross_entropy(truth[0], topic),
            tf.losses.sparse_softmax_cross_entropy(truth[1], labels, weights=mask),
            tf.losses.mean_squared_error(truth[2], named[2]),
        ]
        tf.metrics.accuracy(truth[0], tf.argmax(topic, -1), name="topic_accuracy")
        tf.metrics.mean_per_class_accuracy(truth[1], tf.argmax(labels, -1), 4, weights=mask, name="tag_accuracy")
        spread = tf.get_variable("loss_spread", [3])
        total = tf.add_n([tf.exp(-spread[k]) * loss + spread[k] for k, loss in enumerate(losses)])
        train(rnn, total + tf.losses.get_regularization_loss())
    def fed(batch, steps):
        found = integers("i%d" % batch, 14, (batch, steps))
        found[0, -2:] = 0
        return {"ids:0": found}
    outputs = ["grade:0", "topics:0", "tags:0"]
    return Case(outputs, [fed(3, 7), fed(2, 4)], flags=["--outputs", ",".join(outputs)])


CASES_1_15 = (
    project_speech, project_music, project_handwriting, project_pointer, project_forecast, project_characters,
    project_translation, project_agent, project_reader, project_tasks,
)
