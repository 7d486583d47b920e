"""Beam search over a model's steps.

Where values are equal, `tf.math.top_k` puts the lower index first (tensorflow v2.21.0
python/ops/nn_ops.py top_k), and so does ONNX's TopK (onnx, docs/Operators.md, TopK-11): of equal candidates,
flattened to `[n, width * candidates]`, that of the lower beam, then the lower token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from cudnn_convert.decode import arguments
from cudnn_convert.decode.arguments import Rows, Step
from cudnn_convert.decode.backtrack import trace_paths


class History(NamedTuple):
    """What every step of a beam search chose, each `[n, steps, width]`.

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
    search = _Search(
        Rows.of(tokens, states, end=end, pad=pad, pad_mask=pad_mask, scores=initial_scores),
        step,
        arguments.check_count("width", width),
        arguments.check_count("steps", steps),
        arguments.check_number("length_penalty", length_penalty),
        initial_scores,
    )
    taken, beams, kept = tf.while_loop(
        search.goes_on, search.advance, (tf.constant(0), search.start(), search.arrays(keep_history))
    )
    return search.finish(taken, beams, kept)


class _Beams(NamedTuple):
    """What the loop carries.

    `tokens [n * width]` and `states [n * width, ...]` are the next step's input, token 0 where no answer is
    read; `scores` and `ended` are `[n, width]`, `ended` the length of a beam that has ended, 0 before.
    """

    tokens: Any
    states: Any
    scores: Any
    ended: Any


@dataclass(frozen=True, slots=True)
class _Search:
    """What the loop begins with, what it does at a step, and what its end gives."""

    rows: Rows
    step: Step
    width: int
    steps: int
    penalty: float
    initial_scores: Any

    @property
    def n(self) -> Any:
        return tf.shape(self.rows.tokens)[0]

    @property
    def shape(self) -> Any:
        """The static shape `[n, width]`."""
        return tf.TensorShape([self.rows.tokens.shape[0], self.width])

    def start(self) -> _Beams:
        rows = self.rows
        scores = self.initial_scores
        if scores is None:
            scores = tf.where(tf.range(self.width) == 0, tf.constant(0, rows.dtype), rows.never)
            scores = tf.tile(scores[None], tf.stack([self.n, 1]))
        elif not scores.shape.is_compatible_with(self.shape):
            wanted = tf.TensorSpec(self.shape, scores.dtype)
            raise arguments.refuse("initial_scores", arguments.describe(wanted), arguments.describe(scores))
        return _Beams(
            tf.repeat(rows.tokens, self.width),
            tf.nest.map_structure(lambda state: tf.repeat(state, self.width, axis=0), rows.states),
            tf.ensure_shape(tf.cast(scores, rows.dtype), self.shape),
            tf.ensure_shape(tf.zeros(tf.stack([self.n, self.width]), tf.int32), self.shape),
        )

    def arrays(self, keep_history: bool) -> tuple[Any, ...]:
        """Arrays of a row `[n, width]` for each step: tokens, parents and, for a history, scores."""
        kinds = (self.rows.tokens.dtype, tf.int32, self.rows.dtype)[: 3 if keep_history else 2]
        return tuple(tf.TensorArray(kind, self.steps, element_shape=self.shape) for kind in kinds)

    def goes_on(self, number: Any, beams: _Beams, _: Any) -> Any:
        """Whether a step is left that may change something; the first is always taken."""
        if self.rows.end is None:
            return number < self.steps
        open_beams = (beams.ended == 0) & (beams.scores > self.rows.never)
        return (number < self.steps) & (tf.reduce_any(open_beams) | (number == 0))

    def advance(self, number: Any, beams: _Beams, kept: Any) -> tuple[Any, ...]:
        """Continue every beam by a token, and keep the best candidates."""
        log_probs, states = self.rows.call(self.step, beams.tokens, beams.states)
        self.check_width(log_probs.shape[1])
        scores, parents, tokens = self.choose(number, log_probs, beams)
        exists = scores > self.rows.never
        parents = tf.where(exists, parents, tf.range(self.width))
        ended = tf.gather(beams.ended, parents, batch_dims=1)
        goes_on = exists & (ended == 0)
        tokens = tf.cast(tokens, beams.tokens.dtype)
        if self.rows.end is not None:
            ended = tf.where(goes_on & (tokens == self.rows.end), number + 1, ended)
        row = (tf.where(goes_on, tokens, self.rows.padding), parents, scores)
        places = tf.reshape(tf.range(self.n)[:, None] * self.width + parents, [-1])
        after = _Beams(
            tf.reshape(tf.where(goes_on, tokens, 0), [-1]),
            tf.nest.map_structure(lambda state: tf.gather(state, places), states),
            scores,
            ended,
        )
        after = _Beams(*arguments.keep_shapes(after, beams))
        kept = tuple(array.write(number, value) for array, value in zip(kept, row, strict=False))
        return number + 1, after, kept

    def choose(self, number: Any, log_probs: Any, beams: _Beams) -> tuple[Any, Any, Any]:
        """The best candidates of each example: scores, parents and tokens `[n, width]`.

        Where sequences can end, each beam has a candidate more, the first: itself, if it has ended.
        """
        rows, bias, can_end = self.rows, self.rows.bias, self.rows.end is not None
        vocabulary = tf.shape(log_probs)[1]
        log_probs = tf.reshape(log_probs, tf.stack([self.n, self.width, vocabulary]))
        if bias is not None:
            log_probs += bias[:, None] if bias.shape.rank == 2 else bias
        has_ended = beams.ended > 0
        scores = tf.where(has_ended, rows.never, beams.scores) if can_end else beams.scores
        totals = scores[:, :, None] + log_probs
        if can_end:
            itself = tf.where(has_ended, beams.scores, rows.never)
            totals = tf.concat([itself[:, :, None], totals], 2)
        candidates = vocabulary + int(can_end)
        flat = tf.stack([self.n, self.width * candidates])
        if self.penalty:
            lengths = tf.where(has_ended, beams.ended, number + 1)
            ranks = totals / tf.gather(self.penalties(), lengths)[:, :, None]
            best = tf.math.top_k(tf.reshape(ranks, flat), self.width).indices
            scores = tf.gather(tf.reshape(totals, flat), best, batch_dims=1)
        else:
            scores, best = tf.math.top_k(tf.reshape(totals, flat), self.width)
        return scores, best // candidates, best % candidates - int(can_end)

    def penalties(self) -> Any:
        """What scores are divided by, by length: constants, for runtimes need not round powers alike."""
        powers = [((5 + length) / 6) ** self.penalty for length in range(self.steps + 1)]
        return tf.constant(powers, self.rows.dtype)

    def check_width(self, vocabulary: int | None) -> None:
        """Refuse more beams than there are sequences, where all begin as one."""
        if vocabulary is None or self.initial_scores is not None:
            return
        can_end, running, ended = int(self.rows.end is not None), 1, 0
        for _ in range(self.steps):
            running, ended = running * (vocabulary - can_end), ended + running * can_end
            if running + ended >= self.width:
                return
        most = (
            f"at most {running + ended}, as many as sequences of {self.steps} steps and {vocabulary} tokens"
        )
        raise arguments.refuse("width", most, self.width)

    def finish(self, taken: Any, beams: _Beams, kept: Any) -> BeamSearch:
        """Bring the tokens that were kept into order, and fill what the early end left out."""
        tokens, parents, *scores = (array.stack()[:taken] for array in kept)
        slots = tf.tile(tf.range(self.width)[None], tf.stack([self.n, 1]))
        slots = tf.ensure_shape(slots, self.shape)
        paths = trace_paths(parents, slots)
        exists = beams.scores > self.rows.never
        sequences = tf.where(exists, tf.gather(tokens, paths, axis=2, batch_dims=2), self.rows.padding)
        padding = tf.fill(tf.shape(slots), self.rows.padding)
        history = None
        if scores:
            last = (padding, slots, beams.scores)
            rows = zip((tokens, parents, scores[0]), last, strict=True)
            history = History(*(tf.transpose(self.fill(part, row, taken), [1, 0, 2]) for part, row in rows))
        lengths = tf.where(exists, tf.where(beams.ended > 0, beams.ended, taken), 0)
        sequences = tf.transpose(self.fill(sequences, padding, taken), [1, 2, 0])
        return BeamSearch(sequences, lengths, beams.scores, history)

    def fill(self, kept: Any, row: Any, taken: Any) -> Any:
        """`kept [taken, n, width]`, and `row [n, width]` for every step that was not taken."""
        rest = tf.tile(row[None], tf.stack([self.steps - taken, 1, 1]))
        return tf.ensure_shape(tf.concat([kept, rest], 0), [self.steps, *self.shape])
