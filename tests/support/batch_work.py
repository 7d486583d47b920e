"""What workers of a batch do in tests: the text of a source says what, and OUT becomes a folder with it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert import storage
from cudnn_convert.batch import jobs
from cudnn_convert.batch.jobs import Job
from cudnn_convert.batch.results import JobResult
from cudnn_convert.errors import UnprovenError, UnsupportedModelError, VerificationError
from cudnn_convert.options import Options
from cudnn_convert.report import Verification

#: As `LocalPool` takes it.
WORK: Final = "support.batch_work:work"
#: A file that says that an OUT is ours.
MARK: Final = "ours"
#: How many requests this process has had.
_had = 0


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Do what a source says: `VERB ARGUMENT`. The proof has the process, and how many requests it had."""
    global _had  # noqa: PLW0603 - it is what the test asks for
    _had += 1
    source, out = Path(request["source"]), Path(request["out"])
    verb, _, argument = source.read_text().strip().partition(" ")
    target = storage.Destination(
        out, lambda path: (path / MARK).is_file(), force=request["options"].get("force", False)
    )
    with storage.atomic_output(target, folder=True) as fresh:
        (fresh / MARK).touch()
        (fresh / "content").write_text(source.read_text())
        act(verb, argument, str(source))
    digests = {"source": jobs.digest_source(source), "artifact": jobs.digest_path(out)}
    seen = {"process": os.getpid(), "had": _had, "scratch": tempfile.gettempdir()}
    return {"status": "converted", "exit_code": 0, "reasons": [], "verification": seen, "digests": digests}


def act(verb: str, argument: str, source: str) -> None:
    """What happens in the middle of the work."""
    match verb:
        case "abort":
            Path(tempfile.mkdtemp(), "large").write_bytes(bytes(1000))
            os.abort()
        case "abort_later" if _had > 1:
            os.abort()
        case "exit":
            ctypes.CDLL(None).exit(int(argument))
        case "allocate":
            held = bytes(b"\1" * int(argument))
            time.sleep(0.2)  # memory is looked at now and then
            del held
        case "hang" | "wait":
            time.sleep(float(argument))
        case "hang_known":  # it says which process hangs, in a file beside the folder of the sources
            Path(source).parent.with_suffix(f".{os.getpid()}").touch()
            time.sleep(float(argument))
        case "lose_worker":  # the process of Ray's that this one works for
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case "raise":
            raise RuntimeError(argument)
        case "refuse":
            raise UnsupportedModelError(source, [argument])
        case "differ":
            report = Verification(False, 1, (), (), ())
            raise VerificationError(report, f"{source}: {argument}")
        case "unproven":
            raise UnprovenError(source, [argument])


def write_sources(folder: Path, **texts: str) -> dict[str, Path]:
    """Sources by name, each with its text."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / name for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text)
    return paths


def make_jobs(folder: Path, *limits: str, **texts: str) -> list[Job]:
    """Jobs of sources in `folder/in`, to `folder/out`."""
    options = Options(limit=limits)
    return [
        Job(str(path), name, folder / "out", options, jobs.digest_options(options), jobs.size_of(path))
        for name, path in write_sources(folder / "in", **texts).items()
    ]


class InProcess:
    """An engine that does the same work here, one job after the other, and notes which."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, todo: Iterable[Job], is_stopped: Any) -> Iterator[JobResult]:
        for job in todo:
            if is_stopped():
                return
            self.done.append(job.out)
            yield self._result(job)

    def _result(self, job: Job) -> JobResult:
        try:
            outcome = json.loads(json.dumps(work(job.to_request(None))))
        except Exception as error:  # noqa: BLE001 - as a worker
            from cudnn_convert.batch import worker

            digests = {"source": jobs.digest_source(Path(job.source))}
            outcome = {**worker.explain(job.source, error), "digests": digests}
        return replace(job.end(**outcome), seconds=0.5)


#: As `LocalPool` takes it: conversions, but for models with one of these names.
CONVERT_OR_FAIL: Final = "support.batch_work:convert_or_fail"
CRASH, EXHAUST = "crash", "exhaust"


def convert_or_fail(request: dict[str, Any]) -> dict[str, Any]:
    """Convert a model, or crash or exhaust memory in the middle of it as native code does."""
    from cudnn_convert.batch import worker

    name = Path(request["source"]).name
    if name.startswith((CRASH, EXHAUST)):
        import tensorflow as tf

        tf.constant(1.0)
        target = storage.Destination(Path(request["out"]), lambda _: False)
        with storage.atomic_output(target, folder=True) as fresh:
            (fresh / "half").write_text("written")
            act("abort" if name.startswith(CRASH) else "allocate", str(64 << 30), name)
    return worker.convert_model(request)
