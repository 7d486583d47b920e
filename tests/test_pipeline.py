"""How often one conversion, from reading to writing, derives the same thing of a model."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import tensorflow as tf
from support.samples import fixture

from cudnn_convert import pipeline
from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.graph import graph, node_defs
from cudnn_convert.graph.index import Index
from cudnn_convert.keras import cpu_layers, translate
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.verification import check

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "crf_tagger" / "model.ckpt"
LAYERS = ROOT / "tests" / "data" / "keras" / "keras-2.2.4" / "bidirectional" / "model.h5"


def count(monkeypatch: pytest.MonkeyPatch, counts: Counter[str], where: Any, name: str) -> None:
    """Counts the calls of a function, or a method, wherever the package has imported it to."""
    original = getattr(where, name)

    def counted(*given: Any, **named: Any) -> Any:
        counts[name] += 1
        return original(*given, **named)

    ours = [found for key, found in sys.modules.items() if key.startswith("cudnn_convert")]
    for module in [where, *ours]:
        if vars(module).get(name) is original:
            monkeypatch.setattr(module, name, counted)


#: A copy is a GraphDef with copies of all nodes of a graph, which `copy_graph` alone makes. Each import has
#: one to itself, for TensorFlow writes defaults into what it imports, and so has the traced body of a
#: recurrence. The last one is what is written.
@pytest.mark.first("savedmodel-False-most0")
@pytest.mark.parametrize(
    ("form", "names_axes", "most"),
    [
        ("savedmodel", False, {"__init__": 6, "import_graph_def": 3, "copy_graph": 2 + 1 + 1 + 1}),
        # The second import and a copy freeze the variables; the last are of what tf2onnx is given.
        ("onnx", False, {"__init__": 8, "import_graph_def": 4, "copy_graph": 2 + 1}),
        # Naming axes asks TensorFlow for shapes with two sets of sizes, as below.
        ("savedmodel", True, {"__init__": 6 + 2, "import_graph_def": 3 + 4, "copy_graph": 5 + 4}),
    ],
)
def test_a_graph_is_indexed_imported_and_copied_a_few_times(
    form: str, names_axes: bool, most: dict[str, int], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    count(monkeypatch, counts, Index, "__init__")
    count(monkeypatch, counts, tf, "import_graph_def")
    count(monkeypatch, counts, graph, "copy_graph")
    count(monkeypatch, counts, node_defs, "copy_node")
    if not names_axes:
        monkeypatch.setattr(pipeline, "_with_axes", lambda plan, _: plan)
    pipeline.convert(MODEL, out, Options(format=form, verify=False))
    copied = counts.pop("copy_node")
    assert counts.keys() == most.keys()
    assert counts <= Counter(most), counts
    # Once each node loses its device; beside that, a few are changed.
    planned = len(make_plan(read_source(MODEL, Options(), tag=None), Options()).whole.node)
    assert copied <= 2 * planned


#: A graph that fits is imported with two sets of sizes. The tagger's has a condition that refuses two ways
#: to call its axes, and then is replaced by a constant.
@pytest.mark.first("crf_tagger-4")
@pytest.mark.parametrize(("name", "most"), [("crf_tagger", 2 + 2), ("gru_speech", 2), ("seq2seq", 2)])
def test_axes_are_named_with_two_sets_of_sizes(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ROOT / "models" / name / "model.ckpt"
    plan = make_plan(read_source(model, Options(), tag=None), Options())
    assert plan.graph is not None
    assert plan.graph.shapes  # the lowering asks for them too
    counts: Counter[str] = Counter()
    count(monkeypatch, counts, tf, "import_graph_def")
    named = pipeline._with_axes(plan, Options())
    assert named.axes
    assert counts["import_graph_def"] <= most, counts


#: The code of a copy of all nodes of a graph, and where the count above rests on there being one.
COPY: Final = re.compile(
    r"(?<!Meta)GraphDef\(node=|graph(_def)?\.CopyFrom\(|\.MergeFrom\(|node\.extend\(graph\.node\)"
)
ROOMS: Final = ("graph", "plan", "recurrences", "lower/tensorflow", "targets")


def test_one_function_copies_graphs() -> None:
    files = [file for room in ROOMS for file in (ROOT / "cudnn_convert" / room).rglob("*.py")]
    copies = [file.name for file in files for _ in COPY.finditer(file.read_text(encoding="utf-8"))]
    assert copies == ["graph.py"]


@pytest.mark.slow("cudnn_convert/keras", "cudnn_convert/targets")
@pytest.mark.parametrize(("form", "translations"), [("keras", 1), ("h5", 0)])
def test_layers_are_rewritten_and_translated_once(
    form: str, translations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    count(monkeypatch, counts, cpu_layers, "rewritten")
    count(monkeypatch, counts, translate, "modern")
    pipeline.convert(LAYERS, tmp_path / f"out.{form}", Options(format=form, verify=False))
    assert counts["rewritten"] == 1
    assert counts["modern"] == translations


@pytest.mark.first("onnx")
@pytest.mark.parametrize("form", ["tflite", "onnx", "savedmodel"])
def test_an_artifact_that_its_runtime_refuses(form: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another runtime may lack what the model needs. TensorFlow runs the source: there it is our mistake."""

    def refuse(_plan: Any, artifact: Path, *_: Any, **__: Any) -> None:
        raise ReadError(artifact, "artifact", expected="one that runs", found="FILL failed to prepare")

    monkeypatch.setattr(check, "verify_artifact", refuse)
    if form == "savedmodel":
        expected: type[Exception] = RuntimeError
        message = "the artifact that was just written does not load"
    else:
        expected = UnsupportedModelError
        message = (
            f"{form}: expected a graph that {form}'s runtime accepts, found an error: "
            "FILL failed to prepare; choose --format savedmodel"
        )
    with pytest.raises(expected) as refused:
        pipeline.convert(fixture("1.15.5-gru_bi").prefix, out, Options(format=form))
    assert str(refused.value) == message
    assert not out.exists()
