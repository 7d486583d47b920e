"""The subcommands and their flags: one call of the library each, its result on stdout."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudnn_convert.context import listen
from cudnn_convert.errors import CudnnConvertError, UsageError, VerificationError, flag_of, visible
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import KINDS, Options
from cudnn_convert.process import silence_native
from cudnn_convert.version import __version__

if TYPE_CHECKING:
    from cudnn_convert.report import Keep, Verification

#: Where the work of a command is done, once its flags are understood.
Within = Callable[[Callable[[], int], argparse.Namespace], int]


def directly(work: Callable[[], int], _: argparse.Namespace) -> int:
    """Do the work in this process."""
    return work()


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors are one line; without abbreviations, which later flags would break."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


def add_flags(parser: argparse.ArgumentParser, *groups: str) -> None:
    """Add the flags of options of some groups: `source`, `target`, `judge`, `golden`."""
    sections: dict[str | None, Any] = {None: parser}
    for option in fields(Options):
        of, section, kind = option.metadata.get("of"), option.metadata.get("section"), KINDS[option.name]
        if of not in groups:
            continue
        if section not in sections:
            sections[section] = parser.add_argument_group(section)
        known = {
            key: option.metadata[key] for key in ("help", "metavar", "choices") if key in option.metadata
        }
        if most := option.metadata.get("most"):
            known["choices"] = range(1, most + 1)
        if kind is bool:
            known["action"] = "store_true"
        elif kind is list:
            known |= {"action": "append", "default": []}
        else:
            known |= {"type": kind, "default": option.default}
        sections[section].add_argument(flag_of(option.name), **known)


def read_options(flags: argparse.Namespace, **others: Any) -> Options:
    """The Options of parsed flags. Raises UsageError for a value that an option cannot have."""
    given = {name: getattr(flags, name) for name in KINDS if getattr(flags, name, None) is not None}
    return Options(**given | others)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flags of where a report goes."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report: .html, or JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")


def convert(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert SOURCE OUT`."""
    parser = Parser(
        prog="cudnn-convert",
        description="Turn a model with cuDNN LSTM, GRU or RNN layers into one that runs on a CPU.",
        epilog="Also: cudnn-convert inspect SOURCE; map SOURCE [ARTIFACT]; verify SOURCE ARTIFACT; "
        "record SOURCE; batch SOURCES; formats.",
    )
    parser.add_argument("source", metavar="SOURCE", help="checkpoint, SavedModel, frozen graph, Keras file")
    parser.add_argument("out", metavar="OUT", help="what to write; see --format")
    parser.add_argument("--format", choices=FORMATS, default="savedmodel", help="default %(default)s")
    add_flags(parser, "source", "target", "judge")
    parser.add_argument("--no-verify", action="store_true", help="do not compare the result with the source")
    parser.add_argument(
        "--force", action="store_true", help="replace an OUT or a report that this tool wrote"
    )
    add_output(parser)
    parser.add_argument("--version", action="version", version=f"cudnn-convert {__version__}")
    flags = parser.parse_args(words)
    return within(lambda: _convert(flags), flags)


def _convert(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert import pipeline

    options = read_options(flags, verify=not flags.no_verify, lineage=flags.report is not None)
    source, out = Path(flags.source), Path(flags.out)
    read = pipeline.apart(source, options) if flags.report else []
    with _write_report(flags, [*read, (f"OUT {out}", out)]) as keep, _show_progress(flags):
        report = pipeline.convert(source, out, options, ready=keep)
    if not flags.quiet:
        from cudnn_convert.cli import terminal

        terminal.explain(report)
    print(report.to_json() if flags.json else visible(report.out or "portable already"))
    return 0


def inspect(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert inspect`: what a source is, and the command that converts it."""
    parser = Parser(
        prog="cudnn-convert inspect",
        description="Say what a source is, what is in it, and how to convert it. Nothing is run.",
    )
    parser.add_argument("source", metavar="SOURCE", help="as for a conversion")
    parser.add_argument("--format", choices=FORMATS, help="of the command; default the one that fits SOURCE")
    add_flags(parser, "source")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    flags = parser.parse_args(words)
    return within(lambda: _inspect(flags), flags)


def _inspect(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert.inspection import inspect

    options = read_options(flags)
    with _show_progress(flags):
        inspection = inspect.inspect_source(Path(flags.source), options, form=flags.format)
    if flags.json:
        print(inspection.to_json())
    else:
        from cudnn_convert.cli import terminal

        terminal.show_inspection(inspection)
    return 0


def map_weights(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert map SOURCE [ARTIFACT]`: where each weight of the source goes."""
    parser = Parser(
        prog="cudnn-convert map",
        description="Say which part of which tensor is which gate, and where an artifact has it.",
    )
    parser.add_argument("source", metavar="SOURCE", help="as for a conversion")
    parser.add_argument(
        "artifact", metavar="ARTIFACT", nargs="?", type=Path, help="default: what a conversion would write"
    )
    parser.add_argument("--format", choices=FORMATS, help="of what would be written; default savedmodel")
    add_flags(parser, "source")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    flags = parser.parse_args(words)
    if flags.artifact is not None and flags.format is not None:
        raise UsageError(f"--format cannot be combined with ARTIFACT {flags.artifact}; leave one out")
    return within(lambda: _map(flags), flags)


def _map(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert import pipeline

    options = read_options(flags)
    with _show_progress(flags):
        weight_map = pipeline.map_weights(Path(flags.source), flags.artifact, options)
    if flags.json:
        print(weight_map.to_json())
    else:
        from cudnn_convert.cli import terminal

        terminal.show_map(weight_map)
    return 0


def verify(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert verify SOURCE ARTIFACT`."""
    parser = Parser(prog="cudnn-convert verify", description="Compare an artifact with its source.")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("artifact", metavar="ARTIFACT", help="a file or an OUT folder")
    add_flags(parser, "source", "judge", "golden")
    parser.add_argument("--force", action="store_true", help="replace an older report")
    add_output(parser)
    flags = parser.parse_args(words)
    return within(lambda: _verify(flags), flags)


def _verify(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert import pipeline

    options = read_options(flags, lineage=flags.report is not None)
    source, artifact = Path(flags.source), Path(flags.artifact)
    read = pipeline.apart(source, options, artifact) if flags.report else []
    with _write_report(flags, read) as keep, _show_progress(flags):
        result = pipeline.verify(source, artifact, options)
        keep(result)
    if not flags.quiet:
        from cudnn_convert.cli import terminal

        terminal.verification(result)
    print(result.to_json() if flags.json else _verdict(result))
    return 0


def _verdict(result: Verification) -> str:
    """The line on stdout for a verification without differences."""
    if result.end_to_end == "equal":
        return "equal"
    is_whole = result.glue is not None and result.glue.asked
    pieces = "equal piece by piece" if is_whole else "recurrences equal by themselves"
    return f"{pieces}; end to end not judged"


def record(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert record SOURCE`."""
    parser = Parser(
        prog="cudnn-convert record",
        description="Run the original, on a machine whose TensorFlow can, and keep what it answers.",
    )
    parser.add_argument("source", metavar="SOURCE")
    add_flags(parser, "source")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="NPZ", help="inputs by key, or feed0/KEY, feed1/KEY, ..."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="NPZ", help="the recording to write")
    parser.add_argument("--force", action="store_true", help="replace an older recording at OUT")
    parser.add_argument("--json", action="store_true", help="print what the recording says of itself as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    return within(lambda: _record(flags), flags)


def _record(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert import pipeline

    options = read_options(flags)
    with _show_progress(flags):
        meta = pipeline.record(Path(flags.source), flags.out, options)
    print(json.dumps(meta, indent=2) if flags.json else visible(str(flags.out)))
    return 0


def formats(words: Sequence[str], _: Within = directly) -> int:
    """`cudnn-convert formats`."""
    Parser(prog="cudnn-convert formats", description="List the targets.").parse_args(words)
    for name, form in FORMATS.items():
        print(f"{name:<12}{form.about}")
    return 0


@contextmanager
def _write_report(flags: argparse.Namespace, apart: Sequence[tuple[str, Path]]) -> Iterator[Keep]:
    """Yield a function that keeps the report, and write it to `--report` at the end.

    A failed proof has a report too. An error after the work changes no exit code, since OUT is in place.
    """
    if flags.report is None:
        with _report_failure(flags, lambda report: None) as keep:
            yield keep
        return
    from cudnn_convert.report import prepare_report

    failed: VerificationError | None = None
    with ExitStack() as stack:
        keep = stack.enter_context(prepare_report(flags.report, apart=apart, force=flags.force))
        try:
            with _report_failure(flags, keep):
                yield keep
        except VerificationError as error:
            failed = error
        try:
            stack.close()
        except CudnnConvertError as error:
            print(f"cudnn-convert: {error}; all else is done", file=sys.stderr)
    if failed is not None:
        raise failed


@contextmanager
def _report_failure(flags: argparse.Namespace, keep: Keep) -> Iterator[Keep]:
    """Keep the report of a failed proof where that of a passed one would go."""
    try:
        yield keep
    except VerificationError as error:
        keep(error.report)
        if flags.json:
            print(error.report.to_json())
        raise


@contextmanager
def _show_progress(flags: argparse.Namespace) -> Iterator[None]:
    """Show progress at a terminal within the context."""
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    if not is_seen or ("quiet" in flags and flags.quiet):
        yield
        return
    from cudnn_convert.cli import terminal

    with terminal.show_progress() as line, listen(line.at):
        yield
