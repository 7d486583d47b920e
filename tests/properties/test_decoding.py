"""Decoders against their definitions: NumPy and Python, example by example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from properties.budget import examples
from properties.strategies import SEEDS
from support import decoding_judges as judges
from support.decoding_judges import Array, Rules
from support.decoding_models import Machine

from cudnn_convert import decode

#: How a decoder is called: by itself, in a function of known sizes, or of sizes that it learns when it runs.
CALLS = st.sampled_from(["eager", "unknown", "known"])


def call(how: str, decoder: Any, *arrays: Any) -> Any:
    """What a decoder of arrays, in any nesting, answers."""
    tensors = tf.nest.map_structure(tf.constant, arrays)
    if how == "eager":
        return decoder(*tensors)
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec(x.shape if how == "known" else [None, *x.shape[1:]], x.dtype), tensors
    )
    return tf.function(decoder, input_signature=specs, autograph=False)(*tensors)


@dataclass(frozen=True)
class Search:
    machine: Machine
    rules: Rules
    how: str

    @property
    def flags(self) -> dict[str, Any]:
        mask = self.rules.mask
        if mask is not None and (mask == mask[0]).all():
            mask = mask[0]  # one for all examples
        return {"end": self.rules.end, "pad": self.rules.pad, "pad_mask": mask}

    def found(self) -> decode.BeamSearch:
        rules = self.rules

        def search(tokens: Any, states: Any) -> Any:
            return decode.beam_search(
                self.machine.step, tokens, states, width=rules.width, steps=rules.steps, keep_history=True,
                length_penalty=rules.penalty, initial_scores=rules.initial, **self.flags,
            )  # fmt: skip

        return call(self.how, search, self.machine.tokens, self.machine.states)

    def expected(self) -> dict[str, Array]:
        return judges.beam_search(self.machine.log_probs, self.machine.n, self.rules)


@st.composite
def searches(draw: st.DrawFn, *, width: int | None = None, dtype: str = "float32") -> Search:
    vocabulary, n, steps = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(SEEDS))
    # With an end there are at least so many sequences.
    width = draw(st.integers(1, min(8, vocabulary + steps - 1))) if width is None else width
    end = draw(st.sampled_from([*range(vocabulary), *[None] * 2]))
    pad = draw(st.sampled_from([0, 1, -1, 9]))
    mask = draw(st.sampled_from([None, None, "one", "each"]))
    forbidden = rng.random((1 if mask == "one" else n, vocabulary)) < 0.3
    initial = None
    if width > 1 and draw(st.sampled_from([False, False, True])):
        initial = rng.choice(np.array([0, -0.5, -1, -np.inf], dtype), (n, width))
    rules = Rules(
        *(width, steps, end, pad, draw(st.sampled_from([0.0, 0.6, 1.0, -0.4]))),
        *(None if mask is None else np.repeat(forbidden, n // len(forbidden), 0), initial),
        np.dtype(dtype).type,
    )
    return Search(Machine(vocabulary, n, draw(SEEDS), dtype), rules, draw(CALLS))


@given(search=searches())
@examples(25)
def test_beam_search(search: Search) -> None:
    """Sequences, lengths, scores, and what each step chose; equal scores are in an order too."""
    found, expected = search.found(), search.expected()
    for name in ("sequences", "lengths", "scores"):
        np.testing.assert_array_equal(getattr(found, name), expected[name], name)
    for name, key in (("tokens", "tokens"), ("parents", "parents"), ("scores", "sums")):
        np.testing.assert_array_equal(getattr(found.history, name), expected[key], f"history: {name}")


@given(search=searches(width=1))
@examples(10)
def test_greedy(search: Search) -> None:
    """As a beam search of width 1."""

    def decoder(tokens: Any, states: Any) -> Any:
        return decode.greedy(search.machine.step, tokens, states, steps=search.rules.steps, **search.flags)

    found = call(search.how, decoder, search.machine.tokens, search.machine.states)
    expected = search.expected()
    for name in found._fields:
        np.testing.assert_array_equal(getattr(found, name), expected[name][:, 0], name)


@given(search=searches(width=1, dtype="float64"), data=st.data())
@examples(10)
def test_sample(search: Search, data: st.DataObject) -> None:
    machine, rules = search.machine, search.rules
    top_k = data.draw(st.sampled_from([None, *range(1, machine.vocabulary + 1)]))
    temperature = data.draw(st.sampled_from([1.0, 0.3, 2.5]))
    noise = np.random.default_rng(machine.seed).random((machine.n, rules.steps))

    def decoder(tokens: Any, states: Any, noise: Any) -> Any:
        return decode.sample(
            machine.step, tokens, states, noise, top_k=top_k, temperature=temperature, **search.flags
        )

    found = call(search.how, decoder, machine.tokens, machine.states, noise)
    for example in range(machine.n):
        tokens, score = judges.sample(
            machine.log_probs, example, noise[example], rules, top_k=top_k, temperature=temperature
        )
        np.testing.assert_array_equal(found.sequences[example], tokens)
        np.testing.assert_allclose(found.scores[example], score, rtol=1e-12)


@st.composite
def outputs(draw: st.DrawFn, *, time: int) -> tuple[Array, Array]:
    """Log probabilities `[n, time, classes]` in float64, and lengths."""
    n, classes = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(SEEDS))
    logits = rng.normal(size=(n, draw(st.integers(1, time)), classes)) * draw(st.sampled_from([1.0, 3.0]))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    lengths = rng.integers(0, logits.shape[1] + 1, size=n)
    lengths[0] = logits.shape[1]
    return log_probs, lengths


def check_labels(found: Any, example: int, expected: list[tuple[tuple[int, ...], float]], pad: int) -> None:
    """Compares the beams of an example with label sequences and their scores."""
    sequences, lengths, scores = (np.array(part[example]) for part in found)
    for beam, (labels, score) in enumerate(expected):
        padding = [pad] * (sequences.shape[1] - len(labels))
        np.testing.assert_array_equal(sequences[beam], [*labels, *padding])
        assert lengths[beam] == len(labels)
        np.testing.assert_allclose(scores[beam], score, rtol=1e-9, atol=1e-12)
    assert (scores[len(expected) :] == -np.inf).all()
    assert (sequences[len(expected) :] == pad).all()


@given(drawn=outputs(time=4), how=CALLS, data=st.data())
@examples(10)
def test_ctc_by_definition(drawn: tuple[Array, Array], how: str, data: st.DataObject) -> None:
    """All label sequences there are, with the sums over all of their paths."""
    log_probs, lengths = drawn
    classes = log_probs.shape[2]
    blank = data.draw(st.integers(-1, classes - 1))
    width = sum((classes - 1) ** length for length in range(log_probs.shape[1] + 1))
    found = call(how, lambda x, n: decode.ctc_beam(x, n, width=width, blank=blank, pad=9), *drawn)
    for example, length in enumerate(lengths):
        sums = judges.ctc_by_definition(log_probs[example, :length], blank % classes)
        expected = sorted(sums.items(), key=lambda item: -item[1])
        check_labels(found, example, [item for item in expected if item[1] > -np.inf], 9)


@given(drawn=outputs(time=9), how=CALLS, width=st.integers(1, 7))
@examples(10)
def test_ctc_beam(drawn: tuple[Array, Array], how: str, width: int) -> None:
    """With prefixes that are dropped, and come back."""
    log_probs, lengths = drawn
    found = call(how, lambda x, n: decode.ctc_beam(x, n, width=width, pad=-1), *drawn)
    for example, length in enumerate(lengths):
        expected = judges.ctc_beam(log_probs[example, :length], width, log_probs.shape[2] - 1)
        check_labels(found, example, expected, -1)


@given(drawn=outputs(time=9), how=CALLS, data=st.data())
@examples(10)
def test_ctc_greedy(drawn: tuple[Array, Array], how: str, data: st.DataObject) -> None:
    log_probs, lengths = drawn
    blank = data.draw(st.integers(-1, log_probs.shape[2] - 1))
    found = call(how, lambda x, n: decode.ctc_greedy(x, n, blank=blank, pad=7), *drawn)
    for example, length in enumerate(lengths):
        rows = log_probs[example, :length]
        labels = judges.labels_of(rows.argmax(1), blank % log_probs.shape[2])
        beams = [part[None, example] for part in found]
        check_labels([part[None] for part in beams], 0, [(labels, rows.max(1).sum())], 7)


@given(data=st.data(), how=CALLS, seed=SEEDS)
@examples(10)
def test_viterbi(data: st.DataObject, how: str, seed: int) -> None:
    """Equal sequences are in an order too."""
    n, time, tags = (data.draw(st.integers(1, most)) for most in (3, 5, 4))
    rng = np.random.default_rng(seed)
    scores, transitions, start, stop = (
        rng.integers(-3, 3, size) / 4 for size in ((n, time, tags), (tags, tags), tags, tags)
    )
    lengths = rng.integers(0, time + 1, n)
    found = call(
        how, lambda x, n: decode.viterbi(x, transitions, n, start=start, stop=stop, pad=5), scores, lengths
    )
    for example, length in enumerate(lengths):
        path, score = judges.viterbi(scores[example, :length], transitions, start, stop)
        np.testing.assert_array_equal(found.sequences[example], [*path, *[5] * (time - length)])
        assert (found.lengths[example], found.scores[example]) == (length, score)
