"""A network of two Cudnn layers, which write digits for number words, and what beam searches answer.

beams.npz has the answers of tf.contrib.seq2seq.BeamSearchDecoder over the CPU cells: `source`, and for each
search (`plain`, `penalty`) `sequences [n, width, steps]`, `parents` and `tokens [n, steps, width]`, `scores`
and `lengths` `[n, width]`.
"""

import numpy as np
import tensorflow as tf
from tf1_fixtures.blob import Recurrence
from tf1_fixtures.describe import inference_recurrences
from tf1_fixtures.keras_record import save
from tf1_fixtures.record import reproducible_bytes, saved_keys

from trained_models.contrib import Layer, Layers, about
from trained_models.packed import packed

WIDTH, STEPS = 6, 8
SCOPES = ("encoder", "decoder")
OUTPUTS = ["log_probs:0", "next_h:0", "next_c:0", "encoded_h:0", "encoded_c:0"]
#: By name: the weight of the length penalty.
SEARCHES = {"plain": 0.0, "penalty": 0.7}


def make(module, work, folder):
    """A trained network that writes number words as digits: an LSTM reads the words, another one goes on from
    its states. One signature: words in and states out; digits and states in, log probabilities and states
    out."""
    recurrence = Recurrence("lstm", 1, 1, module.UNITS, module.EMBEDDING, np.float32)
    write(module, work, folder, recurrence)
    with tf.Graph().as_default():
        network = module.build(use_gpu=False)
        saver = tf.train.Saver(tf.trainable_variables())
        with tf.Session() as session:
            saver.restore(session, str(folder / "model.ckpt"))
            golden = record(module, network, session)
            beams = record_beams(module, network, session)
    np.savez_compressed(str(folder / "golden.npz"), **golden)
    np.savez_compressed(str(folder / "beams.npz"), **beams)
    with tf.Graph().as_default() as graph:
        module.build(use_gpu=True)
    layers = Layers([Layer(f"{scope}/cudnn_lstm/opaque_kernel", recurrence) for scope in SCOPES])
    return {
        **about(make),
        "inputs": sorted(["source:0", "tokens:0", "h:0", "c:0"]),
        "outputs": OUTPUTS,
        "unreached": [],
        "flags": [],
        "recurrences": inference_recurrences(graph, OUTPUTS, layers),
    }


def write(module, work, folder, recurrence):
    """The MetaGraph of the GPU graph, and a checkpoint with the keys of its saver."""
    reader = tf.train.load_checkpoint(str(work / "model.ckpt"))
    trained = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        module.build(use_gpu=True)
        meta_graph = tf.train.Saver().export_meta_graph()
    (folder / "model.ckpt.meta").write_bytes(reproducible_bytes(meta_graph))
    values = {}
    for key in saved_keys(graph):
        scope, _, name = key.partition("/")
        if name.startswith("cudnn_lstm/opaque_kernel"):  # or what the optimizer keeps for it
            below = {k[len(scope) + 1 :]: value for k, value in trained.items() if k.startswith(scope + "/")}
            values[key] = packed(recurrence, below, slot=name[len("cudnn_lstm/opaque_kernel") :])
        else:
            values[key] = trained[key]
    save(str(folder / "model.ckpt"), values)


def record(module, network, session):
    """Feeds and answers; the numbers of a feed have as many digits each."""
    golden = {}
    for number, numbers in enumerate(([4021, 9999, 1300], [17, 60])):
        source, target = module.examples(numbers)
        target = target[:, : len(str(numbers[0])) + 1]
        feed = module.shown(network, session, source, target)
        answers = session.run({name: name for name in OUTPUTS}, feed)
        found = {"truth": target, **{key.name: value for key, value in feed.items()}, **answers}
        golden.update({f"feed{number}/{name}": value for name, value in found.items()})
    return golden


def record_beams(module, network, session):
    source, _ = module.examples([4021, 7, 300, 9050, 8888, 12])
    h, c = session.run(network.encoded, {network.source: source})
    found = {"source": source}
    for name, penalty in SEARCHES.items():
        answers = session.run(search(module, network, len(source), penalty), {network.h: h, network.c: c})
        found.update({f"{name}/{key}": value for key, value in answers.items()})
    return found


def search(module, network, rows, penalty):
    """Tensors of a search from the states `h` and `c`. BeamSearchDecoder repeats the end, so its padding is
    the end."""
    state = (tf.nn.rnn_cell.LSTMStateTuple(network.c, network.h),)
    state = tf.contrib.seq2seq.tile_batch(state, WIDTH)
    with tf.variable_scope("", reuse=True):
        table = tf.get_variable("digits", [module.TOKENS, module.EMBEDDING])
    stack = tf.nn.rnn_cell.MultiRNNCell([tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(module.UNITS)])
    decoder = tf.contrib.seq2seq.BeamSearchDecoder(
        stack, table, tf.fill([rows], module.START), module.END, state, WIDTH, network.scores, penalty
    )
    with tf.variable_scope("decoder/cudnn_lstm", reuse=True):
        outputs, final, _ = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=STEPS, scope="rnn")
    steps = outputs.beam_search_decoder_output
    return {
        "sequences": tf.transpose(outputs.predicted_ids, [0, 2, 1]),
        "tokens": steps.predicted_ids,
        "parents": steps.parent_ids,
        "scores": final.log_probs,
        "lengths": final.lengths,
    }
