"""Judges a search in an artifact by a search in NumPy, on the artifact's step.

The step is proven by itself, as any model. Here the artifact's step signature is run step by step by
`reference.search`, and what that finds must be what the artifact's `decode` answers: ids, lengths, scores
and, where they are kept, each step's tokens, parents and scores. Where rounding may turn a choice, another
answer is counted, and must still have the scores that its sequences have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.model import Array
from cudnn_convert.plan import STREAM, Plan
from cudnn_convert.reference import search
from cudnn_convert.report.values import DecodingReport
from cudnn_convert.values import Decoder
from cudnn_convert.verification import effort

_SEQUENCES: Final = ("sequences", "lengths", "scores")


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a search: tokens `[n]` and further inputs by key.

    The inputs are those of the step, and of what runs before. `dtypes` are those of the step's inputs, by
    key; `noise [n, steps]` is that of samples. `mask [n, vocabulary]` is true for tokens that are never
    chosen; `scores [n, width]` are those that beams begin with. Both are None where the search has none.
    """

    tokens: Array
    inputs: Mapping[str, Array]
    dtypes: Mapping[str, Any]
    noise: Array
    mask: Array | None = None
    scores: Array | None = None

    def list_own(self) -> dict[str, Array]:
        """Return the inputs of the search alone in a call, by key.

        The inputs belong to the search, and the model lacks them.
        """
        own = {Decoder.NOISE: self.noise, Decoder.PAD_MASK: self.mask, Decoder.INITIAL_SCORES: self.scores}
        return {key: value for key, value in own.items() if value is not None}


def judge_decoder(
    plan: Plan,
    step: runners.Runner,
    decode: runners.Runner,
    feeds: Sequence[Mapping[str, Array]],
    *,
    seed: int,
) -> DecodingReport:
    """Judge the answers of `decode` by the artifact's `step`, both by key.

    `feeds` are inputs of the step by key: a search goes on from the states behind them. One that begins by
    itself begins with their first tokens; they then have what the source begins with.
    """
    decoder = plan.decoder
    assert decoder is not None
    rng = np.random.default_rng(seed)
    largest = sorted(feeds, key=lambda feed: -feed[decoder.token].size)
    reports: list[DecodingReport] = []
    for turn in range(effort.SEARCH_ROUNDS):
        context.report_progress("verifying", turn, effort.SEARCH_ROUNDS)
        start = _draw_rules(decoder, _begin(decoder, step, largest[turn % len(largest)], rng), rng)
        reports.append(_judge(decoder, step, decode, start, seed))
        total = _add(reports)
        if not total.passed or (total.judged and (total.ended or decoder.end is None)):
            break
    total = _add(reports)
    if total.passed and not total.judged:
        what = "expected a search that does not hang on rounding, found none on these inputs"
        return replace(total, passed=False, message=f"not proven: {what}; give others with --data")
    return total


def find_other_weight(arrays: Mapping[str, Array], decoder: Decoder) -> str:
    """Describe a weight of the search's file different from the part's weight, else "".

    The weights are compared bit for bit. `arrays` are those of all files, after `FILE: `.
    """
    files = {decoder.STEP: STREAM} | {f"{part.name}/": part.name for part in decoder.before}
    for prefix, file in files.items():
        begin = f"{decoder.NAME}.onnx: {prefix}"
        for name, value in arrays.items():
            own = arrays.get(f"{file}.onnx: {name.removeprefix(begin)}")
            if name.startswith(begin) and (own is None or own.tobytes() != value.tobytes()):
                return f"{name}: expected the values that {file}.onnx has, found others"
    return ""


def _add(reports: Sequence[DecodingReport]) -> DecodingReport:
    """Join the reports of several rounds."""
    failed = next((report for report in reports if not report.passed), None)
    return replace(
        reports[0] if failed is None else failed,
        **{
            name: sum(getattr(report, name) for report in reports)
            for name in ("examples", "judged", "ties", "ended", "compared")
        },
        worst=max(report.worst for report in reports),
        needed=max(report.needed for report in reports),
    )


def _begin(
    decoder: Decoder, step: runners.Runner, feed: Mapping[str, Array], rng: np.random.Generator
) -> Start:
    """Draw random tokens, and take the states behind a feed; the first row begins anew.

    A search that begins by itself has the feed's first tokens, and the states of the source.
    """
    tokens = feed[decoder.token]
    rows = tokens.shape[1 - decoder.token_axis]
    noise = rng.random((rows, decoder.steps)).astype(np.float32)
    dtypes = {key: value.dtype for key, value in feed.items()}
    inputs = {key: value for key, value in feed.items() if key != decoder.token}
    if not decoder.takes_states:
        return Start(tokens.take(0, decoder.token_axis).astype(np.int32), inputs, dtypes, noise)
    answers = step(feed)
    for state in decoder.states:
        last = np.array(answers[state.next_key])
        last[:, 0] = 0
        inputs[state.key] = last
    readable = decoder.vocabulary - (decoder.end == decoder.vocabulary - 1)
    return Start(np.asarray(rng.integers(0, readable, rows), np.int32), inputs, dtypes, noise)


def _draw_rules(decoder: Decoder, start: Start, rng: np.random.Generator) -> Start:
    """Add the mask and first scores of a call to `start`.

    The values are random where each call gives its own.
    """
    n, mask, scores = len(start.tokens), None, None
    if decoder.masked:
        mask = np.tile(np.isin(np.arange(decoder.vocabulary), decoder.masked), (n, 1))
    elif Decoder.PAD_MASK in decoder.signature.inputs:
        mask = rng.random((n, decoder.vocabulary)) < effort.MASKED_TOKENS
        mask[np.arange(n), rng.integers(0, decoder.vocabulary, n)] = False
    if Decoder.INITIAL_SCORES in decoder.signature.inputs:
        scores = rng.normal(scale=2.0, size=(n, decoder.width)).astype(np.float32)
        scores[1:2, -1:] = -np.inf if decoder.width > 1 else 0.0
    return replace(start, mask=mask, scores=scores)


def _judge(
    decoder: Decoder, step: runners.Runner, decode: runners.Runner, start: Start, seed: int
) -> DecodingReport:
    """Judge a call of a search."""
    asked = {**start.list_own(), **start.inputs, "tokens": start.tokens}
    answers = decode({key: asked[key] for key in decoder.signature.inputs})
    rules = search.Rules(
        width=decoder.width,
        steps=decoder.steps,
        end=decoder.end,
        pad=decoder.pad,
        penalty=decoder.length_penalty,
        noise=start.noise.astype(np.float64) if decoder.kind == "sample" else None,
        top_k=decoder.top_k,
        temperature=decoder.temperature,
        mask=start.mask,
        scores=None if start.scores is None else start.scores.astype(np.float64),
    )
    states = [np.moveaxis(start.inputs[state.key], 1, 0) for state in decoder.states]
    call = _as_step(decoder, step, start)
    expected = search.search(call, start.tokens, states, rules, seed=seed)
    if decoder.kind != "beam":  # one path for each row
        answers = {key: value[:, None] for key, value in answers.items()}
    return compare_searches(
        decoder, expected, answers, lambda: _scores_of(call, start, states, answers), mask=start.mask
    )


def _scores_of(
    call: search.Step, start: Start, states: Sequence[Array], answers: Mapping[str, Array]
) -> Array:
    """Return the possible scores of sequences `[n, width, ...]`, per first score of a beam."""
    sums = search.score_sequences(call, start.tokens, states, answers["sequences"], answers["lengths"])
    return sums[..., None] + (0.0 if start.scores is None else start.scores[:, None].astype(np.float64))


def _as_step(decoder: Decoder, step: runners.Runner, start: Start) -> search.Step:
    """Return the artifact's step in the judge's form: tokens and states with rows first."""
    n = len(start.tokens)

    def call(tokens: Array, states: Sequence[Array]) -> tuple[Array, list[Array]]:
        ids = tokens.astype(start.dtypes[decoder.token])
        feed: dict[str, Any] = {decoder.token: np.expand_dims(ids, decoder.token_axis)}
        feed |= {key: np.ones(len(tokens), start.dtypes[key]) for key in decoder.lengths}
        for key, axis in decoder.beside.items():
            value = start.inputs[key]
            feed[key] = value if axis is None else np.repeat(value, len(tokens) // n, axis)
        pairs = zip(decoder.states, states, strict=True)
        feed |= {state.key: np.moveaxis(value, 0, 1) for state, value in pairs}
        answers = step(feed)
        return _log_probs(decoder, answers[decoder.logits]), [
            np.moveaxis(answers[state.next_key], 1, 0) for state in decoder.states
        ]

    return call


def _log_probs(decoder: Decoder, values: Array) -> Array:
    """Return log probabilities `[m, vocabulary]` of a step's numbers, in float64.

    The numbers themselves tell what they are, unless the user has.
    """
    if decoder.logits_axis is not None:
        values = values.take(0, decoder.logits_axis)
    scale = decoder.scale if decoder.is_scale_given else search.read_scale(values)
    values = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        if scale == "log_probabilities":
            return values
        if scale == "probabilities":
            return np.asarray(np.log(values))
        above = values - values.max(-1, keepdims=True)
        return np.asarray(above - np.log(np.exp(above).sum(-1, keepdims=True)))


def compare_searches(
    decoder: Decoder,
    expected: search.SearchResult,
    answers: Mapping[str, Array],
    rescore: Callable[[], Array],
    *,
    mask: Array | None = None,
) -> DecodingReport:
    """Compare the answers of a search with the expected answers.

    `answers` has the keys of the decoder's outputs, a row of beams for each example; `rescore` gives the
    scores that its sequences may have, `[n, width, ...]`. `mask [n, vocabulary]` is true for tokens that are
    never chosen.
    """
    width, steps = decoder.width, decoder.steps
    shape = (len(expected.examples), width)
    wanted = {"sequences": (*shape, steps), "lengths": shape, "scores": shape}
    wrong = [
        f"expected {key} of the shape {list(size)}, found "
        + (str([*answers[key].shape]) if key in answers else "none")
        for key, size in wanted.items()
        if key not in answers or answers[key].shape != size
    ]
    report = DecodingReport(
        True, decoder.kind, shape[0], judged=0, ties=0, ended=0, compared=0, worst=0.0, needed=0.0
    )
    if wrong:
        return replace(report, passed=False, message=wrong[0])
    finite = [abs(p.score) for e in expected.examples for p in e.paths if p.score > -np.inf]
    most = max(finite, default=0.0)
    atol = (
        effort.SCORE_TOLERANCE * (1 + most)
        + steps * effort.SCORE_SUM_ROUNDING * most
        + effort.SCORE_NOISE_MARGIN * expected.noise
    )
    sums: Array | None = None
    judged, ties, message, worst = 0, 0, "", 0.0
    for number, example in enumerate(expected.examples):
        row = {key: value[number] for key, value in answers.items()}
        # What is next to each other may be turned by the rounding of both.
        is_close = min(example.kept, example.order, example.share) <= effort.CLOSE_SCORES * atol
        is_open = min(example.kept, example.share) <= effort.CLOSE_SCORES * atol or (
            decoder.kind == "sample" and is_close
        )
        message = message or _differs_in_form(decoder, row, number)
        if mask is not None:
            message = message or _find_masked(row, number, mask[number])
        difference = _differs(decoder, example, row, atol)
        if not difference:
            judged += not is_close
            worst = max(worst, _gap([path.score for path in example.paths], row["scores"]))
            if not is_close:
                message = message or _differs_in_history(decoder, example, row, number, atol)
            continue
        if not is_close or not (is_open or _is_reordered(example, row)):
            message = message or f"row {number}: {difference}"
            continue
        ties += 1
        sums = rescore() if sums is None else sums
        exists = row["scores"] > -np.inf
        gap = _gap_to_nearest(sums[number][exists], row["scores"][exists])
        worst = max(worst, gap)
        if gap > atol:
            message = (
                message or f"row {number}: expected the scores of its sequences, found others by {gap:.2e}"
            )
    ended = sum(path.ended for example in expected.examples for path in example.paths)
    return replace(
        report,
        passed=not message,
        judged=judged,
        ties=ties,
        ended=ended,
        compared=int(answers["lengths"].sum()),
        worst=worst,
        needed=worst / atol,
        message=message,
    )


def _gap(expected: Any, answers: Any) -> float:
    """Return the largest difference of scores; infinite if a single side is infinite."""
    expected, answers = np.asarray(expected, np.float64), np.asarray(answers, np.float64)
    with np.errstate(invalid="ignore"):
        gaps = np.where(expected == answers, 0.0, np.abs(expected - answers))
    return float(np.max(np.nan_to_num(gaps, nan=np.inf), initial=0.0))


def _gap_to_nearest(expected: Array, answers: Array) -> float:
    """Return the largest distance of scores `[m]` from the nearest allowed score `[m, ...]`."""
    if not answers.size:
        return 0.0
    gaps = np.abs(expected - answers.astype(np.float64)[:, None])
    return float(np.nanmin(np.where(np.isfinite(gaps), gaps, np.inf), axis=-1).max())


def _find_masked(row: Mapping[str, Array], number: int, mask: Array) -> str:
    """Describe the first beam with a masked token; return "" if absent."""
    for beam, (sequence, length) in enumerate(zip(row["sequences"], row["lengths"], strict=True)):
        if mask[sequence[:length]].any():
            return f"row {number}, beam {beam}: expected no masked token, found {[*sequence[:length]]}"
    return ""


def _differs_in_form(decoder: Decoder, row: Mapping[str, Array], number: int) -> str:
    """Describe an answer's invalid form, independent of rounding, or return ""."""
    for beam, (sequence, length, score) in enumerate(zip(*(row[key] for key in _SEQUENCES), strict=True)):
        where = f"row {number}, beam {beam}"
        if not 0 <= length <= decoder.steps or (score == -np.inf) != (length == 0):
            return f"{where}: expected a length that fits its score {score}, found {length}"
        if (sequence[length:] != decoder.pad).any():
            return f"{where}: expected {decoder.pad} after the length {length}, found {[*sequence[length:]]}"
        taken = sequence[:length]
        if decoder.end is not None and length:
            ends = np.flatnonzero(taken == decoder.end)
            if len(ends) and ends[0] != length - 1:
                return f"{where}: expected nothing behind the end {decoder.end}, found {[*taken]}"
            if not len(ends) and length != decoder.steps and decoder.kind != "sample":
                return f"{where}: expected an end or {decoder.steps} tokens, found {length}"
        elif length not in (0, decoder.steps):
            return f"{where}: expected {decoder.steps} tokens, found {length}"
    return ""


def _differs(decoder: Decoder, example: search.Example, row: Mapping[str, Array], atol: float) -> str:
    """Describe the first difference between the paths of an example and a row, else ""."""
    for beam, path in enumerate(example.paths):
        tokens = () if path.score == -np.inf else path.tokens
        wanted = [*tokens, *[decoder.pad] * (decoder.steps - len(tokens))]
        if wanted != row["sequences"][beam].tolist():
            return f"beam {beam}: expected {wanted}, found {row['sequences'][beam].tolist()}"
        if row["lengths"][beam] != len(tokens):
            return f"beam {beam}: expected the length {len(tokens)}, found {row['lengths'][beam]}"
        if _gap(path.score, row["scores"][beam]) > atol:
            return f"beam {beam}: expected the score {path.score:.6g}, found {row['scores'][beam]:.6g}"
    return ""


def _is_reordered(example: search.Example, row: Mapping[str, Array]) -> bool:
    """Return True if the same sequences were found in a different order."""
    answers = [
        tuple(sequence[:length].tolist())
        for sequence, length in zip(row["sequences"], row["lengths"], strict=True)
    ]
    wanted = [() if path.score == -np.inf else path.tokens for path in example.paths]
    return sorted(answers) == sorted(wanted)


def _differs_in_history(
    decoder: Decoder, example: search.Example, row: Mapping[str, Array], number: int, atol: float
) -> str:
    """Describe the first difference of a step's tokens, parents or scores, else "".

    The values are compared where the search keeps them.
    """
    if not decoder.history:
        return ""
    after = [(decoder.pad, beam, path.score) for beam, path in enumerate(example.paths)]
    history = example.history + [after] * (decoder.steps - len(example.history))
    for turn, beams in enumerate(history):
        for beam, wanted in enumerate(beams):
            names = ("history_tokens", "history_parents", "history_scores")
            answer = tuple(row[name][turn, beam] for name in names)
            if answer[:2] != wanted[:2] or _gap(wanted[2], answer[2]) > atol:
                values = tuple(value.item() for value in answer)
                where = f"row {number}, step {turn}, beam {beam}"
                return f"{where}: expected token, parent and score {wanted}, found {values}"
    return ""
