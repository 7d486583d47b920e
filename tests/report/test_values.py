"""Values of a report: the same for the library and for `--json`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from support.reports import PROOF, made

from cudnn_convert.report.values import GlueReport, MicroReport, PieceReport


def test_the_json_of_a_report_holds_all_of_it() -> None:
    found = json.loads(made().to_json())
    assert list(found) == [
        "source", "kind", "format", "out", "inputs", "outputs", "recurrences", "notes", "flags",
        "verification", "weights", "states", "network", "origin", "axes", "decoder",
        "alone", "unverified", "warnings", "micro",
    ]  # fmt: skip
    assert found["micro"] is None
    assert found["verification"] == json.loads(PROOF.to_json())
    assert found["verification"]["feeds"] == [{"x": [17, 3, 3]}]
    (output,) = found["verification"]["outputs"]
    assert output["worst"] == 1e-7
    assert output["worst_element"] == {"feed": 1, "index": [2, 0], "expected": 1.0, "found": "nan"}
    assert output["over_time"] == {"axis": 0, "group": 2, "errors": [0.0, 1e-7]}
    assert output["distribution"] == {"exact": 1, "first": -8.0, "width": 0.5, "counts": [0, 3]}
    assert [output[key] for key in ("max_abs", "max_rel", "rel_floor", "ulp", "cosine")] == [
        1e-7, None, 1e-5, 3, 0.5,
    ]  # fmt: skip


def test_the_needs_of_a_file_in_micro_are_in_the_json_and_in_words() -> None:
    micro = MicroReport(41960, 39680, ("ADD", "LOGISTIC"), (), 4800, 37012, {"y": 1e-7})
    found = json.loads(replace(made(), micro=micro).to_json())["micro"]
    assert found == {
        "bytes": 41960, "arena": 39680, "operators": ["ADD", "LOGISTIC"], "missing": [], "variables": 4800,
        "flash": 37012, "errors": {"y": 1e-7},
    }  # fmt: skip
    assert dict(micro.facts) == {
        "file": "41,960 bytes, 37,012 in firmware",
        "arena": "39,680 bytes, the smallest in which it ran with 64 bits",
        "state": "4,800 bytes from call to call",
        "operators": "ADD, LOGISTIC",
    }
    unmeasured = dict(replace(micro, arena=None, missing=("ADD",), variables=0).facts)
    assert (unmeasured["arena"], unmeasured["state"]) == ("not measured", "none")
    assert unmeasured["without a kernel"] == "ADD"


def test_recurrences_by_themselves_are_in_the_json() -> None:
    asked = PieceReport(
        "rnn", (0,), asked=True, passed=True, piece="LSTM_0", smallest=np.inf, unseen=("why",)
    )
    around = GlueReport(asked=True, needed=0.5, unjudged=("y",))
    proof = replace(PROOF, recurrences=(asked,), glue=around, end_to_end="not judged", unproven=("other",))
    found = json.loads(proof.to_json())
    assert found["recurrences"] == [
        {"node": "rnn", "layers": [0], "asked": True, "passed": True, "message": "", "piece": "LSTM_0",
         "compared": 0, "worst": 0.0, "needed": 0.0, "atol": 0.0, "rtol": 0.0, "smallest": None,
         "weakest": None, "sampled": None, "unseen": ["why"]}
    ]  # fmt: skip
    assert found["glue"] == {
        "asked": True, "passed": True, "compared": 0, "needed": 0.5, "unjudged": ["y"],
        "message": "",
    }  # fmt: skip
    assert (found["end_to_end"], found["unproven"]) == ("not judged", ["other"])
