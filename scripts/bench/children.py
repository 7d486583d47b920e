"""Starts the processes that measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def measured(module: str, *, threads: int, **given: Any) -> Any:
    """What the module's `measured` gives in a process of its own on so many cores.

    Raises SystemExit where there are fewer cores, or where the process fails.
    """
    _check_cores(threads)
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        out = Path(folder, "measured.json")
        child = _started(module, threads, given, out)
        return _ended(module, child, out)


def measured_in_turn(module: str, threads: Sequence[int], **given: Any) -> list[Any]:
    """The same of a process for each number of threads, which do their rounds in turn (`rounds.Ring`)."""
    _check_cores(max(threads))
    pipes = [os.pipe() for _ in threads]
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        outs = [Path(folder, f"{k}.json") for k in range(len(threads))]
        children = []
        for k, (many, out) in enumerate(zip(threads, outs, strict=True)):
            ring = {"get": pipes[k][0], "give": pipes[(k + 1) % len(pipes)][1], "first": k == 0}
            children.append(_started(module, many, {**given, "ring": ring}, out, ring["get"], ring["give"]))
        for descriptor in (end for pipe in pipes for end in pipe):
            os.close(descriptor)  # so that a process reads the end of its pipe where another has ended
        return [_ended(module, child, out) for child, out in zip(children, outs, strict=True)]


def _check_cores(threads: int) -> None:
    here = len(os.sched_getaffinity(0))
    if here < threads:
        raise SystemExit(f"bench: expected {threads} cores for {threads} threads, found {here}")


def _started(
    module: str, threads: int, given: dict[str, Any], out: Path, *descriptors: int
) -> subprocess.Popen[bytes]:
    job = {"module": module, "threads": threads, "given": {"threads": threads, **given}, "out": str(out)}
    command = [sys.executable, str(Path(__file__).with_name("child.py")), json.dumps(job)]
    return subprocess.Popen(command, pass_fds=descriptors)


def _ended(module: str, child: subprocess.Popen[bytes], out: Path) -> Any:
    if code := child.wait():
        raise SystemExit(f"bench: the process that measured {module} ended with {code}")
    return json.loads(out.read_text(encoding="utf-8"))
