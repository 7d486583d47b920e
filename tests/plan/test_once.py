"""How often one conversion, from reading to writing, derives the same thing of a model."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from cudnn_convert import pipeline
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import Index
from cudnn_convert.keras import cpu_layers, translate
from cudnn_convert.options import Options

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "bilstm_tagger" / "model.ckpt"
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


@pytest.mark.parametrize(
    ("form", "most"),
    [
        ("savedmodel", {"__init__": 8, "import_graph_def": 3, "extract_nodes": 4, "strip_devices": 7}),
        ("onnx", {"__init__": 11, "import_graph_def": 6, "extract_nodes": 5, "strip_devices": 6}),
    ],
)
def test_a_graph_is_indexed_and_imported_a_few_times(
    form: str, most: dict[str, int], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    count(monkeypatch, counts, Index, "__init__")
    count(monkeypatch, counts, tf, "import_graph_def")
    count(monkeypatch, counts, node_defs, "extract_nodes")
    count(monkeypatch, counts, node_defs, "strip_devices")
    pipeline.convert(MODEL, out, Options(format=form, verify=False))
    assert counts.keys() == most.keys()
    assert counts <= Counter(most), counts


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
