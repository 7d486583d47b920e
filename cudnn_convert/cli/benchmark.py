"""The subcommand `benchmark`: flags, table and report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cudnn_convert.cli.batch import show_progress
from cudnn_convert.cli.parser import PROGRAM, Parser, Within, add_flag, directly, read_options
from cudnn_convert.errors import UsageError, name_write
from cudnn_convert.process import silence_native

_BATCHES: Final = (1, 8, 32)
_STEPS: Final = (10, 100)
_THREADS: Final = (1,)
_ROUNDS: Final = 15
#: Differences up to here are those of runtimes that round in other ways.
_CLOSE: Final = 1e-3
#: Flags of other commands that say how a model is read and called.
_OF_MODELS: Final = ("inputs", "outputs", "signature", "tag", "layout")
_OF_CALLS: Final = ("data", "features", "limit_examples", "seed", "atol", "rtol")
_VOUCHED: Final = ("custom_objects", "limit", "trust")


def benchmark(words: Sequence[str], _: Within = directly) -> int:
    """Run `cudnn-convert benchmark MODEL...`, with each model in a separate process."""
    parser = Parser(
        prog=f"{PROGRAM} benchmark",
        description="Measure how fast models run on this machine, and compare those that answer alike.",
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", type=Path, help="an artifact, or a model that runs as it is"
    )
    parser.add_argument(
        "--against", type=Path, metavar="ARTIFACT", help="what ratios are to; default the first MODEL"
    )
    parser.add_argument(
        "--batch", type=_numbers, dest="batches", metavar="N,...", help="examples in a call; default 1,8,32"
    )
    parser.add_argument(
        "--steps",
        type=_numbers,
        dest="lengths_of_calls",
        metavar="N,...",
        help="of sequences; default 10,100",
    )
    parser.add_argument(
        "--threads", type=_numbers, default=_THREADS, metavar="N,...", help="a process each; default 1"
    )
    parser.add_argument(
        "--rounds", type=int, default=_ROUNDS, metavar="N", help="in turns; default %(default)s"
    )
    for name in (*_OF_MODELS, *_OF_CALLS, *_VOUCHED):
        add_flag(parser, name)
    parser.add_argument(
        "--profile", type=Path, metavar="DIR", help="also say where the time goes; traces are kept in DIR"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page: .html, or JSON")
    parser.add_argument("--force", action="store_true", help="replace an older report")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    if flags.rounds < 1:
        raise UsageError(f"--rounds: expected at least 1, found {flags.rounds}")
    if flags.data is not None and flags.lengths_of_calls:
        raise UsageError("--steps cannot be combined with --data, which has its own; leave one out")
    return _benchmark(flags)


def _numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers above 0 apart by commas, each once."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < int(word) < 1 << 31 for word in words):
        raise argparse.ArgumentTypeError(
            f"expected whole numbers above 0 with commas between them, found {text!r}"
        )
    return tuple(dict.fromkeys(map(int, words)))


def _benchmark(flags: argparse.Namespace) -> int:
    silence_native()
    from cudnn_convert.benchmark import page, rounds
    from cudnn_convert.report import files

    options = read_options(flags)
    own = options.data is not None
    models = [*dict.fromkeys(flags.models)]
    call = rounds.Benchmark(
        models=models,
        against=flags.against or models[0],
        batches=flags.batches or (() if own else _BATCHES),
        steps=() if own else flags.lengths_of_calls or _STEPS,
        threads=flags.threads,
        rounds=flags.rounds,
        time_first=options.layout == "time",
        seed=rounds.SEED if options.seed is None else options.seed,
        options=options,
        atol=_CLOSE if options.atol is None else options.atol,
        rtol=_CLOSE if options.rtol is None else options.rtol,
        profile=_prepare_folder(flags.profile),
    )
    report = [] if flags.report is None else files.list_report(flags.report, rounds.is_ours, page.of)
    apart = [(f"MODEL {model}", model) for model in [*models, call.against]]
    with files.open_files(report, apart=apart, force=flags.force) as keep:
        with show_progress(flags):
            result = rounds.run_benchmark(call)
        keep(result)
    from cudnn_convert.cli import terminal

    if not flags.quiet:
        terminal.show_notes(result.notes)
    if flags.json:
        print(result.to_json())
    else:
        terminal.show_benchmark(result)
    return 0


def _prepare_folder(folder: Path | None) -> Path | None:
    """Make the folder for profiles, new or empty. Raises UsageError, WriteError."""
    if folder is None:
        return None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        actual = "one with files" if folder.is_dir() else "a file"
        raise UsageError(f"--profile {folder}: expected a new or an empty folder, found {actual}")
    with name_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder
