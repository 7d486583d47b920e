"""Every genuine TensorFlow 1 checkpoint, in the formats of its tier, against TensorFlow 1's own answers.

The artifacts run where their users run them: plain TensorFlow 2 or ONNX Runtime, without cudnn_convert.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support import artifacts
from support.leftovers import assert_nothing_left
from support.recorded import BOUNDS, assert_close
from support.samples import FIXTURES, GRAPH_FORMATS, Fixture, fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.model import SERVING, Part, Signature


@pytest.mark.parametrize(
    ("form", "sample"),
    [
        pytest.param(form, sample, marks=tier(first=sample.is_first(form)), id=f"{form}-{sample.name}")
        for form in GRAPH_FORMATS
        for sample in FIXTURES
        if sample.fits(form)
    ],
)
def test_answers_as_tensorflow_1_did(tmp_path: Path, is_first_tier: bool, form: str, sample: Fixture) -> None:
    verify = form == sample.form or not is_first_tier
    report, job = artifacts.convert(sample, form, tmp_path, verify=verify)
    assert_nothing_left(tmp_path, sample.prefix)
    artifacts.answer([job])
    assert [*report.outputs.values()] == sample.case["outputs"]
    assert sorted(report.inputs.values()) == sorted(sample.case["inputs"])
    keys = ("node", "op", "mode", "layers", "directions", "units", "input_size")
    assert sorted(
        ({key: getattr(recurrence, key) for key in keys} for recurrence in report.recurrences), key=str
    ) == sorted(({key: case[key] for key in keys} for case in sample.case["recurrences"]), key=str)
    dtype = report.recurrences[0].dtype if report.recurrences else "float32"
    bound = BOUNDS["float32" if form in ("onnx", "tflite") and dtype == "float64" else dtype]
    artifacts.agree(sample, report, Path(job["answers"]), bound=bound)


def features(samples: Iterable[Fixture]) -> set[tuple[Any, ...]]:
    """What a plan can have of each recurrence; plain ones differ in an activation alone."""
    return {
        feature
        for sample in samples
        for one in sample.case["recurrences"]
        for feature in (
            (one["mode"].partition("_")[0], f"{one['directions']} directions"),
            (one["mode"].partition("_")[0], "layers" if one["layers"] > 1 else "layer"),
            (one["mode"],),
            (one["op"],),
        )
    }


@pytest.mark.parametrize("form", ["savedmodel", "checkpoint", "onnx"])
def test_the_first_tier_has_what_all_samples_have(form: str) -> None:
    """Each of its lowerings; frozen graphs share one with SavedModels, TensorFlow Lite's is one loop."""
    assert features(sample for sample in FIXTURES if sample.is_first(form)) == features(FIXTURES)


@pytest.mark.first("frozen")
@pytest.mark.parametrize("form", GRAPH_FORMATS)
def test_an_output_that_no_recurrence_reaches(out: Path, form: str) -> None:
    sample = fixture("1.15.5-final_state_only")
    (name,) = sample.case["unreached"]
    report = cudnn_convert.convert(sample.prefix, out, format=form, outputs=[f"side={name}"])
    assert report.recurrences == ()
    assert any("no cuDNN recurrence reaches the outputs" in note for note in report.notes)
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    names = Signature(recorded["tensors"]["inputs"], recorded["tensors"]["outputs"])
    run = open_artifact(form, path, [Part(SERVING, names)])
    for feed in sample.feeds():
        found = run({key: feed[source] for key, source in report.inputs.items()})["side"]
        assert_close(found, feed[name])
