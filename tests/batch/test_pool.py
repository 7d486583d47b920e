"""Workers: each model by itself, whatever happens to the others."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.batch_work import WORK, make_jobs

from cudnn_convert import process
from cudnn_convert.batch import pool
from cudnn_convert.batch.jobs import Job, digest_source
from cudnn_convert.batch.pool import LocalPool
from cudnn_convert.batch.results import JobResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and memory as Linux has them")


def run(jobs: list[Job], workers: int = 1, **settings: Any) -> dict[str, JobResult]:
    """Results by OUT, in the order in which they came."""
    engine = LocalPool(workers, work=WORK)
    return {result.out: result for result in engine.run(jobs, settings.get("is_stopped", lambda: False))}


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out").iterdir())


def test_each_end_has_its_status_and_its_line(tmp_path: Path) -> None:
    texts = {
        "first": "convert 1",
        "crash": "abort",
        "leave": "exit 3",
        "loop": "hang 60",
        "large": f"allocate {2 << 30}",
        "bug": "raise what nobody expected",
        "refuse": "refuse expected a model, found none",
        "differ": "differ output y: too large",
        "unproven": "unproven nothing was shown",
        "last": "convert 2",
    }
    jobs = make_jobs(tmp_path, "seconds=10", "memory=1G", **texts)
    ended = run(jobs, workers=2)
    assert {out: (result.status, result.exit_code) for out, result in ended.items()} == {
        "first": ("converted", 0),
        "crash": ("crashed", 1),
        "leave": ("crashed", 1),
        "loop": ("timeout", 1),
        "large": ("crashed", 1),
        "bug": ("crashed", 70),
        "refuse": ("refused", 1),
        "differ": ("different", 3),
        "unproven": ("not proven", 1),
        "last": ("converted", 0),
    }
    place = tmp_path / "in"
    cure = "the file is damaged, or memory ran out (--limit memory=NUMBER)"
    assert {out: result.reasons[0] for out, result in ended.items() if result.reasons} == {
        "crash": f"{place}/crash: native code ended with SIGABRT; {cure}",
        "leave": f"{place}/leave: native code ended with exit code 3; {cure}",
        "loop": f"{place}/loop: it ran longer than the limit of 10 seconds; "
        "raise it with --limit seconds=NUMBER",
        "large": f"{place}/large: memory ran out; raise it with --limit memory=NUMBER",
        "bug": "this is our bug; please report it with these lines",
        "refuse": f"{place}/refuse: expected a model, found none",
        "differ": f"{place}/differ: output y: too large",
        "unproven": f"{place}/unproven: nothing was shown",
    }
    assert ended["bug"].reasons[-1] == "RuntimeError: what nobody expected"
    assert beside(tmp_path) == ["first", "last"]  # no file of those that were killed
    assert ended["loop"].seconds >= 3
    for out in ("crash", "leave", "loop"):  # by which a later run knows that they would end so again
        assert ended[out].digests["source"] == digest_source(place / out)


@pytest.mark.slow("cudnn_convert/batch", "cudnn_convert/workers.py")
def test_a_worker_serves_on_and_is_replaced_after_a_failure(tmp_path: Path) -> None:
    texts = {"a": "convert", "b": "refuse it", "c": "convert", "d": "abort", "e": "convert", "f": "convert"}
    ended = run(make_jobs(tmp_path, **texts))
    seen = {out: result.verification for out, result in ended.items() if result.verification}
    assert [seen[out]["had"] for out in "acef"] == [1, 3, 1, 2]
    assert seen["a"]["process"] == seen["c"]["process"] != seen["e"]["process"] == seen["f"]["process"]


@pytest.mark.slow("cudnn_convert/batch", "cudnn_convert/workers.py")
def test_a_worker_is_replaced_after_so_many_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_RETIREMENT", 2)
    ended = run(make_jobs(tmp_path, **dict.fromkeys("abcde", "convert")))
    assert [result.verification["had"] for result in ended.values() if result.verification] == [1, 2, 1, 2, 1]


def test_what_crashes_only_after_others_is_tried_in_a_new_worker(tmp_path: Path) -> None:
    ended = run(make_jobs(tmp_path, a="convert", b="abort_later", c="convert"))
    assert [(result.status, result.reasons) for result in ended.values()] == [("converted", ())] * 3
    assert ended["b"].verification is not None and ended["b"].verification["had"] == 1


def test_temporary_files_of_workers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    ended = run(make_jobs(tmp_path, a="convert", b="abort"))
    assert ended["a"].verification is not None
    assert Path(ended["a"].verification["scratch"]).parent == tmp_path / "temporary"
    assert [*(tmp_path / "temporary").iterdir()] == []


def test_memory_is_measured_for_each_model(tmp_path: Path) -> None:
    ended = run(make_jobs(tmp_path, a="wait 0.2", b=f"allocate {300 << 20}", c="wait 0.2"))
    a, b, c = (ended[out].peak_mb or 0.0 for out in "abc")
    assert 10 < a < 200 and c < 200
    assert b - a > 200


def test_the_current_folder_is_no_place_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of strangers may have a file that is called as a module."""
    jobs = make_jobs(tmp_path, a="convert")
    for name in ("json", "numpy", "site"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert run(jobs)["a"].status == "converted"


def stopping_after(seconds: float) -> Any:
    begin = time.monotonic()
    return lambda: time.monotonic() > begin + seconds


def test_a_stop_interrupts_what_is_at_work_and_begins_nothing(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, a="hang 60", b="hang 60", c="convert")
    began = time.monotonic()
    ended = run(jobs, workers=2, is_stopped=stopping_after(1.5))
    assert {(out, result.status, result.exit_code) for out, result in ended.items()} == {
        ("a", "interrupted", 130),
        ("b", "interrupted", 130),
    }
    assert time.monotonic() - began < 40
    assert not any((tmp_path / "out").glob("*"))


@pytest.mark.slow("cudnn_convert/batch/pool.py", "cudnn_convert/process.py", "cudnn_convert/workers.py")
def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 1)
    jobs = make_jobs(tmp_path, a="hang 60")
    engine, at_work = LocalPool(1, work=WORK), iter([False] * 30)

    def is_stopped() -> bool:
        if not next(at_work, True):
            return False
        os.kill(engine._workers[0]._process.pid, signal.SIGSTOP)  # as native code that does not return
        return True

    (result,) = engine.run(jobs, is_stopped)
    assert result.status == "interrupted"
    assert not any((tmp_path / "out").glob("*"))


def test_a_worker_that_dies_while_it_has_nothing_to_do_is_replaced(tmp_path: Path) -> None:
    engine = LocalPool(1, work=WORK)
    a, b = make_jobs(tmp_path, a="convert", b="convert")

    def todo() -> Iterator[JobResult]:
        yield from engine.run([a, b], lambda: False)

    results = todo()
    first = next(results)
    assert first.verification is not None
    os.kill(first.verification["process"], signal.SIGKILL)
    time.sleep(0.3)
    (second,) = results
    assert second.status == "converted"


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{}", b"[1]", b"words", b"[" * 100_000),
        b'{"status": "best", "exit_code": 0, "reasons": []}',
        b'{"status": "converted", "exit_code": "x", "reasons": []}',
        b'{"status": "converted", "exit_code": 0}',
        b'{"status": "converted", "exit_code": 0, "reasons": [], "seconds": 1}',
    ],
)
def test_what_is_no_answer_is_not_believed(line: bytes) -> None:
    assert pool._parse(line) is None


def test_the_workers_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    for memory, count in ((None, 8), (64 << 30, 8), (7 << 30, 3), (1 << 30, 1)):
        monkeypatch.setattr(pool, "machine_memory", lambda memory=memory: memory)
        assert pool.usual_workers() == count
