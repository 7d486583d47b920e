"""The notebook of the docs runs from the first cell to the last, and shows what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

NOTEBOOK = ROOT / "docs" / "tutorials" / "library.ipynb"


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for cell in code:
        compile("".join(cell["source"]), str(NOTEBOOK), "exec")


@pytest.mark.every
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    kernels = tmp_path / "kernels" / "python3"
    kernels.mkdir(parents=True)
    arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": arguments, "display_name": "Python 3", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    done = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    outputs: list[Any] = [output for cell in done.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    shown = [output.data for output in outputs if "data" in output]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert [">Equal: largest error " in page for page in pages] == [True, True]
    card = next(
        output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {})
    )
    assert "**Equal**" in card
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "--" not in printed
    assert "format" in printed
