"""Makes tests/data/channels_first: graphs of channels-first ops, and what their channels-last twins answer.

    python scripts/make_channels_first.py

run under Python 3.7 with tensorflow==1.15.5, protobuf<3.21, numpy<1.19. TensorFlow 1 builds a graph of `NCHW`
ops on any machine, and runs most of them on a GPU alone. So each case is built twice, with the same weights:
channels first it becomes part of a frozen graph, channels last it gives the answers. Images are even, odd and
of unequal sizes; every run writes the same bytes, but for names that Keras counts.

`crnn` is a network that reads lines of text: convolutions, normalisation and pools channels first, two pairs of
CuDNNLSTM, and the search of CTC. It is saved as Keras' HDF5 and as a checkpoint; its twin has plain LSTMs.
"""

import os
import zlib

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests", "data", "channels_first")
FILMS = "DHW"


class Layout:
    """How images lie, and the weights of a case."""

    def __init__(self, case, rank, first):
        self.first, self.rank, self.case, self.count = first, rank, case, 0
        self.channel = 1 if first else rank - 1
        self.rows = list(range(2, rank)) if first else list(range(1, rank - 1))
        places = FILMS[-(rank - 2) :]
        self.format = "NC" + places if first else "N" + places + "C"

    def weight(self, *shape):
        self.count += 1
        seed = zlib.crc32(f"{self.case}/{self.count}".encode()) & 0x7FFFFFFF
        value = np.random.RandomState(seed).uniform(-1, 1, shape)
        return tf.constant(value.astype(np.float32), name=f"w{self.count}")

    def sizes(self, *sizes):
        return [1, 1] + list(sizes) if self.first else [1] + list(sizes) + [1]

    def pads(self, *pairs):
        none = [[0, 0]]
        return none * 2 + list(pairs) if self.first else none + list(pairs) + none

    def flat(self, *pairs):
        return [side for pair in self.pads(*pairs) for side in pair]

    def per_channel(self, count):
        value = self.weight(count)
        return tf.reshape(value, [count] + [1] * (self.rank - 2)) if self.first else value

    def shape(self, batch, channels, *sizes):
        return [batch, channels] + list(sizes) if self.first else [batch] + list(sizes) + [channels]

    def move(self, image, last):
        """The image channels last, or back, as a program turns it itself."""
        if not self.first:
            return image
        order = [0] + list(range(2, self.rank)) + [1]
        return tf.transpose(image, order if last else np.argsort(order))


def conv(layout, x, *filters, **options):
    strides = layout.sizes(*options.pop("strides", (1, 1)))
    dilations = layout.sizes(*options.pop("dilations", (1, 1)))
    padding = options.pop("padding", "SAME")
    return tf.nn.conv2d(
        x, layout.weight(*filters), strides, padding, data_format=layout.format, dilations=dilations
    )


def grouped(layout, x):
    weight = layout.weight(3, 2, 2, 6)
    if layout.first:
        return tf.nn.conv2d(x, weight, layout.sizes(2, 1), "SAME", data_format=layout.format)
    parts = zip(tf.split(x, 2, 3), tf.split(weight, 2, 3))
    return tf.concat(
        [tf.nn.conv2d(a, b, layout.sizes(2, 1), "SAME", data_format="NHWC") for a, b in parts], 3
    )


def grouped_biased(layout, x):
    """TensorFlow without oneDNN fuses the bias with the convolution, and then refuses its groups."""
    return tf.nn.relu(bias(layout, grouped(layout, x), 6))


def grouped_normalised(layout, x):
    values = [layout.weight(6) for _ in range(3)] + [tf.abs(layout.weight(6)) + 0.5]
    options = {"epsilon": 0.01, "data_format": layout.format, "is_training": False}
    return tf.nn.fused_batch_norm(grouped(layout, x), *values, **options)[0]


def depthwise(layout, x, strides, padding, multiplier=2):
    weight = layout.weight(3, 2, x.shape[layout.channel].value, multiplier)
    return tf.nn.depthwise_conv2d(x, weight, layout.sizes(*strides), padding, data_format=layout.format)


def depthwise_dilated(layout, x):
    weight = layout.weight(2, 3, 3, 2)
    return tf.nn.depthwise_conv2d(
        x, weight, layout.sizes(1, 1), "SAME", rate=[2, 3], data_format=layout.format
    )


def depthwise_unequal(layout, x):
    weight = layout.weight(3, 2, 3, 2)
    if layout.first:
        return tf.nn.depthwise_conv2d_native(
            x, weight, layout.sizes(1, 2), "VALID", data_format=layout.format
        )
    whole = tf.nn.depthwise_conv2d_native(x, weight, layout.sizes(1, 1), "VALID", data_format="NHWC")
    return whole[:, :, ::2]


def depthwise_attribute(layout, x):
    weight = layout.weight(3, 2, 3, 2)
    if layout.first:
        return tf.nn.depthwise_conv2d_native(
            x, weight, layout.sizes(1, 1), "SAME", data_format=layout.format, dilations=layout.sizes(2, 2)
        )
    return tf.nn.depthwise_conv2d(x, weight, layout.sizes(1, 1), "SAME", rate=[2, 2], data_format="NHWC")


def dilated(layout, x):
    return tf.nn.convolution(
        x, layout.weight(2, 3, 3, 4), "SAME", dilation_rate=[2, 3], data_format=layout.format
    )


def batched(layout, x):
    """The dilation of TensorFlow 1 before 1.13: batches of every other row."""
    block, edges = [1, 2, 3] if layout.first else [2, 3], [[0, 0], [0, 1], [1, 1]]
    edges = edges if layout.first else edges[1:]
    rows = conv(layout, tf.space_to_batch_nd(x, block, edges), 2, 2, 3, 4)
    return tf.batch_to_space_nd(rows, block, edges)


def transposed(layout, x, padding, sizes, strides=(2, 3)):
    shape = layout.shape(tf.shape(x)[0], 4, *sizes)
    return tf.nn.conv2d_transpose(
        x,
        layout.weight(3, 4, 4, 3),
        tf.stack(shape),
        layout.sizes(*strides),
        padding,
        data_format=layout.format,
    )


def pool(layout, x, kind, padding, size=(3, 2), strides=(2, 3)):
    return getattr(tf.nn, kind)(
        x, layout.sizes(*size), layout.sizes(*strides), padding, data_format=layout.format
    )


def pool_v2(layout, x):
    size, strides = tf.constant(layout.sizes(2, 3)), tf.constant(layout.sizes(3, 2))
    return gen_nn_ops.max_pool_v2(x, size, strides, "SAME", data_format=layout.format)


def normalised(layout, x, op):
    values = [layout.weight(3) for _ in range(3)] + [tf.abs(layout.weight(3)) + 0.5]
    return op(x, *values, epsilon=0.01, data_format=layout.format, is_training=False)[0]


def by_hand(layout, x):
    mean, variance, beta, gamma = (layout.per_channel(3) for _ in range(4))
    x = conv(layout, x, 2, 2, 3, 3)
    y = tf.nn.batch_normalization(x, mean, tf.abs(variance) + 0.5, beta, gamma, 0.01)
    return pool(layout, y, "max_pool", "SAME")


def bias(layout, x, channels=3):
    return tf.nn.bias_add(
        x, layout.weight(channels), data_format=layout.format[:2] + "HW" if layout.first else "NHWC"
    )


def local_response(layout, x):
    x = layout.move(tf.nn.relu(conv(layout, x, 2, 2, 3, 6)), last=True)
    return layout.move(tf.nn.lrn(x, depth_radius=2, bias=1.5, alpha=0.2, beta=0.6), last=False)


def resized(layout, x):
    x = layout.move(conv(layout, x, 2, 2, 3, 4), last=True)
    x = layout.move(tf.image.resize_nearest_neighbor(x, [14, 30]), last=False)
    return pool(layout, x, "avg_pool", "VALID")


def residual(layout, x):
    y = tf.nn.relu(conv(layout, x, 3, 3, 3, 3))
    return tf.maximum(conv(layout, y, 2, 2, 3, 3) + y * 0.3, -0.7 * y) + layout.per_channel(3)


def joined(layout, x):
    x = tf.pad(conv(layout, x, 3, 2, 3, 4), layout.pads([1, 2], [0, 3]), constant_values=0.5)
    left, right = tf.split(x, [1, 3], layout.channel)
    x = tf.concat([right, tf.tanh(left), right], layout.channel)
    return pool(layout, tf.tile(x, layout.sizes(2, 1)), "max_pool", "VALID")


def reduced(layout, x):
    x = conv(layout, x, 3, 2, 3, 4)
    whole = tf.reduce_mean(x, layout.rows, keepdims=True)
    scaled = x * tf.sigmoid(conv(layout, whole, 1, 1, 4, 4))
    best = tf.reduce_max(scaled, [layout.rows[0]])
    return tf.concat([tf.reduce_sum(scaled, layout.rows), tf.reduce_max(best, 2 if layout.first else 1)], 1)


def columns(layout, x):
    """The steps of a recurrence: a row of features for each column."""
    x = pool(layout, conv(layout, x, 3, 2, 3, 4), "max_pool", "VALID", size=(7, 2), strides=(7, 1))
    x = tf.squeeze(x, [layout.rows[0]])
    return tf.transpose(x, [2, 0, 1]) if layout.first else tf.transpose(x, [1, 0, 2])


def flattened(layout, x):
    x = tf.nn.relu(conv(layout, x, 3, 2, 3, 4))
    batch, width = tf.shape(x)[0], tf.shape(x)[layout.rows[1]]
    x = tf.transpose(x, [0, 3, 1, 2] if layout.first else [0, 2, 3, 1])
    return tf.reshape(x, tf.stack([batch, width, 28]))


def looped(layout, x):
    weight = layout.weight(3, 2, 3, 3)

    def body(k, y):
        y = tf.nn.conv2d(y, weight, layout.sizes(1, 1), "SAME", data_format=layout.format)
        return k + 1, tf.tanh(tf.nn.bias_add(y, layout.weight(3), data_format=layout.format))

    return tf.while_loop(lambda k, _: k < 3, body, [0, x])[1]


def branched(layout, x):
    weight, other = layout.weight(3, 2, 3, 3), layout.weight(2, 2, 3, 3)

    def run(kernel):
        return lambda: tf.nn.conv2d(x, kernel, layout.sizes(1, 1), "SAME", data_format=layout.format)

    return tf.cond(tf.reduce_sum(x) > 0, run(weight), run(other))


def conv3d(layout, x, padding, strides):
    return tf.nn.conv3d(
        x, layout.weight(2, 3, 2, 3, 4), layout.sizes(*strides), padding, data_format=layout.format
    )


def conv3d_dilated(layout, x):
    weight = layout.weight(2, 2, 2, 3, 4)
    if layout.first:
        return tf.nn.conv3d(
            x,
            weight,
            layout.sizes(1, 1, 1),
            "SAME",
            data_format=layout.format,
            dilations=layout.sizes(1, 2, 3),
        )
    return tf.nn.convolution(x, weight, "SAME", dilation_rate=[1, 2, 3], data_format="NDHWC")


def transposed3d(layout, x):
    shape = layout.shape(tf.shape(x)[0], 4, 4, 10, 13)
    return tf.nn.conv3d_transpose(
        x,
        layout.weight(2, 3, 2, 4, 3),
        tf.stack(shape),
        layout.sizes(1, 2, 2),
        "SAME",
        data_format=layout.format,
    )


def film_bias(layout, x):
    layout_name = "NCHW" if layout.first else "NHWC"
    return tf.nn.relu(
        tf.nn.bias_add(conv3d(layout, x, "SAME", (1, 1, 1)), layout.weight(4), data_format=layout_name)
    )


IMAGE, EVEN, FILM = (3, 7, 10), (8, 6, 4), (3, 4, 5, 7)
CASES = {
    "convolutions": {
        "same": (IMAGE, lambda l, x: conv(l, x, 3, 2, 3, 4, strides=(1, 2))),
        "valid": (IMAGE, lambda l, x: conv(l, x, 2, 3, 3, 5, strides=(3, 2), padding="VALID")),
        "even": (EVEN, lambda l, x: conv(l, x, 4, 2, 8, 3, strides=(2, 2))),
        "explicit": (IMAGE, lambda l, x: conv(l, x, 3, 2, 3, 4, padding=l.pads([1, 2], [0, 3]))),
        "dilations": (IMAGE, lambda l, x: conv(l, x, 3, 2, 3, 4, dilations=(2, 3))),
        "dilated": (IMAGE, dilated),
        "batched": (IMAGE, batched),
        "transposed_same": (IMAGE, lambda l, x: transposed(l, x, "SAME", (13, 28))),
        "transposed_valid": (IMAGE, lambda l, x: transposed(l, x, "VALID", (15, 31))),
        "normalised": (IMAGE, lambda l, x: normalised(l, x, gen_nn_ops._fused_batch_norm)),
        "normalised_v2": (IMAGE, lambda l, x: normalised(l, x, gen_nn_ops.fused_batch_norm_v2)),
        "normalised_v3": (IMAGE, lambda l, x: normalised(l, x, gen_nn_ops.fused_batch_norm_v3)),
        "normalised_by_hand": (IMAGE, by_hand),
        "bias": (IMAGE, bias),
        "to_depth": (EVEN, lambda l, x: tf.space_to_depth(x, 2, data_format=l.format)),
        "from_depth": (EVEN, lambda l, x: tf.depth_to_space(x, 2, data_format=l.format)),
    },
    "depthwise": {
        "same": (IMAGE, lambda l, x: depthwise(l, x, (1, 1), "SAME")),
        "strides": (IMAGE, lambda l, x: depthwise(l, x, (2, 2), "SAME")),
        "even": (EVEN, lambda l, x: depthwise(l, x, (2, 2), "SAME", 1)),
        "valid": (IMAGE, lambda l, x: depthwise(l, x, (2, 2), "VALID", 3)),
        "dilated": (IMAGE, depthwise_dilated),
    },
    "pools": {
        "most": (IMAGE, lambda l, x: pool(l, x, "max_pool", "SAME")),
        "most_valid": (IMAGE, lambda l, x: pool(l, x, "max_pool", "VALID")),
        "most_even": (EVEN, lambda l, x: pool(l, x, "max_pool", "SAME", (2, 2), (2, 2))),
        "most_v2": (IMAGE, pool_v2),
        "mean": (IMAGE, lambda l, x: pool(l, x, "avg_pool", "SAME")),
        "mean_valid": (IMAGE, lambda l, x: pool(l, x, "avg_pool", "VALID", (2, 4), (1, 2))),
    },
    "carried": {
        "local_response": (IMAGE, local_response),
        "resized": (IMAGE, resized),
        "residual": (IMAGE, residual),
        "joined": (IMAGE, joined),
        "reduced": (IMAGE, reduced),
        "columns": (IMAGE, columns),
        "flattened": (IMAGE, flattened),
    },
    "control": {"looped": (IMAGE, looped), "branched": (IMAGE, branched)},
    "films": {
        "same": (FILM, lambda l, x: conv3d(l, x, "SAME", (1, 2, 2))),
        "valid": (FILM, lambda l, x: conv3d(l, x, "VALID", (2, 1, 3))),
        "bias": (FILM, film_bias),
        "transposed": (FILM, transposed3d),
    },
    "film_pools": {
        "most": (FILM, lambda l, x: pool(l, x, "max_pool3d", "SAME", (2, 3, 2), (1, 2, 3))),
        "most_valid": (FILM, lambda l, x: pool(l, x, "max_pool3d", "VALID", (2, 3, 2), (2, 2, 1))),
        "mean": (FILM, lambda l, x: pool(l, x, "avg_pool3d", "SAME", (2, 3, 2), (1, 2, 3))),
    },
    "only_onednn": {
        "grouped": ((4, 7, 10), grouped),
        "grouped_biased": ((4, 7, 10), grouped_biased),
        "grouped_normalised": ((4, 7, 10), grouped_normalised),
        "depthwise_unequal": (IMAGE, depthwise_unequal),
        "depthwise_dilations": (IMAGE, depthwise_attribute),
        "film_dilations": (FILM, conv3d_dilated),
    },
}


def build(cases, first):
    """A graph of some cases, with its feeds."""
    feeds, graph = {}, tf.Graph()
    with graph.as_default():
        for name in sorted(cases):
            sizes, function = cases[name]
            layout = Layout(name, len(sizes) + 1, first)
            with tf.name_scope(name):
                x = tf.placeholder(tf.float32, [None] + list(sizes), "x")
                image = x if first else tf.transpose(x, [0] + list(range(2, len(sizes) + 1)) + [1])
                y = function(layout, image)
                if not first and y.shape.rank == len(sizes) + 1:
                    y = tf.transpose(y, [0, len(sizes)] + list(range(1, len(sizes))))
                tf.identity(y, "y")
            draw = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
            feeds[name] = draw.uniform(-2, 2, (2,) + tuple(sizes)).astype(np.float32)
    return graph, feeds


def record(group, cases):
    graph, feeds = build(cases, first=True)
    definition = graph.as_graph_def()
    if group == "control":  # a frozen graph has none of what gradients need
        definition.ClearField("library")
    with open(os.path.join(FOLDER, group + ".pb"), "wb") as file:
        file.write(definition.SerializeToString(deterministic=True))
    twin, _ = build(cases, first=False)
    with tf.Session(graph=twin) as session:
        fed = {name + "/x:0": value for name, value in feeds.items()}
        answers = session.run({name: name + "/y:0" for name in cases}, fed)
    arrays = {"feed0/" + name + "/x:0": value for name, value in feeds.items()}
    arrays.update(("feed0/" + name + "/y:0", value) for name, value in answers.items())
    np.savez_compressed(os.path.join(FOLDER, group + ".npz"), **{key: arrays[key] for key in sorted(arrays)})
    print(group, {name: value.shape for name, value in sorted(answers.items())})


def crnn(first):
    """The network and its weights, by layer; the channels-first one has CuDNNLSTM layers."""
    layers, format = tf.keras.layers, "channels_first" if first else "channels_last"

    def recurrence(units):
        if first:
            return layers.CuDNNLSTM(units, return_sequences=True)
        return layers.LSTM(units, return_sequences=True, recurrent_activation="sigmoid")

    x = layers.Input((1, 8, 21) if first else (8, 21, 1), name="images")
    y = layers.Conv2D(6, (3, 2), padding="same", data_format=format, name="c1")(x)
    y = layers.BatchNormalization(axis=1 if first else -1, name="bn")(y)
    y = layers.Activation("relu", name="relu")(y)
    y = layers.MaxPooling2D((2, 2), padding="same", data_format=format, name="pool")(y)
    y = layers.Conv2D(5, (3, 3), (2, 1), "valid", format, activation="relu", name="c2")(y)
    y = layers.Permute((3, 1, 2) if first else (2, 3, 1), name="columns")(y)  # [N, W, C, H]
    y = layers.Reshape((9, 5), name="rows")(y)
    y = layers.Bidirectional(recurrence(4), name="lower")(y)
    y = layers.Bidirectional(recurrence(3), name="upper")(y)
    return tf.keras.Model(x, layers.Dense(7, activation="softmax", name="letters")(y))


def record_crnn():
    folder = os.path.join(FOLDER, "crnn")
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "model.h5")
    # What no run needs has no kernel here.
    config = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        tf.keras.backend.set_session(session)
        model = crnn(first=True)
        session.run(tf.global_variables_initializer())
        draw = np.random.RandomState(7)
        model.set_weights(
            [
                np.abs(draw.normal(size=value.shape)) + 0.3
                if "variance" in weight.name
                else draw.normal(size=value.shape) * (5 if weight.name.startswith("letters/kernel") else 0.5)
                for weight, value in zip(model.weights, model.get_weights())
            ]
        )
        model.save(file, include_optimizer=False)
        logits = tf.transpose(tf.log(model.output), [1, 0, 2])
        lengths = tf.fill([tf.shape(logits)[1]], tf.shape(logits)[0])
        (found,), _ = tf.nn.ctc_greedy_decoder(logits, lengths)
        tf.sparse.to_dense(found, default_value=-1, name="text")
        saver = tf.train.Saver(tf.global_variables())
        saver.save(session, os.path.join(folder, "model.ckpt"), write_state=False)
        weights = {layer.name: layer.get_weights() for layer in model.layers}
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        twin = crnn(first=False)
        twin.load_weights(file)
        for name in ("c1", "c2", "bn", "letters"):
            for one, other in zip(twin.get_layer(name).get_weights(), weights[name]):
                np.testing.assert_array_equal(one, other)
        logits = tf.transpose(tf.log(twin.output), [1, 0, 2])
        (found,), _ = tf.nn.ctc_greedy_decoder(logits, tf.fill([tf.shape(logits)[1]], tf.shape(logits)[0]))
        images = np.random.RandomState(3).normal(size=(3, 8, 21, 1)).astype(np.float32)
        fed = {twin.input: images}
        letters, text = session.run([twin.output, tf.sparse.to_dense(found, default_value=-1)], fed)
    print("crnn", letters.shape, text.tolist())
    arrays = {"feed0/images": images.transpose(0, 3, 1, 2), "feed0/letters": letters, "feed0/text": text}
    np.savez_compressed(os.path.join(folder, "golden.npz"), **arrays)


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    for each in sorted(CASES):
        record(each, CASES[each])
    record_crnn()
