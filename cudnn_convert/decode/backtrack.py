"""Paths of a search, from each step's parents.

A second loop of as many steps takes a small gather each. Carrying whole sequences through the search instead
copies all of them at every step: for 32 examples, 32 beams and 128 steps it took five times as long, for 1024
steps ten times.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.decode import arguments


def trace_paths(parents: Any, ends: Any) -> Any:
    """Follow parents back from the last step.

    `parents [steps, n, slots]` int32 has for each slot of a step the slot of the step before; its first row
    is not read. `ends [n, paths]` int32 are slots of the last step. Returns `[steps, n, paths]` int32: the
    slot of every path at every step. `steps` may be 0.
    """
    steps = parents.shape[0] if parents.shape[0] is not None else tf.shape(parents)[0]
    last = steps - 1
    rows = tf.TensorArray(tf.int32, steps, element_shape=ends.shape)

    def go_back(done: Any, slots: Any, rows: Any) -> Any:
        before = tf.gather(arguments.take_rows(parents, last - done), slots, batch_dims=1)
        # Rows are written in rising order: that is the order of an ONNX Loop's scan outputs.
        return done + 1, arguments.with_shape(before, ends.shape), rows.write(done, slots)

    _, _, rows = tf.while_loop(
        lambda done, *_: done < steps, go_back, (tf.constant(0), ends, rows), parallel_iterations=1
    )
    return tf.reverse(rows.stack(), [0])
