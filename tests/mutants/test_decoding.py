"""Mistakes in the decoders: each of them must change an answer that the judges give.

A mutant is a module whose text has one change.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from properties.test_decoding import check_labels
from support import decoding_judges as judges
from support.decoding_judges import Rules
from support.decoding_models import Machine

from cudnn_convert import decode

#: Beams of a prefix search: enough that a prefix is dropped, and found again.
WIDTH = 5

#: By module: what a mistake is called, the text that is there, and the text that would be wrong.
BEAMS = {
    "ties to the higher candidate": (
        "scores, best = tf.math.top_k(flat, self.width)",
        "scores, best = tf.math.top_k(flat[:, ::-1], self.width)\n"
        "            best = flat.shape[1] - 1 - best",
    ),
    "no length penalty": ("if self.penalty:", "if False:"),
    "a penalty without the end token": ("self.penalties(), lengths)", "self.penalties(), lengths - 1)"),
    "scores after the penalty": ("tf.gather(flat, best", "tf.gather(tf.reshape(ranks, shape), best"),
    "states that stay where they were": ("arguments.take_rows(state, places), states", "state, states"),
    "tokens of other parents": ("trace_paths(parents, slots)", "parents * 0 + slots"),
    "ended beams that are not padded": ("numbers < 0", "numbers < -1"),
    "parents as tokens": ("numbers, parents = tf.unstack(", "parents, numbers = tf.unstack("),
    "beams that do not exist": ("sequences = tf.where(exists, ", "sequences = tf.where(exists | True, "),
    "lengths without the end token": ("self.rows.end, following", "self.rows.end, number"),
    "an end that is not kept": ("tf.gather(ended, parents, batch_dims=1)", "ended"),
    "an end where one beam has ended": ("tf.reduce_any(open_beams)", "tf.reduce_all(open_beams)"),
    "ended beams that go on": ("tf.where(has_ended, rows.never, scores)", "scores * 1"),
    "ended beams that are lost": ("tf.where(has_ended, scores, rows.never)", "rows.never + scores"),
    "a mask that is ignored": ("if bias is not None:", "if False:"),
    "a mask of another example": ("bias[:, None]", "bias[::-1, None]"),
    "beams that begin alike": ("[-math.inf]", "[0.0]"),
    "initial scores that are ignored": ("scores = self.initial_scores\n", "scores = None\n"),
}
CTC = {
    "repeats without a blank": ("old.blank[:, :, None], total", "total[:, :, None], total"),
    "prefixes that stay apart": ("is_next &= total[:, None] >", "is_next &= total[:, None] <="),
    "prefixes counted twice": ("tf.where(is_beam, self.never, longer)", "longer"),
    "blanks that end a label": (
        "is_longer, self.never, tf.gather(blank",
        "is_longer, scores, tf.gather(blank",
    ),
    "prefixes that only look alike": ("None] | follows)", "None] | longer_parent)"),
    "rows that go on past their length": ("number < self.steps", "number <= self.steps"),
}
CRF = {
    "transitions from the later tag": ("tf.transpose(transitions)[None]", "transitions[None]"),
    "a last tag that is the first": ("trace_paths(parents, last)", "trace_paths(parents, 0 * last)"),
    "rows that go on past their length": ("(number + 1 < lengths)", "(number < lengths)"),
}
PATHS = {
    "parents of the step before": ("last - done", "tf.maximum(last - 1 - done, 0)"),
    "paths in the order of the walk": ("tf.reverse(rows.stack(), [0])", "rows.stack()"),
}


def changed(name: str, old: str, new: str) -> ModuleType:
    """A module of the room with a change of its text."""
    spec = importlib.util.find_spec(f"cudnn_convert.decode.{name}")
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    module = importlib.util.module_from_spec(spec)
    exec(compile(text.replace(old, new), spec.origin, "exec"), module.__dict__)
    return module


def rules() -> list[Rules]:
    """Searches that together show every mistake: with ends, ties, penalties, masks, and without."""
    rng = np.random.default_rng(5)
    mask = rng.random((3, 5)) < 0.4
    initial = rng.choice(np.array([0, -0.5, -1], np.float32), (3, 4))
    return [
        Rules(4, 6, 2, 9),
        Rules(4, 6, 1, 9, 1.0),
        Rules(3, 5, None, 0),
        Rules(4, 5, 0, -1, 0.6, mask),
        Rules(4, 4, 3, 9, 0.0, None, initial),
        Rules(4, 3, None, 9, 0.0, np.tile(np.arange(5) != 2, (3, 1))),  # one sequence for four beams
    ]


def check_beams(beam_search: Any) -> None:
    for seed, rule in enumerate(rules()):
        machine = Machine(5, 3, seed)
        found = beam_search(
            machine.step, machine.tokens, machine.states, width=rule.width, steps=rule.steps, end=rule.end,
            pad=rule.pad, length_penalty=rule.penalty, initial_scores=rule.initial, pad_mask=rule.mask,
        )  # fmt: skip
        expected = judges.beam_search(machine.log_probs, machine.n, rule)
        for name in ("sequences", "lengths", "scores"):
            np.testing.assert_array_equal(getattr(found, name), expected[name], name)


def check_ctc(ctc_beam: Any) -> None:
    rng = np.random.default_rng(1)
    log_probs = np.log(rng.dirichlet(np.ones(4), (4, 12)))
    lengths = [12, 4, 7, 12]
    found = ctc_beam(log_probs, lengths, width=WIDTH, pad=-1)
    for example, length in enumerate(lengths):
        check_labels(found, example, judges.ctc_beam(log_probs[example, :length], WIDTH, 3), -1)


def check_viterbi(viterbi: Any) -> None:
    rng = np.random.default_rng(3)
    scores, transitions = rng.normal(size=(6, 5, 3)), rng.normal(size=(3, 3))
    lengths = [5, 2, 3, 4, 1, 2]
    found = viterbi(scores, transitions, lengths, pad=7)
    for example, length in enumerate(lengths):
        path, _ = judges.viterbi(scores[example, :length], transitions, np.zeros(3), np.zeros(3))
        np.testing.assert_array_equal(found.sequences[example], [*path, *[7] * (5 - length)])


CHECKS = {
    "beams": ("beam_search", check_beams),
    "ctc": ("ctc_beam", check_ctc),
    "crf": ("viterbi", check_viterbi),
}
TABLES = {"beams": BEAMS, "ctc": CTC, "crf": CRF}
MATRIX = [
    pytest.param(module, *texts, id=f"{module}-{name}", marks=pytest.mark.mutant(f"decode: {module}, {name}"))
    for module, table in TABLES.items()
    for name, texts in table.items()
]


@pytest.mark.parametrize(("module", "old", "new"), MATRIX)
def test_a_mistake_in_a_decoder(module: str, old: str, new: str) -> None:
    name, check = CHECKS[module]
    mutant = getattr(changed(module, old, new), name)
    # Wrong values, or an op that refuses them.
    with pytest.raises((AssertionError, tf.errors.InvalidArgumentError)):
        check(mutant)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(*texts, id=name, marks=pytest.mark.mutant(f"decode: paths, {name}"))
        for name, texts in PATHS.items()
    ],
)
def test_a_mistake_in_paths(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_paths = changed("beams", old, new).trace_paths
    for module, (name, check) in CHECKS.items():
        if module == "ctc":
            continue
        monkeypatch.setattr(f"cudnn_convert.decode.{module}.trace_paths", trace_paths)
        with pytest.raises(AssertionError):
            check(getattr(decode, name))


def test_without_a_mistake_all_is_right() -> None:
    for name, check in CHECKS.values():
        check(getattr(decode, name))
