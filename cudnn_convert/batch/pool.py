"""Runs jobs in worker processes on the local machine, with limits of time and memory.

A worker (`workers.Worker`) takes one job at a time. A crash or a limit ends the work on one model and its
worker. The verdict on a model does not depend on the models before it: where a worker that has done others
crashes or runs out of memory, the model is tried once more in a new one. A worker ends after a failure and
after so many models, for what native libraries keep.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from cudnn_convert import process, storage
from cudnn_convert.batch import results, worker
from cudnn_convert.batch.jobs import Job, digest_source
from cudnn_convert.batch.results import JobResult
from cudnn_convert.context import machine_memory
from cudnn_convert.errors import CudnnConvertError
from cudnn_convert.workers import Worker

#: Models after which a worker makes room for a new one.
_RETIREMENT: Final = 100
#: Seconds between two looks at the workers: their memory, their time, whether to stop.
_TICK: Final = 0.05
#: Bytes that a worker with TensorFlow needs, by which the number of workers is chosen.
USUAL: Final = 2 << 30
_MIB: Final = 1 << 20


class Engine(Protocol):
    """A runner of jobs, on the local machine or elsewhere."""

    def run(self, todo: Iterable[Job], is_stopped: Callable[[], bool]) -> Iterator[JobResult]:
        """Run jobs, and yield a result the moment a job ends.

        `is_stopped` is asked again and again: once it is true, what is being worked on ends as `interrupted`.
        Jobs that were not begun have no result.
        """
        ...


def usual_workers() -> int:
    """Return the number of workers allowed by the machine's cores and memory."""
    cores = process.count_cores()
    memory = machine_memory()
    return cores if memory is None else max(1, min(cores, memory // USUAL))


class LocalPool:
    """An engine of `workers` processes, each with an equal share of the machine's memory.

    A process may allocate at most its share. `beside` such pools have the machine together. `work` is the
    function that does the work, as `module:name`.
    """

    def __init__(self, workers: int, *, beside: int = 1, work: str = worker.CONVERT) -> None:
        self._count, self._sharers, self._work = workers, workers * beside, work
        memory = machine_memory()
        self._share = None if memory is None else memory // self._sharers
        self._events: SimpleQueue[tuple[_JobWorker, bytes | None]] = SimpleQueue()
        self._workers: list[_JobWorker] = []
        self._environment: dict[str, str] = {}

    def run(self, todo: Iterable[Job], is_stopped: Callable[[], bool]) -> Iterator[JobResult]:
        """Run the jobs as `Engine.run` does, and close the pool.

        A worker that is told to stop has some seconds to clean up.
        """
        try:
            yield from self.run_on(todo, is_stopped)
        finally:
            self.close()

    def run_on(self, todo: Iterable[Job], is_stopped: Callable[[], bool]) -> Iterator[JobResult]:
        """Run the jobs as `run` does, and keep the workers for the next call."""
        waiting = deque(todo)
        self._environment = _environment(waiting, self._sharers)
        while (waiting or self._busy()) and not is_stopped():
            self._fill(waiting)
            yield from self._next()
        if self._busy():
            yield from self._stop()

    def close(self) -> None:
        """End the workers.

        Of a worker at work nothing is left beside its OUT.
        """
        while self._workers:
            each = self._workers.pop()
            each.end(at_once=each.job is not None)
            if each.job is not None:
                remove_left(each.job)

    def _busy(self) -> list[_JobWorker]:
        return [each for each in self._workers if each.job is not None]

    def _fill(self, waiting: deque[Job]) -> None:
        """Give a job to each idle worker, and start workers as needed."""
        while waiting and len(self._busy()) < self._count:
            idle = next((each for each in self._workers if each.job is None), None)
            (idle or self._start()).begin(waiting.popleft(), self._share)

    def _start(self) -> _JobWorker:
        fresh = _JobWorker(self._work, self._environment, self._events)
        self._workers.append(fresh)
        return fresh

    def _next(self) -> Iterator[JobResult]:
        """Wait at most a tick for a worker's answer or end, and yield the result."""
        try:
            each, line = self._events.get(timeout=_TICK)
        except Empty:
            each = None
        for other in self._busy():
            other.look()
        if each is not None and each.job is None:
            self._discard(each)  # it has ended while it had nothing to do
        if each is None or each.job is None:
            return
        job, result = each.job, each.result(line)
        is_failed = result.status in (results.CRASHED, results.TIMEOUT)
        if is_failed:
            remove_left(job)
        if is_failed or line is None or each.ended == _RETIREMENT:
            self._discard(each)
        if result.status == results.CRASHED and each.ended > 1:
            self._start().begin(job, self._share)
        else:
            yield result

    def _discard(self, each: _JobWorker) -> None:
        if each in self._workers:
            self._workers.remove(each)
            each.end()

    def _stop(self) -> Iterator[JobResult]:
        """Tell the workers to stop, and yield the results of the current jobs."""
        for each in self._busy():
            each.tell_to_stop()
        until = time.monotonic() + process.GRACE
        while self._busy():
            with suppress(Empty):
                each, line = self._events.get(timeout=_TICK)
                if each.job is not None:
                    job, result = each.job, each.result(line)
                    if line is None:
                        remove_left(job)
                        result = job.interrupt(**each.figures())
                    yield result
            if time.monotonic() > until:
                for each in self._busy():
                    each.kill()


def _environment(todo: Iterable[Job], workers: int) -> dict[str, str]:
    """Return the environment of the workers, with the cores shared among all workers."""
    size = 0 if workers > 1 else max((job.size for job in todo), default=0)
    cores = max(1, (os.cpu_count() or 1) // workers)
    threads = {} if workers == 1 else {"TF_NUM_INTRAOP_THREADS": str(cores)}
    return {**threads, **os.environ, **process.thread_settings(size)}


def remove_left(job: Job, *, until: float = 0.0) -> None:
    """Remove the files left by a killed worker beside an OUT or a page.

    `until`: how long to wait for one that is still ending, in the seconds of `time.monotonic`.
    """
    for path in (job.path, job.page):
        if path is not None:
            real = Path(os.path.realpath(path))
            with suppress(OSError):
                storage.remove_stale(real)
                while time.monotonic() < until and storage.is_being_written(real):
                    time.sleep(_TICK)
                    storage.remove_stale(real)


class _JobWorker(Worker):
    """A worker with a current job, and the queue `events` for answers.

    An event is the worker with a line, or with None when its process has ended.
    """

    def __init__(
        self, work: str, environment: dict[str, str], events: SimpleQueue[tuple[_JobWorker, bytes | None]]
    ) -> None:
        self.job: Job | None = None
        #: Models that it has done.
        self.ended = 0
        self._began = self._peak = 0.0
        super().__init__(
            worker.serve, work, hear=lambda line: events.put((self, line)), environment=environment
        )

    def begin(self, job: Job, memory: int | None) -> None:
        """Give a job to the worker.

        The process ends where the job takes longer than its limit.
        """
        self.job, self._peak, self._began = job, 0.0, time.monotonic()
        self.send(job.to_request(memory), self._began + job.limits.seconds)

    def look(self) -> None:
        """Note the memory used by the worker, and end a late worker."""
        self._note_memory()
        if not self.seconds_left and not self.is_late:
            self.kill_late()

    def _note_memory(self) -> None:
        self._peak = max(self._peak, _memory(self._process.pid))

    def figures(self) -> dict[str, Any]:
        """Return the measurements of the job, as fields of a result."""
        peak = round(self._peak / _MIB, 1) if self._peak else None
        return {"seconds": round(time.monotonic() - self._began, 3), "peak_mb": peak}

    def result(self, line: bytes | None) -> JobResult:
        """Return the job's result, from the worker's answer or the end of the process."""
        assert self.job is not None
        job, self.job = self.job, None
        self.ended += 1
        outcome = _parse(line) if line is not None else None
        if outcome is not None:
            self._note_memory()
            return job.end(**outcome, **self.figures())
        reasons = [f"{job.source}: {self.explain_end(job.limits)}"]
        status = results.TIMEOUT if self.is_late else results.CRASHED
        digests = {"source": digest_source(Path(job.source))}
        return job.end(status, CudnnConvertError.exit_code, reasons, digests=digests, **self.figures())


_NEEDED: Final = frozenset({"status", "exit_code", "reasons"})
_MORE: Final = frozenset({"verification", "digests"})


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a worker's answer, or None for a line of another kind.

    Native code may be made to say anything.
    """
    with suppress(ValueError, TypeError, RecursionError):
        outcome = json.loads(line)
        is_outcome = isinstance(outcome, dict) and {*_NEEDED} <= outcome.keys() <= _NEEDED | _MORE
        if is_outcome and outcome["status"] in results.STATUSES:
            outcome["exit_code"] = int(outcome["exit_code"])
            outcome["reasons"] = [str(reason) for reason in outcome["reasons"]]
            return dict(outcome)
    return None


def _memory(number: int) -> int:
    """Return the bytes of memory in use by a process, or 0 if unknown."""
    try:
        pages = int(Path(f"/proc/{number}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
