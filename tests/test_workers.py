"""Workers: their answers, and a line on each way in which one ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from support.batch_work import WORK, make_jobs

from cudnn_convert.batch.worker import serve
from cudnn_convert.context import Limits
from cudnn_convert.workers import Worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals as Linux has them")


@contextmanager
def begun(folder: Path, text: str, seconds: float = 60) -> Iterator[tuple[Worker, SimpleQueue[bytes | None]]]:
    """A worker at a job of `support.batch_work`, and what it answers."""
    (job,) = make_jobs(folder, a=text)
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    worker = Worker(serve, WORK, hear=answers.put)
    try:
        worker.send(job.to_request(None), time.monotonic() + seconds)
        yield worker, answers
    finally:
        worker.end(at_once=True)


def test_an_answer_is_a_line_and_the_end_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with begun(tmp_path, "convert 1") as (worker, answers):
        assert b'"status": "converted"' in (answers.get() or b"")
        worker.end()
        assert answers.get() is None
    assert not [*(tmp_path).glob("cudnn_convert*")], "its temporary files are removed"


def test_a_crash_and_a_deadline_are_told(tmp_path: Path) -> None:
    with begun(tmp_path / "crash", "abort") as (worker, answers):
        assert answers.get() is None
        assert worker.explain_end(Limits()).startswith("native code ended with SIGABRT; the file is damaged")
    with begun(tmp_path / "loop", "hang 60", seconds=0) as (worker, answers):
        assert not worker.seconds_left
        worker.kill_late()
        assert answers.get() is None
        assert worker.explain_end(Limits(seconds=7)).startswith("it ran longer than the limit of 7 seconds;")
