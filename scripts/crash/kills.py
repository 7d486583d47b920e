"""Conversions that are killed with SIGKILL at random moments, and conversions that race for one OUT."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from jobs import Pair, digest


def killed(pair: Pair, folder: Path, times: int, chance: random.Random) -> Counter[str]:
    """What stood at OUT after each kill of a `--force` conversion, every other late, where OUT is replaced.

    The parent, its child or both are killed. Now and then one conversion goes to its end, after which
    nothing may lie beside OUT.
    """
    out = folder / f"{pair.format} killed" / "out"
    out.parent.mkdir()
    found: Counter[str] = Counter()
    pair.jobs[0].run(out)
    before = [digest(job.source.parent) for job in pair.jobs]
    began = time.monotonic()
    pair.jobs[1].run(out, "--force")
    usual = time.monotonic() - began
    for number in range(times):
        job = pair.jobs[number % 2]
        stood = digest(out)
        moment = usual * (chance.uniform(0, 1.05) if number % 2 else chance.uniform(0.75, 1.05))
        _kill(job.start(out, "--force").pid, moment, chance)
        found[pair.stands(out)] += 1
        found["replaced"] += digest(out) != stood
        found["left beside OUT, and removed by the next"] += len(list(out.parent.iterdir())) - 1
        if number % 10 == 9 or number == times - 1:
            code, said = job.run(out, "--force")
            found["failed afterwards"] += code != 0 or said != []
            found["left for good"] += len(list(out.parent.iterdir())) - 1
    after = [digest(job.source.parent) for job in pair.jobs]
    found["sources changed"] = sum(one != other for one, other in zip(before, after, strict=True))
    return found


def _kill(group: int, moment: float, chance: random.Random) -> None:
    time.sleep(moment)
    children = Path(f"/proc/{group}/task/{group}/children")
    victims = [group]
    if children.exists():
        with suppress(OSError):
            child = [int(word) for word in children.read_text().split()]
            victims = chance.choice([[group], child or [group], [group, *child]])
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(group, 0)
    time.sleep(0.05)  # the child hears of its parent's end a moment later


def raced(pair: Pair, folder: Path, times: int, *, force: bool) -> Counter[str]:
    """What stood at OUT after two conversions to it at the same time; without `force` one has to refuse."""
    out = folder / f"{pair.format} raced {force}" / "out"
    out.parent.mkdir()
    found: Counter[str] = Counter()
    for _ in range(times):
        if not force and out.exists():
            out.rename(folder / f"raced {time.monotonic_ns()}")
        running = [job.start(out, *(["--force"] if force else [])) for job in pair.jobs]
        for one in running:
            one.communicate()
        codes = sorted(one.returncode for one in running)
        found[pair.stands(out)] += 1
        found["failed afterwards"] += codes != ([0, 0] if force else [0, 2])
        found["left for good"] += len(list(out.parent.iterdir())) - 1
    return found
