"""What a worker does for a request, in this process: each kind of outcome, and the model's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import asking_graphs
from support.command_line import beside, command, contents, copied
from support.keras_samples import KERAS_FIXTURES
from support.samples import GRAPHLESS, ROOT, fixture

from cudnn_convert import pipeline
from cudnn_convert.batch import jobs, worker
from cudnn_convert.batch.jobs import Job
from cudnn_convert.errors import UnprovenError
from cudnn_convert.options import Options
from cudnn_convert.report import Verification

SOURCE = next(found for found in GRAPHLESS if "weights_lstm" not in found.name).prefix
KERAS = next(found for found in KERAS_FIXTURES if found.path.suffix == ".h5").path
PORTABLE = ROOT / "tests/data/keras3_exports/tf_keras-2.21.0/portable_saved/saved_model"


def request(
    source: Path, folder: Path, page: Path | None = None, shared: tuple[str, ...] = (), **options: Any
) -> dict[str, Any]:
    """A request as a worker gets it: through JSON."""
    given = Options(force=True, lineage=page is not None, **options)
    job = Job(str(source), "out", folder, given, jobs.digest_options(given), 0, page, shared=shared)
    return dict(json.loads(json.dumps(job.to_request(None))))


def test_a_model_is_converted_as_the_single_command_converts_it(tmp_path: Path) -> None:
    source = copied(tmp_path)
    outcome = worker.convert_model(request(source, tmp_path / "batch", format="onnx"))
    assert command(source, tmp_path / "single", "--format", "onnx", "--quiet").code == 0
    assert contents(tmp_path / "batch" / "out") == contents(tmp_path / "single")
    assert (outcome["status"], outcome["exit_code"], outcome["reasons"]) == ("converted", 0, [])
    proof = outcome["verification"]
    assert proof["passed"] and proof["end_to_end"] == "equal" and 0 < proof["needed"] < 1
    assert (proof["outputs"], proof["recurrences"], proof["unproven"]) == (2, 1, [])
    assert outcome["digests"] == {
        "source": jobs.digest_source(source),
        "artifact": jobs.digest_path(tmp_path / "single"),
    }


def test_what_needs_no_conversion_is_portable(tmp_path: Path) -> None:
    outcome = worker.convert_model(request(PORTABLE, tmp_path / "batch"))
    assert (outcome["status"], outcome["exit_code"]) == ("portable", 0)
    assert not (tmp_path / "batch").exists()


REFUSED: dict[str, tuple[dict[str, Any], str, int]] = {
    "an option": ({"format": "onnx", "quantize": "int8"}, "refused", 2),
    "a source": ({"signature": "nowhere"}, "refused", 2),
    "a file": ({"data": Path("nowhere.npz"), "format": "onnx"}, "refused", 4),
}


@pytest.mark.parametrize(("options", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_that_of_the_single_command(
    tmp_path: Path, options: dict[str, Any], status: str, code: int
) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    outcome = worker.convert_model(request(source, tmp_path / "batch", **options))
    assert outcome["status"] == status
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    single = command(source, tmp_path / "single", *flags, "--quiet")
    assert [f"cudnn-convert: {reason}" for reason in outcome["reasons"]] == single.stderr.splitlines()
    assert outcome["exit_code"] == single.code
    assert code in (single.code, 1, 2, 4)
    assert not (tmp_path / "batch").exists()


#: A source, its kind, a flag that means nothing for it, and what it is for.
PASSED_OVER: dict[str, tuple[Path, str, dict[str, Any], str]] = {
    "a class": (
        SOURCE,
        "TensorFlow checkpoint without a graph",
        {"custom_objects": ["nowhere:Own"]},
        "--custom-objects is ignored: it is for Keras models",
    ),
    "a tag": (
        SOURCE,
        "TensorFlow checkpoint without a graph",
        {"tag": "train"},
        "--tag is ignored: it is for SavedModels",
    ),
    "sizes": (
        KERAS,
        "Keras HDF5 file",
        {"mode": "lstm", "lengths": True},
        "--mode is ignored: it is for sources without a graph",
    ),
    "layers": (
        KERAS,
        "Keras HDF5 file",
        {"architecture": Path("nowhere.json")},
        "--architecture is ignored: it is for weights of Keras and checkpoints without .meta",
    ),
}


@pytest.mark.first("a class", "a tag")
@pytest.mark.parametrize(("source", "kind", "given", "what"), PASSED_OVER.values(), ids=PASSED_OVER)
def test_a_shared_flag_of_other_kinds_is_passed_over(
    tmp_path: Path, source: Path, kind: str, given: dict[str, Any], what: str
) -> None:
    """The artifact is that of a call without the flag; a flag of this model alone is refused."""
    flags = {"format": "onnx", "verify": False}
    outcome = worker.convert_model(request(source, tmp_path / "batch", shared=(*given,), **flags, **given))
    assert outcome["status"] == "converted", outcome["reasons"]
    told = [reason for reason in outcome["reasons"] if "is ignored" in reason]
    assert len(told) == len(given) and told[0] == f"{source}: {what}, and this is a {kind}"
    worker.convert_model(request(source, tmp_path / "plain", **flags))
    assert contents(tmp_path / "batch" / "out") == contents(tmp_path / "plain" / "out")
    alone = worker.convert_model(request(source, tmp_path / "alone", **flags, **given))
    assert alone["status"] == "refused"


def test_a_shared_flag_that_means_something_is_not_passed_over(tmp_path: Path) -> None:
    given: dict[str, Any] = {"custom_objects": ["nowhere:Own"], "format": "h5", "verify": False}
    outcome = worker.convert_model(request(KERAS, tmp_path, shared=("custom_objects",), **given))
    assert outcome["status"] == "refused" and "nowhere" in outcome["reasons"][0]


def test_what_is_portable_has_the_note_too(tmp_path: Path) -> None:
    outcome = worker.convert_model(
        request(PORTABLE, tmp_path, shared=("custom_objects",), custom_objects=["nowhere:Own"])
    )
    assert outcome["status"] == "portable"
    assert "--custom-objects is ignored" in outcome["reasons"][0]


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    outcome = worker.convert_model(request(tmp_path / "none.pb", tmp_path / "batch"))
    assert (outcome["status"], outcome["exit_code"]) == ("refused", 1)
    assert outcome["reasons"][0].endswith("found no such file or folder; check the path")


def test_a_recurrence_of_which_nothing_is_shown_is_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnprovenError("source", ["recurrence rnn: not proven"])

    monkeypatch.setattr(pipeline, "verify_plan", refuse)
    outcome = worker.convert_model(request(SOURCE, tmp_path / "batch", format="npz"))
    assert (outcome["status"], outcome["exit_code"]) == ("not proven", 1)
    assert outcome["reasons"] == ["source: recurrence rnn: not proven"]


@pytest.mark.parametrize("asks_for_page", [False, True])
def test_numbers_that_differ_have_their_proof_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_for_page: bool
) -> None:
    page = tmp_path / "pages" / "out.html" if asks_for_page else None
    options = {"format": "npz", "atol": 0.0, "rtol": 0.0}
    monkeypatch.setattr(pipeline, "_failures", lambda result, options: ["output y: too far"])
    verify = pipeline.check.verify_artifact

    def fail(*given: Any, **flags: Any) -> Verification:
        from dataclasses import replace

        return replace(verify(*given, **flags), passed=False, end_to_end="different")

    monkeypatch.setattr(pipeline.check, "verify_artifact", fail)
    outcome = worker.convert_model(request(SOURCE, tmp_path / "batch", page, **options))
    assert (outcome["status"], outcome["exit_code"]) == ("different", 3)
    assert outcome["verification"]["passed"] is False
    assert not (tmp_path / "batch").exists()
    if page is not None:
        assert "<h1>Different</h1>" in page.read_text()
        assert json.loads(page.with_suffix(".json").read_text())["verification"]["passed"] is False


def test_a_page_is_written_for_each_model(tmp_path: Path) -> None:
    page = tmp_path / "pages" / "a" / "out.html"
    for _ in range(2):  # an older page of ours is replaced
        outcome = worker.convert_model(request(SOURCE, tmp_path / "batch", page, format="npz"))
        assert outcome["status"] == "converted"
    assert "<h1>Equal: largest error " in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text())["out"] == str(
        tmp_path / "batch" / "out" / "weights.npz"
    )


def test_memory_that_ran_out_is_a_crash_with_its_cure() -> None:
    outcome = worker.explain("in/a", MemoryError())
    reason = "in/a: memory ran out; raise it with --limit memory=NUMBER"
    assert outcome == {"status": "crashed", "exit_code": 1, "reasons": [reason]}


def test_what_a_converted_model_lacks_is_told(tmp_path: Path) -> None:
    source = copied(tmp_path, "1.15.5-bilstm_tagger")
    beside(source, ".meta").unlink()
    outcome = worker.convert_model(request(source, tmp_path / "batch", format="onnx", verify=False))
    (reason,) = outcome["reasons"]
    assert outcome["status"] == "converted"
    assert reason.startswith(
        f"{source}: model.ckpt.meta is missing, so that recurrences alone are converted; left"
    )


def test_a_model_of_several_reasons_has_all(tmp_path: Path) -> None:
    source = asking_graphs.plain(tmp_path)
    outcome = worker.convert_model(request(source, tmp_path / "batch", outputs=["nowhere:0"]))
    assert outcome["exit_code"] == 2
    assert any("nowhere:0" in reason for reason in outcome["reasons"])
