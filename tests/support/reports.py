"""Reports of a small conversion and of its proof."""

from __future__ import annotations

from cudnn_convert.report import Report, Verification
from cudnn_convert.report.model_reports import of_recurrence
from cudnn_convert.report.values import Distribution, Element, OutputReport, OverTime
from support.graphs import tagger
from support.plans import plan_graph

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
        (of_recurrence(found),), ("a note",), ("--inputs=x=x:0",), PROOF,
    )  # fmt: skip
