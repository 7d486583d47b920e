"""Recorded checkpoints of each kind again, its model in a frozen graph and a SavedModel of TensorFlow 1.

The containers are made here by TensorFlow; the answers are TensorFlow 1's own, recorded from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import artifacts, containers
from support.recorded import BOUNDS
from support.samples import FIXTURES, Fixture
from support.tiers import tier

import cudnn_convert

MAKERS: dict[str, Callable[..., Fixture]] = {
    "frozen": containers.frozen,
    "saved_model": containers.saved_model,
}
KINDS = {"frozen": "frozen graph", "saved_model": "TensorFlow SavedModel"}
FORMS = ("onnx", "savedmodel", "frozen")
#: Samples that are proven here too: both states, control flow, resources, lengths, an iterator.
PROVEN = {"lstm_bi_2l_states", "while_refine", "resource_vars", "v3_gru_lengths", "iterator_input"}
#: What a container may hold otherwise than a checkpoint: variables in parts.
FIRST = "1.15.5-partitioned"


def is_first(sample: Fixture, form: str) -> bool:
    """Whether the first tier has it: one case of each container in one format."""
    return sample.name == FIRST and form == "onnx"


@pytest.mark.parametrize(
    ("container", "form", "sample"),
    [
        pytest.param(
            container, form, sample,
            id=f"{container}-{form}-{sample.name}", marks=tier(first=is_first(sample, form)),
        )
        for container in MAKERS
        for form in FORMS
        for sample in FIXTURES
        if (form == sample.form or sample.folder.name in PROVEN)
        if containers.unfit(sample, container) is None
    ],
)  # fmt: skip
def test_answers_as_tensorflow_1_did(tmp_path: Path, container: str, form: str, sample: Fixture) -> None:
    """The recorded answers are the judge of all; our own proof runs of a few."""
    (tmp_path / "sources").mkdir()
    source = MAKERS[container](
        sample, tmp_path / "sources" / sample.name, verify=sample.folder.name in PROVEN
    )
    report, job = artifacts.convert(source, form, tmp_path)
    artifacts.answer([job])
    assert report.kind == KINDS[container]
    assert sorted(report.outputs.values()) == sorted(sample.case["outputs"])
    assert sorted(report.inputs.values()) == sorted(sample.case["inputs"])
    nodes = {recurrence.node for recurrence in report.recurrences}
    assert nodes == {recurrence["node"] for recurrence in sample.case["recurrences"]}
    dtype = report.recurrences[0].dtype if report.recurrences else "float32"
    bound = BOUNDS["float32" if form == "onnx" and dtype == "float64" else dtype]
    artifacts.agree(sample, report, Path(job["answers"]), bound=bound)


@pytest.mark.slow("cudnn_convert/graph", "cudnn_convert/plan")
def test_what_was_written_is_a_source_again(tmp_path: Path) -> None:
    """A SavedModel of TensorFlow 1 is converted, and what was written, table and all, is a source again."""
    source = next(found for found in FIXTURES if found.name == "1.15.5-saved_model_words").prefix
    report = cudnn_convert.convert(source, tmp_path / "out", signature="summarize")
    assert report.outputs == {"summary": "summary:0"}
    assert report.verification is not None
    assert report.verification.passed
    again = cudnn_convert.convert(tmp_path / "out", tmp_path / "again")
    assert again.recurrences == ()
    assert again.verification is not None
    assert again.verification.passed
