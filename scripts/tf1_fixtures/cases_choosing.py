"""What to convert where nobody says it: keys of a saver's own, inputs that no recurrence needs, heads that only
a loss reads.

The outputs of a case are those that its author reads. Where the flags have --outputs, the graph alone does not
say so: a converter has to ask.
"""
import os

import numpy as np
import tensorflow as tf

from tf1_fixtures import blob
from tf1_fixtures.describe import describe
from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case, build_cpu_graph, build_gpu_graph, load, reproducible_bytes, run_feeds
from tf1_fixtures.weights import canonical_only, random_value, seeded

FEEDS = [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}]
LENGTHS = ([7, 2, 5], [12, 3])


def recurrent(rnn, x, mode="lstm", units=5, directions=1, trained=False):
    """Time-major outputs and the final hidden states of each direction.

    A graph with gradients and a single tower calls its layers in training mode.
    """
    outputs, states = rnn.layer(mode, 1, units, directions)(swap_batch(x), training=trained)
    return outputs, states[0]


def minimize(loss):
    tf.summary.scalar("loss_summary", loss)
    tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_or_create_global_step(), name="train_op")


def averages_saver(rnn):
    """An evaluation graph whose saver restores each variable from its moving average, beside the checkpoint of
    the training run, which has both under their own keys.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, _ = recurrent(rnn, x, directions=2)
    tf.nn.softmax(tf.layers.dense(swap_batch(outputs), 3, name="head"), name="probs")
    if rnn.trains:
        average = tf.train.ExponentialMovingAverage(0.99)
        average.apply(tf.trainable_variables())
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(average.variables_to_restore()))
    return Case(["probs:0"], FEEDS)


def target_saver(rnn):
    """The two networks of deep Q-learning; the saver restores the target's variables from the keys of the online
    ones. The checkpoint has both, and here both answer as the online one.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    for scope in ("online", "target"):
        with tf.variable_scope(scope):
            outputs, _ = recurrent(rnn, x, "gru", 6)
            tf.layers.dense(swap_batch(outputs), 3, name="values")
    if rnn.trains:
        target = tf.global_variables("target/")
        renamed = {variable.op.name.replace("target/", "online/"): variable for variable in target}
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(renamed))
    return Case(["online/values/BiasAdd:0", "target/values/BiasAdd:0"], FEEDS)


def lengths_mask(rnn):
    """Lengths that no recurrence needs: they mask the outputs of the recurrence before they are averaged."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    outputs, state = recurrent(rnn, x, trained=True)
    mask = tf.expand_dims(tf.sequence_mask(lengths, tf.shape(x)[1], tf.float32), 2)
    mean = tf.reduce_sum(swap_batch(outputs) * mask, 1) / tf.reduce_sum(mask, 1)
    logits = tf.layers.dense(mean, 3, name="head")
    tf.nn.softmax(logits, name="probs")
    tf.identity(state[-1], name="state")
    if rnn.trains:
        labels = tf.placeholder(tf.int32, [None], name="labels")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        correct = tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32)
        tf.identity(correct, name="correct")
        minimize(tf.reduce_mean(losses, name="loss"))
    feeds = [dict(feed, **{"lengths:0": lengths}) for feed, lengths in zip(FEEDS, LENGTHS)]
    return Case(["probs:0", "state:0"], feeds)


def attention_memory(rnn):
    """Attention over the recurrence: a query and the lengths of its memory are inputs that it does not need."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    query = tf.placeholder(tf.float32, [None, 3], name="query")
    outputs, _ = recurrent(rnn, x)
    attention = tf.contrib.seq2seq.LuongAttention(5, swap_batch(outputs), lengths, scale=True)
    weights, _ = attention(tf.layers.dense(query, 5, name="query_layer"), ())
    context = tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), attention.values), 1)
    logits = tf.layers.dense(context, 3, name="head")
    tf.identity(logits, name="logits")
    feeds = [
        dict(feed, **{"lengths:0": lengths, "query:0": (len(lengths), 3)}) for feed, lengths in zip(FEEDS, LENGTHS)
    ]
    return Case(["logits:0"], feeds)


def features_loss(rnn):
    """Static features joined behind the recurrence. Only the loss reads the scores of the whole; the final state
    is read by nothing.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    features = tf.placeholder(tf.float32, [None, 2], name="features")
    _, state = recurrent(rnn, x, "gru", 6, trained=True)
    tf.identity(state[-1], name="state")
    joined = tf.concat([state[-1], tf.layers.dense(features, 3, tf.nn.relu, name="embed")], 1)
    logits = tf.layers.dense(joined, 3, name="logits")
    if rnn.trains:
        labels = tf.placeholder(tf.int32, [None], name="labels")
        minimize(tf.losses.sparse_softmax_cross_entropy(labels, logits))
    feeds = [dict(feed, **{"features:0": (count, 2)}) for feed, count in zip(FEEDS, (3, 2))]
    outputs = "logits/BiasAdd:0,state:0"
    return Case(outputs.split(","), feeds, flags=["--outputs", outputs])


def decoder_inputs(rnn):
    """Sequence to sequence with teacher forcing: the decoder reads words that a placeholder gives, the loss their
    next ones; the author reads the scores, which only the loss reads.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    words = tf.placeholder(tf.int32, [None, None], name="words")
    _, state = recurrent(rnn, x, "gru", 6, trained=True)
    table = tf.get_variable("embedding", [9, 3])
    with tf.variable_scope("decoder"):
        cell = tf.nn.rnn_cell.GRUCell(6)
        decoded, _ = tf.nn.dynamic_rnn(cell, tf.nn.embedding_lookup(table, words), initial_state=state[-1])
        logits = tf.layers.dense(decoded, 9, name="logits")
    if rnn.trains:
        targets = tf.placeholder(tf.int32, [None, None], name="targets")
        losses = tf.contrib.seq2seq.sequence_loss(logits, targets, tf.ones_like(targets, tf.float32))
        minimize(losses)
    words = ([[1, 2, 3], [4, 5, 6], [7, 8, 0]], [[3, 1, 0, 8], [2, 6, 5, 7]])
    feeds = [dict(feed, **{"words:0": given}) for feed, given in zip(FEEDS, words)]
    output = "decoder/logits/BiasAdd:0"
    return Case([output], feeds, flags=["--outputs", output])


def two_heads(rnn):
    """Two tasks on one recurrence: of one the probabilities are there, of the other only the loss reads the
    scores.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, _ = recurrent(rnn, x, trained=True)
    outputs = swap_batch(outputs)
    tags = tf.layers.dense(outputs, 3, name="tags")
    intents = tf.layers.dense(tf.reduce_max(outputs, 1), 4, name="intents")
    tf.nn.softmax(tags, name="tag_probs")
    if rnn.trains:
        wanted_tags = tf.placeholder(tf.int32, [None, None], name="wanted_tags")
        wanted_intents = tf.placeholder(tf.int32, [None], name="wanted_intents")
        tf.losses.sparse_softmax_cross_entropy(wanted_tags, tags)
        tf.losses.sparse_softmax_cross_entropy(wanted_intents, intents)
        minimize(tf.losses.get_total_loss())
    outputs = "intents/BiasAdd:0,tag_probs:0"
    return Case(outputs.split(","), FEEDS, flags=["--outputs", outputs])


def regression(rnn):
    """A loss without an op of its own on targets of unknown rank, whose value so has no static rank either; only
    it reads the prediction.
    """
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    _, state = recurrent(rnn, x, trained=True)
    prediction = tf.layers.dense(state[-1], 1, name="prediction")
    if rnn.trains:
        targets = tf.placeholder(tf.float32, None, name="targets")
        minimize(tf.reduce_mean(tf.square(prediction - targets), name="loss"))
    output = "prediction/BiasAdd:0"
    return Case([output], FEEDS, flags=["--outputs", output])


def printed_scatter(rnn):
    """Scores that pass a tf.Print and are scattered into a wider row, beside words and flags made of them."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    _, state = recurrent(rnn, x, "gru", 6)
    tf.identity(state[-1], name="state")
    scores = tf.nn.softmax(tf.layers.dense(state[-1], 3, name="head"))
    scores = tf.Print(scores, [tf.reduce_mean(scores)], "mean: ", first_n=1)
    wide = tf.transpose(tf.scatter_nd([[4], [0], [2]], tf.transpose(scores), tf.stack([6, tf.shape(x)[0]])))
    tf.identity(wide, name="wide")
    tf.as_string(tf.argmax(wide, 1), name="words")
    tf.greater(wide, 0.5, name="sure")
    return Case(["state:0", "wide:0"], FEEDS)


def cond_training(rnn):
    """A layer for training in one branch of tf.cond and for inference in the other; a placeholder decides.

    There are no gradients: TensorFlow has none of a CudnnRNN that is not in training mode.
    """
    is_training = tf.placeholder(tf.bool, [], name="is_training")
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    inputs = swap_batch(x)
    layer = rnn.layer("lstm", 1, 5, dropout=0.2)
    with tf.variable_scope("recurrent"):
        layer.build([None, None, 4])
    outputs = tf.cond(is_training, lambda: layer(inputs, training=True)[0], lambda: layer(inputs, training=False)[0])
    logits = tf.layers.dense(swap_batch(outputs), 3, name="head")
    tf.nn.softmax(logits, name="probs")
    return Case(["probs:0"], FEEDS, flags=["--set", "is_training:0=false"], bound={"is_training:0": False})


def cond_training_default(rnn):
    """Two layers over the variables of one scope, and a decision that defaults to inference; the Merge is read."""
    is_training = tf.placeholder_with_default(False, [], name="is_training")
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    inputs, layers = swap_batch(x), []
    for number in range(2):
        with tf.variable_scope("recurrent", reuse=number > 0):
            layers.append(rnn.layer("gru", 1, 6, directions=2))
            layers[-1].build([None, None, 3])
    serving, training = layers
    tf.cond(
        tf.logical_not(is_training),
        lambda: serving(inputs, training=False)[0],
        lambda: training(inputs, training=True)[0],
        name="either",
    )
    return Case(["either/Merge:0"], [{"x:0": (3, 7, 3)}, {"x:0": (2, 12, 3)}])


def record_renamed(build, folder):
    """A case whose saver names keys of its own: the checkpoint has these and the variables' own names.

    Each variable of the twin is restored from the key that the saver of the Cudnn graph has for it, but for the
    canonical tensors of a blob, which no checkpoint has under such keys.
    """
    if not os.path.isdir(folder):
        os.makedirs(folder)
    prefix = os.path.join(folder, "model.ckpt")
    gpu_graph, gpu_variables, saver = build_gpu_graph(build)
    with gpu_graph.as_default(), open(prefix + ".meta", "wb") as stream:
        stream.write(reproducible_bytes(saver.export_meta_graph()))
    keys = dict({name: name for name in gpu_variables}, **{v.op.name: key for key, v in saver._var_list.items()})
    graph, case, layers = build_cpu_graph(build)
    save(checkpoint(keys, gpu_variables, layers), prefix)
    with tf.Session(graph=graph) as session, graph.as_default():
        variables = {v.op.name: v for v in tf.global_variables()}
        by_key = {}
        for name in sorted(set(variables) & set(keys)):
            by_key.setdefault(keys[name], []).append(variables[name])
        for turn in range(max(map(len, by_key.values()))):
            tf.train.Saver({key: held[turn] for key, held in by_key.items() if turn < len(held)}).restore(
                session, prefix
            )
        for layer in layers.built:
            load(session, variables, canonical_only(of_key(layer, keys[layer.opaque_key])))
        golden = run_feeds(session, case)
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    describe(build, case, gpu_graph, layers, folder)


def of_key(layer, key):
    """The blob that a checkpoint has under a key, and its canonical tensors as the layer's twin names them."""
    pseudo = blob.pseudo_layers(seeded(key), layer.recurrence)
    tensors = {layer.cell_scope.name + "/" + k: v for k, v in blob.canonical(layer.recurrence, pseudo).items()}
    return dict(tensors, **{key: blob.opaque(layer.mode, pseudo)})


def checkpoint(keys, variables, layers):
    """The values of a training run: of all variables under their own names, and under the saver's keys."""
    values = {}
    for layer in layers.built:
        values.update(of_key(layer, keys[layer.opaque_key]))
        values.update(of_key(layer, layer.opaque_key))
    for name, key in sorted(keys.items()):
        for one in (name, key):
            if one not in values:
                values[one] = random_value(one, variables[name].shape, np.float32)
    return values


def save(values, prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {key: tf.Variable(value, name=key) for key, value in sorted(values.items())}
        session.run(tf.global_variables_initializer())
        tf.train.Saver(variables).save(session, prefix, write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))


RENAMED = (averages_saver, target_saver)
CASES = (averages_saver, features_loss)
CASES_1_15 = (
    target_saver,
    lengths_mask,
    attention_memory,
    decoder_inputs,
    two_heads,
    regression,
    printed_scatter,
    cond_training,
    cond_training_default,
)
