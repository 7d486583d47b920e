"""Sequence to sequence: an encoder of cuDNN, and tf.contrib.seq2seq's decoders of plain cells."""
import os

import numpy as np
import tensorflow as tf

from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case
from tf1_fixtures.weights import seeded

WORDS, UNITS, START, END = 9, 5, 1, 2
FEEDS = ([[3, 4, 5, 6], [7, 8, 3, 2], [4, 4, 8, 7]], [[5, 3, 8, 7, 6, 4], [8, 2, 3, 3, 5, 7]])


def decode_attention(rnn):
    """Greedy dynamic_decode, at most six words, of a cell with attention over the encoder's outputs."""
    decoder = decoder_of(rnn, lambda cell, state, batch, embed, output: tf.contrib.seq2seq.BasicDecoder(
        cell, tf.contrib.seq2seq.GreedyEmbeddingHelper(embed, tf.fill([batch], START), END), state, output
    ), attends=True)
    outputs, _, _ = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    tf.identity(outputs.rnn_output, name="scores")
    tf.identity(outputs.sample_id, name="words")
    return Case(["scores:0", "words:0"], [{"ids:0": fed} for fed in FEEDS])


def decode_beam(rnn):
    """dynamic_decode with a BeamSearchDecoder of width three: the words of every beam."""
    decoder = decoder_of(rnn, lambda cell, state, batch, embed, output: tf.contrib.seq2seq.BeamSearchDecoder(
        cell, embed, tf.fill([batch], START), END, tf.contrib.seq2seq.tile_batch(state, 3), 3, output_layer=output
    ))
    outputs, _, _ = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    tf.identity(outputs.predicted_ids, name="words")
    return Case(["words:0"], [{"ids:0": fed} for fed in FEEDS], flags=["--outputs", "words:0"])


def gather_tree():
    """What the op GatherTree gives for random beams that change places, end early, or are shorter than others."""
    for number, (steps, batch, width) in enumerate([(7, 4, 3), (1, 2, 5), (5, 3, 1)]):
        random = seeded("gather_tree %d" % number)
        ids, parents = random.randint(WORDS, size=(steps, batch, width)), random.randint(width, size=(steps, batch, width))
        yield ids.astype(np.int32), parents.astype(np.int32), random.randint(-1, steps + 3, batch).astype(np.int32)


def record_tree(build, folder):
    """No model: the arrays of each call, and the op's answer."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    found = {}
    with tf.Graph().as_default(), tf.Session() as session:
        for number, (ids, parents, lengths) in enumerate(build()):
            beams = session.run(tf.contrib.seq2seq.gather_tree(ids, parents, lengths, END))
            arrays = {"ids": ids, "parents": parents, "lengths": lengths, "end": np.int32(END), "beams": beams}
            found.update({"call%d/%s" % (number, name): value for name, value in arrays.items()})
    np.savez_compressed(os.path.join(folder, "golden.npz"), **found)


def decoder_of(rnn, make, attends=False):
    """A decoder that `make` makes: it begins where an encoder of the ids ends."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    batch = tf.shape(ids)[0]
    table = tf.get_variable("embedding", [WORDS, 4])
    encoded, (h, c) = rnn.layer("lstm", 1, UNITS)(swap_batch(tf.nn.embedding_lookup(table, ids)), training=False)
    state = tf.nn.rnn_cell.LSTMStateTuple(tf.reshape(c, [batch, UNITS]), tf.reshape(h, [batch, UNITS]))
    with tf.variable_scope("decoder"):
        cell = tf.nn.rnn_cell.LSTMCell(UNITS, name="cell")
        if attends:
            memory = tf.reshape(swap_batch(encoded), [batch, -1, UNITS])
            attention = tf.contrib.seq2seq.BahdanauAttention(4, memory)
            cell = tf.contrib.seq2seq.AttentionWrapper(cell, attention, attention_layer_size=6)
            state = cell.zero_state(batch, tf.float32).clone(cell_state=state)
        output = tf.layers.Dense(WORDS, name="output")
        return make(cell, state, batch, lambda words: tf.nn.embedding_lookup(table, words), output)


CASES_1_15 = (decode_attention, decode_beam, gather_tree)
