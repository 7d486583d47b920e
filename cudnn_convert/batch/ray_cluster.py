"""Runs jobs as tasks of Ray, on a cluster or on the local machine.

A task is one model. It runs in a worker process of Ray's, which gives it to a process of its own as
`pool.LocalPool` does: with the same limits, and the same line after a crash. That process stays for the next
task. Ray places a task by the CPU and the memory that it asks for; results come to the driver one by one. A
task whose worker or node is lost is tried again.

Source: ray 2.60 python/ray/exceptions.py (what the loss of a worker or node raises), _private/worker.py
(`init`, `wait`; the driver prints on stdout what it hears of nodes),
doc/source/ray-core/user-spawn-processes.rst (a worker that is to end kills its processes first).
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from cudnn_convert import process
from cudnn_convert.batch import results, worker
from cudnn_convert.batch.jobs import Job
from cudnn_convert.batch.pool import USUAL, LocalPool, remove_left, usual_workers
from cudnn_convert.batch.results import JobResult
from cudnn_convert.errors import CudnnConvertError, MissingDependencyError, UsageError
from cudnn_convert.text import first_line
from cudnn_convert.version import __version__

#: How often a model is begun whose workers are lost, at most.
TRIES: Final = 3
#: Seconds that the driver waits for a result before it looks whether to stop.
_TICK: Final = 0.1
#: Bytes of Ray's store of objects on this machine, where nothing but lines goes through it.
_STORE: Final = 200 << 20
#: Seconds that a worker that was killed may take to be gone, and between two times that it is killed.
_GONE: Final = 10.0
_AGAIN: Final = 1.0
#: Seconds between two looks at the size of the cluster.
_LOOK: Final = 2.0


@dataclass(slots=True)
class _Flight:
    """A job at work as a task, with number of tries and start time.

    `is_own` says whether the OUT is the job's own.
    """

    job: Job
    tries: int
    began: float
    is_own: bool


class RayCluster:
    """An engine for tasks on a cluster connected to the process.

    `tasks` run at a time, as many as the cluster has CPUs unless given. `work` is the function that does the
    work, as `module:name`.
    """

    def __init__(self, tasks: int | None = None, *, work: str = worker.CONVERT) -> None:
        self._tasks, self._work = tasks, work
        self._looked, self._cpus, self._memory = -_LOOK, 1, USUAL
        self._run: Any = None

    def run(self, todo: Iterable[Job], is_stopped: Callable[[], bool]) -> Iterator[JobResult]:
        """Run the jobs as `Engine.run` does.

        Tasks that are told to stop have some seconds to clean up.
        """
        import ray

        # Once: each call of it would send the function to all nodes.
        self._run = ray.remote(num_cpus=1, max_retries=0)(_run)
        waiting, flying = deque(todo), dict[Any, _Flight]()
        while (waiting or flying) and not is_stopped():
            self._look()
            while waiting and len(flying) < (self._tasks or self._cpus):
                self._begin(waiting.popleft(), flying)
            ended, _ = ray.wait([*flying], num_returns=1, timeout=_TICK)
            for task in ended:
                yield from self._take(task, flying)
        yield from _stop(flying)

    def _look(self) -> None:
        """Note the number of CPUs of the cluster, and the memory of the largest node."""
        import ray

        if time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._cpus = max(1, int(sum(node.get("CPU", 0) for node in nodes)))
        self._memory = int(max((node.get("memory", 0) for node in nodes), default=0))

    def _begin(self, job: Job, flying: dict[Any, _Flight], earlier: _Flight | None = None) -> None:
        is_own = earlier.is_own if earlier else job.replaces or not job.path.exists()
        # No node has more: the task would wait for ever.
        memory = min(job.limits.memory or USUAL, self._memory)
        run = self._run.options(memory=memory)
        flight = _Flight(job, earlier.tries + 1 if earlier else 1, time.monotonic(), is_own)
        flying[run.remote(job, self._work, __version__)] = flight

    def _take(self, task: Any, flying: dict[Any, _Flight]) -> Iterator[JobResult]:
        """Yield the result of an ended task, or begin the task anew."""
        import ray

        flight = flying.pop(task)
        try:
            yield ray.get(task)
        except ray.exceptions.RayTaskError as error:
            yield flight.job.end(**worker.explain(flight.job.source, error))
        except ray.exceptions.RayError as error:
            job = flight.job
            remove_left(job)
            if flight.tries < TRIES:
                # What the lost worker had put in place just before is the same model's.
                self._begin(replace(job, replaces=flight.is_own), flying, flight)
                return
            what = f"its worker was lost {TRIES} times, or the node with it: {type(error).__name__}"
            reason = f"{job.source}: {what}; give it more memory with --limit memory=NUMBER"
            seconds = round(time.monotonic() - flight.began, 3)
            yield job.end(results.CRASHED, CudnnConvertError.exit_code, [reason], seconds=seconds)

    def share(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Call a function as tasks, as `map` does, and yield the results in order.

        A call whose worker is lost is made again. Raises what the function raises, CudnnConvertError where a
        worker is lost each time.
        """
        import ray

        calls, flying = iter(zip(*columns, strict=True)), deque[Any]()
        run = ray.remote(num_cpus=1, max_retries=TRIES - 1)(function)
        self._look()
        while True:
            for given in islice(calls, (self._tasks or self._cpus) + 1 - len(flying)):
                flying.append(run.options(memory=min(USUAL, self._memory)).remote(*given))
            if not flying:
                return
            try:
                yield ray.get(flying.popleft())
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                what = f"--engine ray: a worker was lost {TRIES} times: {type(error).__name__}"
                raise CudnnConvertError(f"{what}; memory ran out, or a file is damaged") from error


def _stop(flying: dict[Any, _Flight]) -> Iterator[JobResult]:
    """Cancel the running tasks, and yield the results.

    A task that had just ended yields its own result, any other an interruption. The workers of those that
    have not ended in time are killed. A worker is gone a moment after its task.
    """
    import ray

    ending = [*flying]
    for task in ending:
        ray.cancel(task, force=False)
    if ending:
        _, ending = ray.wait(ending, num_returns=len(ending), timeout=process.GRACE)
    killed, deadline = ending, time.monotonic() + _GONE
    while ending and time.monotonic() < deadline:
        for task in ending:
            ray.cancel(task, force=True)  # Ray ignores it while an earlier one is on its way
        _, ending = ray.wait(ending, num_returns=len(ending), timeout=_AGAIN)
    until = time.monotonic() + _GONE
    for task, flight in flying.items():
        job = flight.job
        try:
            result = ray.get(task, timeout=0)
        except (ray.exceptions.RayError, KeyboardInterrupt):
            result = None
        # Ray kills the process of a worker before the worker, which may still say that it crashed.
        if result is None or (task in killed and result.status == results.CRASHED):
            remove_left(job, until=until)
            result = job.interrupt(seconds=round(time.monotonic() - flight.began, 3))
        yield result


#: The pool of a worker process of Ray's, kept from task to task.
_pool: LocalPool | None = None


def _run(job: Job, work: str, version: str) -> JobResult:
    """Run a job in a Ray worker process, by a pool of a single process."""
    global _pool  # noqa: PLW0603 - the process outlives the task, and so does its pool
    if version != __version__:
        reason = f"{job.source}: expected cudnn-convert {version} on each node, found {__version__}"
        return job.end(results.REFUSED, MissingDependencyError.exit_code, [reason])
    process.silence_native()
    _pool = _pool or LocalPool(1, beside=usual_workers(), work=work)
    try:
        (result,) = _pool.run_on([job], lambda: False)
    except BaseException:  # it is told to stop
        _pool.close()
        raise
    return result


@contextmanager
def connect(address: str | None, tasks: int | None, *, work: str = worker.CONVERT) -> Iterator[RayCluster]:
    """Connect to the cluster at an address, or at RAY_ADDRESS, or begin a local cluster.

    Raises MissingDependencyError without Ray, UsageError where no cluster answers.
    """
    try:
        import ray
    except ImportError as cause:
        advice = "install it: pip install 'cudnn-convert[ray]'"
        raise MissingDependencyError(
            f"--engine ray: expected Ray, found that it is not installed; {advice}"
        ) from cause
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Where the driver's accelerators are none, Ray 2.60 warns of a change to come.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    here = {"num_cpus": tasks or usual_workers(), "object_store_memory": _STORE, "include_dashboard": False}
    with Path(os.devnull).open("w", encoding="utf-8") as nothing, redirect_stdout(nothing):
        try:
            ray.init(**quiet, address=address or "local", **({} if address else here))
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as cause:
            expected = f"--ray-address: expected a cluster, found none at {address or 'this machine'}"
            raise UsageError(f"{expected}: {first_line(cause)}") from cause
        try:
            yield RayCluster(tasks, work=work)
        finally:
            with suppress(Exception):
                ray.shutdown()
