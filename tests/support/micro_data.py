"""Examples of three small tasks: keywords, motions and rows of tokens.

Each maker takes a number of rows and a seed, and gives inputs and labels. The numbers come from
`RandomState`, whose streams NumPy keeps (NEP 19), and floats lie on a grid of 1/256: each machine makes the
same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

#: The rows that the models are asked, and those that they were trained on.
TEST_ROWS: Final = 500
TRAINING_ROWS: Final = 4000
TEST_SEED: Final = 4100
TRAINING_SEED: Final = 4200

#: Keywords: steps, coefficients, classes, and by how many steps a keyword comes earlier or later.
KEYWORD_STEPS, COEFFICIENTS, KEYWORDS, SHIFT = 25, 10, 4, 4
#: Motions: steps, axes, classes.
MOTION_STEPS, AXES, MOTIONS = 40, 3, 5
#: Tokens: steps, and how many there are.
TOKEN_STEPS, TOKENS = 12, 30
#: The token after which good words are bad and bad ones good, and the one that ends this.
NEGATION, TURN = 1, 2
#: The tokens that are good words, and those that are bad. The others are neither.
GOOD, BAD = range(3, 12), range(12, 21)


class Examples(NamedTuple):
    """Inputs [rows, steps, ...] and the class of each row."""

    inputs: np.ndarray
    labels: np.ndarray


Maker = Callable[[int, int], Examples]


def round_to_grid(values: np.ndarray) -> np.ndarray:
    """Values as whole multiples of 1/256, which float32 has exactly."""
    return (np.round(values * 256) / 256).astype(np.float32)


def keyword_templates() -> np.ndarray:
    """The coefficients of each keyword, some steps longer than a row at both ends.

    A curve is a sum of three slow sines. Later coefficients are smaller, as in speech.
    """
    random = np.random.RandomState(77)
    steps = np.arange(-SHIFT, KEYWORD_STEPS + SHIFT)
    shape = [KEYWORDS, COEFFICIENTS, 3, 1]
    waves = random.uniform(0.5, 1.0, shape) * np.sin(
        2 * np.pi * (random.uniform(0.02, 0.09, shape) * steps + random.uniform(0, 1, shape))
    )
    size = 0.9 ** np.arange(COEFFICIENTS)
    return waves.sum(axis=2).transpose(0, 2, 1) * size


def make_keywords(rows: int, seed: int) -> Examples:
    """Draw keywords [rows, 25, 10]: a shifted template, louder or softer, in noise."""
    random = np.random.RandomState(seed)
    templates = keyword_templates()
    labels = random.randint(0, KEYWORDS, rows)
    starts = random.randint(0, 2 * SHIFT + 1, rows)
    chosen = np.stack(
        [templates[label, start : start + KEYWORD_STEPS] for label, start in zip(labels, starts, strict=True)]
    )
    loudness = random.uniform(0.5, 1.4, [rows, 1, 1])
    return Examples(round_to_grid(loudness * chosen + random.normal(0, 1.0, chosen.shape)), labels)


def make_motions(rows: int, seed: int) -> Examples:
    """Draw motions [rows, 40, 3]: on each axis two sines of the class's frequencies, in noise."""
    random = np.random.RandomState(seed)
    classes = np.random.RandomState(78)
    frequencies = classes.uniform(0.03, 0.25, [MOTIONS, AXES, 2])
    sizes = classes.uniform(0.4, 1.0, [MOTIONS, AXES, 2])
    labels = random.randint(0, MOTIONS, rows)
    shape = [rows, AXES, 2, 1]
    tempo = random.uniform(0.95, 1.05, [rows, 1, 1, 1])
    turns = tempo * frequencies[labels][..., None] * np.arange(MOTION_STEPS) + random.uniform(0, 1, shape)
    waves = sizes[labels][..., None] * random.uniform(0.6, 1.4, shape) * np.sin(2 * np.pi * turns)
    motions = waves.sum(axis=2).transpose(0, 2, 1)
    return Examples(round_to_grid(motions + random.normal(0, 0.4, motions.shape)), labels)


def make_tokens(rows: int, seed: int) -> Examples:
    """Draw tokens [rows, 12], 1 where good words prevail by two or more, 0 where bad ones do.

    Between a negation and the turn, or the end, good counts as bad. So the order of the tokens matters.
    """
    random = np.random.RandomState(seed)
    kept: list[tuple[np.ndarray, int]] = []
    while len(kept) < rows:
        row = random.randint(0, TOKENS, TOKEN_STEPS).astype(np.int32)
        row[random.randint(0, TOKEN_STEPS)] = NEGATION
        score, sign = 0, 1
        for token in row:
            sign = {NEGATION: -1, TURN: 1}.get(token, sign)
            score += sign * ((token in GOOD) - (token in BAD))
        if abs(score) >= 2:
            kept.append((row, int(score > 0)))
    tokens, labels = zip(*kept, strict=True)
    return Examples(np.stack(tokens), np.array(labels))
