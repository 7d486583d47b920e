"""Names of files reach a person as text: they move no cursor, forge no line and turn nothing around."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tables
from sources import command

from cudnn_convert import errors

#: Clears a screen, goes back to the start of a line, turns text around and starts lines like ours.
HOSTILE = "\x1b[2J\x1b[31mx\r\u202everdict\ncudnn-convert: equal\u2028\x85\x07\x9b1m"
SIZES = ("--mode", "lstm", "--layers", 2, "--units", 3, "--directions", 2)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lstm/kernel:0 [4, 3]", "lstm/kernel:0 [4, 3]"),
        ("순환 신경망", "순환 신경망"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202ea\u2066\u200f\u2028", "\\u202ea\\u2066\\u200f\\u2028"),
        ("\x85\x9b\udcff", "\\x85\\x9b\\udcff"),
    ],
)
def test_what_has_no_shape_is_written_out(text: str, shown: str) -> None:
    assert errors.visible(text) == shown
    assert errors.visible(shown) == shown


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_shell_reads_the_words_again() -> None:
    words = ["a b", "it's", HOSTILE, "\x1b1'\\", "순환", "", "--outputs=y:0", "\udcff1", "~", "$(x)"]
    line = errors.command(words)
    assert line.isprintable()
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert [part.decode(errors="surrogateescape") for part in read.split(b"\0")[:-1]] == words


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
    source = tables.save(folder / "model.ckpt", [(key, blob.astype(np.float32)), (f"{key}x", blob)])
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
