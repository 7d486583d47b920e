"""The subcommand `batch`: flags, plan, work and messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudnn_convert.cli.parser import PROGRAM, Parser, Within, add_flags, directly, read_options
from cudnn_convert.context import listen, report_progress
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import KINDS, Options
from cudnn_convert.process import INTERRUPTED, open_pool, silence_native
from cudnn_convert.storage import remote
from cudnn_convert.text import visible

if TYPE_CHECKING:
    from cudnn_convert.batch import BatchPlan, Engine, JobResult

_GROUPS = ("source", "target", "judge")
#: Processes that no machine runs at a time.
_MOST_JOBS: Final = 1024


def batch(words: Sequence[str], _: Within = directly) -> int:
    """`cudnn-convert batch SOURCES... --out DIR`; the work is done in the workers' processes."""
    parser = Parser(
        prog=f"{PROGRAM} batch",
        description="Convert many models, a few at a time, each by itself; go on where an earlier run ended.",
    )
    parser.add_argument(
        "sources", metavar="SOURCES", nargs="*", help="models, folders to search, patterns; see --manifest"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--manifest", type=Path, metavar="FILE", help="models with flags of their own: JSON Lines, or CSV"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="models at a time; default by cores and memory")
    add_engine(parser)
    parser.add_argument(
        "--retry", choices=("failed", "refused", "all"), help="what earlier runs did not convert"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be done, and do nothing")
    _add_conversion(parser)
    parser.add_argument("--force", action="store_true", help="replace what this tool wrote, by batch or not")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page: .html, a row a model")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    check_engine(flags)
    return _batch(flags)


def add_engine(parser: Parser) -> None:
    """Add the flags for the place of the work."""
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="where: default here; ray on a cluster"
    )
    parser.add_argument(
        "--ray-address", metavar="ADDRESS", help="of --engine ray; default RAY_ADDRESS, else this machine"
    )


def check_engine(flags: argparse.Namespace) -> None:
    """Raise UsageError where the flags of an engine conflict."""
    if flags.jobs is not None and flags.jobs < 1:
        raise UsageError(f"--jobs: expected at least 1, found {flags.jobs}")
    if flags.jobs is not None and flags.jobs > _MOST_JOBS:
        raise UsageError(f"--jobs: expected at most {_MOST_JOBS}, found {flags.jobs}")
    if flags.ray_address and flags.engine != "ray":
        raise UsageError("--ray-address: expected --engine ray with it, found none; give both, or neither")


def _add_conversion(parser: Parser) -> None:
    """Add the flags of a conversion, shared with the rows of a manifest."""
    parser.add_argument("--format", choices=FORMATS, default="savedmodel", help="default %(default)s")
    add_flags(parser, *_GROUPS)
    parser.add_argument("--no-verify", action="store_true", help="do not compare results with sources")


def _read_flags(words: Sequence[str]) -> dict[str, Any]:
    """Return the options given by the flags of a manifest's row. Raises UsageError."""
    parser = Parser(prog=f"{PROGRAM} batch", add_help=False)
    _add_conversion(parser)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    given = vars(parser.parse_args(words))
    if given.pop("no_verify", False):
        given["verify"] = False
    options = {name: value for name, value in given.items() if name in KINDS}
    Options(**options)
    return options


def _batch(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert import batch as room
    from cudnn_convert.cli import terminal

    options = read_options(flags, verify=not flags.no_verify, lineage=flags.report is not None)
    call = room.Batch(flags.sources, flags.out, options, flags.manifest, flags.retry, flags.report)
    with show_progress(flags):
        report_progress("searching")
        plan = room.plan_batch(call, _read_flags)
    if not flags.quiet:
        terminal.show_notes(plan.notes)
    if flags.dry_run:
        terminal.show_plan(room.preview(call, plan))
        return 0
    with _open_engine(flags, len(plan.jobs)) as engine, show_progress(flags) as tell:
        summary = room.run_plan(call, plan, engine, _Printer(plan, tell, is_quiet=flags.quiet))
    if not flags.quiet:
        terminal.show_summary(summary)
    print(visible(remote.name_of(summary.path)))
    return INTERRUPTED if summary.is_stopped else int(not summary.passed)


@contextmanager
def _open_engine(flags: argparse.Namespace, count: int) -> Iterator[Engine]:
    if flags.engine == "local":
        from cudnn_convert.batch import pool

        yield pool.LocalPool(min(flags.jobs or pool.usual_workers(), count))
        return
    from cudnn_convert.batch import ray_cluster

    with ray_cluster.connect(flags.ray_address, flags.jobs) as engine:
        yield engine


@contextmanager
def open_share(flags: argparse.Namespace) -> Iterator[Callable[..., Iterator[Any]] | None]:
    """Yield a `map` over the processes of an engine, or None for a lone process."""
    if flags.engine == "ray":
        from cudnn_convert.batch import ray_cluster

        with ray_cluster.connect(flags.ray_address, flags.jobs) as engine:
            yield engine.share
    elif flags.jobs in (None, 1):
        yield None
    else:
        with open_pool(flags.jobs) as share:
            yield share


class _Printer:
    """A listener for results: shows progress, and prints failures and advice at once."""

    def __init__(self, plan: BatchPlan, tell: Callable[[str], None], *, is_quiet: bool) -> None:
        self._all, self._tell, self._is_quiet = len(plan.jobs), tell, is_quiet
        self._ended = 0

    def __call__(self, result: JobResult) -> None:
        self._ended += 1
        if result.exit_code == 0:
            lead, is_told = "warning", not self._is_quiet
        else:
            lead, is_told = PROGRAM, result.exit_code != INTERRUPTED  # who stops a batch knows so
        for reason in result.reasons if is_told else ():
            self._tell(f"{lead}: {reason}")
        report_progress("converting", self._ended, self._all)


@contextmanager
def show_progress(flags: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """Show progress at a terminal, and yield a function to print a line.

    The line goes to stderr, beside the progress.
    """
    if getattr(flags, "quiet", False) or sys.stderr is None or not sys.stderr.isatty():
        yield lambda text: print(visible(text), file=sys.stderr)
        return
    from cudnn_convert.cli import terminal

    with closing(terminal.Line()) as line, listen(line.at):
        yield line.tell
