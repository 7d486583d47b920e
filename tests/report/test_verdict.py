"""The sentence of a verdict: what it counts, and what it must not call proven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudnn_convert.report import Report, Verification, verdict
from cudnn_convert.report.values import (
    DecodingReport,
    GlueReport,
    OpsReport,
    OutputReport,
    PieceReport,
    RecurrenceReport,
    StreamReport,
)

SCORES = OutputReport("scores", True, 12, 1e-7, 0.032, 1e-5, 1e-5, "float32", 0, "")
TAGS = OutputReport("tags", True, 4, 0.0, 0.0, 0.0, 0.0, "equal", 0, "")
PIECE = PieceReport("rnn", (0,), asked=True, passed=True, needed=0.047)
PROOF = Verification(True, 7, ({"x": (2, 3)},), (SCORES, TAGS), (), recurrences=(PIECE,))
RECURRENCE = RecurrenceReport("rnn", "CudnnRNN", "lstm", 1, 1, 5, 3, "float32", "raw")
REPORT = Report("m.ckpt", "k", "onnx", "m.onnx", {}, {}, (RECURRENCE,), (), (), PROOF)


def told(**changes: object) -> str:
    """The verdict on a conversion whose proof has these changes."""
    return verdict.of_conversion(replace(REPORT, verification=replace(PROOF, **changes)))  # type: ignore[arg-type]


def test_a_proof_has_its_counts_and_its_largest_error() -> None:
    expected = "m.onnx: proven equal to m.ckpt (2 outputs, 1 recurrence; largest error 5 % of the tolerance)"
    assert told() == expected
    subject = REPORT.as_subject("m.onnx")
    assert verdict.of_verification(replace(PROOF, subject=subject)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ops": OpsReport(True, not_reached=("a", "b"), not_looked_at=("c",))},
         "; 2 gates not reached; 1 op not compared one by one)"),
        ({"ops": OpsReport(False, message="why")}, "; ops around recurrences not compared one by one)"),
        ({"glue": GlueReport(False, message="why")}, "; what stands around recurrences not run by itself)"),
        ({"recurrences": (replace(PIECE, asked=False),)}, "; 1 recurrence asked through outputs alone)"),
        ({"outputs": (replace(SCORES, excused=3), TAGS)}, "; 3 choices too close to call)"),
        ({"outputs": (replace(SCORES, atol=0.1, origin="given"),)},
         "; a given tolerance of 0.1 + 1e-05*|x|)"),
        ({"outputs": (replace(SCORES, rtol=2.0**-10),)}, "; a tolerance of 1e-05 + 0.001*|x|)"),
        ({"streaming": StreamReport(True, ("of 1",), 9, 0.0, 0.2, unjudged=("y",))},
         "; in chunks of steps too; largest error 20 % of the tolerance; 1 output not judged in chunks)"),
        ({"decoding": DecodingReport(True, "greedy", 3, 3, 0, 2, 41, 0.0, 0.3)},
         "; a search over 41 tokens too; largest error 30 % of the tolerance)"),
    ],
)  # fmt: skip
def test_what_qualifies_a_proof_is_in_its_line(changes: dict[str, object], expected: str) -> None:
    line = told(**changes)
    assert line.startswith("m.onnx: proven equal to m.ckpt (")
    assert line.endswith(expected)


def test_outputs_that_are_not_judged_are_not_called_equal() -> None:
    hidden = {"outputs": (replace(SCORES, judged=False), TAGS), "end_to_end": "not judged"}
    line = told(**hidden)
    assert line.startswith("m.onnx: recurrences proven equal to m.ckpt (1 of 2 outputs, 1 recurrence; ")
    assert line.endswith("; 1 output not judged end to end)")
    assert "proven equal to m.ckpt piece by piece (" in told(**hidden, ops=OpsReport(True))


def test_an_artifact_of_lower_precision_is_not_called_equal() -> None:
    gated = replace(SCORES, origin="max_error", atol=0.02, max_abs=0.0123)
    line = told(outputs=(gated,), recurrences=())
    expected = "m.onnx: not equal, but within 0.02 of m.ckpt (1 output, 1 recurrence; largest error 0.012)"
    assert line == expected


def test_no_proof_is_no_proof() -> None:
    bare = replace(REPORT, verification=None)
    assert verdict.of_conversion(bare) == "m.onnx: not proven; nothing was compared with m.ckpt"
    line = verdict.of_conversion(replace(bare, alone=True))
    assert line == "m.onnx: recurrences alone, not proven; nothing was compared with m.ckpt"


def test_parts_of_the_source_that_no_proof_runs_are_named() -> None:
    line = verdict.of_conversion(replace(REPORT, unverified=("scale_in", "scale_out")))
    assert line.endswith("; 2 parts not run: scale_in, scale_out)")
    alone = verdict.of_conversion(replace(REPORT, alone=True))
    assert alone.startswith("m.onnx: recurrences alone, proven equal to those of m.ckpt (")


def test_a_recording_is_what_was_compared_with() -> None:
    assert "proven equal to what m.ckpt answered in r.npz (" in told(recording={"file": "r.npz"})


def test_a_small_error_is_no_zero() -> None:
    small = {"outputs": (replace(SCORES, needed=1e-3),), "recurrences": ()}
    assert "largest error under 1 % of the tolerance" in told(**small)


WRONG = replace(SCORES, passed=False)
GATED = replace(SCORES, origin="max_error", atol=0.01, max_abs=0.003)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Equal: largest error 5 % of the tolerance"),
        ({"end_to_end": "not judged"},
         "Recurrences equal, end to end not judged: largest error 5 % of the tolerance"),
        ({"outputs": (GATED,)}, "Not equal, but within 0.01: largest error 0.003"),
        ({"passed": False, "outputs": (WRONG, TAGS)}, "Different in 1 of 2 outputs"),
        ({"passed": False, "recurrences": (replace(PIECE, passed=False), PIECE, replace(PIECE, node="b"))},
         "Different in 1 of 2 recurrences"),
        ({"passed": False, "glue": GlueReport(True, passed=False)}, "Different around the recurrences"),
        ({"passed": False, "misplaced": ("rnn: kernel",)}, "Different"),
    ],
)  # fmt: skip
def test_a_headline_has_the_number(changes: dict[str, object], expected: str) -> None:
    assert verdict.headline(replace(PROOF, **changes)) == expected  # type: ignore[arg-type]
