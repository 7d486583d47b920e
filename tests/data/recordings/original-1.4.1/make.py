"""Writes model.ckpt and feeds.npz into this folder; for TensorFlow 1.4, Python 3.6.

Then `python record_tf1.py ./model.ckpt --data feeds.npz --out golden.npz --outputs logits`.
"""

import numpy as np
import tensorflow as tf

x = tf.placeholder(tf.float32, [None, None, 3], "x")
lengths = tf.placeholder(tf.int32, [None], "lengths")
cell = tf.contrib.rnn.LSTMBlockFusedCell(5, use_peephole=True)
_, (c, h) = cell(x, dtype=tf.float32, sequence_length=lengths)
tf.identity(tf.layers.dense(tf.concat([h, c], 1), 2), "logits")
saver = tf.train.Saver()
rng = np.random.RandomState(3)
with tf.Session() as session:
    for variable in tf.global_variables():
        variable.load(rng.uniform(-0.8, 0.8, variable.shape.as_list()).astype(np.float32), session)
    saver.save(session, "./model.ckpt", write_state=False)
feeds = {"feed0/x": rng.randn(7, 3, 3), "feed0/lengths": np.array([7, 2, 5])}
feeds.update({"feed1/x": rng.randn(4, 2, 3), "feed1/lengths": np.array([1, 4])})
np.savez("feeds.npz", **feeds)
