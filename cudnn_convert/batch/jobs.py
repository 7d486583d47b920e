"""Plans the work on each model: convert the model, or keep an earlier result.

An outcome stands as long as it would be the same again: for the same bytes of the source, the same flags and
the same version, with the artifact as it was written. What depends on the machine alone, such as a full disk
or an interruption, never stands; other outcomes than an artifact are tried again with `--retry`.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert import process, read
from cudnn_convert.batch import results, sources
from cudnn_convert.batch.results import JobResult
from cudnn_convert.context import Limits
from cudnn_convert.errors import AccessError, UsageError
from cudnn_convert.options import Options
from cudnn_convert.storage import remote, staging
from cudnn_convert.version import __version__

#: What is done with a job: its work, nothing since its artifact stands, nothing since its outcome stands.
CONVERT, SKIP, KEEP = "convert", "skip", "keep"
#: By the value of `--retry`, the outcomes that are tried again.
RETRIES: Final[Mapping[str, frozenset[str]]] = {
    "failed": frozenset({results.CRASHED, results.TIMEOUT, results.DIFFERENT}),
    "refused": frozenset({results.REFUSED, results.UNPROVEN}),
    "all": frozenset({*results.STATUSES} - results.PASSED),
}
#: Exit codes that say something of the source itself: 2 and 4 are about what else is there.
_OF_SOURCE: Final = frozenset({0, 1, 3, 70})
#: Options that change no byte of an artifact, only whether there is one, or what is said of it.
_ASIDE: Final = frozenset({"limit", "force", "lineage"})
#: Bytes that are read at a time.
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A model to convert: source, OUT, options and size.

    `source` is as given, `out` below `folder`, `size` in bytes of its files. `page` is the page of its
    report, None for none; `flags` the digest of its options. `replaces`: what this tool wrote at OUT may be
    replaced, for it is of this batch. `shared` names the options of the whole batch, without those of the row
    of a manifest.
    """

    source: str
    out: str
    folder: Path
    options: Options
    flags: str
    size: int
    page: Path | None = None
    replaces: bool = False
    shared: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The OUT of the conversion."""
        return self.folder / self.out

    @property
    def limits(self) -> Limits:
        return Limits.of(self.options.limit)

    def to_request(self, memory: int | None) -> dict[str, Any]:
        """Return the job as JSON for a worker with a limit of `memory` bytes.

        A limit in the options replaces `memory`.
        """
        return {
            "memory": self.limits.memory or memory,
            "source": self.source,
            "out": str(self.path),
            "page": None if self.page is None else str(self.page),
            "shared": list(self.shared),
            "options": self.options.to_json() | ({"force": True} if self.replaces else {}),
        }

    def end(self, status: str, exit_code: int, reasons: Sequence[str] = (), **others: Any) -> JobResult:
        """Return a result of the job."""
        digests = {"source": "", "flags": self.flags, "version": __version__, **others.pop("digests", {})}
        return JobResult(self.source, self.out, status, exit_code, tuple(reasons), digests=digests, **others)

    def interrupt(self, **figures: Any) -> JobResult:
        """Return the result of an interrupted job."""
        reasons = [f"{self.source}: it was told to stop"]
        return self.end(results.INTERRUPTED, process.INTERRUPTED, reasons, **figures)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The jobs of a batch, by OUT, and notes on models left out."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...]


def make_plan(search: sources.FoundModels, folder: Path, options: Options, report: Path | None) -> BatchPlan:
    """Make the jobs of the models found.

    Each job writes a page of its own where the batch has a page. Raises UsageError where options do not go
    together.
    """
    digest, common = digest_options(options), options.non_defaults().keys()
    made_of: list[Job] = []
    for source, out in zip(search.sources, sources.name_outputs(search), strict=True):
        own = replace(options, **source.options)
        flags = digest_options(own) if source.options else digest
        own_page = None if report is None else results.model_page(report, out)
        size = size_of(source.path) if source.size is None else source.size
        shared = tuple(sorted(common - source.options.keys()))
        job = Job(remote.name_of(source.path), out, folder, own, flags, size, own_page, shared=shared)
        made_of.append(job)
    return BatchPlan(tuple(sorted(made_of, key=lambda job: job.out)), search.notes)


def digest_options(options: Options) -> str:
    """Return the digest of the options with an effect on an artifact.

    Files count by their content.
    """
    values = {
        name: digest_path(value) if isinstance(value, Path) else value
        for name, value in options.non_defaults().items()
        if name not in _ASIDE
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def size_of(source: Path) -> int:
    """Return the size of a model's files in bytes, or 0 for unreadable files."""
    size = 0
    with suppress(OSError, AccessError):
        if remote.address_of(source):
            return sum(listed.size for listed in staging.list_model(source).values())
        for file in sources.list_files(source):
            size += file.stat().st_size
    return size


def digest_source(source: Path) -> str:
    """Return the digest of the names and bytes of a model's files.

    The digest is "" where the files cannot be read. Of what lies in a store it is that of names, sizes and
    the checksums that the store tells.
    """
    with suppress(OSError, AccessError):
        if remote.address_of(source):
            return remote.digest_objects(staging.list_model(source))
        return _digest(sources.list_files(source), source.parent)
    return ""


def digest_path(path: Path) -> str:
    """Return the digest of a file, or of all files below a folder.

    The digest is "" where there is nothing, or where a file cannot be read.
    """
    with suppress(OSError, AccessError):
        if remote.address_of(path):
            return remote.digest_objects(remote.list_below(path))
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        return _digest(files, path)
    return ""


def _digest(files: Iterable[Path], root: Path) -> str:
    whole = hashlib.sha256()
    for file in files:
        content = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                content.update(block)
        name = os.fsencode(os.path.relpath(file, root))
        whole.update(len(name).to_bytes(8, "little") + name + content.digest())
    return whole.hexdigest()


def decide(job: Job, earlier: JobResult | None, retry: str | None) -> str:
    """Return the action for a job, given the result of an earlier run.

    Raises UsageError without `force` where that is of another source, which is still there: its artifact
    would be replaced.
    """
    if earlier is None:
        return CONVERT
    known = earlier.digests
    is_alike = (job.flags, __version__) == (known.get("flags"), known.get("version"))
    is_other = not job.options.force and _is_other(job, earlier)
    if not (is_alike or is_other):
        return CONVERT
    is_same = digest_source(Path(job.source)) == known.get("source")
    if is_other and not is_same:
        cure = "choose another --out, give both models in one call, or replace it with --force"
        what = f"expected the converted {job.source}, found the converted {earlier.source}"
        raise UsageError(f"{remote.name_of(job.path)}: {what}; {cure}")
    if not (is_alike and is_same) or earlier.exit_code not in _OF_SOURCE:
        return CONVERT
    if earlier.status in (results.CONVERTED, results.SKIPPED):
        artifact = known.get("artifact")
        return SKIP if artifact and digest_path(job.path) == artifact else CONVERT
    return CONVERT if retry is not None and earlier.status in RETRIES[retry] else KEEP


def _is_other(job: Job, earlier: JobResult) -> bool:
    """Return True if a result has another existing source than the job."""
    other = Path(earlier.source)
    is_moved = os.path.realpath(other) != os.path.realpath(Path(job.source))
    if is_moved and remote.address_of(other):
        return bool(staging.list_model(other))
    return is_moved and any(os.path.lexists(file) for file in read.files(other))


def carry(earlier: JobResult, action: str) -> JobResult:
    """Return the line of a job kept from an earlier run."""
    return replace(earlier, status=results.SKIPPED) if action == SKIP else earlier
