"""A process that measures: bound to its cores before anything is imported.

    python scripts/bench/child.py '{"module": "speed", "cores": 1, "given": {...}, "out": FILE}'

Started by `children.py`; writes what the module's `measured` gives as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    job = json.loads(sys.argv[1])
    cores = sorted(os.sched_getaffinity(0))[: job["cores"]]
    os.sched_setaffinity(0, cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    found = importlib.import_module(job["module"]).measured(**job["given"])
    Path(job["out"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
