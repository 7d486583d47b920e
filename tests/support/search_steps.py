"""One step of a model, in NumPy, and what a search over it gives; tests build the same step as a graph.

Of rows n:  `numbers = table[token] + 3 * state + scale * context + bias`, with a vocabulary of 40, and
`next = numbers / 4`; a second state stays as it is. So a prefix alone says what comes next.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cudnn_convert.model import Signature
from cudnn_convert.values import Decoder, StreamState
from support import decoding_judges as judges

#: END is a token that each kind of search meets in one of the rows.
VOCABULARY, ROWS, WIDTH, STEPS, END, PAD = 40, 3, 4, 5, 21, -2
RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(VOCABULARY, VOCABULARY)) * 2
BIAS = RNG.normal(size=VOCABULARY)
FEED = {
    "tokens": np.array([3, 11, 25], np.int32),
    "state": RNG.normal(size=(1, ROWS, VOCABULARY)),
    "context": RNG.normal(size=(VOCABULARY, ROWS)),
    "scale": np.array(1.5),
    "noise": RNG.random((ROWS, STEPS)).astype(np.float32),
    "still": RNG.normal(size=(1, ROWS, 2)),
}


def numbers_of(row: Any, state: Any, context: Any, scale: Any, bias: Any) -> Any:
    """For the next token; `row` is the table's."""
    return row + 3 * state + scale * context + bias


def decoder(kind: str, scale: str, logits_axis: int | None) -> Decoder:
    """A search `greedy`, `sample` or `beam`, whose step has the inputs and outputs of `FEED`."""
    keys = ["tokens", *(["noise"] if kind == "sample" else []), "state", "still", "context", "scale"]
    outputs = ["sequences", "lengths", "scores"]
    if kind == "beam":
        outputs += ["history_tokens", "history_parents", "history_scores"]
    return Decoder(
        kind=kind, steps=STEPS, width=WIDTH if kind == "beam" else 1, end=END, pad=PAD, length_penalty=0.7,
        top_k=6, temperature=1.7, history=kind == "beam", scale=scale, vocabulary=VOCABULARY, masked=(),
        token="token", token_axis=1, logits="logits", logits_axis=logits_axis, lengths=("lengths",),
        beside={"context": 1, "scale": None},
        states=(
            StreamState("rnn", "h", True, "state", "next", "state:0", "next:0", 1, VOCABULARY),
            StreamState("other", "h", True, "still", "still_next", "still:0", "still:0", 1, 2),
        ),
        signature=Signature(
            {key: f"decode/{key}:0" for key in keys}, {key: f"decode/{key}:0" for key in outputs}
        ),
    )  # fmt: skip


@cache
def log_probs(row: int, prefix: tuple[int, ...]) -> Any:
    """Those of the next token after a prefix."""
    state = FEED["state"][0, row]
    context = FEED["context"][:, row]
    for token in (FEED["tokens"][row], *prefix):
        given = numbers_of(TABLE[token], state, context, FEED["scale"], BIAS)
        state = given / 4
    return given - np.log(np.exp(given).sum())


def check_answers(answers: dict[str, Any], kind: str, *, scores: Any, bound: float) -> None:
    """Compare what a search of `kind` gave, by key, with the judge's; `scores` is their dtype."""
    is_beam = kind == "beam"
    rules = judges.Rules(WIDTH if is_beam else 1, STEPS, END, PAD, 0.7 if is_beam else 0.0, dtype=scores)
    if kind == "sample":
        drawn = [
            judges.sample(log_probs, row, FEED["noise"][row], rules, top_k=6, temperature=1.7)
            for row in range(ROWS)
        ]
        expected = {
            "sequences": np.array([tokens for tokens, _ in drawn]),
            "scores": np.array([score for _, score in drawn]),
        }
    else:
        best = judges.beam_search(log_probs, ROWS, rules)
        names = {"tokens": "history_tokens", "parents": "history_parents", "sums": "history_scores"}
        expected = {names.get(key, key): value if is_beam else value[:, 0] for key, value in best.items()}
    assert is_beam == ("history_scores" in answers)
    assert answers["scores"].dtype == scores
    for key in answers.keys() & expected.keys():
        # Scores near 0 are sums of numbers near 1, each rounded.
        limit = bound if answers[key].dtype.kind == "f" else 0.0
        np.testing.assert_allclose(answers[key], expected[key], rtol=limit, atol=limit, err_msg=key)
