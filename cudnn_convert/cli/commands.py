"""The subcommands and flags: a call of the library each, with results on stdout."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudnn_convert.cli import demo as sample
from cudnn_convert.cli.batch import add_engine, batch, check_engine, open_share, show_progress
from cudnn_convert.cli.benchmark import benchmark
from cudnn_convert.cli.files import require_files
from cudnn_convert.cli.parser import (
    NEAR,
    PROGRAM,
    SHELLS,
    Parser,
    Within,
    add_flag,
    add_flags,
    add_output,
    also_complete,
    directly,
    print_completion,
    read_options,
)
from cudnn_convert.errors import UsageError, VerificationError
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import Options, choose_format
from cudnn_convert.process import silence_native
from cudnn_convert.storage import remote
from cudnn_convert.text import command, visible
from cudnn_convert.version import __version__

if TYPE_CHECKING:
    from cudnn_convert.report import Verification
    from cudnn_convert.report.files import Keep

#: The options that say which feeds are taken from data.
DATA: Final = ("data", "features", "batch", "limit_examples")
#: What `--help` shows of a conversion; `--help-all` shows the other flags too.
EVERYDAY: Final = ("format", "outputs", "set", "data", "report", "force")
EXAMPLES: Final = """\
examples:
  cudnn-convert demo                           convert a sample model
  cudnn-convert inspect model.ckpt             say what it is, and how to convert it
  cudnn-convert model.ckpt model_cpu           to a SavedModel
  cudnn-convert model.ckpt model.onnx          to the format of the suffix
  cudnn-convert model.h5 out --format tflite   to out/model.tflite

Other commands: {commands}; each has --help.
"""


def convert(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert SOURCE OUT`."""
    parser = Parser(
        prog=PROGRAM,
        description="Turn a model with cuDNN LSTM, GRU or RNN layers into one that runs on a CPU.",
        epilog=EXAMPLES.format(commands=", ".join(SUBCOMMANDS)),
        everyday=EVERYDAY,
    )
    source = parser.add_argument(
        "source",
        metavar="SOURCE",
        help="checkpoint, SavedModel, frozen graph, Keras file, weights of other frameworks",
    )
    also_complete(source, SUBCOMMANDS)
    out = parser.add_argument("out", metavar="OUT", help="what to write; see --format")
    out.required = False  # it is, and is asked for with an example
    parser.add_argument("--format", choices=FORMATS, help="default the one of OUT's suffix, else savedmodel")
    add_flags(parser, "source", "target", "judge")
    parser.add_argument("--no-verify", action="store_true", help="do not compare the result with the source")
    parser.add_argument(
        "--force", action="store_true", help="replace an OUT or a report that this tool wrote"
    )
    parser.add_argument(
        "--card", type=Path, metavar="FILE", help="write a model card: Markdown, with date and verdict"
    )
    add_output(parser)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    flags = parser.parse_args(words)
    if flags.out is None:
        raise UsageError(f"OUT: expected a path to write to, found none; {_propose(flags.source)}")
    return within(lambda: _convert(flags), flags)


def _propose(source: str) -> str:
    """Return two commands as advice for a source lacking an OUT."""
    here = any(Path(f"{source}{suffix}").exists() for suffix in ("", ".index", ".meta"))
    if not here and remote.address_of(Path(source)) is None:
        return f"give one, as in {PROGRAM} model.ckpt model.onnx"
    stem = Path(source).name.partition(".")[0] or "model"
    calls = [PROGRAM, source, f"{stem}.onnx"], [PROGRAM, "inspect", source]
    return f"give one, as in {command(calls[0])}, or see what the file is with {command(calls[1])}"


def _convert(flags: argparse.Namespace) -> int:
    form = choose_format(flags.out, flags.format)
    options = _prepare(flags, format=form, verify=not flags.no_verify, lineage=flags.report is not None)
    from cudnn_convert import pipeline

    source, out = Path(flags.source), Path(flags.out)
    read = pipeline.apart(source, options) if flags.report or flags.card else []
    with _write_reports(flags, [*read, (f"OUT {out}", out)]) as keep, show_progress(flags):
        report = pipeline.convert(source, out, options, ready=keep)
    if not flags.quiet:
        from cudnn_convert.cli import terminal

        terminal.explain(report, chosen_here=flags.format is None, verbose=flags.verbose)
    print(report.to_json() if flags.json else visible(report.out or "portable already"))
    return 0


def inspect(words: Sequence[str], within: Within = directly) -> int:
    """Run `cudnn-convert inspect`: describe a source, and print the command for converting."""
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
    options = _prepare(flags)
    from cudnn_convert.cli import terminal
    from cudnn_convert.inspection import inspect

    with show_progress(flags):
        inspection = inspect.inspect_source(Path(flags.source), options, form=flags.format)
    return _print(inspection, flags, terminal.show_inspection)


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
    options = _prepare(flags)
    from cudnn_convert import pipeline
    from cudnn_convert.cli import terminal

    with show_progress(flags):
        weight_map = pipeline.map_weights(Path(flags.source), flags.artifact, options)
    return _print(weight_map, flags, terminal.show_map)


def verify(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert verify SOURCE ARTIFACT`."""
    parser = Parser(prog="cudnn-convert verify", description="Compare an artifact with its source.")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("artifact", metavar="ARTIFACT", help="a file or an OUT folder")
    add_flags(parser, "source", "judge", "golden")
    parser.add_argument("--jobs", type=int, metavar="N", help="shards of --data at a time; default 1")
    add_engine(parser)
    parser.add_argument("--force", action="store_true", help="replace an older report")
    add_output(parser)
    flags = parser.parse_args(words)
    check_engine(flags)
    return within(lambda: _verify(flags), flags)


def _verify(flags: argparse.Namespace) -> int:
    options = _prepare(flags, lineage=flags.report is not None)
    from cudnn_convert import pipeline

    source, artifact = Path(flags.source), Path(flags.artifact)
    read = pipeline.apart(source, options, artifact) if flags.report else []
    with _write_reports(flags, read) as keep, show_progress(flags), open_share(flags) as share:
        result = pipeline.verify(source, artifact, options, share)
        keep(result)
    if not flags.quiet:
        from cudnn_convert.cli import terminal

        terminal.explain_proof(result, verbose=flags.verbose)
    print(result.to_json() if flags.json else _verdict(result))
    return 0


def _verdict(result: Verification) -> str:
    """Return the line on stdout for a passed verification."""
    if result.end_to_end == "equal":
        left = 0 if result.ops is None else len(result.ops.not_reached) + len(result.ops.not_looked_at)
        return f"equal; op by op {left} not shown" if left else "equal"
    is_whole = any(each is not None and each.asked for each in (result.glue, result.ops))
    pieces = "equal piece by piece" if is_whole else "recurrences equal by themselves"
    return f"{pieces}; end to end not judged"


def run(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert run ARTIFACT`."""
    parser = Parser(
        prog=f"{PROGRAM} run",
        description="Run an artifact once and print its outputs: on random inputs, or on those of --data.",
    )
    parser.add_argument("source", metavar="ARTIFACT", help="a file or an OUT folder")
    for name in ("signature", *DATA, "seed", "custom_objects", "limit", "trust"):
        add_flag(parser, name)
    parser.add_argument("--out", type=Path, metavar="NPZ", help="save the outputs by key")
    parser.add_argument("--json", action="store_true", help="print what the outputs are as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    return within(lambda: _run(flags), flags)


def _run(flags: argparse.Namespace) -> int:
    options = _prepare(flags)
    from cudnn_convert import pipeline
    from cudnn_convert.cli import terminal

    with show_progress(flags):
        answers = pipeline.run(Path(flags.source), options, out=flags.out)
    return _print(answers, flags, partial(terminal.show_answers, quiet=flags.quiet))


def record(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert record SOURCE`."""
    parser = Parser(
        prog="cudnn-convert record",
        description="Run the original, on a machine whose TensorFlow can, and keep what it answers.",
    )
    parser.add_argument("source", metavar="SOURCE")
    add_flags(parser, "source")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="PATTERN", help="the inputs: files as for a conversion"
    )
    for name in DATA[1:]:
        add_flag(parser, name)
    parser.add_argument("--out", type=Path, required=True, metavar="NPZ", help="the recording to write")
    parser.add_argument("--force", action="store_true", help="replace an older recording at OUT")
    parser.add_argument("--json", action="store_true", help="print what the recording says of itself as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    return within(lambda: _record(flags), flags)


def _record(flags: argparse.Namespace) -> int:
    options = _prepare(flags)
    from cudnn_convert import pipeline

    with show_progress(flags):
        meta = pipeline.record(Path(flags.source), flags.out, options)
    print(json.dumps(meta, indent=2) if flags.json else visible(str(flags.out)))
    return 0


def demo(words: Sequence[str], within: Within = directly) -> int:
    """Run `cudnn-convert demo [DIR]`: convert a sample model by printed commands."""
    parser = Parser(
        prog=f"{PROGRAM} demo",
        description="Convert a sample model and run the results. Each command is printed before it runs.",
    )
    parser.add_argument(
        "source",
        metavar="DIR",
        nargs="?",
        default=sample.FOLDER,
        help=f"a new or an empty folder for sample and results; default {sample.FOLDER}",
    )
    add_flag(parser, "limit")
    flags = parser.parse_args(words)
    return within(lambda: _demo(Path(flags.source)), flags)


def _demo(folder: Path) -> int:
    sample.unpack(folder)
    model = visible(str(folder / sample.SAMPLE))
    print(f"a sequence tagger with a cuDNN LSTM, trained by TensorFlow 1.15: {model}", file=sys.stderr)
    for words in sample.calls(folder):
        print(f"\n$ {command([PROGRAM, *words])}", file=sys.stderr)
        call = SUBCOMMANDS.get(words[0])
        code = call(words[1:], directly) if call else convert(words)
        sys.stdout.flush()  # before the next line on stderr
        if code:
            return code
    print(f"\nThe same for a model of yours: {PROGRAM} inspect MODEL", file=sys.stderr)
    return 0


def formats(words: Sequence[str], _: Within = directly) -> int:
    """`cudnn-convert formats`."""
    Parser(prog="cudnn-convert formats", description="List the targets.").parse_args(words)
    for name, form in FORMATS.items():
        print(f"{name:<12}{form.about}")
    return 0


def completion(words: Sequence[str], _: Within = directly) -> int:
    """`cudnn-convert completion SHELL`."""
    parser = Parser(
        prog=f"{PROGRAM} completion",
        description="Print what makes a shell complete flags and files of this command.",
        epilog='In ~/.bashrc or ~/.zshrc: eval "$(cudnn-convert completion bash)"; '
        "in fish: cudnn-convert completion fish | source; in PowerShell: "
        "cudnn-convert completion powershell | Out-String | Invoke-Expression",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    print_completion(parser.parse_args(words).shell)
    return 0


def show_help(words: Sequence[str], within: Within = directly) -> int:
    """`cudnn-convert help [COMMAND]`."""
    parser = Parser(prog=f"{PROGRAM} help", description="Show the help of a command.")
    listed = ", ".join(SUBCOMMANDS)
    parser.add_argument("command", metavar="COMMAND", nargs="?", default="convert", help=f"one of {listed}")
    name = parser.parse_args(words).command
    if name not in SUBCOMMANDS:
        near = difflib.get_close_matches(name, SUBCOMMANDS, n=1, cutoff=NEAR)
        cure = f"did you mean {near[0]}?" if near else f"the commands are {listed}"
        what = f"expected a command of {PROGRAM}, found a word that is not one"
        raise UsageError(f"{name}: {what}; {cure}")
    return SUBCOMMANDS[name](["--help"], within)


#: A subcommand wins over a file of that name; `./verify` is the file.
SUBCOMMANDS: Final[dict[str, Callable[[Sequence[str], Within], int]]] = {
    "convert": convert,
    "batch": batch,
    "benchmark": benchmark,
    "inspect": inspect,
    "map": map_weights,
    "verify": verify,
    "run": run,
    "record": record,
    "demo": demo,
    "formats": formats,
    "completion": completion,
    "help": show_help,
}


def _prepare(flags: argparse.Namespace, **others: Any) -> Options:
    """Return the options of parsed flags, with the files present, and silence native code.

    Raises UsageError, AccessError.
    """
    options = read_options(flags, **others)
    require_files(options)
    silence_native()
    return options


def _print(result: Any, flags: argparse.Namespace, show: Callable[[Any], None]) -> int:
    """Print a result on stdout, as JSON or by `show`, and return the exit code.

    `--json` chooses JSON.
    """
    if flags.json:
        print(result.to_json())
    else:
        show(result)
    return 0


@contextmanager
def _write_reports(flags: argparse.Namespace, apart: Sequence[tuple[str, Path]]) -> Iterator[Keep]:
    """Yield a function to keep the report, and write the report files at the end.

    They are those that `--report` and `--card` name. A failed proof is also printed with `--json`. An error
    after the work changes no exit code, since OUT is in place.
    """
    from cudnn_convert.report.files import write_reports

    def warn(message: str) -> None:
        print(visible(f"cudnn-convert: {message}; all else is done"), file=sys.stderr)

    model_card = getattr(flags, "card", None)
    try:
        with write_reports(flags.report, model_card, apart=apart, force=flags.force, warn=warn) as keep:
            yield keep
    except VerificationError as error:
        if flags.json:
            print(error.report.to_json())
        raise
