"""Greedy search and sampling over a model's steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cudnn_convert.decode import arguments
from cudnn_convert.decode.arguments import SearchArguments, Step


class Decoded(NamedTuple):
    """A sequence for each example.

    `sequences [n, steps]` with `pad` after the end, in the dtype of the tokens; `lengths [n]` int32, the end
    token counted; `scores [n]`. An example that ran out of tokens it may choose has the score minus infinity:
    it is all `pad`, of length 0.
    """

    sequences: Any
    lengths: Any
    scores: Any


def greedy(
    step: Step,
    tokens: Any,
    states: Any,
    *,
    steps: int,
    end: int | None = None,
    pad: int = 0,
    pad_mask: Any = None,
) -> Decoded:
    """Choose the most likely token at every step, of equal tokens the lower.

    Arguments and errors are those of `beam_search`, and so is the answer, of its width 1; `scores [n]` are
    sums of log probabilities. The loop stops early once every example has ended.
    """
    rows = SearchArguments.of(tokens, states, end=end, pad=pad, pad_mask=pad_mask)
    steps = arguments.check_count("steps", steps)
    return _decode(rows, step, steps, lambda log_probs, number: tf.math.top_k(log_probs, 1).indices)


def sample(
    step: Step,
    tokens: Any,
    states: Any,
    noise: Any,
    *,
    top_k: int | None = None,
    temperature: float = 1.0,
    end: int | None = None,
    pad: int = 0,
    pad_mask: Any = None,
) -> Decoded:
    """Draw a token at every step by given noise: equal noise draws equal tokens.

    `noise [n, steps]` is uniform in [0, 1). A token's probability is in proportion to exp(log_probs /
    temperature); with `top_k`, that of all but the `top_k` most likely is 0. Tokens stand in the order of the
    vocabulary, with `top_k` the most likely first, and the first whose cumulative probability exceeds the
    noise is drawn. Other arguments and errors are those of `beam_search`. `scores [n]` are sums of the step's
    log probabilities as they are, without temperature and `top_k`.
    """
    rows = SearchArguments.of(tokens, states, end=end, pad=pad, pad_mask=pad_mask)
    noise = tf.cast(arguments.check_floats("noise", noise, "n steps"), rows.dtype)
    if not noise.shape[:1].is_compatible_with(rows.tokens.shape):
        raise arguments.refuse("noise", f"a row for each of {rows.tokens.shape[0]} tokens", noise.shape[0])
    if arguments.check_number("temperature", temperature) <= 0:
        raise arguments.refuse("temperature", "a number above 0", temperature)
    if top_k is not None:
        arguments.check_count("top_k", top_k)

    def choose(log_probs: Any, number: Any) -> Any:
        if top_k is None:
            return _draw(log_probs / temperature, tf.gather(noise, number, axis=1))
        if log_probs.shape[1] is not None and top_k > log_probs.shape[1]:
            raise arguments.refuse(
                "top_k", f"at most {log_probs.shape[1]}, the size of the vocabulary", top_k
            )
        values, likely = tf.math.top_k(log_probs, top_k)
        return tf.gather(likely, _draw(values / temperature, tf.gather(noise, number, axis=1)), batch_dims=1)

    steps = noise.shape[1] if noise.shape[1] is not None else tf.shape(noise)[1]
    return _decode(rows, step, steps, choose)


def _draw(log_weights: Any, noise: Any) -> Any:
    """Draw indices `[n, 1]` into `log_weights [n, m]` by `noise [n]`."""
    weights = tf.exp(log_weights - tf.reduce_max(log_weights, 1, keepdims=True))
    sums = tf.cumsum(weights, 1)
    total = sums[:, -1:]
    below = tf.reduce_sum(tf.cast(sums <= noise[:, None] * total, tf.int32), 1, keepdims=True)
    # The product may round up to the total: then it is the last index of a weight above 0.
    return tf.minimum(below, tf.reduce_sum(tf.cast(sums < total, tf.int32), 1, keepdims=True))


class _Loop(NamedTuple):
    """The values carried by the loop: the next step's input, and `scores [n]`.

    The token is 0 where no answer is read. `ended [n]` is the length of an example that has ended, 0 before.
    """

    tokens: Any
    states: Any
    scores: Any
    ended: Any


def _decode(rows: SearchArguments, step: Step, steps: Any, choose: Callable[[Any, Any], Any]) -> Decoded:
    """Follow the choices `[n, 1]` of `choose(log_probs [n, vocabulary], number)`, step by step."""
    shape = rows.tokens.shape

    def goes_on(number: Any, loop: _Loop, _: Any) -> Any:
        if rows.end is None:
            return number < steps
        is_open = (loop.ended == 0) & (loop.scores > rows.never)
        return (number < steps) & (tf.reduce_any(is_open) | (number == 0))

    def advance(number: Any, loop: _Loop, kept: Any) -> tuple[Any, ...]:
        log_probs, states = rows.call(step, loop.tokens, loop.states)
        if rows.bias is not None:
            log_probs += rows.bias
        chosen = choose(log_probs, number)
        gains = tf.gather(log_probs, chosen, batch_dims=1)[:, 0]
        has_ended = loop.ended > 0
        scores = arguments.choose(has_ended, loop.scores, loop.scores + gains)
        goes_on = (scores > rows.never) & ~has_ended
        tokens, ended = tf.cast(chosen[:, 0], rows.tokens.dtype), loop.ended
        if rows.end is not None:
            ended = tf.where(goes_on & (tokens == rows.end), number + 1, ended)
        after = _Loop(tf.where(goes_on, tokens, 0), states, scores, ended)
        after = _Loop(*arguments.keep_shapes(after, loop))
        return number + 1, after, kept.write(number, tf.where(goes_on, tokens, rows.padding))

    n = tf.shape(rows.tokens)[0]
    start = _Loop(
        rows.tokens, rows.states, tf.zeros_like(rows.tokens, rows.dtype), tf.zeros_like(rows.tokens, tf.int32)
    )
    kept = tf.TensorArray(rows.tokens.dtype, steps, element_shape=shape)
    taken, loop, kept = tf.while_loop(goes_on, advance, (tf.constant(0), start, kept))
    exists = loop.scores > rows.never
    sequences = tf.where(exists, kept.stack()[:taken], rows.padding)
    rest = tf.fill(tf.stack([steps - taken, n]), rows.padding)
    sequences = tf.transpose(tf.concat([sequences, rest], 0))
    if isinstance(steps, int):
        sequences = arguments.with_shape(sequences, [shape[0], steps])
    lengths = tf.where(exists, tf.where(loop.ended > 0, loop.ended, taken), 0)
    return Decoded(sequences, lengths, loop.scores)
