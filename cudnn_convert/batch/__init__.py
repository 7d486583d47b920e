"""Converts many models in isolated workers, and keeps a line for each model.

* sources    : Finds models: paths, patterns, folders searched by content, rows of a manifest.
* results    : Results of a batch, a line of JSON per model, and the batch's page.
* jobs       : Plans the work on each model: convert the model, or keep an earlier result.
* pool       : Runs jobs in worker processes on the local machine, with limits of time and memory.
* ray_cluster: Runs jobs as tasks of Ray, on a cluster or on the local machine.
* worker     : Serves a pool as a worker process: takes requests in turn and answers with outcomes.

A model's name is the path of its OUT below the folder of the batch. An engine (`pool.Engine`) turns jobs into
results, in processes of this machine or on a cluster.

May import: version, text, errors, formats, context, storage, process, workers, options, report, read,
storage.staging, pipeline.
Entry: `plan_batch`, then `run_plan`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cudnn_convert import process, storage
from cudnn_convert.batch import jobs, results, sources
from cudnn_convert.batch.jobs import BatchPlan
from cudnn_convert.batch.pool import Engine
from cudnn_convert.batch.results import JobResult, Results
from cudnn_convert.context import report_progress
from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.report import files
from cudnn_convert.storage import remote

__all__ = ["Batch", "BatchPlan", "Engine", "JobResult", "Summary", "plan_batch", "run_plan"]

_PAGE: Final = ".html"
#: Options from the words of a manifest's row. Raises UsageError.
ReadFlags = Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of a batch: models by path, pattern, folder or manifest, and output folder.

    `options` apply to all models. `retry` names the outcomes of earlier runs that are tried again, by the
    keys of `jobs.RETRIES`. `report` is the page to write.
    """

    words: Sequence[str]
    folder: Path
    options: Options
    manifest: Path | None = None
    retry: str | None = None
    report: Path | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The number of models in a batch by final status.

    `path` is the file of the models' lines. `proofs` sum up the proofs of the models that are converted, None
    for one that was not compared.
    """

    path: Path
    counts: Mapping[str, int]
    proofs: Sequence[Mapping[str, Any] | None]
    #: Models without a line: the run was told to stop before their turn.
    missing: int
    is_stopped: bool

    @property
    def passed(self) -> bool:
        """True if every model is converted or already portable."""
        return not self.missing and self.counts.keys() <= results.PASSED


def plan_batch(batch: Batch, read_flags: ReadFlags) -> BatchPlan:
    """Find the models of a batch and name the OUT of each model.

    Only the parts that recognise a model are read. Raises UsageError where a word or the manifest gives no
    model.
    """
    if batch.report is not None and batch.report.suffix != _PAGE:
        raise UsageError(f"--report: expected a name that ends in {_PAGE}, found {batch.report}")
    remote.check(batch.folder)
    if not remote.address_of(batch.folder):
        storage.refuse(storage.Destination(batch.folder, lambda _: True, force=True))
    if batch.folder.exists() and not batch.folder.is_dir():
        raise UsageError(f"--out: expected a folder, found the file {batch.folder}")
    rows = [] if batch.manifest is None else sources.read_manifest(batch.manifest, read_flags)
    search = sources.find(batch.words, batch.manifest, rows, apart=batch.folder)
    if not search.sources:
        raise UsageError("expected models, found none; name files, folders, patterns or a manifest")
    return jobs.make_plan(search, batch.folder, batch.options, batch.report)


def preview(batch: Batch, plan: BatchPlan) -> Iterator[tuple[jobs.Job, str]]:
    """Yield each job with an action of `jobs`, as `run_plan` would choose.

    Nothing is written.
    """
    earlier = results.read(batch.folder)
    yield from ((job, jobs.decide(job, earlier.get(job.out), batch.retry)) for job in plan.jobs)


def run_plan(batch: Batch, plan: BatchPlan, engine: Engine, hear: Callable[[JobResult], None]) -> Summary:
    """Convert the models of a plan, and call `hear` with each result.

    The line of a result is written first. Raises UsageError where another batch writes there or the lines are
    not ours, WriteError.
    """
    counts: Counter[str] = Counter()
    proofs: list[Mapping[str, Any] | None] = []
    pages: list[files.ReportFile[Iterable[JobResult]]] = []
    if batch.report is not None:
        pages.append((batch.report, files.is_ours, partial(results.page_of, path=batch.report)))
    with files.open_files(pages, force=True) as write_page, results.open_results(batch.folder) as lines:

        def tell(result: JobResult) -> None:
            counts[result.status] += 1
            if result.status in (results.CONVERTED, results.SKIPPED):
                proofs.append(result.verification)
            hear(result)

        todo = _carry_over(plan, lines, batch.retry, tell)
        with _make_folders(todo), process.note_stops() as stopped:
            for result in engine.run(todo, stopped.is_set):
                lines.add(result)
                tell(result)
        outs = {job.out for job in plan.jobs}
        write_page(result for result in lines.again() if result.out in outs)
    ordered = {status: counts[status] for status in results.STATUSES if counts[status]}
    missing = len(plan.jobs) - sum(counts.values())
    return Summary(lines.name, ordered, proofs, missing, stopped.is_set())


def _carry_over(
    plan: BatchPlan, lines: Results, retry: str | None, hear: Callable[[JobResult], None]
) -> list[jobs.Job]:
    """Keep the standing results, and list the remaining jobs, large jobs first."""
    todo, standing = [], []
    for number, job in enumerate(plan.jobs):
        report_progress("comparing", number, len(plan.jobs))
        earlier = lines.earlier.get(job.out)
        action = jobs.decide(job, earlier, retry)
        if earlier is not None and action in (jobs.SKIP, jobs.KEEP):
            standing.append(jobs.carry(earlier, action))
        else:
            todo.append(job)
    outs = {job.out for job in plan.jobs}
    lines.begin([*(result for out, result in lines.earlier.items() if out not in outs), *standing])
    for result in standing:
        hear(result)
    todo = [replace(job, replaces=lines.is_resumed) for job in todo]
    return sorted(todo, key=lambda job: (-job.size, job.out))


@contextmanager
def _make_folders(todo: Sequence[jobs.Job]) -> Iterator[None]:
    """Make the folders of OUTs and pages, and remove the empty folders at the end.

    A conversion that fails removes the folders that it made: beside others it might remove theirs.
    """
    given = (path for job in todo for path in (job.path, job.page) if path is not None)
    paths = [path for path in given if not remote.address_of(path)]
    folders = {above for path in paths for above in path.parents if not above.exists()}
    with suppress(OSError):  # a conversion that finds no folder says why
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in sorted(folders, key=lambda above: -len(above.parts)):
            with suppress(OSError):
                folder.rmdir()
