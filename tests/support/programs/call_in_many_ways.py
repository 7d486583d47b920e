"""Calls a SavedModel in every way that a thread could wait for itself, and checks what each gives.

    python call_in_many_ways.py FOLDER FEEDS.npz INTRA INTER

FEEDS has the inputs of the signature, `expected` (its output `y`), a `direction` for the input `x`, and the
`slope`: how the sum of `y` changes along it. Prints the ways, one a line. Imports TensorFlow alone.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

folder, feeds_path, intra, inter = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
tf.config.threading.set_intra_op_parallelism_threads(intra)
tf.config.threading.set_inter_op_parallelism_threads(inter)
given = dict(np.load(feeds_path))
expected, direction, slope = (given.pop(key) for key in ("expected", "direction", "slope"))
v1 = tf.compat.v1


def check(way: str, values: Any, right: Any = expected) -> None:
    np.testing.assert_allclose(values, right, rtol=1e-4, atol=1e-4, err_msg=way)
    print(way, flush=True)


def in_sessions() -> None:
    config = v1.ConfigProto(intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter)
    with v1.Session(graph=tf.Graph(), config=config) as session:
        signature = v1.saved_model.load(session, ["serve"], folder).signature_def["serving_default"]
        feed = {signature.inputs[key].name: value for key, value in given.items()}
        fetch = signature.outputs["y"].name
        check("session", session.run(fetch, feed))
        with ThreadPoolExecutor(4) as callers:
            for y in callers.map(lambda _: session.run(fetch, feed), range(8)):
                check("session, four callers", y)


def as_functions() -> None:
    loaded = tf.saved_model.load(folder)
    tensors = {key: tf.constant(value) for key, value in given.items()}

    def model(**inputs: Any) -> Any:
        return tf.ensure_shape(loaded.signatures["serving_default"](**inputs)["y"], expected.shape)

    check("function", model(**tensors))
    with ThreadPoolExecutor(4) as callers:
        for y in callers.map(lambda _: model(**tensors), range(8)):
            check("function, four callers", y)

    @tf.function(autograph=False)
    def branch(taken: Any) -> Any:
        return tf.cond(taken, lambda: model(**tensors), lambda: tf.zeros(expected.shape))

    check("branch", branch(tf.constant(True)))

    @tf.function(autograph=False)
    def loop(times: Any) -> Any:
        def again(k: Any, y: Any) -> Any:
            return k + 1, tf.cond(k > 0, lambda: model(**tensors), lambda: y)

        return tf.while_loop(lambda k, _: k < times, again, (tf.constant(0), tf.zeros(expected.shape)))[1]

    check("branch in a loop", loop(tf.constant(3)))
    with tf.GradientTape() as tape:
        tape.watch(tensors["x"])
        total = tf.reduce_sum(model(**tensors))
    gradient = tape.gradient(total, tensors["x"])
    check("gradient", tf.reduce_sum(gradient * direction), slope)


in_sessions()
as_functions()
