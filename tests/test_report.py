"""The report and the provenance: plain values, the same for the library and for `--json`."""

from __future__ import annotations

import json

import numpy as np
from graphs import BLOB, tagger

from cudnn_convert import plan, report
from cudnn_convert.report import OutputReport, Report, Verification

OUTPUT = OutputReport("scores", True, 12, 1e-7, 0.01, 1e-5, 1e-5, "float32", 0, "")
PROOF = Verification(True, 7, ({"x": (17, 3, 3)},), (OUTPUT,), ("scores: said",))


def made() -> Report:
    (found,) = plan.make(tagger()).recurrences
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
        "verification",
    ]  # fmt: skip
    assert found["verification"] == json.loads(PROOF.to_json())
    assert found["verification"]["feeds"] == [{"x": [17, 3, 3]}]
    assert found["verification"]["outputs"][0]["worst"] == 1e-7


def test_the_provenance_names_the_source_but_not_where_it_lay() -> None:
    options = {"version": "1.2.3", "set": ["a=1"]}
    text = report.provenance(
        made(), tensors={"inputs": {"x": "x:0"}, "outputs": {"y": "y:0"}}, options=options
    )
    found = json.loads(text)
    assert found["cudnn_convert"] == "1.2.3"
    assert found["source"] == {"name": "model.ckpt", "kind": "TensorFlow 1 checkpoint"}
    assert found["options"] == {"set": ["a=1"]}
    assert "folder" not in text
    assert "verification" not in found
