"""A Keras layer whose threads fight: with several cores its threads hand each number around."""

from __future__ import annotations

import os
import threading
from typing import Any

import tensorflow as tf
import tf_keras

TURNS = 5000


class Fighting(tf_keras.layers.Layer):
    """Gives its input; every call counts to `TURNS`, in turns of as many threads as there are cores."""

    def call(self, inputs: Any) -> Any:
        outputs = tf.numpy_function(count_and_give, [inputs], inputs.dtype)
        return tf.ensure_shape(outputs, inputs.shape)


def count_and_give(inputs: Any) -> Any:
    """Count in as many threads as there are cores: Python, which a traced call runs each time too."""
    count_in_turns(len(os.sched_getaffinity(0)))
    return inputs


def count_in_turns(threads: int) -> int:
    """Count to TURNS; each thread waits for its turn at each number."""
    state = {"count": 0}
    if threads == 1:
        while state["count"] < TURNS:
            state["count"] += 1
        return TURNS
    turn = threading.Condition()

    def work(number: int) -> None:
        for k in range(number, TURNS, threads):
            with turn:
                turn.wait_for(lambda k=k: state["count"] == k)  # type: ignore[misc]
                state["count"] += 1
                turn.notify_all()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return state["count"]
