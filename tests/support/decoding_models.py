"""A small model to decode: a machine whose next log probabilities depend on all it has read.

Its values are multiples of a fourth, so that sums are exact and many are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from support.decoding_judges import Array

#: How many places the machine has.
PLACES = 7


@dataclass(frozen=True)
class Machine:
    """`n` examples, each of which begins at a place of its own with a token of its own.

    The place follows the tokens; a second state remembers the last two of them, a third is a float.
    """

    vocabulary: int
    n: int
    seed: int
    dtype: str = "float32"

    @property
    def tables(self) -> tuple[Array, Array, Array]:
        """Log probabilities by place and by the token before the last, and the place after a token."""
        rng = np.random.default_rng(self.seed)
        levels = np.array([0, -0.25, -0.5, -0.75, -1, -1.5, -3, -np.inf])
        chances = [0.15, 0.2, 0.15, 0.15, 0.1, 0.1, 0.1, 0.05]
        by_place = rng.choice(levels, (PLACES, self.vocabulary), p=chances)
        by_token = rng.choice(levels[:-1], (self.vocabulary, self.vocabulary))
        return by_place, by_token, rng.integers(PLACES, size=(PLACES, self.vocabulary))

    @property
    def tokens(self) -> Array:
        return (np.arange(self.n) % self.vocabulary).astype(np.int32)

    @property
    def states(self) -> dict[str, Any]:
        places = (np.arange(self.n) * 3 + 1) % PLACES
        recent = np.stack([self.tokens, (self.tokens + 1) % self.vocabulary], 1)
        return {"place": places, "more": (recent, np.zeros((self.n, 1), self.dtype))}

    def step(self, tokens: Any, states: Any) -> tuple[Any, Any]:
        by_place, by_token, moves = map(tf.constant, self.tables)
        recent, total = states["more"]
        place = tf.gather_nd(moves, tf.stack([states["place"], tf.cast(tokens, tf.int64)], 1))
        recent = tf.stack([recent[:, 1], tf.cast(tokens, recent.dtype)], 1)
        log_probs = tf.gather(by_place, place) + tf.gather(by_token, recent[:, 0])
        total += tf.cast(tokens, total.dtype)[:, None]
        return tf.cast(log_probs, self.dtype), {"place": place, "more": (recent, total)}

    def log_probs(self, example: int, prefix: tuple[int, ...]) -> Array:
        """Those after the example's first token and a prefix."""
        by_place, by_token, moves = self.tables
        place = self.states["place"][example]
        before, last = self.states["more"][0][example]
        for token in (self.tokens[example], *prefix):
            place = moves[place, token]
            before, last = last, token
        return by_place[place] + by_token[before]


def bigrams(log_probs: Any) -> Any:
    """A step without states, from `[vocabulary, vocabulary]`."""
    table = tf.constant(log_probs, tf.float32)
    return lambda tokens, states: (tf.gather(table, tokens), states)
