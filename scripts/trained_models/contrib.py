"""The networks of tf.contrib.cudnn_rnn: model.ckpt.*, golden.npz and what case.json says of them.

The graph with Cudnn layers gives model.ckpt.meta and the keys of the checkpoint. Their values are the weights
that were trained in CPU cells: as they are, and packed as cuDNN has them.
"""

from collections import namedtuple

import numpy as np
import tensorflow as tf
from tf1_fixtures.blob import Recurrence
from tf1_fixtures.describe import inference_recurrences
from tf1_fixtures.keras_record import save
from tf1_fixtures.record import reproducible_bytes, saved_keys

from trained_models.packed import packed, scope

Layer = namedtuple("Layer", "opaque_key recurrence")
Layers = namedtuple("Layers", "built")


def crf_tagger(module, work, folder):
    """A trained BiLSTM-CRF tagger: batch-major ids in; scores, the tags that Viterbi decoding finds and their
    sum out. The recurrence runs time-major and knows no lengths; the decoding counts ids that are not 0."""
    recurrence = Recurrence("lstm", 1, 2, module.UNITS, module.EMBEDDING, np.float32)
    examples = []
    for seed, rows, longest in ((14, 4, 9), (12, 2, 15), (13, 1, 1)):
        ids, labels = module.sentences(np.random.RandomState(seed), rows, longest)
        examples.append(({"ids:0": ids}, labels))
    examples.append(long_entities(module))
    write(module, work, folder, recurrence)
    outputs = ["logits:0", "tags:0", "score:0"]
    return {**about(crf_tagger), **answered(module, folder, recurrence, outputs, examples)}


def long_entities(module):
    """Longer than any in training: only the decoding has all tags right, not the best score of each word."""
    random = np.random.RandomState(7)
    ids = random.randint(module.CLOSER + 1, module.VOCABULARY, [2, 40]).astype(np.int32)
    for row, opened, closed in ((0, 3, 30), (1, 8, 38)):
        ids[row, opened], ids[row, closed] = random.choice(module.OPENERS), module.CLOSER
    return {"ids:0": ids}, np.array([module.entities(words) for words in ids], np.int32)


def ocr_crnn(module, work, folder):
    """A trained reader of lines of digits: convolutions, two bidirectional LSTM layers with dropout between
    them, CTC. Images in; time-major scores and greedily decoded digits out, -1 behind each line's end."""
    recurrence = Recurrence("lstm", module.LAYERS, 2, module.UNITS, module.COLUMN, np.float32)
    examples = []
    for seed, rows, digits in ((11, 3, 4), (12, 2, 6)):
        images, labels = module.lines(np.random.RandomState(seed), rows, digits)
        examples.append(({"images:0": images}, labels))
    write(module, work, folder, recurrence)
    outputs = ["logits:0", "decoded:0"]
    return {**about(ocr_crnn), **answered(module, folder, recurrence, outputs, examples)}


def gru_speech(module, work, folder):
    """A trained phone recognizer: two unidirectional GRU layers with sequence lengths. Frames and the length
    of each row in, the probabilities of every frame out."""
    recurrence = Recurrence("gru", module.LAYERS, 1, module.UNITS, module.FEATURES, np.float32)
    examples = []
    for seed, rows, longest in ((11, 3, 20), (12, 2, 33)):
        features, lengths, phones = module.speech(np.random.RandomState(seed), rows, longest)
        examples.append(({"features:0": features, "lengths:0": lengths}, phones))
    write(module, work, folder, recurrence)
    outputs = ["probabilities:0"]
    return {**about(gru_speech), **answered(module, folder, recurrence, outputs, examples)}


def opaque_key(recurrence):
    return f"{scope(recurrence)}/opaque_kernel"


def write(module, work, folder, recurrence):
    """The MetaGraph of the GPU graph, and a checkpoint with the keys of its saver."""
    reader, blob = tf.train.load_checkpoint(str(work / "model.ckpt")), opaque_key(recurrence)
    trained = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        module.build(use_gpu=True)
        meta_graph = tf.train.Saver().export_meta_graph()
    (folder / "model.ckpt.meta").write_bytes(reproducible_bytes(meta_graph))
    values = {}
    for key in saved_keys(graph):
        is_blob = key.startswith(blob)  # or what the optimizer keeps for it: opaque_kernel/Adam
        values[key] = packed(recurrence, trained, slot=key[len(blob) :]) if is_blob else trained[key]
    save(str(folder / "model.ckpt"), values)


def about(maker):
    return {"about": " ".join(maker.__doc__.split())}


def answered(module, folder, recurrence, outputs, examples):
    """Writes golden.npz; gives the case."""
    golden = {}
    with tf.Graph().as_default():
        module.build(use_gpu=False)
        saver = tf.train.Saver(tf.trainable_variables())
        with tf.Session() as session:
            saver.restore(session, str(folder / "model.ckpt"))
            for number, (feed, truth) in enumerate(examples):
                answers = session.run({name: name for name in outputs}, feed)
                found = {"truth": truth, **feed, **answers}
                golden.update({f"feed{number}/{name}": value for name, value in found.items()})
    np.savez_compressed(str(folder / "golden.npz"), **golden)
    with tf.Graph().as_default() as graph:
        module.build(use_gpu=True)
    layers = Layers([Layer(opaque_key(recurrence), recurrence)])
    return {
        "inputs": sorted(examples[0][0]),
        "outputs": outputs,
        "unreached": [],
        "flags": [],
        "recurrences": inference_recurrences(graph, outputs, layers),
    }
