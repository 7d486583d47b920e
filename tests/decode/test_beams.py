"""Beam search: the contract in single cases, and a line for each wrong argument."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from support import decoding_judges as judges
from support.decoding_judges import Rules, all_sequences
from support.decoding_models import Machine, bigrams
from support.tiers import combinations, some

from cudnn_convert import decode

MACHINE = Machine(vocabulary=4, n=2, seed=11)


def search(*, step: Any = MACHINE.step, **flags: Any) -> decode.BeamSearch:
    flags = {"width": 3, "steps": 4} | flags
    return decode.beam_search(step, MACHINE.tokens, MACHINE.states, **flags)


@combinations(lambda end, penalty: (end is None) == (penalty == 0), end=[None, 2], penalty=[0.0, 0.8])
def test_a_beam_of_all_sequences_is_exact(end: int | None, penalty: float) -> None:
    """Of those that are equally good any is right: their scores are compared, and that all are there."""
    machine = Machine(vocabulary=3, n=2, seed=5)
    steps = 4
    width = 3**steps if end is None else sum(2**length for length in range(steps)) + 2**steps
    found = decode.beam_search(
        machine.step,
        machine.tokens,
        machine.states,
        width=width,
        steps=steps,
        end=end,
        length_penalty=penalty,
    )
    for example in range(machine.n):
        rules = Rules(width, steps, end, 0, penalty)
        every = [beam for beam in all_sequences(machine.log_probs, example, 3, rules) if beam.score > -np.inf]
        rows = zip(*(np.array(part[example]) for part in found[:3]), strict=True)
        beams = [(tuple(row[:length]), score) for row, length, score in rows if score > -np.inf]
        assert sorted(beams) == sorted((beam.tokens, beam.score) for beam in every)
        ranks = [float(score) / ((5 + len(tokens)) / 6) ** penalty for tokens, score in beams]
        np.testing.assert_allclose(ranks, sorted(ranks, reverse=True), rtol=1e-6)


@pytest.mark.parametrize("end", some([2], None))
def test_the_number_of_examples_may_be_open(end: int | None) -> None:
    """A graph learns it when it runs."""
    initial = np.array([[0, -0.5, -1], [-1, -0.25, 0]], np.float32) if end is None else None
    rules = Rules(3, 4, end, 9, 0.7, None, initial)
    specs = tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), (MACHINE.tokens, MACHINE.states)
    )
    flags = {"width": 3, "steps": 4, "end": end, "pad": 9, "length_penalty": 0.7, "initial_scores": initial}

    @tf.function(autograph=False, input_signature=specs)
    def call(tokens: Any, states: Any) -> decode.BeamSearch:
        return decode.beam_search(MACHINE.step, tokens, states, keep_history=True, **flags)

    answer, expected = call(MACHINE.tokens, MACHINE.states), judges.beam_search(MACHINE.log_probs, 2, rules)
    for name in ("sequences", "lengths", "scores"):
        np.testing.assert_array_equal(getattr(answer, name), expected[name], name)
    np.testing.assert_array_equal(answer.history.parents, expected["parents"])


def test_the_vocabulary_may_be_open() -> None:
    """A step in a graph need not say how many tokens there are."""

    def open_step(tokens: Any, states: Any) -> Any:
        log_probs, after = MACHINE.step(tokens, states)
        return tf.compat.v1.placeholder_with_default(log_probs, [None, None]), after

    mask = np.array([[False, True, False, False], [True, False, False, False]])
    found = tf.function(lambda: search(step=open_step, pad_mask=mask, end=2), autograph=False)()
    for name, part in search(pad_mask=mask, end=2)._asdict().items():
        if name != "history":
            np.testing.assert_array_equal(getattr(found, name), part, name)


def test_beams_that_do_not_begin_as_one_may_be_more_than_the_sequences() -> None:
    assert search(width=17, steps=2, initial_scores=np.zeros([2, 17], np.float32)).scores.shape == (2, 17)


def test_narrow_floats_become_float32() -> None:
    def half(tokens: Any, states: Any) -> Any:
        log_probs, after = MACHINE.step(tokens, states)
        return tf.cast(log_probs, tf.float16), after

    def rounded(tokens: Any, states: Any) -> Any:
        log_probs, after = half(tokens, states)
        return tf.cast(log_probs, tf.float32), after

    found, expected = search(step=half), search(step=rounded)
    assert found.scores.dtype == tf.float32
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_the_penalty_is_that_of_the_whole_length() -> None:
    """The end token counts: a sequence of 1 is divided by 1, one of 2 by (7 / 6) ** 2."""
    log_probs = np.full((3, 3), -np.inf)
    log_probs[0, 1:] = -1.0, -1.1  # ends at once, or goes on
    log_probs[2, 1] = -0.2  # -1.3 in all, -0.955 with the penalty of two tokens
    flags = {"width": 2, "steps": 3, "end": 1}
    shorter = decode.beam_search(bigrams(log_probs), [0], (), **flags)
    longer = decode.beam_search(bigrams(log_probs), [0], (), length_penalty=2.0, **flags)
    np.testing.assert_array_equal(shorter.lengths, [[1, 2]])
    np.testing.assert_array_equal(longer.lengths, [[2, 1]])
    np.testing.assert_allclose(longer.scores, [[-1.3, -1.0]], rtol=1e-6)


def test_equal_scores_go_to_the_lower_beam_then_to_the_lower_token() -> None:
    found = decode.beam_search(bigrams(np.zeros((3, 3))), [2], (), width=3, steps=3, keep_history=True)
    np.testing.assert_array_equal(found.sequences, [[[0, 0, 0], [0, 0, 1], [0, 0, 2]]])
    assert found.history is not None
    np.testing.assert_array_equal(found.history.parents, [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]])


def test_the_loop_ends_where_all_beams_have() -> None:
    """A step after the last end would raise an error."""
    log_probs = np.full((3, 3), -np.inf)
    log_probs[0, 1:] = -0.5, -1.0
    log_probs[2, 1] = 0
    step = Mock(wraps=bigrams(log_probs))
    decode.beam_search(step, [0, 0], (), width=2, steps=50, end=1, pad_mask=np.ones(3, bool))
    assert step.call_count == 1  # no beam exists
    step.reset_mock()
    found = decode.beam_search(step, [0, 0], (), width=2, steps=50, end=1, pad=7, keep_history=True)
    assert step.call_count == 2
    np.testing.assert_array_equal(found.lengths, [[1, 2], [1, 2]])
    np.testing.assert_array_equal(found.sequences[0, 1], [2, 1, *[7] * 48])
    assert found.history is not None
    np.testing.assert_array_equal(found.history.parents[1, 2:], [[0, 1]] * 48)
    np.testing.assert_array_equal(found.history.scores[1, 2:], [[-0.5, -1.0]] * 48)


def test_a_pad_outside_of_the_vocabulary_is_not_fed() -> None:
    """What follows an end is not the step's input: gathers of a CPU refuse such numbers."""
    found = search(end=0, pad=-5, steps=6)
    assert (np.array(found.sequences) == -5).any()


@pytest.mark.slow("cudnn_convert/decode")
def test_the_graph_does_not_grow_with_the_steps() -> None:
    def nodes(steps: int) -> int:
        graph = tf.function(lambda: search(steps=steps, end=1)).get_concrete_function().graph
        definition = graph.as_graph_def()
        return len(definition.node) + sum(len(body.node_def) for body in definition.library.function)

    assert nodes(4) == nodes(400)


def test_types_of_tokens_and_scores() -> None:
    found = decode.beam_search(bigrams(np.zeros((3, 3))), np.array([1], np.int64), (), width=2, steps=2)
    assert (found.sequences.dtype, found.lengths.dtype, found.scores.dtype) == (
        *(tf.int64, tf.int32),
        tf.float32,
    )
    initial = np.zeros((1, 2))
    found = decode.beam_search(bigrams(np.zeros((3, 3))), [1], (), width=2, steps=2, initial_scores=initial)
    assert found.scores.dtype == tf.float64


@pytest.mark.parametrize("end", [None, 1])
def test_no_examples(end: int | None) -> None:
    """The first step is taken all the same: it checks what a step gives."""
    step = Mock(wraps=bigrams(np.zeros((3, 3))))
    found = decode.beam_search(step, tf.zeros([0], tf.int32), (), width=2, steps=2, end=end)
    assert found.sequences.shape == (0, 2, 2)
    assert found.history is None
    assert step.call_count == (2 if end is None else 1)


def changed(tokens: Any, states: Any) -> Any:
    log_probs, after = MACHINE.step(tokens, states)
    recent, total = after["more"]
    return log_probs, {"place": after["place"], "more": (recent, tf.concat([total, total], 1))}


def renamed(tokens: Any, states: Any) -> Any:
    log_probs, after = MACHINE.step(tokens, states)
    return log_probs, after["more"]


def cast(tokens: Any, states: Any) -> Any:
    log_probs, after = MACHINE.step(tokens, states)
    return log_probs, {**after, "place": tf.cast(after["place"], tf.int32)}


def flat(tokens: Any, states: Any) -> Any:
    log_probs, after = MACHINE.step(tokens, states)
    return log_probs[:, 0], after


FULL = "{'place': 'int64 [6]', 'more': ('int32 [6, 2]', 'float32 [6, 1]')}"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"width": 0}, "width: expected a whole number of at least 1, found 0"),
        ({"width": 2.0}, "width: expected a whole number of at least 1, found 2.0"),
        (
            {"width": 17, "steps": 2},
            "width: expected at most 16, as many as sequences of 2 steps and 4 tokens, found 17",
        ),
        (
            {"width": 14, "steps": 2, "end": 1},
            "width: expected at most 13, as many as sequences of 2 steps and 4 tokens, found 14",
        ),
        ({"steps": 0}, "steps: expected a whole number of at least 1, found 0"),
        ({"end": 4}, "end: expected a token below 4, the size of the vocabulary, found 4"),
        ({"end": -1}, "end: expected a whole number of at least 0, found -1"),
        ({"pad": 0.5}, "pad: expected a whole number of at least -2147483648, found 0.5"),
        ({"length_penalty": math.nan}, "length_penalty: expected a finite number, found nan"),
        ({"initial_scores": np.zeros(3)}, "initial_scores: expected rank 2, [n, width], found float64 [3]"),
        (
            {"initial_scores": np.zeros([2, 4])},
            "initial_scores: expected float64 [2, 3], found float64 [2, 4]",
        ),
        (
            {"pad_mask": [1, 0, 0, 0]},
            "pad_mask: expected bool [vocabulary] or [n, vocabulary], found int32 [4]",
        ),
        ({"pad_mask": [True, False]}, "pad_mask: expected 4 tokens, as log_probs have, found 2"),
        ({"step": changed}, "states: expected float32 [6, 1] as before the step, found float32 [6, 2]"),
        ({"step": cast}, "states: expected int64 [6] as before the step, found int32 [6]"),
        (
            {"step": renamed},
            f"states: expected the structure of {FULL}, found ('int32 [6, 2]', 'float32 [6, 1]')",
        ),
        ({"step": flat}, "log_probs: expected rank 2, [m, vocabulary], found float32 [6]"),
        ({"tokens": [[0, 1]]}, "tokens: expected rank 1, [n], found int32 [1, 2]"),
        ({"tokens": [0.5, 1]}, "tokens: expected int32 or int64, found float32 [2]"),
        ({"tokens": [0, 1, 2]}, "states: expected as many rows as tokens int32 [3], found int32 [2, 2]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_wrong_argument_gets_a_line(flags: dict[str, Any], line: str, how: str) -> None:
    given = {"step": MACHINE.step, "tokens": MACHINE.tokens, "states": MACHINE.states, "width": 3, "steps": 4}
    given |= flags

    def call() -> Any:
        return decode.beam_search(given.pop("step"), given.pop("tokens"), given.pop("states"), **given)

    with pytest.raises(ValueError) as caught:
        (call if how == "eager" else tf.function(call, autograph=False))()
    assert str(caught.value) == line


def test_a_state_without_rows_gets_a_line() -> None:
    with pytest.raises(
        ValueError, match=r"^states: expected as many rows as tokens int32 \[2\], found float32 \[\]$"
    ):
        decode.beam_search(MACHINE.step, MACHINE.tokens, tf.constant(1.0), width=2, steps=2)


def test_width_may_exceed_the_vocabulary() -> None:
    """Beams that do not exist yet are filled by later steps."""
    found = search(width=9, steps=3)
    assert (np.array(found.scores) > -np.inf).all()
    assert len({tuple(row) for row in np.array(found.sequences[0])}) == 9
