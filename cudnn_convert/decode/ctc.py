"""Label sequences of CTC outputs: the best path, and prefix beam search.

A path has a class for each time step. Its label sequence is what remains when runs of the same class become
one and blanks go away (Graves et al. 2006, Connectionist Temporal Classification, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from cudnn_convert.decode import arguments
from cudnn_convert.decode.choices import Decoded


class CtcBeams(NamedTuple):
    """The label sequences of each example, best first.

    `sequences [n, width, time]` int32 with `pad` past each length, `lengths [n, width]` int32, and `scores
    [n, width]`, log probabilities. A beam whose score is minus infinity does not exist; it has length 0.
    """

    sequences: Any
    lengths: Any
    scores: Any


def ctc_greedy(log_probs: Any, lengths: Any = None, *, blank: int = -1, pad: int = 0) -> Decoded:
    """Read the label sequence of the best path, as tf.nn.ctc_greedy_decoder.

    `log_probs [n, time, classes]`; `lengths [n]` are steps in use, by default all. `blank` is a class: -1,
    the last, is TensorFlow's, 0 PyTorch's. Of equal classes the lower is chosen.

    Returns `sequences [n, time]` int32 with `pad` past each length, `lengths [n]` int32, and `scores [n]`,
    the log probability of the path. Raises ValueError where ranks and dtypes do not fit, or `blank` is no
    class.
    """
    log_probs, lengths, blank = _check(log_probs, lengths, blank, pad)
    time = tf.shape(log_probs)[1]
    values, classes = (part[:, :, 0] for part in tf.math.top_k(log_probs, 1))
    within = tf.sequence_mask(lengths, time)
    before = tf.concat([tf.fill(tf.stack([tf.shape(classes)[0], 1]), -1), classes[:, :-1]], 1)
    is_label = within & (classes != blank) & (classes != before)
    # Labels first, in order of time: those of the largest keys.
    keys = tf.where(is_label, time - tf.range(time), 0)
    sequences = tf.gather(classes, tf.math.top_k(keys, time).indices, batch_dims=1)
    count = tf.reduce_sum(tf.cast(is_label, tf.int32), 1)
    sequences = tf.where(tf.sequence_mask(count, time), sequences, pad)
    zero = tf.constant(0, log_probs.dtype)
    return Decoded(sequences, count, tf.reduce_sum(arguments.choose(within, values, zero), 1))


def ctc_beam(log_probs: Any, lengths: Any = None, *, width: int, blank: int = -1, pad: int = 0) -> CtcBeams:
    """Find the `width` most likely label sequences: prefix beam search.

    After each step the `width` prefixes with the largest probability are kept, summed over all their paths
    whose prefixes were kept too; with a width as large as the number of prefixes the answer is exact (Graves
    2012, Supervised Sequence Labelling with Recurrent Neural Networks, section 7.5.3; Hannun et al. 2014,
    First-Pass Large Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs). Of equal
    candidates that of the lower beam goes first, then the lower class, where a beam without a new label
    stands at its blank.

    Arguments and errors are those of `ctc_greedy`; `width` is at least 1.
    """
    width = arguments.check_count("width", width)
    log_probs, lengths, blank = _check(log_probs, lengths, blank, pad)
    search = _PrefixSearch(tf.transpose(log_probs, [1, 0, 2]), lengths, width, blank, pad)
    _, prefixes = tf.while_loop(
        lambda number, _: number < tf.shape(log_probs)[1], search.advance, (tf.constant(0), search.start())
    )
    scores = _add(prefixes.blank, prefixes.label)
    exists = scores > search.never
    count = tf.where(exists, prefixes.lengths, 0)
    within = tf.sequence_mask(count, tf.shape(log_probs)[1])
    return CtcBeams(tf.where(within, prefixes.labels, pad), count, scores)


def _check(log_probs: Any, lengths: Any, blank: Any, pad: Any) -> tuple[Any, Any, int]:
    log_probs = arguments.check_floats("log_probs", log_probs, "n time classes")
    classes = log_probs.shape[2]
    if classes is None:
        raise arguments.refuse("log_probs", "a known number of classes", arguments.describe(log_probs))
    if not -classes <= arguments.check_count("blank", blank, least=-classes) < classes:
        raise arguments.refuse("blank", f"a class below {classes}", blank)
    arguments.check_count("pad", pad, least=tf.int32.min)
    return log_probs, arguments.check_lengths(lengths, log_probs), int(blank) % classes


def _add(x: Any, y: Any) -> Any:
    """Return log(exp(x) + exp(y)), where both may be minus infinity."""
    most = tf.maximum(x, y)
    finite = tf.maximum(most, most.dtype.min)
    return finite + tf.math.log(tf.exp(x - finite) + tf.exp(y - finite))


def _choose(rows: Any, new: Any, old: Any) -> Any:
    """Return `new` in the true rows of `rows [n]`, elsewhere `old`."""
    is_new = tf.reshape(rows, [-1] + [1] * (old.shape.rank - 1))
    return (arguments.choose if old.dtype.is_floating else tf.where)(is_new, new, old)


class _Prefixes(NamedTuple):
    """The prefixes of each example, the most likely first.

    `labels [n, width, time]` with `lengths [n, width]`; `blank` and `label` `[n, width]` are the log
    probabilities of its paths that end in a blank and in its last label. `within [n, width, width]` is true
    where a prefix (the first index) begins another (the second), or is the same.
    """

    labels: Any
    lengths: Any
    blank: Any
    label: Any
    within: Any


@dataclass(frozen=True, slots=True)
class _PrefixSearch:
    """Prefix beam search of all examples together, on `log_probs [time, n, classes]`."""

    log_probs: Any
    steps: Any
    width: int
    blank: int
    pad: int

    @property
    def never(self) -> Any:
        """The log probability of nonexistent prefixes."""
        return arguments.never(self.log_probs.dtype)

    def start(self) -> _Prefixes:
        """Return a single empty prefix; the remaining beams are nonexistent."""
        time, n = tf.shape(self.log_probs)[0], tf.shape(self.log_probs)[1]
        static_time, static_n = self.log_probs.shape[:2]
        beams = tf.stack([n, self.width])
        first = tf.where(tf.range(self.width) == 0, tf.constant(0, self.log_probs.dtype), self.never)
        shape = [static_n, self.width]
        return _Prefixes(
            tf.ensure_shape(tf.fill(tf.stack([n, self.width, time]), self.pad), [*shape, static_time]),
            tf.ensure_shape(tf.zeros(beams, tf.int32), shape),
            tf.ensure_shape(tf.tile(first[None], tf.stack([n, 1])), shape),
            tf.ensure_shape(tf.fill(beams, self.never), shape),
            tf.ensure_shape(
                tf.tile(tf.eye(self.width, dtype=tf.bool)[None], tf.stack([n, 1, 1])), [*shape, self.width]
            ),
        )

    def advance(self, number: Any, old: _Prefixes) -> tuple[Any, _Prefixes]:
        """Add the classes of a step to the prefixes of all long enough rows."""
        blank, label, longer = self.extend(tf.gather(self.log_probs, number), old)
        stays = _add(blank, label)
        classes = self.log_probs.shape[2]
        totals = arguments.choose(tf.range(classes) == self.blank, stays[:, :, None], longer)
        flat = tf.reshape(totals, tf.stack([tf.shape(totals)[0], self.width * classes]))
        scores, best = tf.math.top_k(flat, self.width)
        parents, chosen = best // classes, best % classes
        is_longer = chosen != self.blank
        lengths = tf.gather(old.lengths, parents, batch_dims=1)
        is_new = is_longer[:, :, None] & (tf.range(tf.shape(old.labels)[2]) == lengths[:, :, None])
        new = _Prefixes(
            tf.where(is_new, chosen[:, :, None], tf.gather(old.labels, parents, batch_dims=1)),
            lengths + tf.cast(is_longer, tf.int32),
            tf.where(is_longer, self.never, tf.gather(blank, parents, batch_dims=1)),
            arguments.choose(is_longer, scores, tf.gather(label, parents, batch_dims=1)),
            self.relate(old, parents, chosen, is_longer),
        )
        in_use = number < self.steps
        new = _Prefixes(*(_choose(in_use, *pair) for pair in zip(new, old, strict=True)))
        return number + 1, _Prefixes(*arguments.keep_shapes(new, old))

    def extend(self, log_probs: Any, old: _Prefixes) -> tuple[Any, Any, Any]:
        """Return log probabilities after a step: of unchanged prefixes, and of prefixes a label longer.

        Of the same ones by their last class: a blank, or their last label, `[n, width]` each; longer ones are
        `[n, width, classes]`. A longer one that is a beam already goes into that beam.
        """
        classes = self.log_probs.shape[2]
        total = _add(old.blank, old.label)
        last = tf.gather(old.labels, tf.maximum(old.lengths - 1, 0), batch_dims=2)
        # No class is -1: an empty prefix has no last label.
        last = tf.where(old.lengths > 0, last, -1)
        is_last = last[:, :, None] == tf.range(classes)
        # A label that follows itself needs a blank between.
        longer = arguments.choose(is_last, old.blank[:, :, None], total[:, :, None]) + log_probs[:, None]
        label = old.label + tf.gather(log_probs, tf.maximum(last, 0), batch_dims=1)
        # [n, shorter, beam]: the beam is the shorter one and a label more, at most one for each beam.
        is_next = old.within & (old.lengths[:, None] == old.lengths[:, :, None] + 1)
        is_next &= total[:, None] > self.never
        from_shorter = tf.gather(
            longer, tf.tile(tf.maximum(last, 0)[:, None], tf.stack([1, self.width, 1])), batch_dims=2
        )
        label = _add(label, tf.reduce_max(tf.where(is_next, from_shorter, self.never), 1))
        is_beam = tf.cast(is_next, longer.dtype) @ tf.cast(is_last, longer.dtype) > 0
        longer = tf.where(is_beam, self.never, longer)
        return total + log_probs[:, None, self.blank], label, longer

    def relate(self, old: _Prefixes, parents: Any, chosen: Any, is_longer: Any) -> Any:
        """Return exactly the pairs of new prefixes where the first begins the second.

        They are never compared label by label. A new prefix begins another where its parent begins the
        other's, and its new label, if it has one, is the label that follows there. Two that are the same are
        the same beam.
        """
        begins = tf.gather(tf.gather(old.within, parents, batch_dims=1), parents, axis=2, batch_dims=1)
        parent_lengths = tf.gather(old.lengths, parents, batch_dims=1)
        longer_parent = parent_lengths[:, None] > parent_lengths[:, :, None]
        labels = tf.gather(old.labels, parents, batch_dims=1)
        at = tf.minimum(parent_lengths, tf.shape(labels)[2] - 1)
        following = tf.transpose(
            tf.gather(labels, tf.tile(at[:, None], tf.stack([1, self.width, 1])), batch_dims=2), [0, 2, 1]
        )
        follows = longer_parent & (following == chosen[:, :, None])
        return (begins & (~is_longer[:, :, None] | follows)) | tf.eye(self.width, dtype=tf.bool)
