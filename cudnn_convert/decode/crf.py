"""The best tag sequences of a linear-chain CRF."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.decode import arguments
from cudnn_convert.decode.beams import trace_paths
from cudnn_convert.decode.choices import Decoded


def viterbi(
    scores: Any, transitions: Any, lengths: Any = None, *, start: Any = None, stop: Any = None, pad: int = 0
) -> Decoded:
    """Find the best sequence of tags for each example, as tensorflow 1.15's tf.contrib.crf.crf_decode.

    `scores [n, time, tags]` are a CRF's unary scores (logits, in any unit), `transitions [tags, tags]` those
    of a tag (row) before another (column); `start [tags]` and `stop [tags]` are added at the first and the
    last step. `lengths [n]` are steps in use, by default all. Of equal sequences it is the one whose last tag
    is the lowest, then the one before it, and so on.

    Returns `sequences [n, time]` int32 with `pad` past each length, `lengths [n]` int32, and `scores [n]`,
    the sum of a sequence's scores. A row of length 0 has the score 0. Raises ValueError where ranks, dtypes
    or numbers of tags do not fit.
    """
    scores = arguments.check_floats("scores", scores, "n time tags")
    arguments.check_count("pad", pad, least=tf.int32.min)
    tags = scores.shape[2]
    transitions = _check_tags("transitions", transitions, "tags tags", tags, scores.dtype)
    n, time = tf.shape(scores)[0], tf.shape(scores)[1]
    lengths = arguments.check_lengths(lengths, scores)
    rows = tf.transpose(scores, [1, 0, 2])
    first = rows[0] if start is None else rows[0] + _check_tags("start", start, "tags", tags, scores.dtype)
    into = tf.transpose(transitions)[None]
    itself = tf.tile(tf.range(tf.shape(scores)[2])[None], tf.stack([n, 1]))
    itself = tf.ensure_shape(itself, first.shape)

    def advance(number: Any, best: Any, kept: Any) -> tuple[Any, ...]:
        values, before = tf.math.top_k(
            best[:, None] + into, 1
        )  # [n, tag, tag before]: the best, then the lower
        within = (number + 1 < lengths)[:, None]
        after = arguments.choose(
            within, values[:, :, 0] + tf.gather(rows, tf.minimum(number + 1, time - 1)), best
        )
        parents = tf.where(within, before[:, :, 0], itself)
        return number + 1, arguments.keep_shape("scores", after, best), kept.write(number, parents)

    # Row by row from 0, as an ONNX Loop's outputs; the last row leads past the end, into nothing.
    parents = tf.TensorArray(tf.int32, time, element_shape=first.shape)
    _, best, parents = tf.while_loop(
        lambda number, *_: number < time, advance, (tf.constant(0), first, parents)
    )
    parents = tf.concat([itself[None], parents.stack()[:-1]], 0)
    if stop is not None:
        best += _check_tags("stop", stop, "tags", tags, scores.dtype)
    totals, last = tf.math.top_k(best, 1)
    paths = trace_paths(parents, last)[:, :, 0]
    within = tf.sequence_mask(lengths, time)
    total = arguments.choose(lengths > 0, totals[:, 0], tf.constant(0, scores.dtype))
    return Decoded(tf.where(within, tf.transpose(paths), pad), lengths, total)


def _check_tags(where: str, value: Any, dims: str, tags: int | None, dtype: Any) -> Any:
    value = tf.cast(arguments.check_floats(where, value, dims), dtype)
    if not all(size in (None, tags) for size in value.shape) and tags is not None:
        raise arguments.refuse(where, f"{tags} tags, as scores have", arguments.describe(value))
    return value
