"""Starts the processes that measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def measured(module: str, *, threads: int, **given: Any) -> Any:
    """What the module's `measured` gives in a process of its own on so many cores.

    Raises SystemExit where there are fewer cores, or where the process fails.
    """
    _check_cores(threads)
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        out = Path(folder, "measured.json")
        child = _started(module, threads, {"threads": threads, **given}, out)
        return _ended(module, child, out)


def measured_in_turn(
    module: str, cores: Sequence[int], each: Sequence[Mapping[str, Any]], **given: Any
) -> list[Any]:
    """The same of a process for each of `each`, with so many cores; they do their rounds in turn.

    `each` is what only that process is given. See `rounds.Ring`.
    """
    _check_cores(max(cores))
    pipes = [os.pipe() for _ in cores]
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        outs = [Path(folder, f"{k}.json") for k in range(len(cores))]
        children = []
        for k, (many, own, out) in enumerate(zip(cores, each, outs, strict=True)):
            ring = {"get": pipes[k][0], "give": pipes[(k + 1) % len(pipes)][1], "first": k == 0}
            job = {**given, **own, "ring": ring}
            children.append(_started(module, many, job, out, ring["get"], ring["give"]))
        for descriptor in (end for pipe in pipes for end in pipe):
            os.close(descriptor)  # so that a process reads the end of its pipe where another has ended
        return [_ended(module, child, out) for child, out in zip(children, outs, strict=True)]


def _check_cores(cores: int) -> None:
    here = len(os.sched_getaffinity(0))
    if here < cores:
        raise SystemExit(f"bench: expected {cores} cores for {cores} threads, found {here}")


def _started(
    module: str, cores: int, given: dict[str, Any], out: Path, *descriptors: int
) -> subprocess.Popen[bytes]:
    job = {"module": module, "cores": cores, "given": given, "out": str(out)}
    command = [sys.executable, str(Path(__file__).with_name("child.py")), json.dumps(job)]
    return subprocess.Popen(command, pass_fds=descriptors)


def _ended(module: str, child: subprocess.Popen[bytes], out: Path) -> Any:
    if code := child.wait():
        raise SystemExit(f"bench: the process that measured {module} ended with {code}")
    return json.loads(out.read_text(encoding="utf-8"))
