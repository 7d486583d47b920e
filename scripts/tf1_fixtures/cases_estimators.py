"""Models as projects around tf.estimator leave them: tf.Examples as inputs, string labels, a phase placeholder.

The weights of CPU layers are here too, in the checkpoints that Keras writes by objects.
"""
import json
import os
import shutil

import numpy as np
import tensorflow as tf
from tensorflow_estimator.python.estimator.export import export_lib

from tf1_fixtures.cases_containers import Twin, reproducible, saved_keys
from tf1_fixtures.describe import describe
from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case, build_cpu_graph, build_gpu_graph
from tf1_fixtures.weights import seeded

LABELS = ["no", "maybe", "yes"]
#: The features that the parser gives: recorded too, for they are the inputs of an artifact without the parser.
PARSED = ["ParseExample/ParseExample:3", "tokens:0"]
TOKENS = (([3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8]), ([7, 9], [3, 2, 3, 8, 4, 6, 2]))


def estimator_examples(rnn):
    """A SavedModel of an Estimator: serialized tf.Examples in, ids of any number and two floats parsed out of them;
    classes as strings beside scores, and a second signature with all predictions."""
    features = {
        "age": tf.io.FixedLenFeature([2], tf.float32),
        "tokens": tf.io.VarLenFeature(tf.int64),
    }
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(features)()
    parsed = receiver.features
    tokens = tf.sparse_tensor_to_dense(parsed["tokens"], name="tokens")
    table = tf.get_variable("embedding", [10, 4])
    embedded = swap_batch(tf.nn.embedding_lookup(table, tokens))
    _, (h, _) = rnn.layer("lstm", 1, 5)(embedded, training=False)
    logits = tf.layers.dense(tf.concat([h[0], parsed["age"]], axis=1), len(LABELS), name="head")
    probabilities = tf.nn.softmax(logits, name="probabilities")
    best = tf.argmax(logits, axis=1, name="class_ids")
    names = tf.gather(tf.constant(LABELS), best, name="classes")
    everything = {"probabilities": probabilities, "class_ids": best, "classes": names}
    rnn.signatures = export_lib.build_all_signature_defs(
        receiver.receiver_tensors,
        {
            "serving_default": tf.estimator.export.ClassificationOutput(
                scores=probabilities, classes=tf.tile(tf.constant([LABELS]), [tf.shape(logits)[0], 1], name="every")
            ),
            "predict": tf.estimator.export.PredictOutput(everything),
        },
    )
    return Case(
        ["every:0", "probabilities:0"],
        [{"input_example_tensor:0": serialized(number, rows)} for number, rows in enumerate(TOKENS)],
        unreached=PARSED,
    )


def serialized(number, rows):
    ages = seeded("ages %d" % number).standard_normal((len(rows), 2)).astype(np.float32)
    return [
        tf.train.Example(features=tf.train.Features(feature={
            "age": tf.train.Feature(float_list=tf.train.FloatList(value=age)),
            "tokens": tf.train.Feature(int64_list=tf.train.Int64List(value=row)),
        })).SerializeToString(deterministic=True)
        for row, age in zip(rows, ages)
    ]


def string_outputs(rnn):
    """Scores, and the name of the best class as a string beside them."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    _, (h, _) = rnn.layer("lstm", 1, 6)(x, training=False)
    scores = tf.layers.dense(h[0], len(LABELS), name="head")
    tf.nn.softmax(scores, name="probs")
    tf.gather(tf.constant(LABELS), tf.argmax(scores, axis=1), name="label")
    return Case(["probs:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def phase(rnn):
    """Batch normalisation whose phase, training or not, is a placeholder without a default."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    is_training = tf.placeholder(tf.bool, [], name="phase")
    outputs, _ = rnn.layer("gru", 1, 6)(x, training=False)
    image = tf.expand_dims(outputs, 3)
    normal = tf.layers.batch_normalization(image, training=is_training, fused=True, name="norm")
    tf.identity(tf.layers.dense(tf.squeeze(normal, [3]), 3, name="head"), name="logits")
    return Case(
        ["logits:0"],
        [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}],
        flags=["--set", "phase:0=false"],
        bound={"phase:0": False},
    )


def unknown_rank(rnn):
    """An input without a shape: what the graph knew of it by set_shape is in no file."""
    x = tf.placeholder(tf.float32, name="x")
    steps = tf.identity(x, name="steps")
    steps.set_shape([None, None, 6])
    outputs, _ = rnn.layer("lstm", 1, 5, directions=2)(swap_batch(steps), training=False)
    outputs = tf.layers.dense(swap_batch(outputs), 3, name="head")
    tf.identity(outputs, name="logits")
    return Case(
        ["logits:0"],
        [{"x:0": (3, 7, 6)}, {"x:0": (2, 12, 6)}],
        flags=["--inputs", "x:0[?,?,6]"],
    )


def two_lookups(rnn):
    """Words and their tags, each looked up in a table of its own; integers may be given in the place of both."""
    embedded = []
    for name, words, width in (("words", ["the", "cat", "sat", "mat"], 3), ("tags", ["noun", "verb"], 2)):
        given = tf.placeholder(tf.string, [None, None], name=name)
        ids = tf.range(len(words), dtype=tf.int64)
        filled = tf.contrib.lookup.KeyValueTensorInitializer(tf.constant(words), ids)
        table = tf.contrib.lookup.HashTable(filled, len(words), shared_name=name + "_table", name=name + "_table")
        weights = tf.get_variable(name + "_embedding", [len(words) + 1, width])
        embedded.append(tf.nn.embedding_lookup(weights, table.lookup(given)))
    outputs, _ = rnn.layer("lstm", 1, 6, directions=2)(swap_batch(tf.concat(embedded, axis=2)), training=False)
    tf.identity(tf.layers.dense(swap_batch(outputs), 3, name="head"), name="logits")
    rnn.signatures = tf.get_default_graph()
    return Case(
        ["logits:0"],
        [
            {"words:0": [["the", "cat", "sat"]], "tags:0": [["noun", "noun", "verb"]]},
            {"words:0": [["mat", "dog"], ["cat", "sat"]], "tags:0": [["noun", "noun"], ["article", "verb"]]},
        ],
    )


def record_saved_model(build, folder):
    """As cases_containers does: the proto by SavedModelBuilder, the variables by the twin of CPU cells."""
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    made = {}

    def kept(rnn):
        case = build(rnn)
        made["signatures"] = rnn.signatures
        return case

    with reproducible():
        graph, variables, saver = build_gpu_graph(kept)
        signatures = made["signatures"]
        cpu_graph, case, layers = build_cpu_graph(kept)
        twin = Twin(cpu_graph, case, layers, variables, saved_keys(graph), saver.saver_def)
        if not isinstance(signatures, dict):
            info = tf.saved_model.utils.build_tensor_info
            ends = [{name: info(graph.get_tensor_by_name(name + ":0")) for name in names}
                    for names in (("words", "tags"), ("logits",))]
            signatures = {"serving_default": tf.saved_model.signature_def_utils.build_signature_def(
                *(ends + ["tensorflow/serving/predict"]))}
        builder = tf.saved_model.builder.SavedModelBuilder(os.path.join(folder, "model"))
        builder._has_saved_variables = True
        with graph.as_default():
            builder.add_meta_graph(
                ["serve"], signatures, main_op=tf.tables_initializer(), strip_default_attrs=True
            )
        with open(os.path.join(folder, "model", "saved_model.pb"), "wb") as stream:
            stream.write(builder._saved_model.SerializeToString(deterministic=True))
        os.makedirs(os.path.join(folder, "model", "variables"))
        twin.save(os.path.join(folder, "model", "variables", "variables"))
        os.remove(os.path.join(folder, "model", "variables", "checkpoint"))
        np.savez_compressed(os.path.join(folder, "golden.npz"), **twin.answers())
    describe(build, case, graph, layers, folder)
    described(folder, source="model", **({"inputs": PARSED, "unreached": []} if case.unreached else {}))


def described(folder, **more):
    path = os.path.join(folder, "case.json")
    known = {}
    if os.path.isfile(path):
        with open(path) as stream:
            known = json.load(stream)
    with open(path, "w") as stream:
        json.dump(dict(known, **more), stream, indent=2, sort_keys=True)
        stream.write("\n")


def weights_plain_lstm():
    """save_weights of a CPU LSTM and a Dense layer, as objects."""
    keras = tf.keras.layers
    return [keras.LSTM(5, return_sequences=True, input_shape=(None, 3)), keras.GRU(4), keras.Dense(2)]


def weights_convolutions():
    """save_weights of convolutions, batch normalisation and Dense layers, as objects."""
    keras = tf.keras.layers
    return [
        keras.Conv1D(4, 3, input_shape=(12, 2)), keras.BatchNormalization(), keras.Flatten(), keras.Dense(8),
        keras.Dense(4),
    ]


def weights_cudnn_and_dense():
    """save_weights of a CuDNNLSTM and of Dense layers whose widths are those of gates, as objects."""
    keras = tf.keras.layers
    return [keras.CuDNNLSTM(6, input_shape=(None, 3)), keras.Dense(8), keras.Dense(4)]


def record_weights(build, folder):
    """The bytes are the same on every run: Keras' own saver, with seeded values."""
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    os.makedirs(folder)
    # Only what runs is placed: a cuDNN layer has no kernel here.
    config = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), tf.Session(config=config) as session, reproducible():
        model = tf.keras.Sequential(build())
        for variable in tf.global_variables():
            values = seeded(build.__name__ + variable.op.name).uniform(-0.7, 0.7, variable.shape.as_list())
            variable.load(values.astype(np.float32), session)
        tf.keras.backend.set_session(session)
        model.save_weights(os.path.join(folder, "model.ckpt"), save_format="tf")
    tf.keras.backend.clear_session()
    os.remove(os.path.join(folder, "checkpoint"))
    described(
        folder, name=build.__name__, tensorflow=tf.__version__, about=build.__doc__, weights=True,
        layers=[type(layer).__name__ for layer in model.layers if layer.weights],
    )


SAVED_MODELS = (estimator_examples, two_lookups)
WEIGHTS = (weights_plain_lstm, weights_convolutions, weights_cudnn_and_dense)
CASES_1_15 = (string_outputs, phase, unknown_rank) + SAVED_MODELS + WEIGHTS
