"""What decoders should answer, in NumPy and Python: by definition, example by example, without a graph.

A search is judged on prefixes: `log_probs(example, prefix)` gives those of the next token, computed from the
whole prefix, so that no state is carried and none can be mixed up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LogProbs = Callable[[int, tuple[int, ...]], Array]


class Beam(NamedTuple):
    """A sequence so far, with what a step made of it; without a sequence its score is minus infinity."""

    tokens: tuple[int, ...]
    score: Any
    ended: bool
    parent: int
    emitted: int


@dataclass(frozen=True)
class Rules:
    """The arguments of a search; `mask [n, vocabulary]`, `initial [n, width]`, `dtype` that of the scores."""

    width: int
    steps: int
    end: int | None
    pad: int
    penalty: float = 0.0
    mask: Array | None = None
    initial: Array | None = None
    dtype: Any = np.float32

    def rank(self, beam: Beam) -> Any:
        """A score with its length penalty, rounded once, as a division of the scores' dtype."""
        return self.dtype(beam.score) / self.dtype(((5 + len(beam.tokens)) / 6) ** self.penalty)


def beam_search(log_probs: LogProbs, n: int, rules: Rules) -> dict[str, Array]:
    """Sequences, lengths and scores of all examples, and each step's tokens, parents and scores."""
    found = [_search(log_probs, example, rules) for example in range(n)]
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _search(log_probs: LogProbs, example: int, rules: Rules) -> dict[str, Array]:
    width, pad = rules.width, rules.pad
    first = [0.0] + [-math.inf] * (width - 1) if rules.initial is None else rules.initial[example]
    beams = [Beam((), rules.dtype(score), False, 0, pad) for score in first]
    history = []
    for _ in range(rules.steps):
        candidates = []
        for parent, beam in enumerate(beams):
            candidates += _candidates(log_probs, example, parent, beam, rules)
        # A stable sort: they stand in the order of their parents, then of their tokens.
        beams = sorted(candidates, key=lambda beam: -rules.rank(beam))[:width]
        beams += [Beam((), rules.dtype(-math.inf), False, slot, pad) for slot in range(len(beams), width)]
        history.append(beams)
    rows = [[*beam.tokens, *[pad] * (rules.steps - len(beam.tokens))] for beam in beams]
    return {
        "sequences": np.array(rows),
        "lengths": np.array([len(beam.tokens) for beam in beams]),
        "scores": np.array([beam.score for beam in beams]),
        "tokens": np.array([[beam.emitted for beam in step] for step in history]),
        "parents": np.array([[beam.parent for beam in step] for step in history]),
        "sums": np.array([[beam.score for beam in step] for step in history]),
    }


def _candidates(log_probs: LogProbs, example: int, parent: int, beam: Beam, rules: Rules) -> list[Beam]:
    if beam.score == -math.inf:
        return []
    if beam.ended:
        return [beam._replace(parent=parent, emitted=rules.pad)]
    following = [
        Beam((*beam.tokens, token), rules.dtype(beam.score + gain), token == rules.end, parent, token)
        for token, gain in enumerate(log_probs(example, beam.tokens))
        if rules.mask is None or not rules.mask[example][token]
    ]
    return [after for after in following if after.score > -math.inf]


def all_sequences(log_probs: LogProbs, example: int, vocabulary: int, rules: Rules) -> list[Beam]:
    """Every sequence there is, the best first."""
    found = []
    for tokens in product(range(vocabulary), repeat=rules.steps):
        length = tokens.index(rules.end) + 1 if rules.end in tokens else rules.steps
        if any(token != 0 for token in tokens[length:]):
            continue  # the same sequence again
        gains = [log_probs(example, tokens[:at])[token] for at, token in enumerate(tokens[:length])]
        found.append(Beam(tokens[:length], sum(gains), rules.end in tokens, 0, 0))
    return sorted(found, key=lambda beam: -rules.rank(beam))


def sample(
    log_probs: LogProbs,
    example: int,
    noise: Sequence[float],
    rules: Rules,
    *,
    top_k: int | None,
    temperature: float,
) -> tuple[list[int], float]:
    """The tokens that noise draws from cumulative probabilities, and the sum of their log probabilities."""
    tokens: tuple[int, ...] = ()
    total = 0.0
    for number in noise:
        given = np.array(log_probs(example, tokens), np.float64)
        if rules.mask is not None:
            given[rules.mask[example]] = -np.inf
        order = np.arange(len(given)) if top_k is None else np.argsort(-given, kind="stable")[:top_k]
        if given[order].max() == -np.inf:
            return [rules.pad] * len(noise), -np.inf
        weights = np.exp(given[order] / temperature)
        token = order[np.flatnonzero(np.cumsum(weights / weights.sum()) > number)[0]]
        tokens, total = (*tokens, int(token)), total + given[token]
        if token == rules.end:
            break
    return [*tokens, *[rules.pad] * (len(noise) - len(tokens))], total


def labels_of(path: Sequence[int], blank: int) -> tuple[int, ...]:
    """The label sequence of a path: runs become one, then blanks go."""
    return tuple(label for label, _ in groupby(path) if label != blank)


def ctc_by_definition(log_probs: Array, blank: int) -> dict[tuple[int, ...], float]:
    """The log probability of each label sequence, summed over all paths of `log_probs [time, classes]`."""
    sums: dict[tuple[int, ...], float] = defaultdict(lambda: -math.inf)
    time, classes = log_probs.shape
    for path in product(range(classes), repeat=time):
        labels = labels_of(path, blank)
        sums[labels] = np.logaddexp(sums[labels], sum(log_probs[t, c] for t, c in enumerate(path)))
    return dict(sums)


def ctc_beam(log_probs: Array, width: int, blank: int) -> list[tuple[tuple[int, ...], float]]:
    """Prefix beam search over `log_probs [time, classes]`, in a dictionary of prefixes."""
    beams = {(): (0.0, -math.inf)}  # of paths that end in a blank, and in the last label
    for row in log_probs:
        after: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (-math.inf, -math.inf))
        for prefix, (in_blank, in_label) in beams.items():
            total = np.logaddexp(in_blank, in_label)
            for label, gain in enumerate(row):
                if label == blank:
                    after[prefix] = (np.logaddexp(after[prefix][0], total + gain), after[prefix][1])
                    continue
                repeats = prefix[-1:] == (label,)
                if repeats:
                    after[prefix] = (after[prefix][0], np.logaddexp(after[prefix][1], in_label + gain))
                longer = (*prefix, label)
                start = in_blank if repeats else total
                after[longer] = (after[longer][0], np.logaddexp(after[longer][1], start + gain))
        best = sorted(after.items(), key=lambda item: -np.logaddexp(*item[1]))[:width]
        beams = {prefix: sums for prefix, sums in best if np.logaddexp(*sums) > -math.inf}
    return [(prefix, float(np.logaddexp(*sums))) for prefix, sums in beams.items()]


def viterbi(scores: Array, transitions: Array, start: Array, stop: Array) -> tuple[tuple[int, ...], float]:
    """The best tag sequence of `scores [time, tags]`: of equal ones by the last tag, and so on back."""
    time, tags = scores.shape
    if not time:
        return (), 0.0
    totals = {
        path: start[path[0]]
        + stop[path[-1]]
        + sum(scores[t, tag] for t, tag in enumerate(path))
        + sum(transitions[a, b] for a, b in pairwise(path))
        for path in product(range(tags), repeat=time)
    }
    best = max(totals.values())
    return min((path for path in totals if totals[path] == best), key=lambda path: path[::-1]), best
