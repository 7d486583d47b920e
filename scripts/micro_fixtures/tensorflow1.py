"""The files of a network in TensorFlow 1: a checkpoint with its .meta, and a frozen graph.

    cd scripts; python -m micro_fixtures.tensorflow1 KIND WEIGHTS FOLDER

KIND is checkpoint or frozen. WEIGHTS is an .npz of what Keras trained: `embedding`, `kernel`, `recurrent`,
`bias`, `dense`, `dense_bias`, and `inputs` with the `outputs` that Keras answers. Runs in Python 3.7 with
TensorFlow 1.15.5, without a GPU. The Cudnn graph is exported and never run. Its twin of
CudnnCompatibleLSTMCell has the weights of the file, and must answer as Keras does.

Keras' LSTM has the gates i, f, c, o in its columns and one bias (keras 3.15.1 `layers/rnn/rnn.py` LSTMCell);
cuDNN's blob has the same order and two biases (tf1_fixtures/blob.py).
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf1_fixtures import blob
from tf1_fixtures.keras_record import save
from tf1_fixtures.layers import CompatibleLayers, CudnnLayers, swap_batch
from tf1_fixtures.record import load, reproducible_bytes, saved_keys

SCOPE = "cudnn_lstm"
CLOSE = 1e-5


def build(rnn, trained):
    """The network: batch-major inputs, the recurrence time-major, the last step to the dense layer."""
    shape = list(trained["inputs"].shape[1:])
    if "embedding" in trained:
        tokens = tf.placeholder(tf.int32, [None, *shape], name="tokens")
        features = tf.nn.embedding_lookup(tf.get_variable("embedding", trained["embedding"].shape), tokens)
    else:
        features = tf.placeholder(tf.float32, [None, *shape], name="features")
    outputs, _ = rnn.layer("lstm", 1, len(trained["recurrent"]))(swap_batch(features), training=False)
    units = len(trained["dense_bias"])
    scores = tf.layers.dense(outputs[-1], units, name="dense")
    (tf.sigmoid if units == 1 else tf.nn.softmax)(scores, name="probabilities")


def make_pseudo_layer(trained):
    """cuDNN's parts of a Keras LSTM, the bias split into two that differ."""
    units = len(trained["recurrent"])
    shift = np.random.RandomState(9).uniform(-0.5, 0.5, 4 * units).astype(np.float32)

    def parts(array):
        blocks = np.split(array.T, 4)
        return {gate: blocks[place] for place, gate in enumerate("ifco")}

    return blob.PseudoLayer(
        parts(trained["kernel"]), parts(trained["recurrent"]), parts(trained["bias"] + shift), parts(-shift)
    )


def make_values(trained):
    """By key: the blob, the tensors of the cells, and the other layers."""
    units, inputs = len(trained["recurrent"]), len(trained["kernel"])
    recurrence = blob.Recurrence("lstm", 1, 1, units, inputs, np.float32)
    pseudo = [make_pseudo_layer(trained)]
    values = {"dense/kernel": trained["dense"], "dense/bias": trained["dense_bias"]}
    values[SCOPE + "/opaque_kernel"] = blob.opaque("lstm", pseudo)
    for key, value in blob.canonical(recurrence, pseudo).items():
        values[SCOPE + "/" + key] = value
    if "embedding" in trained:
        values["embedding"] = trained["embedding"]
    return values


def write_checkpoint(graph, values, folder):
    with graph.as_default():
        meta_graph = tf.train.Saver().export_meta_graph()
    (folder / "model.ckpt.meta").write_bytes(reproducible_bytes(meta_graph))
    save(str(folder / "model.ckpt"), {key: values[key] for key in saved_keys(graph)})


def write_frozen(graph, values, folder):
    """convert_variables_to_constants runs nothing but variables; of the blob's only the assignment is run."""
    options = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True))
    with graph.as_default(), tf.Session(graph=graph, config=options) as session:
        for variable in tf.global_variables():
            session.run(variable.initializer, {variable.initializer.inputs[1]: values[variable.op.name]})
        frozen = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["probabilities"]
        )
    (folder / "frozen.pb").write_bytes(frozen.SerializeToString(deterministic=True))


def check(trained, values):
    """The CPU twin with the summed biases answers as Keras did."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        build(CompatibleLayers(), trained)
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        load(session, variables, {key: values[key] for key in variables})
        name = "tokens:0" if "embedding" in trained else "features:0"
        answers = session.run("probabilities:0", {name: trained["inputs"]})
    np.testing.assert_allclose(answers, trained["outputs"], rtol=0, atol=CLOSE)


def main(kind, weights, folder):
    with np.load(weights) as stored:
        trained = {key: stored[key] for key in stored.files}
    values = make_values(trained)
    check(trained, values)
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        build(CudnnLayers(), trained)
    {"checkpoint": write_checkpoint, "frozen": write_frozen}[kind](graph, values, Path(folder))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*sys.argv[1:])
