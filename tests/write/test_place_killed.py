"""A run that is killed before any one of its calls of the system: OUT holds the old artifact or the new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="counts the calls of one system"),
    pytest.mark.slow("cudnn_convert/storage", "tests/write/killed_runs.py"),
]
PROGRAM = Path(__file__).with_name("killed_runs.py")


@pytest.mark.parametrize("way", ["exchange", "steps"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_run_that_is_killed_tears_nothing(tmp_path: Path, kind: str, way: str) -> None:
    call = [sys.executable, str(PROGRAM), str(tmp_path), kind, way]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) > 15
    old, new = (["old"] * 2, ["new"] * 2) if kind == "folder" else (["old"], ["new"])
    outcomes = []
    for died, everywhere, after, beside in runs:
        # In steps there is a moment when only the temporary folder holds it: the next run puts it back.
        assert died in (old, new) or (way == "steps" and not died and everywhere.count("old") == len(old))
        assert (after, beside) == (new, ["out"])
        outcomes.append(died)
    assert outcomes[0] == old
    assert outcomes[-1] == new
    assert (way == "steps") == ([] in outcomes)
