"""Errors: the exception tree, and names of files in messages."""

from __future__ import annotations

import inspect
import json
import pickle
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import checkpoints
from support.command_line import command
from test_text import HOSTILE

import cudnn_convert
from cudnn_convert import errors
from cudnn_convert.errors import CudnnConvertError

# The exception tree: its fields, its words, its exit codes, its way through a pickle.

#: One of each class: its message, its exit code.
SAMPLES: dict[str, tuple[CudnnConvertError, str, int]] = {
    "CudnnConvertError": (errors.CudnnConvertError("words"), "words", 1),
    "ReadError": (
        errors.ReadError("a.pb", "node[3]", expected="an op", found="nothing", advice="write it again"),
        "a.pb: node[3]: expected an op, found nothing; write it again",
        1,
    ),
    "AccessError": (errors.AccessError("a.pb", "no such disk"), "a.pb: cannot read: no such disk", 4),
    "InvalidModelError": (
        errors.InvalidModelError("cell.bias", expected="shape (4, 5)", found="(5, 4)"),
        "cell.bias: expected shape (4, 5), found (5, 4)",
        1,
    ),
    "RefusalError": (errors.RefusalError("m", ["one", "two"]), "m: one\nm: two", 1),
    "UnprovenError": (errors.UnprovenError("m", ["one"]), "m: one", 1),
    "UnsupportedModelError": (errors.UnsupportedModelError("m", ["one"]), "m: one", 1),
    "AmbiguousSourceError": (errors.AmbiguousSourceError("m", ["this", "that"]), "m: this\nm: that", 1),
    "UsageError": (errors.UsageError("--set: expected more"), "--set: expected more", 2),
    "VerificationError": (errors.VerificationError({"passed": False}, "y: differs"), "y: differs", 3),
    "WriteError": (errors.WriteError("out", "disk full"), "out: disk full", 4),
    "MissingDependencyError": (errors.MissingDependencyError("pip install x"), "pip install x", 4),
}
CLASSES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, CudnnConvertError)
}


def test_every_class_has_a_sample() -> None:
    assert set(CLASSES) == set(SAMPLES)


def test_every_class_is_public() -> None:
    assert set(CLASSES) <= {*errors.__all__, "RefusalError"}
    assert set(errors.__all__) - {"RefusalError"} <= set(cudnn_convert.__all__)


@pytest.mark.parametrize("name", SAMPLES)
def test_fields_make_the_message(name: str) -> None:
    error, message, code = SAMPLES[name]
    assert type(error).__name__ == name
    assert str(error) == message
    assert error.exit_code == code


def test_fields_are_kept() -> None:
    read = errors.ReadError("a.pb", "node[3]", expected="an op", found="nothing")
    assert (read.path, read.where, read.expected, read.found, read.advice) == (
        "a.pb",
        "node[3]",
        "an op",
        "nothing",
        "",
    )
    assert str(read) == "a.pb: node[3]: expected an op, found nothing"
    assert errors.RefusalError("m", ["one", "two"]).reasons == ("one", "two")


def test_a_reason_is_its_text_and_carries_its_remedies() -> None:
    cure = errors.Remedy({"outputs": ("a b:0",)}, "cut the graph before it with")
    reason = errors.Reason(f"op: expected this, found that; {cure}", cure, None)
    assert reason == "op: expected this, found that; cut the graph before it with --outputs 'a b:0'"
    plain, same = errors.UnsupportedModelError("m", ["plain", reason]).reasons
    assert (plain, plain.remedies) == ("plain", ())
    assert same.remedies == (cure,)
    back = pickle.loads(pickle.dumps(errors.UnsupportedModelError("m", [reason])))
    assert back.reasons == (reason,)
    assert [known.remedies for known in back.reasons] == [(cure,)]


def test_a_remedy_is_typed_as_its_flags() -> None:
    options = {"set": ("a:0=1", "b:0=2"), "forget_bias": 1.0, "units": 3, "states": True}
    words = "--set a:0=1 --set b:0=2 --forget-bias 1 --units 3 --states"
    assert str(errors.Remedy(options)) == words
    assert str(errors.Remedy(options, "say")) == f"say {words}"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_pickle_keeps_everything(name: str) -> None:
    error, message, _ = SAMPLES[name]
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == message
    assert back.__dict__ == error.__dict__
    assert back.args == error.args


def test_what_a_file_brings_stays_in_its_line() -> None:
    """A name with a new line in it, half a character, a space that no terminal shows."""
    name = "a\nb\ud800\u2028\x1bc\u00e9"
    shown = "a\\nb\\ud800\\u2028\\x1bc\u00e9"
    error = errors.ReadError(name, name, expected=name, found=name, advice="do this")
    assert str(error) == f"{shown}: {shown}: expected {shown}, found {shown}; do this"
    assert str(errors.AccessError(name, name)) == f"{shown}: cannot read: {shown}"
    invalid = errors.InvalidModelError(name, expected=name, found=name)
    assert str(invalid) == f"{shown}: expected {shown}, found {shown}"
    assert str(errors.UnsupportedModelError(name, [name])) == f"{shown}: {shown}"
    assert str(errors.UnsupportedModelError("m", [name, "two"])) == f"m: {shown}\nm: two"
    assert errors.UnsupportedModelError("m", [name]).reasons == (name,)
    assert errors.ReadError("m", name, expected="", found=name).found == name


def test_a_part_that_fills_a_page_is_shortened() -> None:
    """From 301 characters on: 200 of its beginning and 100 of its end are left."""
    kept, long = "x" * 300, "b" * 200 + "x" + "e" * 100
    short = f"{'b' * 200}...{'e' * 100}"
    for part, shown in ((kept, kept), (long, short)):
        error = errors.ReadError("m", part, expected=part, found=part, advice="c" * 400)
        assert str(error) == f"m: {shown}: expected {shown}, found {shown}; {'c' * 400}"
        assert str(errors.AccessError("m", part)) == f"m: cannot read: {shown}"
        error = errors.InvalidModelError(part, expected=part, found=part)
        assert str(error) == f"{shown}: expected {shown}, found {shown}"


def test_only_a_word_without_an_end_is_shortened_in_a_reason() -> None:
    """Flags that are to be copied may be long, and stay whole."""
    flag, word = "--outputs " + "y" * 699, "b" * 200 + "x" * 400 + "e" * 100
    short = f"{'b' * 200}...{'e' * 100}"
    given, shown = (f"{flag} {one} {'a ' * 400}end" for one in (word, short))
    assert str(errors.AmbiguousSourceError("m", [given])) == f"m: {shown}"
    assert str(errors.UsageError(given)) == shown
    assert str(errors.UsageError("one\n", f"t\two {word}")) == f"one\\n\nt\\two {short}"


# Names of files reach a person as text: they move no cursor, forge no line and turn nothing around.

SIZES = ("--mode", "lstm", "--layers", 2, "--units", 3, "--directions", 2)


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError(HOSTILE),
        errors.VerificationError(None, HOSTILE),
        errors.WriteError(HOSTILE, HOSTILE),
        errors.MissingDependencyError(HOSTILE),
        errors.UnsupportedModelError(HOSTILE, [HOSTILE]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_a_line_for_each_reason(error: Exception) -> None:
    assert str(error).isprintable()


def test_nothing_that_is_printed_acts_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's own name, and names of tensors in it, through every command."""
    monkeypatch.chdir(tmp_path)
    blob = np.random.default_rng(5).uniform(-1, 1, 2 * 4 * 3 * (4 + 3 + 2) + 2 * 4 * 3 * (6 + 3 + 2))
    folder = tmp_path / f"in{HOSTILE.replace('/', '')}"
    folder.mkdir()
    key = f"{HOSTILE}/cudnn_lstm/opaque_kernel"
    source = checkpoints.save(folder / "model.ckpt", [(key, blob.astype(np.float32)), (f"{key}x", blob)])
    calls = [
        ("inspect", source),
        ("inspect", source, *SIZES),
        (source, "ambiguous.npz", "--format", "npz"),
        (source, "m.npz", *SIZES, "--format", "npz", "--report", "report.html"),
        (source, "none.npz", *SIZES, "--format", "npz", "--signature", HOSTILE),
        (source, folder / "out.npz", *SIZES, "--format", "npz"),
        (source, "m.npz", *SIZES, "--format", "npz"),
        ("map", source, "m.npz", *SIZES),
        ("verify", source, "m.npz", *SIZES),
        ("verify", source, folder / "none.onnx", *SIZES),
        ("inspect", folder / "none"),
    ]
    ended = [command(*words) for words in calls]
    assert [one.code for one in ended] == [0, 0, 1, 0, 2, 0, 2, 0, 0, 1, 1], [one.stderr for one in ended]
    for one in ended:
        for line in (*one.stdout.split("\n"), *one.stderr.split("\n")):
            assert line.isprintable(), repr(line)
            assert not line.startswith("cudnn-convert: equal")
    assert all(line.isprintable() for line in Path("report.html").read_text().split("\n"))
    told = json.loads(command("inspect", source, *SIZES, "--json").stdout)["command"]
    printed = ended[1].stdout.split("convert it with:\n  ")[1].split("\n")[0]
    assert str(source) in told
    if shutil.which("bash"):
        read = subprocess.run(["bash", "-c", f"printf '%s\\0' {printed}"], capture_output=True, check=True)
        assert read.stdout.decode().split("\0")[:-1] == told
    else:
        assert shlex.split(printed)[2:] == told[2:]
