"""Beam search over a model's steps, and the paths of a search from each step's parents.

Where values are equal, `tf.math.top_k` puts the lower index first (tensorflow v2.21.0
python/ops/nn_ops.py top_k), and so does ONNX's TopK (onnx, docs/Operators.md, TopK-11): of equal candidates,
flattened to `[n, width * candidates]`, that of the lower beam, then the lower token.

Paths are traced by a second loop of as many steps, which take a small gather each. Carrying whole sequences
through the search instead copies all of them at every step: for 32 examples, 32 beams and 128 steps it took
five times as long, for 1024 steps ten times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cudnn_convert.decode import arguments
from cudnn_convert.decode.arguments import SearchArguments, Step


class History(NamedTuple):
    """The choices of every step of a beam search, each `[n, steps, width]`.

    `tokens` are the last of each beam after the step, `parents` (int32) the beams before it that they
    continue, `scores` their sums so far. A beam that has ended continues itself with `pad`; so does one that
    does not exist.
    """

    tokens: Any
    parents: Any
    scores: Any


class BeamSearch(NamedTuple):
    """The sequences of each example, best first.

    `sequences [n, width, steps]` with `pad` after the end, in the dtype of the tokens; `lengths [n, width]`
    int32, the end token counted; `scores [n, width]`, sums of log probabilities before the length penalty;
    `history` where it was asked for, else None. A beam whose score is minus infinity does not exist: it is
    all `pad`, of length 0.
    """

    sequences: Any
    lengths: Any
    scores: Any
    history: History | None


def beam_search(
    step: Step,
    tokens: Any,
    states: Any,
    *,
    width: int,
    steps: int,
    end: int | None = None,
    pad: int = 0,
    length_penalty: float = 0.0,
    initial_scores: Any = None,
    pad_mask: Any = None,
    keep_history: bool = False,
) -> BeamSearch:
    """Find the `width` best sequences of at most `steps` tokens for each example.

    `step(tokens [m], states)` returns `log_probs [m, vocabulary]` and new states, of the same structure,
    dtypes and shapes; m is n * width, and the beams of an example lie side by side. `tokens [n]`, int32 or
    int64, are its first input; each of `states`, in any nesting of `tf.nest`, is `[n, ...]`.

    A beam that chose the token `end` keeps its score and emits `pad`, which may be any number. Beams are
    ranked by score / ((5 + length) / 6) ** length_penalty, the end token counted (Wu et al. 2016, Google's
    Neural Machine Translation System, equation 14); of equal ranks the lower beam goes first, then the lower
    token. `initial_scores [n, width]` are the scores of beams before the first step, by default 0 for the
    first and minus infinity for all others. `pad_mask`, `[vocabulary]` or `[n, vocabulary]`, is true for
    tokens that may never be chosen. Scores are float64 where a state or the initial scores are, else float32.

    The loop stops early once every beam of every example has ended or does not exist. A further step would
    change nothing: it has one candidate for each ended beam and no other, of the same score, length and so
    penalty, and equal ranks keep their order.

    Raises ValueError for a width below 1, or above the number of sequences there are; for other arguments
    that do not fit; for a step whose states change their structure, dtype or shape.
    """
    if initial_scores is not None:
        initial_scores = arguments.check_floats("initial_scores", initial_scores, "n width")
    rows = SearchArguments.of(tokens, states, end=end, pad=pad, pad_mask=pad_mask, scores=initial_scores)
    width, steps = arguments.check_count("width", width), arguments.check_count("steps", steps)
    penalty = arguments.check_number("length_penalty", length_penalty)
    n = tf.size(rows.tokens) if rows.tokens.shape[0] is None else rows.tokens.shape[0]
    search = _BeamLoop(rows, step, width, steps, penalty, initial_scores, n, _count(n)[:, None] * width)
    taken, beams, kept = tf.while_loop(
        search.goes_on, search.advance, (tf.constant(0), search.start(), search.arrays(keep_history))
    )
    return search.finish(taken, beams, kept)


def _count(size: Any) -> Any:
    """Return `[0, ..., size - 1]`, as a constant if the size is known.

    A constant is one node of a graph instead of many.
    """
    return np.arange(size, dtype=np.int32) if isinstance(size, int) else tf.range(size)


class _Beams(NamedTuple):
    """The values carried by the loop.

    `tokens [n * width]` and `states [n * width, ...]` are the next step's input, token 0 where a beam has
    ended; `scores` and `ended` are `[n, width]`, `ended` the length of a beam that has ended, 0 before; it is
    () where no token is an end. What beams that do not exist hold beside their scores is never read.
    """

    tokens: Any
    states: Any
    scores: Any
    ended: Any


@dataclass(frozen=True, slots=True)
class _BeamLoop:
    """The loop of a beam search: start, steps and end.

    `n` is the number of examples, `offsets [n, 1]` where the beams of each begin among all.
    """

    rows: SearchArguments
    step: Step
    width: int
    steps: int
    penalty: float
    initial_scores: Any
    n: Any
    offsets: Any

    @property
    def shape(self) -> Any:
        """The static shape `[n, width]`."""
        return tf.TensorShape([self.rows.tokens.shape[0], self.width])

    @property
    def can_end(self) -> bool:
        return self.rows.end is not None

    def for_each(self, row: Any) -> Any:
        """Return the array `row [width]` for each example: `[n, width]`."""
        if isinstance(self.n, int):
            return tf.constant(np.broadcast_to(row, [self.n, self.width]))
        return tf.ensure_shape(tf.broadcast_to(row, [self.n, self.width]), self.shape)

    def start(self) -> _Beams:
        scores = self.initial_scores
        if scores is None:
            first = [0.0] + [-math.inf] * (self.width - 1)
            scores = self.for_each(np.array(first, self.rows.dtype.as_numpy_dtype))
        elif not scores.shape.is_compatible_with(self.shape):
            wanted = tf.TensorSpec(self.shape, scores.dtype)
            raise arguments.refuse("initial_scores", arguments.describe(wanted), arguments.describe(scores))
        examples = tf.convert_to_tensor(_count(self.n * self.width) // self.width)
        return _Beams(
            arguments.take_rows(self.rows.tokens, examples),
            tf.nest.map_structure(lambda state: arguments.take_rows(state, examples), self.rows.states),
            arguments.with_shape(tf.cast(scores, self.rows.dtype), self.shape),
            self.for_each(np.zeros(self.width, np.int32)) if self.can_end else (),
        )

    def arrays(self, keep_history: bool) -> tuple[Any, ...]:
        """Return arrays of a row for each step: tokens and parents `[2, n, width]`.

        For a history there is one of scores too.
        """
        kinds = ((tf.int32, [2, *self.shape]), (self.rows.dtype, self.shape))[: 2 if keep_history else 1]
        return tuple(tf.TensorArray(kind, self.steps, element_shape=shape) for kind, shape in kinds)

    def goes_on(self, number: Any, beams: _Beams, _: Any) -> Any:
        """Return True if a remaining step may change something; the first is always taken."""
        if not self.can_end:
            return number < self.steps
        open_beams = (beams.ended == 0) & (beams.scores > self.rows.never)
        return (number < self.steps) & (tf.reduce_any(open_beams) | (number == 0))

    def advance(self, number: Any, beams: _Beams, kept: Any) -> tuple[Any, ...]:
        """Continue every beam by a token, and keep the best candidates."""
        log_probs, states = self.rows.call(self.step, beams.tokens, beams.states)
        self.check_width(log_probs.shape[1])
        following = number + 1
        scores, parents, tokens = self.choose(following, log_probs, beams)
        row, ended = (tf.stack([tokens, parents]), scores), beams.ended
        if self.can_end:
            ended = tf.gather(ended, parents, batch_dims=1)
            ended = tf.where(tokens == self.rows.end, following, ended)
            tokens = tf.maximum(tokens, 0)
        places = tf.reshape(self.offsets + parents, [-1])
        after = _Beams(
            tf.reshape(tf.cast(tokens, beams.tokens.dtype), [-1]),
            tf.nest.map_structure(lambda state: arguments.take_rows(state, places), states),
            scores,
            ended,
        )
        after = _Beams(*arguments.keep_shapes(after, beams))
        kept = tuple(array.write(number, value) for array, value in zip(kept, row, strict=False))
        return following, after, kept

    def choose(self, length: Any, log_probs: Any, beams: _Beams) -> tuple[Any, Any, Any]:
        """Choose the best candidates of each example: scores, parents and tokens `[n, width]`.

        `length` is that of a beam with a token more. Where sequences can end, each beam has a candidate more,
        the first: itself, if it has ended. Its token is -1.
        """
        rows, bias = self.rows, self.rows.bias
        vocabulary = log_probs.shape[1] or tf.shape(log_probs)[1]
        if bias is not None:
            if bias.shape.rank == 2:  # that of each example
                log_probs, bias = tf.reshape(log_probs, [-1, self.width, vocabulary]), bias[:, None]
            log_probs = tf.reshape(log_probs + bias, [-1, vocabulary])
        scores, lengths = tf.reshape(beams.scores, [-1, 1]), length
        if self.can_end:
            ended = tf.reshape(beams.ended, [-1, 1])
            has_ended = ended > 0
            itself = tf.where(has_ended, scores, rows.never)
            scores = tf.where(has_ended, rows.never, scores)
            lengths = tf.where(has_ended, ended, lengths)
        totals = scores + log_probs
        if self.can_end:
            totals = tf.concat([itself, totals], 1)
        candidates = vocabulary + int(self.can_end)
        shape = [-1, self.width * candidates]
        flat = tf.reshape(totals, shape)
        if self.penalty:
            ranks = totals / tf.gather(self.penalties(), lengths)
            best = tf.math.top_k(tf.reshape(ranks, shape), self.width).indices
            scores = tf.gather(flat, best, batch_dims=1)
        else:
            scores, best = tf.math.top_k(flat, self.width)
        tokens = best % candidates
        return scores, best // candidates, tokens - 1 if self.can_end else tokens

    def penalties(self) -> Any:
        """Return the divisors of scores by length, as constants.

        Runtimes need not round powers alike.
        """
        powers = [((5 + length) / 6) ** self.penalty for length in range(self.steps + 1)]
        return tf.constant(powers, self.rows.dtype)

    def check_width(self, vocabulary: int | None) -> None:
        """Refuse more beams than possible sequences, for a single initial beam."""
        if vocabulary is None or self.initial_scores is not None:
            return
        can_end, running, ended = int(self.can_end), 1, 0
        for _ in range(self.steps):
            running, ended = running * (vocabulary - can_end), ended + running * can_end
            if running + ended >= self.width:
                return
        most = (
            f"at most {running + ended}, as many as sequences of {self.steps} steps and {vocabulary} tokens"
        )
        raise arguments.refuse("width", most, self.width)

    def finish(self, taken: Any, beams: _Beams, kept: Any) -> BeamSearch:
        """Order the kept tokens, and fill in the steps after an early end."""
        slots, pad = self.for_each(_count(self.width)), self.rows.padding
        chosen, *scores = (array.stack()[:taken] if self.can_end else array.stack() for array in kept)
        numbers, parents = tf.unstack(chosen, axis=1)
        tokens = tf.cast(numbers, pad.dtype)
        if self.can_end:
            tokens = tf.where(numbers < 0, pad, tokens)
        paths, exists = trace_paths(parents, slots), beams.scores > self.rows.never
        sequences = tf.where(exists, tf.gather(tokens, paths, batch_dims=2), pad)
        lengths = tf.where(beams.ended > 0, beams.ended, taken) if self.can_end else taken
        lengths = tf.where(exists, lengths, 0)
        history = None
        if scores:
            existed = scores[0] > self.rows.never
            parts = (tf.where(existed, tokens, pad), tf.where(existed, parents, slots), *scores)
            rows = zip(parts, (pad, slots, beams.scores), strict=True)
            history = History(*(self.order(part, row, taken, [1, 0, 2]) for part, row in rows))
        return BeamSearch(self.order(sequences, pad, taken, [1, 2, 0]), lengths, beams.scores, history)

    def order(self, kept: Any, row: Any, taken: Any, axes: list[int]) -> Any:
        """Return `kept [taken, n, width]`, then `row`, `[n, width]` or `[]`, for each remaining step."""
        if self.can_end:
            rest = tf.broadcast_to(row, [self.steps - taken, self.n, self.width])
            kept = tf.concat([kept, rest], 0)
        return tf.transpose(arguments.with_shape(kept, [self.steps, *self.shape]), axes)


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
