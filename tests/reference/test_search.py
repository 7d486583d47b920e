"""The reference's searches in single cases, computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import decoding_judges

from cudnn_convert.reference.search import Rules, Step, score_sequences, search

WEIGHTS = [0.2, 0.5, 0.0, 0.3]


class Weighted:
    """A step of the same probabilities for every row; keeps the tokens that it was fed."""

    def __init__(self, *weights: float) -> None:
        with np.errstate(divide="ignore"):
            self.log_probs = np.log(np.array(weights))
        self.fed: list[list[int]] = []

    def __call__(self, tokens: Any, states: Any) -> Any:
        self.fed.append(tokens.tolist())
        return np.tile(self.log_probs, [len(tokens), 1]), [*states]


def draw(step: Step, noise: float, *, top_k: int | None = None, temperature: float = 1.0) -> Any:
    """The example of a sample of one token."""
    rules = Rules(1, 1, noise=np.array([[noise]]), top_k=top_k, temperature=temperature)
    (example,) = search(step, np.array([0]), [], rules).examples
    return example


@pytest.mark.parametrize(
    ("noise", "flags", "token", "share"),
    [
        (0.1, {}, 0, 0.1),
        (0.69, {}, 1, 0.01),
        (0.75, {}, 3, 0.05),
        (1.0, {}, 3, 0.3),
        (0.6, {"top_k": 2}, 1, 0.025),
        (0.9, {"top_k": 2}, 3, 0.275),
        (0.9, {"top_k": 1}, 1, np.inf),
        (0.72, {"temperature": 0.5}, 1, 29 / 38 - 0.72),
        (0.9, {"temperature": 0.001}, 1, 0.1),
    ],
)
def test_a_sample_is_the_first_token_whose_share_exceeds_the_noise(
    noise: float, flags: dict[str, Any], token: int, share: float
) -> None:
    """`share`: how far the noise is from another token."""
    example = draw(Weighted(*WEIGHTS), noise, **flags)
    assert example.paths[0].tokens == (token,)
    assert example.paths[0].score == pytest.approx(np.log(WEIGHTS[token]))
    assert example.share == pytest.approx(share, abs=1e-12)


def test_a_noise_at_an_edge_draws_the_next_token() -> None:
    example = draw(Weighted(0.5, 0.5), 0.5)
    assert (example.paths[0].tokens, example.share) == ((1,), 0.0)


@pytest.mark.parametrize(("top_k", "order"), [(1, 0.5 / 0.2), (2, 0.2 / 0.19), (3, 0.2 / 0.19)])
def test_order_is_the_least_distance_between_the_most_likely_and_the_next(top_k: int, order: float) -> None:
    example = draw(Weighted(0.2, 0.5, 0.19, 0.11), 0.0, top_k=top_k)
    assert example.order == pytest.approx(np.log(order))


def test_of_equally_likely_tokens_the_lower_are_taken() -> None:
    """The odd ones are the likely ones."""
    assert draw(Weighted(*[1 / 128, 3 / 128] * 32), 0.9, top_k=4).paths[0].tokens == (7,)


def test_a_vocabulary_of_one_token() -> None:
    example = draw(Weighted(1.0), 0.5, top_k=1)
    assert (example.paths[0].tokens, example.order, example.share) == ((0,), np.inf, np.inf)


@pytest.mark.parametrize("noise", [None, np.full((2, 30), 0.1)])
def test_a_search_ends_where_every_path_has(noise: Any) -> None:
    step = Weighted(1.0, 0.0)
    result = search(step, np.array([0, 1]), [], Rules(1, 30, end=0, noise=noise))
    assert [example.paths[0].tokens for example in result.examples] == [(0,), (0,)]
    assert len(step.fed) == 2  # once with states as they are, once with moved ones
    step = Weighted(0.0, 0.0)
    with np.errstate(invalid="ignore"):
        search(step, np.array([0, 1]), [], Rules(1, 30))
    assert len(step.fed) == 2


def test_scores_of_sequences_are_sums_as_far_as_each_is_long() -> None:
    """What stands behind a length is no token of the vocabulary; the step is fed 0 there."""
    step = Weighted(*WEIGHTS)
    sequences = np.array([[[1, 3, 0], [3, 99, -7]], [[0, 1, 99], [99, 99, 99]]])
    sums = score_sequences(step, np.array([3, 2]), [], sequences, np.array([[3, 1], [2, 0]]))
    expected = np.array([[0.5 * 0.3 * 0.2, 0.3], [0.2 * 0.5, 1.0]])
    np.testing.assert_allclose(sums, np.log(expected))
    assert step.fed == [[3, 3, 2, 2], [1, 3, 0, 0], [3, 0, 1, 0]]


@pytest.mark.parametrize("n", [0, 2])
def test_no_token_needs_no_step(n: int) -> None:
    step = Weighted(*WEIGHTS)
    sums = score_sequences(step, np.zeros(n, int), [], np.zeros((n, 3, 4), int), np.zeros((n, 3), int))
    np.testing.assert_array_equal(sums, np.zeros((n, 3)))
    assert not step.fed


def table_step(table: Any) -> Step:
    """A step that reads its last token, and adds a state, if it has one, which it halves."""

    def step(tokens: Any, states: Any) -> Any:
        answers = table[tokens] + (states[0] if states else 0)
        return answers, [each / 2 for each in states]

    return step


@pytest.mark.parametrize("penalty", [0.0, 0.8, 3.0])
@pytest.mark.parametrize("end", [None, 1])
def test_a_beam_search_is_the_other_judge_s(end: int | None, penalty: float) -> None:
    """It shares no code with that one; numbers are halves, so that many candidates are equal."""
    rng = np.random.default_rng(9)
    table = np.round(rng.normal(size=(64, 64)) * 2) / 2
    table[:, 5] = -np.inf
    table[3] = -np.inf  # after it no token may follow
    tokens = np.array([0, 2, 3, 4])
    result = search(table_step(table), tokens, [], Rules(4, 5, end, 9, penalty))
    rules = decoding_judges.Rules(4, 5, end, 9, penalty, dtype=np.float64)

    def log_probs(example: int, prefix: tuple[int, ...]) -> Any:
        return table[[tokens[example], *prefix][-1]]

    expected = decoding_judges.beam_search(log_probs, len(tokens), rules)
    for k, example in enumerate(result.examples):
        exists = expected["scores"][k] > -np.inf
        for path, length, row in zip(
            example.paths, expected["lengths"][k] * exists, expected["sequences"][k], strict=True
        ):
            assert path.tokens == tuple(row[:length])
        np.testing.assert_array_equal([path.score for path in example.paths], expected["scores"][k])
        emitted, parents, sums = np.moveaxis(np.array(example.history), -1, 0)
        steps = len(example.history)
        np.testing.assert_array_equal(sums, expected["sums"][k][:steps])
        real = sums > -np.inf
        np.testing.assert_array_equal(emitted[real], expected["tokens"][k][:steps][real])
        np.testing.assert_array_equal(parents[real], expected["parents"][k][:steps][real])


def test_a_rank_is_a_score_over_a_power_of_the_length() -> None:
    assert Rules(1, 1, penalty=2.0).rank(-4.5, 4) == -2.0  # (5 + 4) / 6 = 1.5
    table = np.full((3, 3), -np.inf)
    table[0, 1:] = -1.0, -1.1  # ends at once, or goes on
    table[2, 1] = -0.2  # -1.3 in all, -0.955 with the penalty of two tokens
    (example,) = search(table_step(table), np.array([0]), [], Rules(2, 2, end=1, penalty=2.0)).examples
    assert [path.tokens for path in example.paths] == [(2, 1), (1,)]
    table[2, 1] = -0.4  # -1.5 in all, -1.102 of two tokens, -0.844 if there were three
    (example,) = search(table_step(table), np.array([0]), [], Rules(2, 2, end=1, penalty=2.0)).examples
    assert [path.tokens for path in example.paths] == [(1,), (2, 1)]


def test_kept_is_the_least_distance_to_a_candidate_that_is_dropped() -> None:
    table = np.array([[-1.0, -1.25, -3.0, -9.0]] * 4)
    (example,) = search(table_step(table), np.array([0]), [], Rules(2, 1)).examples
    assert (example.kept, example.order) == (1.75, 0.25)
    (example,) = search(table_step(table), np.array([0]), [], Rules(4, 1)).examples
    assert (example.kept, example.order) == (np.inf, 0.25)


def test_noise_is_what_rounding_of_the_states_does_to_scores() -> None:
    table = np.log(np.full((3, 3), 1 / 3))
    for dtype, most in ((np.float64, 1e-14), (np.float32, 1e-6)):
        state = np.linspace(1, 2, 6, dtype=dtype).reshape(2, 3)
        result = search(table_step(table), np.array([0, 1]), [state], Rules(2, 4))
        assert most / 1000 < result.noise < most
    state = np.array([[0.1, 0.7, 0.3]])
    (example,) = search(table_step(table), np.array([0]), [state], Rules(1, 1)).examples
    assert example.paths[0].score == table[0, 0] + 0.7  # that of the states as they are
    whole = np.arange(6).reshape(2, 3)
    assert search(table_step(table), np.array([0, 1]), [whole], Rules(2, 1)).noise == 0
    assert search(table_step(table), np.array([0, 1]), [], Rules(2, 4)).noise == 0
