"""Recorded checkpoints of each kind again, its model in a frozen graph and a SavedModel of TensorFlow 1.

The containers are made here by TensorFlow; the answers are TensorFlow 1's own, recorded from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from end_to_end.test_fixtures import BOUNDS
from support import artifacts, containers
from support.samples import EVERY, FIXTURES, Fixture

import cudnn_convert

MAKERS: dict[str, Callable[..., Fixture]] = {
    "frozen": containers.frozen,
    "saved_model": containers.saved_model,
}
KINDS = {"frozen": "frozen graph", "saved_model": "TensorFlow SavedModel"}
#: Samples that go to every other format too: both states, control flow, resources, lengths, an iterator.
EVERYWHERE = {
    f"1.15.5-{name}"
    for name in ("lstm_bi_2l_states", "while_refine", "resource_vars", "v3_gru_lengths", "iterator_input")
}
#: What a container may hold otherwise than a checkpoint: variables of each kind, control flow, several nodes.
CASES = {
    *(name.removeprefix("1.15.5-") for name in EVERYWHERE),
    *("bilstm_tagger", "block_fused_lengths", "cond", "keras_siamese", "op_proj_lstm", "partitioned"),
    *("two_layers", "while_rows"),
}


def chosen(form: str) -> list[Fixture]:
    """A case of each kind becomes a SavedModel; with `make test-every` all cases do."""
    samples = [found for found in FIXTURES if EVERY or (found.is_plan and found.folder.name in CASES)]
    return [found for found in samples if form == "savedmodel" or found.name in EVERYWHERE]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory):
    """The samples of one container in one format: `[container, format][sample name] -> (report, job)`."""
    made: dict[tuple[str, str], dict] = {}

    def of(container: str, form: str) -> dict:
        if (container, form) not in made:
            folder = tmp_path_factory.mktemp(f"{container}-{form}")
            (folder / "sources").mkdir()
            samples = [found for found in chosen(form) if containers.unfit(found, container) is None]
            sources = [
                # The recorded answers are the judge of all; our own proof runs where every format is made.
                MAKERS[container](found, folder / "sources" / found.name, verify=found.name in EVERYWHERE)
                for found in samples
            ]
            made[container, form] = {found.name: artifacts.convert(found, form, folder) for found in sources}
            artifacts.answer([job for _, job in made[container, form].values()])
        return made[container, form]

    return of


@pytest.mark.parametrize(
    ("container", "form", "sample"),
    [
        pytest.param(
            container, form, sample,
            id=f"{container}-{form}-{sample.name}", marks=pytest.mark.xdist_group(f"{container}-{form}"),
        )
        for container in MAKERS
        for form in ("savedmodel", "frozen", "onnx")
        for sample in chosen(form)
    ],
)  # fmt: skip
def test_answers_as_tensorflow_1_did(converted, container: str, form: str, sample: Fixture) -> None:
    if (reason := containers.unfit(sample, container)) is not None:
        pytest.skip(reason)
    report, job = converted(container, form)[sample.name]
    assert report.kind == KINDS[container]
    assert sorted(report.outputs.values()) == sorted(sample.case["outputs"])
    assert sorted(report.inputs.values()) == sorted(sample.case["inputs"])
    nodes = {recurrence.node for recurrence in report.recurrences}
    assert nodes == {recurrence["node"] for recurrence in sample.case["recurrences"]}
    dtype = report.recurrences[0].dtype if report.recurrences else "float32"
    bound = BOUNDS["float32" if form == "onnx" and dtype == "float64" else dtype]
    with np.load(Path(job["answers"])) as answers:
        for number, feed in enumerate(sample.feeds()):
            for key, name in report.outputs.items():
                found = answers[f"feed{number}/{key}"]
                assert artifacts.within(found, feed[name], atol=bound, rtol=bound) <= 1


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
