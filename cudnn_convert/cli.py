"""The command line: arguments, tables, progress and exit codes; no logic of its own.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the source, 2 the call, 3 the numbers
differ, 4 the environment, 130 interrupted, 70 a bug of ours.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from cudnn_convert import __version__
from cudnn_convert.errors import CudnnConvertError, UsageError, VerificationError
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import (
    CELLS,
    GATE_ORDERS,
    LAYOUTS,
    LOWERINGS,
    MODES,
    READING,
    VOUCHED,
    WEIGHTS,
    Options,
)

_BUG: Final = 70
_INTERRUPTED: Final = 130
#: What a verification takes.
_JUDGING: Final = ("data", "atol", "rtol", "trust")
#: How much of what native code said is shown after a crash.
_TAIL: Final = 4000


class _Parser(argparse.ArgumentParser):
    """Usage errors in one line, as all others; no abbreviations, which later flags would break."""

    def __init__(self, **names: str) -> None:
        super().__init__(allow_abbrev=False, **names)  # type: ignore[arg-type]

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


def run() -> None:
    """The console script: `main`, without the lines that TensorFlow's native code writes to stderr.

    They go past Python and nothing turns them off: absl prints them before it reads any setting.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    held = _native_stderr()
    code = _BUG
    try:
        code = main()
    finally:
        if code == _BUG and held is not None:
            _show_tail(held)
    sys.exit(code)


def _native_stderr() -> IO[bytes] | None:
    """Points file descriptor 2 at a file, for good, and `sys.stderr` at what 2 was.

    Returns the file; None where there is no stderr, or nowhere to put a file: then all stays as it is.
    """
    try:
        real, encoding = os.dup(2), sys.stderr.encoding
        held = tempfile.TemporaryFile()  # noqa: SIM115 - native code writes to it until the very end
    except (OSError, AttributeError):
        return None
    os.dup2(held.fileno(), 2)
    sys.stderr = os.fdopen(real, "w", buffering=1, encoding=encoding, errors="backslashreplace")
    faulthandler.enable(sys.stderr)
    return held


def _show_tail(held: IO[bytes]) -> None:
    size = held.seek(0, os.SEEK_END)
    held.seek(max(0, size - _TAIL))
    text = held.read().decode(errors="replace").rstrip()
    if text:
        print("cudnn-convert: native code said at the end:", text, sep="\n", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = _COMMANDS.get(words[0]) if words else None
        return command(words[1:]) if command else _convert(words)
    except CudnnConvertError as error:
        print(*(f"cudnn-convert: {line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as stop:  # argparse, after --help and --version
        return int(stop.code or 0)
    except Exception:  # noqa: BLE001 - whatever is left is our own bug, and must say so
        traceback.print_exc()
        print("cudnn-convert: this is our bug; please report it with the lines above", file=sys.stderr)
        return _BUG


def _convert(words: Sequence[str]) -> int:
    parser = _Parser(
        prog="cudnn-convert",
        description="Turn a model with cuDNN LSTM, GRU or RNN layers into one that runs on a CPU.",
        epilog="Also: cudnn-convert verify SOURCE ARTIFACT; ... record SOURCE; ... formats.",
    )
    parser.add_argument("source", metavar="SOURCE", help="checkpoint, SavedModel, frozen graph, Keras file")
    parser.add_argument("out", metavar="OUT", help="what to write; see --format")
    parser.add_argument("--format", choices=FORMATS, default="savedmodel", help="default %(default)s")
    _add_signature(parser)
    _add_source(parser)
    _add_checkpoint(parser)
    parser.add_argument("--opset", type=int, default=17, help="of ONNX; default %(default)s")
    parser.add_argument("--lowering", choices=LOWERINGS, default="fast", help="default %(default)s")
    _add_verification(parser)
    parser.add_argument("--no-verify", action="store_true", help="do not compare the result with the source")
    parser.add_argument("--force", action="store_true", help="replace an OUT that this tool wrote")
    parser.add_argument(
        "--force-convert", action="store_true", help="write a copy even of what is portable already"
    )
    _add_output(parser)
    parser.add_argument("--version", action="version", version=f"cudnn-convert {__version__}")
    flags = parser.parse_args(words)
    _silence()
    from cudnn_convert import pipeline, tables

    options = Options(
        format=flags.format,
        cell=flags.cell,
        rename=flags.rename,
        slots=flags.slots,
        opset=flags.opset,
        lowering=flags.lowering,
        verify=not flags.no_verify,
        lineage=flags.report is not None,
        force=flags.force,
        force_convert=flags.force_convert,
        progress=tables.silent if flags.quiet else tables.progress,
        **_shared(flags),
    )
    with _told(flags):
        report = pipeline.convert(Path(flags.source), Path(flags.out), options)
    _keep(flags.report, report)
    if not flags.quiet:
        tables.explain(report)
    print(report.to_json() if flags.json else report.out or "portable already")
    return 0


def _verify(words: Sequence[str]) -> int:
    parser = _Parser(prog="cudnn-convert verify", description="Compare an artifact with its source.")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("artifact", metavar="ARTIFACT", help="a file or an OUT folder")
    _add_signature(parser)
    _add_source(parser)
    _add_verification(parser)
    parser.add_argument("--golden", type=Path, metavar="NPZ", help="a recording of the original, to judge by")
    _add_output(parser)
    flags = parser.parse_args(words)
    _silence()
    from cudnn_convert import pipeline, tables

    options = Options(golden=flags.golden, lineage=flags.report is not None, **_shared(flags))
    with _told(flags):
        result = pipeline.verify(Path(flags.source), Path(flags.artifact), options)
    _keep(flags.report, result)
    if not flags.quiet:
        tables.verification(result)
    print(result.to_json() if flags.json else "equal")
    return 0


def _record(words: Sequence[str]) -> int:
    parser = _Parser(
        prog="cudnn-convert record",
        description="Run the original, on a machine whose TensorFlow can, and keep what it answers.",
    )
    parser.add_argument("source", metavar="SOURCE")
    _add_signature(parser)
    _add_source(parser)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="NPZ", help="inputs by key, or feed0/KEY, feed1/KEY, ..."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="NPZ", help="the recording to write")
    parser.add_argument("--trust", action="store_true", help="run more than arithmetic")
    parser.add_argument("--force", action="store_true", help="replace what is at OUT")
    parser.add_argument("--json", action="store_true", help="print what the recording says of itself as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")
    flags = parser.parse_args(words)
    _silence()
    from cudnn_convert import pipeline, tables

    options = Options(
        data=flags.data,
        trust=flags.trust,
        force=flags.force,
        progress=tables.silent if flags.quiet else tables.progress,
        **{name: getattr(flags, name) for name in (*READING, *VOUCHED)},
    )
    meta = pipeline.record(Path(flags.source), flags.out, options)
    print(json.dumps(meta, indent=2) if flags.json else flags.out)
    return 0


def _formats(words: Sequence[str]) -> int:
    _Parser(prog="cudnn-convert formats", description="List the targets.").parse_args(words)
    for name, form in FORMATS.items():
        print(f"{name:<12}{form.about}")
    return 0


def _add_signature(parser: argparse.ArgumentParser) -> None:
    spec = "[KEY=]TENSOR[[shape]],..."
    repeated: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--inputs", metavar=spec, help="tensors to take; repeatable", **repeated)
    parser.add_argument("--outputs", metavar=spec, help="tensors to give; repeatable", **repeated)
    parser.add_argument("--set", metavar="TENSOR=VALUE", help="bind a constant; repeatable", **repeated)


def _add_source(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--signature", metavar="KEY", help="which signature; default serving_default")
    add("--tag", metavar="TAG", help="which graph of a SavedModel; default serve")
    add("--weights", choices=WEIGHTS, default="auto", help="which copy; default %(default)s")
    add(
        "--forget-bias",
        type=float,
        default=0.0,
        metavar="X",
        help="added to the forget gate of canonical LSTM biases; default 0",
    )
    add("--gate-order", choices=GATE_ORDERS, default="tf", help="of the source; default %(default)s")
    alone = parser.add_argument_group("sources without a graph")
    alone.add_argument("--mode", choices=MODES)
    alone.add_argument("--layers", type=int, metavar="N")
    alone.add_argument("--units", type=int, metavar="N")
    alone.add_argument("--directions", type=int, choices=(1, 2))
    alone.add_argument("--layout", choices=LAYOUTS, help="first axis of inputs and outputs")
    alone.add_argument("--states", action="store_true", help="take initial states too")
    alone.add_argument("--lengths", action="store_true", help="take sequence_lengths too")
    keras = parser.add_argument_group("sources of Keras")
    keras.add_argument("--architecture", type=Path, metavar="JSON", help="the model of a weights file")
    keras.add_argument(
        "--custom-objects",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a class that the model may be built with; repeatable",
    )
    keras.add_argument("--allow-plain", action="store_true", help="convert even where no layer is cuDNN's")


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("--format checkpoint")
    group.add_argument("--cell", choices=CELLS, default="compatible", help="whose LSTM variables to write")
    group.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="a scope or a name; repeatable"
    )
    group.add_argument("--slots", action="store_true", help="keep optimizer slots, split per cell")


def _add_verification(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="NPZ", help="real inputs to compare on, by input key")
    parser.add_argument("--atol", type=float, help="absolute tolerance; default by dtype and noise floor")
    parser.add_argument("--rtol", type=float, help="relative tolerance; default by dtype and noise floor")
    parser.add_argument(
        "--trust", action="store_true", help="verify even where that runs more than arithmetic"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report: .html, or JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")


def _shared(flags: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in (*READING, *VOUCHED, *_JUDGING)}


@contextmanager
def _told(flags: argparse.Namespace) -> Iterator[None]:
    """A proof that failed has a report too; it goes where that of a proof that held would go."""
    try:
        yield
    except VerificationError as error:
        _keep(flags.report, error.report)
        if flags.json:
            print(error.report.to_json())
        raise


def _silence() -> None:
    """TensorFlow's C++ side logs to stderr unless told before its import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GLOG_minloglevel", "3")


def _keep(path: Path | None, report: Any) -> None:
    if path is not None:
        from cudnn_convert.page import file

        file.write(path, report)


#: A subcommand wins over a file of that name; `./verify` is the file.
_COMMANDS: Final = {"verify": _verify, "record": _record, "formats": _formats}

if __name__ == "__main__":
    run()
