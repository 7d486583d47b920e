"""Viterbi: defaults, and a line for each wrong argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import decoding_judges

from cudnn_convert import decode

RNG = np.random.default_rng(4)
SCORES, TRANSITIONS = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(3, 3))


def test_defaults_are_whole_rows_and_nothing_at_the_ends() -> None:
    found = decode.viterbi(SCORES, TRANSITIONS)
    for example in range(2):
        path, score = decoding_judges.viterbi(SCORES[example], TRANSITIONS, np.zeros(3), np.zeros(3))
        np.testing.assert_array_equal(found.sequences[example], path)
        np.testing.assert_allclose(found.scores[example], score, rtol=1e-12)


@pytest.mark.parametrize(
    ("scores", "transitions", "flags", "line"),
    [
        (SCORES[0], TRANSITIONS, {}, "scores: expected rank 3, [n, time, tags], found float64 [5, 3]"),
        (SCORES, TRANSITIONS[0], {}, "transitions: expected rank 2, [tags, tags], found float64 [3]"),
        (SCORES, TRANSITIONS[:2], {}, "transitions: expected 3 tags, as scores have, found float64 [2, 3]"),
        (
            SCORES,
            TRANSITIONS,
            {"start": np.zeros(4)},
            "start: expected 3 tags, as scores have, found float64 [4]",
        ),
        (
            SCORES,
            TRANSITIONS,
            {"stop": np.zeros(2)},
            "stop: expected 3 tags, as scores have, found float64 [2]",
        ),
        (
            SCORES,
            TRANSITIONS,
            {"pad": 2.5},
            "pad: expected a whole number of at least -2147483648, found 2.5",
        ),
        (SCORES, TRANSITIONS, {"lengths": [1]}, "lengths: expected one for each of 2 rows, found int32 [1]"),
    ],
    ids=["rank", "transitions", "square", "start", "stop", "pad", "lengths"],
)
def test_a_wrong_argument_gets_a_line(
    scores: Any, transitions: Any, flags: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValueError) as caught:
        decode.viterbi(scores, transitions, **flags)
    assert str(caught.value) == line
