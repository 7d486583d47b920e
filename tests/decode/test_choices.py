"""Greedy search and sampling: single cases, and a line for each wrong argument."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from support.decoding_models import Machine, bigrams

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


#: In float32 the last one is 1.
@pytest.mark.parametrize(
    "noise",
    [0.0, np.nextafter(np.float32(1), np.float32(0)), np.nextafter(1, 0)],
    ids=["least", "most", "one"],
)
@pytest.mark.parametrize("top_k", [None, 3])
def test_no_noise_draws_what_has_no_probability(noise: float, top_k: int | None) -> None:
    weights = np.full(7, 0.1) * [0, 1, 1, 1.3, 1, 1, 0]
    found = decode.sample(weighted(weights), [0], (), np.full((1, 3), noise), top_k=top_k)
    assert (found.scores.numpy() > -np.inf).all()


def test_the_same_noise_draws_the_same_tokens() -> None:
    first, second = (decode.sample(*GIVEN, NOISE) for _ in range(2))
    np.testing.assert_array_equal(first.sequences, second.sequences)
    other = decode.sample(*GIVEN, 1 - NOISE)
    assert (np.array(first.sequences) != np.array(other.sequences)).any()


def test_each_example_draws_from_its_own_tokens() -> None:
    """The last tokens of a weight above 0 are not the same."""
    table = tf.math.log([[0.5, 0.5, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    found = decode.sample(bigrams(table), [0, 1, 2], (), np.full([3, 1], 0.9))
    np.testing.assert_array_equal(found.sequences, [[1], [3], [1]])


def test_a_low_temperature_draws_the_most_likely() -> None:
    """Though every weight by itself is 0 then, in float32."""
    found = decode.sample(weighted([0.3, 0.45, 0.25]), [0], (), np.full((1, 3), 0.999), temperature=0.005)
    np.testing.assert_array_equal(found.sequences, [[1, 1, 1]])


def follow(step: Any, *, steps: int, noise: float | None, **flags: Any) -> decode.Decoded:
    """Greedy search for two examples, or with `noise` a sample of the two most likely tokens."""
    if noise is None:
        return decode.greedy(step, [0, 0], (), steps=steps, **flags)
    return decode.sample(step, [0, 0], (), np.full([2, steps], noise), top_k=2, **flags)


@pytest.mark.parametrize("noise", [None, 0.1], ids=["greedy", "sample"])
def test_the_loop_ends_where_all_examples_have(noise: float | None) -> None:
    """By the end token, or since no token may be chosen; without an end token no step is left out."""
    step = Mock(wraps=bigrams([[-9, -0.1, -9], [-9, -9, -0.2], [-0.3, -9, -9]]))
    answer = follow(step, steps=40, noise=noise, end=2, pad=7)
    assert step.call_count == 2
    np.testing.assert_array_equal(answer.sequences, [[1, 2, *[7] * 38]] * 2)
    np.testing.assert_array_equal(answer.lengths, [2, 2])
    step.reset_mock()
    follow(step, steps=40, noise=noise, end=2, pad_mask=np.ones(3, bool))
    assert step.call_count == 1
    step.reset_mock()
    assert follow(step, steps=5, noise=noise).sequences.shape == (2, 5)
    assert step.call_count == 5


def test_no_examples() -> None:
    """The first step is taken all the same: it checks what a step gives."""
    with pytest.raises(ValueError, match=r"^end: expected a token below 4"):
        decode.greedy(weighted([0.2, 0.5, 0.0, 0.3]), tf.zeros([0], tf.int32), (), steps=3, end=4)
    found = decode.greedy(weighted([0.2, 0.5, 0.3]), tf.zeros([0], tf.int32), (), steps=3, end=2)
    assert found.sequences.shape == (0, 3)


def test_a_graph_knows_the_steps_or_learns_them() -> None:
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([2, None], tf.float32)])
    def draw(noise: Any) -> Any:
        return decode.sample(*GIVEN, noise, end=2, pad=9)

    for found, expected in zip(draw(NOISE), decode.sample(*GIVEN, NOISE, end=2, pad=9), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert draw.get_concrete_function().outputs[0].shape.as_list() == [2, None]
    known = tf.function(lambda: decode.greedy(*GIVEN, steps=3, end=2), autograph=False)
    assert known.get_concrete_function().outputs[0].shape.as_list() == [2, 3]


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
