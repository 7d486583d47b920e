"""What the whole suite shares: its tiers, its cost, the shares of bounds that it uses, the mutants it killed.

| tier | command | tests |
|---|---|---|
| first | `make test`, `pytest --fast` | all without a marker; of mutants those of tests/mutants/REGISTER |
| first and more | `CUDNN_CONVERT_BASE=main make test` | also those marked `slow` whose files differ from it |
| every | `make test-every`, `pytest` | all: the marker `every` is the rest of sources x formats x writers |
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from mutants import register
from support import budget, margins, tiers, user_processes

from cudnn_convert.context import hide_gpus, use_plain_keras
from cudnn_convert.errors import CudnnConvertError

gc.set_threshold(100_000, 20, 100)
hide_gpus()  # an artifact of the suite runs on the CPU; a GPU would multiply float32 as TF32
use_plain_keras()  # a developer's `~/.keras/keras.json` may name other types or another backend
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)  # what rich makes of a developer's terminal is not what the tests read
ROOT = Path(__file__).resolve().parents[1]
#: Files of tests that read messages as library calls word them, with arguments in the place of flags. Others
#: read those of the command line; tests/test_calls.py tests how one becomes the other, for every message.
LIBRARY_WORDS = frozenset(
    ROOT / "tests" / file
    for file in "test_calls.py test_library.py test_context.py house/test_docs.py report/test_card.py "
    "targets/test_weights.py end_to_end/test_keras.py end_to_end/test_graphless.py "
    "end_to_end/test_state.py".split()
)
SPELL = CudnnConvertError.spell
#: CPU seconds by test file, and under `WHOLE` of all processes; with pytest-xdist each worker sends its own.
SECONDS: Counter[str] = Counter()
WHOLE = "whole"
#: CPU seconds of each piece of work between tests; with pytest-xdist each worker sends its own.
WORKS: list[float] = []
#: The cost of the run, known after it.
COST = pytest.StashKey[budget.Cost]()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A path where nothing is yet."""
    return tmp_path / "out"


@pytest.fixture
def store() -> Iterator[Any]:
    """The file system of `memory://`, empty."""
    import fsspec

    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture
def v1_control_flow() -> Iterator[None]:
    """Graphs built meanwhile have Switch, Merge and Enter, as TensorFlow 1 wrote them."""
    import tensorflow as tf

    before = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    yield
    if before:
        tf.compat.v1.enable_control_flow_v2()


@pytest.fixture
def is_first_tier(request: pytest.FixtureRequest) -> bool:
    """Whether --fast is given: then what other values judge needs no proof beside them."""
    return bool(request.config.getoption("fast"))


@pytest.fixture(scope="session", autouse=True)
def _short_loops(request: pytest.FixtureRequest) -> Iterator[tuple[int, ...] | None]:
    """With --fast, loops of small matrices take 2 steps an iteration and 1, not 16, 4 and 1.

    The graph of a GRU is then half as large. Gives the numbers that users have. Nothing is to be done
    where no test has loaded TensorFlow.
    """
    if not request.config.getoption("fast") or "tensorflow" not in sys.modules:
        yield None
        return
    from cudnn_convert.lower.tensorflow import layer_stack

    shipped = layer_stack._SMALL
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_stack, "_SMALL", (2, 1))
        yield shipped


@pytest.fixture
def shipped_loops(_short_loops: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops as users have them, with --fast too."""
    if _short_loops is not None:
        monkeypatch.setattr("cudnn_convert.lower.tensorflow.layer_stack._SMALL", _short_loops)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="the first tier: what every push needs")
    parser.addoption(
        "--within-budget", action="store_true", help="fail where --fast costs far more than its budget"
    )
    parser.addoption(
        "--within-half", action="store_true", help="fail where a comparison uses more than half of its bound"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch comparisons. With --fast, properties that run graphs take fewer examples, and cost is judged.

    Raises pytest.UsageError if CUDNN_CONVERT_BASE is no commit.
    """
    settings.register_profile("fast", max_examples=2, deadline=None, derandomize=True)
    config.add_cleanup(margins.watch())
    if config.getoption("fast"):
        settings.load_profile("fast")
        changed_files()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fast, tests marked `every` go, parameters that no `first` names, and slow tests.

    Of mutants those stay that the register names: one for each class of mistakes.
    """
    if not config.getoption("fast"):
        return
    changed, registered = changed_files(), register.tests()
    kept, left = [], []
    for item in items:
        marker = item.get_closest_marker("slow")
        paths = (os.path.relpath(item.path, ROOT), *marker.args) if marker else ()
        runs = marker is None or any(file.startswith(path) for file in changed for path in paths)
        runs = runs and tiers.is_named(item) and not item.get_closest_marker("every")
        runs = runs and (not item.get_closest_marker("mutant") or item.nodeid in registered)
        (kept if runs else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@cache
def changed_files() -> tuple[str, ...]:
    """Files that differ from the commit CUDNN_CONVERT_BASE, new ones too; none where no base is named.

    Raises pytest.UsageError if git does not know the commit.
    """
    base, files = os.environ.get("CUDNN_CONVERT_BASE"), list[str]()
    if not base:
        return ()
    for words in (
        ["diff", "--name-only", "--relative", base],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            expected, said = "a commit of this repository", done.stderr.partition("\n")[0]
            raise pytest.UsageError(f"CUDNN_CONVERT_BASE: expected {expected}, found {base}: {said}")
        files += done.stdout.splitlines()
    return tuple(files)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Workers of pytest-xdist collect one at a time: the others read what the first compiled."""
    with Path(__file__).open() as file:
        if hasattr(session.config, "workerinput"):
            with suppress(ImportError, OSError):  # systems and file systems without locks
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Takes what the test modules imported out of each garbage collection.

    With fewer collections, that saves a sixth of the time: TensorFlow's graphs are many small objects. With
    --fast, graphs do not keep the Python stack of each node either, a twentieth: under pytest it is long.
    """
    if session.config.getoption("fast") and "tensorflow" in sys.modules:
        from tensorflow.python.util import tf_stack

        stack = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: stack
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Messages keep the words of the command line, unless the file is one of LIBRARY_WORDS."""
    spelled = SPELL if item.path in LIBRARY_WORDS else lambda error, how: None
    CudnnConvertError.spell = spelled  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Counts the CPU seconds of a test for its file, and times the work of the budget now and then."""
    if item.config.getoption("fast") and SECONDS.total() >= len(WORKS) * budget.BETWEEN:
        WORKS.append(budget.time_work())
    begin = user_processes.cpu_seconds()
    result = yield
    SECONDS[os.path.relpath(item.path, ROOT)] += user_processes.cpu_seconds() - begin
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends what it counted; the process that prints judges it."""
    user_processes.close_users()
    if hasattr(session.config, "workeroutput"):
        SECONDS[WHOLE] = user_processes.cpu_seconds()
        session.config.workeroutput["seconds"] = dict(SECONDS)
        session.config.workeroutput["works"] = WORKS
        session.config.workeroutput["shares"] = margins.SHARES
        return
    options, stash = session.config.option, session.config.stash
    if WORKS:
        seconds = SECONDS.pop(WHOLE, 0.0) + user_processes.cpu_seconds() - sum(WORKS)
        stash[COST] = budget.Cost(seconds, tuple(WORKS))
    is_refused = (options.within_half and margins.describe_narrow()) or (
        options.within_budget and COST in stash and stash[COST].is_refused
    )
    if is_refused and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With pytest-xdist: a worker ended; its counts come to the process that prints."""
    sent = getattr(node, "workeroutput", {})
    SECONDS.update(sent.get("seconds", {}))
    WORKS.extend(sent.get("works", ()))
    margins.note_shares(sent.get("shares", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the run cost, which comparisons are near their bounds, and the mutants: how many, which survived.

    A test with the marker `mutant` is one mutant. With pytest-xdist this runs where all reports arrive.
    """
    if COST in config.stash:
        costly = ", ".join(f"{Path(path).name} {cost:.0f}" for path, cost in SECONDS.most_common(10))
        cost = config.stash[COST]
        terminalreporter.write_line(cost.describe(), bold=True, red=cost.is_over)
        terminalreporter.write_line(f"most in {costly}")
    for line in margins.describe_narrow():
        terminalreporter.write_line(line, red=True)
    killed, survived = (
        [
            report.nodeid
            for kind in kinds
            for report in terminalreporter.getreports(kind)
            if _is_mutant(report)
        ]
        for kinds in (("passed",), ("failed", "error"))
    )
    if killed or survived:
        terminalreporter.write_line(
            f"mutants: {len(killed) + len(survived)} tried, {len(killed)} killed", bold=True
        )
    for name in survived:
        terminalreporter.write_line(f"survived: {name}", red=True)


def _is_mutant(report: Any) -> bool:
    return "mutant" in getattr(report, "keywords", ())
