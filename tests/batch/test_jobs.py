"""What is to be done with a model after the result of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.batch_work import make_jobs

from cudnn_convert.batch import jobs, results
from cudnn_convert.batch.jobs import Job
from cudnn_convert.batch.results import JobResult


def ended(job: Job, status: str, exit_code: int, **digests: str) -> JobResult:
    """The result of an earlier run on the same bytes."""
    return job.end(status, exit_code, digests={"source": jobs.digest_source(Path(job.source)), **digests})


@pytest.mark.parametrize(
    ("status", "exit_code", "retry", "action"),
    [
        (results.REFUSED, 1, None, jobs.KEEP),
        (results.REFUSED, 1, "refused", jobs.CONVERT),
        (results.REFUSED, 1, "failed", jobs.KEEP),
        (results.REFUSED, 4, None, jobs.CONVERT),
        (results.CRASHED, 70, None, jobs.KEEP),
        (results.CRASHED, 70, "all", jobs.CONVERT),
        (results.INTERRUPTED, 130, None, jobs.CONVERT),
    ],
)
def test_an_outcome_stands_while_it_would_be_the_same(
    tmp_path: Path, status: str, exit_code: int, retry: str | None, action: str
) -> None:
    (job,) = make_jobs(tmp_path, a="refuse it")
    assert jobs.decide(job, None, retry) == jobs.CONVERT
    earlier = ended(job, status, exit_code)
    assert jobs.decide(job, earlier, retry) == action
    others = [
        replace(earlier, digests={**earlier.digests, key: "x"}) for key in ("flags", "version", "source")
    ]
    assert {jobs.decide(job, other, retry) for other in others} == {jobs.CONVERT}


def test_an_artifact_stands_while_its_bytes_do(tmp_path: Path) -> None:
    (job,) = make_jobs(tmp_path, a="convert")
    job.path.mkdir(parents=True)
    (job.path / "file").write_text("whole")
    earlier = ended(job, results.CONVERTED, 0, artifact=jobs.digest_path(job.path))
    assert jobs.decide(job, earlier, "all") == jobs.SKIP
    assert jobs.carry(earlier, jobs.SKIP).status == results.SKIPPED
    (job.path / "file").write_text("torn")
    assert jobs.decide(job, earlier, None) == jobs.CONVERT
