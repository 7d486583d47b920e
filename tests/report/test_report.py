"""The report and the provenance: plain values, the same for the library and for `--json`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from support.graphs import BLOB, tagger

from cudnn_convert import report
from cudnn_convert.plan.from_graph import plan_graph
from cudnn_convert.report import (
    Distribution,
    Element,
    GlueReport,
    OutputReport,
    OverTime,
    PieceReport,
    Report,
    Verification,
)

OUTPUT = OutputReport(
    "scores", True, 12, 1e-7, 0.01, 1e-5, 1e-5, "float32", 0, "",
    max_abs=1e-7, rel_floor=1e-5, ulp=3, cosine=0.5, worst_element=Element(1, (2, 0), 1.0, "nan"),
    over_time=OverTime(0, 2, (0.0, 1e-7)), distribution=Distribution(1, -8.0, 0.5, (0, 3)),
)  # fmt: skip
PROOF = Verification(True, 7, ({"x": (17, 3, 3)},), (OUTPUT,), ("scores: said",))


def made() -> Report:
    (found,) = plan_graph(tagger()).recurrences
    return Report(
        "folder/model.ckpt", "TensorFlow 1 checkpoint", "onnx", "out/model.onnx",
        {"x": "x:0"}, {"y": "scores:0"},
        (report.of_recurrence(found),), ("a note",), ("--inputs=x=x:0",), PROOF,
    )  # fmt: skip


def test_a_recurrence_in_the_report() -> None:
    (found,) = json.loads(made().to_json())["recurrences"]
    assert found == {
        "node": "rnn", "op": "CudnnRNN", "mode": "lstm", "layers": 1, "directions": 1, "units": 2,
        "input_size": 3, "dtype": "float32", "weights": "raw",
    }  # fmt: skip
    assert np.float32 == BLOB.dtype


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


def test_an_artifact_says_where_it_computes_which_layer() -> None:
    text = report.provenance(made(), tensors={"inputs": {}, "outputs": {}}, options={"version": "1"})
    pieces = [{"piece": "LSTM_0", "node": "rnn", "layer": 0}]
    assert json.loads(report.with_pieces(text, pieces)) == json.loads(text) | {"pieces": pieces}
    assert report.with_pieces(text, []) == text


def test_the_provenance_names_the_source_but_not_where_it_lay() -> None:
    options = {"version": "1.2.3", "set": ["a=1"]}
    text = report.provenance(
        made(), tensors={"inputs": {"x": "x:0"}, "outputs": {"y": "y:0"}}, options=options
    )
    found = json.loads(text)
    assert found["cudnn_convert"] == "1.2.3"
    assert found["source"] == {"name": "model.ckpt", "kind": "TensorFlow 1 checkpoint"}
    assert found["options"] == {"set": ["a=1"]}
    assert options == {"version": "1.2.3", "set": ["a=1"]}  # the caller's own
    assert "folder" not in text
    assert "verification" not in found
