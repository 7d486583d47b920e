"""What a beam search costs: `cudnn_convert.decode.beam_search` beside what a user would write.

| name | a search is |
|---|---|
| `loop` | `beam_search` in a `tf.function` |
| `unrolled` | the same steps one after another in a graph, with the paths' gathers |
| `python_paths` | the loop, whose tokens and parents Python follows back |
| `keras` | Keras layers called step by step from Python |

The model is an LSTM between an embedding and a softmax. Times of a search are compared in one process, one
call after another; `step` is as many calls of the step alone, at the batch of all beams. Set-up is building
the graph and its first call, of a small batch: it does not depend on the batch. Peak memory is that of a
process of its own.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any, Final

VOCABULARY, UNITS = 1350, 512
N, WIDTH, STEPS = 32, 32, 128
#: Steps for which set-up is measured.
SETUPS: Final = (16, 32, 64, 128)
SEARCHES: Final = ("loop", "unrolled", "python_paths", "keras")
START: Final = 1


def measured(*, threads: int, part: str, rounds: int, quick: bool) -> dict[str, Any]:
    """A part of the section: `times`, `setups`, or `memory NAME` of one search."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    n, width, steps = (3, 4, 6) if quick else (N, WIDTH, STEPS)
    kind, _, name = part.partition(" ")
    if kind == "times":
        return _times(Model(6 if quick else UNITS), n, width, steps, rounds)
    if kind == "setups":
        return _setups(rounds, (2, 3, 6) if quick else SETUPS)
    model = Model(6 if quick else UNITS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    search(name, model, n, width, steps)()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"before": before * 1024, "after": after * 1024}


class Model:
    """A language model with random weights: as a step of TensorFlow, and as layers of Keras."""

    def __init__(self, units: int) -> None:
        import numpy as np
        import tensorflow as tf

        rng = np.random.default_rng(7)
        sizes = {
            "embedding": (VOCABULARY, units),
            "kernel": (units, 4 * units),
            "recurrent_kernel": (units, 4 * units),
            "bias": (4 * units,),
            "softmax": (units, VOCABULARY),
            "softmax_bias": (VOCABULARY,),
        }
        self.units = units
        self.weights = {
            name: tf.Variable(rng.normal(size=size, scale=3 / units**0.5).astype(np.float32))
            for name, size in sizes.items()
        }

    def start(self, n: int) -> tuple[Any, Any]:
        import tensorflow as tf

        return tf.range(n) + START, (tf.zeros([n, self.units]), tf.zeros([n, self.units]))

    def step(self, tokens: Any, states: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        w, (h, c) = self.weights, states
        gates = tf.gather(w["embedding"], tokens) @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"]
        i, f, g, o = tf.split(gates, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        return tf.nn.log_softmax(h @ w["softmax"] + w["softmax_bias"]), (h, c)

    def keras_step(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        """The step made of Keras layers with the same weights."""
        import keras
        import tensorflow as tf

        embedding, cell = keras.layers.Embedding(VOCABULARY, self.units), keras.layers.LSTMCell(self.units)
        dense = keras.layers.Dense(VOCABULARY)
        w = {name: value.numpy() for name, value in self.weights.items()}
        tokens, states = self.start(1)
        dense(cell(embedding(tokens), states)[0])
        embedding.set_weights([w["embedding"]])
        cell.set_weights([w["kernel"], w["recurrent_kernel"], w["bias"]])
        dense.set_weights([w["softmax"], w["softmax_bias"]])

        def step(tokens: Any, states: Any) -> tuple[Any, Any]:
            h, states = cell(embedding(tokens), states)
            return tf.nn.log_softmax(dense(h)), tuple(states)

        return step


def search(name: str, model: Model, n: int, width: int, steps: int) -> Callable[[], Any]:
    """A call that searches and returns sequences `[n, width, steps]` and scores as NumPy arrays."""
    import tensorflow as tf

    from cudnn_convert import decode

    tokens, states = model.start(n)
    if name == "keras":
        step = model.keras_step()
        return lambda: _arrays(_by_hand(step, tokens, states, width, steps))
    if name == "unrolled":
        call = tf.function(lambda: _by_hand(model.step, tokens, states, width, steps), autograph=False)
        return lambda: _arrays(call())
    keeps = name == "python_paths"

    @tf.function(autograph=False)
    def loop() -> Any:
        found = decode.beam_search(model.step, tokens, states, width=width, steps=steps, keep_history=keeps)
        return (found.history, found.scores) if keeps else (found.sequences, found.scores)

    return (lambda: _paths_in_python(*loop())) if keeps else (lambda: _arrays(loop()))


def _arrays(found: Any) -> tuple[Any, Any]:
    return tuple(part.numpy() for part in found)


def _by_hand(step: Any, tokens: Any, states: Any, width: int, steps: int) -> tuple[Any, Any]:
    """A beam search without an end, each step after the other: how it is usually written."""
    import tensorflow as tf

    n = tokens.shape[0]
    tokens = tf.repeat(tokens, width)
    states = tuple(tf.repeat(state, width, 0) for state in states)
    scores = tf.tile([[0.0] + [float("-inf")] * (width - 1)], [n, 1])
    history = []
    for _ in range(steps):
        log_probs, states = step(tokens, states)
        totals = scores[:, :, None] + tf.reshape(log_probs, [n, width, -1])
        scores, best = tf.math.top_k(tf.reshape(totals, [n, -1]), width)
        parents, chosen = best // VOCABULARY, best % VOCABULARY
        rows = tf.reshape(tf.range(n)[:, None] * width + parents, [-1])
        states = tuple(tf.gather(state, rows) for state in states)
        tokens = tf.reshape(chosen, [-1])
        history.append((chosen, parents))
    slots, sequences = tf.tile(tf.range(width)[None], [n, 1]), []
    for chosen, parents in reversed(history):
        sequences.append(tf.gather(chosen, slots, batch_dims=1))
        slots = tf.gather(parents, slots, batch_dims=1)
    return tf.stack(sequences[::-1], 2), scores


def _paths_in_python(history: Any, scores: Any) -> tuple[Any, Any]:
    """Follow parents back example by example and beam by beam."""
    import numpy as np

    tokens, parents = history.tokens.numpy(), history.parents.numpy()
    n, steps, width = tokens.shape
    sequences = np.zeros((n, width, steps), np.int32)
    for example in range(n):
        for beam in range(width):
            slot = beam
            for number in reversed(range(steps)):
                sequences[example, beam, number] = tokens[example, number, slot]
                slot = parents[example, number, slot]
    return sequences, scores.numpy()


def _times(model: Model, n: int, width: int, steps: int, rounds: int) -> dict[str, Any]:
    """Seconds of each search and of the step alone, round by round, and the largest difference of scores."""
    import numpy as np
    import tensorflow as tf

    tokens, states = model.start(n * width)
    step = tf.function(model.step, autograph=False)

    def steps_alone() -> None:
        kept = states
        for _ in range(steps):
            log_probs, kept = step(tokens % VOCABULARY, kept)
        log_probs.numpy()

    tokens %= VOCABULARY
    calls = {name: search(name, model, n, width, steps) for name in SEARCHES}
    found = {name: call() for name, call in calls.items()}  # the first call sets up
    expected = found["loop"]
    apart = {
        name: float(np.abs(scores - expected[1]).max() / np.abs(expected[1]).max())
        for name, (_, scores) in found.items()
    }
    step(tokens, states)
    seconds: dict[str, list[float]] = {name: [] for name in ("step", *SEARCHES)}
    for _ in range(rounds):
        for name, call in {"step": steps_alone, **calls}.items():
            start = time.perf_counter()
            call()
            seconds[name].append(round(time.perf_counter() - start, 4))
        print(f"decoding: {seconds}", flush=True)
    return {"n": n, "width": width, "steps": steps, "seconds": seconds, "apart": apart}


def _setups(rounds: int, counts: tuple[int, ...]) -> dict[str, Any]:
    """Seconds until a graph has answered for the first time, by form and number of steps."""
    model = Model(8)
    search("loop", model, 2, 2, 3)()  # what TensorFlow itself sets up at the first call of a process
    found: dict[str, dict[str, list[float]]] = {"loop": {}, "unrolled": {}}
    for _ in range(rounds):
        for steps in counts:
            for name, times in found.items():
                start = time.perf_counter()
                search(name, model, 2, 2, steps)()
                times.setdefault(str(steps), []).append(round(time.perf_counter() - start, 4))
    return found
