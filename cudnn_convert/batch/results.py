"""Results of a batch, a line of JSON per model, and the batch's page.

The lines are whole at any moment. A line is written by one call of the system and synchronised to the disk as
soon as a model ends; the last one may be torn where the power went, and is then left out. A run begins with a
file of the lines that stand, exchanged for the old one in one step. So an OUT has one line, that of the run
which came to it last. The file is locked while a batch runs.

A store has neither locks nor lines that are added: there the file is written anew, whole, now and then and at
the end. What was converted after the last time is converted again where a run is killed.

The page has a row for each model, with a link to the model's own page in the folder beside it. As the page of
a report it needs nothing else and loads nothing.
"""

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_from_bytes

from cudnn_convert import storage
from cudnn_convert.errors import UsageError, name_write
from cudnn_convert.report.html import NOTHING, Markup, join, name, prose, table, tag
from cudnn_convert.report.page import document
from cudnn_convert.storage import remote

RESULTS: Final = "results.jsonl"
#: Seconds between two copies of the lines to a store.
_PUBLISH: Final = 30.0

CONVERTED, PORTABLE, SKIPPED = "converted", "portable", "skipped"
REFUSED, DIFFERENT, UNPROVEN = "refused", "different", "not proven"
CRASHED, TIMEOUT, INTERRUPTED = "crashed", "timeout", "interrupted"
#: The outcomes after which a model runs on a CPU.
PASSED: Final = frozenset({CONVERTED, PORTABLE, SKIPPED})
STATUSES: Final = (
    *(CONVERTED, SKIPPED, PORTABLE, REFUSED, UNPROVEN, DIFFERENT, CRASHED, TIMEOUT, INTERRUPTED),
)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a model, with the fields of a line in order.

    `out` is the model's OUT below the folder of the batch, whether anything is there or not. `exit_code` is
    that of the single command. `seconds` and `peak_mb` (2^20 bytes of the worker, None where the system does
    not say) are of the run that did the work. `verification` sums up the proof, None where there was none.
    `digests` are of the `source`, the `flags` and the artifact, SHA-256 in hexadecimal, and the `version` of
    the tool.
    """

    source: str
    out: str
    status: str
    exit_code: int
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    peak_mb: float | None = None
    verification: Mapping[str, Any] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the result as a line of JSON in ASCII, with the newline.

        JSON escapes all other characters.
        """
        return (json.dumps(asdict(self)) + "\n").encode()


_FIELDS: Final = frozenset(entry.name for entry in fields(JobResult))


def _parse(path: object, content: bytes) -> Iterator[JobResult]:
    """Yield the results in the content of a file. Raises UsageError for another program's file."""
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or row.keys() != _FIELDS or row["status"] not in STATUSES:
                raise ValueError(number)
        except (ValueError, RecursionError) as cause:
            if not line.endswith(b"\n"):
                return  # the power went while it was written
            actual = f"something else in line {number}; choose another --out, or move the file away"
            raise UsageError(f"{path}: expected results of cudnn-convert batch, found {actual}") from cause
        yield JobResult(**{**row, "reasons": tuple(row["reasons"])})


def read(folder: Path) -> dict[str, JobResult]:
    """Return the results in a folder by OUT, empty where the file is missing.

    Raises UsageError where the file is another program's, WriteError where it cannot be read.
    """
    path = folder / RESULTS
    if remote.address_of(path):
        return _by_out(remote.name_of(path), remote.read_bytes(path) or b"")
    with name_write(path, "cannot read"), suppress(FileNotFoundError):
        return _by_out(path, path.read_bytes())
    return {}


def _by_out(path: object, content: bytes) -> dict[str, JobResult]:
    return {result.out: result for result in _parse(path, content)}


class Results:
    """The results of a running batch.

    `earlier` are the results of the runs before, by OUT. `path` is the file, `name` the path or the address
    where its reader finds it. `is_resumed`: a batch has written to this folder before, as far as it came.
    """

    def __init__(self, path: Path, handle: int, *, is_resumed: bool) -> None:
        self.path, self._handle, self.is_resumed = path, handle, is_resumed
        self.earlier: dict[str, JobResult] = {}
        self.name, self._published = path, 0.0

    def begin(self, standing: list[JobResult]) -> None:
        """Replace the file by a file of the standing results. Raises WriteError."""
        self.earlier = {}
        fresh = self.path.with_name(f".{self.path.name}.tmp")
        with name_write(self.path):
            handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
            storage.lock_file(handle)
            _write(handle, b"".join(result.to_line() for result in standing))
            fresh.replace(self.path)
        os.close(self._handle)
        self._handle = handle
        self.publish()

    def add(self, result: JobResult) -> None:
        """Write a line.

        Raises WriteError, after which the file is as it was.
        """
        with name_write(self.path):
            _write(self._handle, result.to_line())
        if time.monotonic() > self._published + _PUBLISH:
            self.publish()

    def publish(self) -> None:
        """Copy the file to the store, if the file has an address. Raises WriteError."""
        if self.name != self.path and self.path.exists():
            remote.put(self.path, self.name)
            self._published = time.monotonic()

    def again(self) -> Iterator[JobResult]:
        """Read back all lines."""
        with name_write(self.path):
            content = self.path.read_bytes()
        yield from _parse(self.path, content)

    def close(self) -> None:
        os.close(self._handle)


def _write(handle: int, content: bytes) -> None:
    """Write the whole content, or leave the file as before. Raises OSError."""
    before = os.fstat(handle).st_size
    try:
        written = 0
        while written < len(content):
            written += os.write(handle, content[written:])
        os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, before)
        raise


@contextmanager
def open_results(folder: Path) -> Iterator[Results]:
    """Open the results of a batch, in a folder here or in a store.

    Raises UsageError where the file is another program's, AccessError, and what `_open_here` raises.
    """
    if not remote.address_of(folder):
        with _open_here(folder) as results:
            yield results
        return
    name = folder / RESULTS
    content = remote.read_bytes(name)
    earlier = _by_out(remote.name_of(name), content or b"")
    with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as local, _open_here(Path(local)) as results:
        results.name, results.earlier, results.is_resumed = name, earlier, content is not None
        yield results
        results.publish()


@contextmanager
def _open_here(folder: Path) -> Iterator[Results]:
    """Make the missing folder of a batch, and lock the results.

    What was made is removed again where no line was written. Raises UsageError where another batch runs, or
    the file is another program's; WriteError.
    """
    path = folder / RESULTS
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    with name_write(path):
        folder.mkdir(parents=True, exist_ok=True)
        is_resumed = path.exists()
        results = Results(path, _lock(path), is_resumed=is_resumed)
    try:
        results.earlier = read(folder)
        yield results
    finally:
        with suppress(OSError):
            if not path.stat().st_size:
                path.unlink()
            for above in missing:
                above.rmdir()
        results.close()


def _lock(path: Path) -> int:
    """Open the file and lock the file.

    Raises UsageError where another batch has locked it, OSError.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        if not storage.lock_file(handle):
            os.close(handle)
            other = "another batch writes here; wait for its end, or choose another --out"
            raise UsageError(f"{path.parent}: {other}")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)  # another batch has exchanged or removed it meanwhile


_TONES: Final = {
    **dict.fromkeys(STATUSES, "bad"),
    **dict.fromkeys(PASSED, "good"),
    UNPROVEN: "warn",
    REFUSED: "warn",
    INTERRUPTED: "warn",
}
_HEADS: Final = ("", "source", "why, or its page", "OUT", "seconds", "MiB", "of tolerance")


def model_page(path: Path, out: str) -> Path:
    """Return the path of a model's page, in a folder beside the batch's page."""
    return path.with_suffix("") / f"{out}.html"


def page_of(lines: Iterable[JobResult], path: Path) -> str:
    """Return the page of results for `path`.

    Those that need somebody's look come first.
    """
    several = sorted(lines, key=lambda result: (result.status in PASSED, not result.reasons, result.out))
    counts = Counter(result.status for result in several)
    passed = sum(counts[status] for status in PASSED)
    title = f"{passed} of {len(several)} models converted, or portable already"
    tone = "good" if passed == len(several) else "bad"
    chips = [_chip(status, f"{counts[status]} {status}") for status in STATUSES if counts[status]]
    header = tag(
        "header",
        tag("p", "cudnn-convert, batch", class_="eyebrow"),
        tag("h1", title),
        tag("div", *chips, class_="chips"),
        class_=f"card verdict {tone}",
    )
    rows = (_row(result, path) for result in several)
    return document(title, header, table(_HEADS, rows, numbers=(4, 5, 6)))


def _chip(status: str, text: str) -> Markup:
    return tag("span", text, class_=f"chip {_TONES[status]}")


def _row(result: JobResult, path: Path) -> Iterator[object]:
    yield _chip(result.status, result.status)
    yield name(result.source)
    yield _reasons(result, path)
    yield name(result.out)
    yield f"{result.seconds:.1f}"
    yield Markup(NOTHING) if result.peak_mb is None else f"{result.peak_mb:.0f}"
    needed = (result.verification or {}).get("needed")
    yield Markup(NOTHING) if needed is None else f"{needed:.1%}"


def _reasons(result: JobResult, path: Path) -> Markup:
    """Return the reasons for refusing a model, and a link to the model's page."""
    own = model_page(path, result.out)
    lines: list[object] = [*map(prose, result.reasons)]
    if own.is_file():
        link = quote_from_bytes(str(own.relative_to(path.parent)).encode(errors="surrogateescape"))
        lines.append(tag("a", "report", href=link))
    return join(tag("p", line) for line in lines) if lines else Markup(NOTHING)
