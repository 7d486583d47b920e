"""Text of others: first lines, what is printed of names, words for a shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cudnn_convert import text
from cudnn_convert.text import first_line, visible


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (ValueError("bad heap\nmore of it"), "bad heap"),
        (ValueError("\n \n  bad heap \nmore"), "bad heap"),
        (ValueError(" \n"), "ValueError"),
        (EOFError(), "EOFError"),
        # What TensorFlow 2.21 says of a node that it ran, in a session, a session of a file, a function.
        (
            ValueError(
                "Graph execution error:\n\nDetected at node 'r' defined at (most recent call last):\n"
                "    File \"a.py\", line 4, in <module>\nNode: 'r'\nInput has 1 values\n\t [[{{node r}}]]\n\n"
                "Original stack trace for 'r':\n"
            ),
            "Input has 1 values",
        ),
        (
            ValueError(
                "Graph execution error:\n\nDetected at node a/r defined at (most recent call last):\n"
                "<stack traces unavailable>\nInput has 4 values\n\t [[{{node a/r}}]] [Op:__inference_f_26]"
            ),
            "Input has 4 values",
        ),
        (
            ValueError(
                "2 root error(s) found.\n  (0) INVALID_ARGUMENT: Input has 1 values\n\t [[{{node r}}]]\n"
                "  (1) INVALID_ARGUMENT: Another\n0 successful operations."
            ),
            "Input has 1 values",
        ),
    ],
)
def test_of_what_another_library_raises_a_line_is_told(cause: Exception, told: str) -> None:
    assert first_line(cause) == told


#: Clears a screen, goes back to the start of a line, turns text around and starts lines like ours.
HOSTILE = "\x1b[2J\x1b[31mx\r\u202everdict\ncudnn-convert: equal\u2028\x85\x07\x9b1m"


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
    assert visible(text) == shown
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("names", "told"), [([], ""), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_names_past_some_are_counted(names: list[str], told: str) -> None:
    assert text.list_some(names, 2) == told


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_shell_reads_the_words_again() -> None:
    words = ["a b", "it's", HOSTILE, "\x1b1'\\", "순환", "", "--outputs=y:0", "\udcff1", "~", "$(x)"]
    line = text.command(words)
    assert line.isprintable()
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert [part.decode(errors="surrogateescape") for part in read.split(b"\0")[:-1]] == words
