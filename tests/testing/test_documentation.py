"""The code of docs/testing.md runs as it stands there, one block after the other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

from cudnn_convert.testing import assert_equivalent

PAGE = (ROOT / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/testing.md", "exec"), names)
    assert len(BLOCKS) == 6
    said = capsys.readouterr().out
    assert "1 of 1 outputs differ" in said
    assert "output_0: largest error from step: 0: 1.0e-03, " in said
    names["test_the_converted_model"](assert_equivalent)


def test_every_parameter_is_named() -> None:
    told = inspect.signature(assert_equivalent).parameters
    (call,) = re.findall(r"assert_equivalent\((actual, .*?)\)\n", PAGE, re.DOTALL)
    assert re.findall(r"\w+", call) == [*told]
    assert all(
        f"`{name}" in PAGE or f"## {name}" in PAGE for name in told if name not in ("actual", "expected")
    )
