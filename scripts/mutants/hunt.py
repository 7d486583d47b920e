"""A pytest plugin: for each mutant a child of this process, which has the tests collected already, runs them.

Tests are collected and TensorFlow is imported once: a child costs a fork, the change, and the tests.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from graft import functions, graft
from sites import Mutant

_PATIENCE = 120.0
_BATCH = 60
_MEMORY = 24 * 2**30  # of addresses, most of them TensorFlow's and never used


@dataclass(frozen=True)
class Trial:
    """A mutant, or none, and the tests it has to pass, whose usual time is `seconds`.

    `more` are those that a survivor has to pass too, and their time.
    """

    mutant: Mutant | None
    tests: list[str]
    seconds: float
    more: Trial | None = None


@dataclass(frozen=True)
class Verdict:
    """`killer` is the test that failed, `timeout` or what ended the process; empty for a survivor."""

    trial: Trial
    killer: str


class Hunt:
    """Takes the place of pytest's own loop over tests; `told` is called with each verdict."""

    def __init__(self, trials: list[Trial], told: Callable[[Verdict], None], root: Path, jobs: int) -> None:
        self._trials, self._told, self._root, self._jobs = trials, told, root, jobs
        self.unfit: set[str] = set()
        self._sound: set[str] = set()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        items = {item.nodeid: item for item in session.items}
        for trial in self._trials:  # some modules are imported late, by the tests that need them
            if trial.mutant is not None:
                parts = trial.mutant.path.with_suffix("").parts
                importlib.import_module(".".join(part for part in parts if part != "__init__"))
        gc.unfreeze()  # what the suite's conftest froze is not seen by a search
        functions()
        gc.collect()
        gc.freeze()  # what is here stays; a child that looks through it would copy it
        again = []
        for verdict in self._judged(self._trials, items):
            if verdict.killer or verdict.trial.more is None:
                self._told(verdict)
            else:
                again.append(verdict.trial.more)
        for verdict in self._judged(again, items):
            self._told(verdict)
        return True

    def _judged(self, trials: Iterable[Trial], items: dict[str, pytest.Item]) -> Iterator[Verdict]:
        """Verdicts that hold: a test that fails here without any mutant kills none, and is left out.

        Each killer is tried unchanged once, behind the tests that it came behind.
        """
        waiting = [*trials]
        while waiting:
            batch, waiting = waiting[:_BATCH], waiting[_BATCH:]
            print(f"{len(batch) + len(waiting)} to try", file=sys.stderr, flush=True)
            found = [*self._run([self._fitting(trial, items) for trial in batch], items)]
            killers: dict[str, list[str]] = {}
            for verdict in found:
                tests = verdict.trial.tests
                if verdict.killer in tests and verdict.killer not in self._sound:
                    killers.setdefault(verdict.killer, tests[: tests.index(verdict.killer) + 1])
            unchanged = self._run([Trial(None, tests, _PATIENCE) for tests in killers.values()], items)
            failing = {verdict.killer for verdict in unchanged if verdict.killer}
            self.unfit |= failing
            self._sound |= killers.keys() - failing
            yield from (verdict for verdict in found if verdict.killer not in self.unfit)
            waiting += [verdict.trial for verdict in found if verdict.killer in self.unfit]

    def _fitting(self, trial: Trial, items: dict[str, pytest.Item]) -> Trial:
        self.unfit |= {test for test in trial.tests if test not in items}
        return replace(trial, tests=[test for test in trial.tests if test not in self.unfit])

    def _run(self, trials: Iterable[Trial], items: dict[str, pytest.Item]) -> Iterator[Verdict]:
        waiting, children = iter(trials), list[_Child]()
        while True:
            while len(children) < self._jobs and (trial := next(waiting, None)) is not None:
                if trial.tests:
                    children.append(_Child(trial, items, self._root))
                else:
                    yield Verdict(trial, "")
            if not children:
                return
            for child in [*children]:
                if (killer := child.ended()) is not None:
                    children.remove(child)
                    yield Verdict(child.trial, killer)
            time.sleep(0.01)


class _Child:
    def __init__(self, trial: Trial, items: dict[str, pytest.Item], root: Path) -> None:
        self.trial = trial
        self.folder = Path(tempfile.mkdtemp(prefix="mutant"))
        self.until = time.monotonic() + 30 + 10 * trial.seconds
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            code = 70
            try:
                code = _try(trial, items, root, self.folder)
            except BaseException:  # noqa: BLE001 - a child must end here, whatever happens
                (self.folder / "killer").write_text(traceback.format_exc())
            finally:
                os._exit(code)

    def ended(self) -> str | None:
        """None while it runs, else what killed the mutant, or nothing."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() < self.until:
            return None
        late = pid == 0
        if late:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        killer = self.folder / "killer"
        told = killer.read_text() if killer.exists() else ""
        shutil.rmtree(self.folder, ignore_errors=True)
        if late:
            return "timeout"
        if os.WIFSIGNALED(status):
            return f"signal {os.WTERMSIG(status)}"
        if os.WEXITSTATUS(status) == 70:
            raise RuntimeError(told)
        return told


def _try(trial: Trial, items: dict[str, pytest.Item], root: Path, folder: Path) -> int:
    """In the child: 0, and a file `killer` with the name of the first test that fails."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    (folder / "tests").mkdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder / "tests")
    if trial.mutant is not None:
        try:
            graft(trial.mutant, root)
        except LookupError:
            raise
        except Exception as cause:  # noqa: BLE001 - a table that cannot be made is a mutant that is seen
            (folder / "killer").write_text(f"import: {cause!r}")
            return 0
    chosen = [items[name] for name in trial.tests]
    failed: list[str] = []

    class Watch:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    chosen[0].config.pluginmanager.register(Watch())
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            (folder / "killer").write_text(failed[0])
            break
    sys.stdout.flush()
    return 0
