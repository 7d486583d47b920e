"""A whole process: its seconds and its memory, as whoever calls it sees them.

    python scripts/bench/whole.py KEPT PAUSE COMMAND...

Run as a program it runs one command and prints both as JSON; where KEPT is a folder, its seconds end when the
files in it are on the disk, and begin when nothing else waits to be written, PAUSE seconds later: memory that
deleted files had is soon given back by a virtual machine (Linux mm/page_reporting.c, after 2 s), and whoever
begins before that finds it at hand, where others wait for each page. It imports next to nothing: what
a process starts from counts as its memory (Linux keeps the high-water mark through exec). The command line
does its work in a child that it waits for, so that RUSAGE_CHILDREN covers it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def cost(
    command: Sequence[str], *, bytecode: Path, kept: Path | None = None, pause: float = 0.0
) -> tuple[float, float]:
    """Seconds, and bytes of memory at the peak of the largest process. Raises SystemExit where it fails.

    `kept` is a folder whose files have to be on the disk; it begins `pause` seconds after all others are.
    Python keeps what it compiles below the folder `bytecode`, as an installation has it: the first run of a
    command takes longer.
    """
    known = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    ended = subprocess.run(
        [sys.executable, __file__, str(kept or ""), str(pause), *command],
        env={**known, "PYTHONPYCACHEPREFIX": str(bytecode)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = ended.stderr.strip().rpartition("\n")[2]
        raise SystemExit(f"bench: {' '.join(command)}: ended with {ended.returncode}: {last}")
    seconds, memory = json.loads(ended.stdout)
    return seconds, memory


def main() -> int:
    kept, pause, *command = sys.argv[1:]
    if kept:
        os.sync()
        time.sleep(float(pause))
    start = time.perf_counter()
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if kept:
        for file in Path(kept).rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
    seconds = time.perf_counter() - start
    if ended.returncode:
        sys.stderr.buffer.write(ended.stderr[-2000:])
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps([round(seconds, 4), used * (1 if sys.platform == "darwin" else 1024)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
