"""Values of a report: the same for the library and for `--json`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from support.reports import PROOF, made

from cudnn_convert.report.values import GlueReport, PieceReport


def test_the_json_of_a_report_holds_all_of_it() -> None:
    found = json.loads(made().to_json())
    assert list(found) == [
        "source", "kind", "format", "out", "inputs", "outputs", "recurrences", "notes", "flags",
        "verification", "weights", "states", "network", "origin", "axes", "decoder",
        "alone", "unverified", "warnings",
    ]  # fmt: skip
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
