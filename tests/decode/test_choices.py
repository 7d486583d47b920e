"""Greedy search and sampling: single cases, and a line for each wrong argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.decoding_models import Machine

from cudnn_convert import decode

MACHINE = Machine(vocabulary=4, n=2, seed=11)
GIVEN = (MACHINE.step, MACHINE.tokens, MACHINE.states)
NOISE = np.random.default_rng(3).random((2, 5)).astype(np.float32)


def weighted(weights: Any) -> Any:
    """A step of the same probabilities always."""
    log_probs = tf.math.log(tf.constant([weights], tf.float32))
    return lambda tokens, states: (tf.repeat(log_probs, tf.shape(tokens)[0], 0), states)


def test_samples_have_the_probabilities_of_the_step() -> None:
    """Of evenly spaced noise, so many as is their share."""
    noise = (np.arange(1000, dtype=np.float32)[:, None] + 0.5) / 1000
    tokens = np.zeros(1000, np.int32)
    found = decode.sample(weighted([0.2, 0.5, 0.0, 0.3]), tokens, (), noise)
    assert np.bincount(found.sequences[:, 0], minlength=4).tolist() == [200, 500, 0, 300]
    likely = decode.sample(weighted([0.2, 0.5, 0.0, 0.3]), tokens, (), noise, top_k=2)
    assert np.bincount(likely.sequences[:, 0], minlength=4).tolist() == [0, 625, 0, 375]
    # Shares to the power of 1 / temperature.
    cold = decode.sample(weighted([0.2, 0.5, 0.0, 0.3]), tokens, (), noise, temperature=0.5)
    assert np.bincount(cold.sequences[:, 0], minlength=4).tolist() == [105, 658, 0, 237]


@pytest.mark.parametrize("noise", [0.0, np.nextafter(np.float32(1), np.float32(0))], ids=["least", "most"])
@pytest.mark.parametrize("top_k", [None, 3])
def test_no_noise_draws_what_has_no_probability(noise: float, top_k: int | None) -> None:
    weights = np.full(7, 0.1) * [0, 1, 1, 1.3, 1, 1, 0]
    found = decode.sample(weighted(weights), [0], (), np.full((1, 3), noise, np.float32), top_k=top_k)
    assert (found.scores.numpy() > -np.inf).all()


def test_the_same_noise_draws_the_same_tokens() -> None:
    first, second = (decode.sample(*GIVEN, NOISE) for _ in range(2))
    np.testing.assert_array_equal(first.sequences, second.sequences)
    other = decode.sample(*GIVEN, 1 - NOISE)
    assert (np.array(first.sequences) != np.array(other.sequences)).any()


def test_a_mask_of_everything_leaves_nothing() -> None:
    for decoder in (decode.greedy, decode.beam_search):
        flags = {"width": 2} if decoder is decode.beam_search else {}
        found = decoder(*GIVEN, steps=3, pad=6, pad_mask=np.ones(4, bool), **flags)
        assert (np.array(found.sequences) == 6).all()
        assert (np.array(found.lengths) == 0).all()
        assert (np.array(found.scores) == -np.inf).all()


@pytest.mark.parametrize(
    ("noise", "flags", "line"),
    [
        (NOISE[0], {}, "noise: expected rank 2, [n, steps], found float32 [5]"),
        (NOISE[:1], {}, "noise: expected a row for each of 2 tokens, found 1"),
        (NOISE.astype(int), {}, "noise: expected floats, found int64 [2, 5]"),
        (NOISE, {"temperature": 0}, "temperature: expected a number above 0, found 0"),
        (NOISE, {"top_k": 0}, "top_k: expected a whole number of at least 1, found 0"),
        (NOISE, {"top_k": 5}, "top_k: expected at most 4, the size of the vocabulary, found 5"),
    ],
    ids=["rank", "rows", "integers", "temperature", "top_k", "vocabulary"],
)
def test_a_wrong_argument_gets_a_line(noise: Any, flags: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        decode.sample(*GIVEN, noise, **flags)
    assert str(caught.value) == line
