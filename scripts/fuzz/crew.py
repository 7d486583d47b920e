"""Worker processes: each takes inputs one by one until it is worn, dies or hangs; then comes another.

A worker is a fork of this process, where everything is imported: it costs nothing to replace.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Inputs of one worker: what leaks in native code goes with it.
_WORN = 400
#: Bytes that a worker may take above what it has at the start.
MEMORY = 2 << 30
#: Bytes of one file that a worker may write.
_WRITTEN = 64 << 20


@dataclass(frozen=True)
class Verdict:
    """What became of an input: `read`, `refused`, `crashed` or `hung`, and why; the memory that it took."""

    number: int
    reader: str
    state: str
    why: str
    seconds: float
    memory: int


#: Tries input `number` in a folder of its own: `(reader, state, why)`.
Try = Callable[[int, Path], tuple[str, str, str]]


class Crew:
    """`jobs` workers that try the inputs of `numbers`, every input once; `patience`: seconds for each."""

    def __init__(
        self, tried: Try, *, numbers: Iterable[int], jobs: int, patience: Callable[[int], float]
    ) -> None:
        self._tried, self._patience, self._jobs = tried, patience, jobs
        self._waiting = iter(numbers)
        self._left: list[int] = []

    def verdicts(self, until: float) -> Iterator[Verdict]:
        """Verdicts as they come, of inputs begun before `until`, a time of the monotonic clock."""
        workers: list[_Worker] = []
        try:
            while True:
                while len(workers) < self._jobs and time.monotonic() < until and (taken := self._taken()):
                    workers.append(_Worker(self._tried, taken, until))
                if not workers:
                    return
                ready, _, _ = select.select([worker.pipe for worker in workers], [], [], 0.2)
                for worker in [*workers]:
                    if worker.pipe in ready:
                        yield from worker.heard()
                    elif worker.seconds() > self._patience(worker.number):
                        worker.kill()
                        yield worker.hung()
                    if worker.is_gone:
                        yield from worker.mourned()
                        workers.remove(worker)
                        self._left += worker.untried()
        finally:
            for worker in workers:
                worker.kill()

    def _taken(self) -> list[int]:
        """Numbers for a worker: what another left, then new ones."""
        taken, self._left = self._left[:_WORN], self._left[_WORN:]
        while len(taken) < _WORN and (number := next(self._waiting, None)) is not None:
            taken.append(number)
        return taken


@dataclass
class _Worker:
    """A child, and what it said last."""

    tried: Try
    numbers: list[int]
    until: float
    pid: int = 0
    pipe: int = 0
    is_gone: bool = False
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="fuzz")))
    _now: int | None = None
    _begun: float = 0.0
    _said: bytes = b""
    _done: int = 0

    def __post_init__(self) -> None:
        self.pipe, told = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(told)
            self._begun = time.monotonic()
            return
        code = 1
        try:
            os.setsid()
            _bounded(self.folder)
            self._work(told)
            code = 0
        finally:
            os._exit(code)

    def _work(self, told: int) -> None:
        """In the child: says the number of each input before it is tried, and what became of it after."""
        for number in self.numbers:
            if time.monotonic() > self.until:
                return
            os.write(told, f"{number}\n".encode())
            begun = time.monotonic()
            reader, state, why = self.tried(number, self.folder)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            said = [number, reader, state, why, time.monotonic() - begun, peak]
            os.write(told, f"{json.dumps(said)}\n".encode())

    @property
    def number(self) -> int:
        """The input that it is at, or the first one."""
        return self.numbers[0] if self._now is None else self._now

    def heard(self) -> Iterator[Verdict]:
        """What the child said since."""
        new = os.read(self.pipe, 1 << 16)
        self.is_gone = not new
        *lines, self._said = (self._said + new).split(b"\n")
        for line in lines:
            self._begun = time.monotonic()
            if line.startswith(b"["):
                self._done, self._now = self._done + 1, None
                yield Verdict(*json.loads(line))
            else:
                self._now = int(line)

    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def hung(self) -> Verdict:
        return self._verdict("hung", f"more than {self.seconds():.0f} s")

    def _verdict(self, state: str, why: str) -> Verdict:
        number = self.numbers[0] if self._now is None else self._now
        self._done, self._now = self._done + 1, None
        return Verdict(number, "", state, why, self.seconds(), 0)

    def mourned(self) -> Iterator[Verdict]:
        """Nothing of a child that ended well; of another, how it ended."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        if self._now is not None:
            signalled = os.WIFSIGNALED(status)
            how = signal.Signals(os.WTERMSIG(status)).name if signalled else f"exit {os.WEXITSTATUS(status)}"
            yield self._verdict("crashed", f"{how}: {_tail(self.folder / 'stderr')}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def untried(self) -> list[int]:
        return self.numbers[self._done :]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.is_gone = True


def _bounded(folder: Path) -> None:
    """What a worker may take; its own words go to a file, the end of which tells how it died."""
    sys.dont_write_bytecode = True  # a module imported in a look is no file that the look writes
    sink = os.open(folder / "stderr", os.O_RDWR | os.O_CREAT)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    data = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, data + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_WRITTEN, _WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _tail(path: Path) -> str:
    """The last line of a file, "" where there is none."""
    lines = path.read_bytes().decode(errors="replace").splitlines() if path.exists() else []
    return next((line[:300] for line in reversed(lines) if line.strip()), "")
