"""The proof of a decoder sees every mistake of one, and counts what rounding alone turns."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.tiers import some

from cudnn_convert.decode import beams, choices
from cudnn_convert.model import Signature
from cudnn_convert.reference import search
from cudnn_convert.report.values import DecodingReport
from cudnn_convert.values import Decoder, StreamState
from cudnn_convert.verification import decoding

VOCABULARY, UNITS, ROWS = 6, 4, 3
RNG = np.random.default_rng(5)
W = {
    name: RNG.normal(size=size, scale=2).astype(np.float32)
    for name, size in {
        "table": (VOCABULARY, UNITS),
        "kernel": (UNITS, UNITS),
        "out": (UNITS, VOCABULARY),
    }.items()
}
STATE = StreamState("rnn", "h", True, "h", "h_next", "h:0", "h_next:0", 1, UNITS)
BEAM = Decoder(
    kind="beam", steps=7, width=3, end=4, pad=9, length_penalty=0.9, top_k=None, temperature=1.0,
    history=True, token="ids", token_axis=1, logits="scores", logits_axis=1, scale="logits",
    vocabulary=VOCABULARY, masked=(),
    lengths=(), beside={}, states=(STATE,), signature=Signature({"tokens": "", "h": "", "noise": ""}, {}),
)  # fmt: skip
SAMPLE = replace(BEAM, kind="sample", width=1, length_penalty=0.0, history=False, temperature=0.6, top_k=4)
#: Searches whose calls give a mask, and scores to begin with.
KEYS = dict.fromkeys(("tokens", "h", "pad_mask", "noise"), "")
BEAM_OF_CALLS = replace(BEAM, signature=Signature(KEYS | {"initial_scores": ""}, {}))
SAMPLE_OF_CALLS = replace(SAMPLE, signature=Signature(KEYS, {}))
ALL = {
    "beam": BEAM,
    "sample": SAMPLE,
    "beam, masked": replace(BEAM, masked=(1, 3)),
    "sample, masked": replace(SAMPLE, masked=(1, 3)),
    "beam of calls": BEAM_OF_CALLS,
    "sample of calls": SAMPLE_OF_CALLS,
}
H = RNG.normal(size=(1, ROWS, UNITS)).astype(np.float32)
FEEDS = [{"ids": RNG.integers(0, VOCABULARY, (ROWS, 5)), "h": H}]


def step(feed: Any) -> dict[str, Any]:
    """A plain recurrence over all steps, batch first."""
    h, scores = feed["h"][0], []
    for ids in feed["ids"].T:
        h = np.tanh(W["table"][ids.astype(int)] + h @ W["kernel"])
        scores.append(h @ W["out"])
    return {"scores": np.stack(scores, 1), "h_next": h[None]}


def searching(decoder: Decoder, by_beams: Any = beams, by_choices: Any = choices) -> Any:
    """An artifact's search: the decoder of the library, over the same recurrence in TensorFlow."""

    def call(tokens: Any, h: Any) -> Any:
        h = tf.tanh(tf.gather(W["table"], tf.maximum(tokens, 0)) + h @ W["kernel"])
        return tf.nn.log_softmax(h @ W["out"]), h

    @tf.function(autograph=False)
    def decode(tokens: Any, h: Any, noise: Any, pad_mask: Any = None, initial_scores: Any = None) -> Any:
        if decoder.masked:
            pad_mask = np.isin(np.arange(VOCABULARY), decoder.masked)
        usual = {"end": decoder.end, "pad": decoder.pad, "pad_mask": pad_mask}
        if decoder.kind == "sample":
            found = by_choices.sample(
                call, tokens, h, noise, top_k=decoder.top_k, temperature=decoder.temperature, **usual
            )
            return found._asdict()
        found = by_beams.beam_search(
            *(call, tokens, h), width=decoder.width, steps=decoder.steps, keep_history=True,
            length_penalty=decoder.length_penalty, initial_scores=initial_scores, **usual,
        )  # fmt: skip
        kept = {f"history_{name}": value for name, value in found.history._asdict().items()}
        return {"sequences": found.sequences, "lengths": found.lengths, "scores": found.scores, **kept}

    def run(feed: Any) -> dict[str, Any]:
        found = decode(**{key: tf.constant(value[0] if key == "h" else value) for key, value in feed.items()})
        return {key: value.numpy() for key, value in found.items()}

    return run


def judged(decoder: Decoder, decode: Any) -> DecodingReport:
    plan: Any = SimpleNamespace(decoder=decoder)
    return decoding.judge_decoder(plan, step, decode, FEEDS, seed=3)


@pytest.mark.parametrize("name", ALL)
def test_the_librarys_search_is_proven(name: str) -> None:
    decoder = ALL[name]
    report = judged(decoder, searching(decoder))
    assert report.passed, report.message
    assert report.judged
    assert report.ended
    assert report.compared > ROWS
    assert report.needed < 1


@pytest.mark.parametrize("decoder", [BEAM, SAMPLE], ids=["beam", "sample"])
def test_a_step_that_takes_its_scale_from_all_rows_is_proven(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in int8 does: rows whose answers are not read count too."""
    plain = tf.tanh
    monkeypatch.setattr(tf, "tanh", lambda x: plain(x) / tf.reduce_mean(tf.abs(plain(x))))

    def scaled_step(feed: Any) -> dict[str, Any]:
        h, scores = feed["h"][0], []
        for ids in feed["ids"].T:
            h = np.tanh(W["table"][ids.astype(int)] + h @ W["kernel"])
            h = h / np.abs(h).mean()
            scores.append(h @ W["out"])
        return {"scores": np.stack(scores, 1), "h_next": h[None]}

    plan: Any = SimpleNamespace(decoder=decoder)
    report = decoding.judge_decoder(plan, scaled_step, searching(decoder), FEEDS, seed=3)
    assert report.passed, report.message
    assert report.judged
    assert report.ended


#: What is changed in a decoder's source: module, old text, new text.
MUTANTS: dict[str, tuple[ModuleType, str, str]] = {
    "state not gathered": (beams, "arguments.take_rows(state, places), states)", "state, states)"),
    "wrong parent": (beams, "return scores, best // candidates,", "return scores, best // candidates * 0,"),
    "wrong token": (beams, "tokens - 1 if self.can_end else tokens", "tf.maximum(tokens - 2, 0)"),
    "wrong penalty": (beams, "((5 + length) / 6) ** self.penalty", "((5 + length) / 6) ** 3"),
    "penalty of running lengths": (beams,
                                   "tf.where(has_ended, ended, lengths)",
                                   "tf.where(has_ended, 7, lengths)"),
    "end ignored": (beams, "tokens == self.rows.end", "tokens == -7"),
    "ended beams dropped": (beams,
                            "itself = tf.where(has_ended, scores, rows.never)",
                            "itself = scores + rows.never"),
    "no padding": (beams, "tf.where(numbers < 0, pad, tokens)", "tokens"),
    "paths not followed": (beams, "before = tf.gather(arguments.take_rows(",
                           "before = slots + 0 * tf.gather(arguments.take_rows("),
    "scores after the penalty": (beams, "scores = tf.gather(flat, best, batch_dims=1)",
                                 "scores = tf.gather(tf.reshape(ranks, shape), best, batch_dims=1)"),
    "the first token again": (choices, "after = _Loop(tf.where(goes_on, tokens, 0), states",
                              "after = _Loop(rows.tokens, states"),
    "the first noise again": (choices, "_draw(values / temperature, tf.gather(noise, number, axis=1))",
                              "_draw(values / temperature, noise[:, 0])"),
    "a mask that is ignored": (beams, "if bias is not None:", "if False:"),
    "a sample's mask that is ignored": (choices, "if rows.bias is not None:", "if False:"),
    "a mask of another row": (beams, "bias[:, None]", "bias[::-1, None]"),
    "first scores that are ignored": (beams, "scores = self.initial_scores\n", "scores = None\n"),
    "no temperature": (choices, "_draw(values / temperature, ", "_draw(values, "),
    "the end of samples ignored": (choices, "goes_on & (tokens == rows.end)", "goes_on & (tokens == -7)"),
}  # fmt: skip
FIRST = (
    "state not gathered",
    "wrong parent",
    "wrong penalty",
    "end ignored",
    "the first noise again",
    "a mask that is ignored",
    "a sample's mask that is ignored",
    "first scores that are ignored",
)


def mutated(monkeypatch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> ModuleType:
    """A module with a text replaced."""
    assert module.__file__ is not None
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    made = ModuleType(f"{module.__name__}_mutant")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(compile(text.replace(old, new), module.__file__, "exec"), made.__dict__)
    return made


@pytest.mark.parametrize("name", some(FIRST, *(name for name in MUTANTS if name not in FIRST)))
def test_a_wrong_search_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, old, new = MUTANTS[name]
    made = mutated(monkeypatch, module, old, new)
    beam, sample = (BEAM, SAMPLE)
    if "mask" in name or "first scores" in name:
        beam, sample = BEAM_OF_CALLS, SAMPLE_OF_CALLS
    if module is choices:
        report = judged(sample, searching(sample, by_choices=made))
    else:
        report = judged(beam, searching(beam, by_beams=made))
    assert not report.passed
    assert report.message.startswith("row "), report.message


CLOSE = 1e-9
#: Of two rows the first has two tokens whose chances differ by less than rounding; the second is clear.
CHANCES = np.log([[0.4, 0.4 + CLOSE, 0.2 - CLOSE], [0.6, 0.3, 0.1]])
PLAIN = replace(BEAM, kind="greedy", width=1, steps=1, end=None, length_penalty=0.0, history=False)


def compared(tokens: list[int], scores: list[float] | None = None) -> DecodingReport:
    """The report of a search of one step that found a token for each of the two rows."""

    def call(fed: Any, states: Any) -> Any:
        return CHANCES[states[0][:, 0]], states

    start, states = np.zeros(2, np.int32), [np.array([[0], [1]])]
    expected = search.search(call, start, states, search.Rules(width=1, steps=1))
    found = {
        "sequences": np.array(tokens).reshape(2, 1, 1),
        "lengths": np.ones((2, 1), int),
        "scores": np.array(scores or CHANCES[[0, 1], tokens]).reshape(2, 1),
    }
    return decoding.compare_searches(
        *(PLAIN, expected, found),
        lambda: search.score_sequences(call, start, states, found["sequences"], found["lengths"])[..., None],
    )


def test_what_rounding_turns_is_counted() -> None:
    same, turned = compared([1, 0]), compared([0, 0])
    assert (same.passed, same.ties, same.judged) == (True, 0, 1)
    assert (turned.passed, turned.ties, turned.judged) == (True, 1, 1)


def test_what_rounding_turns_must_have_its_own_score() -> None:
    report = compared([0, 0], [-0.5, float(CHANCES[1, 0])])
    assert not report.passed
    assert "expected the scores of its sequences" in report.message


def test_a_clear_choice_is_not_excused() -> None:
    report = compared([1, 1])
    assert report.message == "row 1: beam 0: expected [0], found [1]"
    assert not report.passed


def test_a_search_that_always_hangs_on_rounding_is_not_proven() -> None:
    decoder = replace(BEAM, vocabulary=2, end=None, width=2, steps=3, history=False)

    def even(feed: Any) -> dict[str, Any]:
        shape = feed["ids"].shape
        return {"scores": np.zeros((*shape, 2), np.float32), "h_next": feed["h"]}

    def call(feed: Any) -> dict[str, Any]:
        n = len(feed["tokens"])
        sequences = np.zeros((n, 2, 3), int)
        sequences[:, 1, 2] = 1
        scores = np.full((n, 2), 3 * np.log(0.5), np.float32)
        return {"sequences": sequences, "lengths": np.full((n, 2), 3), "scores": scores}

    plan: Any = SimpleNamespace(decoder=decoder)
    report = decoding.judge_decoder(plan, even, call, [{**FEEDS[0], "ids": FEEDS[0]["ids"] % 2}], seed=1)
    assert not report.passed
    assert report.message.startswith("not proven: expected a search that does not hang on rounding")


def test_a_weight_of_another_model_is_seen() -> None:
    own = np.linspace(0, 1, 6, dtype=np.float32)
    arrays = {
        "stream.onnx: constant_1": own,
        "decode.onnx: step/constant_1": own.copy(),
        "decode.onnx: x": own[:2],
    }
    assert decoding.find_other_weight(arrays, BEAM) == ""
    arrays["decode.onnx: step/constant_1"][3] += 1e-6
    expected = "decode.onnx: step/constant_1: expected the values that stream.onnx has, found others"
    assert decoding.find_other_weight(arrays, BEAM) == expected


def test_what_no_rounding_explains_is_a_difference() -> None:
    """Lengths, pads and ends that do not fit each other, of each kind of search."""
    greedy = replace(BEAM, kind="greedy", width=1)
    endless = replace(greedy, end=None)
    none = -np.inf

    def differs(decoder: Decoder, sequence: list[int], length: int, score: float = -1.5) -> str:
        row = {
            "sequences": np.array([sequence + [9] * (7 - len(sequence))]),
            "lengths": np.array([length]),
            "scores": np.array([score]),
        }
        return decoding._differs_in_form(decoder, row, 2)

    assert differs(greedy, [1, 4], 2) == differs(greedy, [1] * 7, 7) == differs(greedy, [], 0, none) == ""
    assert differs(endless, [4, 1] * 3 + [5], 7) == differs(endless, [], 0, none) == ""
    for decoder, sequence, length, score, words in (
        (greedy, [1, 4], 8, -1.5, "expected a length that fits its score -1.5, found 8"),
        (greedy, [1, 4], 2, none, "expected a length that fits its score -inf, found 2"),
        (greedy, [], 0, -1.5, "expected a length that fits its score -1.5, found 0"),
        (greedy, [1, 4, 3], 2, -1.5, "expected 9 after the length 2, found "),
        (greedy, [4, 1, 4], 3, -1.5, "expected nothing behind the end 4, found "),
        (greedy, [1, 2], 2, -1.5, "expected an end or 7 tokens, found 2"),
        (endless, [1, 2], 2, -1.5, "expected 7 tokens, found 2"),
    ):
        assert differs(decoder, sequence, length, score).startswith(f"row 2, beam 0: {words}")
