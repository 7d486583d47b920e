"""Starts the processes that measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def measured(module: str, *, threads: int, **given: Any) -> Any:
    """What the module's `measured` gives in a process of its own on so many cores.

    Raises SystemExit where there are fewer cores, or where the process fails.
    """
    here = len(os.sched_getaffinity(0))
    if here < threads:
        raise SystemExit(f"bench: expected {threads} cores for {threads} threads, found {here}")
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        out = Path(folder, "found.json")
        job = {"module": module, "threads": threads, "given": {"threads": threads, **given}, "out": str(out)}
        ended = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("child.py")), json.dumps(job)], check=False
        )
        if ended.returncode:
            raise SystemExit(f"bench: the process that measured {module} ended with {ended.returncode}")
        return json.loads(out.read_text(encoding="utf-8"))
