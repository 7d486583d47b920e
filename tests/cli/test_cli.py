"""The contract that people script against: words, streams, exit codes, and what a call leaves behind."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.command_line import beside, command, contents, copied, make_foreign, make_symlink, refused
from support.samples import ANY_SOURCE, GRAPH_FORMATS, GRAPHLESS, ROOT, fixture
from support.tiers import tier

import cudnn_convert
from cudnn_convert import targets
from cudnn_convert.cli import terminal
from cudnn_convert.report import Report
from cudnn_convert.report.values import MicroReport, RecurrenceReport

HEAVY = ("numpy", "tensorflow", "onnx", "onnxruntime", "tf2onnx", "tf_keras", "keras", "h5py", "rich")
#: What no conversion of weights without a graph to ONNX needs, of others' and of our own.
UNNEEDED = (
    *("tensorflow", "tf2onnx", "tf_keras", "keras", "h5py", "rich", "safetensors", "torch"),
    *(f"cudnn_convert.{name}" for name in ("cli.terminal", "inspection.inspect", "report.page")),
    *(f"cudnn_convert.keras.{name}" for name in ("cpu_layers", "translate", "trace", "build_keras3")),
    *(f"cudnn_convert.targets.{name}" for name in ("bundle", "keras", "h5", "tflite")),
    *(f"cudnn_convert.{name}" for name in ("artifacts.safety", "verification.graph_judge")),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the smallest sample."""
    return copied(tmp_path)


# What comes before any work.


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["inspect", "--help"], 0),
        (["verify", "--help"], 0),
        (["record", "--help"], 0),
        (["--version"], 0),
        (["formats"], 0),
        ([], 2),
        (["source"], 2),
        (["a", "b", "--format", "pickle"], 2),
        (["inspect"], 2),
        (["verify", "a"], 2),
        (["record", "a"], 2),
    ],
    ids=lambda found: " ".join(found) if isinstance(found, list) else "",
)
def test_nothing_heavy_is_loaded_before_there_is_work(words: list[str], code: int) -> None:
    program = (
        "import sys; from cudnn_convert import cli; code = cli.main(sys.argv[2:]); "
        "print(*(set(sys.argv[1].split(',')) & set(sys.modules)), sep=',', file=sys.stderr, end='|'); "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(HEAVY), *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    message, _, loaded = done.stderr.removesuffix("|").rpartition("\n")
    assert loaded == ""
    assert bool(message) == bool(code)
    assert bool(done.stdout) != bool(code)


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        ((), UNNEEDED),
        (("--no-verify",), (*UNNEEDED, "onnxruntime", "cudnn_convert.reference", "cudnn_convert.weight_map")),
    ],
    ids=["verified", "not verified"],
)
def test_weights_become_onnx_without_what_other_sources_and_formats_need(
    tmp_path: Path, words: tuple[str, ...], unneeded: tuple[str, ...]
) -> None:
    program = (
        "import sys; from cudnn_convert import cli; code = cli.main(sys.argv[2:]); "
        "print(*(set(sys.argv[1].split(',')) & set(sys.modules)), sep=','); sys.exit(code)"
    )
    source = next(found for found in GRAPHLESS if "weights_lstm" in found.name).prefix
    call = [source, tmp_path / "out", "--format", "onnx", "--mode", "lstm", "--quiet", *words]
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(unneeded), *map(str, call)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[1:] == [""]


def test_help_and_version_go_to_stdout() -> None:
    ended = command("--help")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: cudnn-convert SOURCE OUT [flags]\n")
    assert command("--version").stdout == f"cudnn-convert {cudnn_convert.__version__}\n"


def test_a_bare_call_shows_the_help() -> None:
    ended = command()
    assert (ended.code, ended.stdout, ended.stderr) == (2, "", command("--help").stdout)


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["{source}", "{out}", "--zip"], "UsageError", 2),
        (["{out}.h5", "{out}"], "ReadError", 1),
        (["verify", "{source}", "{out}"], "ReadError", 1),
    ],
)
def test_an_error_is_an_object_on_stdout_on_request(
    source: Path, tmp_path: Path, words: list[str], kind: str, code: int
) -> None:
    ended = command(*(word.format(source=source, out=tmp_path / "out") for word in words), "--json")
    lines = [line.removeprefix("cudnn-convert: ") for line in ended.stderr.splitlines()]
    assert ended.code == code
    assert json.loads(ended.stdout) == {
        "error": {"kind": kind, "exit_code": code, "reasons": lines, "remedies": []}
    }


def test_the_remedies_of_a_refusal_are_flags(tmp_path: Path) -> None:
    source = fixture("1.15.5-dropout_needs_set").prefix
    error = json.loads(command(source, tmp_path / "out", "--json").stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("UnsupportedModelError", 1)
    assert error["remedies"] == ["--set keep_prob:0=1"]


@pytest.mark.parametrize("module", ["cudnn_convert", "cudnn_convert.cli"])
def test_the_package_and_its_command_line_are_modules_to_run(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == f"cudnn-convert {cudnn_convert.__version__}\n"


def test_a_subcommand_wins_over_a_file_of_its_name(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    for path in list(source.parent.glob("model.ckpt.*")):
        path.rename(path.name.replace("model.ckpt", "verify"))
    assert "required: ARTIFACT" in command("verify", "out", "--quiet").stderr
    assert command("./verify", "out.npz", "--format", "npz", "--quiet", "--no-verify").code == 0


# Refusals: the exit code, the line, and nothing at OUT or beside it.


def test_dropout_is_refused_with_its_cure(tmp_path: Path) -> None:
    source = copied(tmp_path, "1.15.5-dropout_needs_set")
    lines = refused(tmp_path, source, tmp_path / "out", code=1)
    assert "turn it off with --set keep_prob:0=1" in lines[0]
    assert command(source, tmp_path / "out", "--set", "keep_prob:0=1", "--no-verify").code == 0


@pytest.mark.parametrize(
    ("sample", "copy", "message"),
    [
        ("v3_batch_major", "ema", "--weights ema: expected keys .../ExponentialMovingAverage, found none"),
        (
            "raw_only",
            "canonical",
            "weights: expected canonical keys under cudnn_gru, found none; take either copy",
        ),
    ],
    ids=["ema", "canonical"],
)
def test_a_copy_of_the_weights_that_is_not_there_is_refused(
    tmp_path: Path, sample: str, copy: str, message: str
) -> None:
    source = copied(tmp_path, f"1.15.5-{sample}")
    [line] = refused(tmp_path, source, tmp_path / "out", "--weights", copy, code=1)
    assert message in line


FOREIGN = "expected a new path, found a {} that this tool did not write; choose another path"
PLACES: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "a file": (Path.touch, [], FOREIGN.format("file")),
    "a folder": (make_foreign, [], FOREIGN.format("folder")),
    "a symlink": (make_symlink, ["--force"], "expected a new path, found a symbolic link; name its target"),
    "a foreign folder": (make_foreign, ["--force"], FOREIGN.format("folder")),
    "a foreign file": (Path.touch, ["--force"], FOREIGN.format("file")),
}


@pytest.mark.parametrize(("make", "flags", "message"), PLACES.values(), ids=PLACES)
def test_an_out_that_is_taken_is_refused(
    source: Path, tmp_path: Path, make: Callable[[Path], object], flags: list[str], message: str
) -> None:
    make(tmp_path / "out")
    [line] = refused(tmp_path, source, tmp_path / "out", *flags, code=2)
    assert line.startswith(f"{tmp_path / 'out'}: {message}")


@pytest.mark.parametrize("out", ["source", "source/model.ckpt", "source/out", "."])
def test_an_out_inside_or_around_the_source_is_refused(source: Path, tmp_path: Path, out: str) -> None:
    words = ("--format", "savedmodel", "--force")
    [line] = refused(tmp_path, source.parent, tmp_path / out, *words, code=2)
    assert "expected a path apart from the source" in line


@pytest.mark.parametrize("form", ["savedmodel", "checkpoint"])
def test_an_out_whose_variables_tensorflow_would_not_find_is_refused(
    source: Path, tmp_path: Path, form: str
) -> None:
    """A path with a bracket is a pattern for TensorFlow; a single file in such a folder is no matter."""
    folder = tmp_path / "[old]"
    folder.mkdir()
    [line] = refused(tmp_path, source, folder / "out", "--format", form, code=2)
    expected = "expected a path that TensorFlow can read variables from, found one with ["
    assert line == f"OUT {folder / 'out'}: {expected}; choose another path"
    assert command(source, folder / "out.pb", "--no-verify").code == 0


def test_a_file_of_the_source_is_never_replaced(source: Path, tmp_path: Path) -> None:
    words = ("--format", "savedmodel", "--force")
    [line] = refused(tmp_path, source, beside(source, ".meta"), *words, code=2)
    assert f"expected a path apart from the source {source}, found an overlap; choose another path" in line


def test_an_empty_folder_may_be_out(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert command(source, tmp_path / "out", "--no-verify").code == 0
    assert (tmp_path / "out" / "saved_model.pb").is_file()


# Failures in the middle.


def failing(error: BaseException) -> Callable[..., None]:
    """A writer that leaves half an artifact and fails."""

    def write(_: Any, path: Path, *__: Any, **___: Any) -> None:
        half = path / "half" if path.is_dir() else path
        half.write_text("half")
        raise error

    return write


FAILURES: dict[str, tuple[BaseException, int, str]] = {
    "full disk": (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 4, "cannot write: No space left on dev"),
    "bug": (RuntimeError("a slip"), 70, "RuntimeError: a slip"),
    "interrupt": (KeyboardInterrupt(), 130, ""),
}


@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
@pytest.mark.parametrize(
    "form",  # a folder and a file
    [pytest.param(form, marks=tier(first=form in ("savedmodel", "onnx"))) for form in GRAPH_FORMATS],
)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_writer_leaves_all_as_it_was(
    source: Path, monkeypatch: pytest.MonkeyPatch, failure: str, form: str, old: bool
) -> None:
    error, code, message = FAILURES[failure]
    tmp_path = source.parents[1]
    name = {"frozen": "out.pb", "onnx": "out.onnx", "tflite": "out.tflite"}.get(form, "out")
    if old:
        assert command(source, tmp_path / name, "--format", form, "--no-verify").code == 0
    before = contents(tmp_path)
    monkeypatch.setattr(targets, "write_artifact", failing(error))
    ended = command(source, tmp_path / name, "--format", form, "--force", "--quiet")
    assert (ended.code, ended.stdout) == (code, "")
    assert message in ended.stderr
    assert ("this is our bug; please report it" in ended.stderr) == (code == 70)
    assert contents(tmp_path) == before


def test_force_keeps_the_old_one_where_the_numbers_differ(source: Path, tmp_path: Path) -> None:
    assert command(source, tmp_path / "out.onnx", "--format=onnx", "--no-verify").code == 0
    flags = ["--format=onnx", "--force", "--atol=1e-30", "--rtol=0"]
    lines = refused(tmp_path, source, tmp_path / "out.onnx", *flags, code=3)
    assert [line.partition(": at [")[0] for line in lines] == [
        f"{source}: output rnn_out",
        f"{source}: output state_h",
    ]


def test_force_replaces_what_we_wrote(source: Path, tmp_path: Path) -> None:
    words = (source, tmp_path / "out", "--format", "onnx", "--no-verify")
    assert command(*words, "--outputs=rnn_out").code == 0
    before = contents(tmp_path)
    assert command(*words, "--force").code == 0
    assert contents(tmp_path) != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file grows past 500 bytes: the system's limit stands in for a full disk.

    Between the phases of a test coverage.py writes to its file, which must not be cut.
    """
    import resource  # not everywhere

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such limit")
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=tier(first=form != "tflite")) for form in ANY_SOURCE]
)
def test_a_disk_that_fills_up_is_named(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a cut .pyc would stay, and end later imports
    out = tmp_path / "out"
    source = fixture("1.15.5-v3_batch_major").prefix
    with full_disk():
        ended = command(source, out, "--format", form, "--quiet", "--no-verify")
    assert (ended.code, ended.stdout) == (4, "")
    assert ended.stderr == f"cudnn-convert: {out}: cannot write: File too large\n"
    assert not list(tmp_path.iterdir())


# The console script.


def script(program: str, *words: object, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """`run()` in a process of its own, after `program`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_CPP")}
    return subprocess.run(
        [sys.executable, "-c", f"from cudnn_convert import cli\n{program}\ncli.run()", *map(str, words)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False,
    )  # fmt: skip


TALKS = """import argparse, os
def talk(words, within):
    def work(): os.write(2, b'native words\\n'); {end}
    return within(work, argparse.Namespace(source='SOURCE', limit=[]))
cli.SUBCOMMANDS['formats'] = talk"""


def test_native_words_are_held_back() -> None:
    done = script(TALKS.format(end="return 0"), "formats")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_native_words_are_shown_after_a_bug() -> None:
    done = script(TALKS.format(end="1 / 0"), "formats")
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.endswith("cudnn-convert: native code said at the end:\nnative words\n")


def test_a_native_crash_is_one_line() -> None:
    done = script(TALKS.format(end="os.abort()"), "formats")
    assert (done.returncode, done.stdout) == (1, "")
    what = "native code ended with SIGABRT; the file is damaged, or memory ran out"
    assert done.stderr == f"cudnn-convert: SOURCE: {what} (--limit memory=NUMBER)\n"


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/plan")
@pytest.mark.usefixtures("shipped_loops")
def test_the_module_is_the_script_and_writes_what_the_library_writes(source: Path, tmp_path: Path) -> None:
    """TensorFlow says nothing of its own; hashes of another seed change no byte."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_CPP")}
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_convert", source, tmp_path / "out"],
        cwd=ROOT, env={**environment, "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path / 'out'}\n"
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("note: format savedmodel; ")
    assert last.startswith(f"{tmp_path / 'out'}: proven equal to {source} (")
    assert not any(word in done.stderr for word in ("absl", "port.cc", "WARNING", "Warning"))
    cudnn_convert.convert(source, tmp_path / "again", verify=False)
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


# Tables.

NODE = "a/rather/long/scope/of/a/model/cudnn_lstm/CudnnRNNV3"


def shown(**more: Any) -> str:
    found = RecurrenceReport(NODE, "CudnnRNNV3", "lstm", 2, 2, 128, 64, "float32", "canonical")
    report = Report("s", "k", "onnx", "o", {}, {}, (found,), ("[b]:cat:",), ("--set=a*=1",), None, **more)
    terminal.explain(report, verbose=True)
    return str(getattr(sys.stderr, "getvalue")())  # noqa: B009


def test_names_are_whole_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("COLUMNS", "40")
    text = shown()
    assert NODE in text
    assert "note: [b]:cat:" in text
    assert "repeat with: '--set=a*=1'" in text
    assert "\x1b" not in text


def test_the_needs_of_a_file_in_micro_have_a_line_before_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    *_, line, verdict = shown(micro=MicroReport(41960, None, ("ADD", "a\x1bb"), (), 4800)).splitlines()
    assert line.startswith(
        "in TensorFlow Lite Micro: file 41,960 bytes; arena not measured; state 4,800 bytes"
    )
    assert "operators ADD, a" in line and "\x1b" not in line
    assert verdict.startswith("o: not proven")


def test_names_fold_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"COLUMNS": "90", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    rows = shown().partition("note:")[0].splitlines()[1:]
    assert len(rows) > 1
    assert "".join(row[: row.index("  ")] if "  " in row else row for row in rows).replace(" ", "") == NODE
    assert "…" not in "".join(rows)


@pytest.mark.parametrize("letters", [50, 51])
def test_a_table_that_is_wider_than_the_terminal_becomes_paragraphs(
    monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    """A dumb terminal has 80 columns; the others of the table and what is between them take 30."""
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setenv("TERM", "dumb")
    table = terminal._make_table("recurrence", "op", "axes")
    for name in ("a" * letters, "[b]"):
        table.add_row(name, "CudnnRNN", "time, batch, input")
    terminal.Screen(stderr=False).print_table(table)
    lines = [line.rstrip() for line in written.getvalue().splitlines()]
    if letters == 50:
        assert [len(line.split()) for line in lines] == [3, 5, 5]
    else:
        told = "  op CudnnRNN; axes time, batch, input"
        assert lines == [f"recurrence {'a' * letters}", told, "recurrence [b]", told]


def test_an_output_that_only_gradients_need_is_refused(tmp_path: Path) -> None:
    source = copied(tmp_path, "1.15.5-gru_uni_2l")
    [line] = refused(tmp_path, source, tmp_path / "out", "--outputs", "cudnn_gru/CudnnRNN:3", code=1)
    assert "--outputs cudnn_gru/CudnnRNN:3: expected outputs 0 to 2 of cudnn_gru/CudnnRNN" in line
