"""Searches that begin where the model begins, encoders and attention included, where a user runs them.

Judged by NumPy's search on what NumPy says of each prefix, from the first token on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import artifacts
from support import decoding_judges as judges
from support.begun_decoders import KINDS, TOKENS, Decoder
from support.decoding_judges import Rules
from support.samples import ROOT
from support.tiers import combinations

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.lower import search

FORMATS = ("savedmodel", "onnx")
STEPS, WIDTH, END = 6, 4, 2
FLAGS: dict[str, Any] = {
    "decode": "beam",
    "steps": STEPS,
    "width": WIDTH,
    "end": END,
    "outputs": ["logits:0"],
}


def searched(report: Any, out: Path, form: str, feeds: dict[str, Any], folder: Path) -> Any:
    """What the artifact's search answers in a user's process."""
    assert report.decoder is not None
    np.savez(folder / "feeds.npz", **{f"feed0/{key}": feeds[key] for key in report.decoder.inputs})
    (names, ends) = (
        {key: {"source": key, "artifact": key} for key in keys}
        for keys in (report.decoder.inputs, report.decoder.outputs)
    )
    path = out / ("decode.onnx" if form == "onnx" else "")
    job = {"artifact": str(path), "format": form, "golden": str(folder / "feeds.npz"), "inputs": names}
    job |= {"outputs": ends, "answers": str(folder / "answers.npz"), "signature": "decode"}
    artifacts.answer([job])
    with np.load(folder / "answers.npz") as answers:
        return {key.partition("/")[2]: answers[key] for key in answers.files}


@combinations(lambda kind, form: (kind, form) == ("attention", "onnx"), kind=KINDS, form=FORMATS)
def test_a_search_begins_by_itself(tmp_path: Path, kind: str, form: str) -> None:
    model, out = Decoder(kind), tmp_path / "out"
    report = cudnn_convert.convert(model.save(tmp_path), out, format=form, **FLAGS)
    assert report.verification is not None
    assert report.verification.decoding is not None
    feeds = model.feeds()
    first = np.array([3, 7, 5], np.int32)
    assert report.decoder is not None
    assert report.decoder.inputs == ("tokens", *model.inputs)
    answers = searched(report, out, form, {"tokens": first, **feeds}, tmp_path)
    rules = Rules(WIDTH, STEPS, END, 0, dtype=np.float64)
    expected = judges.beam_search(model.log_probs(first, feeds), len(first), rules)
    np.testing.assert_array_equal(answers["sequences"], expected["sequences"])
    np.testing.assert_array_equal(answers["lengths"], expected["lengths"])
    np.testing.assert_allclose(answers["scores"], expected["scores"], rtol=1e-5, atol=1e-5)
    assert len({*answers["sequences"].ravel().tolist()}) > TOKENS // 3


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification")
@combinations(lambda mask, form: (mask, form) == ("input", "onnx"), mask=("1,5-6", "input"), form=FORMATS)
def test_a_search_never_chooses_masked_tokens(tmp_path: Path, mask: str, form: str) -> None:
    """Tokens that are the same at each call; or a mask of each call, and the scores that beams begin with."""
    model, out = Decoder("speaker"), tmp_path / "out"
    is_of_calls = mask == "input"
    flags: dict[str, Any] = {"pad_mask": mask, "initial_scores": is_of_calls}
    report = cudnn_convert.convert(model.save(tmp_path), out, format=form, **FLAGS, **flags)
    assert report.decoder is not None
    own = ("pad_mask", "initial_scores") if is_of_calls else ()
    assert report.decoder.inputs == ("tokens", *model.inputs, *own)
    assert report.decoder.masked == (() if is_of_calls else (1, 5, 6))
    first, rng = np.array([3, 7, 5], np.int32), np.random.default_rng(7)
    masked = np.tile(np.isin(np.arange(TOKENS), (1, 5, 6)), (3, 1))
    initial = None
    feeds = {"tokens": first, **model.feeds()}
    if is_of_calls:
        masked = rng.random((3, TOKENS)) < 0.4
        initial = rng.normal(size=(3, WIDTH)).astype(np.float32)
        initial[1, 0] = -np.inf
        feeds |= {"pad_mask": masked, "initial_scores": initial}
    answers = searched(report, out, form, feeds, tmp_path)
    rules = Rules(WIDTH, STEPS, END, 0, mask=masked, initial=initial, dtype=np.float64)
    expected = judges.beam_search(model.log_probs(first, model.feeds()), 3, rules)
    np.testing.assert_array_equal(answers["sequences"], expected["sequences"])
    np.testing.assert_array_equal(answers["lengths"], expected["lengths"])
    np.testing.assert_allclose(answers["scores"], expected["scores"], rtol=1e-5, atol=1e-5)
    assert cudnn_convert.verify(tmp_path / "model.ckpt", out).decoding is not None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"pad_mask": "0,11"}, "--pad-mask: expected tokens below 11, the size of the vocabulary, found 11"),
        ({"pad_mask": "0-10"}, "--pad-mask: expected a token that may be chosen, found all 11 masked"),
        ({"pad_mask": "5-3"}, "--pad-mask: expected a range that rises, found 5-3"),
        (
            {"pad_mask": "mask.npy"},
            "--pad-mask: expected input, or tokens such as 0,3,30-33, found 'mask.npy'",
        ),
        (
            {"decode": "greedy", "width": None, "initial_scores": True},
            "--initial-scores: expected --decode beam, found greedy; leave out --initial-scores",
        ),
    ],
)
def test_masks_and_scores_that_do_not_fit_are_refused(
    tmp_path: Path, flags: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cudnn_convert.convert(Decoder("state").save(tmp_path), tmp_path / "out", **FLAGS | flags)
    assert str(refused.value) == expected
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/plan")
def test_an_encoder_runs_once(tmp_path: Path) -> None:
    """A step takes what `encode` made of the source."""
    model = Decoder("attention")
    report = cudnn_convert.convert(
        model.save(tmp_path), tmp_path / "out", format="onnx", verify=False, **FLAGS
    )
    assert (
        "states: encode.onnx makes encoder_memory of source, source_lengths, once for all steps"
        in report.notes
    )
    assert {path.name for path in (tmp_path / "out").glob("*.onnx")} == {
        f"{part}.onnx" for part in ("stream", "begin", "encode", "decode")
    }


@pytest.mark.parametrize("kind", ["state", pytest.param("attention", marks=pytest.mark.every)])
@pytest.mark.mutant("decoding: begins with zeros")
def test_a_search_that_begins_with_zeros_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    begin = search._begin

    def begin_with_zeros(decoder: Any, *given: Any) -> dict[str, Any]:
        import tensorflow as tf

        keys = {state.key for state in decoder.states}
        found = begin(decoder, *given)
        return {key: tf.zeros_like(value) if key in keys else value for key, value in found.items()}

    monkeypatch.setattr(search, "_begin", begin_with_zeros)
    with pytest.raises(VerificationError, match="decode: row"):
        cudnn_convert.convert(Decoder(kind).save(tmp_path), tmp_path / "out", format="onnx", **FLAGS)
    assert not (tmp_path / "out").exists()


#: Probabilities behind `clip_by_value`, called `probs`.
CLIPPED = ROOT / "tests" / "data" / "streams" / "clipped"


def test_clipped_probabilities_are_no_logits(tmp_path: Path) -> None:
    """By the numbers that TensorFlow 1.15 gave: a greedy token has the logarithm of the largest."""
    source, out = CLIPPED / "model.ckpt", tmp_path / "out"
    flags: dict[str, Any] = {"inputs": ["ids:0"], "outputs": ["probs:0"], "logits": "probs:0"}
    report = cudnn_convert.convert(source, out, format="onnx", decode="greedy", steps=1, **flags)
    assert report.decoder is not None
    assert report.decoder.scale == "probabilities"
    with np.load(CLIPPED / "golden.npz") as golden:
        ids, probs = golden["x/ids:0"], golden["y/probs:0"]
    states = {state.key: np.zeros([1, len(ids), 7], np.float32) for state in report.states}
    answers = searched(report, out, "onnx", {"tokens": ids[:, 0].astype(np.int32), **states}, tmp_path)
    np.testing.assert_array_equal(answers["sequences"][:, 0], probs[:, 0].argmax(-1))
    np.testing.assert_allclose(answers["scores"], np.log(probs[:, 0].max(-1)), rtol=1e-5)


def test_a_scale_that_the_numbers_contradict_is_refused(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"decode": "greedy", "steps": 3, "outputs": ["logits:0"]}
    source = Decoder("state").save(tmp_path)
    with pytest.raises(
        UnsupportedModelError, match=r"which are no probabilities; say it with .*=logits"
    ) as refused:
        cudnn_convert.convert(source, tmp_path / "out", logits="logits:0=probabilities", **flags)
    [reason] = refused.value.reasons
    assert [remedy.options for remedy in reason.remedies] == [{"logits": "logits:0=logits"}]
