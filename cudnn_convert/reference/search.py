"""Searches over a model's steps, example by example in NumPy, with the effect of rounding.

It finds what a search should find, and what rounding may turn. The judge of decoders, so it shares no code
with them: candidates of an example are listed and sorted, and sequences are kept whole, without parents to
follow back. Beside each path a second one is carried, whose states are moved by rounding at every step: how
far its score goes away is the noise of the scores.

Sources: Wu et al. 2016, Google's Neural Machine Translation System, equation 14 (the length penalty);
docs/tutorials/decoding.md for ties, ends and padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Takes tokens [m] and states, each with its rows first; gives log probabilities [m, vocabulary] in float64.
Step = Callable[[Array, Sequence[Array]], tuple[Array, list[Array]]]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a search: beams by score, or a sample by `noise [n, steps]`.

    `noise` is None for a search by score. `mask [n, vocabulary]` is true for tokens that are never chosen.
    `scores [n, width]` are those that beams begin with, by default 0 for the first alone.
    """

    width: int
    steps: int
    end: int | None = None
    pad: int = 0
    penalty: float = 0.0
    noise: Array | None = None
    top_k: int | None = None
    temperature: float = 1.0
    mask: Array | None = None
    scores: Array | None = None

    def begin(self, row: int) -> list[Path]:
        """Return the empty paths of an example."""
        scores = [0.0] + [-np.inf] * (self.width - 1) if self.scores is None else self.scores[row]
        return [Path(score=float(score), other=float(score)) for score in scores]

    def rank(self, score: Any, length: Any) -> Any:
        """Return the sorting value of beams."""
        return score / ((5.0 + length) / 6.0) ** self.penalty


@dataclass(frozen=True, slots=True)
class Path:
    """A sequence so far, with a score.

    Without a sequence the score is minus infinity. `other` is the score of its second path.
    """

    tokens: tuple[int, ...] = ()
    score: float = -np.inf
    ended: bool = False
    other: float = -np.inf


@dataclass(slots=True)
class Example:
    """The paths of an example, best first, and the smallest gaps of the choices.

    `kept` is the smallest gap of ranks between what was kept and what was not, `order` that between any two
    that stood next to each other; `share` the smallest distance of a noise from where another token begins.
    `history` has tokens, parents and scores of every step.
    """

    paths: list[Path]
    kept: float = np.inf
    order: float = np.inf
    share: float = np.inf
    history: list[list[tuple[int, int, float]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The expected result of a search, and the noise of the scores."""

    examples: list[Example]
    noise: float


def search(
    step: Step, tokens: Array, states: Sequence[Array], rules: Rules, *, seed: int = 0
) -> SearchResult:
    """Search from `tokens [n]` and `states`, `[n, ...]` each."""
    rng = np.random.default_rng(seed)
    n, width = len(tokens), rules.width
    examples = [Example(rules.begin(row)) for row in range(n)]
    rows = np.repeat(np.arange(n), width)
    fed, carried = tokens[rows], [state[rows] for state in states]
    moved, noise = [_move(rng, state) for state in carried], 0.0
    for number in range(rules.steps):
        log_probs, carried = step(fed, carried)
        others, moved = step(fed, moved)
        if rules.mask is not None:
            log_probs, others = (np.where(rules.mask[rows], -np.inf, each) for each in (log_probs, others))
        sources = []
        for row, example in enumerate(examples):
            span = slice(row * width, (row + 1) * width)
            if rules.noise is None:
                parents = _keep_best(example, log_probs[span], others[span], rules)
            else:
                parents = _draw(example, log_probs[span], others[span], rules, rules.noise[row, number])
            sources += [row * width + parent for parent in parents]
            gaps = [abs(p.score - p.other) for p in example.paths if np.isfinite([p.score, p.other]).all()]
            noise = max([noise, *gaps])
        if all(path.ended or path.score == -np.inf for example in examples for path in example.paths):
            break
        carried = [state[sources] for state in carried]
        moved = [_move(rng, state[sources]) for state in moved]
        paths = [path for example in examples for path in example.paths]
        fed = np.array([_next(path, number + 1) for path in paths], tokens.dtype)
    return SearchResult(examples, noise)


def read_scale(values: Array) -> str:
    """Return the scale of token numbers `[m, vocabulary]`: `probabilities`, `log_probabilities` or `logits`.

    Probabilities are not negative and add up to 1; their logarithms are not positive. All else is logits.
    """
    near = 1e-3 if values.dtype.itemsize > 2 else 0.1
    numbers = values.astype(np.float64)
    if (numbers >= 0).all() and np.allclose(numbers.sum(-1), 1, rtol=0, atol=near):
        return "probabilities"
    if (numbers <= near).all() and np.allclose(np.exp(numbers).sum(-1), 1, rtol=0, atol=near):
        return "log_probabilities"
    return "logits"


def _next(path: Path, length: int) -> int:
    """Return the token read by a path's next step.

    It is the path's last, if it got it in this step; else 0. A step in int8 takes its scales from all rows,
    so rows whose answers are not read must be alike too.
    """
    return path.tokens[-1] if len(path.tokens) == length else 0


def _move(rng: np.random.Generator, state: Array) -> Array:
    """Move a state by about a unit in the last place."""
    if state.dtype.kind != "f":
        return state
    ways = rng.choice(np.array([-1, 1], state.dtype), state.shape)
    return np.asarray(state * (1 + ways * np.finfo(state.dtype).eps), state.dtype)


def _keep_best(example: Example, log_probs: Array, others: Array, rules: Rules) -> list[int]:
    """Extend all paths by all tokens, keep the best, and return the parents.

    There is a parent for each path kept.
    """
    candidates: list[tuple[float, int, int]] = []
    for parent, path in enumerate(example.paths):
        if path.ended:
            candidates.append((float(rules.rank(path.score, len(path.tokens))), parent, -1))
            continue
        ranks = rules.rank(path.score + log_probs[parent], len(path.tokens) + 1)
        # No other token of this path can be among the best, or next to them.
        best = np.argsort(-ranks, kind="stable")[: rules.width + 1]
        candidates += [(float(ranks[token]), parent, int(token)) for token in best if ranks[token] > -np.inf]
    candidates.sort(key=lambda each: (-each[0], each[1], each[2]))
    chosen = candidates[: rules.width]
    gaps = [before[0] - after[0] for before, after in itertools.pairwise(candidates)]
    example.order = min([example.order, *gaps])
    if len(candidates) > rules.width:
        example.kept = min(example.kept, gaps[-1])
    paths = [_extend(example.paths[parent], token, log_probs[parent], others[parent], rules.end)
             for _, parent, token in chosen]  # fmt: skip
    parents = [parent for _, parent, _ in chosen] + [*range(len(chosen), rules.width)]
    emitted = [rules.pad if token < 0 else token for _, _, token in chosen]
    emitted += [rules.pad] * (rules.width - len(chosen))
    example.paths = paths + [Path()] * (rules.width - len(chosen))
    scores = (path.score for path in example.paths)
    example.history.append([*zip(emitted, parents, scores, strict=True)])
    return parents


def _extend(path: Path, token: int, log_probs: Array, others: Array, end: int | None) -> Path:
    if token < 0:
        return path
    score, other = path.score + float(log_probs[token]), path.other + float(others[token])
    return Path((*path.tokens, token), score, token == end, other)


def _draw(example: Example, log_probs: Array, others: Array, rules: Rules, noise: float) -> list[int]:
    """Extend the single path by the token drawn by a noise."""
    (path,) = example.paths
    if path.ended or path.score == -np.inf:
        return [0]
    tokens: Array = np.arange(len(log_probs[0]))
    if rules.top_k is not None:
        tokens = np.argsort(-log_probs[0], kind="stable")
        ordered = log_probs[0][tokens[: rules.top_k + 1]]
        ordered = ordered[ordered > -np.inf]  # masked tokens are last
        example.order = min(example.order, float(np.min(ordered[:-1] - ordered[1:], initial=np.inf)))
        tokens = tokens[: rules.top_k]
    with np.errstate(invalid="ignore"):
        weights = np.exp((log_probs[0][tokens] - log_probs[0][tokens].max()) / rules.temperature)
    edges = np.cumsum(weights) / weights.sum()
    drawn = int(np.argmax(edges > noise)) if (edges > noise).any() else int(np.flatnonzero(weights)[-1])
    # The first edge is 0 and the last 1, whatever rounding does.
    example.share = min(example.share, float(np.min(np.abs(edges[:-1] - noise), initial=np.inf)))
    example.paths = [_extend(path, int(tokens[drawn]), log_probs[0], others[0], rules.end)]
    return [0]


def score_sequences(
    step: Step, tokens: Array, states: Sequence[Array], sequences: Array, lengths: Array
) -> Array:
    """Return the log probability sums of given sequences `[n, width, steps]`.

    Each sequence counts as far as it is long.
    """
    n, width, steps = sequences.shape
    rows = np.repeat(np.arange(n), width)
    fed, carried = tokens[rows], [state[rows] for state in states]
    wanted, long = sequences.reshape(n * width, steps), lengths.reshape(-1)
    sums = np.zeros(n * width)
    for number in range(int(long.max(initial=0))):
        log_probs, carried = step(fed, carried)
        is_within = number < long
        chosen = np.where(is_within, wanted[:, number], 0)
        sums += np.where(is_within, log_probs[np.arange(n * width), chosen], 0.0)
        fed = chosen.astype(tokens.dtype)
    return sums.reshape(n, width)
