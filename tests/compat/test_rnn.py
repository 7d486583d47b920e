"""What `tf.contrib.rnn` has: stacks of bidirectional layers, as loops and unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.compat import rnn

v1 = tf.compat.v1


def test_an_unrolled_stack_computes_as_the_loop() -> None:
    x = np.random.default_rng(3).normal(size=(2, 4, 3)).astype(np.float32)
    answers = []
    for is_unrolled in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            forward, backward = ([rnn.LSTMBlockCell(5) for _ in range(2)] for _ in range(2))
            given: dict[str, Any] = {"dtype": tf.float32}
            with v1.variable_scope("s", initializer=v1.constant_initializer(0.1)):
                if is_unrolled:
                    steps = tf.unstack(tf.constant(x), axis=1)
                    outputs, *states = rnn.stack_bidirectional_rnn(forward, backward, steps, **given)
                    outputs = tf.stack(outputs, axis=1)
                else:
                    outputs, *states = rnn.stack_bidirectional_dynamic_rnn(forward, backward, x, **given)
            v1.global_variables_initializer().run()
            answers.append(session.run([outputs, *states[0], *states[1]]))
    for looped, unrolled in zip(*answers, strict=True):
        np.testing.assert_allclose(looped, unrolled, atol=1e-6)
